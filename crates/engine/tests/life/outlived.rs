//! Pods that outlive their job, because its controller does not delete them, use its quota until they end.

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{Purpose, WriteError};

use crate::model::build::job;
use crate::model::played::Disobeys;
use crate::model::{Api, Cluster, condition};

/// An MPIJob that ended, in a queue with room for it alone; its controller removes no pods, and some may run.
fn ended(leaves_pods: bool, run: bool) -> Cluster {
    ended_of(JobKind::MPI_JOB, leaves_pods, run)
}

fn ended_of(kind: JobKind, leaves_pods: bool, run: bool) -> Cluster {
    let mut c = Cluster::plain();
    c.config.frameworks.insert(kind);
    c.restart();
    ends(&mut c, kind, leaves_pods, run);
    c
}

fn ends(c: &mut Cluster, kind: JobKind, leaves_pods: bool, run: bool) {
    c.api.simple("2", &json!({}));
    let mut mpi = job("team-a", "mpi", "lq", 2, "1");
    (mpi.job.kind, mpi.leaves_pods) = (kind, leaves_pods);
    c.api.add_job(mpi);
    c.settle();
    assert!(!c.api.job("mpi").view.suspended);
    c.api.add_job(job("team-a", "next", "lq", 2, "1"));
    c.api.edit_job("mpi", |job| job.pods = run);
    c.api.finish_job("mpi", true);
    c.settle();
}

fn finished(c: &Cluster) -> bool {
    condition(&c.workload("mpi"), "Finished") == "True"
}

fn looks(c: &Cluster) -> usize {
    c.written(Purpose::EndPods)
}

#[test]
fn pods_that_run_after_the_end_keep_their_quota_and_are_deleted_in_the_end() {
    let mut c = ended(true, true);
    assert!(!finished(&c) && c.api.job("next").view.suspended);
    c.advance(29);
    assert!(!finished(&c) && c.api.job("next").view.suspended);
    assert!(c.api.job("mpi").pods, "they may end by themselves");
    c.advance(2);
    assert!(!c.api.job("mpi").pods);
    let note = "The job has ended, and its controller leaves its pods as they are: 1 still ran after 30 s and were deleted";
    assert_eq!(c.notes("StopEnforced"), [format!("MPIJob/mpi: {note}")]);
    c.advance(60);
    assert!(finished(&c) && !c.api.job("next").view.suspended);
    let before = looks(&c);
    c.advance(3_600);
    assert_eq!(looks(&c), before, "nothing is looked for any more");
}

#[test]
fn pods_that_end_by_themselves_give_the_quota_back_and_stay() {
    let mut c = ended(true, true);
    c.advance(5);
    c.api.edit_job("mpi", |job| job.pods = false);
    c.advance(5);
    assert!(finished(&c) && !c.api.job("next").view.suspended);
    assert!(c.notes("StopEnforced").is_empty());
}

#[test]
fn a_job_whose_pods_all_ended_is_finished_at_once() {
    for (kind, leaves_pods, writes) in [
        (JobKind::MPI_JOB, true, 1),
        (JobKind::MPI_JOB, false, 1),
        (JobKind::SPARK_APPLICATION, true, 1),
        (JobKind::JOB, false, 0),
        (JobKind::RAY_JOB, false, 0),
    ] {
        let c = ended_of(kind, leaves_pods, false);
        assert!(finished(&c) && !c.api.job("next").view.suspended, "{kind:?}");
        assert_eq!(looks(&c), writes, "{kind:?}: one look where pods may be left");
    }
}

/// A sidecar keeps the driver's pod running.
#[test]
fn the_pods_of_an_ended_application_keep_its_quota() {
    let object = json!({
        "metadata": {"name": "pi", "uid": "u"},
        "spec": {"mode": "cluster", "driver": {}, "executor": {}},
        "status": {"applicationState": {"state": "COMPLETED"}},
    });
    let leaves_pods = sluice_jobs::observe(JobKind::SPARK_APPLICATION, &object).leaves_pods;
    let mut c = ended_of(JobKind::SPARK_APPLICATION, leaves_pods, true);
    assert!(!finished(&c) && c.api.job("next").view.suspended);
    c.advance(31);
    assert!(!c.api.job("mpi").pods, "those that still run are deleted");
    c.advance(60);
    assert!(finished(&c) && !c.api.job("next").view.suspended);
}

/// A PyTorchJob that ended, and whose pods are being deleted, in a queue with room for it alone. Returns its UID, too.
fn leaves_terminating() -> (Cluster, std::sync::Arc<str>) {
    let mut c = Cluster::plain();
    c.config.longest_termination = Some(jiff::SignedDuration::from_mins(10));
    c.restart();
    c.pods_vanish = false;
    c.api.simple("2", &json!({}));
    let mut torch = job("team-a", "mpi", "lq", 2, "1");
    torch.job.kind = JobKind::PYTORCH_JOB;
    c.api.add_job(torch);
    c.settle();
    c.api.add_job(job("team-a", "next", "lq", 2, "1"));
    c.api.edit_job("mpi", |job| job.stopping_pods = true);
    let uid = c.api.job("mpi").view.job.uid.clone();
    c.api.ending_pods.insert(uid.clone());
    c.api.finish_job("mpi", true);
    c.settle();
    (c, uid)
}

