//! Names of types, functions and modules: retired names whose words are plain English otherwise, and names that two types of one crate have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::tokens;

/// Names of types that say nothing, or that are retired, and what to write instead.
const TYPES: &[(&str, &str)] = &[
    ("Own", "what it is of whom"),
    ("At", "the time or the place"),
    ("Only", "what is left"),
    ("Wrong", "the error"),
    ("What", "what it is"),
    ("Flight", "pending write"),
];

/// Words that no name of a type has, and what to write instead. Words begin with capitals.
const PARTS: &[(&str, &str)] = &[
    ("Look", "snapshot, lookup"),
    ("Looks", "evaluations, searches"),
    ("Scene", "snapshot"),
    ("Room", "free capacity, bound"),
    ("Keeper", "the name of what it does"),
];

/// Retired names of functions, and their replacements.
const FUNCTIONS: &[(&str, &str)] = &[
    ("leave", "the name of what it does"),
    ("most", "potential_available, or the name of the bound"),
    ("ring", "fire_timers"),
    ("agree", "the name of the condition"),
    ("happen", "the name of the event"),
    ("happens", "the name of the condition"),
];

/// Words that no name of anything has, and what to write instead. Words are joined by underscores; their case does not count.
const WORDS: &[(&str, &str)] = &[
    ("told", "reported"),
    ("tell", "report"),
    ("tells", "reports"),
    ("telling", "the name of what it does"),
    ("demand", "usage, requests, or to_place"),
    ("demanded", "requested, or the name of the part"),
    ("stranded", "displaced"),
    ("outlook", "free capacity or preemption possibility"),
    ("keeper", "the name of what it does"),
];

/// Modules whose names have a word of [`PARTS`] still: their paths without the ending. None is added; one that is renamed leaves the list.
const MODULES: &[&str] = &[];

/// Names that several types of one crate had before.
const ONCE: &[&str] = &["Decision", "Entry", "Outcome", "State", "Place", "Displaced"];

/// Findings for each definition and each module with such a name. A crate is everything below `crates/NAME/src/`; test programs have names of their own.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut findings = modules(files.keys().map(String::as_str), MODULES);
    findings.extend(definitions(files));
    findings
}

