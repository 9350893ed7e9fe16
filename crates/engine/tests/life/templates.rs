//! Jobs whose pods are determined by another object: TrainJobs and their runtimes.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, TemplateKind};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::model::build::{job, made_by, pod_set};
use crate::model::{Cluster, condition};

pub const RUNTIME: Kind = Kind::Template(TemplateKind::TRAINING_RUNTIME);

/// A runtime whose nodes ask for `cpu` processors.
pub fn runtime(cpu: &str) -> Value {
    let pod = json!({"containers": [{"name": "node", "resources": {"requests": {"cpu": cpu}}}]});
    let labels = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let node = json!({"name": "node", "template": {"metadata": labels, "spec": {"template": {"spec": pod}}}});
    json!({
        "metadata": {"name": "torch", "namespace": "team-a"},
        "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [node]}}},
    })
}

/// A TrainJob in a queue with room for `quota` processors.
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
    let reported = c.notes("ErrWorkloadCompose");
    assert_eq!(reported, ["TrainJob/fit: spec.runtimeRef: TrainingRuntime team-a/torch does not exist"]);
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
pub fn add_jobset(c: &mut Cluster, count: i32, cpu: &str) {
    let mut view = job("team-a", "fit", "", count, cpu);
    view.job.kind = JobKind::JOB_SET;
    view.pod_sets = vec![pod_set("node", count, cpu)];
    (view.suspended, view.active) = (false, true);
    view.controller = Some(made_by(&c.api.job("fit").view));
    c.api.add_job(view);
}

/// The job of this kind, if it is there.
fn state(c: &Cluster, kind: JobKind) -> Option<&JobView> {
    let object = ObjectRef::namespaced(Kind::Job(kind), "team-a", "fit");
    c.api.jobs().find(|(of, _)| **of == object).map(|(_, job)| &job.view)
}

pub fn runs(c: &Cluster, kind: JobKind) -> bool {
    state(c, kind).is_some_and(|view| !view.suspended)
}

/// A cluster with an admitted TrainJob of two pods.
fn admitted() -> Cluster {
    let mut c = cluster("2");
    c.api.put(RUNTIME, runtime("1"));
    add_trainjob(&mut c);
    c
}

#[test]
fn a_part_with_other_pods_than_were_admitted_is_made_again_before_the_job_starts() {
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
    c.api.put(RUNTIME, runtime("1"));
    add_trainjob(&mut c);
    add_jobset(&mut c, 3, "1");
    c.advance(1);
    assert!(!runs(&c, JobKind::JOB_SET) && state(&c, JobKind::JOB_SET).is_some());
    c.api.simple("2", &json!({}));
    c.advance(5);
    assert!(runs(&c, JobKind::TRAIN_JOB) && state(&c, JobKind::JOB_SET).is_none());
    assert_eq!(c.notes("Stopped"), [""; 0]);
}

#[test]
fn a_job_that_runs_by_other_pods_than_were_admitted_is_stopped() {
    let mut c = admitted();
    c.settle();
    add_jobset(&mut c, 3, "1");
    c.settle();
    assert!(!runs(&c, JobKind::JOB_SET));
    assert_eq!(c.notes("Stopped"), ["TrainJob/fit: It runs pods that differ from the admitted ones"]);
}

#[test]
fn a_part_that_its_controller_makes_with_other_pods_again_and_again_is_deleted_less_and_less_often() {
    let mut c = admitted();
    for _ in 0..600 {
        if state(&c, JobKind::JOB_SET).is_none() {
            add_jobset(&mut c, 3, "1");
        }
        c.advance(1);
        assert!(!runs(&c, JobKind::JOB_SET));
    }
    let (deletions, starts) = (c.written(Purpose::ReplacePart), c.written(Purpose::StartJob));
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

#[test]
fn a_job_that_is_held_back_for_other_pods_reacts_to_all_else_at_once() {
    let mut c = admitted();
    for _ in 0..300 {
        if state(&c, JobKind::JOB_SET).is_none() {
            add_jobset(&mut c, 3, "1");
        }
        c.advance(1);
    }
    let admitted_by = |c: &Cluster| condition(&c.api.workloads()[0], "Admitted");
    assert!(!runs(&c, JobKind::TRAIN_JOB), "it is held back, for up to a minute");
    assert_eq!(admitted_by(&c), "True");
    let policy = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&queue, &policy("HoldAndDrain"));
    c.advance(1);
    assert_eq!(admitted_by(&c), "False", "its quota is given back at once");
    c.api.edit(&queue, &policy("None"));
    c.advance(1);
    assert_eq!(admitted_by(&c), "True");
    assert!(!runs(&c, JobKind::TRAIN_JOB), "and it is still held back");
    c.advance(90);
    assert!(runs(&c, JobKind::TRAIN_JOB));
    assert!(c.written(Purpose::ReplacePart) > 3 && c.written(Purpose::UpdateChild) == 0);
}

/// A runtime of this name, of `bytes` bytes, whose nodes ask for a processor.
fn large_runtime(name: &str, bytes: usize) -> Value {
    let mut runtime = runtime("1");
    runtime["metadata"]["name"] = json!(name);
    let job = &mut runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"];
    job["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": "x".repeat(bytes)}]);
    runtime
}

