//! Ray's kinds: how they start and stop, and what a user may write.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gates;
use sluice_api::job::{JobKind, PodScheduling, PodSetInfo};
use sluice_jobs::webhook::{Context, Operation, mutate, validate};
use sluice_jobs::{State, observe, pod_groups, start, stop};

use crate::testing::ray::{KINDS, additions, originals, place, ray, template};
use crate::testing::{apply, prune, pruned};

#[test]
fn all_templates_get_what_is_admitted_and_give_it_back() {
    for (kind, place) in KINDS {
        let object = ray(kind);
        let view = observe(kind, &object);
        let started = apply(&object, &start(&view, &additions(&view, "a")).unwrap()).unwrap();
        assert!(!sluice_jobs::is_suspended(kind, &started), "{kind:?}");
        for (at, of) in
            [("headGroupSpec", "head"), ("workerGroupSpecs/0", "small"), ("workerGroupSpecs/1", "hosts")]
        {
            let template = started.pointer(&format!("{place}/{at}/template")).unwrap();
            assert_eq!(template["spec"]["nodeSelector"], json!({"flavor": "a", "type": of}));
            assert_eq!(template["metadata"]["labels"], json!({"kueue.x-k8s.io/podset": of}));
        }
        let running = observe(kind, &started);
        assert!(!running.suspended);
        let steps = stop(&running, &originals(&view));
        assert_eq!(steps.len(), 1);
        assert_eq!(pruned(apply(&started, &steps[0].patch).unwrap()), pruned(object));
    }
}

#[test]
fn workers_of_a_group_called_submitter_are_workers_of_a_kind_without_submitter() {
    for (kind, place) in KINDS.into_iter().filter(|(kind, _)| *kind != JobKind::RAY_JOB) {
        let mut object = ray(kind);
        *object.pointer_mut(&format!("{place}/workerGroupSpecs/1/groupName")).unwrap() = json!("submitter");
        let view = observe(kind, &object);
        let started = apply(&object, &start(&view, &additions(&view, "a")).unwrap()).unwrap();
        let template = started.pointer(&format!("{place}/workerGroupSpecs/1/template")).unwrap();
        assert_eq!(template["spec"]["nodeSelector"], json!({"flavor": "a", "type": "hosts"}), "{kind:?}");
        let stopped = apply(&started, &stop(&observe(kind, &started), &originals(&view))[0].patch).unwrap();
        assert_eq!(pruned(stopped), pruned(object), "{kind:?}");
    }
}

#[test]
fn no_patch_acts_on_an_object_that_was_not_seen() {
    for (kind, _) in KINDS {
        let object = ray(kind);
        let view = observe(kind, &object);
        let mut newer = object.clone();
        newer["metadata"]["resourceVersion"] = json!("99");
        let patches = [
            start(&view, &originals(&view)).unwrap(),
            stop(&view, &originals(&view)).remove(0).patch,
            sluice_jobs::suspend(&view).patch,
        ];
        for patch in patches {
            assert_eq!(apply(&newer, &patch), Err("409 Conflict".to_owned()));
        }
        let suspended = apply(&object, &sluice_jobs::suspend(&view).patch).unwrap();
        assert_eq!(suspended["spec"], object["spec"], "it is suspended already");
    }
}

