//! Parents that other controllers manage (docs/reference/07-integrations.md 7.2, "External frameworks"): their jobs have no Workload of their own,
//! and do not run before the parent's Workload is admitted. A job that only claims such a parent is like any other job.

use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind, JobView};
use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::model::build::{job, made_by, template, wrapped};
use crate::model::{Cluster, condition};

pub const API: &str = "external.example.com/v1";

fn errand() -> JobKind {
    JobKind::external("Errand.v1.external.example.com").unwrap()
}

pub fn cluster(manage_all: bool) -> Cluster {
    let external = ["Errand.v1.external.example.com", "Tour.v1.external.example.com"];
    let mut c = Cluster::new(EngineConfig {
        status_interval_ms: 0,
        manage_jobs_without_queue_name: manage_all,
        external: external.iter().map(|entry| JobKind::external(entry).unwrap()).collect(),
        ..EngineConfig::default()
    });
    for team in ["team-a", "team-b"] {
        c.api.namespace(team, &[]);
    }
    c.api.simple("0", &json!({}));
    c.api.local_queue("team-b", "lq", "cq");
    c
}

pub fn quota(c: &mut Cluster, cpu: &str) {
    c.api.cluster_queue("cq", "default", cpu, &json!({}));
    c.settle();
}

/// An object without pods.
fn bare(kind: JobKind, namespace: &str, name: &str, queue: &str) -> JobView {
    let mut view = job(namespace, name, queue, 0, "0");
    view.job.kind = kind;
    view.pod_sets.clear();
    view
}

/// An errand.
pub fn parent(c: &mut Cluster, namespace: &str, name: &str, queue: &str) {
    c.api.add_job(bare(errand(), namespace, name, queue));
}

pub fn uid(c: &Cluster, name: &str) -> String {
    c.api.job(name).view.job.uid.to_string()
}

fn owner(kind: &str, name: &str, uid: &str) -> ControllerRef {
    let (name, uid) = (name.to_owned(), uid.to_owned());
    ControllerRef { api_version: API.to_owned(), kind: kind.to_owned(), name, uid }
}

/// A Job that runs, of an errand by that name and UID.
fn child(c: &mut Cluster, name: &str, queue: &str, of: (&str, &str)) {
    let mut child = job("team-a", name, queue, 1, "1");
    (child.suspended, child.active) = (false, true);
    child.controller = Some(owner("Errand", of.0, of.1));
    c.api.add_job(child);
    // The model knows of no jobs that run on the quota of others.
    c.api.edit_job(name, |job| job.started_by_user = true);
    c.settle();
}

/// The Workload that the controller of an errand makes for it.
pub fn workload(c: &mut Cluster, namespace: &str, name: &str, uid: &str) -> ObjectRef {
    let template = serde_json::to_value(template("1")).unwrap();
    let owner = json!({"apiVersion": API, "kind": "Errand", "name": name, "uid": uid, "controller": true});
    let made = c.api.put(
        Kind::Workload,
        json!({
            "metadata": {"name": format!("errand-{name}"), "namespace": namespace, "ownerReferences": [owner]},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
        }),
    );
    c.settle();
    made
}

fn resume(c: &mut Cluster, name: &str) {
    c.api.edit_job(name, |job| (job.view.suspended, job.started_by_user) = (false, true));
    c.settle();
}

fn held(c: &Cluster, name: &str) -> bool {
    c.api.job(name).view.suspended
}

#[test]
fn jobs_below_run_while_the_workload_of_their_parent_is_admitted_and_have_none() {
    let mut c = cluster(false);
    parent(&mut c, "team-a", "big", "lq");
    let of = uid(&c, "big");
    child(&mut c, "plain", "", ("big", &of));
    child(&mut c, "queued", "lq", ("big", &of));
    let both = ["plain", "queued"];
    assert!(both.iter().all(|name| held(&c, name)), "there is no Workload yet");
    assert_eq!(
        c.notes("Suspended"),
        both.map(|name| format!("Job/{name}: Kueue managed child job suspended"))
    );
    assert!(c.api.workloads().is_empty(), "neither has one, nor gets the errand one from us");

    let made = workload(&mut c, "team-a", "big", &of);
    for name in both {
        resume(&mut c, name);
    }
    assert!(both.iter().all(|name| held(&c, name)), "it waits for quota");

    quota(&mut c, "1");
    assert_eq!(condition(&c.workload("big"), "Admitted"), "True");
    for name in both {
        resume(&mut c, name);
    }
    assert!(both.iter().all(|name| !held(&c, name)));
    assert_eq!(c.api.workloads().len(), 1);

    // Another leader finds it so.
    c.restart();
    c.settle();
    assert!(both.iter().all(|name| !held(&c, name)));
    assert_eq!(c.api.workloads().len(), 1);

    // It is finished, or gone: what still runs is held.
    c.api.delete(&made);
    c.settle();
    assert!(both.iter().all(|name| held(&c, name)));
    assert!(c.api.workloads().is_empty());
}