/// Findings for each module of a crate whose name has a retired word, except for those that are known, and for each known one that is not there.
fn modules<'a>(paths: impl Iterator<Item = &'a str>, known: &[&str]) -> Vec<String> {
    let (mut findings, mut unseen) = (Vec::new(), known.iter().copied().collect::<BTreeSet<_>>());
    for path in paths.filter(|path| crate_of(path).is_some()) {
        let Some(stem) = path.strip_suffix(".rs") else { continue };
        if let Some(of) = known
            .iter()
            .find(|of| stem.strip_prefix(**of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        {
            unseen.remove(of);
            continue;
        }
        let names = stem.split('/').skip(3);
        let retired = names
            .flat_map(|name| name.split('_'))
            .find_map(|word| PARTS.iter().find(|(retired, _)| word.eq_ignore_ascii_case(retired)));
        if let Some((word, instead)) = retired {
            findings
                .push(format!("{path}: {:?} is a retired name of a module: {instead}", word.to_lowercase()));
        }
    }
    findings.extend(
        unseen.into_iter().map(|of| format!("{of}: is gone, so it leaves the list of modules in names.rs")),
    );
    findings
}

fn definitions(files: &BTreeMap<String, String>) -> Vec<String> {
    let (mut findings, mut seen) = (Vec::new(), BTreeMap::new());
    for (path, text) in
        files.iter().filter(|(path, _)| Path::new(path).extension().is_some_and(|end| end == "rs"))
    {
        findings.extend(
            words(text).map(|(name, instead)| format!("{path}: {name:?} is a retired name: {instead}")),
        );
        for (number, line) in text.lines().enumerate() {
            let Some((sort, name)) = definition(line) else { continue };
            let at = format!("{path}:{}", number + 1);
            let retired = if sort == "fn" { function(name) } else { type_(name) };
            if let Some(instead) = retired {
                findings.push(format!("{at}: {sort} {name:?} is a retired name: {instead}"));
            }
            // A type within an item is that of a trait.
            let is_own = sort != "fn" && !(sort == "type" && line.starts_with(char::is_whitespace));
            let Some(of) = crate_of(path).filter(|_| is_own && ONCE.contains(&name)) else { continue };
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
    let whole = TYPES.iter().find(|(retired, _)| *retired == name);
    let part = || PARTS.iter().find(|(retired, _)| parts(name).any(|part| part == *retired));
    whole.or_else(part).map(|(_, instead)| *instead)
}

/// The words of a type's name.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let begins = name.char_indices().filter(|(_, c)| c.is_uppercase()).map(|(at, _)| at);
    let ends = begins.clone().skip(1).chain([name.len()]);
    begins.zip(ends).map(|(begin, end)| &name[begin..end])
}

fn function(name: &str) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(retired, _)| *retired == name).map(|(_, instead)| *instead)
}

/// The names in a file that have a retired word, each once.
fn words(text: &str) -> impl Iterator<Item = (&str, &'static str)> {
    let names: BTreeSet<&str> = tokens::names(text).collect();
    names.into_iter().filter_map(|name| {
        let retired = |word: &str| WORDS.iter().find(|(retired, _)| word.eq_ignore_ascii_case(retired));
        name.split('_').find_map(retired).map(|(_, instead)| (name, *instead))
    })
}

fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split_once("/src/").map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        definitions(&files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn definitions_with_a_retired_name_are_found_and_sentences_are_not() {
        let text = "/// Look at it: At once.\npub(crate) struct Look<'a> {\n    async fn leave(&self) {}\nfn leaves() {}\nlet Room = 1;\n";
        let found = findings(&[("crates/a/src/b.rs", text)]);
        let names = [
            "crates/a/src/b.rs:2: struct \"Look\" is a retired name: snapshot, lookup",
            "crates/a/src/b.rs:3: fn \"leave\" is a retired name: the name of what it does",
        ];
        assert_eq!(found, names);
    }

    #[test]
    fn a_retired_word_in_a_longer_name_of_a_type_is_found() {
        let found =
            findings(&[("crates/a/src/b.rs", "enum FoundRoom {}\nstruct NodeLookup;\nstruct Roomy;\n")]);
        assert_eq!(
            found,
            ["crates/a/src/b.rs:1: enum \"FoundRoom\" is a retired name: free capacity, bound"]
        );
    }

    #[test]
    fn a_retired_word_in_the_name_of_a_module_is_found_but_for_those_that_are_known() {
        let paths = [
            "crates/a/src/room.rs",
            "crates/a/src/free_room.rs",
            "crates/a/src/scene/mod.rs",
            "crates/a/src/mushrooms.rs",
            "crates/a/src/known_room.rs",
            "crates/a/src/known_room/tests.rs",
            "crates/a/tests/looks.rs",
            "docs/room.rs",
        ];
        let found = modules(paths.into_iter(), &["crates/a/src/known_room", "crates/a/src/gone_room"]);
        let names = [
            "crates/a/src/room.rs: \"room\" is a retired name of a module: free capacity, bound",
            "crates/a/src/free_room.rs: \"room\" is a retired name of a module: free capacity, bound",
            "crates/a/src/scene/mod.rs: \"scene\" is a retired name of a module: snapshot",
            "crates/a/src/gone_room: is gone, so it leaves the list of modules in names.rs",
        ];
        assert_eq!(found, names);
    }

    #[test]
    fn retired_words_of_fields_and_variables_are_found_once_and_sentences_are_not() {
        let text = "// It is told.\nlet told = \"told\";\nif self.told_now && told { Self::Tell }\nlet retold = 1;\n";
        let found = findings(&[("tests/tests/b.rs", text)]);
        let names = [
            "tests/tests/b.rs: \"Tell\" is a retired name: report",
            "tests/tests/b.rs: \"told\" is a retired name: reported",
            "tests/tests/b.rs: \"told_now\" is a retired name: reported",
        ];
        assert_eq!(found, names);
    }

    #[test]
    fn a_name_of_two_types_is_found_within_a_crate_and_nowhere_else() {
        let text = "struct State;\n";
        let files = [("crates/a/src/x.rs", text), ("crates/b/src/x.rs", text), ("crates/a/tests/x.rs", text)];
        assert_eq!(findings(&files), Vec::<String>::new());
        let associated = "impl A for B {\n    type State = u8;\n}\n";
        let files = [("crates/a/src/x.rs", text), ("crates/a/src/y.rs", associated)];
        assert_eq!(findings(&files), Vec::<String>::new());
        let alias = findings(&[("crates/a/src/x.rs", text), ("crates/a/src/y.rs", "pub type State = u8;\n")]);
        assert_eq!(alias.len(), 1, "{alias:?}");
        let found = findings(&[("crates/a/src/x.rs", text), ("crates/a/src/y.rs", "pub enum State {}\n")]);
        let text = "crates/a/src/y.rs:1: \"State\" is also the name of what is at crates/a/src/x.rs:1: tell them apart";
        assert_eq!(found, [text]);
    }
}
