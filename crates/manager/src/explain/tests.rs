#![expect(clippy::disallowed_methods, reason = "tasks of tests have no supervisor")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::Uri;
use axum::response::Response;
use serde_json::Value;
use sluice_engine::effect::Effect;
use sluice_engine::input::{Input, ObjectRef};
use sluice_engine::{Engine, EngineConfig};
use tokio::sync::mpsc;

use super::*;
use crate::engine_thread::{Outlet, start};
use crate::fake_api::{client, found};
use crate::memory::Figures;
use crate::supervise::tests::supervisor;

#[test]
fn an_explanation_has_less_time_while_others_wait_for_theirs() {
    let more = Duration::from_secs(1);
    assert!(!is_over(TRYING, false) && is_over(TRYING + more, false));
    assert!(!is_over(SHARED, true) && is_over(SHARED + more, true));
}

/// Where nothing goes.
struct Nowhere;

impl Outlet for Nowhere {
    fn emit(&mut self, _: Vec<Effect>, _: bool, _: u64, _: Duration) {}
    fn set_aside(&mut self, _: &ObjectRef, _: &str) {}
    fn rebuilt(&mut self, _: u64) {}
    fn give_up(&mut self, _: &str) {}
}

/// The name of an object's collection, and its namespace.
fn place(uri: &Uri) -> (&str, &str) {
    let mut parts = uri.path().rsplit('/');
    let kind = parts.next().unwrap_or_default();
    (kind, parts.next().unwrap_or_default())
}

