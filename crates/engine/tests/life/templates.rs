//! Jobs whose pods another object decides: TrainJobs and their runtimes.

use serde_json::{Value, json};
use sluice_api::job::{ControllerRef, JobKind, JobView, TemplateKind};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::model::build::{job, pod_set};
use crate::model::{Cluster, condition};

const RUNTIME: Kind = Kind::Template(TemplateKind::TRAINING_RUNTIME);

/// A runtime whose nodes ask for so many processors.
fn runtime(cpu: &str) -> Value {
    let pod = json!({"containers": [{"name": "node", "resources": {"requests": {"cpu": cpu}}}]});
    let labels = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let node = json!({"name": "node", "template": {"metadata": labels, "spec": {"template": {"spec": pod}}}});
    json!({
        "metadata": {"name": "torch", "namespace": "team-a"},
        "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [node]}}},
    })
}

/// A TrainJob in a queue with room for so many processors.
fn cluster(quota: &str) -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple(quota, &json!({}));
    c
}

fn add_trainjob(c: &mut Cluster) {
    let object = json!({
        "metadata": {"name": "fit", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "runtimeRef": {"kind": "TrainingRuntime", "name": "torch"}},
    });
    c.api.add_job(sluice_jobs::observe(JobKind::TRAIN_JOB, &object));
    c.settle();
}

/// What the node of the TrainJob's Workload asks for.
fn asks(c: &Cluster) -> String {
    let workload = json!(c.workload("fit"));
    let container = &workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0];
    container["resources"]["requests"]["cpu"].as_str().unwrap().to_owned()
}

#[test]
fn a_job_without_its_template_says_so_and_is_taken_in_when_it_comes() {
    let mut c = cluster("2");
    add_trainjob(&mut c);
    assert_eq!(c.api.workloads().len(), 0);
    assert!(c.api.job("fit").view.suspended);
    let told = c.notes("ErrWorkloadCompose");
    assert_eq!(told, ["spec.runtimeRef: TrainingRuntime team-a/torch does not exist"]);
    c.api.put(RUNTIME, runtime("1"));
    c.settle();
    assert!(!c.api.job("fit").view.suspended);
    assert_eq!(asks(&c), "1");
}

#[test]
fn a_job_that_waits_follows_its_template_and_loses_its_workload_with_it() {
    let mut c = cluster("1");
    c.api.put(RUNTIME, runtime("1"));
    add_trainjob(&mut c);
    assert_eq!(asks(&c), "1");
    let template = c.api.put(RUNTIME, runtime("3"));
    c.settle();
    assert_eq!(asks(&c), "3");
    c.api.delete(&template);
    c.settle();
    assert_eq!(c.api.workloads().len(), 0);
    assert!(c.api.job("fit").view.suspended);
    c.api.put(RUNTIME, runtime("500m"));
    c.settle();
    assert!(!c.api.job("fit").view.suspended, "there is room for this");
}

#[test]
fn a_job_that_runs_is_not_disturbed_by_its_template() {
    let mut c = cluster("2");
    c.api.put(RUNTIME, runtime("1"));
    add_trainjob(&mut c);
    c.api.edit_job("fit", |job| job.view.active = true);
    c.settle();
    let template = c.api.put(RUNTIME, runtime("9"));
    c.settle();
    let runs = |c: &Cluster| !c.api.job("fit").view.suspended && asks(c) == "1";
    assert!(runs(&c));
    c.restart();
    c.settle();
    assert!(runs(&c), "another manager finds it as it is");
    c.api.delete(&template);
    c.settle();
    c.restart();
    c.settle();
    assert!(runs(&c));
    c.api.edit_job("fit", |job| job.view.active = false);
    c.api.finish_job("fit", true);
    c.settle();
    assert_eq!(condition(&c.workload("fit"), "Finished"), "True");
}

