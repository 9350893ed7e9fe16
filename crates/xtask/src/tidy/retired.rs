//! Retired terms, and turns of phrase that are hard to read: refused in the areas that have been cleaned.
//!
//! To clean another area, rename what is in it and add its path to [`AREAS`].

use std::collections::BTreeMap;

/// Files and folders that are clean. A folder ends with a slash.
const AREAS: &[&str] = &[
    ".ci/",
    "CHANGELOG.md",
    "Cargo.toml",
    "Dockerfile",
    "Makefile",
    "README.md",
    "charts/",
    "clippy.toml",
    "config/",
    "crates/",
    "docs/",
    "examples/",
    "split-debug.sh",
    "tests/",
];

/// This file names what it refuses.
const EXCEPT: &str = "crates/xtask/src/tidy/retired.rs";

/// A term that is retired, and what to write instead. Matched as a whole word; parts of names that underscores or capitals join count as words.
const TERMS: &[(&str, &str)] = &[
    ("parked", "inadmissible (in a queue) or inactive"),
    ("Parked", "inadmissible (in a queue) or inactive"),
    ("parking", "requeueing as inadmissible"),
    ("Lane", "equivalence class"),
    ("Demand", "usage or requests"),
    ("Demanded", "…ToPlace"),
    ("Held", "usage"),
    ("Pick", "assignment"),
    ("stir", "request_cycle"),
    ("restless", "cycle_needed"),
    ("untold", "pending_message"),
    ("take_back", "revoke_reservation"),
    ("let_go", "release or forget"),
    ("obey_checks", "the name of what it does"),
    ("Stranded", "displaced"),
    ("Nearness", "proximity"),
    ("Outlook", "free capacity or preemption possibility"),
    ("uneasy", "the name of the condition"),
    ("BadDay", "fault"),
    ("Fate", "outcome"),
    ("is_so", "the name of the condition"),
    ("nodes_happen", "the name of the event"),
    ("carry_out_so", "the name of what it does"),
    ("lead_unless_kueue_does", "the name of what it does"),
];

/// A turn of phrase that is retired, and what to write instead. Matched without regard to case, between word boundaries; an underscore counts as a
/// blank, so that names of functions and tests are looked at, too.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "name the person or program"),
    ("whichever", "name it"),
    ("somebody", "name the person or program"),
    ("nobody", "say what does not happen"),
    ("everybody", "name who or what"),
    ("anybody", "name who or what"),
    ("is told of", "say what it receives"),
    ("of a kind of kueue's", "of a kind of Kueue"),
    ("those that stand there", "name the state"),
    ("mildest reason", "the least severe reason"),
    ("without a word", "without a message"),
    ("is nothing free", "if nothing is free"),
    ("would that not be enough", "if that is not enough"),
    ("be it", "whether"),
    ("lest", "so that … not"),
    ("from when on", "since when, or the start time"),
    ("has no longer", "no longer has"),
    ("is no amount", "is not a quantity"),
    ("is no number", "is not a number"),
    ("is there twice", "is listed twice"),
    ("so many are left out", "how many to skip"),
    ("so many at most", "how many at most"),
    ("takes the right to", "you need the right to, or name the user"),
    ("what the engine is told", "the inputs of the engine"),
    ("is told to", "say what it receives or does"),
    ("are told to", "say what they receive or do"),
    ("was told to", "say what it received or did"),
    ("told apart", "distinguished or identified"),
    ("told so", "gets the reason"),
    ("is told once", "is reported once"),
    ("are told once", "are reported once"),
    ("ever more", "less and less, or more and more"),
    ("time and again", "repeatedly"),
    ("for so long", "for this long, or name the time"),
    ("in its stead", "instead of it, or its replacement"),
    ("in their stead", "instead of them, or their replacements"),
    ("is to be had", "is available"),
    ("let go", "released, started or admitted"),
    ("lets go", "releases, starts or admits"),
    ("made way", "was preempted"),
    ("make way", "are preempted"),
    ("makes way", "is preempted"),
    ("gave way", "was closed, or waited"),
    ("give way", "are closed, or wait"),
    ("gives way", "is closed, or waits"),
    ("told to", "asked to, or say what happens"),
    ("built anew", "rebuilt"),
    ("job of kubeflow's", "Kubeflow job"),
    ("kind of kubeflow's", "Kubeflow kind"),
];

/// Names of Kueue, and others whose words mean something else together.
const NAMES: &[&str] = &["VisibilityOnDemand", "PreemptionHeldBack"];

