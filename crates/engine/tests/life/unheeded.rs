//! A stop that the job's controller ignores: the job is touched, and then its pods are deleted.

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, Purpose, WriteError};

use crate::model::build::{job, wrapped};
use crate::model::played::Disobeys;
use crate::model::{Api, Cluster, condition};
use crate::pods::{controlled, evict, runs};
use crate::unadmitted::cluster;

/// A job of this kind runs, whose controller fails to obey in that way, and another waits for its quota.
fn running(kind: JobKind, disobeys: Disobeys) -> Cluster {
    let mut c = cluster();
    let mut old = job("team-a", "old", "lq", 1, "1");
    old.job.kind = kind;
    if kind.integration().wraps_objects {
        old.pod_sets[0].wrapped = Some(wrapped(JobKind::JOB, "old"));
    }
    c.api.add_job(old);
    c.settle();
    assert!(runs(&c, "old"), "{kind:?}");
    c.api.edit_job("old", |job| job.disobeys = disobeys);
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.settle();
    c
}

fn looks(c: &Cluster) -> usize {
    c.written(Purpose::EndPods)
}

fn holds(c: &Cluster) -> bool {
    condition(&c.workload("old"), "QuotaReserved") == "True"
}

fn enforced(c: &Cluster) -> usize {
    c.notes("StopEnforced").len()
}

/// How many looks it takes to know that the pods are gone of which the controller says that it has removed them.
fn looks_at_the_end(kind: JobKind) -> usize {
    usize::from(kind.integration().leaves_terminating)
}

/// Kinds with pods of their own and no controller that comes back to them by itself.
fn kinds() -> impl Iterator<Item = JobKind> {
    JobKind::jobs().filter(|kind| {
        let facts = kind.integration();
        !(facts.of_pods
            || kind.gathers_pods()
            || facts.confirms_stops
            || facts.pods_are_jobs
            || kind.has_groups())
    })
}

#[test]
fn a_controller_that_waits_for_an_event_gets_one() {
    for kind in kinds() {
        let mut c = running(kind, Disobeys::UntilTouched);
        evict(&mut c);
        c.advance(29);
        assert_eq!((looks(&c), holds(&c)), (0, true), "{kind:?} may obey yet");
        c.advance(1);
        let all = 1 + looks_at_the_end(kind);
        assert_eq!(looks(&c), all, "{kind:?}");
        assert!(!holds(&c) && runs(&c, "new"), "{kind:?}: its controller obeyed");
        c.advance(3_600);
        assert_eq!((looks(&c), enforced(&c)), (all, 0), "{kind:?}");
    }
}

#[test]
fn pods_that_stay_are_deleted_and_their_quota_is_free_then() {
    for kind in kinds() {
        let mut c = running(kind, Disobeys::Always);
        evict(&mut c);
        c.advance(89);
        assert!(holds(&c) && c.api.job("old").pods, "{kind:?}");
        assert_eq!(looks(&c), 1);
        c.advance(1);
        assert!(!c.api.job("old").pods, "{kind:?}");
        assert_eq!(
            c.notes("StopEnforced"),
            [format!(
                "{}/old: The job was stopped, and its controller has not removed its pods within 90 s: 1 were deleted",
                kind.kind()
            )]
        );
        c.advance(10);
        // Its status says to this day that it has pods. Of what others wrap, or describe, not all are known.
        let knows_all = !kind.integration().wraps_objects && !kind.is_declared();
        assert_eq!(runs(&c, "new"), knows_all, "{kind:?}");
        let before = looks(&c);
        c.advance(3_600);
        assert_eq!((looks(&c), enforced(&c)), (before, 1), "{kind:?} is left alone");
    }
}

