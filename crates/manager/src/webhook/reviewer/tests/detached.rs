//! Changes that detach a job or a pod from the job on whose quota it runs.

use super::pods::{Bed, admit, of_job, owners, template};
use super::*;

const TENANT: &str = "system:serviceaccount:ns:tenant";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
const JOB_CONTROLLER: &str = "system:serviceaccount:kube-system:job-controller";

/// Why a change is refused, if it is.
fn refusal(bed: &Bed, user: &str, kind: JobKind, old: &Value, new: &Value) -> Option<String> {
    let review = json!({"request": {"uid": "u1", "operation": "UPDATE", "namespace": "ns", "object": new,
        "oldObject": old, "userInfo": {"username": user}}});
    let path = job_path("validate", kind);
    let answer = bed.reviewers.review(&path, review.to_string().as_bytes()).unwrap().unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    answer["response"]["status"]["message"].as_str().map(str::to_owned)
}

/// A Job of the JobSet `own` that runs.
fn part() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template()}, "status": {"active": 1},
        "metadata": {"name": "own-main-0", "namespace": "ns", "uid": "own-main-0",
            "ownerReferences": owners(JobKind::JOB_SET, "own")}})
}

fn job_set(bed: &Bed, queue: &str) {
    let sets = json!([{"name": "main", "replicas": 1, "template": {"spec": {"template": template()}}}]);
    bed.see(JobKind::JOB_SET, "own", queue, None, &json!({"spec": {"replicatedJobs": sets}}));
}

/// The object with this in place of its owner references.
fn with_owners(object: &Value, owners: Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["ownerReferences"] = owners;
    object
}