/// What holds of the namespace of a user.
fn context(check: impl Fn(&Context<'_>)) {
    let selector = Configuration::default().managed_jobs_namespace_selector;
    check(&Context {
        manage_jobs_without_queue_name: false,
        managed_jobs_namespace_selector: &selector,
        namespace_labels: &BTreeMap::new(),
        default_local_queue: false,
        default_priority_class: false,
        managed_owner: false,
        gatherer: None,
        gates: Gates::default(),
    });
}

#[test]
fn what_names_a_queue_is_suspended_at_creation_but_what_selects_a_cluster() {
    context(|context| {
        for (kind, _) in KINDS {
            let mut object = ray(kind);
            for place in ["/spec", place(kind)] {
                object.pointer_mut(place).unwrap().as_object_mut().unwrap().remove("suspend");
            }
            assert!(!sluice_jobs::is_suspended(kind, &object));
            let made = apply(&object, &mutate(kind, Operation::Create, &object, context)).unwrap();
            assert!(sluice_jobs::is_suspended(kind, &made), "{kind:?}");
            // One that KubeRay makes for another.
            let context = Context { managed_owner: true, ..*context };
            assert_eq!(mutate(kind, Operation::Create, &object, &context).body(), json!([]));
        }
        let mut selects = ray(JobKind::RAY_JOB);
        selects["spec"] = json!({"clusterSelector": {"ray.io/cluster": "shared"}});
        assert_eq!(mutate(JobKind::RAY_JOB, Operation::Create, &selects, context).body(), json!([]));
        assert!(observe(JobKind::RAY_JOB, &selects).skipped);
        assert!(!observe(JobKind::RAY_JOB, &ray(JobKind::RAY_JOB)).skipped);
    });
}

#[test]
fn the_rules_name_the_field_and_hold_only_what_changed() {
    context(|context| {
        let refused = |kind: JobKind, object: &Value, old: Option<&Value>| -> String {
            validate(kind, object, old, context).map_or_else(|denied| denied.to_string(), |()| String::new())
        };
        for (kind, place) in KINDS {
            let path = place.trim_start_matches('/').replace('/', ".");
            let good = ray(kind);
            assert_eq!(refused(kind, &good, None), "");
            let mut bad = good.clone();
            let spec = bad.pointer_mut(place).unwrap();
            spec["enableInTreeAutoscaling"] = json!(true);
            spec["workerGroupSpecs"][1]["groupName"] = json!("head");
            let reported = format!(
                "[{path}.enableInTreeAutoscaling: Invalid value: true: a kueue managed job should only use autoscaling when workload \
                 slicing is enabled, {path}.workerGroupSpecs[1].groupName: Forbidden: \"head\" is reserved for the head group]"
            );
            assert_eq!(refused(kind, &bad, None), reported);
            assert_eq!(refused(kind, &bad, Some(&good)), reported);
            assert_eq!(refused(kind, &bad, Some(&bad)), "", "it broke them before");
            let mut free = bad.clone();
            free["metadata"]["labels"] = json!({});
            assert_eq!(refused(kind, &free, None), "", "it is not managed");
            assert_eq!(refused(kind, &bad, Some(&free)), reported, "it is managed from now on");
            let mut many = good.clone();
            let groups = (0..18).map(|n| json!({"groupName": format!("g{n}"), "template": template("x")}));
            many.pointer_mut(place).unwrap()["workerGroupSpecs"] = groups.collect();
            let reported = format!("{path}.workerGroupSpecs: Too many: 19: must have at most 18 items");
            assert_eq!(refused(kind, &many, None), reported);
        }
        let job = |change: fn(&mut Value)| {
            let mut object = ray(JobKind::RAY_JOB);
            change(&mut object["spec"]);
            refused(JobKind::RAY_JOB, &object, None)
        };
        assert_eq!(
            job(|spec| spec["shutdownAfterJobFinishes"] = json!(false)),
            "spec.shutdownAfterJobFinishes: Invalid value: false: a kueue managed job should delete the cluster after finishing"
        );
        assert_eq!(
            job(|spec| spec["clusterSelector"] = json!({"a": "b"})),
            "spec.clusterSelector: Invalid value: {\"a\":\"b\"}: a kueue managed job should not use an existing cluster"
        );
        assert_eq!(
            job(|spec| spec["rayClusterSpec"] = Value::Null),
            "spec.rayClusterSpec: Required value: rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector"
        );
        assert_eq!(job(|spec| *spec = json!({"clusterSelector": {"a": "b"}})), "");
    });
}

/// Otherwise a cluster of any size would run without quota, or be taken for its own.
#[test]
fn a_rayjob_selects_a_cluster_only_while_it_has_none_of_its_own() {
    let selects = "spec.clusterSelector: Forbidden: cannot be set or removed until the job is suspended and its cluster is gone";
    let with = |suspend: bool, cluster: &str| {
        let mut object = ray(JobKind::RAY_JOB);
        object["spec"]["suspend"] = json!(suspend);
        object["status"] = json!({"jobDeploymentStatus": "Running", "rayClusterName": cluster});
        object
    };
    let selecting = |mut object: Value| {
        object["spec"]["clusterSelector"] = json!({"ray.io/cluster": "c"});
        object["spec"].as_object_mut().unwrap().remove("rayClusterSpec");
        object
    };
    context(|context| {
        let refused = |new: &Value, old: &Value| -> String {
            let answer = validate(JobKind::RAY_JOB, new, Some(old), context);
            answer.map_or_else(|denied| denied.to_string(), |()| String::new())
        };
        for (suspend, cluster, wanted) in
            [(false, "c", selects), (true, "c", selects), (false, "", selects), (true, "", "")]
        {
            let old = with(suspend, cluster);
            let new = selecting(old.clone());
            assert_eq!(refused(&new, &old), wanted, "{suspend} {cluster:?}");
            assert_eq!(refused(&old, &new), wanted, "{suspend} {cluster:?}, the other way round");
            let [free, before] = [new, old].map(|mut object| {
                object["metadata"]["labels"] = json!({});
                object
            });
            assert_eq!(refused(&free, &before), "", "it is not managed");
        }
        let mut over = with(false, "c");
        over["status"]["jobDeploymentStatus"] = json!("Complete");
        assert_eq!(refused(&selecting(over.clone()), &over), "");
    });
}

fn keys(prefix: &'static str) -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map((0..4_u8).prop_map(move |n| format!("{prefix}/{n}~")), "[ab]", 0..3)
}

fn scheduling(prefix: &'static str) -> impl Strategy<Value = PodScheduling> {
    (keys(prefix), keys(prefix), keys(prefix)).prop_map(|(labels, annotations, node_selector)| {
        PodScheduling { labels, annotations, node_selector, ..PodScheduling::default() }
    })
}

const PATHS: &[&str] = &[
    "",
    "/metadata",
    "/metadata/annotations",
    "/spec",
    "/spec/suspend",
    "/spec/submissionMode",
    "/spec/submitterPodTemplate",
    "/spec/clusterSelector",
    "CLUSTER",
    "CLUSTER/enableInTreeAutoscaling",
    "CLUSTER/gcsFaultToleranceOptions",
    "CLUSTER/autoscalerOptions",
    "CLUSTER/headGroupSpec",
    "CLUSTER/headGroupSpec/template",
    "CLUSTER/headGroupSpec/template/spec",
    "CLUSTER/headGroupSpec/template/spec/containers",
    "CLUSTER/headGroupSpec/template/spec/containers/0",
    "CLUSTER/headGroupSpec/template/spec/containers/0/resources",
    "CLUSTER/headGroupSpec/template/spec/containers/0/resources/requests",
    "CLUSTER/workerGroupSpecs",
    "CLUSTER/workerGroupSpecs/0",
    "CLUSTER/workerGroupSpecs/0/groupName",
    "CLUSTER/workerGroupSpecs/0/replicas",
    "CLUSTER/workerGroupSpecs/0/template",
    "/status",
    "/status/conditions",
    "/status/head",
    "/status/jobDeploymentStatus",
];

fn junk() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(i64::MAX),
        json!("x"),
        json!("true"),
        json!([null, 1, {"type": 5}]),
        json!({}),
        json!({"ray.io/ft-enabled": "true"}),
        json!({"cpu": [], "memory": "lots"}),
    ])
}

