//! Pods that succeeded, released their quota, and run again: their controller restarts the whole job.

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::EngineConfig;

use crate::model::build::job;
use crate::model::{Cluster, condition, reported};

/// A queue with these processors, in which `a` holds one of the three that it began with; `b` has two.
fn with(quota: &str) -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple(quota, &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    reports(&mut c, 2, 1);
    c.api.add_job(job("team-a", "b", "lq", 2, "1"));
    c.settle();
    assert!(!c.api.job("b").view.suspended);
    c
}

/// The job `a` reports `ended` pods that ended well and will not come again, and `running` that run.
fn reports(c: &mut Cluster, ended: i32, running: i32) {
    let of = |pods: i32| if pods > 0 { vec![("main".to_owned(), pods)] } else { Vec::new() };
    c.api.edit_job("a", |job| (job.view.reclaimable, job.view.running) = (of(ended), of(running)));
    c.settle();
}

fn given_back(c: &Cluster) -> i32 {
    let status = c.workload("a").status.unwrap();
    status.reclaimable_pods.iter().map(|one| one.count).sum()
}

#[test]
fn a_job_whose_pods_run_again_is_evicted() {
    let mut c = with("4");
    reports(&mut c, 0, 3);
    let why = "True/OutOfSync: 3 pods of \"main\" run, but quota covers only 1; the quota of the other pods was released";
    assert_eq!(reported(&c.workload("a"), "Evicted"), why);
    assert!(c.api.job("a").view.suspended && !c.api.job("b").view.suspended);
    c.api.finish_job("b", true);
    c.advance(30);
    assert!(!c.api.job("a").view.suspended, "it is queued again");
    assert_eq!(given_back(&c), 0);
}

#[test]
fn a_status_that_forgets_what_ended_changes_nothing_while_nothing_runs_again() {
    let mut c = with("4");
    for (ended, running) in [(0, 1), (1, 1), (2, 0), (0, 0)] {
        reports(&mut c, ended, running);
        assert_eq!((given_back(&c), condition(&c.workload("a"), "Evicted")), (2, String::new()));
    }
}

/// Its program sets their number itself, and Spark makes others in the place of executors that are leaving.
#[test]
fn an_application_with_more_executors_than_it_says_is_evicted_unless_they_are_replaced() {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.config.frameworks.insert(JobKind::SPARK_APPLICATION);
    c.api.namespace("team-a", &[]);
    c.restart();
    c.api.simple("4", &json!({}));
    let mut spark = job("team-a", "a", "lq", 2, "1");
    spark.job.kind = JobKind::SPARK_APPLICATION;
    c.api.add_job(spark);
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    for (running, seconds) in [(2, 600), (4, 50), (2, 600), (5, 50)] {
        reports(&mut c, 0, running);
        c.advance(seconds);
        assert_eq!(condition(&c.workload("a"), "Evicted"), "", "{running} run");
    }
    c.advance(11);
    let why = "True/OutOfSync: 5 pods of \"main\" run, but quota covers only 2";
    assert_eq!(reported(&c.workload("a"), "Evicted"), why);
    assert!(c.api.job("a").view.suspended);
}