/// What users read.
const PAGES: &[&str] = &["README.md", "CHANGELOG.md", "charts/", "docs/", "examples/"];

/// Turns of phrase that are retired there, and what to write instead. Matched as [`PHRASES`].
const PHRASES_OF_PAGES: &[(&str, &str)] = &[
    ("is to blame", "is the cause"),
    ("anew", "again, or created again"),
    ("goes on", "continues, or still runs"),
    ("go on", "continue, or still run"),
    ("went on", "continued, or still ran"),
    ("let run", "resumed, or started"),
    ("told", "reported"),
    ("tells of", "shows"),
];

/// Findings for each retired word in the areas.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| is_clean(path)) {
        let page = is_below(path, PAGES);
        for (number, line) in text.lines().enumerate() {
            for (word, instead) in in_line(line, page) {
                findings.push(format!("{path}:{}: {word:?} is retired: {instead}", number + 1));
            }
        }
    }
    findings
}

fn is_clean(path: &str) -> bool {
    path != EXCEPT && is_below(path, AREAS)
}

/// Whether a file is one of these, or in a folder of these.
fn is_below(path: &str, areas: &[&str]) -> bool {
    areas.iter().any(|area| if area.ends_with('/') { path.starts_with(area) } else { path == *area })
}

fn in_line(line: &str, page: bool) -> Vec<(&'static str, &'static str)> {
    let lower = line.to_lowercase().replace('_', " ");
    let names = NAMES.iter().fold(line.to_owned(), |line, name| line.replace(name, ""));
    let terms = TERMS.iter().filter(|(term, _)| has_word(line, term) || has_part(&names, term));
    let of_pages = PHRASES_OF_PAGES.iter().filter(|_| page);
    let phrases = PHRASES.iter().chain(of_pages).filter(|(phrase, _)| has_word(&lower, phrase));
    terms.chain(phrases).copied().collect()
}

/// Whether `term` is a part of a longer name in `line` whose parts begin with capitals.
fn has_part(line: &str, term: &str) -> bool {
    let begins = term.starts_with(char::is_uppercase);
    begins
        && line.match_indices(term).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + term.len()..].chars().next();
            !before.is_some_and(char::is_uppercase) && !after.is_some_and(char::is_lowercase)
        })
}

/// Whether `word` is in `line` with no letter or digit on either side.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&BTreeMap::from([(path.to_owned(), text.to_owned())]))
    }

    #[test]
    fn a_retired_term_is_refused_where_an_area_is_clean() {
        let found = findings("docs/a.md", "fine\nThe Workload is parked.\n");
        assert_eq!(found, ["docs/a.md:2: \"parked\" is retired: inadmissible (in a queue) or inactive"]);
        assert!(findings("elsewhere/a.rs", "parked").is_empty());
        assert_eq!(findings("tests/compat/deviations.md", "parked").len(), 1);
    }

    #[test]
    fn names_joined_by_underscores_count_and_longer_words_do_not() {
        assert_eq!(findings("README.md", "`parked_workloads`").len(), 1);
        assert!(findings("README.md", "sparked, Laned, blest, busybody").is_empty());
    }

    #[test]
    fn parts_of_longer_names_count() {
        assert_eq!(findings("crates/a.rs", "struct PodOutlook; let x: DemandOfPods;").len(), 2);
        assert_eq!(findings("crates/a.rs", "struct DemandedGroup; /// Parked workloads.").len(), 2);
        assert!(findings("crates/a.rs", "Held-up, Fated, Laned, VisibilityOnDemand").len() == 1);
    }

    #[test]
    fn some_phrases_are_refused_where_users_read_them() {
        assert_eq!(findings("docs/a.md", "A JobSet goes on.").len(), 1);
        assert!(findings("crates/a.rs", "// A JobSet goes on.").is_empty());
    }

    #[test]
    fn phrases_are_found_in_any_case() {
        assert_eq!(findings("crates/a.rs", "// Whoever asks is told of it.").len(), 2);
    }

    #[test]
    fn phrases_are_found_in_names_that_underscores_join() {
        assert_eq!(findings("crates/a.rs", "fn it_moves_nobody() {").len(), 1);
        assert_eq!(findings("crates/a.rs", "fn it_goes_without_a_word() {").len(), 1);
        assert!(findings("crates/a.rs", "fn maybe_it_blest() {").is_empty());
    }
}
