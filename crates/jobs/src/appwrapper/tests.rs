//! AppWrappers: where their pods are, what is read of each state, and how they start and stop.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodSchedulingGate, Toleration};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo};
use sluice_jobs::{Patch, Schema, StartError, State, observe, pod_groups, start, stop};

use crate::testing::{apply, prune};

const KIND: JobKind = JobKind::APP_WRAPPER;

fn pod(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn component(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    let mut template = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    template["spec"] = spec;
    json!({"template": template})
}

/// A service without pods, a Job of two, a JobSet with two pod sets, and a kind that is not known, with its pods declared.
fn components() -> Value {
    let job = json!({"parallelism": 3, "completions": 2, "template": pod("1")});
    let replicated = |name: &str, replicas: Value| json!({"name": name, "replicas": replicas, "template": {"spec": {"parallelism": 4, "template": pod("2")}}});
    let set = json!({"replicatedJobs": [replicated("a", json!(2)), replicated("b", json!(null))]});
    let mut unknown = component("example.com/v1", "Train", "train", json!({"roles": [{"pods": pod("3")}]}));
    unknown["podSets"] = json!([{"replicas": 5, "path": "template.spec.roles[0].pods"}]);
    json!([
        component("v1", "Service", "service", json!({})),
        component("batch/v1", "Job", "job", job),
        component("jobset.x-k8s.io/v1alpha2", "JobSet", "set", set),
        unknown,
    ])
}

fn with_components(components: Value) -> Value {
    let mut object = json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind(),
        "metadata": {"name": "wrapper", "namespace": "team-a", "uid": "5e1f", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"kueue.x-k8s.io/queue-name": "user-queue"}},
        "spec": {"suspend": true},
    });
    object["spec"]["components"] = components;
    object
}

fn wrapper() -> Value {
    with_components(components())
}

/// One with a single component.
fn of(component: Value) -> JobView {
    observe(KIND, &with_components(Value::Array(vec![component])))
}

fn sets(view: &JobView) -> Vec<(&str, i32)> {
    view.pod_sets.iter().map(|set| (set.name.as_str(), set.count)).collect()
}

fn infos(view: &JobView, adds: &PodScheduling) -> Vec<PodSetInfo> {
    let info = |(number, set): (usize, &sluice_api::job::JobPodSet)| {
        let mut scheduling = adds.clone();
        scheduling.labels.insert("number".to_owned(), number.to_string());
        PodSetInfo { name: set.name.clone(), count: set.count, scheduling }
    };
    view.pod_sets.iter().enumerate().map(info).collect()
}

#[test]
fn its_pod_sets_are_those_of_its_components_numbered_in_their_order() {
    let view = observe(KIND, &wrapper());
    assert_eq!(view.invalid, None);
    assert_eq!(sets(&view), [("wrapper-0", 2), ("wrapper-1", 8), ("wrapper-2", 4), ("wrapper-3", 5)]);
    let wrapped: Vec<_> = view.pod_sets.iter().map(|set| set.wrapped.as_deref().unwrap()).collect();
    let reported: Vec<_> = wrapped.iter().map(|of| (of.index, of.kind.as_str(), of.name.as_str())).collect();
    assert_eq!(
        reported,
        [(1, "Job", "job"), (2, "JobSet", "set"), (2, "JobSet", "set"), (3, "Train", "train")]
    );
    let request = |at: usize| view.pod_sets[at].topology_request.clone().unwrap();
    assert_eq!(request(0).pod_index_label.as_deref(), Some("batch.kubernetes.io/job-completion-index"));
    assert_eq!(request(1).sub_group_index_label.as_deref(), Some("jobset.sigs.k8s.io/job-index"));
    assert_eq!((request(1).sub_group_count, request(2).sub_group_count), (Some(2), Some(1)));
    assert_eq!((request(3).pod_index_label.clone(), request(3).sub_group_count), (None, None));
    let object = wrapper();
    let groups = pod_groups(KIND, &object);
    assert_eq!(groups[3].path(), "spec.components[3].template.spec.roles[0].pods");
    for (group, set) in groups.iter().zip(&view.pod_sets) {
        assert_eq!((&*group.name, group.count()), (set.name.as_str(), set.count));
        assert_eq!(object.pointer(&group.pointer), Some(&*group.template));
    }
}

