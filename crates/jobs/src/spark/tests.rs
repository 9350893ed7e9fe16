//! SparkApplications: their pods, what is read of each state, and how they start and stop.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodSchedulingGate, Toleration};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo};
use sluice_jobs::{Schema, StartError, State, observe, pod_groups, start, stop};

use crate::testing::{apply, prune};

const KIND: JobKind = JobKind::SPARK_APPLICATION;

pub fn spark() -> Value {
    json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind(),
        "metadata": {"name": "pi", "namespace": "team-a", "uid": "5e1f", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"kueue.x-k8s.io/queue-name": "user-queue"}},
        "spec": {
            "suspend": true, "type": "Python", "mode": "cluster", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///pi.py",
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "spark-local-dir-1", "emptyDir": {}}],
            "driver": {
                "cores": 1, "coreRequest": "500m", "coreLimit": "1200m", "memory": "512m", "memoryOverhead": "1g",
                "labels": {"role": "driver"}, "nodeSelector": {"disk": "ssd"}, "priorityClassName": "high",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "spark-local-dir-1", "mountPath": "/tmp"}],
                "sidecars": [{"name": "log", "image": "log", "resources": {"requests": {"cpu": "100m"}}}],
            },
            "executor": {
                "instances": 3, "coreRequest": "1", "memory": "2G", "memoryLimit": "3g",
                "gpu": {"name": "nvidia.com/gpu", "quantity": 2}, "annotations": {"note": "x"},
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "initContainers": [{"name": "init", "image": "init"}],
            },
        },
    })
}

pub fn changed(change: impl Fn(&mut Value)) -> Value {
    let mut object = spark();
    change(&mut object["spec"]);
    object
}

fn in_state(state: &str) -> JobView {
    let mut object = spark();
    object["status"] = json!({"applicationState": {"state": state, "errorMessage": "why"}});
    observe(KIND, &object)
}

fn spec_of(view: &JobView, at: usize) -> Value {
    json!(view.pod_sets[at].template.as_ref().unwrap().spec)
}