/// With `cleanPodPolicy: All` the operators ask for the deletion of the pods, and count none of them from then on.
#[test]
fn pods_that_the_controller_deletes_at_the_end_hold_their_quota_until_they_are_gone() {
    let (mut c, uid) = leaves_terminating();
    c.advance(599);
    assert!(!finished(&c) && c.api.job("next").view.suspended);
    assert!(c.api.hurried.is_empty(), "they may take so long");
    c.advance(40);
    assert!(c.api.hurried.contains(&uid), "they are given less time");
    assert!(!finished(&c));
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(finished(&c) && !c.api.job("next").view.suspended);
}

#[test]
fn pods_that_were_being_deleted_at_the_end_give_the_quota_back_soon_after_they_are_gone() {
    for (grace, soon) in [(2, 2), (120, 31), (190, 31)] {
        let (mut c, _) = leaves_terminating();
        c.advance(grace);
        assert!(!finished(&c) && c.api.job("next").view.suspended, "{grace}");
        c.api.ending_pods.clear();
        c.api.edit_job("mpi", |job| job.stopping_pods = false);
        c.advance(soon);
        assert!(finished(&c) && !c.api.job("next").view.suspended, "{grace}");
    }
}

#[test]
fn a_look_that_fails_and_a_new_manager_begin_again() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    let mut mpi = job("team-a", "mpi", "lq", 2, "1");
    (mpi.job.kind, mpi.leaves_pods) = (JobKind::MPI_JOB, true);
    c.api.add_job(mpi);
    c.settle();
    c.api.edit_job("mpi", |job| job.pods = true);
    c.fail.push_back((Purpose::EndPods, WriteError::Refused("no".to_owned())));
    c.api.finish_job("mpi", false);
    c.settle();
    assert!(!finished(&c));
    c.advance(20);
    c.restart();
    c.advance(20);
    assert!(!finished(&c) && c.api.job("mpi").pods, "30 s from when it saw the end");
    c.advance(40);
    assert!(finished(&c) && !c.api.job("mpi").pods);
}

/// A pod that is being deleted uses its quota until it is gone.
#[test]
fn pods_that_are_leaving_are_waited_for() {
    let mut c = ended(true, true);
    c.refuse = Some((Purpose::EndPods, WriteError::PodsLeft { going_on: 0, leaving: 1 }));
    c.advance(600);
    assert!(!finished(&c));
    c.refuse = None;
    c.api.edit_job("mpi", |job| job.pods = false);
    c.advance(300);
    assert!(finished(&c));
    assert!(c.notes("StopEnforced").is_empty(), "none of them was deleted here");
}

#[test]
fn a_job_that_is_deleted_meanwhile_keeps_the_quota_of_pods_that_still_run() {
    for foreground in [false, true] {
        let mut c = ended(true, true);
        let (uid, of) = (c.api.job("mpi").view.job.uid.clone(), Api::workload_ref(&c.workload("mpi")));
        c.api.ending_pods.insert(uid);
        if foreground {
            c.api.edit_job("mpi", |job| job.view.deleting = true);
            c.settle();
            c.api.delete(&of);
        } else {
            c.api.delete_job("mpi");
        }
        c.advance(60);
        assert!(c.api.job("next").view.suspended && c.api.json(&of).is_some(), "{foreground}");
        c.api.ending_pods.clear();
        c.advance(31);
        assert!(!c.api.job("next").view.suspended, "{foreground}");
    }
}

#[test]
fn a_workload_that_is_deleted_meanwhile_stays_until_none_of_them_runs() {
    let mut c = ended(true, true);
    let of = Api::workload_ref(&c.workload("mpi"));
    c.api.delete(&of);
    c.advance(29);
    assert!(c.api.json(&of).is_some() && c.api.job("mpi").pods);
    c.advance(60);
    assert!(c.api.json(&of).is_none() && !c.api.job("mpi").pods);
    assert!(!c.api.job("next").view.suspended);
}

#[test]
fn those_that_take_longer_than_they_may_are_given_less_time() {
    let mut c = Cluster::plain();
    c.config.longest_termination = Some(jiff::SignedDuration::from_mins(10));
    c.restart();
    ends(&mut c, JobKind::MPI_JOB, true, true);
    c.api.edit_job("mpi", |job| job.disobeys = Disobeys::MakesOthers);
    let (uid, of) = (c.api.job("mpi").view.job.uid.clone(), Api::workload_ref(&c.workload("mpi")));
    c.api.delete(&of);
    c.advance(599);
    assert!(c.api.hurried.is_empty() && c.api.json(&of).is_some());
    c.advance(310);
    assert!(c.api.hurried.contains(&uid));
    assert!(c.api.json(&of).is_none(), "none of them uses anything");
}