#[test]
fn a_job_that_only_names_a_parent_is_queued_like_any_other() {
    let mut c = cluster(false);
    quota(&mut c, "1");
    parent(&mut c, "team-b", "elsewhere", "lq");
    let elsewhere = uid(&c, "elsewhere");
    workload(&mut c, "team-b", "elsewhere", &elsewhere);
    parent(&mut c, "team-a", "real", "lq");
    let real = uid(&c, "real");
    assert_eq!(condition(&c.workload("elsewhere"), "Admitted"), "True");
    for (name, of) in [
        ("another-namespace", ("elsewhere", elsewhere.as_str())),
        ("made-up", ("nothing", "none")),
        ("another-uid", ("real", "none")),
        ("another-name", ("nothing", real.as_str())),
    ] {
        child(&mut c, name, "lq", of);
        assert!(held(&c, name), "{name}: it may yet be seen");
        c.advance(11);
        assert!(held(&c, name), "{name}: there is no quota left");
        assert_eq!(condition(&c.workload(name), "QuotaReserved"), "False", "{name}");
    }
    // The kind of an owner is part of its name.
    let mut other = job("team-a", "another-kind", "lq", 1, "1");
    (other.suspended, other.active) = (false, true);
    other.controller = Some(owner("Tour", "real", &real));
    c.api.add_job(other);
    c.advance(11);
    assert!(held(&c, "another-kind"));
    assert_eq!(condition(&c.workload("another-kind"), "QuotaReserved"), "False");
}

#[test]
fn a_version_that_is_not_served_makes_no_parent_and_hides_none() {
    let mut c = cluster(false);
    parent(&mut c, "team-a", "big", "lq");
    let of = uid(&c, "big");
    let mut versions = Vec::new();
    for (name, uid) in [("real", of.as_str()), ("forged", "none")] {
        let mut job = job("team-a", name, "lq", 1, "1");
        (job.suspended, job.active) = (false, true);
        job.controller = Some(owner("Errand", "big", uid));
        job.controller.as_mut().unwrap().api_version = "external.example.com/v9".to_owned();
        c.api.add_job(job);
        c.advance(11);
        versions.push(c.api.workloads_of(&self::uid(&c, name)).len());
    }
    assert!(held(&c, "real") && held(&c, "forged"));
    assert_eq!(versions, [0, 1], "the UID is the errand's, or it is none of it");
}

#[test]
fn a_workload_of_another_namespace_is_not_that_of_the_parent() {
    let mut c = cluster(false);
    quota(&mut c, "9");
    parent(&mut c, "team-a", "big", "lq");
    let of = uid(&c, "big");
    let forged = workload(&mut c, "team-b", "big", &of);
    assert_eq!(c.api.json(&forged).unwrap()["status"]["conditions"][0]["status"], "True");
    child(&mut c, "child", "lq", ("big", &of));
    assert!(held(&c, "child"));
}

#[test]
fn a_parent_without_a_queue_manages_nothing_unless_all_jobs_are_managed() {
    for manage_all in [false, true] {
        let mut c = cluster(manage_all);
        quota(&mut c, "1");
        parent(&mut c, "team-a", "free", "");
        let of = uid(&c, "free");
        child(&mut c, "plain", "", ("free", &of));
        child(&mut c, "queued", "lq", ("free", &of));
        assert_eq!(held(&c, "plain"), manage_all);
        assert_eq!(held(&c, "queued"), manage_all, "by itself it is admitted at once");
        assert_eq!(c.api.workloads().len(), usize::from(!manage_all));
    }
}

