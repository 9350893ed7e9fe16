//! Names of types and functions: retired names whose words are plain English otherwise, and names that two types of one crate have.

use std::collections::BTreeMap;
use std::path::Path;

/// Names of types that say nothing, or that are retired, and what to write instead.
const TYPES: &[(&str, &str)] = &[
    ("Own", "what it is of whom"),
    ("At", "the time or the place"),
    ("Only", "what is left"),
    ("Wrong", "the error"),
    ("What", "what it is"),
    ("Look", "snapshot, lookup"),
    ("Scene", "snapshot"),
    ("Room", "free capacity, bound"),
    ("Flight", "pending write"),
    ("Keeper", "the name of what it does"),
    ("Told", "totals, the answer"),
];

/// Retired names of functions, and their replacements. A name that ends with an underscore stands for all that begin with it.
const FUNCTIONS: &[(&str, &str)] = &[
    ("told", "reported"),
    ("tell", "report"),
    ("tells", "should_report"),
    ("tell_", "report_…"),
    ("leave", "the name of what it does"),
];

/// Names that several types of one crate had before.
const ONCE: &[&str] = &["Decision", "Entry", "Outcome", "State", "Place", "Displaced"];

/// Findings for each definition with such a name. A crate is everything below `crates/NAME/src/`; test programs have names of their own.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let (mut findings, mut seen) = (Vec::new(), BTreeMap::new());
    for (path, text) in
        files.iter().filter(|(path, _)| Path::new(path).extension().is_some_and(|end| end == "rs"))
    {
        for (number, line) in text.lines().enumerate() {
            let Some((sort, name)) = definition(line) else { continue };
            let at = format!("{path}:{}", number + 1);
            let retired = if sort == "fn" { function(name) } else { type_(name) };
            if let Some(instead) = retired {
                findings.push(format!("{at}: {sort} {name:?} is a retired name: {instead}"));
            }
            let Some(of) = crate_of(path).filter(|_| sort != "fn" && sort != "type" && ONCE.contains(&name))
            else {
                continue;
            };
            if let Some(first) = seen.insert((of.to_owned(), name.to_owned()), at.clone()) {
                findings
                    .push(format!("{at}: {name:?} is also the name of what is at {first}: tell them apart"));
            }
        }
    }
    findings
}

/// What a line defines, and its name.
fn definition(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let mut words =
        line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let before = ["pub", "crate", "super", "in", "const", "async"];
    let sort = words.find(|word| !before.contains(word)).filter(|_| !line.starts_with('/'))?;
    ["struct", "enum", "trait", "type", "fn"].contains(&sort).then_some((sort, words.next()?))
}

fn type_(name: &str) -> Option<&'static str> {
    TYPES.iter().find(|(retired, _)| *retired == name).map(|(_, instead)| *instead)
}

fn function(name: &str) -> Option<&'static str> {
    let is = |retired: &str| if retired.ends_with('_') { name.starts_with(retired) } else { name == retired };
    FUNCTIONS.iter().find(|(retired, _)| is(retired)).map(|(_, instead)| *instead)
}

fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split_once("/src/").map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        check(&files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn definitions_with_a_retired_name_are_found_and_sentences_are_not() {
        let text = "/// Look at it: At once.\npub(crate) struct Look<'a> {\n    async fn tell_all(&self) {}\nfn telling() {}\nlet Room = 1;\n";
        let found = findings(&[("crates/a/src/b.rs", text)]);
        let names = [
            "crates/a/src/b.rs:2: struct \"Look\" is a retired name: snapshot, lookup",
            "crates/a/src/b.rs:3: fn \"tell_all\" is a retired name: report_…",
        ];
        assert_eq!(found, names);
    }

    #[test]
    fn a_name_of_two_types_is_found_within_a_crate_and_nowhere_else() {
        let text = "struct State;\n";
        let files = [("crates/a/src/x.rs", text), ("crates/b/src/x.rs", text), ("crates/a/tests/x.rs", text)];
        assert_eq!(findings(&files), Vec::<String>::new());
        let found = findings(&[("crates/a/src/x.rs", text), ("crates/a/src/y.rs", "pub enum State {}\n")]);
        let text = "crates/a/src/y.rs:1: \"State\" is also the name of what is at crates/a/src/x.rs:1: tell them apart";
        assert_eq!(found, [text]);
    }
}
