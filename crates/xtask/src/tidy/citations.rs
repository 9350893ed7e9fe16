//! Citations of the reference in code and documents: the page and the section that they name must exist in `docs/reference/`.

use std::collections::BTreeMap;

/// Where the pages are.
const PAGES: &str = "docs/reference/";

/// What users install. Who reads the description of a field there does not have the pages.
const INSTALLED: [&str; 2] = ["charts/", "config/"];

/// Tests whose sections are all of docs/reference/06-algorithm.md: `oracle/mod.rs` and `rules/README.md` say so.
const OF_ONE_PAGE: [&str; 2] = ["crates/core/tests/oracle/", "crates/core/tests/rules/"];

/// Findings for every citation "docs/reference/06-algorithm.md 6.5" of a page, or of a section of it, that does not exist, and for every
/// citation by number alone, which a reader cannot open. A section stands alone only where the head of the file, or the line, names its page.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| !path.starts_with(PAGES)) {
        let mut before = "";
        let head = || text.lines().filter(|line| line.starts_with("//!"));
        let of_one_page = OF_ONE_PAGE.iter().any(|folder| path.starts_with(folder));
        for (number, line) in text.lines().enumerate() {
            let mut report = |problem: String| findings.push(format!("{path}:{}: {problem}", number + 1));
            if line.contains(PAGES) && INSTALLED.iter().any(|folder| path.starts_with(folder)) {
                report(format!("{PAGES} is not where this is installed"));
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
            for section in sections_alone(line).filter(|_| !of_one_page) {
                let of = |page: &str| head().chain([line]).any(|line| line.contains(page));
                let page = page_of(files, section).filter(|page| !of(page));
                if let Some(page) = page {
                    report(format!("{section} is a section of {page}, which is not named"));
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

/// Numbers of sections in a comment that stand behind no page: `(N.N)`, `section N.N`, `what N.N compares`.
fn sections_alone(line: &str) -> impl Iterator<Item = &str> {
    let line = if line.trim_start().starts_with("//") { line } else { "" };
    let words = ["(", "section ", "sections ", "what "].into_iter();
    let after =
        words.flat_map(move |word| line.match_indices(word).map(move |(at, _)| &line[at + word.len()..]));
    after.filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let section = rest[..end].trim_end_matches('.');
        let is_alone = !rest[end..].starts_with(char::is_alphanumeric);
        (is_alone && section.contains('.')).then_some(section)
    })
}

/// The page that has a section of this number.
fn page_of<'a>(files: &'a BTreeMap<String, String>, section: &str) -> Option<&'a str> {
    let start = format!("{PAGES}{:0>2}-", section.split('.').next()?);
    let (page, text) = files.iter().find(|(path, _)| path.starts_with(&start))?;
    has_section(text, section).then_some(page.as_str())
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
    fn a_section_alone_is_reported_unless_the_head_or_the_line_names_its_page() {
        let page = ("docs/reference/06-algorithm.md".to_owned(), "## 6.5 The cycle\n".to_owned());
        let findings = |path: &str, text: &str| {
            check(&BTreeMap::from([page.clone(), (path.to_owned(), text.to_owned())])).len()
        };
        for alone in ["The cycle (6.5).", "By section 6.5, it ends.", "It is what 6.5.3 compares."] {
            let head = format!("//! See {PAGES}06-algorithm.md.\n\n/// {alone}");
            assert_eq!(findings("a.rs", &format!("/// {alone}")), 1, "{alone}");
            assert_eq!(findings("crates/core/tests/oracle/a.rs", &format!("/// {alone}")), 0, "{alone}");
            assert_eq!(findings("a.rs", &head), 0, "{alone}");
        }
        assert_eq!(findings("a.rs", &format!("/// Beside {PAGES}06-algorithm.md 6.5 (6.5)")), 0);
        assert_eq!(findings("a.rs", "/// Waits (0.5 s), as TLS 1.2 (6.5x, 6.51) and what 6.7 says."), 0);
        assert_eq!(findings("a.md", "The cycle (6.5)."), 0, "no comment");
    }

    #[test]
    fn what_users_install_cites_no_page() {
        let page = ("docs/reference/06-algorithm.md".to_owned(), "## 6.5 The cycle\n".to_owned());
        let findings = |path: &str| {
            let text = format!("description: see {PAGES}06-algorithm.md 6.5\n");
            check(&BTreeMap::from([page.clone(), (path.to_owned(), text)]))
        };
        for path in ["charts/sluice/crds/a.yaml", "config/crd/a.yaml"] {
            assert_eq!(findings(path), [format!("{path}:1: {PAGES} is not where this is installed")]);
        }
        assert!(findings("examples/a.yaml").is_empty());
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
