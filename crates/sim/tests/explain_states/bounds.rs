//! Answers from incomplete knowledge: failed reads, objects that are being deleted, exceeded time.

use std::cell::Cell;

use sluice_sim::live::Unread;

use super::*;

const GOING: &str = "2026-01-01T00:00:00Z";

/// The answer to the leader about the Workload of the world, after a change of what was read.
fn changed(world: &str, change: impl FnOnce(&mut Manifests)) -> Explained {
    let simulation = cluster(world);
    let (reference, workload) = simulation.objects(Kind::Workload).next().unwrap();
    let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    let mut manifests = read(world);
    manifests.subject = Some(Subject { workload: Some(workload.clone()), ..Subject::default() });
    change(&mut manifests);
    Question { live: Some(&account), decides: true, ..question(&manifests, &reference.name) }
        .answer()
        .unwrap()
}

/// A job that is too large for the quota.
fn waits() -> String {
    [
        FLAVOR,
        CLUSTER_QUEUE,
        LOCAL_QUEUE,
        &JOB.replace("parallelism: 4", "parallelism: 40").replace("completions: 4", "completions: 40"),
    ]
    .concat()
}

fn unread(what: &'static str) -> Unread {
    Unread { what, why: "pods is forbidden".to_owned() }
}

#[test]
pub fn what_could_not_be_read_is_said_and_the_rest_is_answered() {
    let explained = changed(&waits(), |manifests| {
        let subject = manifests.subject.as_mut().unwrap();
        subject.unread = vec![unread("pods"), unread("events"), unread("jobs")];
    });
    let text = explained.text();
    assert_eq!(
        codes(&explained),
        [Code::TooLarge, Code::PodsUnread, Code::EventsUnread, Code::ObjectsUnread],
        "{text}"
    );
    assert!(text.contains("    pods: pods is forbidden\n") && !explained.incomplete, "{text}");
    // What it can be tried in is there.
    assert!(explained.remedies.iter().any(|remedy| remedy.effect == Effect::Starts), "{text}");
}

#[test]
pub fn nothing_is_tried_in_a_world_that_is_not_known_and_nothing_is_said_to_be_missing() {
    let explained = changed(&waits(), |manifests| {
        manifests.objects.retain(|m| matches!(m.kind, Kind::Job(_)));
        manifests.unread =
            ["localqueues", "clusterqueues", "resourceflavors", "nodes", "workloads"].map(unread).into();
    });
    let text = explained.text();
    assert_eq!(codes(&explained), [Code::TooLarge, Code::ObjectsUnread, Code::NodesUnread], "{text}");
    assert!(explained.incomplete && explained.forecast.is_none(), "{text}");
    assert!(explained.no_forecast.unwrap().starts_with("not everything around it could be read"), "{text}");
    assert!(explained.remedies.iter().all(|remedy| remedy.effect == Effect::Untried), "{text}");
    // Of a job without a Workload nothing is guessed, either.
    let mut manifests = read("");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine", "namespace": "a", "uid": "j",
        "labels": {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "high"}}, "spec": {"suspend": true}});
    manifests.subject = Some(Subject { job: Some(job), ..Subject::default() });
    manifests.unread = ["localqueues", "workloadpriorityclasses", "namespaces"].map(unread).into();
    let explained = ask(&manifests, options());
    assert_eq!(codes(&explained), [Code::WithoutWorkload, Code::ObjectsUnread], "{}", explained.text());
}

#[test]
pub fn what_is_being_deleted_has_no_estimate_and_says_what_holds_it() {
    let going = json!({"deletionTimestamp": GOING, "finalizers": ["kueue.x-k8s.io/resource-in-use", "example.com/mine"]});
    let explained = changed(&world(), |manifests| {
        let subject = manifests.subject.as_mut().unwrap();
        let metadata = subject.workload.as_mut().unwrap()["metadata"].as_object_mut().unwrap();
        metadata.extend(going.as_object().unwrap().clone());
        subject.workload.as_mut().unwrap()["status"] = json!({});
    });
    let text = explained.text();
    assert_eq!(codes(&explained)[0], Code::BeingDeleted, "{text}");
    assert!(
        text.contains("held by the finalizers kueue.x-k8s.io/resource-in-use, example.com/mine"),
        "{text}"
    );
    assert_eq!(
        (explained.forecast, explained.no_forecast.as_deref()),
        (None, Some("it is being deleted")),
        "{text}"
    );
    // So it is when its job goes.
    let explained = changed(&world(), |manifests| {
        let job = json!({"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": "mine", "namespace": "a", "uid": "j", "deletionTimestamp": GOING}});
        let subject = manifests.subject.as_mut().unwrap();
        subject.workload.as_mut().unwrap()["status"] = json!({});
        subject.job = Some(job);
    });
    assert_eq!((codes(&explained)[0], explained.forecast.is_none()), (Code::BeingDeleted, true));
    assert!(explained.text().contains("the Job mine is being deleted"), "{}", explained.text());
}

