//! A TrainJob that another job's controller made has no Workload of its own: the JobSet that the trainer makes for it is compared with the TrainJob.

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobRef};
use sluice_engine::{EngineConfig, Purpose};

use crate::external;
use crate::model::Cluster;
use crate::model::build::wrapped;
use crate::templates::{RUNTIME, add_jobset, runs, runtime};
use crate::wrapped::cluster as around;

/// A TrainJob that is to run, made for another object.
fn add_trainjob(c: &mut Cluster, owner: &Value) {
    let object = json!({
        "metadata": {"name": "fit", "namespace": "team-a", "ownerReferences": [owner]},
        "spec": {"suspend": false, "runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}},
    });
    c.api.add_job(sluice_jobs::observe(JobKind::TRAIN_JOB, &object));
    c.settle();
}

/// The controller of an errand makes the TrainJob.
fn below_an_errand(manage_all: bool) -> Cluster {
    let mut c = external::cluster(manage_all);
    external::quota(&mut c, "2");
    c.api.put(RUNTIME, runtime("1"));
    external::parent(&mut c, "team-a", "big", "lq");
    let uid = external::uid(&c, "big");
    external::workload(&mut c, "team-a", "big", &uid);
    let owner =
        json!({"apiVersion": external::API, "kind": "Errand", "name": "big", "uid": uid, "controller": true});
    add_trainjob(&mut c, &owner);
    c
}

/// An AppWrapper that runs makes the TrainJob.
fn in_an_appwrapper(runtime: Value) -> Cluster {
    let config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    let mut c = around("2", config);
    c.api.put(RUNTIME, runtime);
    c.api.edit_job("wrapper", |job| {
        job.view.pod_sets[0].wrapped = Some(wrapped(JobKind::TRAIN_JOB, "fit"));
    });
    c.settle();
    let JobRef { kind, uid, .. } = c.api.job("wrapper").view.job.clone();
    let owner = json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "name": "wrapper", "uid": &*uid,
        "controller": true});
    add_trainjob(&mut c, &owner);
    c
}

/// Adds a JobSet of `count` pods; gives whether the TrainJob and the JobSet still run some time later.
fn with_jobset(c: &mut Cluster, count: i32, cpu: &str) -> [bool; 2] {
    add_jobset(c, count, cpu);
    c.advance(60);
    [JobKind::TRAIN_JOB, JobKind::JOB_SET].map(|kind| runs(c, kind))
}

#[test]
fn the_jobset_of_a_trainjob_that_is_a_part_runs_as_the_trainjob_says() {
    for manage_all in [false, true] {
        let mut c = below_an_errand(manage_all);
        assert_eq!(with_jobset(&mut c, 2, "1"), [true, true], "{manage_all}");
        assert_eq!(c.written(Purpose::SuspendJob), 0, "{manage_all}");
        assert_eq!(c.api.workloads().len(), 1, "that of the errand");
    }
    let mut c = in_an_appwrapper(runtime("1"));
    assert_eq!(with_jobset(&mut c, 2, "1"), [true, true]);
    assert_eq!(c.written(Purpose::SuspendJob), 0);
}

#[test]
fn a_jobset_with_other_pods_than_the_trainjob_above_it_does_not_run() {
    for (count, cpu) in [(3, "1"), (2, "2")] {
        let mut c = below_an_errand(false);
        assert_eq!(with_jobset(&mut c, count, cpu), [true, false], "{count} {cpu}");
        let mut c = in_an_appwrapper(runtime("1"));
        assert_eq!(with_jobset(&mut c, count, cpu), [true, false], "{count} {cpu}");
    }
}

/// What it asks for is not known: nothing else keeps its pods from running uncounted.
#[test]
fn a_trainjob_in_an_appwrapper_that_cannot_be_read_has_no_jobset_that_runs() {
    let mut empty = runtime("1");
    empty["spec"]["template"]["spec"]["replicatedJobs"] = json!([]);
    let mut c = in_an_appwrapper(empty);
    let [_, jobset] = with_jobset(&mut c, 2, "1");
    assert!(!jobset);
}
