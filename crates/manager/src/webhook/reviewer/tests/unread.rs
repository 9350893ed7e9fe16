//! Reviews that are not decoded, where the API server would admit a job that should be queued.

use super::pods::{Bed, owners, template};
use super::*;
use crate::webhook::bounds::Refusal;

/// The code with which a write is refused that is not reviewed, if it is.
fn refused(bed: &Bed, kind: JobKind, [old, new]: [&Value; 2], why: Refusal) -> Option<u64> {
    let (verb, operation) = if old.is_null() { ("mutate", "CREATE") } else { ("validate", "UPDATE") };
    let namespace = new["metadata"]["namespace"].clone();
    let review = json!({"request": {"uid": "u1", "operation": operation, "namespace": namespace, "object": new,
        "oldObject": old, "userInfo": {"username": "me"}}});
    let path = job_path(verb, kind);
    assert!(bed.reviewers.reads_heads(&path));
    let answer = bed.reviewers.turned_away(&path, review.to_string().as_bytes(), why)?;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["uid"], "u1");
    assert_eq!(answer["response"]["allowed"], false);
    answer["response"]["status"]["code"].as_u64()
}

fn object(kind: JobKind, namespace: &str, labels: &Value, owners: &Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "spec": {"template": template()},
        "metadata": {"name": "own-main-0", "namespace": namespace, "labels": labels, "ownerReferences": owners}})
}

#[test]
fn what_is_to_be_queued_is_not_let_in_without_a_review() {
    let bed = Bed::new();
    let none = Value::Null;
    for kind in [JobKind::JOB, JobKind::JOB_SET, JobKind::POD] {
        let made = |namespace: &str, labels: Value, why: Refusal| {
            refused(&bed, kind, [&none, &object(kind, namespace, &labels, &none)], why)
        };
        for (why, code) in [
            (Refusal::TooLong, 413),
            (Refusal::TooMany, 413),
            (Refusal::Busy, 429),
            (Refusal::Unreadable, 400),
            (Refusal::Failed, 500),
        ] {
            assert_eq!(made("ns", json!({}), why), Some(code), "{why}");
            assert_eq!(made("elsewhere", json!({}), why), None, "no queue is there by default");
        }
        assert_eq!(made("ns", json!({}), Refusal::Incomplete), None, "it was not posted");
    }
    let kind = JobKind::STATEFUL_SET;
    let answer = refused(&bed, kind, [&none, &object(kind, "ns", &none, &none)], Refusal::TooLong);
    assert_eq!(answer, None, "the kind is not queued");
}

#[test]
fn what_belongs_to_a_managed_job_is_let_in_and_stays_there() {
    let bed = Bed::new();
    let sets = json!([{"name": "main", "replicas": 1, "template": {"spec": {"template": template()}}}]);
    bed.see(JobKind::JOB_SET, "own", "q", None, &json!({"spec": {"replicatedJobs": sets}}));
    let part = object(JobKind::JOB, "ns", &Value::Null, &owners(JobKind::JOB_SET, "own"));
    let code = |objects| refused(&bed, JobKind::JOB, objects, Refusal::TooLong);
    assert_eq!(code([&Value::Null, &part]), None);
    assert_eq!(code([&part, &part]), None);
    let detached = object(JobKind::JOB, "ns", &Value::Null, &Value::Null);
    assert_eq!(code([&part, &detached]), Some(413));
    assert_eq!(code([&detached, &detached]), None);
}

/// Its pod webhook has a wish to add, which is no reason to keep a pod of an admitted job away.
#[test]
fn a_pod_with_a_wish_for_nodes_is_let_in_without_it() {
    let bed = Bed::new();
    let wish = json!({"sluice.dev/node-affinity": json!({"restarts": 0, "nodeAffinity": {}}).to_string()});
    let made = |namespace: &str| {
        let mut pod = object(JobKind::POD, namespace, &json!({}), &Value::Null);
        pod["metadata"]["annotations"] = wish.clone();
        refused(&bed, JobKind::POD, [&Value::Null, &pod], Refusal::Busy)
    };
    assert_eq!(made("elsewhere"), None);
    assert_eq!(made("ns"), Some(429), "it is to be queued");
}

