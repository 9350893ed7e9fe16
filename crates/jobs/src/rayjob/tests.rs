//! RayJobs: what is read of each state, how they start and stop.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::{Step, observe, start, stop};

use crate::testing::ray::{additions, originals, ray, template, with_status};
use crate::testing::{apply, pruned};

const SUBMITTER: &str = "/spec/submitterPodTemplate";

#[test]
fn the_states_of_a_rayjob() {
    let of = |state: &str, more: Value| {
        let mut status = more;
        status["jobDeploymentStatus"] = json!(state);
        with_status(JobKind::RAY_JOB, status)
    };
    for state in ["", "Suspended"] {
        assert!(!of(state, json!({})).active, "{state:?}");
    }
    for state in ["Initializing", "Running", "Suspending", "Retrying"] {
        let view = of(state, json!({"rayClusterStatus": {"state": "ready"}}));
        assert!(view.active && view.pods_ready && view.suspended && view.finished.is_none(), "{state}");
    }
    let complete = of("Complete", json!({"jobStatus": "SUCCEEDED", "message": "done"}));
    let finished = complete.finished.unwrap();
    assert!(finished.success && finished.message == "done" && !complete.active);
    assert!(!of("Complete", json!({"jobStatus": "STOPPED"})).finished.unwrap().success);
    assert!(
        !of("Failed", json!({"jobStatus": "RUNNING", "reason": "DeadlineExceeded"}))
            .finished
            .unwrap()
            .success
    );
    let refused = of("ValidationFailed", json!({}));
    assert!(refused.on_hold == Some(true) && !refused.active && refused.finished.is_none());
    assert_eq!(of("Running", json!({})).on_hold, Some(false));
}

#[test]
fn a_rayjob_that_waits_for_its_user_is_not_stopped_until_its_status_says_so() {
    let kind = JobKind::RAY_JOB;
    let mut object = ray(kind);
    object["spec"]["submissionMode"] = json!("InteractiveMode");
    object["spec"]["suspend"] = json!(false);
    object["status"] = json!({"jobDeploymentStatus": "Waiting"});
    let view = observe(kind, &object);
    assert!(!view.suspended && !view.stopping && view.active);
    let steps = stop(&view, &originals(&view));
    assert_eq!(steps.len(), 1, "the status is changed once the stop is seen");
    let stopped = apply(&object, &steps[0].patch).unwrap();
    assert_eq!(stopped["spec"]["suspend"], true);
    let view = observe(kind, &stopped);
    assert!(view.stopping && !view.suspended && view.active, "KubeRay lets it run");
    assert_eq!(crate::suspend(&view).subresource, Some("status"), "to suspend it ends its stop");
    let steps = stop(&view, &originals(&view));
    let Step { subresource, patch } = &steps[1];
    assert_eq!((steps.len(), *subresource), (2, Some("status")));
    let reported = apply(&stopped, patch);
    let mut reported = reported.unwrap_or_else(|_| apply(&stopped, &patch.clone().pinned("8")).unwrap());
    assert_eq!(reported["status"]["jobDeploymentStatus"], "Suspending");
    assert!(observe(kind, &reported).suspended && observe(kind, &reported).active);
    reported["status"]["jobDeploymentStatus"] = json!("Suspended");
    assert!(observe(kind, &reported).suspended && !observe(kind, &reported).active);
}

#[test]
fn what_cannot_be_queued_says_why() {
    let why = |change: &dyn Fn(&mut Value)| {
        let mut object = ray(JobKind::RAY_JOB);
        change(&mut object["spec"]);
        observe(JobKind::RAY_JOB, &object).invalid.unwrap_or_default()
    };
    let reported = why(&|spec| spec["shutdownAfterJobFinishes"] = json!(false));
    assert_eq!(
        reported,
        "spec.shutdownAfterJobFinishes: a kueue managed job should delete the cluster after finishing"
    );
    assert_eq!(why(&|spec| spec["rayClusterSpec"] = json!(null)), "spec.rayClusterSpec: required");
    let reported =
        why(&|spec| spec["rayClusterSpec"]["workerGroupSpecs"][0]["groupName"] = json!("submitter"));
    assert_eq!(
        reported,
        "spec.rayClusterSpec.workerGroupSpecs: \"submitter\" is the name of another pod set"
    );
}

#[test]
fn the_default_submitter_goes_where_it_is_admitted_too() {
    let kind = JobKind::RAY_JOB;
    let object = ray(kind);
    let view = observe(kind, &object);
    let started = apply(&object, &start(&view, &additions(&view, "a")).unwrap()).unwrap();
    let written = started.pointer(SUBMITTER).unwrap();
    assert_eq!(written["spec"]["nodeSelector"], json!({"flavor": "a"}));
    assert_eq!(written["spec"]["containers"][0]["name"], "ray-job-submitter");
    // It is the same pod set as before, and can be started again after a lost answer.
    let running = observe(kind, &started);
    assert_eq!(running.pod_sets[3].containers_hash, view.pod_sets[3].containers_hash);
    let moved = apply(&started, &start(&view, &additions(&view, "b")).unwrap().pinned("8")).unwrap();
    assert_eq!(moved.pointer(SUBMITTER).unwrap()["spec"]["nodeSelector"], json!({"flavor": "b"}));
    // A stop takes it away, also where it is not there.
    for object in [&started, &object] {
        let view = observe(kind, object);
        let stopped = apply(object, &stop(&view, &originals(&observe(kind, &ray(kind))))[0].patch).unwrap();
        assert_eq!(stopped.pointer(SUBMITTER), None);
    }
    // One that the user wrote stays.
    let mut own = ray(kind);
    own["spec"]["submitterPodTemplate"] = template("own");
    let view = observe(kind, &own);
    let started = apply(&own, &start(&view, &additions(&view, "a")).unwrap()).unwrap();
    assert_eq!(
        started.pointer(SUBMITTER).unwrap()["spec"]["nodeSelector"],
        json!({"flavor": "a", "type": "own"})
    );
    let stopped = apply(&started, &stop(&observe(kind, &started), &originals(&view))[0].patch).unwrap();
    assert_eq!(pruned(stopped), pruned(own));
}
