//! Jobs that a JobSet's controller made keep nothing of a former admission when the JobSet starts again.

use serde_json::json;
use sluice_api::job::{JobFinished, JobKind, JobView};
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::model::Cluster;
use crate::model::build::{job, made_by};

/// A queue with room on the flavor `old`.
fn bed() -> Cluster {
    let mut c = Cluster::plain();
    c.api.flavor("old", &[("pool", "old"), ("only-old", "yes")]);
    c.api.flavor("new", &[("pool", "new")]);
    quota(&mut c, "3", "0");
    c.api.local_queue("team-a", "lq", "cq");
    c
}

/// A JobSet of three replicas.
fn jobset(queue: &str) -> JobView {
    let mut set = job("team-a", "set", queue, 3, "1");
    set.job.kind = JobKind::JOB_SET;
    set.pod_sets[0].parts = 3;
    set
}

/// The JobSet runs on the flavor `old`; then that has no room any more, and `new` has.
fn moved() -> Cluster {
    let mut c = bed();
    c.api.add_job(jobset("lq"));
    c.settle();
    assert_eq!(c.api.job("set").view.pod_sets[0].scheduling.node_selector["pool"], "old");
    c
}

fn quota(c: &mut Cluster, old: &str, new: &str) {
    let flavor =
        |name: &str, cpu: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor("old", old), flavor("new", new)]}]);
    c.api.cluster_queue("cq", "old", "0", &json!({"resourceGroups": groups}));
}

/// What JobSet's controller made of the template, with what it adds itself, and started and stopped.
fn child(c: &Cluster, index: u32) -> JobView {
    let set = &c.api.job("set").view;
    let mut child = job("team-a", &format!("set-main-{index}"), "", 1, "1");
    child.controller = Some(made_by(set));
    child.generation = 3;
    child.suspended_condition = Some((true, c.now + jiff::SignedDuration::from_secs(1)));
    child.pod_sets[0].scheduling = set.pod_sets[0].scheduling.clone();
    let own = &mut child.pod_sets[0].scheduling;
    for key in ["jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-name", "controller-uid"] {
        own.labels.insert(key.to_owned(), "x".to_owned());
        own.annotations.insert(key.to_owned(), "x".to_owned());
    }
    child
}

fn deleted(c: &Cluster) -> Vec<&str> {
    let deletions = c.writes.iter().filter(|(_, purpose)| *purpose == Purpose::DeleteChild);
    deletions.map(|(object, _)| &*object.name).collect()
}

fn drain(c: &mut Cluster, policy: &str) {
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": policy}}));
    c.settle();
}

#[test]
fn what_carries_selectors_of_another_flavor_is_removed_before_the_start() {
    let mut c = moved();
    let children: Vec<_> = (0..3).map(|index| child(&c, index)).collect();
    for (index, mut child) in children.into_iter().enumerate() {
        if index == 1 {
            child.finished = Some(JobFinished { success: true, message: String::new() });
        }
        c.api.add_job(child);
    }
    // One without a change since it was made, and one that only claims to be a part.
    let mut fresh = child(&c, 2);
    fresh.job.name = "set-main-9".into();
    c.api.add_job(fresh);
    drain(&mut c, "HoldAndDrain");
    quota(&mut c, "0", "3");
    c.late = Some(Purpose::DeleteChild);
    drain(&mut c, "None");
    assert_eq!(deleted(&c), ["set-main-0", "set-main-2"], "neither what has ended nor what is not its own");
    c.release();
    let set = c.api.job("set");
    assert!(!set.view.suspended);
    assert_eq!(set.view.pod_sets[0].scheduling.node_selector["pool"], "new");
    assert_eq!(deleted(&c).len(), 2);
}

#[test]
fn nothing_is_removed_for_the_same_flavor_or_what_was_never_changed() {
    let mut c = moved();
    let (same, mut fresh) = (child(&c, 0), child(&c, 1));
    fresh.generation = 1;
    fresh.pod_sets[0].scheduling.node_selector.insert("foreign".to_owned(), "webhook".to_owned());
    c.api.add_job(same);
    c.api.add_job(fresh);
    drain(&mut c, "HoldAndDrain");
    drain(&mut c, "None");
    assert!(!c.api.job("set").view.suspended && deleted(&c).is_empty());
}

/// While nothing manages it, its selectors are not kept.
#[test]
fn a_job_whose_jobset_is_queued_later_is_read_before_the_start() {
    let mut c = bed();
    c.api.add_job(jobset(""));
    let mut made = child(&c, 0);
    made.pod_sets[0].scheduling.node_selector.insert("former".to_owned(), "yes".to_owned());
    c.api.add_job(made);
    c.settle();
    c.advance(20);
    c.api.edit_job("set", |job| job.view.queue_name = Some("lq".to_owned()));
    c.settle();
    c.advance(5);
    assert_eq!(deleted(&c), ["set-main-0"]);
    assert!(!c.api.job("set").view.suspended);
}

