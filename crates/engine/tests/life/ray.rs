//! Ray's kinds: the clusters of RayJobs and RayServices are parts of them, although KubeRay gives them the queue's name, too.

use serde_json::json;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::{JobKind, JobView};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::model::build::{job, made_by, pod_set};
use crate::model::{Cluster, condition, reported};

/// A queue with this quota of the flavor `old` and of `new`.
fn bed(quotas: [&str; 2]) -> Cluster {
    bed_with(Gates::default(), quotas)
}

/// The same with these gates.
fn bed_with(gates: Gates, quotas: [&str; 2]) -> Cluster {
    with(EngineConfig { status_interval_ms: 0, gates, ..EngineConfig::default() }, quotas)
}

/// The same with this configuration.
pub fn with(config: EngineConfig, quotas: [&str; 2]) -> Cluster {
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.flavor("old", &[("pool", "old")]);
    c.api.flavor("new", &[("pool", "new")]);
    quota(&mut c, quotas);
    c.api.local_queue("team-a", "lq", "cq");
    c
}

fn quota(c: &mut Cluster, [old, new]: [&str; 2]) {
    let flavor =
        |name: &str, cpu: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor("old", old), flavor("new", new)]}]);
    c.api.cluster_queue("cq", "old", "0", &json!({"resourceGroups": groups}));
}

fn drain(c: &mut Cluster, policy: &str) {
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": policy}}));
    c.settle();
}

/// A job of the kind with a head and one worker.
pub fn ray(kind: JobKind, name: &str) -> JobView {
    let mut view = job("team-a", name, "lq", 1, "1");
    view.job.kind = kind;
    view.pod_sets = vec![pod_set("head", 1, "1"), pod_set("workers", 1, "1")];
    view
}

/// What KubeRay makes for a job as it is now: all of it runs, or waits, as the job says.
pub fn made(c: &Cluster, above: &str, kind: JobKind, name: &str, queue: &str) -> JobView {
    let view = &c.api.job(above).view;
    let mut part = job("team-a", name, queue, 1, "1");
    part.job.kind = kind;
    if kind == JobKind::RAY_CLUSTER {
        part.pod_sets.clone_from(&view.pod_sets);
    }
    (part.suspended, part.active) = (view.suspended, !view.suspended);
    part.controller = Some(made_by(view));
    part
}

/// Makes it, and has KubeRay let it run. KubeRay writes the name of a cluster that it is about to make into the status of its job.
pub fn add(c: &mut Cluster, view: JobView) {
    let name = view.job.name.to_string();
    if let Some(above) = view.controller.as_ref().map(|above| above.name.clone())
        && view.job.kind == JobKind::RAY_CLUSTER
    {
        c.api.edit_job(&above, |job| job.view.part_names.push(name.clone()));
    }
    add_unnamed(c, view);
}

/// Makes it, and has it run; no status names it.
fn add_unnamed(c: &mut Cluster, view: JobView) {
    let name = view.job.name.to_string();
    c.api.add_job(view);
    c.api.edit_job(&name, |job| job.started_by_user = true);
    c.settle();
}

fn deleted(c: &Cluster) -> Vec<&str> {
    let deletions = c.writes.iter().filter(|(_, purpose)| *purpose == Purpose::DeleteChild);
    deletions.map(|(object, _)| &*object.name).collect()
}

