//! Kinds whose pods wait for admission in their place.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::webhook::{Operation, PodSelectors, mutate, mutate_plain_pod, validate_plain_pod};
use sluice_jobs::{Patch, observe};

use crate::testing::{World, apply};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

pub fn deployment(labels: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a", "uid": "u1", "resourceVersion": "3", "labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
            },
        },
    })
}

fn changed(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

#[test]
fn the_template_of_a_queued_deployment_marks_its_pods() {
    let (world, kind) = (World::default(), JobKind::DEPLOYMENT);
    let made = world.written(kind, Operation::Create, &deployment(&json!({QUEUE: "lq", CLASS: "high"})));
    let metadata = &made["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"], json!({"app": "web", MANAGED: "true", QUEUE: "lq", CLASS: "high"}));
    assert_eq!(metadata["annotations"], json!({PARENT: "deployment"}));
    assert_eq!(world.written(kind, Operation::Update, &made)["spec"], made["spec"], "nothing is left to do");
    // The marks cannot be taken off.
    let mut bare = deployment(&json!({QUEUE: "other"}));
    bare["spec"]["template"].as_object_mut().unwrap().remove("metadata");
    let back = world.written(kind, Operation::Update, &bare);
    assert_eq!(back["spec"]["template"]["metadata"]["labels"], json!({MANAGED: "true", QUEUE: "other"}));
    assert_eq!(back["spec"]["template"]["metadata"]["annotations"], json!({PARENT: "deployment"}));
    // The older annotation is a queue name, too.
    let mut old = deployment(&json!({}));
    old["metadata"]["annotations"] = json!({QUEUE: "lq"});
    let made = world.written(kind, Operation::Create, &old);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"][QUEUE], "lq");
}

#[test]
fn only_what_is_managed_is_marked() {
    let kind = JobKind::DEPLOYMENT;
    let plain = deployment(&json!({}));
    let marked = |world: &World, operation| {
        let made = world.written(kind, operation, &plain);
        made["spec"]["template"]["metadata"]["annotations"][PARENT].is_string()
    };
    assert!(!marked(&World::default(), Operation::Create));
    let all = || World { manage_all: true, ..World::default() };
    assert!(marked(&all(), Operation::Create) && marked(&all(), Operation::Update));
    assert!(!marked(&World { system: true, ..all() }, Operation::Create));
    assert!(!marked(&World { managed_owner: true, ..all() }, Operation::Create));
    let defaults = World { default_local_queue: true, default_priority_class: true, ..World::default() };
    assert!(marked(&defaults, Operation::Create));
    assert!(!marked(&defaults, Operation::Update), "one that runs unqueued can still be changed");
    let made = defaults.written(kind, Operation::Create, &plain);
    assert_eq!(made["metadata"]["labels"], json!({QUEUE: "default", CLASS: "default"}));
    assert_eq!(made["spec"]["template"]["metadata"]["labels"][QUEUE], "default");
    let mut leaving = deployment(&json!({QUEUE: "lq"}));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let kept = World::default().written(kind, Operation::Update, &leaving);
    assert_eq!(kept["spec"], leaving["spec"]);
}

#[test]
fn the_queue_of_a_deployment_is_fixed_once_a_replica_is_ready() {
    let (world, kind) = (World::default(), JobKind::DEPLOYMENT);
    let queued = deployment(&json!({QUEUE: "lq"}));
    let other = changed(&queued, "/metadata/labels", json!({QUEUE: "other"}));
    let none = changed(&queued, "/metadata/labels", json!({}));
    assert_eq!(world.refusals(kind, &queued, None), "");
    assert_eq!(world.refusals(kind, &other, Some(&queued)), "");
    assert!(world.refusals(kind, &none, Some(&queued)).contains("field is immutable"));
    let ready = |object: &Value| {
        let mut object = object.clone();
        object["status"] = json!({"readyReplicas": 1});
        object
    };
    for (old, new) in [(&queued, &other), (&queued, &none), (&none, &queued)] {
        let said = world.refusals(kind, &ready(new), Some(&ready(old)));
        assert_eq!(said.matches("field is immutable").count(), 1, "{said}");
        assert!(said.contains("metadata.labels[kueue.x-k8s.io/queue-name]"), "{said}");
    }
    let scaled = changed(&ready(&queued), "/spec/replicas", json!(30));
    assert_eq!(world.refusals(kind, &scaled, Some(&ready(&queued))), "");
    let bad = world.refusals(kind, &deployment(&json!({QUEUE: "A_b"})), None);
    assert!(bad.contains("A_b"), "{bad}");
    let classed = deployment(&json!({QUEUE: "lq", CLASS: "high"}));
    assert!(world.refusals(kind, &queued, Some(&classed)).contains("cannot be removed"));
}

