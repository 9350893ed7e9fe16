//! Job kinds are data: shipped code does not name a kind, or a label that its controller sets on pods, except in the table of kinds, the folder of
//! its adapter, and code that is only about that kind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sluice_api::job::JobKind;

/// Where kinds are listed.
pub(super) const TABLE: &str = "crates/api/src/job/kind/table.rs";

/// The file in a kind's folder that says what the kind is. The table includes it; it may name the kinds of the parts.
const DESCRIPTOR: &str = "descriptor.rs";

/// By this line the formatter finds a descriptor. The compiler skips it.
const FOR_THE_FORMATTER: &str = "#[cfg(rustfmt)]\nmod descriptor;\n";

/// Code that does not ship.
const TEST_ONLY: &str = "crates/testkit/";

/// Where a kind is named besides, and why.
const EXCEPTIONS: [(&str, &str, &str); 11] = [
    ("crates/api/src/config/sections.rs", "JOB", "a configuration that lists no framework has this one"),
    ("crates/jobs/src/appwrapper/pods.rs", "JOB_SET", WRAPPED),
    ("crates/jobs/src/appwrapper/pods.rs", "PYTORCH_JOB", WRAPPED),
    ("crates/jobs/src/appwrapper/pods.rs", "RAY_CLUSTER", WRAPPED),
    ("crates/jobs/src/appwrapper/pods.rs", "RAY_JOB", WRAPPED),
    ("crates/jobs/src/appwrapper/pods.rs", "STATEFUL_SET", WRAPPED),
    ("crates/xtask/src/engine_bench/events.rs", "JOB", BENCHMARK),
    ("crates/xtask/src/engine_bench/events.rs", "JOB_SET", BENCHMARK),
    ("crates/xtask/src/events_bench/pages.rs", "JOB_SET", BENCHMARK),
    ("crates/xtask/src/pods_bench.rs", "POD", BENCHMARK),
    ("crates/xtask/src/pods_bench.rs", "STATEFUL_SET", BENCHMARK),
];

const WRAPPED: &str = "the AppWrapper's controller finds the pods of these kinds by itself, and of no others";
const BENCHMARK: &str = "a benchmark makes jobs of a kind";

/// Where a label or an annotation of kinds is named besides, and why.
const LABELS: [(&str, &str, &str); 2] = [
    (
        "crates/api/src/labels.rs",
        "jobset.sigs.k8s.io/jobset-name",
        "the engine keeps this one of a pod's labels",
    ),
    (
        "crates/manager/src/writer/end_pods.rs",
        "batch.kubernetes.io/controller-uid",
        "Kubernetes ends the pods of its own controller by itself",
    ),
];

/// A kind as the table has it.
struct Listed<'a> {
    /// The name of its constant.
    name: &'a str,
    /// Its folder.
    folder: String,
    /// The file in it with a job of the kind.
    example: String,
    /// Code that names the kind: its framework, and its kind, if that is not a common word or where it is compared with that of an object.
    literals: Vec<String>,
}

/// Findings for each named kind, and for outdated exceptions.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let listed = listed(files.get(TABLE).map_or("", String::as_str));
    if listed.len() != JobKind::ALL.len() {
        return vec![format!("{TABLE}: {} kinds are read of {}", listed.len(), JobKind::ALL.len())];
    }
    let mut named: Vec<(&str, &str)> = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| ships(path)) {
        let shipped = shipped(text);
        let own = |name: &str| listed.iter().any(|kind| kind.name == name && path.starts_with(&kind.folder));
        let literals = listed.iter().filter(|kind| is_quoted(&shipped, &kind.literals)).map(|kind| kind.name);
        let kinds: BTreeSet<_> = constants(text).into_iter().chain(literals).collect();
        named.extend(kinds.into_iter().filter(|name| !own(name)).map(|name| (path.as_str(), name)));
    }
    let mut findings = incomplete(files, &listed);
    findings.extend(labels(files, &listed));
    findings.extend(makers(files));
    let is_excepted = |(path, kind): &(&str, &str)| EXCEPTIONS.iter().any(|(p, k, _)| p == path && k == kind);
    let new = named.iter().filter(|one| !is_excepted(one)).map(|(path, kind)| {
        format!("{path}: JobKind::{kind}: ask the registry or the adapter what the kind is like, see docs/contributing/kind.md")
    });
    let old =
        EXCEPTIONS.iter().filter(|(path, kind, _)| !named.contains(&(path, kind))).map(|(path, kind, _)| {
            format!("{path}: JobKind::{kind} is no exception any more; take it off the list in tidy/kinds.rs")
        });
    findings.extend(new.chain(old));
    findings
}

