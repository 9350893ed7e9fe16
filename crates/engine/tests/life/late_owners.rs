//! Owners that a job gets after it was queued: any user can write them, and its quota is given and taken as before.

use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind};
use sluice_engine::{Kind, ObjectRef};

use crate::model::build::{job, wrapped};
use crate::model::{Api, Cluster, condition};
use crate::unadmitted::cluster;

fn controller(c: &Cluster, name: &str) -> ControllerRef {
    let job = &c.api.job(name).view.job;
    ControllerRef {
        api_version: job.kind.api_version().to_owned(),
        kind: job.kind.kind().to_owned(),
        name: name.to_owned(),
        uid: job.uid.to_string(),
    }
}

/// Makes two Jobs without a queue that own each other.
pub fn circle(c: &mut Cluster) -> ControllerRef {
    for name in ["ring-a", "ring-b"] {
        c.api.add_job(job("team-a", name, "", 1, "1"));
    }
    for (name, above) in [("ring-a", "ring-b"), ("ring-b", "ring-a")] {
        let above = controller(c, above);
        c.api.edit_job(name, |job| job.view.controller = Some(above));
    }
    controller(c, "ring-a")
}

/// Makes more Jobs without a queue above each other than are looked at.
fn chain(c: &mut Cluster) -> ControllerRef {
    c.api.add_job(job("team-a", "level-0", "", 1, "1"));
    let mut above = controller(c, "level-0");
    for level in 1..11 {
        let name = format!("level-{level}");
        let mut view = job("team-a", &name, "", 1, "1");
        view.controller = Some(above);
        c.api.add_job(view);
        above = controller(c, &name);
    }
    above
}

const ENDLESS: [fn(&mut Cluster) -> ControllerRef; 2] = [circle, chain];

/// Gives a job a controller.
fn put_below(c: &mut Cluster, name: &str, above: ControllerRef) {
    c.api.edit_job(name, |job| job.view.controller = Some(above));
    c.settle();
}

/// The job `a` runs, and was put below these owners since.
fn running_below(owners: fn(&mut Cluster) -> ControllerRef) -> Cluster {
    let mut c = cluster();
    let above = owners(&mut c);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    put_below(&mut c, "a", above);
    c
}

fn deactivate(c: &mut Cluster, name: &str) {
    let workload = Api::workload_ref(&c.workload(name));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
}

#[test]
fn an_eviction_stops_a_job_below_endless_owners_and_frees_its_quota() {
    for owners in ENDLESS {
        let mut c = running_below(owners);
        assert!(!c.api.job("a").view.suspended, "it runs on");
        c.api.add_job(job("team-a", "b", "lq", 1, "1"));
        deactivate(&mut c, "a");
        c.advance(180);
        assert!(c.api.job("a").view.suspended);
        assert!(!c.api.job("b").view.suspended, "it has the quota now");
    }
}

#[test]
fn a_deleted_workload_of_a_job_below_endless_owners_goes_once_the_job_is_stopped() {
    for owners in ENDLESS {
        let mut c = running_below(owners);
        let workload = Api::workload_ref(&c.workload("a"));
        c.api.delete(&workload);
        c.advance(180);
        assert!(c.api.job("a").view.suspended && c.api.workloads().is_empty());
    }
}

#[test]
fn a_job_below_endless_owners_gives_its_quota_back_when_it_ends_and_the_next_one_starts() {
    for owners in ENDLESS {
        let mut c = cluster();
        let above = owners(&mut c);
        for name in ["a", "b"] {
            c.api.add_job(job("team-a", name, "lq", 1, "1"));
            c.settle();
            put_below(&mut c, name, above.clone());
        }
        assert!(!c.api.job("a").view.suspended && c.api.job("b").view.suspended);
        c.api.finish_job("a", true);
        c.advance(180);
        assert_eq!(condition(&c.workload("a"), "Finished"), "True");
        assert!(!c.api.job("b").view.suspended, "it waited with a Workload");
    }
}

#[test]
fn no_job_is_a_part_of_itself() {
    let mut c = cluster();
    for (name, other, queue) in [("a", "b", "lq"), ("b", "a", "")] {
        let mut view = job("team-a", name, queue, 1, "1");
        view.job.kind = JobKind::APP_WRAPPER;
        view.pod_sets[0].wrapped = Some(wrapped(JobKind::APP_WRAPPER, other));
        c.api.add_job(view);
    }
    c.settle();
    for (name, above) in [("a", "b"), ("b", "a")] {
        let above = controller(&c, above);
        put_below(&mut c, name, above);
    }
    let whole_of = |name: &str| {
        let object = ObjectRef::namespaced(Kind::Job(JobKind::APP_WRAPPER), "team-a", name);
        c.engine.whole_of(&object).map(|whole| whole.name.to_string())
    };
    assert_eq!(whole_of("a"), None, "it was queued by itself");
    assert_eq!(whole_of("b").as_deref(), Some("a"), "it names no queue");
}
