//! `cargo xtask docs`: the book in `docs`. Writes its generated tables, and checks its content: links and anchors, paths of the repository, and that
//! every reason and event of the code has an entry.

mod book;
mod config_fields;
mod links;
mod paths;
mod pods_of_kinds;
mod reasons;
mod tables;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use sluice_testkit::assets;

use book::Book;

/// Write the generated tables of the book in docs/, and check its links, paths and entries.
#[derive(clap::Args)]
pub struct Args {
    /// Compare the generated tables with what is there, and fail on a difference; write nothing.
    #[arg(long)]
    check: bool,
    /// Then build the book into target/book with `mdbook`, and fail if that warns of anything.
    #[arg(long)]
    build: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let root = assets::workspace();
    let mut findings = Vec::new();
    for (page, text) in tables::drift(&root)? {
        if args.check {
            findings.push(format!("{page}: its generated tables are out of date: run `cargo xtask docs`"));
        } else {
            fs::write(root.join(&page), text).with_context(|| format!("writing {page}"))?;
            println!("{page}: written");
        }
    }
    let book = Book::read(&root)?;
    findings.extend(book.unlisted());
    findings.extend(book.html());
    findings.extend(links::check(&root, &book));
    findings.extend(paths::check(&root, &book));
    findings.extend(reasons::check(&root, &book)?);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    if args.build {
        build(&root)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the book with the program in `MDBOOK`, else the one in the `PATH`. A warning means that a page does not show its content as intended.
fn build(root: &Path) -> Result<()> {
    let program = std::env::var_os("MDBOOK").unwrap_or_else(|| "mdbook".into());
    let output = Command::new(&program).arg("build").arg(root.join("docs")).output();
    let output = output.with_context(|| format!("running {} (`make book` gets it)", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    print!("{said}");
    ensure!(output.status.success(), "mdbook build: {}", output.status);
    ensure!(!said.lines().any(warns), "mdbook warns of pages of the book");
    Ok(())
}

/// Whether a line of mdBook's log is a warning, or worse.
fn warns(line: &str) -> bool {
    line.split_whitespace().take(3).any(|word| matches!(word.trim_matches(['[', ']']), "WARN" | "ERROR"))
}

#[cfg(test)]
mod tests {
    use super::warns;

    #[test]
    fn warnings_of_mdbook_are_distinguished_from_the_rest() {
        assert!(warns(" WARN unclosed HTML tag `<kind>` found in `a.md`") && warns("ERROR no such file"));
        assert!(!warns(" INFO HTML book written to `target/book`, WARN") && !warns(""));
    }
}
