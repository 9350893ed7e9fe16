//! A job that is deleted holds its quota until its pods are gone.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WriteError};

use crate::elastic;
use crate::model::build::job;
use crate::model::{Cluster, condition, reported};
use crate::pods::runs;
use crate::unadmitted::{cluster, with};

/// How a job is deleted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Background,
    Foreground,
    /// Its Workload, and its pods, have no owner then.
    Orphans,
}

fn workload(c: &Cluster, job: &str) -> ObjectRef {
    let name = c.workload(job).metadata.name.unwrap();
    ObjectRef::namespaced(Kind::Workload, "team-a", name)
}

/// A job runs that has all the quota, and another waits for it.
fn running() -> Cluster {
    running_with(EngineConfig::default())
}

fn running_with(config: EngineConfig) -> Cluster {
    let mut c = with(config);
    c.api.add_job(job("team-a", "old", "lq", 1, "1"));
    c.settle();
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.settle();
    assert!(runs(&c, "old") && !runs(&c, "new"));
    c
}

fn uid(c: &Cluster, job: &str) -> Arc<str> {
    Arc::clone(&c.api.job(job).view.job.uid)
}

fn delete(c: &mut Cluster, how: How) {
    let of = workload(c, "old");
    match how {
        How::Background => c.api.delete_job("old"),
        How::Foreground => {
            c.api.edit_job("old", |job| job.view.deleting = true);
            c.settle();
            c.api.delete(&of);
        }
        How::Orphans => {
            // A finalizer keeps it until its dependents have no owner.
            c.api.edit_job("old", |job| job.view.deleting = true);
            c.settle();
            c.api.edit(&of, &json!({"metadata": {"ownerReferences": null}}));
            c.settle();
            c.api.delete_job("old");
        }
    }
    c.settle();
}

#[test]
fn a_job_that_is_deleted_holds_its_quota_until_its_pods_are_gone() {
    for (how, restarts) in [
        (How::Background, false),
        (How::Background, true),
        (How::Foreground, false),
        (How::Foreground, true),
        (How::Orphans, false),
        (How::Orphans, true),
    ] {
        let mut c = running();
        let old = uid(&c, "old");
        c.api.ending_pods.insert(old);
        delete(&mut c, how);
        if restarts {
            c.restart();
        }
        c.advance(3600);
        assert!(!runs(&c, "new"), "{how:?}: the pods of the old job run on");
        c.api.ending_pods.clear();
        c.advance(31);
        assert!(runs(&c, "new"), "{how:?}");
    }
}

/// A part of the JobSet `old`, which runs.
fn part(c: &mut Cluster, name: &str) {
    let set = uid(c, "old");
    part_of(c, name, &set);
}

fn part_of(c: &mut Cluster, name: &str, set: &str) {
    let mut part = job("team-a", name, "", 1, "1");
    part.controller = Some(ControllerRef {
        api_version: JobKind::JOB_SET.api_version().to_owned(),
        kind: JobKind::JOB_SET.kind().to_owned(),
        name: "old".to_owned(),
        uid: set.to_owned(),
    });
    (part.suspended, part.active) = (false, true);
    c.api.add_job(part);
    c.settle();
}

/// A JobSet of `parts` Jobs runs, and has all the quota.
fn set_of(parts: i32) -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple(&parts.to_string(), &json!({}));
    let mut set = job("team-a", "old", "lq", parts, "1");
    set.job.kind = JobKind::JOB_SET;
    set.pod_sets[0].parts = parts;
    c.api.add_job(set);
    c.settle();
    for at in 0..parts {
        part(&mut c, &format!("old-main-{at}"));
    }
    assert!(runs(&c, "old"));
    c
}

#[test]
fn pods_of_the_jobs_below_a_deleted_one_count_as_its_own() {
    let mut c = set_of(1);
    let child = uid(&c, "old-main-0");
    c.api.ending_pods.insert(child);
    c.api.delete_job("old");
    c.api.delete_job("old-main-0");
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.advance(600);
    assert!(!runs(&c, "new"));
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(runs(&c, "new"));
}

#[test]
fn a_deletion_costs_one_look_and_that_of_a_job_that_waits_none() {
    let mut c = running();
    c.api.delete_job("new");
    c.settle();
    assert_eq!(c.written(Purpose::EndPods), 0);
    c.api.delete_job("old");
    c.settle();
    assert_eq!(c.written(Purpose::EndPods), 1);
    assert_eq!(c.api.workloads(), []);
}