/// Findings for kinds whose objects have a job made of them, outside their folders.
fn makers(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut findings = Vec::new();
    for kind in sluice_jobs::JOB_MAKERS.iter().map(|maker| maker.kind) {
        let folder = format!("crates/jobs/src/{}/", kind.to_ascii_lowercase());
        let others = files.iter().filter(|(path, _)| ships(path) && !path.starts_with(&folder));
        let naming = others.filter(|(_, text)| is_quoted(&shipped(text), &[format!("{kind:?}")]));
        findings.extend(naming.map(|(path, _)| format!("{path}: {kind:?}: ask sluice_jobs::JobMaker")));
    }
    findings
}

/// Findings for labels and annotations of kinds outside the kinds' folders, and for outdated exceptions.
fn labels(files: &BTreeMap<String, String>, listed: &[Listed<'_>]) -> Vec<String> {
    let mut named: BTreeSet<(&str, String)> = BTreeSet::new();
    // This file lists the exceptions.
    for (path, text) in files.iter().filter(|(path, _)| ships(path) && !path.ends_with("/tidy/kinds.rs")) {
        let shipped = shipped(text);
        // If several kinds have it, their descriptors declare that, too.
        let own: Vec<_> =
            listed.iter().zip(JobKind::ALL).filter(|(kind, _)| is_own(path, kind, files)).collect();
        let quoted = shipped.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
        for key in quoted.filter(|key| is_label(key)) {
            if !own.iter().any(|(_, kind)| domains(*kind).any(|domain| key.starts_with(domain))) {
                named.insert((path, key.to_owned()));
            }
        }
    }
    let is_excepted = |(path, key): &(&str, String)| LABELS.iter().any(|(p, k, _)| p == path && k == key);
    let new = named.iter().filter(|one| !is_excepted(one)).map(|(path, key)| {
        format!("{path}: {key:?}: the descriptor of a kind names the labels of its pods, see docs/contributing/kind.md")
    });
    let old = LABELS.iter().filter(|(path, key, _)| !named.contains(&(*path, (*key).to_owned())));
    let old = old.map(|(path, key, _)| {
        format!("{path}: {key:?} is no exception any more; take it off the list in tidy/kinds.rs")
    });
    new.chain(old).collect()
}

/// Whether a file is in the folder of a kind, or of its family, which its descriptor names.
fn is_own(path: &str, kind: &Listed<'_>, files: &BTreeMap<String, String>) -> bool {
    let family = path.strip_prefix("crates/jobs/src/").and_then(|rest| rest.split('/').next());
    let descriptor = files.get(&format!("{}{DESCRIPTOR}", kind.folder));
    let names = |family: &str| descriptor.is_some_and(|text| text.contains(&format!("super::{family}::")));
    path.starts_with(&kind.folder) || family.is_some_and(names)
}

/// The prefixes of labels and annotations that the controller of a kind sets on pods and templates.
fn domains(kind: JobKind) -> impl Iterator<Item = &'static str> {
    let facts = kind.integration();
    let labels = [
        facts.pod_index,
        facts.group_label,
        facts.group_index,
        facts.group_size,
        facts.part_label,
        facts.pod_label,
        facts.listing_label,
        facts.restart_label,
        facts.exclusive_topology,
    ];
    let of_pods = facts.pods.iter().flat_map(|pods| [pods.index, pods.parts.map(|parts| parts.index)]);
    let keys = labels.into_iter().chain(of_pods).flatten().chain(facts.generates.iter().copied());
    keys.filter_map(|key| key.find('/').map(|slash| &key[..=slash]))
}

/// Whether a string is such a label or annotation, and not a version or the name of a framework or controller.
fn is_label(key: &str) -> bool {
    let is_name = |kind: JobKind| {
        let facts = kind.integration();
        key == facts.framework
            || key == facts.api_version
            || Some(key) == facts.managed_by
            || key == facts.reporter
    };
    let begins = |kind: JobKind| domains(kind).any(|domain| key.starts_with(domain));
    JobKind::ALL.into_iter().any(begins) && !JobKind::ALL.into_iter().any(is_name)
}