/// A queue in each namespace, and a job `j` in it that has no Workload.
fn cluster(uri: &Uri) -> Response {
    let (kind, namespace) = place(uri);
    let named = |name: &str, spec: Value| {
        let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
        json!({"items": [{"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}]})
    };
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
    let queues: Vec<_> = ["slow", "quiet", "big"]
        .map(|namespace| json!({"metadata": {"name": "lq", "namespace": namespace}, "spec": {"clusterQueue": namespace}}))
        .into();
    match kind {
        "jobs" => found(&named(
            "j",
            json!({"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}),
        )),
        "localqueues" => found(&json!({"items": queues})),
        "clusterqueues" => {
            let all: Vec<_> = queues.iter().map(|q| json!({"metadata": {"name": q["metadata"]["namespace"]}, "spec": {"namespaceSelector": {}}})).collect();
            found(&json!({"items": all}))
        }
        _ => found(&json!({"items": []})),
    }
}

/// Explains in a cluster that answers so, with so much memory beside the small ones.
fn explainer<A>(
    answer: impl Fn(Uri) -> A + Clone + Send + Sync + 'static,
    memory: fn() -> Figures,
) -> Arc<Explainer>
where
    A: Future<Output = Response> + Send + 'static,
{
    let build = || Engine::new(EngineConfig::default());
    let (engine, _) = start(&supervisor().0, build, Nowhere, None).unwrap();
    engine.input(Input::Synced);
    let explainer =
        Explainer::new(engine, client(move |_, uri, _| answer(uri)), Options::default_configuration());
    Arc::new(Explainer { memory: Memory::new(memory), ..explainer })
}

fn asked(user: &str) -> Asked {
    let (user, kind) = (user.to_owned(), Some("job".to_owned()));
    Asked { user, kind, any_replica: true, ..Asked::default() }
}

async fn ask(explainer: &Arc<Explainer>, namespace: &str, user: &str) -> Answer {
    explainer.answer(namespace.to_owned(), "j".to_owned(), asked(user), false).await
}

fn plenty() -> Figures {
    Figures { limit: 1 << 30, used: 0 }
}

#[tokio::test]
async fn a_team_with_slow_questions_holds_up_no_other_and_a_user_asks_once() {
    let explainer = explainer(|uri| async move { cluster(&uri) }, plenty);
    let slow = async || explainer.small.take("slow", TURN).await.unwrap();
    let held: Vec<_> = futures::future::join_all((0..SMALL_OF_ONE).map(|_| slow())).await;
    // A third one of the team waits, and is before the others in turn.
    let third = tokio::spawn({
        let explainer = Arc::clone(&explainer);
        async move { ask(&explainer, "slow", "c").await }
    });
    explainer.small.until_others_wait().await;
    for user in ["x", "y", "z", "x", "", ""] {
        let said = ask(&explainer, "quiet", user).await.unwrap();
        assert!(said.contains("quiet/j"), "{said}");
    }
    let turn = explainer.users.enter("a").unwrap();
    let again = ask(&explainer, "quiet", "a").await.unwrap_err();
    assert_eq!(again.0, StatusCode::TOO_MANY_REQUESTS, "{again:?}");
    drop((turn, held));
    assert!(ask(&explainer, "quiet", "a").await.is_ok());
    third.abort();
}

#[tokio::test]
async fn a_question_that_is_not_answered_any_more_leaves_its_place_to_others() {
    let (reads, mut reading) = mpsc::unbounded_channel();
    let answer = move |uri: Uri| {
        let reads = reads.clone();
        async move {
            if place(&uri) == ("workloads", "slow") {
                let _ = reads.send(());
                return std::future::pending().await;
            }
            cluster(&uri)
        }
    };
    let explainer = explainer(answer, plenty);
    let slow = tokio::spawn({
        let explainer = Arc::clone(&explainer);
        async move { ask(&explainer, "slow", "a").await }
    });
    reading.recv().await.unwrap();
    slow.abort();
    assert!(slow.await.is_err());
    assert!(explainer.users.enter("a").is_some());
    let mut held = Vec::new();
    for _ in 0..SMALL_OF_ONE {
        held.push(explainer.small.take("slow", Duration::ZERO).await.unwrap());
    }
}

/// A page of Workloads of some hundred kilobytes each, of a list without an end.
fn endless() -> Response {
    let object = json!({"metadata": {"name": "w", "namespace": "big", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"queueName": "lq", "many": vec![json!({"a": 0}); 200]}});
    found(&json!({"metadata": {"continue": "more"}, "items": vec![object; 20]}))
}

#[tokio::test]
async fn the_question_about_a_large_cohort_reserves_its_memory_and_the_answer_says_what_it_holds() {
    let large = |memory: fn() -> Figures| {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        let answer = move |uri: Uri| {
            let counted = Arc::clone(&counted);
            async move {
                if place(&uri) != ("workloads", "big") {
                    return cluster(&uri);
                }
                if !uri.query().unwrap_or_default().contains("continue=") {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                endless()
            }
        };
        (explainer(answer, memory), lists)
    };
    let (explainer, lists) = large(|| Figures { limit: 124 << 20, used: 0 });
    let said = ask(&explainer, "big", "a").await.unwrap();
    // 60 MiB are left beside what the manager itself may need: a third of them is for what is read.
    assert!(said.contains("workloads: the answer exceeds the limit of 20 MiB"), "{said}");
    assert_eq!(lists.load(Ordering::Relaxed), 2, "once small, once large");
    assert!(explainer.memory.reserve(60 << 20, usize::MAX).is_some(), "it gave all of it back");
    // One at a time: while another large one is made, the user is asked to try again later; small ones are made.
    let (explainer, lists) = large(plenty);
    let _taken = explainer.large.take("other", TURN).await.unwrap();
    let short = Arc::new(Explainer { turn: Duration::ZERO, ..Arc::into_inner(explainer).unwrap() });
    let busy = ask(&short, "big", "a").await.unwrap_err();
    assert_eq!(busy.0, StatusCode::TOO_MANY_REQUESTS, "{busy:?}");
    assert_eq!(lists.load(Ordering::Relaxed), 1);
    assert!(ask(&short, "quiet", "b").await.is_ok());
    // Without the memory for it, what is known without trying is said.
    let (explainer, lists) = large(|| Figures { limit: 1 << 20, used: 0 });
    let said = ask(&explainer, "big", "a").await.unwrap();
    assert!(said.contains("workloads: the answer exceeds the limit of 8 MiB"), "{said}");
    assert_eq!(lists.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_replica_that_lost_what_it_knew_says_so_until_everything_is_listed_again() {
    let lost = Err(Refused(StatusCode::SERVICE_UNAVAILABLE, NOT_LISTED.to_owned()));
    let explainer = explainer(|uri| async move { cluster(&uri) }, plenty);
    explainer.engine.step_down();
    let asked = Asked { nodes: true, ..asked("a") };
    assert_eq!(explainer.answer("quiet".to_owned(), "j".to_owned(), asked, false).await, lost);
    explainer.engine.synced(1);
    assert!(ask(&explainer, "quiet", "a").await.is_ok());
    // Also where it loses it in the middle of an answer: it would not know the names of nodes that it has to hide.
    let engine = Arc::new(OnceLock::<Handle<Engine>>::new());
    let known = Arc::clone(&engine);
    let answer = move |uri: Uri| {
        let known = Arc::clone(&known);
        async move {
            if let Some(engine) = known.get().filter(|_| place(&uri).0 == "jobs") {
                engine.step_down();
            }
            cluster(&uri)
        }
    };
    let explainer = self::explainer(answer, plenty);
    assert!(ask(&explainer, "quiet", "a").await.is_ok());
    engine.set(explainer.engine.clone()).unwrap_or_else(|_| unreachable!("it is set once"));
    assert_eq!(ask(&explainer, "quiet", "a").await, lost);
}

/// What a change would have a job name is in another tree than what it names.
#[tokio::test]
async fn a_change_of_the_queue_is_tried_among_the_queues_of_both() {
    let answer = |uri: Uri| async move {
        let (kind, namespace) = place(&uri);
        if kind == "localqueues" {
            let queue = |name: &str, of: &str| json!({"metadata": {"name": name, "namespace": "quiet"}, "spec": {"clusterQueue": of}});
            return found(&json!({"items": [queue("lq", "slow"), queue("other", "big")]}));
        }
        let whose = Some(kind).filter(|_| namespace == "quiet");
        if whose == Some("jobs") || kind == "clusterqueues" {
            return cluster(&uri);
        }
        if kind == "resourceflavors" {
            return found(&json!({"items": [{"metadata": {"name": "default"}}]}));
        }
        found(&json!({"items": []}))
    };
    let explainer = explainer(answer, plenty);
    let change = Some(json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}));
    let asked = Asked { change, output: Format::Json, ..asked("a") };
    let said = explainer.answer("quiet".to_owned(), "j".to_owned(), asked, false).await.unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    // The other queue is there, and has no quota at all.
    assert_eq!(said["after"]["startsNow"], false, "{said}");
    assert!(said["after"]["refused"].is_null(), "{said}");
}

/// A StatefulSet that waits beside the job, with `replicas` pods of 100 KiB each.
fn with_many_pods(uri: &Uri, replicas: u32) -> Response {
    let (kind, namespace) = place(uri);
    if kind != "statefulsets" || ["slow", "big"].contains(&namespace) {
        return cluster(uri);
    }
    let template = json!({
        "metadata": {"labels": {"app": "s"}, "annotations": {"example.com/notes": "x".repeat(100 << 10)}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    });
    found(&json!({"items": [{
        "metadata": {"name": "s", "namespace": "quiet", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "s"}}, "template": template},
    }]}))
}

#[tokio::test]
async fn pods_that_are_to_be_made_take_of_the_memory_of_an_explanation() {
    let not_played = async |replicas: u32, memory: fn() -> Figures| {
        let explainer = explainer(move |uri| async move { with_many_pods(&uri, replicas) }, memory);
        let change = Some(json!({"spec": {"parallelism": 2}}));
        let asked = Asked { change, output: Format::Json, ..asked("a") };
        let said = explainer.answer("quiet".to_owned(), "j".to_owned(), asked, false).await.unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        said["notPlayed"].as_u64().unwrap_or(0)
    };
    assert_eq!(not_played(20_000, plenty).await, 1);
    // What does not fit into the memory of a small one fits into that of a large one, if there is so much.
    assert_eq!(not_played(100, plenty).await, 0);
    assert_eq!(not_played(100, || Figures { limit: 1 << 20, used: 0 }).await, 1);
    assert_eq!(not_played(10, || Figures { limit: 1 << 20, used: 0 }).await, 0);
}