#[test]
fn changes_of_a_parent_are_seen() {
    let mut c = cluster(false);
    quota(&mut c, "1");
    // A job that is older than its parent.
    child(&mut c, "child", "lq", ("big", "uid-0100"));
    c.advance(11);
    assert!(!held(&c, "child"), "it has quota of its own");
    let mut late = bare(errand(), "team-a", "big", "lq");
    late.job.uid = "uid-0100".into();
    late.resource_version = "900".to_owned();
    let seen =
        |view: &JobView| sluice_engine::Input::Applied(sluice_engine::Object::Job(Box::new(view.clone())));
    c.engine.apply(c.now, seen(&late));
    c.settle();
    assert!(held(&c, "child") && c.api.workloads().is_empty(), "now it has none");

    // An older state of it that comes late changes nothing; then it loses its queue.
    let mut older = late.clone();
    (older.queue_name, older.resource_version) = (None, "899".to_owned());
    c.engine.apply(c.now, seen(&older));
    c.settle();
    assert!(held(&c, "child") && c.api.workloads().is_empty());
    older.resource_version = "901".to_owned();
    c.engine.apply(c.now, seen(&older));
    c.settle();
    assert_eq!(c.api.workloads().len(), 1, "it is queued by itself");
    late.resource_version = "902".to_owned();
    c.engine.apply(c.now, seen(&late));
    c.settle();
    assert!(held(&c, "child") && c.api.workloads().is_empty());

    // It is gone; or another one has its name.
    let object = ObjectRef::namespaced(Kind::Job(errand()), "team-a", "big");
    c.engine.apply(c.now, sluice_engine::Input::Deleted { object, uid: Some("another".into()) });
    c.settle();
    assert!(c.api.workloads().is_empty());
    (late.job.uid, late.resource_version) = ("uid-0101".into(), "903".to_owned());
    c.engine.apply(c.now, seen(&late));
    c.settle();
    assert_eq!(c.api.workloads().len(), 1);
    // A list without it says the same.
    (late.job.uid, late.resource_version) = ("uid-0100".into(), "904".to_owned());
    c.engine.apply(c.now, seen(&late));
    c.settle();
    assert!(c.api.workloads().is_empty());
    c.list(Kind::Job(errand()), Vec::new(), 905);
    c.settle();
    assert_eq!(c.api.workloads().len(), 1);
}

#[test]
fn the_highest_managed_parent_counts_and_only_what_may_have_made_the_others() {
    let tour = JobKind::external("Tour.v1.external.example.com").unwrap();
    let mut c = cluster(false);
    quota(&mut c, "1");
    // A tour makes an errand, which makes a job.
    c.api.add_job(bare(tour, "team-a", "top", "lq"));
    let mut between = bare(errand(), "team-a", "between", "lq");
    between.controller = Some(owner("Tour", "top", &uid(&c, "top")));
    c.api.add_job(between);
    let of = uid(&c, "between");
    let made = workload(&mut c, "team-a", "between", &of);
    child(&mut c, "child", "lq", ("between", &of));
    assert!(held(&c, "child"), "that of the tour counts");
    c.api.delete(&made);
    c.settle();
    let top = uid(&c, "top");
    let made = workload(&mut c, "team-a", "top", &top);
    resume(&mut c, "child");
    assert!(!held(&c, "child"));
    c.api.delete(&made);
    c.settle();
    assert!(held(&c, "child"), "through the errand");

    // An AppWrapper counts if it wraps the errand, and a JobSet, which makes none, does not.
    for (kind, wraps) in [(JobKind::APP_WRAPPER, true), (JobKind::JOB_SET, false)] {
        let name = kind.plural();
        let mut above = job("team-a", name, "lq", 1, "1");
        above.job.kind = kind;
        if wraps {
            above.pod_sets[0].wrapped = Some(wrapped(errand(), &format!("in-{name}")));
        }
        c.api.add_job(above);
        c.settle();
        assert_eq!(condition(&c.workload(name), "Admitted"), "True");
        let mut within = bare(errand(), "team-a", &format!("in-{name}"), "lq");
        within.controller = Some(made_by(&c.api.job(name).view));
        c.api.add_job(within);
        let of = uid(&c, &format!("in-{name}"));
        child(&mut c, &format!("below-{name}"), "lq", (&format!("in-{name}"), &of));
        assert_eq!(held(&c, &format!("below-{name}")), !wraps, "{kind:?}");
        c.api.delete(&ObjectRef::namespaced(Kind::Job(kind), "team-a", name));
        let left: Vec<_> = c.api.names(Kind::Workload);
        for workload in left {
            c.api.edit(&workload, &json!({"metadata": {"finalizers": []}}));
            c.api.delete(&workload);
        }
        c.settle();
    }
}

#[test]
fn parents_in_a_circle_or_too_many_end_the_search() {
    let mut c = cluster(false);
    quota(&mut c, "1");
    for (name, above) in [("one", "uid-two"), ("two", "uid-one")] {
        let mut view = bare(errand(), "team-a", name, "");
        view.job.uid = format!("uid-{name}").into();
        view.resource_version = "900".to_owned();
        view.controller = Some(owner("Errand", if name == "one" { "two" } else { "one" }, above));
        let seen = sluice_engine::Input::Applied(sluice_engine::Object::Job(Box::new(view)));
        c.engine.apply(c.now, seen);
    }
    child(&mut c, "child", "lq", ("one", "uid-one"));
    assert!(held(&c, "child"), "it is managed, and has no Workload");
    let depth =
        "Job/child: Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10";
    assert_eq!(c.notes("JobNestingTooDeep").first().map(String::as_str), Some(depth));
}
