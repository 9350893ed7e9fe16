//! Citations of the reference in code and documents: the page and the section that they name must exist in `docs/reference/`. What users install cites
//! nothing of it.

use std::collections::BTreeMap;

/// Where the pages are.
const PAGES: &str = "docs/reference/";

/// What users install: nothing of it speaks of the reference, which is for those who change the code.
const INSTALLED: [&str; 2] = ["charts/", "config/"];

/// Findings for every citation "docs/reference/06-algorithm.md 6.5" of a page, or of a section of it, that does not exist, and for every
/// citation by number alone, which a reader cannot open.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| !path.starts_with(PAGES)) {
        let mut before = "";
        for (number, line) in text.lines().enumerate() {
            let mut report = |problem: String| findings.push(format!("{path}:{}: {problem}", number + 1));
            if line.contains(PAGES) && INSTALLED.iter().any(|folder| path.starts_with(folder)) {
                report(format!("what users install does not cite {PAGES}"));
            }
            for (page, section) in citations(line) {
                match files.get(page) {
                    None => report(format!("there is no {page}")),
                    Some(text) if section.is_some_and(|section| !has_section(text, section)) => {
                        report(format!("{page} has no section {}", section.unwrap_or_default()));
                    }
                    Some(_) => {}
                }
            }
            let broken = ends_in_reference(before).then(|| format!("reference {}", comment(line)));
            before = line;
            if cites_by_number(line)
                || cites_section(line)
                || broken.is_some_and(|line| cites_by_number(&line))
            {
                report(format!("a page is cited by its path, such as {PAGES}06-algorithm.md 6.5"));
            }
        }
    }
    findings
}

/// The pages that a line cites, each with the section behind it where one is named.
fn citations(line: &str) -> Vec<(&str, Option<&str>)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices(PAGES) {
        let name = &line[at + PAGES.len()..];
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !"-._".contains(c)).unwrap_or(name.len());
        let name = name[..end].trim_end_matches('.');
        if name.strip_suffix(".md").is_none() {
            continue;
        }
        let path = &line[at..at + PAGES.len() + name.len()];
        let section = line[at + path.len()..].strip_prefix(' ').map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            rest[..end].trim_end_matches('.')
        });
        found.push((path, section.filter(|section| !section.is_empty())));
    }
    found
}

/// Whether a line cites a page by its number alone.
fn cites_by_number(line: &str) -> bool {
    ["eference ", "eferences "].iter().any(|word| {
        line.match_indices(word).any(|(at, word)| {
            let rest = &line.as_bytes()[at + word.len()..];
            matches!(rest, [b'0' | b'1', second, ..] if second.is_ascii_digit())
                && !rest.get(2).is_some_and(u8::is_ascii_alphanumeric)
        })
    })
}

/// What a comment says in a line, without its slashes.
fn comment(line: &str) -> &str {
    line.trim_start().trim_start_matches(['/', '!']).trim_start()
}

/// Whether a line of a comment ends in that word: the number may follow in the next.
fn ends_in_reference(line: &str) -> bool {
    line.trim_start().starts_with("//") && line.trim_end().ends_with("eference")
}

/// Whether a comment names a page by its number, before a comma and a section.
fn cites_section(line: &str) -> bool {
    let is_section = |text: &str| {
        let point = text.trim_start_matches(|c: char| c.is_ascii_digit());
        point.len() < text.len()
            && point.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    line.trim_start().starts_with("//")
        && comment(line).match_indices(", ").any(|(comma, _)| {
            let (before, after) = comment(line).split_at(comma);
            let word = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
            matches!(word.as_bytes(), [b'0', digit] if digit.is_ascii_digit())
                && is_section(&after[", ".len()..])
        })
}

/// Whether a page has a section `6.5`; for `6.5.3`, the section `6.5`, whose points are numbered; for `3`, a point of its own.
fn has_section(page: &str, section: &str) -> bool {
    let parts: Vec<&str> = section.splitn(3, '.').collect();
    let start = match parts.get(1) {
        Some(second) => format!("## {}.{second} ", parts[0]),
        None => format!("{section}. "),
    };
    page.lines().any(|line| line.starts_with(&start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_citation_of_what_does_not_exist_is_reported() {
        let page =
            ("docs/reference/06-algorithm.md".to_owned(), "# 6\n## 6.5 The cycle\n2. It ends.\n".to_owned());
        // In parts, so that this file cites nothing itself.
        let findings = |what: &str| {
            check(&BTreeMap::from([page.clone(), ("a.rs".to_owned(), format!("//! See {PAGES}{what}."))]))
        };
        assert!(findings("06-algorithm.md 6.5").is_empty());
        assert!(findings("06-algorithm.md 6.5.3").is_empty());
        assert!(findings("06-algorithm.md").is_empty());
        assert!(findings("06-algorithm.md 2").is_empty());
        assert_eq!(
            findings("06-algorithm.md 6.50"),
            ["a.rs:1: docs/reference/06-algorithm.md has no section 6.50"]
        );
        assert_eq!(
            findings("06-algorithm.md 3"),
            ["a.rs:1: docs/reference/06-algorithm.md has no section 3"]
        );
        assert_eq!(findings("09-what.md 9.1"), [format!("a.rs:1: there is no {PAGES}09-what.md")]);
    }

    #[test]
    fn a_citation_in_what_users_install_is_reported() {
        let page = ("docs/reference/06-algorithm.md".to_owned(), "# 6\n".to_owned());
        let of = |path: &str| {
            let text = format!("# See {PAGES}06-algorithm.md.");
            check(&BTreeMap::from([page.clone(), (path.to_owned(), text)]))
        };
        assert_eq!(
            of("config/crd/a.yaml"),
            ["config/crd/a.yaml:1: what users install does not cite docs/reference/"]
        );
        assert_eq!(of("charts/sluice/values.yaml").len(), 1);
        assert!(of("docs/a.md").is_empty());
    }

    #[test]
    fn a_citation_by_number_alone_is_reported() {
        let findings = |what: &str| {
            let line = format!("//! See {} {what}.", "reference");
            check(&BTreeMap::from([("a.rs".to_owned(), line)])).len()
        };
        let line = |text: &str| check(&BTreeMap::from([("a.rs".to_owned(), text.to_owned())])).len();
        // In parts, so that this file cites nothing itself.
        let section = format!("{}, 6.5", "06");
        assert_eq!(line(&format!("/// Cut ({section}).")), 1);
        assert_eq!(line(&format!("/// Cut ({}\n/// {section}).", "reference")), 1);
        assert_eq!(line(&format!("/// Cut ({}\n/// {}).", "reference", "06")), 1);
        assert_eq!(line("/// From 06, then 6.5 of 100, 6.5."), 0);
        assert_eq!(["06", "06, 6.5", "11.1.16", "0.6 of it", "060"].map(findings), [1, 1, 1, 0, 0]);
    }
}
