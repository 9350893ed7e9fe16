//! Runs of nodes whose names have the same prefix (docs/reference/06-algorithm.md 6.21).

use super::{MAX_DOMAINS_IN_SLICE, Row};

/// The most slices that an assignment may have.
const MAX_SLICES: usize = 1000;

/// The longest value that a label of a node may have. Longer names are not names of nodes, and may have any number of dashes.
const LONGEST_NAME: usize = 63;

/// Splits the domains into runs of consecutive ones with the same key. A node's key is the longest prefix of its name that ends in a dash and that
/// another node's name has, too; the number of dashes is reduced until there are few enough runs.
pub(super) fn runs(domains: &[Row]) -> Vec<&[Row]> {
    let names: Vec<&str> = domains.iter().map(|row| row.values.last().map_or("", String::as_str)).collect();
    let whole = || domains.chunks(MAX_DOMAINS_IN_SLICE).collect();
    if names.iter().any(|name| name.len() > LONGEST_NAME) {
        return whole();
    }
    let shared = shared(&names);
    let deepest = shared.iter().map(|shared| shared.matches('-').count()).max().unwrap_or_default();
    for depth in (1..=deepest).rev() {
        let keys: Vec<&str> =
            shared.iter().map(|shared| prefixes(shared).nth(depth - 1).unwrap_or(shared)).collect();
        let runs = cut(domains, &keys);
        if runs.len() <= MAX_SLICES {
            return runs;
        }
    }
    whole()
}

/// Of each name the longest prefix that another name has, too. Names that begin alike are neighbours in their order.
fn shared<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut sorted: Vec<usize> = (0..names.len()).collect();
    sorted.sort_unstable_by_key(|at| names[*at]);
    let mut shared = vec![""; names.len()];
    for pair in sorted.windows(2) {
        let (a, b) = (names[pair[0]], names[pair[1]]);
        let of_both =
            prefixes(a).zip(prefixes(b)).take_while(|(a, b)| a == b).last().map_or(0, |(a, _)| a.len());
        for at in pair {
            if of_both > shared[*at].len() {
                shared[*at] = &names[*at][..of_both];
            }
        }
    }
    shared
}

/// The beginnings of a name that end in a dash, without the name itself.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('-').map(|(at, _)| &name[..=at]).filter(move |prefix| prefix.len() < name.len())
}

fn cut<'a>(domains: &'a [Row], keys: &[&str]) -> Vec<&'a [Row]> {
    let mut runs = Vec::new();
    let mut start = 0;
    for end in 1..=domains.len() {
        let full = end - start == MAX_DOMAINS_IN_SLICE;
        if end == domains.len() || full || keys[end] != keys[start] {
            runs.push(&domains[start..end]);
            start = end;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_shares_its_longest_beginning_that_another_name_has_too(
            names in prop::collection::vec("[ab-]{0,6}", 0..12)
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let of = |at: usize| {
                let others = || names.iter().enumerate().filter(move |(other, _)| *other != at);
                let both = |prefix: &&str| others().any(|(_, other)| prefixes(other).any(|one| one == *prefix));
                prefixes(names[at]).filter(both).last().unwrap_or_default()
            };
            prop_assert_eq!(shared(&names), (0..names.len()).map(of).collect::<Vec<_>>());
        }
    }
}