/// A TrainJob that names it.
fn user(c: &mut Cluster, name: &str, queue: &str, runtime: &str) {
    let object = json!({
        "metadata": {"name": name, "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"suspend": true, "runtimeRef": {"kind": "TrainingRuntime", "name": runtime}},
    });
    c.api.add_job(sluice_jobs::observe(JobKind::TRAIN_JOB, &object));
}

#[test]
fn templates_that_no_managed_job_names_take_no_room_from_those_that_one_does() {
    let mut c = cluster("4");
    for number in 0..4_200 {
        let name = format!("unused-{number:04}");
        c.api.put(RUNTIME, json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": {}}));
    }
    // That it is named by a job without a queue makes no difference.
    user(&mut c, "unmanaged", "", "unused-4199");
    c.api.put(RUNTIME, runtime("1"));
    c.settle();
    add_trainjob(&mut c);
    assert!(!c.api.job("fit").view.suspended, "it was read when a job named it");
    let reads = |c: &Cluster| c.notes("ErrWorkloadCompose").len();
    assert_eq!(reads(&c), 1, "{:?}", c.notes("ErrWorkloadCompose"));
    assert!(
        c.notes("ErrWorkloadCompose")[0]
            .contains("is not known: it does not exist, or the limit of 4096 template objects")
    );
    // It is kept, and its changes are seen.
    c.restart();
    c.settle();
    assert_eq!(asks(&c), "1");
    assert!(!c.api.job("fit").view.suspended);
    // One that does not exist is looked for once in a while.
    user(&mut c, "lost", "lq", "nothing");
    c.settle();
    let note = c.notes("ErrWorkloadCompose").pop().unwrap();
    assert!(note.starts_with("TrainJob/lost: ") && note.contains("nothing is not known"), "{note}");
    c.advance(600);
    assert!(c.api.job("lost").view.suspended);
    c.api.put(RUNTIME, large_runtime("nothing", 1));
    c.advance(61);
    assert!(!c.api.job("lost").view.suspended);
}

#[test]
fn jobs_that_name_more_bytes_of_templates_than_are_kept_say_so_and_follow_when_there_is_room() {
    const BYTES: usize = 250 << 10;
    const FIT: usize = (16 << 20) / (BYTES + 1_000);
    let mut c = cluster("0");
    c.checked = false;
    let names: Vec<_> = (0..FIT + 3).map(|number| format!("fit-{number}")).collect();
    for name in &names {
        user(&mut c, name, "lq", name);
        c.api.put(RUNTIME, large_runtime(name, BYTES));
    }
    c.settle();
    assert_eq!(c.api.workloads().len(), FIT, "three are beyond 16 MiB");
    let reported = c.notes("ErrWorkloadCompose");
    let beyond: BTreeSet<_> = reported.iter().filter(|note| note.contains("16777216 bytes")).collect();
    assert_eq!(beyond.len(), 3, "{reported:?}");
    // The first ones go with their runtimes.
    let is_kept = |name: &&String| !c.api.workloads_of(&c.api.job(name).view.job.uid).is_empty();
    let kept: Vec<_> = names.iter().filter(is_kept).take(3).collect();
    for name in kept {
        c.api.delete(&ObjectRef::namespaced(Kind::Job(JobKind::TRAIN_JOB), "team-a", name.as_str()));
        c.api.delete(&ObjectRef::namespaced(RUNTIME, "team-a", name.as_str()));
    }
    c.settle();
    let all = c.api.jobs().all(|(_, job)| !c.api.workloads_of(&job.view.job.uid).is_empty());
    assert!(all, "there is room for them now");
}

/// What the template says is not known for a moment: a Workload that its user made is not ended for that.
#[test]
fn a_prebuilt_workload_outlives_that_the_template_of_its_job_is_not_kept_at_first() {
    let mut c = cluster("0");
    for number in 0..4_096 {
        let name = format!("unused-{number:04}");
        c.api.put(RUNTIME, json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": {}}));
    }
    user(&mut c, "fit", "lq", "wanted");
    c.api.put(RUNTIME, large_runtime("wanted", 1));
    c.settle();
    let mut spec = json!(c.workload("fit").spec);
    spec["queueName"] = json!("lq");
    let view = c.api.job("fit").view.clone();
    c.api.delete_job("fit");
    c.settle();
    c.api.put(Kind::Workload, json!({"metadata": {"name": "mine", "namespace": "team-a"}, "spec": spec}));
    c.api.add_job(JobView { prebuilt_workload: Some("mine".to_owned()), ..view });
    c.settle();
    assert_eq!(c.workload("fit").metadata.name.as_deref(), Some("mine"));
    c.restart_without(&[Kind::Job(JobKind::TRAIN_JOB)]);
    let before = c.notes("ErrWorkloadCompose").len();
    c.api.edit_job("fit", |job| job.view.generation += 1);
    c.settle();
    let notes = c.notes("ErrWorkloadCompose");
    assert!(
        notes[before..].iter().any(|note| note.contains("wanted is not known")),
        "{:?}",
        &notes[before..]
    );
    c.api.simple("2", &json!({}));
    c.settle();
    assert_eq!(condition(&c.workload("fit"), "Admitted"), "True");
}
