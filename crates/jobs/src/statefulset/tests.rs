//! StatefulSets: each is one group of pods.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::observe;
use sluice_jobs::webhook::Operation;

use crate::testing::World;
use crate::testing::serving::{changed, deployment, made, replica};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

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
fn pods_that_are_counted_from_another_number_say_so() {
    let kind = JobKind::STATEFUL_SET;
    let mut object = stateful_set(3);
    object["spec"]["ordinals"] = json!({"start": 2});
    let offset = |object: &Value| {
        let annotations = &object["spec"]["template"]["metadata"]["annotations"];
        annotations["kueue.x-k8s.io/pod-index-offset"].as_str().map(str::to_owned)
    };
    let made = World::default().written(kind, Operation::Create, &object);
    assert_eq!(offset(&made).as_deref(), Some("2"));
    let pod = sluice_jobs::made_pod(kind, &made, 0).unwrap();
    assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "2");
    for start in [json!(0), Value::Null] {
        object["spec"]["ordinals"]["start"] = start;
        assert_eq!(offset(&World::default().written(kind, Operation::Create, &object)), None);
    }
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
    // A limit counts where there is no request.
    let limited = |limits: Value| {
        let resources = json!({"requests": {"cpu": "1"}, "limits": limits});
        changed(&two, &format!("{container}/resources"), resources)
    };
    let gpus = limited(json!({"example.com/gpu": "1"}));
    assert!(world.refusals(kind, &gpus, Some(&two)).contains("spec.template.spec: Forbidden"));
    assert_eq!(world.refusals(kind, &limited(json!({"cpu": "8"})), Some(&two)), "");
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