#[test]
fn the_pods_of_each_known_kind_are_found() {
    let found = |api_version: &str, kind: &str, spec: Value| {
        let view = of(component(api_version, kind, "x", spec));
        assert_eq!(view.invalid, None, "{kind}");
        view.pod_sets.iter().map(|set| set.count).collect::<Vec<_>>()
    };
    assert_eq!(found("v1", "Pod", pod("1")["spec"].clone()), [1]);
    for kind in ["Deployment", "StatefulSet"] {
        assert_eq!(found("apps/v1", kind, json!({"replicas": 3, "template": pod("1")})), [3]);
        assert_eq!(found("apps/v1", kind, json!({"template": pod("1")})), [1]);
    }
    for (parallelism, completions, count) in [
        (json!(3), json!(null), 3),
        (json!(null), json!(5), 1),
        (json!(4), json!(2), 2),
        (json!(-4), json!(1), 0),
    ] {
        let spec = json!({"parallelism": parallelism, "completions": completions, "template": pod("1")});
        assert_eq!(found("batch/v1", "Job", spec), [count]);
    }
    let replicas = json!({"Worker": {"replicas": 2, "template": pod("1")}, "Master": {"template": pod("1")}});
    assert_eq!(found("kubeflow.org/v1", "PyTorchJob", json!({"pytorchReplicaSpecs": replicas})), [1, 2]);
    let cluster = json!({"headGroupSpec": {"template": pod("1")}, "workerGroupSpecs": [
        {"groupName": "a", "replicas": 2, "template": pod("1")}, {"groupName": "b", "template": pod("1")}]});
    assert_eq!(found("ray.io/v1", "RayCluster", cluster.clone()), [1, 2, 1]);
    assert_eq!(found("ray.io/v1", "RayJob", json!({"rayClusterSpec": cluster})), [1, 2, 1]);
    let huge = json!({"replicas": i64::MAX, "template": pod("1")});
    assert_eq!(found("apps/v1", "Deployment", huge), [i32::MAX]);
    let job =
        json!({"replicas": i32::MAX, "template": {"spec": {"parallelism": i32::MAX, "template": pod("1")}}});
    assert_eq!(found("jobset.x-k8s.io/v1alpha2", "JobSet", json!({"replicatedJobs": [job]})), [i32::MAX]);
}

#[test]
fn what_cannot_be_a_workload_is_said() {
    let invalid = |component: Value| of(component).invalid.unwrap_or_default();
    let deployment = |replicas: Value| {
        component("apps/v1", "Deployment", "x", json!({"replicas": replicas, "template": pod("1")}))
    };
    assert_eq!(
        invalid(deployment(json!("many"))),
        "spec.components[0].template.spec.replicas: \"many\" is not a number of pods"
    );
    let none = "spec.components: no pods: declare the pods of unknown kinds in podSets";
    assert_eq!(invalid(component("v1", "Service", "x", json!({}))), none);
    for nothing in [json!(null), json!([]), json!({}), json!("x")] {
        assert_eq!(observe(KIND, &with_components(nothing)).invalid.as_deref(), Some(none));
    }
    let declared = |pod_sets: Value| {
        let mut one = deployment(json!(3));
        one["podSets"] = pod_sets;
        invalid(one)
    };
    let path = "template.spec.template";
    assert_eq!(declared(json!([{"replicas": 3, "path": path}])), "");
    // Fewer pods than the template has would run without quota.
    for pod_sets in
        [json!([{"replicas": 1, "path": path}]), json!([{"path": path}]), json!([{"path": "template.spec"}])]
    {
        assert_eq!(
            declared(pod_sets),
            "spec.components[0].podSets do not match the template: template.spec.template with 3"
        );
    }
    let twice = json!([{"replicas": 3, "path": path}, {"replicas": 3, "path": path}]);
    assert_eq!(declared(twice), "spec.components[0].podSets: \"template.spec.template\" is listed twice");
    let mut lost = component("example.com/v1", "Train", "x", json!({"pods": 1}));
    lost["podSets"] = json!([{"path": "template.spec.none"}]);
    let why = "spec.components[0].podSets[0]: path \"template.spec.none\": there is no \"none\"";
    assert_eq!(invalid(lost.clone()), why);
    lost["podSets"] = json!([{"path": "template.spec.pods"}]);
    assert_eq!(invalid(lost), "spec.components[0].template.spec.pods.spec: required");
    let unreadable = json!({"template": {"spec": {"containers": [{"name": 5}]}}});
    let why = invalid(component("batch/v1", "Job", "x", unreadable));
    assert!(why.starts_with("spec.components[0].template.spec.template: invalid type"), "{why}");
    let many: Vec<_> =
        (0..19).map(|n| component("v1", "Pod", &format!("p{n}"), pod("1")["spec"].clone())).collect();
    assert_eq!(
        observe(KIND, &with_components(json!(many))).invalid.as_deref(),
        Some("too many pod sets: 19, at most 18")
    );
    for name in ["x".repeat(62), "a.b".to_owned()] {
        let mut object = wrapper();
        object["metadata"]["name"] = json!(name);
        let why = observe(KIND, &object).invalid.unwrap();
        assert!(why.starts_with("metadata.name: pod sets are named after it"), "{why}");
    }
}