/// A JobSet that a controller, or a user, made in the name of the TrainJob.
fn add_jobset(c: &mut Cluster, count: i32, cpu: &str) {
    let owner = c.api.job("fit").view.job.clone();
    let mut view = job("team-a", "fit", "", count, cpu);
    view.job.kind = JobKind::JOB_SET;
    view.pod_sets = vec![pod_set("node", count, cpu)];
    (view.suspended, view.active) = (false, true);
    view.controller = Some(ControllerRef {
        api_version: owner.kind.api_version().to_owned(),
        kind: owner.kind.kind().to_owned(),
        name: owner.name.to_string(),
        uid: owner.uid.to_string(),
    });
    c.api.add_job(view);
}

/// The job of this kind, if it is there.
fn state(c: &Cluster, kind: JobKind) -> Option<&JobView> {
    let object = ObjectRef::namespaced(Kind::Job(kind), "team-a", "fit");
    c.api.jobs().find(|(of, _)| **of == object).map(|(_, job)| &job.view)
}

fn runs(c: &Cluster, kind: JobKind) -> bool {
    state(c, kind).is_some_and(|view| !view.suspended)
}

/// A cluster with an admitted TrainJob of two pods. The model knows jobs by their names alone, and here two have the same.
fn admitted() -> Cluster {
    let mut c = cluster("2");
    c.pods_vanish = false;
    c.api.put(RUNTIME, runtime("1"));
    add_trainjob(&mut c);
    c
}

#[test]
fn a_part_with_other_pods_than_were_admitted_is_made_anew_before_the_job_starts() {
    for (count, cpu, stays) in [(2, "1", true), (1, "1", true), (3, "1", false), (2, "2", false)] {
        let mut c = admitted();
        add_jobset(&mut c, count, cpu);
        c.advance(5);
        assert_eq!(state(&c, JobKind::JOB_SET).is_some(), stays, "{count} {cpu}");
        assert_eq!(runs(&c, JobKind::JOB_SET), stays, "{count} {cpu}");
        assert!(runs(&c, JobKind::TRAIN_JOB), "{count} {cpu}");
    }
    // None at all before the admission, and then none but one as admitted.
    let mut c = cluster("1");
    c.pods_vanish = false;
    c.api.put(RUNTIME, runtime("1"));
    add_trainjob(&mut c);
    add_jobset(&mut c, 3, "1");
    c.advance(1);
    assert!(!runs(&c, JobKind::JOB_SET) && state(&c, JobKind::JOB_SET).is_some());
    c.api.simple("2", &json!({}));
    c.advance(5);
    assert!(runs(&c, JobKind::TRAIN_JOB) && state(&c, JobKind::JOB_SET).is_none());
    assert_eq!(c.notes("Stopped"), &[] as &[&str]);
}

#[test]
fn a_job_that_runs_by_other_pods_than_were_admitted_is_stopped() {
    let mut c = admitted();
    c.settle();
    add_jobset(&mut c, 3, "1");
    c.settle();
    assert!(!runs(&c, JobKind::JOB_SET));
    assert_eq!(c.notes("Stopped"), ["It runs other pods than were admitted"]);
}

#[test]
fn a_part_that_its_controller_makes_with_other_pods_again_and_again_is_deleted_ever_more_seldom() {
    let mut c = admitted();
    for _ in 0..600 {
        if state(&c, JobKind::JOB_SET).is_none() {
            add_jobset(&mut c, 3, "1");
        }
        c.advance(1);
        assert!(!runs(&c, JobKind::JOB_SET));
    }
    let (deletions, starts) = (c.written(Purpose::DeleteChild), c.written(Purpose::StartJob));
    assert!((5..=18).contains(&deletions) && starts <= 18, "{deletions} deletions, {starts} starts");
    // Once the part is as admitted, it runs.
    c.api.edit_job("fit", |job| {
        assert_eq!(job.view.job.kind, JobKind::JOB_SET);
        job.view.pod_sets = vec![pod_set("node", 2, "1")];
    });
    c.advance(120);
    assert!(runs(&c, JobKind::TRAIN_JOB));
    c.api.edit_job("fit", |job| job.view.suspended = false);
    c.advance(120);
    assert!(runs(&c, JobKind::JOB_SET) && runs(&c, JobKind::TRAIN_JOB));
}
