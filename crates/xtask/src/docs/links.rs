//! Links inside the book lead to pages and headings that exist.

use std::path::Path;

use super::book::{Book, Page, resolve};

/// Findings for links that lead nowhere. Links to other hosts are not followed.
pub fn check(root: &Path, book: &Book) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, page) in &book.pages {
        for (line, link) in &page.links {
            if let Some(problem) = problem(root, book, path, page, link) {
                findings.push(format!("{path}:{line}: {link}: {problem}"));
            }
        }
    }
    findings
}

fn problem(root: &Path, book: &Book, path: &str, page: &Page, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) =
        link.split_once('#').map_or((link, None), |(target, anchor)| (target, Some(anchor)));
    let anchors = |page: &Page, anchor: &str| {
        (!page.anchors().contains(anchor)).then(|| format!("there is no heading {anchor:?}"))
    };
    if target.is_empty() {
        return anchor.and_then(|anchor| anchors(page, anchor));
    }
    let target = resolve(path, target);
    // The built book holds what is below docs; a page of it cannot link further.
    if path.starts_with("docs/") && !target.starts_with("docs/") {
        return Some("leads out of the book: name the path instead".to_owned());
    }
    match book.pages.get(&target) {
        Some(page) => anchor.and_then(|anchor| anchors(page, anchor)),
        None if root.join(&target).exists() => None,
        None => Some("there is no such file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn links_to_missing_files_and_headings_are_reported() {
        let page = |text: &str| Page::parse(text.to_owned());
        let pages = [
            (
                "docs/a.md".to_owned(),
                page("# A\n\n[b](b.md#there) [x](c.md) [up](../README.md) [web](https://x.y)\n"),
            ),
            ("docs/b.md".to_owned(), page("# B\n\n## There\n\n[a](#there) [n](a.md#nowhere)\n")),
        ];
        let book = Book { pages: BTreeMap::from(pages) };
        assert_eq!(
            check(Path::new("/nowhere"), &book),
            [
                "docs/a.md:3: c.md: there is no such file",
                "docs/a.md:3: ../README.md: leads out of the book: name the path instead",
                "docs/b.md:5: a.md#nowhere: there is no heading \"nowhere\"",
            ]
        );
    }
}