#[test]
fn a_driver_and_its_executors_are_the_pod_sets() {
    let view = observe(KIND, &spark());
    assert_eq!(view.invalid, None);
    let sets: Vec<_> = view.pod_sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    assert_eq!(sets, [("driver", 1), ("executor", 3)]);
    assert_eq!(view.pod_priority_class.as_deref(), Some("high"));
    assert!(view.suspended && !view.active && view.finished.is_none());
    let driver = json!({
        "containers": [
            {"name": "spark-kubernetes-driver", "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "1200m"}}},
            {"name": "log", "image": "log", "resources": {"requests": {"cpu": "100m"}}},
        ],
        "nodeSelector": {"disk": "ssd"}, "priorityClassName": "high", "volumes": [{"name": "data", "emptyDir": {}}],
    });
    assert_eq!(spec_of(&view, 0), driver, "neither overhead nor cores are counted");
    let executor = json!({
        "containers": [{"name": "spark-kubernetes-executor", "resources": {
            "requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "3Gi", "nvidia.com/gpu": "2"}}}],
        "initContainers": [{"name": "init", "image": "init"}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
    });
    assert_eq!(spec_of(&view, 1), executor);
    let metadata = |at: usize| json!(view.pod_sets[at].template.as_ref().unwrap().metadata);
    assert_eq!(metadata(0), json!({"labels": {"role": "driver"}}));
    assert_eq!(metadata(1), json!({"annotations": {"note": "x"}}));
    let object = spark();
    let paths: Vec<_> = pod_groups(KIND, &object).iter().map(sluice_jobs::PodGroup::path).collect();
    assert_eq!(paths, ["spec.driver", "spec.executor"]);
}

#[test]
fn the_driver_is_named_as_the_operator_names_it() {
    let named = |change: fn(&mut Value)| observe(KIND, &changed(change)).part_names;
    assert_eq!(named(|_| {}), ["pi-driver"]);
    let configured =
        |spec: &mut Value| spec["sparkConf"] = json!({"spark.kubernetes.driver.pod.name": "of-conf"});
    assert_eq!(named(configured), ["of-conf"]);
    assert_eq!(named(|spec| spec["driver"]["podName"] = json!("own")), ["own"]);
    assert_eq!(named(|spec| spec["driver"]["podName"] = json!("")), ["pi-driver"]);
}

#[test]
fn the_operator_leaves_pods_that_still_run_when_it_has_ended() {
    for state in ["COMPLETED", "FAILED"] {
        let view = in_state(state);
        assert!(view.finished.is_some() && view.leaves_pods, "{state}");
    }
}

#[test]
fn the_templates_of_the_user_come_first() {
    let object = changed(|spec| {
        spec["nodeSelector"] = json!({"zone": "a"});
        spec["driver"]["template"] = json!({
            "metadata": {"name": "x", "labels": {"role": "mine", "own": "y"}},
            "spec": {"containers": [
                {"name": "log", "image": "log"},
                {"name": "spark-kubernetes-driver", "image": "mine", "resources": {"requests": {"cpu": "9", "ephemeral-storage": "1Gi"}}},
            ]},
        });
        spec["executor"]["template"] = json!({"spec": {"containers": [{"name": "other"}],
            "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b"}]}});
    });
    let view = observe(KIND, &object);
    let driver = spec_of(&view, 0);
    let names: Vec<_> = driver["containers"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["log", "spark-kubernetes-driver"], "the sidecar is there already");
    let requests = json!({"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi"});
    assert_eq!(driver["containers"][1]["resources"]["requests"], requests);
    assert_eq!(driver["nodeSelector"], json!({"disk": "ssd", "zone": "a"}));
    let labels = json!({"labels": {"role": "driver", "own": "y"}});
    assert_eq!(json!(view.pod_sets[0].template.as_ref().unwrap().metadata), labels);
    let executor = spec_of(&view, 1);
    assert_eq!(
        executor["containers"][0]["resources"]["requests"]["cpu"], "1",
        "its first container is Spark's"
    );
    assert_eq!(executor["tolerations"], json!([{"key": "a", "operator": "Exists"}, {"key": "b"}]));
    let schemas = sluice_jobs::schemas(KIND, &object);
    let both =
        ["/spec/driver/template", "/spec/executor/template"].map(|at| (at.to_owned(), Schema::PodTemplate));
    assert_eq!(schemas, both);
    assert!(sluice_jobs::schemas(KIND, &spark()).is_empty());
}

#[test]
fn as_many_executors_count_as_spark_makes() {
    let count = |instances: Value, configured: Value| {
        let object = changed(|spec| {
            spec["executor"]["instances"] = instances.clone();
            spec["sparkConf"] = json!({"spark.executor.instances": configured});
        });
        observe(KIND, &object).pod_sets[1].count
    };
    assert_eq!(count(json!(5), json!("7")), 5);
    assert_eq!(count(json!(0), json!(null)), 0);
    assert_eq!(count(json!(null), json!("7")), 7);
    assert_eq!(count(json!(null), json!(null)), 2, "Spark's own default");
}

#[test]
fn what_cannot_be_queued_is_said() {
    let why = |change: fn(&mut Value)| observe(KIND, &changed(change)).invalid.unwrap_or_default();
    assert_eq!(
        why(|spec| spec["mode"] = json!("client")),
        "spec.mode: \"client\": only Cluster mode is supported for a kueue managed job"
    );
    let scales = why(|spec| spec["dynamicAllocation"] = json!({"enabled": true}));
    assert!(scales.starts_with("spec.dynamicAllocation.enabled: a kueue managed job can use"), "{scales}");
    let scales = why(|spec| spec["sparkConf"] = json!({"spark.dynamicAllocation.enabled": "True"}));
    assert!(scales.starts_with("spec.sparkConf[spark.dynamicAllocation.enabled]: "), "{scales}");
    assert_eq!(
        why(|spec| spec["executor"]["instances"] = json!(-1)),
        "spec.executor.instances: -1: must not be negative"
    );
    assert_eq!(
        why(|spec| spec["driver"]["memory"] = json!("much")),
        "spec.driver.memory: \"much\" is not a quantity"
    );
    let negative = |field: &str| format!("spec.executor.{field}: \"-4\": must not be negative");
    assert_eq!(why(|spec| spec["executor"]["coreRequest"] = json!("-4")), negative("coreRequest"));
    assert_eq!(why(|spec| spec["executor"]["memoryLimit"] = json!("-4")), negative("memoryLimit"));
    let fraction = why(|spec| spec["executor"]["memory"] = json!("0x1g"));
    assert_eq!(fraction, "spec.executor.memory: \"0x1g\" is not a quantity");
    // Spark would put another setting in.
    let scales = why(|spec| spec["sparkConf"] = json!({"spark.dynamicAllocation.enabled": "${spark.x}"}));
    assert!(scales.starts_with("spec.sparkConf[spark.dynamicAllocation.enabled]: "), "{scales}");
    assert_eq!(why(|spec| spec["sparkConf"] = json!({"spark.dynamicAllocation.enabled": " False"})), "");
    let many = why(|spec| {
        spec["executor"]["instances"] = Value::Null;
        spec["sparkConf"] = json!({"spark.executor.instances": "${spark.x}"});
    });
    assert_eq!(many, "spec.sparkConf[spark.executor.instances]: \"${spark.x}\" is not a number");
    assert_eq!(why(|spec| spec["driver"]["template"] = json!(5)), "spec.driver.template: must be an object");
    let containers = why(|spec| spec["driver"]["template"] = json!({"spec": {"containers": {}}}));
    assert_eq!(containers, "spec.driver.template.spec.containers: must be a list");
    assert_eq!(why(|spec| spec["dynamicAllocation"] = json!({"enabled": false})), "");
    assert_eq!(why(|spec| spec["mode"] = json!(null)), "");
}

#[test]
fn every_state_of_the_operator_is_read_as_it_is_meant() {
    for state in ["", "SUSPENDED", "COMPLETED", "FAILED"] {
        assert!(!in_state(state).active, "{state:?}");
    }
    // It has pods, or is about to make some.
    for state in [
        "SUBMITTED",
        "RUNNING",
        "SUBMISSION_FAILED",
        "PENDING_RERUN",
        "INVALIDATING",
        "SUCCEEDING",
        "FAILING",
        "SUSPENDING",
        "RESUMING",
        "UNKNOWN",
    ] {
        let view = in_state(state);
        assert!(view.active && view.finished.is_none() && !view.pods_ready, "{state}");
    }
    let finished = |state: &str| in_state(state).finished.map(|end| (end.success, end.message));
    assert_eq!(finished("COMPLETED"), Some((true, "why".to_owned())));
    assert_eq!(finished("FAILED"), Some((false, "why".to_owned())));
}

#[test]
fn its_pods_are_ready_when_the_driver_runs_and_as_many_executors_do_or_did() {
    let ready = |states: &[&str], instances: i32, state: &str| {
        let mut object = changed(|spec| spec["executor"]["instances"] = json!(instances));
        let states = states.iter().enumerate().map(|(at, state)| (format!("pi-exec-{at}"), json!(state)));
        object["status"] = json!({"applicationState": {"state": state}, "executorState": states.collect::<serde_json::Map<_, _>>()});
        observe(KIND, &object).pods_ready
    };
    assert!(ready(&["RUNNING", "COMPLETED"], 2, "RUNNING"));
    assert!(!ready(&["RUNNING", "COMPLETED"], 2, "SUBMITTED"));
    assert!(!ready(&["RUNNING", "PENDING"], 2, "RUNNING") && !ready(&["RUNNING", "FAILED"], 2, "RUNNING"));
    assert!(!ready(&[], 1, "RUNNING") && ready(&[], 0, "RUNNING"));
}

fn infos(view: &JobView, adds: &[PodScheduling; 2]) -> Vec<PodSetInfo> {
    let of = |(set, adds): (&sluice_api::job::JobPodSet, &PodScheduling)| PodSetInfo {
        name: set.name.clone(),
        count: set.count,
        scheduling: adds.clone(),
    };
    view.pod_sets.iter().zip(adds).map(of).collect()
}

/// What a Workload remembers of the job before its start.
fn originals(view: &JobView) -> Vec<PodSetInfo> {
    let of = |set: &sluice_api::job::JobPodSet| PodSetInfo {
        name: set.name.clone(),
        count: set.count,
        scheduling: set.scheduling.clone(),
    };
    view.pod_sets.iter().map(of).collect()
}

fn pool(name: &str) -> PodScheduling {
    PodScheduling {
        node_selector: [("pool".to_owned(), name.to_owned())].into(),
        labels: [("kueue.x-k8s.io/podset".to_owned(), name.to_owned())].into(),
        tolerations: vec![Toleration { key: Some(name.to_owned()), ..Toleration::default() }],
        ..PodScheduling::default()
    }
}

#[test]
fn what_is_admitted_goes_into_its_fields_and_is_gone_after_a_stop() {
    let mut object = spark();
    let before = observe(KIND, &object);
    let started = apply(&object, &start(&before, &infos(&before, &[pool("a"), pool("b")])).unwrap()).unwrap();
    let spec = &started["spec"];
    assert_eq!(spec["suspend"], false);
    assert_eq!(spec["driver"]["nodeSelector"], json!({"disk": "ssd", "pool": "a"}));
    assert_eq!(spec["driver"]["labels"], json!({"role": "driver", "kueue.x-k8s.io/podset": "a"}));
    assert_eq!(spec["driver"]["tolerations"], json!([{"key": "a"}]));
    assert_eq!(spec["executor"]["nodeSelector"], json!({"pool": "b"}));
    assert_eq!(spec["executor"]["tolerations"], json!([{"key": "a", "operator": "Exists"}, {"key": "b"}]));
    assert!(spec["driver"].get("template").is_none() && spec["executor"].get("template").is_none());
    let steps = stop(&observe(KIND, &started), &originals(&before));
    assert_eq!(steps.len(), 1);
    let mut stopped = apply(&started, &steps[0].patch).unwrap();
    for one in [&mut stopped, &mut object] {
        prune(one);
        one["metadata"]["resourceVersion"] = Value::Null;
    }
    assert_eq!(stopped, object);
}

/// The operator refuses selectors for all pods beside those for some.
#[test]
fn selectors_for_all_pods_become_those_of_each() {
    let object = changed(|spec| {
        spec["nodeSelector"] = json!({"zone": "a"});
        spec["driver"].as_object_mut().unwrap().remove("nodeSelector");
    });
    let before = observe(KIND, &object);
    let bare = [PodScheduling::default(), PodScheduling::default()];
    let started = apply(&object, &start(&before, &infos(&before, &bare)).unwrap()).unwrap();
    assert_eq!(started["spec"]["nodeSelector"], json!({"zone": "a"}), "nothing is added");
    let adds = [pool("a"), PodScheduling::default()];
    let started = apply(&object, &start(&before, &infos(&before, &adds)).unwrap()).unwrap();
    assert_eq!(started["spec"].get("nodeSelector"), None);
    assert_eq!(started["spec"]["driver"]["nodeSelector"], json!({"zone": "a", "pool": "a"}));
    assert_eq!(started["spec"]["executor"]["nodeSelector"], json!({"zone": "a"}));
    let steps = stop(&observe(KIND, &started), &originals(&before));
    let stopped = apply(&started, &steps[0].patch).unwrap();
    let pods = |object: &Value| {
        observe(KIND, object).pod_sets.iter().map(|set| set.scheduling.clone()).collect::<Vec<_>>()
    };
    assert_eq!(pods(&stopped), pods(&object));
}

#[test]
fn gates_go_into_the_templates_which_have_containers() {
    let object = spark();
    let before = observe(KIND, &object);
    let gated = PodScheduling {
        scheduling_gates: vec![PodSchedulingGate { name: "g".to_owned() }],
        ..PodScheduling::default()
    };
    let started =
        apply(&object, &start(&before, &infos(&before, &[gated, PodScheduling::default()])).unwrap())
            .unwrap();
    let template = json!({"spec": {"schedulingGates": [{"name": "g"}], "containers": [{"name": "spark-kubernetes-driver"}]}});
    assert_eq!(started["spec"]["driver"]["template"], template);
    let view = observe(KIND, &started);
    assert_eq!(view.pod_sets[0].containers_hash, before.pod_sets[0].containers_hash);
    let stopped = apply(&started, &stop(&view, &originals(&before))[0].patch).unwrap();
    assert_eq!(observe(KIND, &stopped).pod_sets[0].scheduling, before.pod_sets[0].scheduling);
}

#[test]
fn what_contradicts_the_application_does_not_start() {
    let view = observe(KIND, &spark());
    let mut adds = pool("a");
    adds.node_selector = [("disk".to_owned(), "hdd".to_owned())].into();
    let conflict = start(&view, &infos(&view, &[adds, PodScheduling::default()]));
    assert!(matches!(conflict, Err(StartError::Conflict { field: "nodeSelector", .. })));
    let mut fewer = originals(&view);
    fewer[1].count = 2;
    assert!(matches!(start(&view, &fewer), Err(StartError::Count { admitted: 2, needed: 3, .. })));
    assert!(matches!(start(&view, &fewer[..1]), Err(StartError::PodSets { .. })));
}

#[test]
fn how_long_it_took_is_known_of_one_that_succeeded() {
    let mut object = spark();
    let [since, at] =
        ["2026-01-02T04:00:00Z", "2026-01-02T05:00:00Z"].map(|text| text.parse::<Timestamp>().unwrap());
    for (success, ran) in [(true, Some((since, at))), (false, None)] {
        object["status"] = sluice_jobs::status(KIND, &object, State::Running { since, ready: true });
        assert_eq!(sluice_jobs::ran(KIND, &object), None);
        object["status"] = sluice_jobs::status(KIND, &object, State::Ended { at, success });
        assert_eq!(sluice_jobs::ran(KIND, &object), ran);
    }
}

const PATHS: &[&str] = &[
    "",
    "/metadata",
    "/spec",
    "/spec/mode",
    "/spec/volumes",
    "/spec/volumes/0",
    "/spec/driver",
    "/spec/driver/template",
    "/spec/driver/template/spec",
    "/spec/driver/template/spec/containers",
    "/spec/driver/template/spec/containers/0",
    "/spec/driver/memory",
    "/spec/driver/labels",
    "/spec/driver/nodeSelector",
    "/spec/driver/volumeMounts",
    "/spec/driver/sidecars",
    "/spec/driver/sidecars/0",
    "/spec/executor",
    "/spec/executor/instances",
    "/spec/executor/gpu",
    "/spec/executor/tolerations",
    "/spec/executor/initContainers",
    "/status",
    "/status/applicationState",
    "/status/executorState",
];

fn junk() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(i64::MAX),
        json!("x"),
        json!([null, 1, {"name": 5}]),
        json!({}),
        json!([]),
        json!({"spec": null, "name": [], "resources": 5}),
        json!({"spec": {"containers": [{"resources": []}]}}),
    ])
}

