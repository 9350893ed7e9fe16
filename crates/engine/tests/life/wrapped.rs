//! Jobs in an AppWrapper, and those that their controllers make, have no Workload: the AppWrapper has.

use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind, JobView};
use sluice_engine::EngineConfig;

use crate::model::Cluster;
use crate::model::build::{job, wrapped};

/// An AppWrapper of two pods around a JobSet, in a queue with room for so many.
fn cluster(quota: &str, config: EngineConfig) -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..config });
    c.api.namespace("team-a", &[]);
    c.api.simple(quota, &json!({}));
    let mut wrapper = job("team-a", "wrapper", "lq", 2, "1");
    wrapper.job.kind = JobKind::APP_WRAPPER;
    wrapper.pod_sets[0].wrapped = Some(wrapped(JobKind::JOB_SET, "set"));
    c.api.add_job(wrapper);
    c.settle();
    c
}

/// A job that runs, made for the job `above`.
fn made(c: &mut Cluster, kind: JobKind, name: &str, queue: &str, above: &str) {
    let owner = c.api.job(above).view.job.clone();
    let mut view = JobView { suspended: false, active: true, ..job("team-a", name, queue, 2, "1") };
    view.job.kind = kind;
    view.controller = Some(ControllerRef {
        api_version: owner.kind.api_version().to_owned(),
        kind: owner.kind.kind().to_owned(),
        name: above.to_owned(),
        uid: owner.uid.to_string(),
    });
    c.api.add_job(view);
    c.api.edit_job(name, |job| job.started_by_user = true);
}

fn workloads(c: &Cluster) -> Vec<String> {
    c.api.workloads().iter().filter_map(|w| w.metadata.name.clone()).collect()
}

/// Whether the JobSet and its Job run, which name these queues themselves.
fn run_below(quota: &str, queues: [&str; 2], config: EngineConfig) -> [bool; 2] {
    let mut c = cluster(quota, config);
    made(&mut c, JobKind::JOB_SET, "set", queues[0], "wrapper");
    made(&mut c, JobKind::JOB, "set-main-0", queues[1], "set");
    c.advance(60);
    let [only] = &workloads(&c)[..] else { unreachable!("one Workload, not {:?}", workloads(&c)) };
    assert!(only.starts_with("appwrapper-wrapper-"), "{only}");
    ["set", "set-main-0"].map(|name| !c.api.job(name).view.suspended)
}

#[test]
fn what_is_in_an_appwrapper_runs_when_that_is_admitted_and_not_before() {
    for queues in [["", ""], ["lq", ""], ["lq", "lq"], ["", "lq"]] {
        for unnamed in [false, true] {
            let config =
                || EngineConfig { manage_jobs_without_queue_name: unnamed, ..EngineConfig::default() };
            assert_eq!(run_below("2", queues, config()), [true, true], "{queues:?} {unnamed}");
            assert_eq!(run_below("1", queues, config()), [false, false], "{queues:?} {unnamed}");
        }
    }
}

#[test]
fn what_only_claims_to_be_in_it_has_a_workload_of_its_own() {
    for (kind, name) in [(JobKind::JOB, "set"), (JobKind::JOB_SET, "another")] {
        let mut c = cluster("2", EngineConfig::default());
        made(&mut c, kind, name, "lq", "wrapper");
        c.advance(60);
        assert_eq!(workloads(&c).len(), 2, "{:?}", workloads(&c));
        assert!(c.api.job(name).view.suspended, "the quota is taken");
    }
}

#[test]
fn a_name_that_the_api_server_made_is_known_by_its_beginning() {
    let mut c = cluster("2", EngineConfig::default());
    c.api.edit_job("wrapper", |job| {
        let mut of = (*wrapped(JobKind::JOB, "made-")).clone();
        of.generates_name = true;
        job.view.pod_sets[0].wrapped = Some(of.into());
    });
    made(&mut c, JobKind::JOB, "made-x7f", "lq", "wrapper");
    made(&mut c, JobKind::JOB, "other-x7f", "lq", "wrapper");
    c.advance(60);
    assert!(!c.api.job("made-x7f").view.suspended);
    assert!(c.api.job("other-x7f").view.suspended);
}