/// Findings for folders of kinds with missing parts, and for descriptors that the table does not include.
fn incomplete(files: &BTreeMap<String, String>, listed: &[Listed<'_>]) -> Vec<String> {
    let mut findings = Vec::new();
    for Listed { name, folder, example, .. } in listed {
        for file in [DESCRIPTOR, example.as_str()] {
            if !files.contains_key(&format!("{folder}{file}")) {
                findings.push(format!("{folder}{file}: is missing; JobKind::{name} has this folder"));
            }
        }
        let module = format!("{folder}mod.rs");
        if !files.get(&module).is_some_and(|text| text.contains(FOR_THE_FORMATTER)) {
            findings.push(format!("{module}: without {FOR_THE_FORMATTER:?} nothing formats its descriptor"));
        }
    }
    let own =
        |path: &str| listed.iter().any(|kind| path.strip_suffix(DESCRIPTOR) == Some(kind.folder.as_str()));
    let unlisted = files.keys().filter(|path| is_descriptor(path) && !own(path));
    findings.extend(unlisted.map(|path| format!("{path}: {TABLE} does not list this kind")));
    findings
}

/// Whether a file is the descriptor of a kind.
fn is_descriptor(path: &str) -> bool {
    path.starts_with("crates/jobs/src/") && path.ends_with(&format!("/{DESCRIPTOR}"))
}

/// The name and the folder of the entry that a line of the table is.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.trim_start().split_once(" by ")?;
    let (folder, _) = rest.trim_start_matches("pub ").split_once("::").filter(|_| rest.ends_with(';'))?;
    let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    is_name.then_some((name, folder))
}

/// The folders that the table lists.
pub(super) fn folders(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(entry).map(|(_, folder)| folder)
}

/// The kinds of the table, in the order of [`JobKind::ALL`].
fn listed(table: &str) -> Vec<Listed<'_>> {
    let entries = table.lines().filter_map(entry).zip(JobKind::ALL);
    entries
        .map(|((name, folder), kind)| {
            let capitals = kind.kind().chars().filter(char::is_ascii_uppercase).count();
            let framework = Some(kind.framework()).filter(|name| name.contains('/'));
            let words = framework.into_iter().chain(Some(kind.kind()).filter(|_| capitals > 1));
            let compared = ["==", "!="].map(|is| format!("[\"kind\"] {is} {:?}", kind.kind()));
            let literals = words.map(|word| format!("{word:?}")).chain(compared).collect();
            let example = format!("{}.yaml", kind.integration().controller);
            Listed { name, folder: format!("crates/jobs/src/{folder}/"), example, literals }
        })
        .collect()
}

/// Whether a file ships, except for tests inside it. The table and its descriptors may name kinds.
pub(super) fn ships(path: &str) -> bool {
    let is_source = path.starts_with("crates/")
        && path.contains("/src/")
        && Path::new(path).extension().is_some_and(|extension| extension == "rs");
    let is_test = ["/tests.rs", "/testing.rs"].iter().any(|name| path.ends_with(name))
        || path.contains("/tests/")
        || path == "crates/ctl/src/kinds.rs";
    is_source && !is_test && !path.starts_with(TEST_ONLY) && path != TABLE && !is_descriptor(path)
}

