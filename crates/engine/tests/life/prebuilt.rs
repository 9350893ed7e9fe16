//! Prebuilt Workloads, which a job names itself.

use serde_json::{Value, json};
use sluice_engine::{Purpose, WriteError};

use crate::model::build::job;
use crate::model::condition;
use crate::unadmitted::{cluster, running, set, workload};

#[test]
fn a_prebuilt_workload_of_another_job_lets_nothing_run() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "rightful", "lq", 1, "1"));
    c.settle();
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.prebuilt_workload = c.workload("rightful").metadata.name;
    let others = view.prebuilt_workload.clone().unwrap();
    running(&mut c, view);
    c.settle();
    assert!(c.api.job("a").view.suspended && !c.api.job("rightful").view.suspended);
    let trouble = format!("Job/a: The prebuilt workload team-a/{others} belongs to another job");
    assert_eq!(c.notes("Stopped"), [trouble.as_str()]);
    assert_eq!(c.notes("ErrWorkloadCompose"), [trouble.as_str()], "why it waits");
    // As often as it is tried.
    c.api.edit_job("a", |job| (job.view.suspended, job.started_by_user) = (false, true));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!(c.notes("Stopped").len(), 2);
}

#[test]
fn a_workload_that_has_finished_lets_nothing_run() {
    let mut c = cluster();
    let finished = workload(&mut c, "done", "lq", &Value::Null);
    set(&mut c, &finished, &["Finished"]);
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.prebuilt_workload = Some("done".to_owned());
    running(&mut c, view);
    // Its own, which was admitted once and failed to start.
    c.fail.push_back((Purpose::StartJob, WriteError::Unstartable("the label l is there".to_owned())));
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    assert_eq!(condition(&c.workload("b"), "Finished"), "True");
    c.api.edit_job("b", |job| (job.view.suspended, job.started_by_user) = (false, true));
    c.settle();
    assert!(c.api.job("a").view.suspended, "a");
    assert!(c.api.job("b").view.suspended, "b: {:?}", c.workload("b").status);
    let name = c.workload("b").metadata.name.unwrap();
    assert_eq!(
        c.notes("Stopped"),
        [
            "Job/a: The prebuilt workload team-a/done has finished",
            &format!("Job/b: The workload team-a/{name} has finished")
        ]
    );
}

#[test]
fn a_prebuilt_workload_that_is_being_deleted_is_not_taken_over() {
    let mut c = cluster();
    let leaving = workload(&mut c, "leaving", "lq", &Value::Null);
    c.api.edit(&leaving, &json!({"metadata": {"finalizers": ["example.com/other"]}}));
    c.api.delete(&leaving);
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.prebuilt_workload = Some("leaving".to_owned());
    running(&mut c, view);
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!(
        c.notes("ErrWorkloadCompose"),
        ["Job/a: The prebuilt workload team-a/leaving is being deleted"]
    );
}

#[test]
fn a_job_is_charged_to_its_own_queue_and_not_to_that_of_its_prebuilt_workload() {
    let mut c = cluster();
    c.api.cluster_queue("other", "default", "1", &json!({}));
    c.api.local_queue("team-a", "other", "other");
    workload(&mut c, "mine", "other", &Value::Null);
    c.settle();
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.prebuilt_workload = Some("mine".to_owned());
    c.api.add_job(view);
    c.settle();
    let w = c.workload("a");
    assert_eq!(w.spec.queue_name.as_deref(), Some("lq"));
    assert_eq!(w.status.unwrap().admission.unwrap().cluster_queue, "cq");
    assert!(!c.api.job("a").view.suspended);
}