#[test]
fn the_cluster_of_a_service_is_stopped_with_it_and_made_again_when_it_runs_again() {
    let mut c = bed(["2", "0"]);
    c.api.add_job(ray(JobKind::RAY_SERVICE, "svc"));
    c.settle();
    let cluster = made(&c, "svc", JobKind::RAY_CLUSTER, "svc-a1b2c", "lq");
    add(&mut c, cluster);
    assert!(!c.api.job("svc-a1b2c").view.suspended);
    assert_eq!(c.api.workloads().len(), 1, "the cluster is not queued a second time");
    // KubeRay lets it run until another one serves, which never comes to be.
    c.pods_vanish = false;
    drain(&mut c, "HoldAndDrain");
    assert!(c.api.job("svc").view.suspended && c.api.job("svc-a1b2c").view.suspended);
    assert_eq!(condition(&c.workload("svc"), "QuotaReserved"), "True", "its pods are still there");
    c.pods_vanish = true;
    c.settle();
    assert_eq!(condition(&c.workload("svc"), "QuotaReserved"), "False");
    // What KubeRay makes of the service that waits is left alone, and goes once the service runs, as what ran before.
    let waits = made(&c, "svc", JobKind::RAY_CLUSTER, "svc-d3e4f", "lq");
    add(&mut c, waits);
    assert!(deleted(&c).is_empty() && c.api.workloads().len() == 1);
    quota(&mut c, ["0", "2"]);
    drain(&mut c, "None");
    let service = &c.api.job("svc").view;
    assert!(!service.suspended);
    assert!(service.pod_sets.iter().all(|set| set.scheduling.node_selector["pool"] == "new"));
    assert_eq!(deleted(&c), ["svc-a1b2c", "svc-d3e4f"]);
    // One that KubeRay makes too late, of what it saw before the start, goes as well.
    let mut late = made(&c, "svc", JobKind::RAY_CLUSTER, "svc-g5h6i", "lq");
    late.suspended = true;
    add(&mut c, late);
    assert_eq!(deleted(&c).len(), 3);
    // And what runs although the service was stopped is stopped.
    drain(&mut c, "HoldAndDrain");
    let mut late = made(&c, "svc", JobKind::RAY_CLUSTER, "svc-j7k8l", "lq");
    (late.suspended, late.active) = (false, true);
    add(&mut c, late);
    assert!(c.api.job("svc-j7k8l").view.suspended && c.api.workloads().len() == 1);
}

#[test]
fn the_cluster_and_the_submitter_of_a_rayjob_run_on_its_quota_and_hold_it() {
    let mut c = bed(["3", "0"]);
    let mut train = ray(JobKind::RAY_JOB, "train");
    train.pod_sets.push(pod_set("submitter", 1, "1"));
    c.api.add_job(train);
    c.settle();
    assert!(!c.api.job("train").view.suspended);
    let cluster = made(&c, "train", JobKind::RAY_CLUSTER, "train-a1b2c", "lq");
    let submitter = made(&c, "train", JobKind::JOB, "train", "");
    c.api.add_job(submitter);
    add(&mut c, cluster);
    let all = |c: &Cluster| c.api.jobs().filter(|(_, job)| !job.view.suspended).count();
    assert_eq!(all(&c), 3, "all three run");
    assert_eq!(c.api.workloads().len(), 1, "on one Workload");
    // KubeRay removes both; until it has, the quota is held.
    c.pods_vanish = false;
    drain(&mut c, "HoldAndDrain");
    let admitted = |c: &Cluster| condition(&c.api.workloads()[0], "QuotaReserved");
    assert_eq!(admitted(&c), "True");
    let parts: Vec<_> = c.api.jobs().map(|(part, _)| part.clone()).collect();
    for part in parts.into_iter().filter(|part| part.kind != Kind::Job(JobKind::RAY_JOB)) {
        c.api.delete(&part);
    }
    c.pods_vanish = true;
    // The second part went while the pods of the first were looked for: a look that did not ask for its pods says nothing of them.
    c.settle();
    assert_eq!(admitted(&c), "True");
    c.advance(1);
    assert_eq!(admitted(&c), "False");
    // A cluster that comes too late does not run.
    let mut late = made(&c, "train", JobKind::RAY_CLUSTER, "train-d3e4f", "lq");
    (late.suspended, late.active) = (false, true);
    add(&mut c, late);
    assert!(c.api.job("train-d3e4f").view.suspended && c.api.workloads().len() == 1);
}

#[test]
fn what_cleans_up_after_a_cluster_that_is_deleted_may_run() {
    let mut c = bed(["0", "0"]);
    c.api.add_job(ray(JobKind::RAY_CLUSTER, "ray"));
    c.settle();
    let cleanup = |c: &Cluster, name: &str| {
        let mut cleanup = made(c, "ray", JobKind::JOB, name, "");
        (cleanup.suspended, cleanup.active, cleanup.may_clean_up) = (false, true, true);
        cleanup
    };
    let early = cleanup(&c, "early");
    add(&mut c, early);
    assert!(c.api.job("early").view.suspended, "the cluster waits, and with it all that it makes");
    // A finalizer keeps it until that is done.
    c.api.edit_job("ray", |job| job.view.deleting = true);
    c.settle();
    let cleanup = cleanup(&c, "ray-redis-cleanup");
    add(&mut c, cleanup);
    assert!(!c.api.job("ray-redis-cleanup").view.suspended, "without it the cluster would never go");
}