/// A leader begins every 15 s, and knows nothing of what those before it have seen.
#[test]
fn quota_is_back_soon_after_the_last_pod_however_often_leaders_change() {
    for ends_after in [0, 5, 20, 50, 200] {
        let mut c = running();
        let old = uid(&c, "old");
        c.api.ending_pods.insert(old);
        c.api.delete_job("old");
        let mut second = 0;
        while !runs(&c, "new") {
            assert!(second <= ends_after + 6, "pods ended after {ends_after} s");
            if second == ends_after {
                c.api.ending_pods.clear();
            }
            if second % 15 == 14 {
                c.restart();
            }
            c.advance(1);
            second += 1;
        }
        let (looks, leaders) = (c.written(Purpose::EndPods), usize::try_from(second / 15).unwrap() + 1);
        assert!(looks <= leaders * 8, "{looks} looks of {leaders} leaders");
        // It is for the quota that the Workload goes, and not to put it away.
        let of_workload = |wanted: Purpose| {
            let writes = c.writes.iter();
            writes.filter(|(object, purpose)| object.kind == Kind::Workload && *purpose == wanted).count()
        };
        let others = [Purpose::Finalizer, Purpose::DeleteWorkload].map(of_workload);
        assert!(of_workload(Purpose::ReleaseQuota) > 0 && others == [0, 0], "{:?}", c.writes);
    }
}

#[test]
fn one_look_is_for_all_jobs_of_a_namespace() {
    let mut c = cluster();
    c.api.simple("50", &json!({}));
    let names: Vec<_> = (0..50).map(|n| format!("old-{n}")).collect();
    for name in &names {
        c.api.add_job(job("team-a", name, "lq", 1, "1"));
    }
    c.settle();
    for name in &names {
        let uid = uid(&c, name);
        c.api.ending_pods.insert(uid);
        c.api.delete_job(name);
    }
    c.advance(60);
    assert_eq!(c.api.workloads().len(), 50);
    assert!(c.written(Purpose::EndPods) < 12, "{} looks", c.written(Purpose::EndPods));
    c.api.ending_pods.clear();
    c.advance(31);
    assert_eq!(c.api.workloads().len(), 0);
}

/// Those that wait come up when a look is due, and when it is answered; nothing else does.
#[test]
fn a_look_costs_what_those_cost_that_it_is_for() {
    const GONE: u64 = 30;
    let mut c = cluster();
    // To compare all that is known with what it is made of would take minutes.
    c.checked = false;
    c.api.simple("90", &json!({}));
    for at in 0..90 {
        c.api.add_job(job("team-a", &format!("job-{at}"), "lq", 1, "1"));
    }
    c.settle();
    for at in 0..GONE {
        let uid = uid(&c, &format!("job-{at}"));
        c.api.ending_pods.insert(uid);
        c.api.delete_job(&format!("job-{at}"));
    }
    c.advance(20);
    let (looks, before) = (c.written(Purpose::EndPods), c.engine.work());
    c.advance(300);
    let (looks, after) = (c.written(Purpose::EndPods) - looks, c.engine.work());
    assert!(looks > 5, "{looks} looks");
    let most = 2 * GONE * u64::try_from(looks + 1).unwrap();
    let counted = after.workloads - before.workloads;
    assert!(counted <= most, "{counted} Workloads and {looks} looks");
    assert_eq!(after.jobs - before.jobs, 0, "the jobs are gone, and others have nothing to do with it");
}

#[test]
fn where_it_cannot_be_looked_the_quota_is_kept() {
    let mut c = running();
    c.refuse = Some((Purpose::EndPods, WriteError::Transient("down".to_owned())));
    c.api.delete_job("old");
    c.advance(120);
    assert!(!runs(&c, "new"));
    let notes = c.notes("FailedDelete");
    assert!(
        notes.len() == 1
            && notes[0].starts_with("Workload/job-old: The quota of a deleted or stopped job is kept"),
        "{notes:?}"
    );
    c.refuse = None;
    c.advance(120);
    assert!(runs(&c, "new"));
    assert_eq!(condition(&c.workload("new"), "Admitted"), "True");
}

