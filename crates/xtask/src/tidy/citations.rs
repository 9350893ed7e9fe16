//! Citations of the reference in code and documents: the page and the section that they name must exist in `docs/reference/`.

use std::collections::BTreeMap;

/// Where the pages are. The name of a page begins with its number of two digits.
const PAGES: &str = "docs/reference/";

/// Findings for every citation "reference 06, 6.5" of a page, or of a section of it, that does not exist.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| !path.starts_with(PAGES)) {
        for (number, line) in text.lines().enumerate() {
            for (page, section) in citations(line) {
                let text = files.iter().find_map(|(path, text)| {
                    path.strip_prefix(PAGES)?.strip_prefix(page)?.starts_with('-').then_some(text)
                });
                let problem = match text {
                    None => format!("{PAGES} has no page {page}"),
                    Some(text) if section.is_some_and(|section| !has_section(text, section)) => {
                        format!("page {page} has no section {}", section.unwrap_or_default())
                    }
                    Some(_) => continue,
                };
                findings.push(format!("{path}:{}: {problem}", number + 1));
            }
        }
    }
    findings
}

/// The pages that a line cites, each with the section behind it where one is named.
fn citations(line: &str) -> Vec<(&str, Option<&str>)> {
    let mut found = Vec::new();
    for (at, word) in line.match_indices("eference ") {
        let rest = &line[at + word.len()..];
        let Some(page) = rest.get(..2).filter(|page| page.bytes().all(|b| b.is_ascii_digit())) else {
            continue;
        };
        let rest = &rest[2..];
        if rest.starts_with(|c: char| c.is_alphanumeric()) {
            continue;
        }
        let section = rest.strip_prefix(", ").map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            rest[..end].trim_end_matches('.')
        });
        found.push((page, section.filter(|section| section.contains('.'))));
    }
    found
}

/// Whether a page has a section `6.5`, or, for `6.5.3`, the section `6.5`, whose points are numbered.
fn has_section(page: &str, section: &str) -> bool {
    let parts: Vec<&str> = section.splitn(3, '.').collect();
    let heading = format!("## {}.{} ", parts[0], parts.get(1).unwrap_or(&""));
    page.lines().any(|line| line.starts_with(&heading))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_citation_of_what_does_not_exist_is_reported() {
        let page = ("docs/reference/06-algorithm.md".to_owned(), "# 6\n## 6.5 The cycle\n".to_owned());
        // In two parts, so that this file cites nothing itself.
        let cite = |what: &str| format!("//! See {} {what}.", "reference");
        let findings = |what: &str| check(&BTreeMap::from([page.clone(), ("a.rs".to_owned(), cite(what))]));
        assert!(findings("06, 6.5").is_empty());
        assert!(findings("06, 6.5.3").is_empty());
        assert!(findings("06").is_empty());
        assert!(findings("0.6 of something").is_empty());
        assert_eq!(findings("06, 6.50"), ["a.rs:1: page 06 has no section 6.50"]);
        assert_eq!(findings("09, 9.1"), ["a.rs:1: docs/reference/ has no page 09"]);
    }
}