#[test]
fn what_its_controller_has_written_down_counts_unless_it_is_less() {
    let mut object = with_components(json!([component(
        "batch/v1",
        "Job",
        "x",
        json!({"parallelism": 2, "template": pod("1")})
    )]));
    let with = |object: &mut Value, pod_sets: Value| {
        object["status"]["componentStatus"] = json!([{"name": "x", "podSets": pod_sets}]);
        let view = observe(KIND, object);
        (view.invalid.clone(), view.pod_sets.iter().map(|set| set.count).collect::<Vec<_>>())
    };
    let path = "template.spec.template";
    assert_eq!(with(&mut object, json!([{"replicas": 2, "path": path}])), (None, vec![2]));
    // A newer controller may count more.
    assert_eq!(with(&mut object, json!([{"replicas": 3, "path": path}])), (None, vec![3]));
    let changed = "spec.components[0].template.spec.template changed after its controller read it";
    for less in
        [json!([{"replicas": 1, "path": path}]), json!([{"replicas": 2, "path": "template"}]), json!([])]
    {
        assert_eq!(with(&mut object, less), (Some(changed.to_owned()), vec![]));
    }
    // It writes down all components at once.
    object["status"]["componentStatus"] = json!([]);
    assert_eq!(observe(KIND, &object).invalid, None);
}

/// Every state that its controller writes, in the order in which it comes to them.
#[test]
fn each_phase_is_read_as_its_controller_means_it() {
    let at = "2026-02-02T00:00:00Z";
    let view = |phase: &str, conditions: &[(&str, &str)]| {
        let of = |(type_, status): &(&str, &str)| json!({"type": type_, "status": status, "lastTransitionTime": at});
        let mut object = wrapper();
        object["status"] =
            json!({"phase": phase, "conditions": conditions.iter().map(of).collect::<Vec<_>>()});
        observe(KIND, &object)
    };
    let fresh = observe(KIND, &wrapper());
    assert!(!fresh.active && fresh.finished.is_none() && fresh.suspended_condition.is_none());
    let seen = view("Suspended", &[]);
    assert_eq!(seen.suspended_condition, Some((true, "2026-01-02T03:04:05Z".parse().unwrap())));
    let deployed = [("QuotaReserved", "True"), ("ResourcesDeployed", "True"), ("PodsReady", "False")];
    for phase in ["Resuming", "Running", "Suspending", "Resetting", "Failed", "Terminating"] {
        let view = view(phase, &deployed);
        assert!(view.active && view.finished.is_none() && !view.pods_ready, "{phase}");
        assert_eq!(view.suspended_condition, Some((false, at.parse().unwrap())));
    }
    assert!(view("Running", &[("QuotaReserved", "True"), ("PodsReady", "True")]).pods_ready);
    let back = view("Suspended", &[("QuotaReserved", "False"), ("ResourcesDeployed", "False")]);
    assert!(!back.active && back.finished.is_none());
    assert_eq!(back.suspended_condition, Some((true, at.parse().unwrap())));
    let done = view("Succeeded", &[("QuotaReserved", "False"), ("ResourcesDeployed", "True")]);
    assert!(done.finished.is_some_and(|finished| finished.success));
    let failed = view("Failed", &[("QuotaReserved", "False"), ("ResourcesDeployed", "False")]);
    assert!(failed.finished.is_some_and(|finished| !finished.success));
}

