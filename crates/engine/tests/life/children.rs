//! Jobs that the controller of a JobSet made carry nothing of a former admission when it starts again.

use serde_json::json;
use sluice_api::job::{ControllerRef, JobFinished, JobKind, JobView};
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::model::Cluster;
use crate::model::build::job;

/// A JobSet of three replicas runs on the flavor `old`; then that has no room any more, and `new` has.
fn moved() -> Cluster {
    let mut c = Cluster::plain();
    c.api.flavor("old", &[("pool", "old"), ("only-old", "yes")]);
    c.api.flavor("new", &[("pool", "new")]);
    quota(&mut c, "3", "0");
    c.api.local_queue("team-a", "lq", "cq");
    let mut set = job("team-a", "set", "lq", 3, "1");
    set.job.kind = JobKind::JOB_SET;
    c.api.add_job(set);
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

/// What JobSet's controller made of the template, with what it adds itself, and let run and stop.
fn child(c: &Cluster, index: u32) -> JobView {
    let set = &c.api.job("set").view;
    let mut child = job("team-a", &format!("set-main-{index}"), "", 1, "1");
    child.controller = Some(ControllerRef {
        api_version: "jobset.x-k8s.io/v1alpha2".to_owned(),
        kind: "JobSet".to_owned(),
        name: "set".to_owned(),
        uid: set.job.uid.to_string(),
    });
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
