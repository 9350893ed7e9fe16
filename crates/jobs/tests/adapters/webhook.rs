//! The webhook's effects on a job that a user writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::{JobKind, PodSetInfo};
use sluice_jobs::webhook::{Context, Operation, owner_kind, validate};
use sluice_jobs::{Patch, observe, start, stop};

use crate::testing::{apply, job, jobset, mutate_object, prune};

/// What a cluster without anything special answers.
#[expect(clippy::struct_excessive_bools, reason = "as the context that it makes")]
struct World {
    selector: LabelSelector,
    namespace: BTreeMap<String, String>,
    manage_all: bool,
    default_local_queue: bool,
    default_priority_class: bool,
    managed_owner: bool,
    gates: Gates,
}

impl World {
    fn new() -> Self {
        Self {
            selector: Configuration::default().managed_jobs_namespace_selector,
            namespace: BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), "team-a".to_owned())]),
            manage_all: false,
            default_local_queue: false,
            default_priority_class: false,
            managed_owner: false,
            gates: Gates::default(),
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            manage_jobs_without_queue_name: self.manage_all,
            managed_jobs_namespace_selector: &self.selector,
            namespace_labels: &self.namespace,
            default_local_queue: self.default_local_queue,
            default_priority_class: self.default_priority_class,
            managed_owner: self.managed_owner,
            gatherer: None,
            gates: self.gates,
        }
    }

    /// The object after the mutating webhook.
    fn create(&self, object: &Value) -> Value {
        let mut patch = mutate_object(Operation::Create, object, &self.context());
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!("1");
        if let Patch::Json(operations) = &mut patch {
            for operation in operations {
                assert_ne!(operation["path"], "/metadata/resourceVersion");
            }
        }
        apply(&object, &patch).unwrap()
    }
}

fn running(mut object: Value) -> Value {
    object["spec"]["suspend"] = json!(false);
    object
}

fn without_queue(mut object: Value) -> Value {
    for place in ["labels", "annotations"] {
        if let Some(map) = object["metadata"][place].as_object_mut() {
            map.remove("kueue.x-k8s.io/queue-name");
        }
    }
    object
}

#[test]
fn a_job_with_a_queue_name_is_suspended_at_creation() {
    let world = World::new();
    let created = world.create(&running(job()));
    assert_eq!(created["spec"]["suspend"], true);
    let mut absent = jobset();
    absent["spec"].as_object_mut().unwrap().remove("suspend");
    assert_eq!(world.create(&absent)["spec"]["suspend"], true, "named by an annotation");
    assert_eq!(
        mutate_object(Operation::Create, &job(), &world.context()),
        Patch::Json(vec![]),
        "suspended already"
    );
    assert_eq!(mutate_object(Operation::Update, &running(job()), &world.context()), Patch::Json(vec![]));
}

#[test]
fn a_job_without_a_queue_name_is_left_alone() {
    let object = running(without_queue(job()));
    assert_eq!(mutate_object(Operation::Create, &object, &World::new().context()), Patch::Json(vec![]));
    let world = World { manage_all: true, ..World::new() };
    assert_eq!(world.create(&object)["spec"]["suspend"], true);
}

