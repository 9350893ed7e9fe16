//! What claims to belong to a job, or not to be one, so that it runs without quota.

use std::sync::Arc;

use sluice_api::job::JobKind;
use sluice_engine::EngineConfig;

use crate::model::{Cluster, condition};
use crate::ray::{add, made, ray, with};
use crate::shares_of_parts::{below_set, with_set};
use crate::unadmitted::running;

/// A queue without quota, and a manager that manages jobs without a queue, too, or not.
fn managing(all: bool) -> Cluster {
    let config = EngineConfig {
        status_interval_ms: 0,
        manage_jobs_without_queue_name: all,
        ..EngineConfig::default()
    };
    with(config, ["0", "0"])
}

/// A finalizer of its user keeps a job for as long as the user likes. The webhooks let all of these through.
#[test]
fn below_a_job_that_is_being_deleted_only_the_small_job_that_cleans_up_runs() {
    let (cluster, job) = (JobKind::RAY_CLUSTER, JobKind::JOB);
    for manage_all in [false, true] {
        for (kind, name, is_small, runs) in [
            (cluster, "old-redis-cleanup", true, true),
            (cluster, "old-redis-cleanup", false, false),
            (cluster, "c-1", true, false),
            (cluster, "other-redis-cleanup", true, false),
            (job, "old-redis-cleanup", true, false),
            (job, "c-1", false, false),
        ] {
            let mut c = managing(manage_all);
            if !manage_all {
                c.api.local_queue("team-a", "default", "cq");
            }
            c.api.add_job(ray(kind, "old"));
            c.settle();
            c.api.edit_job("old", |job| job.view.deleting = true);
            c.settle();
            let mut claims = made(&c, "old", JobKind::JOB, name, "");
            claims.may_clean_up = is_small;
            (claims.suspended, claims.active) = (false, true);
            add(&mut c, claims);
            let what = format!("{name} below a {}, small: {is_small}, all: {manage_all}", kind.kind());
            assert_eq!(!c.api.job(name).view.suspended, runs, "{what}");
            let own = c.api.workloads_of(&c.api.job(name).view.job.uid);
            assert!(own.is_empty() || !runs, "{what}: it is a part");
        }
    }
}

/// The webhook and the manager may see the deletion after the job. KubeRay waits for the job, and does not resume it.
#[test]
fn a_job_that_cleans_up_is_resumed_if_it_was_suspended_before_the_deletion_was_seen() {
    let name = "old-redis-cleanup";
    let delete = |c: &mut Cluster| {
        c.api.edit_job("old", |job| job.view.deleting = true);
        c.settle();
    };
    for manage_all in [false, true] {
        for (is_late, is_small) in [(false, true), (true, true), (false, false), (true, false)] {
            let mut c = managing(manage_all);
            c.api.local_queue("team-a", "default", "cq");
            c.api.add_job(ray(JobKind::RAY_CLUSTER, "old"));
            c.settle();
            let mut cleanup = made(&c, "old", JobKind::JOB, name, "");
            cleanup.may_clean_up = is_small;
            assert!(cleanup.suspended, "as its cluster");
            if !is_late {
                delete(&mut c);
            }
            c.api.add_job(cleanup);
            c.settle();
            if is_late {
                assert!(c.api.job(name).view.suspended);
                delete(&mut c);
            }
            let what = format!("small: {is_small}, late: {is_late}, all: {manage_all}");
            let cleanup = &c.api.job(name).view;
            assert_eq!(!cleanup.suspended, is_small, "{what}");
            assert!(!is_small || c.api.workloads_of(&cleanup.job.uid).is_empty(), "{what}: it is a part");
            assert_eq!(c.notes("Started").len(), usize::from(is_small), "{what}");
        }
    }
}

/// The webhook refuses the change. KubeRay does not suspend a RayJob that selects a cluster: what it made is deleted.
#[test]
fn a_rayjob_that_selects_a_cluster_while_it_has_quota_is_managed_until_that_is_given_back() {
    let config = || EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    let mut c = with(config(), ["2", "0"]);
    c.api.add_job(ray(JobKind::RAY_JOB, "train"));
    c.settle();
    let cluster = made(&c, "train", JobKind::RAY_CLUSTER, "train-a1b2c", "");
    add(&mut c, cluster);
    assert!(!c.api.job("train-a1b2c").view.suspended);
    c.api.edit_job("train", |job| job.view.skipped = true);
    c.settle();
    assert_eq!(condition(&c.workload("train"), "QuotaReserved"), "True");
    c.api.edit_job("train-a1b2c", |job| job.view.pod_sets[1].count = 100);
    c.settle();
    let runs = c.api.jobs().any(|(job, state)| &*job.name == "train-a1b2c" && !state.view.suspended);
    assert!(!runs, "it has more pods than its RayJob has quota for");
    // One that waits may use another cluster.
    let mut c = with(config(), ["0", "0"]);
    c.api.add_job(ray(JobKind::RAY_JOB, "train"));
    c.settle();
    c.api.edit_job("train", |job| job.view.skipped = true);
    c.settle();
    assert!(c.api.workloads().is_empty(), "it has no pods of its own");
}

/// The webhook refuses no change of a job that is being deleted, so that no finalizer stays.
#[test]
fn a_job_that_loses_its_queue_while_it_is_deleted_has_no_more_pods_than_it_has_quota_for() {
    let mut c = with_set(true);
    let part = below_set(&c, "set-main-0", "", 2, "1");
    running(&mut c, part);
    c.settle();
    // A finalizer of its user keeps it, and its pods run on.
    let uid = Arc::clone(&c.api.job("set").view.job.uid);
    c.api.ending_pods.insert(uid);
    c.api.edit_job("set", |job| (job.view.deleting, job.view.queue_name) = (true, None));
    c.settle();
    assert!(!c.api.job("set-main-0").view.suspended);
    c.api.edit_job("set-main-0", |job| job.view.pod_sets[0].count = 64);
    c.settle();
    let part = c.api.jobs().find(|(reference, _)| &*reference.name == "set-main-0");
    assert!(part.is_none_or(|(_, job)| job.view.suspended));
    assert_eq!(condition(&c.workload("set"), "QuotaReserved"), "True");
}
