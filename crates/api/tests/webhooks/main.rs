//! The admission webhooks, through their dispatcher: for each rule an accepted object and a refused one, with the refusal as a snapshot; then the
//! defaults of the mutating webhooks.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::needless_pass_by_value, reason = "cases are written where they are passed")]

mod queues;
mod table;
mod workload;

use queues::quota;
use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::webhooks::{AdmissionReview, WEBHOOKS, review};
use table::ask;
use workload::{pod_set, pod_sets};

#[test]
fn an_object_that_cannot_be_read_is_a_bad_request() {
    let path = "/validate-kueue-x-k8s-io-v1beta2-workload";
    let response = ask(path, "CREATE", json!({"spec": {"podSets": 1}}), None, Gates::default());
    let status = response.status.unwrap();
    assert!(!response.allowed);
    assert_eq!(status.code, 400);
    assert!(status.message.starts_with("cannot read the object: "), "{}", status.message);
    let empty = review(path, AdmissionReview::default(), Gates::default()).unwrap().response.unwrap();
    assert_eq!((empty.allowed, empty.status.unwrap().code), (false, 400));
}

#[test]
fn other_paths_are_not_ours() {
    assert!(review("/mutate-batch-v1-job", AdmissionReview::default(), Gates::default()).is_none());
}

fn patch(path: &str, operation: &str, object: Value, gates: Gates) -> Value {
    let response = ask(path, operation, object, None, gates);
    assert!(response.allowed);
    match response.patch {
        Some(bytes) => {
            assert_eq!(response.patch_type.as_deref(), Some("JSONPatch"));
            serde_json::from_slice(&bytes.0).unwrap()
        }
        None => json!([]),
    }
}

#[test]
fn the_finalizer_is_added_on_creation() {
    for kind in ["clusterqueue", "resourceflavor"] {
        let path = format!("/mutate-kueue-x-k8s-io-v1beta2-{kind}");
        let ask = |operation, metadata: Value| {
            patch(&path, operation, json!({"metadata": metadata}), Gates::default())
        };
        let ours = "kueue.x-k8s.io/resource-in-use";
        assert_eq!(
            ask("CREATE", json!({})),
            json!([{"op": "add", "path": "/metadata/finalizers", "value": [ours]}])
        );
        assert_eq!(
            ask("CREATE", json!({"finalizers": ["x"]})),
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": ours}])
        );
        assert_eq!(ask("CREATE", json!({"finalizers": [ours]})), json!([]));
        assert_eq!(ask("UPDATE", json!({})), json!([]), "it must be possible to take it away");
    }
}

#[test]
fn covered_resources_are_filled_in() {
    let spec = json!({"spec": {"resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": [quota("cpu", "1")]}]},
        {"flavors": [
            {"name": "b", "resources": [quota("google.com/tpu", "1"), quota("memory", "1")]},
            {"name": "c", "resources": [quota("google.com/tpu", "1"), quota("memory", "1")]},
        ]},
    ]}});
    let filled = json!([{
        "op": "add", "path": "/spec/resourceGroups/1/coveredResources", "value": ["google.com/tpu", "memory"],
    }]);
    for operation in ["CREATE", "UPDATE"] {
        let cohort =
            patch("/mutate-kueue-x-k8s-io-v1beta2-cohort", operation, spec.clone(), Gates::default());
        assert_eq!(cohort, filled);
    }
    let path = "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue";
    assert_eq!(patch(path, "UPDATE", spec.clone(), Gates::default()), filled);
    assert_eq!(patch(path, "CREATE", spec, Gates::default())[1], filled[0]);
    let odd =
        json!({"spec": {"resourceGroups": [1, {"flavors": 2}, {"flavors": [{"resources": [{"name": 3}]}]}]}});
    assert_eq!(patch(path, "UPDATE", odd, Gates::default()), json!([]));
}

#[test]
fn min_count_goes_away_without_partial_admission() {
    let path = "/mutate-kueue-x-k8s-io-v1beta2-workload";
    let spec = pod_sets(vec![pod_set("a", json!({})), pod_set("b", json!({"minCount": 1}))]);
    assert_eq!(patch(path, "CREATE", spec.clone(), Gates::default()), json!([]));
    let off = Gates::default().with(Gate::PartialAdmission, false);
    assert_eq!(
        patch(path, "CREATE", spec, off),
        json!([{"op": "remove", "path": "/spec/podSets/1/minCount"}])
    );
}

#[test]
fn registrations_are_those_of_the_reference() {
    let lines: Vec<String> = WEBHOOKS
        .iter()
        .map(|w| format!("{} {} {} {}", w.name, w.path, w.operations.join(","), w.resources.join(",")))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
