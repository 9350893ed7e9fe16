//! Pods of an object of a declared kind that no field suspends.

use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gate;
use sluice_api::job::{JobFinished, JobKind};
use sluice_api::v1beta2::Workload;
use sluice_engine::Kind;
use sluice_jobs::pods::Parent;

use crate::model::pods::pod;
use crate::model::{Cluster, condition, reported};
use crate::plain_pods::{add_high, bed};

const GROUP: &str = "engine.gated.example.com";

/// A kind with a coordinator and workers.
pub fn kind() -> JobKind {
    let declaration = json!({
        "group": GROUP, "version": "v1", "kind": "Crew",
        "suspend": {"gatesPods": true},
        "podSets": [
            {"name": "coordinator", "template": "spec.coordinator"},
            {"name": "worker", "template": "spec.worker", "countPath": "spec.workers"},
        ],
        "active": "self.status.running > 0",
        "finished": "self.status.phase == 'Done'",
    });
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"declared": [declaration]},
    });
    let (configuration, _) = Configuration::parse(&configuration.to_string()).unwrap();
    sluice_jobs::declare(&configuration).unwrap();
    JobKind::named(&format!("{GROUP}/crew")).unwrap()
}

/// A queue with so much cpu, and an object with a coordinator and two workers of one cpu each; the UID of that.
fn with_crew(cpu: &str) -> (Cluster, String) {
    let kind = kind();
    let mut c = bed(cpu);
    c.config.frameworks.insert(kind);
    c.restart();
    let (present, revision) = (Vec::new(), c.api.revision());
    c.list(Kind::Job(kind), present, revision);
    let template = json!({
        "metadata": {
            "labels": {"kueue.x-k8s.io/managed": "true"},
            "annotations": {"kueue.x-k8s.io/pod-suspending-parent": kind.framework()},
        },
        "spec": {"containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]},
    });
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(),
        "metadata": {
            "name": "crew", "namespace": "team-a", "uid": "u-crew", "generation": 1,
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {"coordinator": template, "worker": template, "workers": 2},
    });
    c.api.add_job(sluice_jobs::observe(kind, &object));
    c.settle();
    let uid = c.api.job("crew").view.job.uid.to_string();
    (c, uid)
}

/// A pod as the webhook leaves it.
fn one(name: &str, role: &str, uid: &str) -> Value {
    let mut pod = pod(name, "lq", "1");
    let metadata = &mut pod["metadata"];
    metadata.as_object_mut().unwrap().remove("finalizers");
    metadata["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] = json!(kind().framework());
    metadata["annotations"]["kueue.x-k8s.io/role-hash"] = json!(role);
    metadata["ownerReferences"] = json!([{
        "apiVersion": format!("{GROUP}/v1"), "kind": "Crew", "name": "crew", "uid": uid, "controller": true,
    }]);
    assert_eq!(Parent::of(metadata).unwrap().kind, kind());
    pod
}

const PODS: [(&str, &str); 3] = [("crew-0", "coordinator"), ("crew-1", "worker"), ("crew-2", "worker")];

fn make(c: &mut Cluster, uid: &str) {
    for (name, role) in PODS {
        c.api.add_pod(one(name, role, uid));
    }
    c.settle();
}

fn free(c: &Cluster) -> [bool; 3] {
    PODS.map(|(name, _)| c.api.is_free(name))
}

#[test]
fn its_pods_of_all_roles_run_once_the_one_workload_is_admitted_until_it_has_finished() {
    let (mut c, uid) = with_crew("3");
    let is_own = |w: &Workload| w.metadata.name.as_ref().unwrap().starts_with("crew-crew-");
    let workload = |c: &Cluster| c.api.workloads().into_iter().find(is_own).unwrap();
    let counts: Vec<_> = workload(&c).spec.pod_sets.iter().map(|set| (set.name.clone(), set.count)).collect();
    assert_eq!(counts, [("coordinator".to_owned(), 1), ("worker".to_owned(), 2)]);
    make(&mut c, &uid);
    assert_eq!(free(&c), [true; 3]);
    // One more worker than it has quota for waits, and so does one of a role that it has no more pods of.
    c.api.add_pod(one("more", "worker", &uid));
    c.api.add_pod(one("second", "coordinator", &uid));
    c.settle();
    assert!(c.api.is_gated("more") && c.api.is_gated("second"));
    for name in ["more", "second"] {
        c.api.delete_queued_pod(name);
    }
    for (name, _) in PODS {
        c.api.run_pod(name, "Running");
    }
    c.settle();
    c.api.add_pod(pod("next", "lq", "3"));
    // Its pods end before its controller says that it did: the quota is still its own.
    for (name, _) in PODS {
        c.api.run_pod(name, "Succeeded");
    }
    c.settle();
    assert_eq!(condition(&workload(&c), "Finished"), "");
    assert!(c.api.is_gated("next"));
    c.api.edit_job("crew", |job| {
        job.view.finished = Some(JobFinished { success: true, message: "the crew is home".to_owned() });
    });
    c.settle();
    let done = workload(&c);
    assert!(reported(&done, "Finished").contains("the crew is home"), "{}", reported(&done, "Finished"));
    assert!(c.api.is_free("next"));
}

#[test]
fn what_matters_more_takes_its_quota_once_its_pods_are_gone() {
    let (mut c, uid) = with_crew("3");
    running(&mut c, &uid);
    c.pods_vanish = false;
    add_high(&mut c, "3");
    assert!(c.api.is_gated("high"), "its pods are still there");
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.pod("crew-0").is_none() && c.api.is_free("high"));
    make(&mut c, &uid);
    assert_eq!(free(&c), [false; 3]);
    c.api.run_pod("high", "Succeeded");
    c.settle();
    assert_eq!(free(&c), [true; 3]);
    c.api.delete_job("crew");
    for (name, _) in PODS {
        c.api.delete_queued_pod(name);
    }
    c.settle();
    let mut left = c.api.workloads().into_iter();
    assert!(left.all(|workload| condition(&workload, "Finished") == "True"), "nothing is left of it");
}

