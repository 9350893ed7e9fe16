//! Jobs in an AppWrapper, and jobs that their controllers make, have no Workload: only the AppWrapper has one.

use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind, JobView, WrappedPods};
use sluice_engine::EngineConfig;

use crate::model::build::{job, pod_set, wrapped};
use crate::model::{Cluster, reported};

/// An AppWrapper of two pods around a JobSet, in a queue with room for `quota`.
pub fn cluster(quota: &str, config: EngineConfig) -> Cluster {
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

/// The wrapper's job has a name that the API server makes, and the namespace has a default queue.
fn with_generated_name() -> Cluster {
    let mut c = cluster("2", EngineConfig::default());
    c.api.local_queue("team-a", "default", "cq");
    c.api.edit_job("wrapper", |job| {
        let mut of = (*wrapped(JobKind::JOB, "made-")).clone();
        of.generates_name = true;
        job.view.pod_sets[0].wrapped = Some(of.into());
    });
    c
}

#[test]
fn of_those_that_begin_as_a_name_that_the_api_server_makes_only_the_oldest_is_believed() {
    for queue in ["lq", ""] {
        let mut c = with_generated_name();
        made(&mut c, JobKind::JOB, "made-x7f", queue, "wrapper");
        c.advance(60);
        made(&mut c, JobKind::JOB, "made-b2c", queue, "wrapper");
        made(&mut c, JobKind::JOB, "made-evil", queue, "wrapper");
        c.advance(60);
        let suspended = ["made-x7f", "made-b2c", "made-evil"].map(|name| c.api.job(name).view.suspended);
        assert_eq!(suspended, [false, true, true], "{queue:?}");
    }
}

/// A finalizer of its user may keep it for as long as the user likes.
#[test]
fn a_wrapped_job_that_is_being_deleted_counts_until_its_pods_are_gone() {
    for has_pods in [true, false] {
        let mut c = with_generated_name();
        made(&mut c, JobKind::JOB, "made-x7f", "", "wrapper");
        c.advance(60);
        assert!(!c.api.job("made-x7f").view.suspended);
        c.api.edit_job("made-x7f", |job| (job.view.deleting, job.view.active) = (true, has_pods));
        made(&mut c, JobKind::JOB, "made-b2c", "", "wrapper");
        c.advance(60);
        assert_eq!(c.api.job("made-b2c").view.suspended, has_pods);
    }
}

/// An AppWrapper that runs, around a JobSet that runs; whether it is known what the JobSet asks for by itself.
fn running(knows_sizes: bool) -> Cluster {
    let mut c = cluster("2", EngineConfig::default());
    if knows_sizes {
        c.api.edit_job("wrapper", |job| {
            let set = &mut job.view.pod_sets[0];
            let mut of = (**set.wrapped.as_ref().unwrap()).clone();
            let (name, requests_hash) = ("main".to_owned(), pod_set("main", 2, "1").requests_hash);
            of.sizes = Some(vec![WrappedPods { name, count: 2, requests_hash }]);
            set.wrapped = Some(of.into());
        });
    }
    made(&mut c, JobKind::JOB_SET, "set", "", "wrapper");
    c.advance(60);
    assert!(!c.api.job("set").view.suspended && !c.api.job("wrapper").view.suspended);
    c
}

/// A change of what is wrapped.
type Edit = fn(&mut JobView);

fn evicted(c: &Cluster) -> String {
    reported(&c.workload("wrapper"), "Evicted")
}

#[test]
fn what_is_in_an_appwrapper_runs_with_no_more_than_was_declared() {
    let more = |job: &mut JobView| job.pod_sets[0].count = 5;
    let larger = |job: &mut JobView| job.pod_sets = vec![pod_set("main", 2, "3")];
    let another = |job: &mut JobView| job.pod_sets.push(pod_set("another", 1, "1"));
    let unreadable = |job: &mut JobView| {
        job.pod_sets.clear();
        job.invalid = Some("why".to_owned());
    };
    let edits: [(Edit, [&str; 2]); 4] = [
        (more, ["has 5 pods of \"main\", and 2 were declared"; 2]),
        (
            larger,
            [
                "has 2 pods of \"main\", and 0 were declared",
                "has pods of \"main\" whose requests differ from the declared ones",
            ],
        ),
        (
            another,
            ["has 3 pods of \"main\", and 2 were declared", "has 1 pods of \"another\", and 0 were declared"],
        ),
        (unreadable, ["cannot be read: why"; 2]),
    ];
    for (edit, reported) in edits {
        for (knows_sizes, reported) in [false, true].into_iter().zip(reported) {
            let mut c = running(knows_sizes);
            c.api.edit_job("set", |job| {
                edit(&mut job.view);
                job.view.generation += 1;
            });
            c.settle();
            assert!(c.api.job("set").view.suspended, "{reported}");
            assert_eq!(evicted(&c), format!("True/OutOfSync: spec.components[0]: JobSet \"set\" {reported}"));
            assert!(c.api.job("wrapper").view.suspended, "{reported}");
        }
    }
}

/// Its controller makes the components one after the other, and all again after it was resumed by hand: each as the spec has it then.
#[test]
fn an_appwrapper_that_is_changed_so_that_it_cannot_be_read_is_stopped_each_time() {
    let mut c = running(true);
    c.api.edit_job("wrapper", |job| {
        job.view.pod_sets.clear();
        job.view.invalid =
            Some("spec.components[0].template.spec.template changed after its controller read it".to_owned());
        job.view.generation += 1;
    });
    for _ in 0..3 {
        c.settle();
        assert!(c.api.job("wrapper").view.suspended);
        c.api.edit_job("wrapper", |job| (job.view.suspended, job.started_by_user) = (false, true));
    }
    c.settle();
    assert!(c.api.job("wrapper").view.suspended);
}

#[test]
fn fewer_pods_than_were_declared_may_run() {
    let mut c = running(true);
    c.api.edit_job("set", |job| job.view.pod_sets[0].count = 1);
    c.advance(60);
    assert_eq!(evicted(&c), "");
    assert!(!c.api.job("set").view.suspended);
}

#[test]
fn an_appwrapper_that_ran_with_more_is_queued_again_later_each_time() {
    let mut c = running(true);
    let grow = |c: &mut Cluster, count: i32| {
        c.api.edit_job("set", |job| {
            job.view.pod_sets[0].count = count;
            job.view.generation += 1;
        });
        c.settle();
    };
    for wait in [10, 20, 40] {
        grow(&mut c, 5);
        assert!(evicted(&c).starts_with("True/OutOfSync"), "{}", evicted(&c));
        grow(&mut c, 2);
        c.advance(wait - 2);
        assert!(c.api.job("wrapper").view.suspended, "{wait}");
        c.advance(5);
        assert!(!c.api.job("wrapper").view.suspended, "{wait}");
    }
}

/// Each group is within what was declared; there are more of them.
#[test]
fn groups_that_a_wrapped_leader_worker_set_gets_later_have_the_appwrapper_evicted() {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.frameworks.insert(JobKind::LEADER_WORKER_SET);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("4", &json!({}));
    let mut wrapper = job("team-a", "wrapper", "lq", 4, "1");
    wrapper.job.kind = JobKind::APP_WRAPPER;
    wrapper.pod_sets[0].wrapped = Some(wrapped(JobKind::LEADER_WORKER_SET, "set"));
    c.api.add_job(wrapper);
    c.settle();
    made(&mut c, JobKind::LEADER_WORKER_SET, "set", "", "wrapper");
    c.api.edit_job("set", |job| job.view.groups = Some(2));
    c.advance(60);
    assert_eq!(evicted(&c), "");
    c.api.edit_job("set", |job| {
        (job.view.groups, job.view.generation) = (Some(3), job.view.generation + 1);
    });
    c.settle();
    let reported = "spec.components[0]: LeaderWorkerSet \"set\" has 6 pods of \"main\", and 4 were declared";
    assert_eq!(evicted(&c), format!("True/OutOfSync: {reported}"));
    assert!(c.api.job("wrapper").view.suspended);
}