fn keys(prefix: &'static str) -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map((0..4_u8).prop_map(move |n| format!("{prefix}/{n}~")), "[ab]", 0..3)
}

proptest! {
    /// Also after an eviction from one flavor and a start in another: nothing of the first is left.
    #[test]
    fn a_second_start_adds_what_is_admitted_then_and_nothing_else(first in keys("old"), second in keys("new"), all in any::<bool>()) {
        let object = changed(|spec| {
            if all {
                spec["nodeSelector"] = json!({"zone": "a"});
            }
        });
        let before = observe(KIND, &object);
        let mut now = object.clone();
        for selector in [first, second] {
            let view = observe(KIND, &now);
            let adds = PodScheduling { node_selector: selector.clone(), ..PodScheduling::default() };
            now = apply(&now, &start(&view, &infos(&view, &[adds, PodScheduling::default()])).unwrap()).unwrap();
            let mut wanted = before.pod_sets[0].scheduling.node_selector.clone();
            wanted.extend(selector);
            let running = observe(KIND, &now);
            prop_assert_eq!(&running.pod_sets[0].scheduling.node_selector, &wanted);
            prop_assert_eq!(&running.pod_sets[1].scheduling, &before.pod_sets[1].scheduling);
            now = apply(&now, &stop(&running, &originals(&before))[0].patch).unwrap();
            let after = observe(KIND, &now);
            prop_assert!(after.suspended);
            for (after, before) in after.pod_sets.iter().zip(&before.pod_sets) {
                prop_assert_eq!(&after.scheduling, &before.scheduling);
            }
        }
    }

    #[test]
    fn no_object_makes_it_panic(path in prop::sample::select(PATHS.to_vec()), value in junk()) {
        let mut object = changed(|spec| {
            spec["driver"]["template"] = json!({"spec": {"containers": [{"name": "a"}]}});
        });
        object["status"] = json!({"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING"}});
        if let Some(place) = object.pointer_mut(path) {
            *place = value;
        }
        let view = observe(KIND, &object);
        let none = [PodScheduling::default(), PodScheduling::default()];
        let _ = start(&view, &infos(&view, &none));
        let _ = stop(&view, &originals(&view));
        let _ = (pod_groups(KIND, &object), sluice_jobs::schemas(KIND, &object), sluice_jobs::ran(KIND, &object));
        let at = Timestamp::UNIX_EPOCH;
        for state in [State::Idle, State::Running { since: at, ready: true }, State::Ended { at, success: true }] {
            let _ = sluice_jobs::status(KIND, &object, state);
        }
    }
}

#[test]
fn the_executors_that_run_are_those_of_its_status() {
    let running = |state: &str, executors: Value| {
        let mut object = spark();
        object["status"] = json!({"applicationState": {"state": state}, "executorState": executors});
        observe(KIND, &object).running
    };
    let five = json!({"a": "RUNNING", "b": "RUNNING", "c": "PENDING", "d": "FAILED", "e": "COMPLETED", "f": "UNKNOWN"});
    assert_eq!(running("RUNNING", five.clone()), [("executor".to_owned(), 3)]);
    assert_eq!(running("COMPLETED", five), []);
    assert_eq!(running("RUNNING", json!(null)), []);
}
