//! The digests of the bench format: sha256 over sorted lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::run::RunResult;

/// Every digest that the core's outcome has, by its name in `expected.digest`.
pub fn digests(outcome: &RunResult, keys: &[String]) -> BTreeMap<&'static str, String> {
    let with_cycle = |events: &[(u64, usize)]| {
        digest(events.iter().map(|(cycle, seq)| format!("{cycle} {}", keys[*seq])).collect())
    };
    let mut distinct: Vec<usize> = outcome.admissions.iter().map(|(_, seq)| *seq).collect();
    distinct.sort_unstable();
    distinct.dedup();
    BTreeMap::from([
        ("sequence", with_cycle(&outcome.admissions)),
        ("distinct", digest(distinct.iter().map(|seq| keys[*seq].clone()).collect())),
        ("holding", digest(outcome.holding.iter().map(|seq| keys[*seq].clone()).collect())),
        ("evictions", with_cycle(&outcome.evictions)),
        ("topology", digest(topology_lines(outcome, keys).collect())),
    ])
}

/// `<cycle> <namespace>/<name> <node>=<pods>,…` of each admission.
pub fn topology_lines<'a>(outcome: &'a RunResult, keys: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let admissions = outcome.admissions.iter().zip(&outcome.nodes);
    admissions.map(|((cycle, seq), nodes)| format!("{cycle} {} {nodes}", keys[*seq]))
}

fn digest(mut lines: Vec<String>) -> String {
    lines.sort_unstable();
    let mut hasher = Sha256::new();
    for line in lines {
        hasher.update(line.as_bytes());
        hasher.update(b"\n");
    }
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("writing to a String cannot fail");
        hex
    })
}

/// The first line in which two sorted lists of lines differ: (expected, got).
pub fn first_difference(expected: &[String], got: &[String]) -> Option<(Option<String>, Option<String>)> {
    let most = expected.len().max(got.len());
    (0..most)
        .map(|index| (expected.get(index).cloned(), got.get(index).cloned()))
        .find(|(expected, got)| expected != got)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_no_lines_is_that_of_the_empty_text() {
        assert_eq!(digest(Vec::new()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn lines_are_sorted_before_they_are_hashed() {
        assert_eq!(
            digest(vec!["b".to_owned(), "a".to_owned()]),
            digest(vec!["a".to_owned(), "b".to_owned()])
        );
    }

    #[test]
    fn the_first_difference_names_a_line_that_only_one_side_has() {
        let (left, right) = (vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(first_difference(&left, &right), Some((None, Some("b".to_owned()))));
        assert_eq!(first_difference(&left, &left), None);
    }
}