#[test]
fn pods_that_take_longer_than_they_may_are_given_less_time() {
    for longest in [None, Some(SignedDuration::from_mins(10))] {
        let mut c = running_with(EngineConfig { longest_termination: longest, ..EngineConfig::default() });
        let old = uid(&c, "old");
        c.api.ending_pods.insert(Arc::clone(&old));
        delete(&mut c, How::Background);
        c.advance(599);
        assert!(c.api.hurried.is_empty());
        c.advance(3600);
        assert_eq!(c.api.hurried.contains(&old), longest.is_some());
        assert_eq!(c.notes("StopEnforced").len(), usize::from(longest.is_some()), "it is reported once");
    }
}

#[test]
fn so_are_those_of_an_evicted_job() {
    let mut c = running_with(EngineConfig {
        longest_termination: Some(SignedDuration::from_mins(10)),
        ..EngineConfig::default()
    });
    let old = uid(&c, "old");
    c.pods_vanish = false;
    c.api.ending_pods.insert(Arc::clone(&old));
    let of = workload(&c, "old");
    c.api.edit(&of, &json!({"spec": {"active": false}}));
    c.api.edit_job("old", |job| job.view.terminating = 1);
    c.settle();
    c.api.edit_job("old", |job| job.view.active = false);
    c.advance(599);
    assert!(c.api.hurried.is_empty() && !runs(&c, "new"));
    c.advance(2);
    assert!(c.api.hurried.contains(&old));
    c.advance(60);
    assert!(!runs(&c, "new"));
    c.api.ending_pods.clear();
    c.advance(31);
    // None is left that has a node.
    assert!(runs(&c, "new"), "whatever the status of the job says");
}

#[test]
fn slices_that_were_replaced_keep_no_deletion_busy() {
    let mut c = elastic::running("6", &json!({}));
    elastic::scale(&mut c, 5);
    assert_eq!(elastic::slices(&c), ["3 WorkloadSliceReplaced", "5 runs"]);
    // Its user's finalizer keeps it.
    c.api.edit_job("a", |job| job.view.deleting = true);
    c.settle();
    assert_eq!(c.written(Purpose::EndPods), 1);
    c.advance(60);
    assert_eq!(c.written(Purpose::EndPods), 1, "its pods are gone");
}

/// As after a restart of the set. The pods of the new ones carry the name of its Workload, as those of the old ones did.
#[test]
fn pods_of_parts_that_are_made_again_are_not_left_behind() {
    let mut c = set_of(2);
    let old = ["old-main-0", "old-main-1"].map(|name| uid(&c, name));
    c.api.ending_pods.extend(old.clone());
    for name in ["old-main-0", "old-main-1"] {
        c.api.delete_job(name);
    }
    for name in ["old-main-0", "old-main-1"] {
        part(&mut c, name);
    }
    c.advance(30);
    c.api.ending_pods.clear();
    c.advance(120);
    assert_eq!(reported(&c.workload("old"), "Evicted"), "");
    assert!(runs(&c, "old") && !c.api.job("old-main-0").view.suspended);
}

#[test]
fn what_was_asked_before_the_job_went_says_nothing_of_its_own_pods() {
    let mut c = set_of(1);
    c.late = Some(Purpose::EndPods);
    c.api.delete_job("old-main-0");
    c.settle();
    assert_eq!(c.written(Purpose::EndPods), 1);
    let old = uid(&c, "old");
    c.api.ending_pods.insert(old);
    c.api.delete_job("old");
    c.settle();
    c.release();
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.advance(60);
    assert!(!runs(&c, "new"));
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(runs(&c, "new"));
}

const LONGEST: SignedDuration = SignedDuration::from_mins(10);

fn limited() -> EngineConfig {
    EngineConfig { longest_termination: Some(LONGEST), ..EngineConfig::default() }
}

#[test]
fn those_of_a_job_that_went_before_the_manager_began_have_their_time_from_then_on() {
    for how in [How::Background, How::Orphans] {
        let mut c = running_with(limited());
        let old = uid(&c, "old");
        c.api.ending_pods.insert(Arc::clone(&old));
        delete(&mut c, how);
        c.restart();
        c.advance(599);
        assert!(c.api.hurried.is_empty(), "{how:?}");
        c.advance(60);
        assert!(c.api.hurried.contains(&old), "{how:?}");
        c.api.ending_pods.clear();
        c.advance(31);
        assert!(runs(&c, "new"), "{how:?}");
    }
}

