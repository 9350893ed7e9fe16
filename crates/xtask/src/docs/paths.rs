//! Paths of the repository that pages name in code spans, such as `crates/core/src/lib.rs`, exist.

use std::path::Path;

use super::book::Book;

/// A code span that begins so is a path of the repository.
const ROOTS: [&str; 7] = ["charts/", "config/", "crates/", "docs/", "examples/", "tests/", "Makefile"];

/// Findings for paths that do not exist. The changelog is about the past, and the contract of another project: both are left out.
pub fn check(root: &Path, book: &Book) -> Vec<String> {
    let mut findings = Vec::new();
    let pages =
        book.pages.iter().filter(|(path, _)| *path != "CHANGELOG.md" && !path.starts_with("docs/reference/"));
    for (path, page) in pages {
        for (line, code) in &page.code {
            if is_path(code) && !root.join(code).exists() {
                findings.push(format!("{path}:{line}: {code}: there is no such file"));
            }
        }
    }
    findings
}

fn is_path(code: &str) -> bool {
    ROOTS.iter().any(|root| code.starts_with(root)) && !code.contains([' ', '*', '…', '{', '<'])
}

#[cfg(test)]
mod tests {
    use super::super::book::Page;
    use super::*;

    #[test]
    fn a_path_that_does_not_exist_is_reported() {
        let text = "`crates/gone.rs`, `docs/is`, `tests/**`, `make test`\n";
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("docs/is")).unwrap();
        let pages = [("docs/a.md".to_owned(), Page::parse(text.to_owned()))].into();
        let findings = check(folder.path(), &Book { pages });
        assert_eq!(findings, ["docs/a.md:1: crates/gone.rs: there is no such file"]);
    }
}
