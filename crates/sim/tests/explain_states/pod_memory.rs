//! Objects that request many large pods in a few bytes: they are not simulated if there is not enough memory.

use sluice_sim::PodMemory;

use super::*;

/// Room for some pods, not for many large ones. Each counts as its text.
fn options_with_memory() -> Options {
    let pod_memory = Some(PodMemory { most: 8 << 20, weight: |document| document.to_string().len() });
    Options { pod_memory, ..options() }
}

/// An object of another team with `replicas` pods of 100 KiB each, as it was read.
fn large(kind: JobKind, replicas: u32) -> Manifest {
    let template = json!({
        "metadata": {"labels": {"app": "x"}, "annotations": {"example.com/notes": "x".repeat(100 << 10)}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
    });
    let mut spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}});
    if kind == JobKind::LEADER_WORKER_SET {
        spec["leaderWorkerTemplate"] = json!({"size": 4, "workerTemplate": template});
    } else {
        spec["template"] = template;
    }
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(), "spec": spec,
        "metadata": {"name": "large", "namespace": "b", "uid": "large-uid", "labels": {"kueue.x-k8s.io/queue-name": "other"}},
    });
    let source = Source { file: kind.plural().to_owned(), document: 1 };
    Manifest { source, kind: Kind::Job(kind), object }
}

/// A job of ours that waits for quota, beside the queue of another team.
fn waiting() -> Manifests {
    let other = LOCAL_QUEUE.replace("name: main, namespace: a", "name: other, namespace: b");
    let first = JOB
        .replace("name: mine", "name: first")
        .replace("parallelism: 4\n  completions: 4", "parallelism: 8\n  completions: 8");
    as_read(&cluster(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &other, &first, JOB].concat()))
}

fn pods(simulation: &Simulation) -> usize {
    simulation.objects(Kind::Job(JobKind::POD)).count()
}

#[test]
fn an_object_with_more_pods_than_the_memory_holds_is_left_out_and_the_rest_is_explained() {
    let usual = ask(&waiting(), options_with_memory());
    for kind in [JobKind::STATEFUL_SET, JobKind::DEPLOYMENT, JobKind::LEADER_WORKER_SET] {
        let mut manifests = waiting();
        manifests.objects.push(large(kind, 5_000));
        let simulation = sluice_sim::prepare(&manifests, &BTreeMap::new(), options_with_memory()).unwrap();
        assert_eq!((pods(&simulation), simulation.left_out().count), (0, 1), "{kind:?}");
        let why = &simulation.left_out().first[0].message;
        assert!(why.contains("of memory to simulate"), "{why}");
        let explained = ask(&manifests, options_with_memory());
        assert_eq!(explained.not_played, 1, "{kind:?}: {}", explained.text());
        assert_eq!(Explained { not_played: 0, ..explained }, usual, "{kind:?}");
    }
    // As many as there is room for are played: the bytes of all objects together count.
    let mut manifests = waiting();
    let mut small = large(JobKind::STATEFUL_SET, 40);
    manifests.objects.push(small.clone());
    (small.object["metadata"]["name"], small.object["metadata"]["uid"]) = (json!("second"), json!("2nd"));
    manifests.objects.push(small);
    let simulation = sluice_sim::prepare(&manifests, &BTreeMap::new(), options_with_memory()).unwrap();
    assert_eq!((pods(&simulation), simulation.left_out().count), (40, 1));
}

#[test]
fn a_change_to_more_pods_than_the_memory_holds_is_refused() {
    let mut manifests = waiting();
    manifests.objects.push(large(JobKind::STATEFUL_SET, 1));
    let asked = |options: Options, replicas: i64| {
        let kind = Some(Kind::Job(JobKind::STATEFUL_SET));
        let question =
            Question { options, namespace: "b", kind, all_namespaces: true, ..question(&manifests, "large") };
        question.what_if(&json!({"spec": {"replicas": replicas}})).unwrap()
    };
    let refused = |replicas: i64| asked(options_with_memory(), replicas).after.refused.unwrap();
    assert!(refused(20_000).contains("of memory to simulate"), "{}", refused(20_000));
    assert!(refused(2_000_000_000).contains("expected at most 20000 pods"), "{}", refused(2_000_000_000));
    assert_eq!(asked(options_with_memory(), 2).after.refused, None);
}

/// It has a Workload from when it was smaller.
#[test]
fn of_an_object_that_is_left_out_itself_what_is_known_is_said_and_nothing_is_tried() {
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &stateful_set(20)].concat();
    let simulation = cluster(&world);
    let (reference, workload) = simulation.objects(Kind::Workload).next().unwrap();
    let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    let mut manifests = as_read(&simulation);
    let (_, object) = simulation.objects(Kind::Job(JobKind::STATEFUL_SET)).next().unwrap();
    let mut object = object.clone();
    object["spec"]["replicas"] = json!(20_000);
    let source = Source { file: "statefulsets".to_owned(), document: 1 };
    let kind = Kind::Job(JobKind::STATEFUL_SET);
    manifests.objects.push(Manifest { source, kind, object: object.clone() });
    manifests.subject =
        Some(Subject { workload: Some(workload.clone()), job: Some(object), ..Subject::default() });
    let options = options_with_memory();
    let (at, live) = (SignedDuration::ZERO, Some(&account));
    let question = Question { options, at, live, decides: true, ..question(&manifests, &reference.name) };
    let explained = question.answer().unwrap();
    assert_eq!((explained.state, explained.not_played), (State::Waiting, 1), "{}", explained.text());
    let why = "the StatefulSet cannot be simulated: its pods may take too much memory";
    assert_eq!(explained.no_forecast.as_deref(), Some(why), "{}", explained.text());
    let change = question.what_if(&json!({"spec": {"replicas": 19_000}})).unwrap();
    assert_eq!(change.after.no_forecast.as_deref(), Some(why), "{}", change.text());
}

/// Who has to give up does so while the pods of one object are made.
#[test]
fn pods_are_not_made_any_more_once_a_simulation_has_to_give_up() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let mut manifests = waiting();
    let objects = manifests.objects.len();
    manifests.objects.push(large(JobKind::STATEFUL_SET, 2_000));
    let cancel = sluice_sim::Cancel::when(move || count.fetch_add(1, Ordering::Relaxed) > 2 * objects + 50);
    let simulation = sluice_sim::prepare(&manifests, &BTreeMap::new(), Options { cancel, ..options() });
    assert!(simulation.map_or(0, |simulation| pods(&simulation)) < 200, "{}", asked.load(Ordering::Relaxed));
}