/// A service that runs is deleted, in the foreground or not; its cluster is kept by a finalizer until its data is removed.
fn deleted_service(gate: bool, foreground: bool) -> Cluster {
    let gates = Gates::default().with(Gate::DeferRayServiceFinalizationForRedisCleanup, gate);
    let mut c = bed_with(gates, ["2", "0"]);
    c.api.add_job(ray(JobKind::RAY_SERVICE, "serve"));
    c.settle();
    let cluster = made(&c, "serve", JobKind::RAY_CLUSTER, "serve-a1b2c", "lq");
    add(&mut c, cluster);
    let cluster = ObjectRef::namespaced(Kind::Job(JobKind::RAY_CLUSTER), "team-a", "serve-a1b2c");
    assert!(!c.api.job("serve-a1b2c").view.suspended);
    let going: &[&str] = if foreground { &["serve", "serve-a1b2c"] } else { &["serve-a1b2c"] };
    for name in going {
        c.api.edit_job(name, |job| job.view.deleting = true);
    }
    if !foreground {
        c.api.delete_job("serve");
    }
    c.settle();
    c.api.edit_job_at(&cluster, |job| job.view.active = false);
    c.api.add_job(ray(JobKind::RAY_CLUSTER, "next"));
    c.settle();
    let name = "serve-a1b2c-redis-cleanup";
    let mut cleanup = made(&c, "serve-a1b2c", JobKind::JOB, name, "");
    (cleanup.suspended, cleanup.active, cleanup.may_clean_up) = (false, true, true);
    add(&mut c, cleanup);
    assert!(!c.api.job(name).view.suspended, "without it the cluster would never go");
    c
}

#[test]
fn what_cleans_up_after_a_service_that_is_deleted_has_its_quota_until_it_is_done() {
    for foreground in [false, true] {
        let mut c = deleted_service(true, foreground);
        assert!(c.api.job("next").view.suspended, "the quota is used");
        c.restart();
        c.settle();
        assert!(c.api.job("next").view.suspended, "a new leader knows it, too");
        c.api.delete_job("serve-a1b2c-redis-cleanup");
        c.api.delete_job("serve-a1b2c");
        c.settle();
        if foreground {
            c.api.delete_job("serve");
            c.settle();
        }
        assert!(!c.api.job("next").view.suspended, "the quota is free");
        assert_eq!(c.api.workloads().len(), 1);
        // One without a cluster keeps nothing.
        let mut c = bed(["2", "0"]);
        c.api.add_job(ray(JobKind::RAY_SERVICE, "serve"));
        c.settle();
        c.api.delete_job("serve");
        c.settle();
        assert!(c.api.workloads().is_empty());
    }
    let c = deleted_service(false, false);
    assert!(!c.api.job("next").view.suspended, "without the gate the quota is free when its pods are gone");
}

#[test]
fn a_job_that_its_controller_holds_back_gives_its_quota_to_others() {
    let mut c = bed(["2", "0"]);
    let mut held = ray(JobKind::RAY_JOB, "held");
    held.on_hold = Some(false);
    c.api.add_job(held);
    c.settle();
    assert!(!c.api.job("held").view.suspended);
    c.api.add_job(ray(JobKind::RAY_JOB, "next"));
    c.settle();
    assert!(c.api.job("next").view.suspended);
    c.api.edit_job("held", |job| job.view.on_hold = Some(true));
    c.settle();
    assert!(c.api.job("held").view.suspended && !c.api.job("next").view.suspended);
    assert_eq!(reported(&c.workload("held"), "QuotaReserved"), "False/OnHold: Job is on hold");
    // It is queued again where it was.
    c.api.edit_job("held", |job| job.view.on_hold = Some(false));
    c.settle();
    let said = reported(&c.workload("held"), "QuotaReserved");
    assert!(said.starts_with("False/") && !said.contains("OnHold"), "{said}");
    c.api.finish_job("next", true);
    c.settle();
    assert!(!c.api.job("held").view.suspended);
    // One that was never admitted is held, too.
    let mut waits = ray(JobKind::RAY_JOB, "waits");
    waits.on_hold = Some(true);
    c.api.add_job(waits);
    c.settle();
    assert_eq!(reported(&c.workload("waits"), "QuotaReserved"), "False/OnHold: Job is on hold");
    c.api.finish_job("held", true);
    c.settle();
    assert!(c.api.job("waits").view.suspended);
}

