//! Jobs that become unreadable: they hold no quota if they cannot start, and do not affect other jobs.

use serde_json::json;
use sluice_api::job::{JobKind, JobView};
use sluice_engine::EngineConfig;

use crate::answered::errand;
use crate::kinds::restart_with;
use crate::model::build::job;
use crate::model::played::Disobeys;
use crate::model::{Api, Cluster, condition, reported};
use crate::readiness::wait;
use crate::sources::prebuilt;
use crate::templates::{RUNTIME, runtime};

/// A queue with one processor.
fn bed() -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("1", &json!({}));
    c
}

/// The same where this kind is queued, too.
fn bed_with(kind: JobKind) -> Cluster {
    let mut c = bed();
    restart_with(&mut c, kind);
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
fn one_that_its_run_makes_unreadable_is_started_less_and_less_often() {
    let kind = declared();
    let mut c = bed_with(kind);
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

/// A job of this kind runs, and another waits for its quota.
fn full(kind: JobKind) -> Cluster {
    let mut c = bed_with(kind);
    add(&mut c, "broken", kind);
    add(&mut c, "next", JobKind::JOB);
    assert!(runs(&c, "broken") && !runs(&c, "next"), "{kind:?}");
    c
}

#[test]
fn a_stop_takes_out_what_the_start_put_in_although_the_job_cannot_be_read() {
    for kind in [JobKind::RAY_CLUSTER, JobKind::PYTORCH_JOB, JobKind::SPARK_APPLICATION, declared()] {
        for restarted in [false, true] {
            let mut c = full(kind);
            c.api.edit_job("broken", |job| {
                job.view.pod_sets.clear();
                job.view.invalid = Some("spec: required".to_owned());
            });
            if restarted {
                restart_with(&mut c, kind);
            }
            c.settle();
            let (view, back) = c.stops.last().unwrap();
            let [had] = &view.pod_sets[..] else { unreachable!("{kind:?}: {:?}", view.pod_sets) };
            assert_eq!(had.scheduling.node_selector["pool"], "default", "{kind:?} {restarted}");
            assert!(
                had.scheduling.annotations.contains_key("kueue.x-k8s.io/workload"),
                "{kind:?} {restarted}"
            );
            assert_eq!(back[0].name, had.name);
            assert_eq!(back[0].scheduling, c.api.job("broken").original[0], "{kind:?} {restarted}");
            // It is pinned to what is there now.
            let seen = (&view.invalid, &*view.resource_version);
            assert_eq!(seen.0.as_deref(), Some("spec: required"));
            if kind == declared() {
                let body = sluice_jobs::stop(view, back)[0].patch.body();
                assert_eq!(body["spec"]["template"]["spec"]["nodeSelector"], json!(null));
                assert_eq!(body["metadata"]["resourceVersion"], json!(seen.1));
                assert!(body["spec"]["template"].as_object().unwrap().contains_key("metadata"), "{body}");
            }
        }
    }
}

/// Nothing can be read of its status.
fn unread(view: &mut JobView) {
    view.invalid = Some("declared active: it takes more than 200000 steps".to_owned());
    (view.active, view.activity_unknown, view.status_unread) = (true, true, true);
    view.pods_ready = false;
}

/// A job runs whose status alone cannot be read.
fn runs_blind() -> Cluster {
    let mut c = full(declared());
    c.api.edit_job("broken", |job| {
        unread(&mut job.view);
        job.disobeys = Disobeys::MakesOthers;
    });
    c.settle();
    c
}

#[test]
fn one_whose_status_alone_cannot_be_read_runs_on() {
    let mut c = runs_blind();
    c.advance(600);
    assert!(runs(&c, "broken") && !runs(&c, "next"));
    assert_eq!(condition(&c.workload("broken"), "Admitted"), "True");
    let [reported] = &c.notes("ErrWorkloadCompose")[..] else { unreachable!() };
    assert!(reported.ends_with("/broken: declared active: it takes more than 200000 steps"), "{reported}");
    // It ends by itself once it can be read again.
    c.api.edit_job("broken", |job| {
        (job.view.invalid, job.view.activity_unknown, job.view.status_unread) = (None, false, false);
    });
    c.api.finish_job("broken", true);
    c.settle();
    assert!(runs(&c, "next"));
}

#[test]
fn pods_whose_status_cannot_be_read_are_as_ready_as_they_were() {
    let kind = declared();
    let mut c = wait(|_| ());
    restart_with(&mut c, kind);
    add(&mut c, "broken", kind);
    c.api.edit_job("broken", |job| job.view.pods_ready = true);
    c.settle();
    c.api.edit_job("broken", |job| unread(&mut job.view));
    c.advance(600);
    assert!(runs(&c, "broken"));
    assert_eq!(condition(&c.workload("broken"), "PodsReady"), "True");
}

#[test]
fn one_whose_status_alone_cannot_be_read_is_stopped_when_its_pods_are_others() {
    let mut c = runs_blind();
    c.api.edit_job("broken", |job| job.view.pod_sets[0].count = 2);
    c.settle();
    assert!(!runs(&c, "broken"));
}

/// A job that was stopped, of which it is not known whether it has pods: because it was evicted, or because nothing of it can be read.
fn stopped_blind(evicted: bool, pods: bool) -> Cluster {
    let mut c = runs_blind();
    if evicted {
        let workload = Api::workload_ref(&c.workload("broken"));
        c.api.edit(&workload, &json!({"spec": {"active": false}}));
    } else {
        c.api.edit_job("broken", |job| {
            job.view.pod_sets.clear();
            job.view.status_unread = false;
        });
    }
    c.settle();
    assert!(!runs(&c, "broken"));
    c.api.edit_job("broken", |job| job.pods = pods);
    c.advance(29);
    assert!(!runs(&c, "next"), "it may have pods");
    c
}

#[test]
fn where_a_status_does_not_say_whether_there_are_pods_a_list_of_them_does() {
    for evicted in [false, true] {
        let mut c = stopped_blind(evicted, false);
        c.advance(5);
        assert!(runs(&c, "next"), "none were found; evicted: {evicted}");
        let mut c = stopped_blind(evicted, true);
        c.advance(600);
        assert!(!runs(&c, "next"), "they are made again; evicted: {evicted}");
        c.api.edit_job("broken", |job| (job.disobeys, job.pods) = (Disobeys::Always, false));
        c.advance(600);
        assert!(runs(&c, "next"), "evicted: {evicted}");
    }
}

/// `old` waits on a Workload that its user made, or runs on it; another waits behind it.
fn on_prebuilt(kind: JobKind, waits: bool) -> Cluster {
    let mut c = bed_with(kind);
    if waits {
        add(&mut c, "first", JobKind::JOB);
    }
    prebuilt(&mut c, "mine", 1);
    let mut view = job("team-a", "broken", "lq", 1, "1");
    (view.job.kind, view.prebuilt_workload) = (kind, Some("mine".to_owned()));
    c.api.add_job(view);
    c.settle();
    assert_eq!(runs(&c, "broken"), !waits, "{kind:?}");
    add(&mut c, "next", JobKind::JOB);
    c
}

const OUT_OF_SYNC: &str = "True/OutOfSync: The prebuilt workload is out of sync with its user job";

#[test]
fn a_prebuilt_workload_takes_no_quota_for_a_job_that_cannot_be_read() {
    for kind in [JobKind::JOB, JobKind::RAY_JOB, JobKind::PYTORCH_JOB] {
        let mut c = on_prebuilt(kind, true);
        drop(break_it(&mut c, "broken"));
        c.api.finish_job("first", true);
        c.advance(60);
        assert!(runs(&c, "next") && !runs(&c, "broken"), "{kind:?}");
        assert_eq!(reported(&c.workload("broken"), "Finished"), OUT_OF_SYNC, "{kind:?}");
    }
}

#[test]
fn a_prebuilt_workload_is_released_when_its_job_is_stopped_because_it_cannot_be_read() {
    for deleted in [false, true] {
        let mut c = on_prebuilt(JobKind::PYTORCH_JOB, false);
        c.pods_vanish = false;
        drop(break_it(&mut c, "broken"));
        let workload = Api::workload_ref(&c.workload("broken"));
        if deleted {
            c.api.delete(&workload);
        }
        c.advance(5);
        assert!(!runs(&c, "broken") && !runs(&c, "next"), "its pods are there");
        c.pods_vanish = true;
        c.advance(60);
        assert!(runs(&c, "next"), "{deleted}");
        assert_eq!(workloads_of(&c, "broken"), usize::from(!deleted));
    }
}

#[test]
fn a_prebuilt_workload_is_finished_when_the_template_of_its_job_goes() {
    let mut c = bed();
    let template = c.api.put(RUNTIME, runtime("1"));
    add(&mut c, "first", JobKind::JOB);
    let object = json!({
        "metadata": {"name": "fit", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "runtimeRef": {"kind": "TrainingRuntime", "name": "torch"},
            "trainer": {"numNodes": 1}},
    });
    let view = sluice_jobs::observe(JobKind::TRAIN_JOB, &object);
    c.api.add_job(view.clone());
    c.settle();
    // Its user makes the same.
    let mut spec = json!(c.workload("fit").spec);
    spec["queueName"] = json!("lq");
    c.api.delete_job("fit");
    c.settle();
    c.api.put(sluice_engine::Kind::Workload, json!({
        "metadata": {"name": "mine", "namespace": "team-a", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": spec,
    }));
    c.api.add_job(JobView { prebuilt_workload: Some("mine".to_owned()), ..view });
    c.settle();
    assert_eq!(condition(&c.workload("fit"), "QuotaReserved"), "False");
    c.api.delete(&template);
    c.settle();
    c.api.finish_job("first", true);
    c.settle();
    assert_eq!(reported(&c.workload("fit"), "Finished"), OUT_OF_SYNC);
    assert!(!runs(&c, "fit"));
}

#[test]
fn one_that_keeps_running_is_preempted_like_any_other() {
    for kind in [JobKind::JOB, JobKind::JOB_SET] {
        for deleted in [false, true] {
            let mut c = full(kind);
            drop(break_it(&mut c, "broken"));
            assert!(runs(&c, "broken"), "{kind:?}");
            let workload = Api::workload_ref(&c.workload("broken"));
            if deleted {
                c.api.delete(&workload);
            } else {
                c.api.edit(&workload, &json!({"spec": {"active": false}}));
            }
            c.advance(60);
            assert!(!runs(&c, "broken") && runs(&c, "next"), "{kind:?} {deleted}");
        }
    }
}