#[test]
fn a_part_that_has_not_ended_stays_below_the_managed_job_that_made_it() {
    let bed = Bed::new();
    job_set(&bed, "q");
    let old = part();
    let mut no_controller = owners(JobKind::JOB_SET, "own");
    no_controller[0]["controller"] = json!(false);
    for owners in [Value::Null, json!([]), no_controller, owners(JobKind::JOB_SET, "another")] {
        let new = with_owners(&old, owners);
        let why = refusal(&bed, TENANT, JobKind::JOB, &old, &new).unwrap();
        let begin =
            "metadata.ownerReferences: Forbidden: it runs on the quota of its controller, the JobSet \"own\"";
        assert!(why.starts_with(begin), "{why}");
        assert_eq!(refusal(&bed, COLLECTOR, JobKind::JOB, &old, &new), None);
        assert!(refusal(&bed, JOB_CONTROLLER, JobKind::JOB, &old, &new).is_some());
    }
    // Whatever else changes.
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    new["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(false);
    assert_eq!(refusal(&bed, TENANT, JobKind::JOB, &old, &new), None);
}

#[test]
fn a_part_may_leave_what_holds_no_quota_for_it() {
    let old = part();
    let new = with_owners(&old, Value::Null);
    let bed = Bed::new();
    assert!(
        refusal(&bed, TENANT, JobKind::JOB, &old, &new).is_some(),
        "its JobSet may have been deleted just now"
    );
    job_set(&bed, "");
    assert_eq!(refusal(&bed, TENANT, JobKind::JOB, &old, &new), None, "it is not managed");
    job_set(&bed, "q");
    let with = |path: &str, value: Value| {
        let mut changed = [old.clone(), new.clone()];
        for object in &mut changed {
            let (parent, key) = path.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        refusal(&bed, TENANT, JobKind::JOB, &changed[0], &changed[1])
    };
    let ended = json!([{"type": "Complete", "status": "True"}]);
    assert_eq!(with("/status/conditions", ended), None, "it has ended");
    let goes = with("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    assert!(goes.is_some(), "its pods run on for as long as its user has said");
    let queued = json!({"kueue.x-k8s.io/queue-name": "q"});
    assert!(with("/metadata/labels", queued.clone()).is_some(), "it runs");
    assert!(with("/metadata/labels", json!({})).is_some());
    let mut waits = old.clone();
    waits["metadata"]["labels"] = queued;
    waits["spec"]["suspend"] = json!(true);
    let freed =
        |object: &Value| refusal(&bed, TENANT, JobKind::JOB, object, &with_owners(object, Value::Null));
    assert!(freed(&waits).is_some(), "its pods may run on");
    waits["status"] = json!({"active": 0, "terminating": 1});
    assert!(freed(&waits).is_some(), "its pod runs on for as long as its user has said");
    waits["status"] = json!({});
    assert_eq!(freed(&waits), None, "it is queued by itself then");
    // An owner of no kind of ours holds nothing.
    let mut cron = old.clone();
    cron["metadata"]["ownerReferences"][0]["apiVersion"] = json!("batch/v1");
    cron["metadata"]["ownerReferences"][0]["kind"] = json!("CronJob");
    assert_eq!(refusal(&bed, TENANT, JobKind::JOB, &cron, &new), None);
}

#[test]
fn a_pod_that_has_not_ended_keeps_what_its_job_finds_it_by() {
    let bed = Bed::new();
    bed.see(JobKind::JOB, "own", "q", None, &json!({"spec": {"template": template()}}));
    admit(&bed.facts, JobKind::JOB, "own", "own");
    let old = json!({"spec": template()["spec"], "status": {"phase": "Running"}, "metadata": {
        "name": "own-x", "namespace": "ns", "labels": of_job("own"),
        "ownerReferences": owners(JobKind::JOB, "own")}});
    let changed = |path: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(path).unwrap() = value;
        new
    };
    let relabelled = changed("/metadata/labels", of_job("another"));
    for new in [
        with_owners(&old, Value::Null),
        with_owners(&old, owners(JobKind::JOB, "another")),
        changed("/metadata/labels", json!({})),
        relabelled.clone(),
    ] {
        let why = refusal(&bed, TENANT, JobKind::POD, &old, &new).unwrap();
        assert!(why.contains("it runs on the quota of its controller, the Job \"own\""), "{why}");
        assert_eq!(refusal(&bed, COLLECTOR, JobKind::POD, &old, &new), None);
        assert_eq!(refusal(&bed, JOB_CONTROLLER, JobKind::POD, &old, &new), None, "it lets pods go");
    }
    // Until its grace period is over, which its user sets, it runs, and the Job has made another one.
    let mut leaves = old.clone();
    leaves["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut unlabelled = leaves.clone();
    unlabelled["metadata"]["labels"] = json!({});
    for new in [with_owners(&leaves, Value::Null), unlabelled] {
        assert!(refusal(&bed, TENANT, JobKind::POD, &leaves, &new).is_some());
        assert_eq!(refusal(&bed, COLLECTOR, JobKind::POD, &leaves, &new), None);
    }
    let mut unfinalized = leaves.clone();
    unfinalized["metadata"]["finalizers"] = json!([]);
    assert_eq!(refusal(&bed, TENANT, JobKind::POD, &leaves, &unfinalized), None);
    let mut ended = old.clone();
    ended["status"]["phase"] = json!("Succeeded");
    assert_eq!(refusal(&bed, TENANT, JobKind::POD, &ended, &with_owners(&ended, Value::Null)), None);
    let mut queued = old.clone();
    queued["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!("true");
    let freed = with_owners(&queued, Value::Null);
    assert!(
        refusal(&bed, TENANT, JobKind::POD, &queued, &freed).is_some(),
        "it runs on the quota of the Job"
    );
    queued["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
    assert_eq!(refusal(&bed, TENANT, JobKind::POD, &queued, &with_owners(&queued, Value::Null)), None);
    // What never was one of the job's may get other labels.
    assert_eq!(
        refusal(&bed, TENANT, JobKind::POD, &relabelled, &changed("/metadata/labels", json!({}))),
        None
    );
    let mut more = of_job("own");
    more["a"] = json!("b");
    assert_eq!(refusal(&bed, TENANT, JobKind::POD, &old, &changed("/metadata/labels", more)), None);
}