#[test]
fn what_has_no_pods_of_its_own_is_left_alone() {
    let mut c = bed(["2", "0"]);
    let mut selects = ray(JobKind::RAY_JOB, "selects");
    (selects.skipped, selects.suspended) = (true, false);
    add(&mut c, selects);
    assert!(!c.api.job("selects").view.suspended && c.api.workloads().is_empty());
}

/// A RayJob that runs.
fn running(c: &mut Cluster) {
    c.api.add_job(ray(JobKind::RAY_JOB, "train"));
    c.settle();
    assert!(!c.api.job("train").view.suspended);
}

fn is_suspended(c: &Cluster, name: &str) -> bool {
    c.api.job(name).view.suspended
}

#[test]
fn a_cluster_that_the_status_of_its_job_does_not_name_needs_quota_of_its_own() {
    let mut c = bed(["3", "0"]);
    running(&mut c);
    let real = made(&c, "train", JobKind::RAY_CLUSTER, "train-a1b2c", "lq");
    add(&mut c, real);
    // The status may be seen later than the cluster that it names.
    let forged = made(&c, "train", JobKind::RAY_CLUSTER, "train-d3e4f", "lq");
    let mut unsuspended = forged.clone();
    (unsuspended.job.name, unsuspended.generation) = ("train-g5h6i".into(), 2);
    add_unnamed(&mut c, forged);
    assert!(!is_suspended(&c, "train-d3e4f"));
    // A cluster that its user has changed since its creation was not just made by KubeRay.
    add_unnamed(&mut c, unsuspended);
    assert!(is_suspended(&c, "train-g5h6i"));
    c.advance(11);
    assert!(is_suspended(&c, "train-d3e4f") && !is_suspended(&c, "train-a1b2c"));
    assert_eq!(c.api.workloads().len(), 3, "both are queued by themselves");
    assert_eq!(condition(&c.workload("train-d3e4f"), "QuotaReserved"), "False");
}

#[test]
fn a_cluster_that_is_named_late_or_no_longer_is_a_part_all_the_same() {
    let mut c = bed(["2", "0"]);
    running(&mut c);
    let late = made(&c, "train", JobKind::RAY_CLUSTER, "train-a1b2c", "lq");
    add_unnamed(&mut c, late);
    c.api.edit_job("train", |job| job.view.part_names = vec!["train-a1b2c".to_owned()]);
    c.advance(60);
    assert!(!is_suspended(&c, "train-a1b2c"));
    // Another took its place, and it is to serve for a while yet.
    c.api.edit_job("train", |job| job.view.part_names = vec!["train-d3e4f".to_owned()]);
    c.api.edit_job("train-a1b2c", |job| job.view.generation = 2);
    c.advance(60);
    assert!(!is_suspended(&c, "train-a1b2c"));
    assert_eq!(c.api.workloads().len(), 1);
}

#[test]
fn a_cluster_that_was_suspended_before_its_name_was_known_is_made_again() {
    let mut c = bed(["2", "0"]);
    running(&mut c);
    let mut early = made(&c, "train", JobKind::RAY_CLUSTER, "train-a1b2c", "lq");
    (early.suspended, early.active) = (true, false);
    add_unnamed(&mut c, early);
    assert!(deleted(&c).is_empty());
    c.api.edit_job("train", |job| job.view.part_names = vec!["train-a1b2c".to_owned()]);
    c.settle();
    assert_eq!(deleted(&c), ["train-a1b2c"]);
    assert_eq!(c.api.workloads().len(), 1);
}

#[test]
fn a_cluster_with_more_or_other_pods_than_its_job_does_not_run_on_its_quota() {
    let changes: [fn(&mut JobView); 4] = [
        |part| {
            part.pod_sets.clear();
            part.invalid = Some("it cannot be read".to_owned());
        },
        |part| part.pod_sets[1].count += 1,
        |part| part.pod_sets[1] = pod_set("workers", 1, "64"),
        |part| part.pod_sets.push(pod_set("more", 1, "1")),
    ];
    for (case, change) in changes.into_iter().enumerate() {
        let mut c = bed(["2", "0"]);
        running(&mut c);
        let mut larger = made(&c, "train", JobKind::RAY_CLUSTER, "train-a1b2c", "lq");
        change(&mut larger);
        add(&mut c, larger);
        // It is stopped, and replaced by the one that KubeRay makes.
        let suspended = c.writes.iter().any(|(_, purpose)| *purpose == Purpose::SuspendJob);
        assert!(suspended && deleted(&c) == ["train-a1b2c"], "case {case}");
    }
    // Fewer are none of more.
    let mut c = bed(["2", "0"]);
    running(&mut c);
    let mut smaller = made(&c, "train", JobKind::RAY_CLUSTER, "train-a1b2c", "lq");
    smaller.pod_sets.pop();
    add(&mut c, smaller);
    assert!(!is_suspended(&c, "train-a1b2c"));
}