/// A pod as its ReplicaSet makes it.
fn replica(labels: &Value, parent: Option<&str>) -> Value {
    let annotations = parent.map(|parent| json!({PARENT: parent}));
    json!({
        "metadata": {"name": "web-1", "namespace": "team-a", "resourceVersion": "1", "labels": labels,
            "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

fn made(world: &World, pod: &Value, implied: bool) -> Value {
    let selectors = PodSelectors { implied, ..PodSelectors::default() };
    apply(pod, &world.with(|context| mutate_plain_pod(pod, context, &selectors))).unwrap()
}

#[test]
fn a_pod_that_says_its_parent_suspends_it_waits_whoever_wrote_that() {
    let gated = |pod: &Value| pod["spec"]["schedulingGates"][0]["name"] == "kueue.x-k8s.io/admission";
    for world in [World::default(), World { system: true, ..World::default() }] {
        for implied in [true, false] {
            // With the marks of a template, and forged without any.
            for labels in
                [json!({QUEUE: "lq", MANAGED: "true"}), json!({QUEUE: "lq"}), json!({}), json!(null)]
            {
                for parent in ["deployment", "statefulset", "made-up", ""] {
                    let pod = made(&world, &replica(&labels, Some(parent)), implied);
                    assert!(gated(&pod), "{pod}");
                    assert_eq!(pod["metadata"]["labels"][MANAGED], "true", "it is seen: {pod}");
                    assert!(pod["metadata"]["finalizers"].is_null(), "its parent makes another: {pod}");
                }
            }
        }
    }
    // Pods that nothing suspends are looked after only where their own kind is listed.
    let plain = replica(&json!({QUEUE: "lq"}), None);
    assert!(gated(&made(&World::default(), &plain, false)));
    assert!(!gated(&made(&World::default(), &plain, true)));
}

#[test]
fn what_suspends_a_pod_does_so_until_it_has_ended() {
    let world = World::default();
    let said = |old: &Value, new: &Value| {
        world.with(|context| match validate_plain_pod(new, Some(old), context) {
            Ok(()) => String::new(),
            Err(denied) => denied.to_string(),
        })
    };
    let labels = json!({QUEUE: "lq", MANAGED: "true"});
    let [plain, ours, other] =
        [None, Some("deployment"), Some("statefulset")].map(|parent| replica(&labels, parent));
    for (old, new) in [(&ours, &plain), (&plain, &ours), (&ours, &other)] {
        assert!(said(old, new).contains("metadata.annotations[kueue.x-k8s.io/pod-suspending-parent]"));
        let mut ended = new.clone();
        ended["status"] = json!({"phase": "Succeeded"});
        assert_eq!(said(old, &ended), "");
    }
    assert_eq!(said(&ours, &ours), "");
}

fn stateful_set(replicas: i32) -> Value {
    let mut object = deployment(&json!({QUEUE: "lq"}));
    object["kind"] = json!("StatefulSet");
    object["spec"]["replicas"] = json!(replicas);
    object
}

#[test]
fn the_template_of_a_stateful_set_makes_its_pods_one_group() {
    let kind = JobKind::STATEFUL_SET;
    let made = World::default().written(kind, Operation::Create, &stateful_set(3));
    assert_eq!(
        made["spec"]["template"]["metadata"]["annotations"],
        json!({
            PARENT: "statefulset",
            "kueue.x-k8s.io/pod-group-fast-admission": "true",
            "kueue.x-k8s.io/pod-group-serving": "true",
            "kueue.x-k8s.io/pod-group-total-count": "3",
            "kueue.x-k8s.io/pod-group-pod-index-label": "apps.kubernetes.io/pod-index",
            "kueue.x-k8s.io/role-hash": "main",
        })
    );
    // Scaled to zero, nothing is rolled out; scaled up, the number follows.
    let none = World::default().written(kind, Operation::Update, &changed(&made, "/spec/replicas", json!(0)));
    assert_eq!(none["spec"]["template"], made["spec"]["template"]);
    let two = World::default().written(kind, Operation::Update, &changed(&none, "/spec/replicas", json!(2)));
    let annotations = &two["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["kueue.x-k8s.io/pod-group-total-count"], "2");
    let view = observe(kind, &made);
    assert_eq!((&*view.pod_sets[0].name, view.pod_sets[0].count, view.on_hold), ("main", 3, Some(false)));
    assert!(view.pod_sets[0].template.as_ref().unwrap().metadata.is_none());
    assert_eq!(observe(kind, &none).on_hold, Some(true));
}

#[test]
fn what_the_quota_of_a_stateful_set_is_for_changes_only_without_replicas() {
    let (world, kind) = (World::default(), JobKind::STATEFUL_SET);
    let made = |replicas| world.written(kind, Operation::Create, &stateful_set(replicas));
    let (none, two, three) = (made(0), made(2), made(3));
    for (old, new) in [(&two, &none), (&none, &three), (&two, &two)] {
        assert_eq!(world.refusals(kind, new, Some(old)), "");
    }
    for (old, new) in [(&two, &three), (&three, &two)] {
        assert!(world.refusals(kind, new, Some(old)).contains("spec.replicas: Invalid value"));
    }
    let mut leaving = two.clone();
    leaving["status"] = json!({"replicas": 1});
    assert!(world.refusals(kind, &leaving, Some(&none)).contains("scaling down is still in progress"));
    let container = "/spec/template/spec/containers/0";
    let image = changed(&two, &format!("{container}/image"), json!("newer"));
    assert_eq!(world.refusals(kind, &image, Some(&two)), "");
    let larger = changed(&two, &format!("{container}/resources/requests/cpu"), json!("2"));
    assert!(world.refusals(kind, &larger, Some(&two)).contains("spec.template.spec: Forbidden"));
    let larger = changed(&none, &format!("{container}/resources/requests/cpu"), json!("2"));
    assert_eq!(world.refusals(kind, &larger, Some(&none)), "");
    // What is not queued may change in any way.
    let plain = |replicas| changed(&stateful_set(replicas), "/metadata/labels", json!({}));
    assert_eq!(world.refusals(kind, &plain(3), Some(&plain(2))), "");
}

#[test]
fn a_pod_of_a_stateful_set_is_named_after_its_workload_and_no_other_is() {
    let owner = |kind: &str, controller: bool| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u1", "controller": controller}]);
    let group = "kueue.x-k8s.io/pod-group-name";
    let with = |parent: &str, owners: Value| {
        let mut pod = replica(&json!({QUEUE: "lq"}), Some(parent));
        pod["metadata"]["ownerReferences"] = owners;
        pod["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] = json!("main");
        made(&World::default(), &pod, false)["metadata"]["annotations"].clone()
    };
    let annotations = with("statefulset", owner("StatefulSet", true));
    let name = annotations[group].as_str().unwrap();
    assert!(name.starts_with("statefulset-web-"), "{name}");
    assert_eq!(annotations["kueue.x-k8s.io/prebuilt-workload-name"], name);
    assert_eq!(annotations["kueue.x-k8s.io/role-hash"], "main");
    for (parent, owners) in [
        ("statefulset", json!(null)),
        ("statefulset", json!([])),
        ("statefulset", json!("x")),
        ("statefulset", owner("StatefulSet", false)),
        ("statefulset", owner("ReplicaSet", true)),
        ("deployment", owner("StatefulSet", true)),
        ("pod", owner("StatefulSet", true)),
    ] {
        assert!(with(parent, owners.clone())[group].is_null(), "{parent} {owners}");
    }
}

#[test]
fn no_object_makes_a_serving_kind_panic() {
    for kind in [JobKind::DEPLOYMENT, JobKind::STATEFUL_SET] {
        odd_objects(kind);
    }
}

fn odd_objects(kind: JobKind) {
    let world = World::default();
    let queued = world.written(kind, Operation::Create, &deployment(&json!({QUEUE: "lq"})));
    let places = [
        "/metadata/labels",
        "/spec/replicas",
        "/spec/template",
        "/spec/template/metadata",
        "/spec/template/metadata/annotations",
        "/spec/template/spec",
        "/spec",
    ];
    for place in places {
        for value in [Value::Null, json!(true), json!(-1), json!("x"), json!([null, 1]), json!({"labels": 1})]
        {
            let odd = changed(&queued, place, value);
            let view = observe(kind, &odd);
            let _ = (sluice_jobs::start(&view, &[]), sluice_jobs::stop(&view, &[]));
            for operation in [Operation::Create, Operation::Update] {
                let patch = world.with(|context| mutate(kind, operation, &odd, context));
                assert!(matches!(patch, Patch::Json(_)), "a webhook takes JSON patches");
            }
            let _ = (world.refusals(kind, &odd, Some(&queued)), world.refusals(kind, &queued, Some(&odd)));
        }
    }
}
