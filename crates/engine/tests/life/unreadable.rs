//! Jobs that become what cannot be read: they hold no quota for what cannot start, and disturb no other.

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{EngineConfig, Kind};

use crate::answered::errand;
use crate::model::build::job;
use crate::model::{Cluster, condition};

/// A queue with one processor.
fn bed() -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("1", &json!({}));
    c
}

fn add(c: &mut Cluster, name: &str, kind: JobKind) {
    let mut view = job("team-a", name, "lq", 1, "1");
    view.job.kind = kind;
    c.api.add_job(view);
    c.settle();
}

/// Makes a job unreadable; gives what mends it.
fn break_it(c: &mut Cluster, name: &str) -> impl FnOnce(&mut Cluster) + use<> {
    let pods = c.api.job(name).view.pod_sets.clone();
    c.api.edit_job(name, |job| {
        job.view.pod_sets.clear();
        job.view.invalid = Some("spec: required".to_owned());
    });
    c.settle();
    let name = name.to_owned();
    move |c: &mut Cluster| {
        c.api.edit_job(&name, |job| (job.view.pod_sets, job.view.invalid) = (pods, None));
        c.settle();
        c.advance(1);
    }
}

fn workloads_of(c: &Cluster, name: &str) -> usize {
    c.api.workloads_of(&c.api.job(name).view.job.uid).len()
}

fn runs(c: &Cluster, name: &str) -> bool {
    !c.api.job(name).view.suspended
}

#[test]
fn one_that_waits_loses_its_workload_and_is_queued_again_once_it_is_mended() {
    for kind in [JobKind::JOB, JobKind::RAY_JOB, JobKind::RAY_SERVICE] {
        let mut c = bed();
        add(&mut c, "runs", JobKind::JOB);
        add(&mut c, "broken", kind);
        let mend = break_it(&mut c, "broken");
        assert_eq!((workloads_of(&c, "broken"), runs(&c, "broken")), (0, false), "{kind:?}");
        assert_eq!(
            c.notes("ErrWorkloadCompose"),
            [format!("{}/broken: spec: required", kind.kind())],
            "{kind:?}"
        );
        assert!(runs(&c, "runs"), "{kind:?}");
        // What comes later is not held up by it.
        add(&mut c, "later", JobKind::JOB);
        c.api.delete_job("runs");
        c.settle();
        assert!(runs(&c, "later") && !runs(&c, "broken"), "{kind:?}");
        mend(&mut c);
        assert_eq!(condition(&c.workload("broken"), "QuotaReserved"), "False", "{kind:?}");
        c.api.delete_job("later");
        c.settle();
        assert!(runs(&c, "broken"), "{kind:?}");
    }
}

#[test]
fn one_that_is_stopped_for_it_gives_its_quota_to_others() {
    for kind in [JobKind::RAY_JOB, JobKind::RAY_SERVICE, JobKind::PYTORCH_JOB] {
        let mut c = bed();
        add(&mut c, "broken", kind);
        add(&mut c, "next", JobKind::JOB);
        assert!(runs(&c, "broken") && !runs(&c, "next"), "{kind:?}");
        let mend = break_it(&mut c, "broken");
        c.advance(1);
        assert!(!runs(&c, "broken") && runs(&c, "next"), "{kind:?}");
        assert_eq!(workloads_of(&c, "broken"), 0, "{kind:?}");
        mend(&mut c);
        assert_eq!(condition(&c.workload("broken"), "QuotaReserved"), "False", "{kind:?}");
        assert!(!runs(&c, "broken") && runs(&c, "next"), "{kind:?}");
    }
}

#[test]
fn one_whose_controller_follows_no_change_runs_on_with_its_quota() {
    let mut c = bed();
    add(&mut c, "broken", JobKind::JOB);
    drop(break_it(&mut c, "broken"));
    c.advance(60);
    assert!(runs(&c, "broken"));
    assert_eq!(condition(&c.workload("broken"), "Admitted"), "True");
}

/// A kind whose run makes it unreadable: its status says how many pods it has.
fn declared() -> JobKind {
    let pod_set = json!({"name": "main", "template": "spec.template", "count": "self.status.wanted"});
    errand("engine.unreadable.example.com", &pod_set)
}

#[test]
fn one_that_its_run_makes_unreadable_is_started_ever_more_seldom() {
    let kind = declared();
    let mut c = bed();
    c.config.frameworks.insert(kind);
    c.restart();
    let revision = c.api.revision();
    c.list(Kind::Job(kind), Vec::new(), revision);
    add(&mut c, "flaps", kind);
    assert!(runs(&c, "flaps"));
    // As long as it runs its controller says what cannot be read, and once it is stopped what can.
    let mut ran = 0;
    for _ in 0..3_600 {
        if runs(&c, "flaps") {
            ran += 1;
            let mend = break_it(&mut c, "flaps");
            assert!(!runs(&c, "flaps"));
            mend(&mut c);
        }
        c.advance(1);
    }
    assert!((5..30).contains(&ran), "{ran}");
    let reported = c.notes("ErrWorkloadCompose");
    assert!(reported.iter().any(|note| {
        note.ends_with("/flaps: The job could not be read while it ran: it is queued again after a while")
    }));
    assert!(reported.len() < 60, "{}", reported.len());
    // Others have the quota meanwhile.
    while runs(&c, "flaps") {
        drop(break_it(&mut c, "flaps"));
    }
    add(&mut c, "other", JobKind::JOB);
    c.advance(10);
    assert!(runs(&c, "other"));
}