#[test]
fn pods_of_a_job_that_its_users_finalizer_holds_have_all_the_time() {
    let mut c = running_with(limited());
    let old = uid(&c, "old");
    c.api.ending_pods.insert(Arc::clone(&old));
    c.api.edit_job("old", |job| job.view.deleting = true);
    c.advance(7_200);
    assert!(c.api.hurried.is_empty() && !runs(&c, "new"));
    // Once it is gone they are to end.
    c.api.delete_job("old");
    c.advance(599);
    assert!(c.api.hurried.is_empty() && !runs(&c, "new"));
    c.advance(60);
    assert!(c.api.hurried.contains(&old));
}

#[test]
fn the_quota_of_a_job_that_its_users_finalizer_holds_comes_back_with_the_end_of_its_pods() {
    for (evicted, restarts) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut c = running_with(limited());
        let (old, of) = (uid(&c, "old"), workload(&c, "old"));
        c.api.ending_pods.insert(old);
        c.api.edit_job("old", |job| job.view.deleting = true);
        c.settle();
        if evicted {
            c.api.edit(&of, &json!({"spec": {"active": false}}));
        }
        c.advance(120);
        assert!(!runs(&c, "new"), "its pods run");
        if restarts {
            c.restart();
        }
        // The Job controller, which does not start it any more, has no pods of it either.
        c.api.edit_job("old", |job| (job.view.active, job.view.ready) = (false, 0));
        c.api.ending_pods.clear();
        c.advance(31);
        assert!(runs(&c, "new"), "evicted: {evicted}, restarts: {restarts}");
        assert!(c.api.json(&of).is_none());
        c.advance(600);
        assert!(runs(&c, "new") && c.api.workloads().len() == 1, "none is made of it any more");
    }
}

#[test]
fn a_job_that_waits_and_is_held_by_its_users_finalizer_is_not_queued_any_more() {
    let mut c = running();
    c.api.edit_job("new", |job| job.view.deleting = true);
    c.settle();
    assert_eq!(c.api.workloads().len(), 1);
    c.api.delete_job("old");
    c.advance(60);
    assert_eq!(c.api.workloads().len(), 0);
    assert_eq!(c.written(Purpose::ReserveQuota), 1, "that of the other");
}

/// What a part leaves behind outlives a job that has ended.
#[test]
fn pods_of_a_deleted_part_keep_the_quota_of_an_ended_job_until_they_end() {
    let mut c = set_of(2);
    c.config.longest_termination = Some(LONGEST);
    c.restart();
    let part = uid(&c, "old-main-0");
    c.api.ending_pods.insert(Arc::clone(&part));
    c.api.delete_job("old-main-0");
    c.settle();
    c.api.finish_job("old-main-1", true);
    c.api.finish_job("old", true);
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.advance(599);
    assert!(!runs(&c, "new") && c.api.hurried.is_empty(), "they end by themselves");
    c.advance(60);
    assert!(c.api.hurried.contains(&part) && !runs(&c, "new"));
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(runs(&c, "new"));
    assert_eq!(condition(&c.workload("old"), "Finished"), "True");
}

#[test]
fn nothing_is_looked_for_of_a_kind_that_is_not_managed_any_more() {
    let mut c = running_with(limited());
    let (old, of) = (uid(&c, "old"), workload(&c, "old"));
    c.api.ending_pods.insert(old);
    c.config.frameworks.remove(&JobKind::JOB);
    c.checked = false;
    c.restart();
    c.api.delete(&of);
    c.settle();
    assert!(c.api.json(&of).is_none());
    c.advance(7_200);
    assert!(c.api.hurried.is_empty());
    assert_eq!(c.written(Purpose::EndPods), 0);
}

/// Its controller is behind.
#[test]
fn a_job_that_is_made_below_a_set_which_is_gone_does_not_run() {
    for pods_end in [false, true] {
        let mut c = set_of(1);
        c.advance(20);
        let set = uid(&c, "old");
        if !pods_end {
            c.api.ending_pods.insert(Arc::clone(&set));
        }
        c.api.delete_job("old");
        c.advance(20);
        assert!(!c.api.job("old-main-0").view.suspended, "what was made before ends by itself");
        c.api.delete_job("old-main-0");
        c.advance(20);
        assert_eq!(c.api.workloads().is_empty(), pods_end);
        part_of(&mut c, "old-main-0", &set);
        assert!(c.api.job("old-main-0").view.suspended, "{pods_end}");
    }
}