/// A file before its tests, without comments.
pub(super) fn shipped(text: &str) -> String {
    let before = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = before.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Whether a text contains one of these strings.
fn is_quoted(text: &str, literals: &[String]) -> bool {
    literals.iter().any(|literal| text.contains(literal.as_str()))
}

/// The constants of kinds that a file names before its tests.
fn constants(text: &str) -> Vec<&str> {
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let name = |rest: &str| rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(rest.len());
    let names = shipped.split("JobKind::").skip(1).map(|rest| &rest[..name(rest)]);
    // A function begins with a small letter, so that nothing is left of it.
    names.filter(|name| !name.is_empty() && *name != "ALL").collect()
}

#[cfg(test)]
mod tests {
    use sluice_testkit::assets;

    use super::*;

    fn found(path: &str, text: &str) -> String {
        let table = std::fs::read_to_string(assets::workspace().join(TABLE)).expect("the table");
        check(&[(TABLE.to_owned(), table), (path.to_owned(), text.to_owned())].into()).join("\n")
    }

    #[test]
    fn a_kind_that_shipped_code_names_is_found_and_one_of_a_test_is_not() {
        let text = "if kind == JobKind::RAY_JOB {}\nJobKind::ALL; JobKind::of_pods(); JobKind::POD\n#[cfg(test)]\nmod tests { JobKind::JOB }";
        assert_eq!(constants(text), ["RAY_JOB", "POD"]);
        let found = |path: &str| found(path, text);
        assert!(found("crates/xtask/src/pods_bench.rs").contains("bench.rs: JobKind::RAY_JOB: ask"));
        assert!(!found("crates/xtask/src/pods_bench.rs").contains("bench.rs: JobKind::POD"));
        for path in ["crates/engine/src/list.rs", "crates/api/src/config.rs", "crates/jobs/src/lib.rs"] {
            assert!(found(path).contains(": JobKind::POD: ask"), "{path}");
        }
        for path in [
            "crates/jobs/src/testing.rs",
            "crates/jobs/tests/adapters/webhook.rs",
            "crates/engine/tests/life/a.rs",
            "crates/manager/src/webhook/owners/tests.rs",
        ] {
            assert!(!found(path).contains(": ask"), "{path}");
        }
        assert!(found("README.md").contains("pods.rs: JobKind::JOB_SET is no exception any more"));
    }

    #[test]
    fn the_folder_of_a_kinds_adapter_names_it_and_the_folder_of_another_does_not() {
        let text = "fn kind() -> JobKind { JobKind::RAY_JOB }";
        assert!(!found("crates/jobs/src/rayjob/mod.rs", text).contains(": ask"));
        assert!(found("crates/jobs/src/spark/mod.rs", text).contains("JobKind::RAY_JOB: ask"));
    }

    #[test]
    fn a_kind_that_is_named_by_a_string_is_found_but_not_in_comments() {
        let path = "crates/engine/src/list.rs";
        for text in ["if name == \"TrainJob\" {}", "\"trainer.kubeflow.org/trainjob\" =>"] {
            assert!(found(path, text).contains("JobKind::TRAIN_JOB: ask"), "{text}");
        }
        assert!(found(path, "object[\"kind\"] == \"Job\"").contains("JobKind::JOB: ask"));
        assert!(found(path, "is(\"MiniCluster\")").contains("\"MiniCluster\": ask"));
        assert!(
            !found("crates/jobs/src/minicluster/mod.rs", "is(\"MiniCluster\")")
                .contains("\"MiniCluster\": ask")
        );
        for text in ["// as \"TrainJob\"", "\"Job\"", "a_job(\"x TrainJob y\")"] {
            assert!(!found(path, text).contains(": ask"), "{text}");
        }
    }

    #[test]
    fn a_label_of_a_kind_is_found_outside_its_folder_and_a_version_is_none() {
        let label = "const INDEX: &str = \"training.kubeflow.org/replica-index\";";
        for path in ["crates/sim/src/pods.rs", "crates/jobs/src/appwrapper/pods.rs"] {
            assert!(found(path, label).contains(&format!("{path}: \"training.kubeflow.org/replica-index\"")));
        }
        let job = "const UID: &str = \"batch.kubernetes.io/controller-uid\";";
        let end = "end_pods.rs: \"batch.kubernetes.io/controller-uid\"";
        assert!(!found("crates/jobs/src/job/mod.rs", job).contains("job/mod.rs: \""));
        assert!(!found("crates/manager/src/writer/end_pods.rs", job).contains(end));
        assert!(found("README.md", "").contains(&format!("{end} is no exception any more")));
        assert!(!found("crates/sim/src/pods.rs", "\"ray.io/v1\" \"ray.io/rayjob\"").contains("\"ray.io"));
        let family: BTreeMap<_, _> = [
            (format!("crates/jobs/src/tfjob/{DESCRIPTOR}"), "use super::replica_specs::KUBEFLOW;".to_owned()),
            ("crates/jobs/src/replica_specs/mod.rs".to_owned(), label.to_owned()),
        ]
        .into();
        let table = std::fs::read_to_string(assets::workspace().join(TABLE)).expect("the table");
        let listed = listed(&table);
        let path = "crates/jobs/src/replica_specs/mod.rs";
        assert!(!labels(&family, &listed).iter().any(|found| found.starts_with(path)));
        assert!(labels(&[(path.to_owned(), label.to_owned())].into(), &listed)[0].starts_with(path));
    }

    #[test]
    fn a_kind_without_its_descriptor_or_its_example_is_found_and_a_descriptor_that_is_not_listed() {
        let root = assets::workspace();
        let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("a file of the project");
        let folder = "crates/jobs/src/tfjob/";
        let mut files: BTreeMap<_, _> = [DESCRIPTOR, "mod.rs", "tfjob.yaml"]
            .map(|name| (format!("{folder}{name}"), read(&format!("{folder}{name}"))))
            .into();
        files.insert(TABLE.to_owned(), read(TABLE));
        let of_it = |files: &BTreeMap<String, String>| -> Vec<String> {
            check(files).into_iter().filter(|line| line.starts_with(folder)).collect()
        };
        assert_eq!(of_it(&files), [""; 0]);
        files.remove(&format!("{folder}tfjob.yaml"));
        files.insert(format!("{folder}mod.rs"), "mod descriptor;".to_owned());
        let found = of_it(&files);
        assert!(found[0].contains("tfjob.yaml: is missing"), "{found:?}");
        assert!(found[1].contains("nothing formats its descriptor"), "{found:?}");
        files.insert("crates/jobs/src/other/descriptor.rs".to_owned(), String::new());
        assert!(check(&files).join("\n").contains("other/descriptor.rs: crates/api"));
    }
}
