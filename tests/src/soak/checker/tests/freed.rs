//! Quota that is free while pods still use it.

use super::*;

#[test]
fn quota_that_is_free_while_pods_run_is_noticed() {
    let started = || History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]);
    let stopped = || {
        let mut runs = started().job(false, &[]);
        let object = runs.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
        object["status"]["active"] = json!(1);
        runs.pod("Running").workload(WORKLOAD, EVICTED, 1).job(true, &[])
    };
    let freed = stopped().workload(WORKLOAD, &["Evicted"], 1);
    assert_broken(freed, Rule::FreedTooEarly, "/registry/pods/ns/p");
    assert_broken(stopped().delete(WORKLOAD), Rule::FreedTooEarly, "/registry/pods/ns/p");
    assert_eq!(stopped().pod("Failed").workload(WORKLOAD, &["Evicted"], 1).broken(), []);
    // The answer to the stop is missing: what the controller says is from before the start.
    let unanswered = started().pod("Running").workload(WORKLOAD, EVICTED, 1).job(true, &["Suspended"]);
    assert_broken(unanswered.workload(WORKLOAD, &["Evicted"], 1), Rule::FreedTooEarly, "/registry/pods/ns/p");
    // A job at which its controller has never looked shows nothing: that is counted apart if an outage kept it from looking.
    let unseen = started().pod("Running").workload(WORKLOAD, EVICTED, 1).job(true, &[]);
    let unseen = unseen.workload(WORKLOAD, &["Evicted"], 1);
    let checker = unseen.beside("Replace ApiServer");
    assert_eq!((checker.violations().len(), checker.account().freed_unseen), (0, 1));
    assert_broken(unseen, Rule::FreedTooEarly, "no fault kept its job's controller from looking");
}

#[test]
fn the_pods_of_a_jobsets_jobs_are_its_own() {
    let set = |suspend: bool| {
        let metadata = json!({"uid": "j", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
        json!({"metadata": metadata, "spec": {"suspend": suspend}})
    };
    let mut resumed = set(false);
    resumed["status"]["conditions"] = json!([{"type": "Suspended", "status": "False"}]);
    let pod = json!({"metadata": {"ownerReferences": [{"uid": "c", "controller": true}]}, "status": {"phase": "Running"}});
    let child = json!({"metadata": {"uid": "c", "ownerReferences": [{"uid": "j", "controller": true}]}});
    let history = History::new()
        .put("/registry/jobset.x-k8s.io/jobsets/ns/s", set(true))
        .workload(WORKLOAD, ADMITTED, 1)
        .put("/registry/jobset.x-k8s.io/jobsets/ns/s", set(false))
        .put("/registry/jobset.x-k8s.io/jobsets/ns/s", resumed)
        .put(JOB, child)
        .put(POD, pod)
        .put("/registry/jobset.x-k8s.io/jobsets/ns/s", set(true))
        .workload(WORKLOAD, &["Evicted"], 1);
    assert_broken(history, Rule::FreedTooEarly, "/registry/pods/ns/p");
}

/// A Job that runs, and a pod of it.
fn running() -> History {
    let begun = History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]);
    begun.pod("Running")
}

#[test]
fn quota_of_a_deleted_job_that_is_free_before_its_pods_are_gone_is_noticed() {
    let freed = |history: History| {
        let mut broken = history.delete(WORKLOAD).broken();
        broken.retain(|(rule, _)| *rule == Rule::FreedTooEarly);
        broken.len()
    };
    let going = |history: History| {
        history.with(|job| job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"))
    };
    assert_eq!(freed(running().delete(JOB)), 1);
    assert_eq!(freed(going(running().job(false, &[]))), 1);
    let ends = running()
        .delete(JOB)
        .pod("Running")
        .with(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    assert_eq!(freed(ends), 1, "it uses its node until it has ended");
    for over in ["Failed", "Succeeded"] {
        assert_eq!(freed(running().delete(JOB).pod(over)), 0);
    }
    assert_eq!(freed(running().delete(JOB).delete(POD)), 0);
    let late = History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).job(false, &[]).delete(JOB);
    assert_eq!(freed(late.pod("Running")), 0, "its controller did not know yet");
    // It was stopped before its controller had looked at it, which is counted apart if an outage kept it from looking.
    let unseen = || running().workload(WORKLOAD, EVICTED, 1).job(true, &[]).delete(JOB);
    let beside = unseen().delete(WORKLOAD).beside("Freeze Etcd");
    let early = beside.violations().iter().filter(|one| one.rule == Rule::FreedTooEarly).count();
    assert_eq!((early, beside.account().freed_unseen), (0, 1));
    assert_eq!(freed(unseen()), 1);
}

#[test]
fn the_pods_of_a_deleted_jobsets_deleted_jobs_count_until_they_are_gone() {
    const SET: &str = "/registry/jobset.x-k8s.io/jobsets/ns/s";
    let set = json!({"metadata": {"uid": "j", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}, "spec": {"suspend": false}});
    let pod = json!({"metadata": {"ownerReferences": [{"uid": "c", "controller": true}]}, "status": {"phase": "Running"}});
    let child = json!({"metadata": {"uid": "c", "ownerReferences": [{"uid": "j", "controller": true}]}});
    let begun = || {
        let admitted = History::new().workload(WORKLOAD, ADMITTED, 1).put(SET, set.clone());
        admitted.put(JOB, child.clone()).put(POD, pod.clone()).delete(SET)
    };
    assert_broken(begun().delete(JOB).delete(WORKLOAD), Rule::FreedTooEarly, POD);
    assert_broken(begun().delete(WORKLOAD), Rule::FreedTooEarly, POD);
    let gone = begun().delete(JOB).delete(POD).delete(WORKLOAD).broken();
    assert!(gone.iter().all(|(rule, _)| *rule != Rule::FreedTooEarly), "{gone:?}");
}
