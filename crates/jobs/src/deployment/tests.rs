//! Deployments: their marks and their queue.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::webhook::Operation;

use crate::testing::World;
use crate::testing::serving::{changed, deployment};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

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