#[test]
fn what_is_admitted_goes_beside_the_templates_and_is_gone_after_a_stop() {
    let mut object = wrapper();
    let view = observe(KIND, &object);
    let adds = PodScheduling {
        annotations: [("a".to_owned(), "b".to_owned())].into(),
        node_selector: [("pool".to_owned(), "spot".to_owned())].into(),
        tolerations: vec![Toleration { key: Some("spot".to_owned()), ..Toleration::default() }],
        scheduling_gates: vec![PodSchedulingGate { name: "gate".to_owned() }],
        ..PodScheduling::default()
    };
    let patch = start(&view, &infos(&view, &adds)).unwrap();
    assert!(matches!(patch, Patch::Json(_)));
    let started = apply(&object, &patch).unwrap();
    let info = |number: &str| {
        json!({"labels": {"number": number}, "annotations": {"a": "b"}, "nodeSelector": {"pool": "spot"},
            "tolerations": [{"key": "spot"}], "schedulingGates": [{"name": "gate"}]})
    };
    assert_eq!(started["spec"]["suspend"], false);
    assert_eq!(started["spec"]["components"][0].get("podSetInfos"), None);
    assert_eq!(started["spec"]["components"][1]["podSetInfos"], json!([info("0")]));
    assert_eq!(started["spec"]["components"][2]["podSetInfos"], json!([info("1"), info("2")]));
    assert_eq!(started["spec"]["components"][3]["podSetInfos"], json!([info("3")]));
    // The templates are as they were, and so is what the Workload is held against.
    assert_eq!(observe(KIND, &started).pod_sets, view.pod_sets);
    let groups = pod_groups(KIND, &started);
    let spec = &groups[3].template["spec"];
    assert_eq!(
        (&spec["nodeSelector"], &spec["tolerations"]),
        (&json!({"pool": "spot"}), &json!([{"key": "spot"}]))
    );
    assert_eq!(groups[3].template["metadata"]["labels"], json!({"number": "3"}));
    let steps = stop(&observe(KIND, &started), &[]);
    assert_eq!(steps.len(), 1);
    let mut stopped = apply(&started, &steps[0].patch).unwrap();
    for one in [&mut stopped, &mut object] {
        prune(one);
        one["metadata"]["resourceVersion"] = Value::Null;
    }
    assert_eq!(stopped, object);
}

#[test]
fn what_contradicts_a_template_does_not_start() {
    let adds = |keys: &[(&str, &str)]| -> BTreeMap<String, String> {
        keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut template = pod("1");
    template["spec"]["nodeSelector"] = json!({"pool": "mine"});
    template["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload": "another"});
    let view = of(component("batch/v1", "Job", "x", json!({"template": template})));
    let with = |scheduling: PodScheduling, count: i32| {
        start(&view, &[PodSetInfo { name: "wrapper-0".to_owned(), count, scheduling }])
    };
    let selector = PodScheduling { node_selector: adds(&[("pool", "spot")]), ..PodScheduling::default() };
    assert!(matches!(with(selector, 1), Err(StartError::Conflict { field: "nodeSelector", .. })));
    let workload = adds(&[("kueue.x-k8s.io/workload", "w")]);
    let workload = PodScheduling { annotations: workload, ..PodScheduling::default() };
    assert!(matches!(with(workload, 1), Err(StartError::Conflict { field: "annotations", .. })));
    assert!(matches!(with(PodScheduling::default(), 2), Err(StartError::Count { .. })));
    assert!(matches!(start(&view, &[]), Err(StartError::PodSets { .. })));
    assert!(with(PodScheduling::default(), 1).is_ok());
}

/// Workloads that Kueue made have the containers as AppWrapper's own library reduces them.
#[test]
fn containers_are_kept_as_kueue_keeps_them() {
    let container = json!({"name": "c", "image": "i", "command": ["x"], "env": [{"name": "A", "value": "1"}],
        "ports": [{"containerPort": 80}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}});
    let spec = json!({"template": {"metadata": {"name": "n", "labels": {"l": "1"}}, "spec": {"containers": [container]}}});
    let view = of(component("batch/v1", "Job", "x", spec));
    let template = view.pod_sets[0].template.as_ref().unwrap();
    let kueues = json!([{"name": "c", "image": "i", "command": ["x"], "imagePullPolicy": "Always",
        "resources": {"requests": {"cpu": "1"}},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}]);
    assert_eq!(json!(template.spec.as_ref().unwrap().containers), kueues);
    assert_eq!(json!(template.metadata), json!({"labels": {"l": "1"}}));
}