/// What is wrapped may be of any kind, and make others, such as the ReplicaSet of a Deployment.
#[test]
fn pods_of_an_appwrapper_are_ended_also_where_other_objects_control_them() {
    let mut c = running(JobKind::APP_WRAPPER, Disobeys::Always);
    c.api.labelled_pods.insert("old".into(), 2);
    evict(&mut c);
    c.api.edit_job("old", |job| job.pods = false);
    c.advance(89);
    assert!(holds(&c) && enforced(&c) == 0);
    c.advance(1);
    assert!(c.api.labelled_pods.is_empty());
    let [note] = &c.notes("StopEnforced")[..] else { unreachable!() };
    assert!(note.starts_with("AppWrapper/old") && note.ends_with("2 were deleted"), "{note}");
}

#[test]
fn pods_that_are_made_again_are_deleted_again_less_and_less_often() {
    let mut c = running(JobKind::RAY_CLUSTER, Disobeys::MakesOthers);
    evict(&mut c);
    c.advance(3_600);
    assert!(holds(&c), "they use its quota");
    assert!((10..20).contains(&enforced(&c)), "{}", enforced(&c));
    c.api.edit_job("old", |job| job.disobeys = Disobeys::Always);
    c.advance(600);
    assert!(!holds(&c) && runs(&c, "new"));
}

#[test]
fn a_restart_begins_again_at_every_step() {
    for at in [1, 31, 61, 89] {
        let mut c = running(JobKind::MPI_JOB, Disobeys::Always);
        evict(&mut c);
        c.advance(at);
        c.restart();
        c.settle();
        assert!(holds(&c) && c.api.job("old").pods, "{at}");
        c.advance(101);
        assert!(!holds(&c) && !c.api.job("old").pods, "{at}");
        assert_eq!(enforced(&c), 1, "{at}");
    }
}

/// It was never admitted, and nothing of it says that it has pods: as after a pass whose write met a conflict.
#[test]
fn what_its_user_lets_run_is_ended_though_its_status_shows_no_pods() {
    for restarts in [false, true] {
        let mut c = cluster();
        let before = c.now - jiff::SignedDuration::from_secs(60);
        let mut mpi = job("team-a", "old", "lq", 2, "1");
        mpi.job.kind = JobKind::MPI_JOB;
        mpi.suspended_condition = Some((true, before));
        c.api.add_job(mpi);
        c.settle();
        c.api.edit_job("old", |job| {
            (job.view.suspended, job.started_by_user) = (false, true);
            (job.disobeys, job.pods) = (Disobeys::UntilTouched, true);
        });
        c.settle();
        assert!(c.api.job("old").view.suspended);
        if restarts {
            c.restart();
        }
        c.advance(30);
        assert!(!c.api.job("old").pods, "restarted: {restarts}");
        c.advance(60);
        assert_eq!(looks(&c), 2, "whether it obeyed now, restarted: {restarts}");
        c.advance(3_600);
        assert_eq!(looks(&c), 2, "restarted: {restarts}");
    }
}

/// Each time that its user lets it run it is stopped again; that does not delay its end.
#[test]
fn what_its_user_repeatedly_lets_run_is_ended_all_the_same() {
    let mut c = cluster();
    let mut ray = job("team-a", "old", "lq", 2, "1");
    ray.job.kind = JobKind::RAY_CLUSTER;
    c.api.add_job(ray);
    c.api.edit_job("old", |job| job.disobeys = Disobeys::Always);
    for _ in 0..10 {
        c.api.edit_job("old", |job| {
            (job.view.suspended, job.view.active, job.started_by_user) = (false, true, true);
        });
        c.advance(12);
    }
    assert!(enforced(&c) > 0);
    c.advance(300);
    assert!(!c.api.job("old").pods);
}

#[test]
fn a_controller_that_says_what_it_does_costs_no_look_unless_it_does_not_say_when_pods_are_gone() {
    for kind in [JobKind::JOB_SET, JobKind::MPI_JOB] {
        let mut c = running(kind, Disobeys::No);
        let now = c.now;
        c.api.edit_job("old", |job| job.view.suspended_condition = Some((false, now)));
        evict(&mut c);
        c.advance(5);
        let now = c.now;
        c.api.edit_job("old", |job| job.view.suspended_condition = Some((true, now)));
        c.advance(3_600);
        assert_eq!(looks(&c), looks_at_the_end(kind), "{kind:?}");
        c.restart();
        c.advance(3_600);
        assert_eq!(looks(&c), looks_at_the_end(kind), "{kind:?}");
    }
}

