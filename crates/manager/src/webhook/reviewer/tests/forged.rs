//! Pods that a tenant makes to take the place of a Job's own.

use super::pods::{Bed, admit, of_job, owners, template};
use super::*;

const TENANT: &str = "system:serviceaccount:ns:tenant";
const JOB_CONTROLLER: &str = "system:serviceaccount:kube-system:job-controller";

/// Why a pod is refused, if it is.
fn refusal(bed: &Bed, user: &str, old: &Value, new: &Value) -> Option<String> {
    let (verb, operation) = if old.is_null() { ("mutate", "CREATE") } else { ("validate", "UPDATE") };
    let namespace = new["metadata"]["namespace"].clone();
    let review = json!({"request": {"uid": "u1", "operation": operation, "namespace": namespace, "object": new,
        "oldObject": old, "userInfo": {"username": user}}});
    let answer = bed.reviewers.review(&job_path(verb, JobKind::POD), review.to_string().as_bytes());
    let answer: Value = serde_json::from_slice(&answer.unwrap().unwrap()).unwrap();
    answer["response"]["status"]["message"].as_str().map(str::to_owned)
}

fn pod(labels: &Value, owners: &Value) -> Value {
    json!({"metadata": {"name": "forged", "namespace": "ns", "labels": labels, "ownerReferences": owners},
        "spec": template()["spec"]})
}

#[test]
fn only_the_job_controller_makes_pods_of_a_queued_job() {
    let bed = Bed::new();
    let none = Value::Null;
    let spec = json!({"spec": {"template": template()}});
    bed.see(JobKind::JOB, "own", "q", None, &spec);
    let own = owners(JobKind::JOB, "own");
    // Whether it waits or runs.
    for round in 0..2 {
        for forged in [pod(&of_job("own"), &own), pod(&of_job("own"), &none)] {
            let why = refusal(&bed, TENANT, &none, &forged).unwrap();
            assert!(
                why.starts_with("metadata: Forbidden: only the Job controller makes pods of the Job \"own\""),
                "{why}"
            );
            assert_eq!(refusal(&bed, JOB_CONTROLLER, &none, &forged), None, "{round}");
        }
        admit(&bed.facts, JobKind::JOB, "own", "own");
    }
    for others in [
        pod(&json!({}), &own),
        pod(&of_job("another"), &none),
        pod(&of_job("another"), &own),
        pod(&of_job("own"), &owners(JobKind::PYTORCH_JOB, "own")),
    ] {
        assert_eq!(refusal(&bed, TENANT, &none, &others), None, "it is queued like any other: {others}");
    }
    // One of a Job that was not seen yet.
    let unseen = pod(&of_job("new"), &owners(JobKind::JOB, "new"));
    assert!(refusal(&bed, TENANT, &none, &unseen).is_some());
    let mut elsewhere = pod(&of_job("own"), &own);
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    assert_eq!(refusal(&bed, TENANT, &none, &elsewhere), None, "pods are not queued there");
}

#[test]
fn a_pod_does_not_become_one_of_a_queued_job() {
    let bed = Bed::new();
    bed.see(JobKind::JOB, "own", "q", None, &json!({"spec": {"template": template()}}));
    let (old, new) = (pod(&json!({"a": "b"}), &Value::Null), pod(&of_job("own"), &Value::Null));
    assert!(refusal(&bed, TENANT, &old, &new).is_some());
    assert_eq!(refusal(&bed, TENANT, &new, &new), None, "it was one before");
    // Nor one that has all that a queued pod has.
    let marked = |labels: Value| {
        let mut pod = pod(&labels, &Value::Null);
        pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!("true");
        pod
    };
    assert!(refusal(&bed, TENANT, &marked(json!({})), &marked(of_job("own"))).is_some());
    assert_eq!(refusal(&bed, JOB_CONTROLLER, &old, &new), None);
}

#[test]
fn pods_of_jobs_that_are_not_queued_may_come_from_anyone() {
    let bed = Bed::new();
    let mut spec = json!({"spec": {"template": template()}});
    bed.see(JobKind::JOB, "own", "", None, &spec);
    let made = pod(&of_job("own"), &owners(JobKind::JOB, "own"));
    assert_eq!(refusal(&bed, TENANT, &Value::Null, &made), None, "it is queued by itself");
    spec["spec"]["managedBy"] = json!("example.com/jobs");
    bed.see(JobKind::JOB, "own", "q", None, &spec);
    assert_eq!(refusal(&bed, TENANT, &Value::Null, &made), None, "another controller makes its pods");
}

#[test]
fn comparing_a_pod_with_the_jobs_of_its_namespace_takes_no_memory_for_each() {
    let cost = |jobs: usize| {
        let bed = Bed::new();
        for number in 0..jobs {
            let spec = json!({"spec": {"template": template()}});
            bed.see(JobKind::JOB, &format!("job-{number}"), "q", None, &spec);
        }
        let pod = pod(&of_job("another"), &Value::Null);
        let mut why = None;
        let cost = allocation_counter::measure(|| why = refusal(&bed, TENANT, &Value::Null, &pod));
        assert_eq!(why, None, "it is queued like any other");
        cost.count_total
    };
    let (few, many) = (cost(10), cost(500));
    assert!(many < few + 50, "{few} and {many}");
}
