//! Circles: files of one crate that import each other. Such files can only be read, changed and tested together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::imports::{Imports, imports};

/// The crates that have circles, and how many files the largest of each has. A crate that has less must get its new number.
const LIMITS: [(&str, usize); 9] = [
    ("api", 2),
    ("core", 2),
    ("ctl", 4),
    ("engine", 3),
    ("jobs", 2),
    ("manager", 4),
    ("quantity", 3),
    ("sim", 5),
    ("xtask", 4),
];

/// Findings for every circle that is too large, and for every limit that is no longer needed.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    check_with(files, &LIMITS)
}

fn check_with(files: &BTreeMap<String, String>, limits: &[(&str, usize)]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut largest: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, krate) in files.keys().filter_map(|path| Some((path, crate_of(path)?))) {
        let limit = limits.iter().find(|(name, _)| *name == krate).map_or(1, |limit| limit.1);
        let imports = imports(files, path);
        for circle in circles(&imports) {
            let size = largest.entry(krate).or_default();
            *size = circle.len().max(*size);
            if circle.len() > limit {
                findings.push(format!(
                    "{path}: {} files import one another, at most {limit} may; one way round: {}",
                    circle.len(),
                    way_round(&imports, &circle).join(" -> ")
                ));
            }
        }
    }
    for &(krate, limit) in limits {
        let size = largest.get(krate).copied().unwrap_or(1);
        if size < limit {
            findings.push(format!(
                "crates/{krate}: no circle has more than {size} files; lower its limit in circles.rs"
            ));
        }
    }
    findings
}

/// The name of the crate whose root a file is.
fn crate_of(path: &str) -> Option<&str> {
    let (krate, file) = path.strip_prefix("crates/")?.split_once('/')?;
    matches!(file, "src/lib.rs" | "src/main.rs").then_some(krate)
}

/// The files that can be reached from a file.
fn reachable<'a>(imports: &Imports<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&'a str> = imports.get(from).into_iter().flatten().copied().collect();
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(imports.get(file).into_iter().flatten());
        }
    }
    found
}

/// The largest sets of files in which each file reaches each other one.
fn circles<'a>(imports: &Imports<'a>) -> Vec<BTreeSet<&'a str>> {
    let reach: BTreeMap<&'a str, BTreeSet<&'a str>> =
        imports.keys().map(|&file| (file, reachable(imports, file))).collect();
    let mut circles: Vec<BTreeSet<&'a str>> = Vec::new();
    for (file, reached) in reach.iter().filter(|(file, reached)| reached.contains(*file)) {
        if !circles.iter().any(|circle| circle.contains(file)) {
            circles.push(reached.iter().copied().filter(|other| reach[other].contains(file)).collect());
        }
    }
    circles
}

/// The shortest way from the first file of a circle back to it.
fn way_round<'a>(imports: &Imports<'a>, circle: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let Some(&start) = circle.first() else { return Vec::new() };
    let mut ways = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().copied().unwrap_or(start);
        for &next in imports.get(last).into_iter().flatten() {
            let longer = [&way[..], &[next]].concat();
            if next == start {
                return longer;
            }
            if circle.contains(next) && seen.insert(next) {
                ways.push_back(longer);
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(path, text)| (format!("crates/one/src/{path}"), (*text).to_owned())).collect()
    }

    /// `a` and `b` import each other; `c` imports both.
    fn two() -> BTreeMap<String, String> {
        files(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::a::A; pub struct B;"),
            ("c.rs", "use crate::{a::A, b::B};"),
        ])
    }

    #[test]
    fn a_circle_is_reported_with_a_way_round() {
        assert_eq!(
            check_with(&two(), &[]),
            ["crates/one/src/lib.rs: 2 files import one another, at most 1 may; one way round: \
              crates/one/src/a.rs -> crates/one/src/b.rs -> crates/one/src/a.rs"]
        );
        assert!(check_with(&two(), &[("one", 2)]).is_empty());
    }

    #[test]
    fn a_limit_that_is_not_needed_is_reported() {
        assert_eq!(
            check_with(&two(), &[("one", 3)]),
            ["crates/one: no circle has more than 2 files; lower its limit in circles.rs"]
        );
        assert_eq!(check_with(&BTreeMap::new(), &[("gone", 2)]).len(), 1);
    }

    #[test]
    fn files_that_import_in_one_direction_are_no_circle() {
        let tree = files(&[
            ("main.rs", "mod a; mod b; fn main() { a::run() }"),
            ("a/mod.rs", "mod x; use crate::b::B; pub fn run() { x::X }"),
            ("a/x.rs", "use crate::b::B; pub struct X;"),
            ("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::run; }"),
        ]);
        assert!(check_with(&tree, &[]).is_empty());
    }
}
