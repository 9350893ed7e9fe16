//! Job kinds are data: outside `crates/jobs` and the registry no shipped code names one, but where it is about that one alone.

use std::collections::BTreeMap;

/// Where no kind is named: what ships of these crates.
const CRATES: [&str; 6] = ["cli", "client", "ctl", "engine", "manager", "sim"];

/// Where one is, and why.
const EXCEPTIONS: [(&str, &str, &str); 5] = [
    ("crates/engine/src/hotswap/pods.rs", "JOB_SET", "Hotswap moves JobSets, and no other kind"),
    ("crates/engine/src/input.rs", "POD", "a pod that is queued is a job"),
    ("crates/engine/src/lifecycle/workload.rs", "POD", "pods own the Workload of a group"),
    ("crates/engine/src/pod_jobs/index.rs", "POD", "jobs that are made of pods"),
    ("crates/sim/src/simulation/serving.rs", "POD", "controllers of objects that serve make pods"),
];

/// Findings for each kind that is named, and for exceptions that are none any more.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let named: Vec<(&str, &str)> = files
        .iter()
        .filter(|(path, _)| ships(path))
        .flat_map(|(path, text)| kinds(text).into_iter().map(|kind| (path.as_str(), kind)))
        .collect();
    let is_excepted = |(path, kind): &(&str, &str)| EXCEPTIONS.iter().any(|(p, k, _)| p == path && k == kind);
    let new = named.iter().filter(|one| !is_excepted(one)).map(|(path, kind)| {
        format!("{path}: JobKind::{kind}: ask the registry or the adapter what the kind is like, see docs/contributing/kind.md")
    });
    let old =
        EXCEPTIONS.iter().filter(|(path, kind, _)| !named.contains(&(path, kind))).map(|(path, kind, _)| {
            format!("{path}: JobKind::{kind} is no exception any more; take it off the list in tidy/kinds.rs")
        });
    new.chain(old).collect()
}

/// Whether a file is a part of what ships of these crates, but for tests inside it.
fn ships(path: &str) -> bool {
    let of = |name: &&str| path.starts_with(&format!("crates/{name}/src/"));
    let is_test =
        path.ends_with("/tests.rs") || path.contains("/tests/") || path == "crates/ctl/src/kinds.rs";
    CRATES.iter().any(of) && !is_test
}

/// The kinds that a file names before its tests.
fn kinds(text: &str) -> Vec<&str> {
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let name = |rest: &str| rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(rest.len());
    let names = shipped.split("JobKind::").skip(1).map(|rest| &rest[..name(rest)]);
    // A function begins with a small letter, so that nothing is left of it.
    names.filter(|name| !name.is_empty() && *name != "ALL").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_shipped_code_names_is_found_and_one_of_a_test_is_not() {
        let text = "if kind == JobKind::RAY_JOB {}\nJobKind::ALL; JobKind::all(); JobKind::POD\n#[cfg(test)]\nmod tests { JobKind::JOB }";
        assert_eq!(kinds(text), ["RAY_JOB", "POD"]);
        let found = |path: &str| check(&[(path.to_owned(), text.to_owned())].into()).join("\n");
        assert!(found("crates/engine/src/input.rs").contains("input.rs: JobKind::RAY_JOB: ask"));
        assert!(!found("crates/engine/src/input.rs").contains("input.rs: JobKind::POD"));
        assert!(found("crates/engine/src/list.rs").contains("list.rs: JobKind::POD: ask"));
        for path in [
            "crates/jobs/src/lib.rs",
            "crates/engine/tests/life/a.rs",
            "crates/manager/src/webhook/owners/tests.rs",
        ] {
            assert!(!found(path).contains(": ask"), "{path}");
        }
        assert!(found("README.md").contains("pods.rs: JobKind::JOB_SET is no exception any more"));
    }
}
