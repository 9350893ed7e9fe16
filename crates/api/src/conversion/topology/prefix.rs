//! Runs of nodes whose names begin alike (docs/reference/06-algorithm.md 6.21).

use std::collections::BTreeMap;

use super::{MAX_DOMAINS_IN_SLICE, Row};

/// The most slices that an assignment may have.
const MAX_SLICES: usize = 1000;

/// Cuts the domains into runs of consecutive ones with the same key. A node's key is the longest part of its name that ends in a
/// dash and that another node's name begins with too; it is looked for ever fewer dashes deep, until the runs are few enough.
pub(super) fn runs(domains: &[Row]) -> Vec<&[Row]> {
    let names: Vec<&str> = domains.iter().map(|row| row.values.last().map_or("", String::as_str)).collect();
    let mut occurrences: BTreeMap<&str, u32> = BTreeMap::new();
    for name in &names {
        for prefix in prefixes(name) {
            *occurrences.entry(prefix).or_default() += 1;
        }
    }
    let deepest = names.iter().map(|name| prefixes(name).count()).max().unwrap_or_default();
    for depth in (1..=deepest).rev() {
        let key = |name: &'_ str| -> usize {
            let shared = prefixes(name).take(depth).filter(|prefix| occurrences.get(prefix) > Some(&1));
            shared.last().map_or(0, str::len)
        };
        let runs = cut(domains, &names, key);
        if runs.len() <= MAX_SLICES {
            return runs;
        }
    }
    domains.chunks(MAX_DOMAINS_IN_SLICE).collect()
}

/// The beginnings of a name that end in a dash, without the name itself.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('-').map(|(at, _)| &name[..=at]).filter(move |prefix| prefix.len() < name.len())
}

fn cut<'a>(domains: &'a [Row], names: &[&str], key: impl Fn(&str) -> usize) -> Vec<&'a [Row]> {
    let keys: Vec<&str> = names.iter().map(|name| &name[..key(name)]).collect();
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