/// Pods that take their time to end are being deleted: neither the job nor they are touched.
#[test]
fn pods_that_are_being_deleted_are_left_alone_and_hold_their_quota() {
    let mut c = running(JobKind::MPI_JOB, Disobeys::No);
    c.pods_vanish = false;
    evict(&mut c);
    let version = c.api.job("old").view.resource_version.clone();
    c.advance(3_600);
    assert!(holds(&c));
    assert_eq!(c.api.job("old").view.resource_version, version, "nothing was written");
    assert!((5..25).contains(&looks(&c)), "{}", looks(&c));
    c.pods_vanish = true;
    c.settle();
    assert!(!holds(&c));
}

#[test]
fn a_job_that_starts_meanwhile_is_left_alone() {
    let mut c = running(JobKind::MPI_JOB, Disobeys::UntilTouched);
    let workload = Api::workload_ref(&c.workload("old"));
    evict(&mut c);
    c.advance(30);
    assert!(!holds(&c));
    c.api.delete_job("new");
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    assert!(runs(&c, "old"));
    let looked = looks(&c);
    c.advance(3_600);
    assert_eq!(looks(&c), looked);
    assert!(runs(&c, "old"));
}

/// A JobSet whose controller is away: its Jobs make their pods again, and so go themselves.
#[test]
fn jobs_that_a_stopped_one_made_and_that_continue_are_deleted_after_a_while() {
    let mut c = running(JobKind::JOB_SET, Disobeys::No);
    let mut child = job("team-a", "old-main-0", "", 1, "1");
    (child.suspended, child.active) = (false, true);
    controlled(&c, &mut child);
    c.api.add_job(child);
    c.pods_vanish = false;
    evict(&mut c);
    let is_there = |c: &Cluster| c.api.jobs().any(|(job, _)| &*job.name == "old-main-0");
    c.advance(89);
    assert!(is_there(&c) && holds(&c));
    assert_eq!(looks(&c), 1, "the JobSet was touched");
    c.advance(1);
    assert!(!is_there(&c));
    assert_eq!(
        c.notes("StopEnforced"),
        ["JobSet/old: Job \"old-main-0\" kept running after its job was stopped, so it was deleted"]
    );
    c.pods_vanish = true;
    c.settle();
    assert!(!holds(&c));
}

/// The controller of batch Jobs comes back to them by itself, and counts pods that others delete as failed.
#[test]
fn batch_jobs_are_left_to_their_controller_unless_another_has_them() {
    let mut c = running(JobKind::JOB, Disobeys::Always);
    evict(&mut c);
    c.advance(3_600);
    assert_eq!((looks(&c), c.api.job("old").pods), (0, true));
    let mut c = running(JobKind::JOB, Disobeys::Always);
    c.api.edit_job("old", |job| job.view.managed_by = Some("example.com/mine".to_owned()));
    evict(&mut c);
    c.advance(90);
    assert_eq!((enforced(&c), c.api.job("old").pods), (1, false));
}

#[test]
fn a_look_that_is_refused_holds_nothing_up() {
    let mut c = running(JobKind::MPI_JOB, Disobeys::UntilTouched);
    c.refuse = Some((Purpose::EndPods, WriteError::Refused("pods is forbidden".to_owned())));
    evict(&mut c);
    c.advance(3_600);
    assert!((5..20).contains(&looks(&c)), "{}", looks(&c));
    assert_eq!(
        c.notes("FailedDelete"),
        ["MPIJob/old: Error deleting the pods of the stopped job: refused: pods is forbidden"]
    );
    c.refuse = None;
    c.advance(301);
    assert!(!holds(&c) && runs(&c, "new"));
}