#[test]
fn queues_flavors_and_cohorts_that_are_being_deleted_are_reported() {
    let cohort = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: team}
spec: {parentName: team}
---
";
    let queue = CLUSTER_QUEUE.replace("spec:\n", "spec:\n  cohortName: team\n");
    let world = [cohort, FLAVOR, &queue, LOCAL_QUEUE, JOB].concat();
    for (kind, code, blocks) in [
        (Kind::LocalQueue, Code::LocalQueueTerminating, true),
        (Kind::ClusterQueue, Code::ClusterQueueTerminating, true),
        (Kind::Cohort, Code::CohortTerminating, false),
        (Kind::ResourceFlavor, Code::FlavorTerminating, false),
    ] {
        let explained = changed(&world, |manifests| {
            manifests.subject.as_mut().unwrap().workload.as_mut().unwrap()["status"] = json!({});
            let own = manifests.objects.iter_mut().filter(|m| m.kind == kind);
            for manifest in own {
                let metadata = &mut manifest.object["metadata"];
                metadata["deletionTimestamp"] = json!(GOING);
                metadata["finalizers"] = json!(["example.com/holds"]);
            }
        });
        let text = explained.text();
        assert!(codes(&explained).contains(&code), "{text}");
        assert!(text.contains("held by the finalizers example.com/holds"), "{text}");
        let reported = explained.no_forecast.as_deref() == Some("a person or program has to act first");
        assert_eq!(reported, blocks, "{kind:?}: {text}");
    }
}

#[test]
pub fn a_namespace_that_is_being_deleted_is_reported_and_the_same_job_runs_in_another() {
    let namespace =
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\nspec: {finalizers: [kubernetes]}\n---\n";
    let held = world().replace("clusterQueue: cq", "clusterQueue: cq, stopPolicy: Hold");
    let explained = changed(&[namespace, &held].concat(), |manifests| {
        let own = manifests.objects.iter_mut().filter(|m| m.kind == Kind::Namespace);
        for manifest in own {
            manifest.object["metadata"]["deletionTimestamp"] = json!(GOING);
        }
    });
    let text = explained.text();
    assert!(codes(&explained).contains(&Code::NamespaceTerminating), "{text}");
    assert!(
        text.contains(": no new pods can be created in it") && text.contains("use another namespace"),
        "{text}"
    );
    assert!(text.contains("held by the finalizers kubernetes"), "{text}");
    assert_eq!(explained.no_forecast.as_deref(), Some("a person or program has to act first"), "{text}");
    carried_out(&explained, "use another namespace");
    let elsewhere = [LOCAL_QUEUE, JOB].concat().replace("namespace: a", "namespace: b");
    assert!(runs(&cluster(&[FLAVOR, CLUSTER_QUEUE, &elsewhere].concat())), "{text}");
}

#[test]
fn what_was_not_tried_in_time_is_said_to_be_untried() {
    let (asked, manifests) = (Cell::new(0), read(&waits()));
    let over = || {
        asked.set(asked.get() + 1);
        true
    };
    let explained =
        Question { patience: Patience::until(&over), ..question(&manifests, "mine") }.answer().unwrap();
    let text = explained.text();
    assert!(asked.get() > 0 && explained.incomplete, "{text}");
    assert!(explained.remedies.iter().any(|remedy| remedy.effect == Effect::TimeOver), "{text}");
    assert!(text.contains("what may help (not tried: time was over):"), "{text}");
    for remedy in &explained.remedies {
        assert!(!remedy.text.contains("starts now") && !remedy.text.contains("not enough"), "{text}");
        assert_ne!(remedy.effect, Effect::NotEnough);
    }
    // What ends a finding is not said to be too little, only because there was no time.
    let stopped = world().replace("namespaceSelector: {}", "namespaceSelector: {}\n  stopPolicy: Hold");
    let manifests = read(&stopped);
    let explained =
        Question { patience: Patience::until(&over), ..question(&manifests, "mine") }.answer().unwrap();
    let resume = remedy(&explained, "resume the ClusterQueue cq");
    assert_eq!(resume.effect, Effect::TimeOver, "{}", explained.text());
}