/// The gate is off unless it is asked for.
#[test]
fn an_end_that_is_reported_while_pods_terminate_counts_at_once_only_with_the_gate() {
    for fast in [false, true] {
        let (mut c, uid) = with_crew("3");
        c.config.gates = c.config.gates.with(Gate::FastQuotaReleaseInPodIntegration, fast);
        c.restart();
        let (present, revision) = (c.api.names(Kind::Job(kind())), c.api.revision());
        c.list(Kind::Job(kind()), present, revision);
        running(&mut c, &uid);
        c.pods_vanish = false;
        for (name, _) in PODS {
            c.api.delete_queued_pod(name);
        }
        c.api.edit_job("crew", |job| {
            job.view.finished = Some(JobFinished { success: true, message: "the crew is home".to_owned() });
        });
        c.settle();
        assert_eq!(condition(&c.api.workloads()[0], "Finished"), if fast { "True" } else { "" });
        assert!(c.api.pod("crew-0").is_some(), "its pods are there");
        c.pods_vanish = true;
        c.settle();
        assert_eq!(condition(&c.api.workloads()[0], "Finished"), "True");
    }
}

/// The pods of the crew run.
fn running(c: &mut Cluster, uid: &str) {
    make(c, uid);
    for (name, _) in PODS {
        c.api.run_pod(name, "Running");
    }
    c.settle();
}

#[test]
fn an_end_that_is_reported_while_pods_run_neither_frees_quota_nor_keeps_it() {
    let (mut c, uid) = with_crew("3");
    running(&mut c, &uid);
    c.api.edit_job("crew", |job| {
        job.view.finished = Some(JobFinished { success: true, message: "a lie".to_owned() });
    });
    c.api.add_pod(pod("next", "lq", "3"));
    c.settle();
    assert!(c.api.is_gated("next") && free(&c) == [true; 3], "its pods run");
    add_high(&mut c, "3");
    assert!(c.api.is_free("high") && c.api.pod("crew-0").is_none(), "they are stopped as those of others");
}

#[test]
fn pods_that_were_started_and_do_not_run_yet_keep_their_quota_beyond_the_reported_end() {
    let (mut c, uid) = with_crew("3");
    make(&mut c, &uid);
    c.api.edit_job("crew", |job| {
        job.view.finished = Some(JobFinished { success: true, message: "a lie".to_owned() });
    });
    c.api.add_pod(pod("next", "lq", "3"));
    c.settle();
    assert!(c.api.is_gated("next"), "they may begin to run at any time");
    for (name, _) in PODS {
        c.api.run_pod(name, "Succeeded");
    }
    c.settle();
    assert!(c.api.is_free("next"));
}

/// The crew cannot be read any more; gives what mends it.
fn break_it(c: &mut Cluster) -> impl FnOnce(&mut Cluster) + use<> {
    let pods = c.api.job("crew").view.pod_sets.clone();
    c.api.edit_job("crew", |job| {
        job.view.pod_sets.clear();
        job.view.invalid = Some("declared active: must be true or false".to_owned());
    });
    c.settle();
    move |c: &mut Cluster| {
        c.api.edit_job("crew", |job| (job.view.pod_sets, job.view.invalid) = (pods, None));
        c.settle();
    }
}

#[test]
fn pods_of_what_cannot_be_read_any_more_run_on_until_their_workload_is_evicted() {
    let (mut c, uid) = with_crew("3");
    running(&mut c, &uid);
    let mend = break_it(&mut c);
    c.advance(60);
    assert_eq!(free(&c), [true; 3], "they are those that were admitted");
    assert_eq!(c.notes("ErrWorkloadCompose"), ["Crew/crew: declared active: must be true or false"]);
    // No other starts, and quota is not given to others.
    c.api.add_pod(one("more", "worker", &uid));
    c.api.add_pod(pod("next", "lq", "3"));
    c.settle();
    assert!(c.api.is_gated("more") && c.api.is_gated("next"));
    c.api.delete_queued_pod("more");
    c.api.delete_queued_pod("next");
    c.pods_vanish = false;
    add_high(&mut c, "3");
    assert!(c.api.is_gated("high"), "its pods are still there");
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.is_free("high") && c.api.pod("crew-0").is_none());
    make(&mut c, &uid);
    c.api.run_pod("high", "Succeeded");
    c.settle();
    assert_eq!(free(&c), [false; 3], "it is not queued as long as it cannot be read");
    assert!(!c.api.workloads().iter().any(|w| w.metadata.name.as_ref().unwrap().starts_with("crew-crew-")));
    mend(&mut c);
    c.advance(1);
    assert_eq!(free(&c), [true; 3]);
}

#[test]
fn what_waits_and_cannot_be_read_any_more_holds_no_quota() {
    let (mut c, uid) = with_crew("3");
    let mend = break_it(&mut c);
    make(&mut c, &uid);
    assert_eq!(free(&c), [false; 3]);
    c.api.add_pod(pod("next", "lq", "3"));
    c.settle();
    assert!(c.api.is_free("next"));
    mend(&mut c);
    c.advance(1);
    assert_eq!(free(&c), [false; 3]);
    c.api.run_pod("next", "Succeeded");
    c.settle();
    assert_eq!(free(&c), [true; 3]);
}