/// KubeRay follows changes of a cluster: one that cannot be read may ask for any number of pods.
#[test]
fn a_cluster_that_cannot_be_read_any_more_is_stopped_until_it_can() {
    let mut c = bed(["2", "0"]);
    let mut view = job("team-a", "own", "lq", 1, "1");
    view.job.kind = JobKind::RAY_CLUSTER;
    c.api.add_job(view);
    c.settle();
    assert!(!is_suspended(&c, "own"));
    let pods = c.api.job("own").view.pod_sets.clone();
    c.api.edit_job("own", |job| {
        job.view.pod_sets.clear();
        job.view.invalid = Some("too many pod sets: 19, at most 18".to_owned());
    });
    c.settle();
    assert!(is_suspended(&c, "own"));
    assert_eq!(c.notes("ErrWorkloadCompose"), ["RayCluster/own: too many pod sets: 19, at most 18"]);
    // As often as its user lets it go.
    for _ in 0..3 {
        c.api.edit_job("own", |job| (job.view.suspended, job.started_by_user) = (false, true));
        c.settle();
        assert!(is_suspended(&c, "own"));
    }
    c.api.edit_job("own", |job| job.started_by_user = false);
    c.api.edit_job("own", |job| (job.view.pod_sets, job.view.invalid) = (pods.clone(), None));
    c.settle();
    c.advance(1);
    assert!(!is_suspended(&c, "own"));
}

#[test]
fn what_ends_while_it_cannot_be_read_gives_its_quota_back() {
    let mut c = bed(["1", "0"]);
    for name in ["own", "next"] {
        let mut view = job("team-a", name, "lq", 1, "1");
        view.job.kind = JobKind::PYTORCH_JOB;
        c.api.add_job(view);
        c.settle();
    }
    assert!(!is_suspended(&c, "own") && is_suspended(&c, "next"));
    c.api.finish_job("own", true);
    c.api.edit_job("own", |job| {
        job.view.pod_sets.clear();
        job.view.invalid = Some("it cannot be read".to_owned());
    });
    c.settle();
    c.advance(1);
    assert!(!is_suspended(&c, "next"), "{:?}", c.api.workloads());
}

/// KubeRay makes another cluster of a service for a change that no container shows, and takes the first away when the other serves.
#[test]
fn the_next_cluster_of_a_service_waits_until_the_one_before_is_gone() {
    for restarts in [false, true] {
        let mut c = bed(["2", "0"]);
        c.api.add_job(ray(JobKind::RAY_SERVICE, "serve"));
        c.settle();
        let active = made(&c, "serve", JobKind::RAY_CLUSTER, "serve-a1b2c", "lq");
        add(&mut c, active);
        c.advance(10);
        let pending = made(&c, "serve", JobKind::RAY_CLUSTER, "serve-d3e4f", "lq");
        add(&mut c, pending);
        if restarts {
            c.restart();
        }
        c.advance(600);
        assert!(!is_suspended(&c, "serve-a1b2c") && is_suspended(&c, "serve-d3e4f"));
        let note = "RayCluster/serve-d3e4f: Kueue managed child job suspended: its job has quota for one at a time, and \"serve-a1b2c\" runs on it";
        assert!(c.notes("Suspended").contains(&note.to_owned()), "{:?}", c.notes("Suspended"));
        assert!(deleted(&c).is_empty(), "it would only be made again");
        assert_eq!(c.api.workloads().len(), 1);
        // Its user lets the first go: KubeRay makes what waited again, and that runs.
        c.api.delete_job("serve-a1b2c");
        c.settle();
        assert_eq!(deleted(&c), ["serve-d3e4f"]);
        let next = made(&c, "serve", JobKind::RAY_CLUSTER, "serve-0a0b0", "lq");
        add(&mut c, next);
        c.advance(60);
        assert!(!is_suspended(&c, "serve-0a0b0"));
    }
}
