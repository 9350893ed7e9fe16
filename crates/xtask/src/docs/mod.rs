//! `cargo xtask docs`: the book in `docs`. Writes its generated tables, and checks what it says: links and anchors, paths of the repository, and
//! that every reason and event of the code has its entry.

mod book;
mod config_fields;
mod links;
mod paths;
mod reasons;
mod tables;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use sluice_testkit::assets;

use book::Book;

/// Write the generated tables of the book in docs/, and check its links, paths and entries.
#[derive(clap::Args)]
pub struct Args {
    /// Compare the generated tables with what is there, and fail on a difference; write nothing.
    #[arg(long)]
    check: bool,
    /// Then build the book into target/book with an installed `mdbook`; without one, say how to get it.
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

fn build(root: &Path) -> Result<()> {
    let folder = root.join("docs");
    match Command::new("mdbook").arg("build").arg(&folder).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("mdbook build: {status}"),
        Err(_) => {
            println!("docs is checked. To build it, `cargo install mdbook --locked`, then run this again.");
            Ok(())
        }
    }
}