/// A pod on a node that names this job of the kind as its controller, made at that time.
fn stray(c: &mut Cluster, kind: JobKind, job: &str) {
    let owner = json!([{"apiVersion": kind.api_version(), "kind": kind.kind(), "name": job,
        "uid": &*c.api.job(job).view.job.uid, "controller": true}]);
    let created = c.now.to_string();
    c.api.put(
        Kind::Pod,
        json!({
            "metadata": {"name": "stray", "namespace": "team-a", "ownerReferences": owner,
                "creationTimestamp": created},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running"},
        }),
    );
    c.api.edit_job(job, |job| (job.disobeys, job.pods) = (Disobeys::Always, true));
}

/// A user gives a pod the real UID of a job that waits: its controller did not make that pod, and does not remove it. That the job was changed
/// meanwhile makes no difference.
#[test]
fn a_pod_of_a_job_that_never_ran_is_deleted_after_a_while() {
    for kind in [JobKind::JOB, JobKind::MPI_JOB, JobKind::RAY_CLUSTER] {
        for (restarted, edited) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = format!("{kind:?}, restarted: {restarted}, edited: {edited}");
            let mut c = cluster();
            c.api.add_job(job("team-a", "first", "lq", 1, "1"));
            c.settle();
            let mut old = job("team-a", "old", "lq", 1, "1");
            old.job.kind = kind;
            old.suspended_condition = Some((true, c.now));
            c.api.add_job(old);
            c.settle();
            if edited {
                c.api.edit_job("old", |job| job.view.generation = 2);
                c.settle();
            }
            stray(&mut c, kind, "old");
            if restarted {
                c.restart();
            }
            c.settle();
            c.advance(89);
            assert!(c.api.job("old").pods, "{case}");
            c.advance(1);
            assert!(!c.api.job("old").pods, "{case}");
            let why = if edited {
                "The job was stopped, and its controller has not removed its pods within 90 s"
            } else {
                "The job was never started, and pods named it as their controller"
            };
            assert_eq!(c.notes("StopEnforced"), [format!("{}/old: {why}: 1 were deleted", kind.kind())]);
            c.advance(3_600);
            assert_eq!(looks(&c), 3, "{case}: the last one found none");
            c.api.finish_job("first", true);
            c.settle();
            assert!(runs(&c, "old"), "{case}");
        }
    }
}

#[test]
fn a_pod_that_is_made_in_the_name_of_a_stopped_job_is_deleted_but_its_own_are_left_to_its_controller() {
    for long_after in [false, true] {
        let mut c = running(JobKind::JOB, Disobeys::Always);
        if !long_after {
            stray(&mut c, JobKind::JOB, "old");
            c.settle();
        }
        evict(&mut c);
        if long_after {
            c.advance(60);
            stray(&mut c, JobKind::JOB, "old");
            c.settle();
        } else {
            c.restart();
        }
        c.advance(90);
        assert_eq!((enforced(&c), c.api.job("old").pods), (usize::from(long_after), !long_after));
    }
}

#[test]
fn a_pod_of_a_part_of_a_job_that_waits_is_deleted_after_a_while() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "first", "lq", 1, "1"));
    c.settle();
    let mut old = job("team-a", "old", "lq", 1, "1");
    old.job.kind = JobKind::JOB_SET;
    c.api.add_job(old);
    c.settle();
    let mut part = job("team-a", "old-main-0", "", 1, "1");
    part.queue_name = None;
    controlled(&c, &mut part);
    c.api.add_job(part);
    c.settle();
    stray(&mut c, JobKind::JOB, "old-main-0");
    c.settle();
    c.advance(89);
    assert!(c.api.job("old-main-0").pods);
    c.advance(1);
    assert!(!c.api.job("old-main-0").pods);
    c.advance(3_600);
    assert_eq!(enforced(&c), 1);
    c.api.finish_job("first", true);
    c.settle();
    assert!(runs(&c, "old"));
}