#[test]
fn owners_that_are_too_many_to_be_read_stay_as_they_are() {
    let bed = Bed::new();
    let sets = json!([{"name": "main", "replicas": 1, "template": {"spec": {"template": template()}}}]);
    bed.see(JobKind::JOB_SET, "own", "q", None, &json!({"spec": {"replicatedJobs": sets}}));
    let many = |controller: &Value| {
        let other = |at: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x".repeat(200), "uid": at.to_string()});
        let others: Vec<_> =
            (0..400).map(other).chain(controller.as_array().into_iter().flatten().cloned()).collect();
        json!(others)
    };
    let part = |owners: &Value| object(JobKind::JOB, "ns", &Value::Null, owners);
    let few = owners(JobKind::JOB_SET, "own");
    let (below, taken) = (part(&many(&few)), part(&many(&Value::Null)));
    let code = |objects| refused(&bed, JobKind::JOB, objects, Refusal::Busy);
    assert_eq!(code([&below, &below]), None, "nothing is taken away");
    let (alone, small) = (part(&Value::Null), part(&few));
    for [old, new] in [[&below, &taken], [&below, &alone], [&small, &taken]] {
        assert_eq!(code([old, new]), Some(429));
    }
    let mut leaving = [below.clone(), taken.clone()];
    for object in &mut leaving {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    assert_eq!(code([&leaving[0], &leaving[1]]), Some(429), "its pods may run on");
}

/// It was a part of a job that is gone, or is older than the default queue.
#[test]
fn a_job_without_a_queue_is_not_resumed_without_a_review() {
    let bed = Bed::new();
    let sets = json!([{"name": "main", "replicas": 1, "template": {"spec": {"template": template()}}}]);
    bed.see(JobKind::JOB_SET, "own", "q", None, &json!({"spec": {"replicatedJobs": sets}}));
    let at = |namespace: &str, owners: &Value, suspended: bool| {
        let mut job = object(JobKind::JOB, namespace, &Value::Null, owners);
        job["spec"]["suspend"] = json!(suspended);
        job
    };
    let (none, own) = (Value::Null, owners(JobKind::JOB_SET, "own"));
    for (why, code) in [(Refusal::TooMany, 413), (Refusal::Busy, 429)] {
        let resumed = |namespace: &str, owners: &Value| {
            let objects = [true, false].map(|suspended| at(namespace, owners, suspended));
            refused(&bed, JobKind::JOB, objects.each_ref(), why)
        };
        assert_eq!(resumed("ns", &none), Some(code));
        assert_eq!(resumed("elsewhere", &none), None, "no queue is there by default");
        assert_eq!(resumed("ns", &own), None, "its job resumes it");
        // Nothing else is refused.
        let waits = at("ns", &none, true);
        let mut labelled = waits.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(refused(&bed, JobKind::JOB, [&waits, &labelled], why), None, "its spec stays the same");
        let mut leaving = [true, false].map(|suspended| at("ns", &none, suspended));
        for job in &mut leaving {
            job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        assert_eq!(refused(&bed, JobKind::JOB, leaving.each_ref(), why), None, "it is being deleted");
    }
}

/// The metadata says enough, and the API server writes the new object first.
#[test]
fn a_job_whose_spec_breaks_off_may_be_resumed() {
    let bed = Bed::new();
    let job = |spec: &str| {
        let metadata = json!({"name": "a", "namespace": "ns"});
        format!("{{\"metadata\":{metadata},\"spec\":{{{spec}}}}}")
    };
    let head = json!({"uid": "u1", "operation": "UPDATE", "namespace": "ns", "userInfo": {"username": "me"}});
    let head = head.to_string();
    let spec = "\"suspend\":true,\"parallelism\":1";
    let review = format!(
        "{{\"request\":{},\"object\":{},\"oldObject\":{}",
        &head[..head.len() - 1],
        job(spec),
        job(spec)
    );
    let path = job_path("validate", JobKind::JOB);
    let answered = |review: &str| bed.reviewers.turned_away(&path, review.as_bytes(), Refusal::Busy);
    assert!(answered(&review).is_none());
    assert!(answered(&review[..review.len() - 8]).is_some());
}
