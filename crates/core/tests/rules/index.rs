//! The list of rules is complete and correct: every rule has a test, and every test has a rule.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The sections' files, by the prefix of their tests.
const SECTIONS: [(&str, &str); 22] = [
    ("s6_2_", include_str!("s6_2_resources.rs")),
    ("s6_3_", include_str!("s6_3_quota_tree.rs")),
    ("s6_4_", include_str!("s6_4_order.rs")),
    ("s6_4_", include_str!("s6_4_requeue.rs")),
    ("s6_5_", include_str!("s6_5_order.rs")),
    ("s6_5_", include_str!("s6_5_process.rs")),
    ("s6_6_", include_str!("s6_6_flavors.rs")),
    ("s6_6_", include_str!("s6_6_fungibility.rs")),
    ("s6_6_", include_str!("s6_6_partial_admission.rs")),
    ("s6_7_", include_str!("s6_7_classical_preemption.rs")),
    ("s6_8_", include_str!("s6_8_fair_sharing.rs")),
    ("s6_9_", include_str!("s6_9_admission_fair_sharing.rs")),
    ("s6_10_", include_str!("s6_10_checks.rs")),
    ("s6_11_", include_str!("s6_11_topology.rs")),
    ("s6_12_", include_str!("s6_12_placement.rs")),
    ("s6_14_", include_str!("s6_14_replacement.rs")),
    ("s6_15_", include_str!("s6_15_second_pass.rs")),
    ("s6_17_", include_str!("s6_17_eviction.rs")),
    ("s6_18_", include_str!("s6_18_stop_policy.rs")),
    ("s6_26_", include_str!("s6_26_slices.rs")),
    ("s6_28_", include_str!("s6_28_amounts.rs")),
    ("s11_2_", include_str!("s11_2_seen.rs")),
];

/// The sections whose rules are all tested elsewhere.
const ELSEWHERE: [&str; 5] = ["6.13", "6.21", "11.1", "11.3", "11.4"];

/// The names of the tests in a source file.
fn tests_of(source: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        match function.filter(|_| marked) {
            Some(rest) => {
                names.extend(rest.split('(').next());
                marked = false;
            }
            None => {
                marked = line == "#[test]"
                    || line.starts_with("#[tokio::test")
                    || (marked && line.starts_with("#["));
            }
        }
    }
    names
}

/// One line of the list: the rule's id, and its tests as (file, test); no file is a section's file here.
struct Rule {
    id: String,
    tests: Vec<(Option<String>, String)>,
}

fn rules() -> Vec<Rule> {
    let rows = include_str!("README.md").lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        cells[0].starts_with(|first: char| first.is_ascii_digit()).then_some(cells)
    });
    let of = |cells: Vec<&str>| {
        let quoted = cells[2].split('`').skip(1).step_by(2);
        let mut file = None;
        let mut tests = Vec::new();
        for text in quoted {
            if text.contains('/') {
                file = Some(text.to_owned());
            } else {
                tests.push((file.clone(), text.to_owned()));
            }
        }
        Rule { id: cells[0].to_owned(), tests }
    };
    rows.map(of).collect()
}

#[test]
fn every_rule_has_a_test_and_the_numbers_have_no_holes() {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for rule in rules() {
        let (section, number) = rule.id.rsplit_once('.').expect("section.number");
        let next = numbers.entry(section.to_owned()).or_insert(0);
        *next += 1;
        assert_eq!(number, next.to_string(), "after {section}.{}", *next - 1);
        assert!(!rule.tests.is_empty(), "{} has no test", rule.id);
    }
    let sections: Vec<&str> = numbers.keys().map(String::as_str).collect();
    let expected: Vec<String> =
        SECTIONS.iter().map(|(prefix, _)| prefix.trim_matches(['s', '_']).replace('_', ".")).collect();
    let expected = expected.iter().map(String::as_str).chain(ELSEWHERE);
    assert_eq!(BTreeSet::from_iter(sections), expected.collect());
}

#[test]
fn every_test_of_the_list_exists() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let here: BTreeSet<&str> = SECTIONS.iter().flat_map(|(_, source)| tests_of(source)).collect();
    for rule in rules() {
        for (file, test) in &rule.tests {
            match file {
                None => assert!(here.contains(&**test), "{}: there is no test {test}", rule.id),
                Some(file) => {
                    let source = std::fs::read_to_string(crates.join(file))
                        .unwrap_or_else(|error| panic!("{}: {file}: {error}", rule.id));
                    assert!(tests_of(&source).contains(&**test), "{}: {file} has no test {test}", rule.id);
                }
            }
        }
    }
}

#[test]
fn every_test_is_in_the_list_at_the_rule_of_its_number() {
    let mut listed: BTreeMap<String, String> = BTreeMap::new();
    for rule in rules() {
        listed.extend(
            rule.tests.into_iter().filter(|test| test.0.is_none()).map(|test| (test.1, rule.id.clone())),
        );
    }
    for (prefix, source) in SECTIONS {
        for test in tests_of(source) {
            let rest =
                test.strip_prefix(prefix).unwrap_or_else(|| panic!("{test} does not begin with {prefix}"));
            let number: usize =
                rest.split('_').next().and_then(|number| number.parse().ok()).expect("a number");
            let id = format!("{}.{number}", prefix.trim_matches(['s', '_']).replace('_', "."));
            assert_eq!(listed.get(test), Some(&id), "{test}");
        }
    }
}

#[test]
fn every_trap_refers_to_rules_that_exist() {
    let known: BTreeSet<String> = rules().into_iter().map(|rule| rule.id).collect();
    let mut traps = 0;
    for line in include_str!("README.md")
        .lines()
        .filter(|line| line.starts_with("| trap ") && !line.starts_with("| trap |"))
    {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        traps += 1;
        for id in cells[3].split(", ") {
            assert!(known.contains(id), "{}: there is no rule {id}", cells[1]);
        }
    }
    assert!(traps > 10, "{traps} traps");
}