#[test]
fn the_default_queue_and_class_are_filled_in() {
    let world = World { default_local_queue: true, default_priority_class: true, ..World::new() };
    let mut object = running(without_queue(jobset()));
    object["metadata"].as_object_mut().unwrap().remove("labels");
    insta::assert_json_snapshot!(mutate_object(Operation::Create, &object, &world.context()).body());
    let created = world.create(&job());
    assert_eq!(created["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "user-queue");
    assert_eq!(created["metadata"]["labels"]["kueue.x-k8s.io/priority-class"], "default");
    let gates = Gates::default().with(Gate::WorkloadPriorityClassDefaulting, false);
    let created = World { gates, ..world }.create(&object);
    assert_eq!(created["metadata"]["labels"], json!({"kueue.x-k8s.io/queue-name": "default"}));
}

#[test]
fn jobs_of_a_managed_owner_and_of_unmanaged_namespaces_are_left_alone() {
    let everything = || World { default_local_queue: true, manage_all: true, ..World::new() };
    let mut system = everything();
    system.namespace.insert("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned());
    let mut plain = running(job());
    plain["metadata"].as_object_mut().unwrap().remove("labels");
    assert_eq!(mutate_object(Operation::Create, &plain, &system.context()), Patch::Json(vec![]));
    let owned = World { managed_owner: true, ..everything() };
    assert_eq!(mutate_object(Operation::Create, &running(job()), &owned.context()), Patch::Json(vec![]));
    // One that names a queue is suspended in every namespace.
    let queued = system.create(&running(job()));
    assert_eq!(queued["spec"]["suspend"], true);
}

#[test]
fn the_annotation_with_the_queue_name_is_as_immutable_as_the_label() {
    let world = World::new();
    let key = "kueue.x-k8s.io/queue-name";
    let named = |label: Option<&str>, annotation: Option<&str>, suspend: bool| {
        let mut object = job();
        object["metadata"]["labels"] = json!({key: label});
        object["metadata"]["annotations"] = json!({key: annotation});
        prune(&mut object);
        object["spec"]["suspend"] = json!(suspend);
        object
    };
    let running = [named(Some("a"), None, false), named(None, Some("a"), false)];
    let others =
        [(Some("b"), None), (None, Some("b")), (Some("b"), Some("a")), (None, None), (Some(""), None)];
    for old in &running {
        for (label, annotation) in others {
            let refused =
                validate(JobKind::JOB, &named(label, annotation, false), Some(old), &world.context());
            assert!(refused.is_err(), "{label:?} {annotation:?}");
            // With the same write that stops it, it is the engine that gives its quota back first.
            let stopped =
                validate(JobKind::JOB, &named(label, annotation, true), Some(old), &world.context());
            assert_eq!(stopped, Ok(()));
        }
        // The same name in the other place is no change.
        for (label, annotation) in [(Some("a"), None), (None, Some("a")), (Some("a"), Some("b"))] {
            let new = named(label, annotation, false);
            assert_eq!(validate(JobKind::JOB, &new, Some(old), &world.context()), Ok(()));
        }
    }
}

#[test]
fn only_controllers_of_integrated_kinds_can_be_managed_owners() {
    let owned = |api_version: &str, kind: &str, controller: bool| {
        let mut object = job();
        object["metadata"]["ownerReferences"] = json!([
            {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "1", "controller": controller}]);
        owner_kind(&object, &BTreeSet::new())
    };
    assert_eq!(owned("jobset.x-k8s.io/v1alpha2", "JobSet", true), Some(JobKind::JOB_SET));
    assert_eq!(owned("jobset.x-k8s.io/v1alpha2", "JobSet", false), None);
    assert_eq!(owned("batch/v1", "CronJob", true), None);
    assert_eq!(owner_kind(&job(), &BTreeSet::new()), None);
}

/// A row: what is done, to a Job or JobSet, before (`None`: it is created) and after, as merge patches of the samples.
type Row = (&'static str, JobKind, Option<Value>, Value);

fn label(key: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"labels": {format!("kueue.x-k8s.io/{key}"): value.into()}}})
}

fn annotation(key: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {format!("kueue.x-k8s.io/{key}"): value.into()}}})
}

fn template(entries: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<_, _> =
        entries.iter().map(|(key, value)| (format!("kueue.x-k8s.io/podset-{key}"), *value)).collect();
    json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})
}

fn group(names: [&str; 2], replicas: [i32; 2], levels: [&str; 2]) -> Value {
    let job = |n: usize| {
        json!({"name": format!("j{n}"), "replicas": replicas[n], "template": {"spec": {"template": {
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-group-name": names[n],
                "kueue.x-k8s.io/podset-required-topology": levels[n]}},
            "spec": {"containers": []}}}}})
    };
    json!({"spec": {"replicatedJobs": [job(0), job(1)]}})
}

