//! Tests that every command knows every kind of jobs: the kinds of the registry, and declared ones.

use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_sim::Kind;
use sluice_sim::resource::explained;

use crate::complete::job_kinds;
use crate::delete::targets;
use crate::list::{Named, job_of};
use crate::migrate::Tally;

/// The kinds of the registry, and a declared one.
fn every_kind() -> Vec<JobKind> {
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: [batch/job]\n  declared:\n  \
                - {group: shop.example.com, version: v1, kind: Errand, active: self.status.on, podSets: [{name: main, template: spec.template}]}\n";
    let (configuration, _) = Configuration::parse(text).unwrap();
    sluice_jobs::declare(&configuration).unwrap();
    let declared = JobKind::named("shop.example.com/errand").unwrap();
    JobKind::ALL.into_iter().chain([declared]).collect()
}

/// The owner of the Workload of a job `a` of this kind; where each pod is a job, a pod of the ReplicaSet `a-abc`.
fn owner(kind: JobKind) -> (JobKind, &'static str) {
    if kind.integration().pods_are_jobs { (JobKind::POD, "a-abc-x") } else { (kind, "a") }
}

/// A Workload of the job `a` of a kind.
fn workload(kind: JobKind) -> Value {
    let (owner, name) = owner(kind);
    let owner = json!({"apiVersion": owner.api_version(), "kind": owner.kind(), "name": name, "uid": "u", "controller": true});
    let template = json!({"spec": {"containers": [{"name": "c"}]}});
    json!({
        "metadata": {"name": "w", "namespace": "ns", "ownerReferences": [owner],
            "annotations": if sluice_jobs::supports_slices(kind) { json!({"kueue.x-k8s.io/elastic-job": "true"}) } else { json!({}) }},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template,
            "topologyRequest": {"required": "cloud.example.com/rack"}}]},
    })
}

#[test]
fn workloads_and_pods_are_listed_by_a_job_of_every_kind() {
    for kind in every_kind() {
        let workload = workload(kind);
        let word = kind.kind().to_ascii_lowercase();
        let (owner, name) = owner(kind);
        assert_eq!(job_of(&workload), (owner.kind().to_ascii_lowercase(), name.to_owned()));
        let full = format!("{}.{}", kind.plural(), kind.group());
        for named in [&word, kind.plural(), full.trim_end_matches('.')] {
            assert!(Named::parse(&format!("{named}/a")).unwrap().owns(&workload), "{named}");
            assert!(!Named::parse(&format!("{named}/b")).unwrap().owns(&workload), "{named}");
        }
        // Its controller says whose its pods are, or the pods do.
        let mut pod = json!({"metadata": {"namespace": "ns", "name": "p", "annotations": {"kueue.x-k8s.io/workload": "w"}}});
        if let Some(label) = kind.label_of_pods() {
            pod["metadata"]["labels"] = json!({label: "a"});
        }
        let workloads = [("ns".to_owned(), "w".to_owned())].into();
        assert!(Named::parse(&format!("{word}/a")).unwrap().has(&pod, &workloads), "{word}");
    }
}

#[test]
fn a_job_of_every_kind_is_deleted_for_its_workload() {
    for kind in every_kind() {
        let found = targets(&workload(kind));
        let only: Vec<_> =
            found.iter().map(|job| (&*job.api_version, &*job.kind, &*job.name, &*job.uid)).collect();
        let (owner, name) = owner(kind);
        assert_eq!(only, [(owner.api_version(), owner.kind(), name, "u")]);
    }
}

#[test]
fn a_job_of_every_kind_is_explained_and_completed() {
    let kinds = every_kind();
    let words: Vec<String> = job_kinds().collect();
    for kind in kinds {
        let word = kind.kind().to_ascii_lowercase();
        assert_eq!(explained(&word), Some(Kind::Job(kind)), "{word}");
        assert!(words.contains(&word), "{word}");
    }
}

#[test]
fn migrate_check_calls_no_kind_unsupported() {
    let external = JobKind::external("Parcel.v1.shop.example.com").unwrap();
    let mut tally = Tally::new(Gates::default()).with_external([external].into());
    for kind in every_kind().into_iter().chain([external]) {
        tally.look("workloads", &workload(kind));
    }
    assert!(tally.unsupported().is_empty(), "{:?}", tally.unsupported());
}