#[test]
fn wrapped_templates_are_held_against_their_schema_but_for_pods() {
    let schemas = sluice_jobs::schemas(KIND, &wrapper());
    assert_eq!(schemas.len(), 4);
    assert!(
        schemas.iter().all(|(at, schema)| *schema == Schema::PodTemplate && wrapper().pointer(at).is_some())
    );
    let pod = with_components(json!([component("v1", "Pod", "x", pod("1")["spec"].clone())]));
    assert!(sluice_jobs::schemas(KIND, &pod).is_empty());
}

#[test]
fn how_long_it_took_is_known_of_one_that_succeeded() {
    let mut object = wrapper();
    let [since, at] =
        ["2026-01-02T04:00:00Z", "2026-01-02T05:00:00Z"].map(|text| text.parse::<Timestamp>().unwrap());
    object["status"] = sluice_jobs::status(KIND, &object, State::Running { since, ready: true });
    assert_eq!(sluice_jobs::ran(KIND, &object), None);
    object["status"] = sluice_jobs::status(KIND, &object, State::Ended { at, success: true });
    assert_eq!(sluice_jobs::ran(KIND, &object), Some((since, at)));
    object["status"] = sluice_jobs::status(KIND, &object, State::Ended { at, success: false });
    assert_eq!(sluice_jobs::ran(KIND, &object), None);
}

const PATHS: &[&str] = &[
    "",
    "/metadata",
    "/spec",
    "/spec/suspend",
    "/spec/components",
    "/spec/components/1",
    "/spec/components/1/template",
    "/spec/components/1/template/spec",
    "/spec/components/1/template/spec/parallelism",
    "/spec/components/1/template/spec/template",
    "/spec/components/2/template/spec/replicatedJobs",
    "/spec/components/2/template/spec/replicatedJobs/0",
    "/spec/components/3/podSets",
    "/spec/components/3/podSets/0/path",
    "/spec/components/3/podSets/0/replicas",
    "/spec/components/1/podSetInfos",
    "/status",
    "/status/conditions",
    "/status/componentStatus",
    "/status/componentStatus/0",
];

fn junk() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(i64::MAX),
        json!("x"),
        json!("template[99999999999999999999]"),
        json!("template.é[x"),
        json!([null, 1, {"type": 5}]),
        json!([{"labels": 5, "nodeSelector": [], "tolerations": {}}]),
        json!({}),
        json!({"spec": null, "replicas": -3}),
    ])
}

fn keys(prefix: &'static str) -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map((0..4_u8).prop_map(move |n| format!("{prefix}/{n}~")), "[ab]", 0..3)
}

proptest! {
    /// Also after an eviction from one flavor and a start in another: nothing of the first is left.
    #[test]
    fn a_second_start_adds_what_is_admitted_then_and_nothing_else(first in keys("old"), second in keys("new")) {
        let mut object = wrapper();
        prune(&mut object);
        let mut now = object.clone();
        for selector in [first, second] {
            let view = observe(KIND, &now);
            let adds = PodScheduling { node_selector: selector.clone(), ..PodScheduling::default() };
            now = apply(&now, &start(&view, &infos(&view, &adds)).unwrap()).unwrap();
            for group in pod_groups(KIND, &now) {
                let has = group.template["spec"].get("nodeSelector").cloned().unwrap_or(json!({}));
                prop_assert_eq!(has, json!(selector));
            }
            now = apply(&now, &stop(&observe(KIND, &now), &[])[0].patch).unwrap();
            prop_assert_eq!(&now["spec"], &object["spec"]);
        }
    }

    #[test]
    fn no_object_makes_it_panic(path in prop::sample::select(PATHS.to_vec()), value in junk()) {
        let mut object = wrapper();
        let one = json!({"podSets": [{"path": "template.spec.template", "replicas": 9}]});
        object["status"] = json!({"phase": "Running", "conditions": [], "componentStatus": [one, one, one, one]});
        if let Some(place) = object.pointer_mut(path) {
            *place = value;
        }
        let view = observe(KIND, &object);
        let _ = start(&view, &infos(&view, &PodScheduling::default()));
        let _ = stop(&view, &[]);
        let _ = (pod_groups(KIND, &object), sluice_jobs::schemas(KIND, &object), sluice_jobs::ran(KIND, &object));
        let at = Timestamp::UNIX_EPOCH;
        for state in [State::Idle, State::Running { since: at, ready: true }, State::Ended { at, success: true }] {
            let _ = sluice_jobs::status(KIND, &object, state);
        }
    }
}
