//! Every reason of a condition or event in the code has an entry in Troubleshooting, and every entry has a reason in the code.
//!
//! Reasons are words in CamelCase, as in `QuotaReserved`. Each such literal in the files below counts as a reason, unless it is in [`OTHERS`], so new
//! reasons cannot be forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::book::Book;

const REASONS: &str = "docs/troubleshooting/reasons.md";
const EVENTS: &str = "docs/troubleshooting/events.md";

/// The chapter on what `explain` finds, which is no reason of a condition; a test of the simulator compares it with the code.
const FINDINGS: &str = "What explain finds";

/// The sources of reasons of conditions.
const OF_CONDITIONS: &[&str] =
    &["crates/api/src/conditions.rs", "crates/core/src/reason.rs", "crates/core/src/report.rs"];
/// The sources of events; conditions' reasons among them may have their entry with the reasons.
const OF_EVENTS: &[&str] =
    &["crates/engine/src", "crates/manager/src/outlet.rs", "crates/manager/src/events"];

/// Words of the same form that are no reasons: condition types, values, operators and kinds of other APIs.
const OTHERS: &[&str] = &[
    // Values and types.
    "True",
    "False",
    "Unknown",
    "Normal",
    "Warning",
    "Fit",
    "NoFit",
    "Retry",
    "Rejected",
    "Admit",
    "Admission",
    "Created",
    "Replaced",
    "ForcefulTermination",
    "PodTerminated",
    // Operators and effects.
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Equal",
    "Gt",
    "Lt",
    "NoSchedule",
    "PreferNoSchedule",
    "NoExecute",
    // Kinds and scopes.
    "AdmissionCheck",
    "ClusterQueue",
    "Cohort",
    "Container",
    "LimitRange",
    "LocalQueue",
    "Namespace",
    "Node",
    "Pod",
    "PodTemplate",
    "PriorityClass",
    "ProvisioningRequest",
    "ProvisioningRequestConfig",
    "ResourceFlavor",
    "RuntimeClass",
    "Topology",
    "Workload",
    "WorkloadPriorityClass",
    // Conditions and reasons of ProvisioningRequests, and merging of their pod sets.
    "Accepted",
    "BookingExpired",
    "CapacityRevoked",
    "Provisioned",
    "QuotaExceeded",
    "NotProvisioned",
    "IdenticalPodTemplates",
    "IdenticalWorkloadSchedulingRequirements",
    // What joins a reason and its cause.
    "DueTo",
];
/// Those of them that are also reasons of Kueue's conditions.
const BOTH: &[&str] = &["AdmissionCheck"];

/// An entry for reasons that are put together of a beginning and another reason.
const BEGINNINGS: &[&str] = &["EvictedDueTo"];

/// Findings for reasons without an entry, and entries without a reason.
pub fn check(root: &Path, book: &Book) -> Result<Vec<String>> {
    let conditions = found_in(root, OF_CONDITIONS)?;
    let events = found_in(root, OF_EVENTS)?;
    Ok(compare(&conditions, &events, &entries(book, REASONS)?, &entries(book, EVENTS)?))
}

fn compare(
    conditions: &BTreeMap<String, String>,
    events: &BTreeMap<String, String>,
    reason_entries: &BTreeSet<String>,
    event_entries: &BTreeSet<String>,
) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, source) in conditions.iter().filter(|(name, _)| !reason_entries.contains(*name)) {
        findings.push(format!("{source}: the reason {name} has no entry in {REASONS}"));
    }
    for (name, source) in events {
        if !reason_entries.contains(name) && !event_entries.contains(name) {
            findings.push(format!(
                "{source}: {name} has no entry in {EVENTS} or {REASONS}; if it is no reason, add it to OTHERS in docs/reasons.rs"
            ));
        }
    }
    let known = |name: &String| {
        conditions.contains_key(name) || events.contains_key(name) || BEGINNINGS.contains(&name.as_str())
    };
    for (page, entries) in [(REASONS, reason_entries), (EVENTS, event_entries)] {
        let unknown = entries.iter().filter(|name| !known(name));
        findings.extend(unknown.map(|name| format!("{page}: the code gives no reason {name}")));
    }
    findings
}

/// The entries of a page: its headings of the third level, without those of [`FINDINGS`].
fn entries(book: &Book, page: &str) -> Result<BTreeSet<String>> {
    let page = book.pages.get(page).with_context(|| format!("there is no {page}"))?;
    let mut findings = false;
    let mut entries: Vec<&String> = Vec::new();
    for (depth, text) in &page.headings {
        if *depth < 3 {
            findings = text == FINDINGS;
        } else if *depth == 3 && !findings {
            entries.push(text);
        }
    }
    let unique: BTreeSet<String> = entries.iter().map(|text| (*text).clone()).collect();
    if unique.len() != entries.len() {
        bail!("two entries of a page have the same name: {entries:?}");
    }
    Ok(unique)
}

/// The reasons in these files and folders, each with a file that has it.
fn found_in(root: &Path, sources: &[&str]) -> Result<BTreeMap<String, String>> {
    let mut files = Vec::new();
    for source in sources {
        rust_files(&root.join(source), &mut files)?;
    }
    let mut found = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        for name in reasons_in(&text) {
            found.entry(name.to_owned()).or_insert_with(|| shown.clone());
        }
    }
    Ok(found)
}

fn rust_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
            rust_files(&entry?.path(), files)?;
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
        files.push(path.to_path_buf());
    }
    Ok(())
}

/// The literals of a source that look like reasons. Its tests, which stand at its end, are left out.
fn reasons_in(text: &str) -> BTreeSet<&str> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let literals = code.flat_map(|line| line.split('"').skip(1).step_by(2));
    literals.filter(|word| looks_like_one(word)).collect()
}

fn looks_like_one(word: &str) -> bool {
    let mut letters = word.chars();
    let capital = letters.next().is_some_and(|c| c.is_ascii_uppercase());
    let small = letters.next().is_some_and(|c| c.is_ascii_lowercase());
    let all = word.chars().all(|c| c.is_ascii_alphanumeric());
    capital && small && all && (!OTHERS.contains(&word) || BOTH.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_the_form_of_a_reason_are_found_outside_of_tests_and_comments() {
        let text = "const A: &str = \"QuotaReserved\"; // it\n// \"Commented\"\nx(\"two words\", \"lower\", \"SetAside\", \"True\");\n\
                    #[cfg(test)]\nmod tests {\n\"InTests\"\n}\n";
        assert_eq!(reasons_in(text).into_iter().collect::<Vec<_>>(), ["QuotaReserved", "SetAside"]);
    }

    #[test]
    fn missing_and_superfluous_entries_are_reported() {
        let code = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), "a.rs".to_owned())).collect();
        let page = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let findings = compare(
            &code(&["One", "Two"]),
            &code(&["Two", "Three"]),
            &page(&["One", "Gone"]),
            &page(&["EvictedDueTo"]),
        );
        let short: Vec<_> = findings.iter().map(|f| f.split(" in docs").next().unwrap()).collect();
        assert_eq!(
            short,
            [
                "a.rs: the reason Two has no entry",
                "a.rs: Three has no entry",
                "a.rs: Two has no entry",
                "docs/troubleshooting/reasons.md: the code gives no reason Gone",
            ]
        );
    }
}
