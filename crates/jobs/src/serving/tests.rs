//! Kinds whose pods wait for admission themselves.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::webhook::{Operation, mutate, validate_plain_pod};
use sluice_jobs::{Patch, observe};

use crate::testing::World;
use crate::testing::serving::{changed, deployment, made, replica};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";

#[test]
fn a_pod_that_says_its_parent_suspends_it_waits_if_a_user_wrote_that_too() {
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