proptest! {
    /// Also after an eviction from one flavor and a start in another.
    #[test]
    fn stopping_a_started_job_restores_it(
        which in 0..KINDS.len(), own in any::<bool>(),
        before in scheduling("own"), adds in scheduling("new"), later in scheduling("later"),
    ) {
        let (kind, place) = KINDS[which];
        let mut object = ray(kind);
        if own && kind == JobKind::RAY_JOB {
            object["spec"]["submitterPodTemplate"] = template("own");
        }
        for at in ["headGroupSpec", "workerGroupSpecs/0", "workerGroupSpecs/1"] {
            let template = object.pointer_mut(&format!("{place}/{at}/template")).unwrap();
            template["metadata"] = json!({"labels": before.labels, "annotations": before.annotations});
            template["spec"]["nodeSelector"] = json!(before.node_selector);
        }
        prune(&mut object);
        let original = observe(kind, &object);
        let mut now = object.clone();
        for adds in [adds, later] {
            let view = observe(kind, &now);
            let infos: Vec<_> = view.pod_sets.iter()
                .map(|set| PodSetInfo { name: set.name.clone(), count: set.count, scheduling: adds.clone() }).collect();
            now = apply(&now, &start(&view, &infos).unwrap()).unwrap();
            let started = observe(kind, &now);
            prop_assert!(!started.suspended);
            for (set, first) in started.pod_sets.iter().zip(&original.pod_sets) {
                let wanted: BTreeMap<_, _> = first.scheduling.node_selector.clone().into_iter()
                    .chain(adds.node_selector.clone()).collect();
                prop_assert_eq!(&set.scheduling.node_selector, &wanted);
                prop_assert_eq!(set.containers_hash, first.containers_hash);
            }
            now = apply(&now, &stop(&started, &originals(&original))[0].patch).unwrap();
            prop_assert_eq!(pruned(now.clone()), pruned(object.clone()));
        }
    }

    #[test]
    fn no_object_makes_it_panic(
        which in 0..KINDS.len(), mode in prop::sample::select(vec!["K8sJobMode", "SidecarMode"]),
        paths in prop::collection::vec((prop::sample::select(PATHS.to_vec()), junk()), 1..3),
    ) {
        let (kind, cluster) = KINDS[which];
        let mut object = ray(kind);
        object["spec"]["submissionMode"] = json!(mode);
        object["spec"]["submitterPodTemplate"] = template("own");
        object["metadata"]["annotations"] = json!({"ray.io/ft-enabled": "true"});
        object.pointer_mut(cluster).unwrap()["enableInTreeAutoscaling"] = json!(which != 0);
        object["status"] = json!({"conditions": [], "head": {}, "jobDeploymentStatus": "Waiting"});
        for (path, value) in paths {
            if let Some(place) = object.pointer_mut(&path.replace("CLUSTER", cluster)) {
                *place = value;
            }
        }
        let view = observe(kind, &object);
        let _ = start(&view, &originals(&view));
        let _ = stop(&view, &originals(&view));
        let _ = (pod_groups(kind, &object), sluice_jobs::schemas(kind, &object));
        context(|context| {
            let _ = mutate(kind, Operation::Create, &object, context);
            let _ = validate(kind, &object, None, context);
        });
        let at = Timestamp::UNIX_EPOCH;
        for state in [State::Idle, State::Running { since: at, ready: true }, State::Ended { at, success: true }] {
            let _ = sluice_jobs::status(kind, &object, state);
        }
    }
}
