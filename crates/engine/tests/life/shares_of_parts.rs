//! Parts of a running job use no more of its quota than their share.

use serde_json::json;
use sluice_api::job::{JobKind, JobView};

use crate::model::build::{job, made_by};
use crate::model::{Cluster, condition};
use crate::unadmitted::{cluster, halts, running};

fn is_there(c: &Cluster, job: &str) -> bool {
    c.api.jobs().any(|(reference, _)| *reference.name == *job)
}

/// A JobSet of two Jobs with two pods each, admitted; in a namespace with a LocalQueue `default`, or without.
pub fn with_set(has_default: bool) -> Cluster {
    let mut c = cluster();
    c.api.simple("4", &json!({}));
    if has_default {
        c.api.local_queue("team-a", "default", "cq");
    }
    let mut set = job("team-a", "set", "lq", 4, "1");
    set.job.kind = JobKind::JOB_SET;
    set.pod_sets[0].parts = 2;
    c.api.add_job(set);
    c.settle();
    assert!(!c.api.job("set").view.suspended);
    c
}

/// A Job whose controller is the JobSet.
pub fn below_set(c: &Cluster, name: &str, queue: &str, count: i32, cpu: &str) -> JobView {
    let mut child = job("team-a", name, queue, count, cpu);
    child.controller = Some(made_by(&c.api.job("set").view));
    child
}

/// A part of an admitted JobSet runs on its quota, so it may have no more than its share of that, whether its controller made it so or a user.
#[test]
fn a_part_of_a_job_set_with_more_than_its_share_is_deleted_and_one_that_is_none_is_queued() {
    let mut c = with_set(false);
    let part = |c: &mut Cluster, name: &str, count, cpu: &str| {
        let queue = if name.ends_with('2') { "lq" } else { "" };
        let child = below_set(c, name, queue, count, cpu);
        running(c, child);
        c.settle();
        is_there(c, name).then(|| c.api.job(name).view.suspended)
    };
    assert_eq!(part(&mut c, "set-main-0", 2, "1"), Some(false));
    assert_eq!(part(&mut c, "set-main-1", 64, "1"), None, "64 pods instead of two");
    // What is wrong again at once is suspended.
    assert_eq!(part(&mut c, "set-main-1", 2, "8"), Some(true), "of eight processors instead of one");
    // There are two replicas.
    assert_eq!(part(&mut c, "set-main-2", 2, "1"), Some(true));
    c.advance(60);
    c.api.edit_job("set-main-1", |job| job.view.suspended = false);
    c.settle();
    assert!(!is_there(&c, "set-main-1"), "its controller lets it continue");
    assert_eq!(part(&mut c, "set-main-1", 2, "1"), Some(false));
    assert_eq!(condition(&c.workload("set-main-2"), "QuotaReserved"), "False");
    assert_eq!(halts(&c, "set-main-0"), 0);
}

/// A new job of this namespace that names no queue is put in the default queue, and one that was let through, or that says so later, does not run.
#[test]
fn where_there_is_a_default_queue_a_job_without_a_queue_runs_only_if_the_one_above_it_could_have_made_it() {
    for (with_default, name, runs) in [
        (true, "set-main-1", true),
        (true, "set-main-2", false),
        (true, "evil", false),
        (false, "evil", true),
    ] {
        let mut c = with_set(with_default);
        let child = below_set(&c, name, "", 2, "1");
        running(&mut c, child);
        c.settle();
        assert_eq!(!c.api.job(name).view.suspended, runs, "{name}, with a default queue: {with_default}");
        assert_eq!(c.api.workloads().len(), 1);
    }
}

/// The same of Jobs that play a pod set of one pod, also where a new leader finds them.
#[test]
fn what_launches_or_submits_has_no_more_pods_than_were_admitted() {
    let parts = [(JobKind::MPI_JOB, "launcher", "above-launcher"), (JobKind::RAY_JOB, "submitter", "above")];
    for (kind, set, name) in parts {
        for (count, cpu) in [(1, "1"), (9, "1"), (1, "9")] {
            let mut c = cluster();
            let mut above = job("team-a", "above", "lq", 1, "1");
            above.job.kind = kind;
            above.pod_sets[0].name = set.to_owned();
            c.api.add_job(above);
            c.settle();
            let started = c.api.jobs().next().unwrap().1.view.clone();
            let mut part = job("team-a", name, "", count, cpu);
            part.pod_sets[0].scheduling.clone_from(&started.pod_sets[0].scheduling);
            part.controller = Some(made_by(&started));
            (part.suspended, part.active) = (false, true);
            c.api.add_job(part);
            c.restart();
            c.settle();
            let runs = c.api.jobs().any(|(_, job)| job.view.job.kind == JobKind::JOB && !job.view.suspended);
            assert_eq!(runs, (count, cpu) == (1, "1"), "{count} pods of {cpu} in {name}");
        }
    }
}