#[test]
fn an_annotation_that_is_no_longer_there_goes_too() {
    let mut c = moved();
    let mut made = child(&c, 0);
    made.pod_sets[0].scheduling.annotations.insert("sluice.dev/node-affinity".to_owned(), "{}".to_owned());
    c.api.add_job(made);
    drain(&mut c, "HoldAndDrain");
    // A new leader derives it from the objects alone; a failure is tried again.
    c.restart();
    c.fail.push_back((Purpose::DeleteChild, WriteError::Transient("no answer came".to_owned())));
    drain(&mut c, "None");
    assert!(c.api.job("set").view.suspended);
    c.advance(5);
    assert_eq!(deleted(&c), ["set-main-0", "set-main-0"]);
    assert!(!c.api.job("set").view.suspended);
}

/// The launcher's Job as the MPI operator makes it of an MPIJob.
fn launcher(c: &Cluster) -> JobView {
    let set = &c.api.job("mpi").view;
    let mut launcher = job("team-a", "mpi-launcher", "", 1, "1");
    launcher.controller = Some(made_by(set));
    launcher.pod_sets[0].scheduling = set.pod_sets[0].scheduling.clone();
    let own = &mut launcher.pod_sets[0].scheduling.labels;
    own.insert("training.kubeflow.org/job-name".to_owned(), "mpi".to_owned());
    launcher.suspended_condition = Some((true, c.now + jiff::SignedDuration::from_secs(1)));
    launcher
}

/// An MPIJob of one pod, in a queue with this quota of the flavor `old` and of `new`.
fn mpi(quotas: [&str; 2]) -> Cluster {
    let mut c = Cluster::plain();
    c.api.flavor("old", &[("pool", "old"), ("only-old", "yes")]);
    c.api.flavor("new", &[("pool", "new")]);
    quota(&mut c, quotas[0], quotas[1]);
    c.api.local_queue("team-a", "lq", "cq");
    let mut mpi = job("team-a", "mpi", "lq", 1, "1");
    mpi.job.kind = JobKind::MPI_JOB;
    "launcher".clone_into(&mut mpi.pod_sets[0].name);
    c.api.add_job(mpi);
    c
}

fn selector(c: &Cluster, name: &str) -> Vec<String> {
    let scheduling = &c.api.job(name).view.pod_sets[0].scheduling;
    scheduling.node_selector.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

#[test]
fn the_launcher_of_an_mpijob_gets_what_is_admitted_before_the_start() {
    let mut c = mpi(["0", "0"]);
    c.settle();
    let launcher = launcher(&c);
    c.api.add_job(launcher);
    c.settle();
    quota(&mut c, "1", "0");
    c.late = Some(Purpose::UpdateChild);
    c.settle();
    assert!(c.api.job("mpi").view.suspended, "its launcher comes first");
    c.release();
    assert!(!c.api.job("mpi").view.suspended);
    assert_eq!(selector(&c, "mpi-launcher"), ["only-old=yes", "pool=old"]);
    assert_eq!(selector(&c, "mpi-launcher"), selector(&c, "mpi"));
    let labels = &c.api.job("mpi-launcher").view.pod_sets[0].scheduling.labels;
    assert_eq!(labels["training.kubeflow.org/job-name"], "mpi", "what its controller generated stays");
    // In another flavor nothing of the former is left, and nothing is deleted.
    drain(&mut c, "HoldAndDrain");
    quota(&mut c, "0", "1");
    drain(&mut c, "None");
    assert!(!c.api.job("mpi").view.suspended);
    assert_eq!(selector(&c, "mpi-launcher"), ["pool=new"]);
    assert!(deleted(&c).is_empty());
}

#[test]
fn a_launcher_that_was_made_too_late_is_stopped_and_mended_once() {
    let mut c = mpi(["1", "0"]);
    let mut late = job("team-a", "mpi-launcher", "", 1, "1");
    c.settle();
    assert!(!c.api.job("mpi").view.suspended, "nothing is waited for");
    late.controller = launcher(&c).controller;
    late.suspended = false;
    c.api.add_job(late);
    c.settle();
    assert_eq!(selector(&c, "mpi-launcher"), selector(&c, "mpi"));
    let stops = |c: &Cluster| {
        let stops =
            c.writes.iter().filter(|(of, what)| *what == Purpose::UpdateChild && &*of.name == "mpi-launcher");
        stops.count()
    };
    let sent = stops(&c);
    assert!(sent > 0);
    c.advance(60);
    assert_eq!(stops(&c), sent);
}