fn both(mut one: Value, other: &Value) -> Value {
    json_patch::merge(&mut one, other);
    one
}

fn suspend(suspended: bool) -> Value {
    json!({"spec": {"suspend": suspended}})
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    let none = || Some(json!({}));
    let is_running = || Some(suspend(false));
    let still = |change: Value| both(suspend(false), &change);
    let indexed = || json!({"spec": {"completionMode": "Indexed", "completions": 3}});
    let partial = || annotation("job-min-parallelism", "2");
    vec![
        ("create", JobKind::JOB, None, json!({})),
        ("create", JobKind::JOB_SET, None, json!({})),
        ("queue name is not a name", JobKind::JOB, None, label("queue-name", "User_Queue")),
        (
            "queue name in the annotation is not a name",
            JobKind::JOB_SET,
            None,
            annotation("queue-name", "a b"),
        ),
        ("prebuilt name is not a name", JobKind::JOB, None, annotation("prebuilt-workload-name", "-")),
        ("maximum time", JobKind::JOB, None, label("max-exec-time-seconds", "30")),
        ("maximum time is not a number", JobKind::JOB, None, label("max-exec-time-seconds", "1h")),
        ("maximum time is zero", JobKind::JOB, None, label("max-exec-time-seconds", "0")),
        ("elastic Job", JobKind::JOB, None, annotation("elastic-job", "true")),
        ("elastic JobSet", JobKind::JOB_SET, None, annotation("elastic-job", "true")),
        ("gates", JobKind::JOB, None, annotation("admission-gated-by", "example.com/a,example.com/b")),
        (
            "gates without domain, twice, empty",
            JobKind::JOB,
            None,
            annotation("admission-gated-by", "a,x.y/b,x.y/b,"),
        ),
        ("queue change while suspended", JobKind::JOB, none(), label("queue-name", "other")),
        ("queue change while running", JobKind::JOB, is_running(), still(label("queue-name", "other"))),
        ("queue change with the start", JobKind::JOB, none(), still(label("queue-name", "other"))),
        ("queue change with the stop", JobKind::JOB, is_running(), label("queue-name", "other")),
        (
            "queue annotation dropped while running",
            JobKind::JOB_SET,
            is_running(),
            still(annotation("queue-name", "")),
        ),
        (
            "label takes the annotation's place",
            JobKind::JOB_SET,
            is_running(),
            still(label("queue-name", "multislice-queue")),
        ),
        (
            "prebuilt while running",
            JobKind::JOB,
            is_running(),
            still(annotation("prebuilt-workload-name", "w")),
        ),
        ("prebuilt while suspended", JobKind::JOB, none(), annotation("prebuilt-workload-name", "w")),
        ("maximum time while suspended", JobKind::JOB, none(), label("max-exec-time-seconds", "9")),
        ("maximum time with the start", JobKind::JOB, none(), still(label("max-exec-time-seconds", "9"))),
        ("class added while suspended", JobKind::JOB, none(), label("priority-class", "high")),
        ("class added while running", JobKind::JOB, is_running(), still(label("priority-class", "high"))),
        (
            "class changed while running",
            JobKind::JOB,
            Some(still(label("priority-class", "low"))),
            still(label("priority-class", "high")),
        ),
        ("class removed", JobKind::JOB, Some(label("priority-class", "low")), json!({})),
        ("elastic added", JobKind::JOB, none(), annotation("elastic-job", "true")),
        (
            "gate removed",
            JobKind::JOB,
            Some(annotation("admission-gated-by", "x.y/a,x.y/b")),
            annotation("admission-gated-by", "x.y/b"),
        ),
        (
            "gate added",
            JobKind::JOB,
            Some(annotation("admission-gated-by", "x.y/a")),
            annotation("admission-gated-by", "x.y/a,x.y/b"),
        ),
        ("gate added to none", JobKind::JOB_SET, none(), annotation("admission-gated-by", "x.y/a")),
        ("min parallelism", JobKind::JOB, None, annotation("job-min-parallelism", "2")),
        ("min parallelism is not a number", JobKind::JOB, None, annotation("job-min-parallelism", "some")),
        ("min parallelism is zero", JobKind::JOB, None, annotation("job-min-parallelism", "0")),
        ("min parallelism is all", JobKind::JOB, None, annotation("job-min-parallelism", "3")),
        (
            "completions follow",
            JobKind::JOB,
            None,
            both(annotation("job-completions-equal-parallelism", "true"), &indexed()),
        ),
        (
            "completions follow, but are not indexed",
            JobKind::JOB,
            None,
            annotation("job-completions-equal-parallelism", "true"),
        ),
        (
            "completions follow, no boolean",
            JobKind::JOB,
            None,
            annotation("job-completions-equal-parallelism", "yes"),
        ),
        (
            "parallelism of a running partial job",
            JobKind::JOB,
            Some(still(partial())),
            both(still(partial()), &json!({"spec": {"parallelism": 2}})),
        ),
        (
            "parallelism of a suspended partial job",
            JobKind::JOB,
            Some(partial()),
            both(partial(), &json!({"spec": {"parallelism": 4}})),
        ),
        (
            "parallelism of another running job",
            JobKind::JOB,
            is_running(),
            still(json!({"spec": {"parallelism": 2}})),
        ),
        ("one topology", JobKind::JOB, None, template(&[("required-topology", "cloud.com/block")])),
        (
            "two topologies",
            JobKind::JOB,
            None,
            template(&[("required-topology", "a"), ("unconstrained-topology", "true")]),
        ),
        ("topology is no label", JobKind::JOB, None, template(&[("preferred-topology", "a b")])),
        ("unconstrained is no boolean", JobKind::JOB, None, template(&[("unconstrained-topology", "x")])),
        ("slices", JobKind::JOB, None, template(&[("slice-required-topology", "rack"), ("slice-size", "3")])),
        ("slice topology without size", JobKind::JOB, None, template(&[("slice-required-topology", "rack")])),
        ("slice size without topology", JobKind::JOB, None, template(&[("slice-size", "1")])),
        (
            "slice size is not a number",
            JobKind::JOB,
            None,
            template(&[("slice-required-topology", "r"), ("slice-size", "x")]),
        ),
        (
            "slice size is zero",
            JobKind::JOB,
            None,
            template(&[("slice-required-topology", "r"), ("slice-size", "0")]),
        ),
        (
            "slice size above the count",
            JobKind::JOB,
            None,
            template(&[("slice-required-topology", "r"), ("slice-size", "4")]),
        ),
        (
            "layers",
            JobKind::JOB,
            None,
            template(&[(
                "slice-required-topology-constraints",
                r#"[{"topology":"a","size":2},{"topology":"b","size":1}]"#,
            )]),
        ),
        (
            "layers are no list",
            JobKind::JOB,
            None,
            template(&[("slice-required-topology-constraints", "{}")]),
        ),
        ("layers are empty", JobKind::JOB, None, template(&[("slice-required-topology-constraints", "[]")])),
        (
            "layers do not divide, repeat, lack a size",
            JobKind::JOB,
            None,
            template(&[(
                "slice-required-topology-constraints",
                r#"[{"topology":"a","size":3},{"topology":"a","size":2},{"topology":"c"},{"topology":"d","size":0}]"#,
            )]),
        ),
        ("group", JobKind::JOB_SET, None, group(["g", "g"], [1, 4], ["r", "r"])),
        ("group of one", JobKind::JOB_SET, None, group(["g", "h"], [1, 4], ["r", "r"])),
        ("group without leader", JobKind::JOB_SET, None, group(["g", "g"], [2, 4], ["r", "r"])),
        ("group with two requests", JobKind::JOB_SET, None, group(["g", "g"], [1, 4], ["r", "s"])),
        ("group with a number", JobKind::JOB_SET, None, group(["7", "7"], [1, 4], ["r", "r"])),
        (
            "wrong before and untouched",
            JobKind::JOB,
            Some(both(label("queue-name", "A b"), &partial())),
            both(label("queue-name", "A b"), &both(partial(), &json!({"metadata": {"labels": {"x": "y"}}}))),
        ),
        (
            "wrong, but being deleted",
            JobKind::JOB,
            is_running(),
            still(both(
                label("queue-name", "A b"),
                &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            )),
        ),
    ]
}

fn sample(kind: JobKind) -> Value {
    if kind == JobKind::JOB { job() } else { jobset() }
}

#[test]
fn every_rule_accepts_and_refuses() {
    let world = World::new();
    let mut text = String::new();
    for (what, kind, before, after) in rows() {
        let old = before.map(|change| both(sample(kind), &change));
        let new = both(sample(kind), &after);
        let answer = validate(kind, &new, old.as_ref(), &world.context());
        let answer = answer.map_or_else(|denied| denied.to_string(), |()| "ok".to_owned());
        let verb = if old.is_some() { "update" } else { "create" };
        writeln!(text, "{verb} {}: {what}\n    {answer}", kind.kind()).unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_queue_name_stays_where_a_default_queue_exists() {
    let world = World { default_local_queue: true, ..World::new() };
    let removed = without_queue(job());
    let denied = validate(JobKind::JOB, &removed, Some(&job()), &world.context()).unwrap_err();
    assert_eq!(
        denied.to_string(),
        "metadata.labels[kueue.x-k8s.io/queue-name]: Forbidden: cannot be removed: the namespace has the LocalQueue \
         \"default\""
    );
    assert_eq!(validate(JobKind::JOB, &removed, Some(&job()), &World::new().context()), Ok(()));
}

#[test]
fn rules_of_a_gate_hold_only_while_it_is_on() {
    let cases = [
        (Gate::PartialAdmission, annotation("job-min-parallelism", "9")),
        (Gate::AdmissionGatedBy, annotation("admission-gated-by", "x")),
        (Gate::TopologyAwareScheduling, template(&[("preferred-topology", "a b")])),
    ];
    for (gate, change) in cases {
        let object = both(job(), &change);
        assert!(validate(JobKind::JOB, &object, None, &World::new().context()).is_err(), "{gate:?}");
        let off = World { gates: Gates::default().with(gate, false), ..World::new() };
        assert_eq!(validate(JobKind::JOB, &object, None, &off.context()), Ok(()), "{gate:?}");
    }
}

/// Our own patches pass our own webhook: start with fewer pods, and every step of the stop.
#[test]
fn the_webhook_accepts_what_the_adapters_write() {
    let world = World::new();
    let change = both(
        annotation("job-min-parallelism", "2"),
        &template(&[("slice-required-topology", "r"), ("slice-size", "3")]),
    );
    for (kind, object, count) in [(JobKind::JOB, both(job(), &change), 2), (JobKind::JOB_SET, jobset(), 4)] {
        let view = observe(kind, &object);
        let original: Vec<_> = view
            .pod_sets
            .iter()
            .map(|set| PodSetInfo {
                name: set.name.clone(),
                count: set.count,
                scheduling: set.scheduling.clone(),
            })
            .collect();
        let mut admitted: Vec<_> = original
            .iter()
            .map(|info| PodSetInfo { name: info.name.clone(), count: info.count, ..PodSetInfo::default() })
            .collect();
        admitted[0].count = count;
        let mut now = apply(&object, &start(&view, &admitted).unwrap()).unwrap();
        assert_eq!(validate(kind, &now, Some(&object), &world.context()), Ok(()));
        while !observe(kind, &now).suspended {
            for step in stop(&observe(kind, &now), &original) {
                let version = now["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                let next = apply(&now, &step.pinned(&version).patch).unwrap();
                assert_eq!(validate(kind, &next, Some(&now), &world.context()), Ok(()));
                now = next;
            }
        }
        assert!(observe(kind, &now).suspended);
    }
}
