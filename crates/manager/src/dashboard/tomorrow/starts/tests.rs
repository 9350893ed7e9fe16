use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use sluice_api::slim;
use sluice_engine::input::{Input, Kind};
use sluice_sim::Manifest;
use sluice_sim::live::Live;
use sluice_sim::{Options, Source as Place};

use super::super::Waiting;
use super::*;
use crate::dashboard::source::{Found, Source, View};
use crate::dashboard::store::Store;
use crate::dashboard::store::tests::{cluster_queue, local_queue, workload};
use crate::dashboard::views::items::Order;
use crate::dashboard::views::topology::Fits;
use crate::memory::{Figures, Memory, Reservation};

/// A cluster of one ClusterQueue with four cores, and in each of two namespaces a Workload of three cores. It counts how often it is read.
struct Cluster {
    read: AtomicUsize,
    objects: fn() -> Vec<Manifest>,
}

fn manifest(kind: Kind, mut object: Value) -> Manifest {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.as_str());
    Manifest { source: Place { file: kind.plural().to_owned(), document: 1 }, kind, object }
}

fn objects(checks: bool) -> Vec<Manifest> {
    let quota = json!({"name": "cpu", "nominalQuota": "4"});
    let mut spec = json!({"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"}, "resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [quota]}]},
    ]});
    if checks {
        spec["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "prov"}]});
    }
    let mut objects = vec![
        manifest(Kind::ResourceFlavor, json!({"metadata": {"name": "spot"}})),
        manifest(Kind::ClusterQueue, json!({"metadata": {"name": "cq"}, "spec": spec})),
    ];
    for (second, (namespace, name, priority)) in
        [("secret-ns", "secret", 0), ("a", "own", 0), ("a", "urgent", 9)].into_iter().enumerate()
    {
        let place = json!({"name": "lq", "namespace": namespace});
        objects.push(manifest(Kind::LocalQueue, json!({"metadata": place, "spec": {"clusterQueue": "cq"}})));
        let requests = json!({"requests": {"cpu": "1"}});
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "resources": requests}]}});
        objects.push(manifest(
            Kind::Workload,
            json!({
                "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
                "spec": {"queueName": "lq", "priority": priority, "podSets": [{"name": "main", "count": 3, "template": template}]},
            }),
        ));
    }
    objects
}

impl Source for Cluster {
    fn missing(&self, _view: View) -> Option<String> {
        None
    }

    fn order<'a>(&'a self, _queue: &'a str) -> BoxFuture<'a, Order> {
        Box::pin(async { None })
    }

    fn workload<'a>(&'a self, _namespace: &'a str, name: &'a str) -> Found<'a, slim::Workload> {
        Box::pin(async { Err(Refusal::NoObject("workloads", "kueue.x-k8s.io", name.to_owned())) })
    }

    fn events<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Option<Vec<Value>>> {
        Box::pin(async { None })
    }

    fn explain<'a>(&'a self, _: &'a Viewer, _: &'a str, _: &'a str) -> Found<'a, Value> {
        Box::pin(async { Ok(Value::Null) })
    }

    fn fits<'a>(&'a self, _snapshot: &'a Snapshot) -> BoxFuture<'a, Option<Fits>> {
        Box::pin(async { None })
    }

    fn reserve(&self) -> Option<Reservation> {
        Memory::new(|| Figures { limit: 1 << 30, used: 0 }).reserve(1, 3 << 20)
    }

    fn begin<'a>(&'a self, extent: Extent<'a>, bytes: usize) -> Found<'a, Begin> {
        assert_eq!(bytes, 1 << 20, "a part of what is reserved");
        assert!(matches!(extent, Extent::All | Extent::Around { local_queue: "lq", .. }), "{extent:?}");
        self.read.fetch_add(1, Ordering::Relaxed);
        let live = Live { objects: (self.objects)(), ..Live::default() };
        let configuration = Options::default_configuration();
        Box::pin(async move { Ok(Begin { live, configuration, assumed: false, left: bytes }) })
    }
}

fn store() -> Store {
    let store = Store::default();
    for object in [cluster_queue("cq"), local_queue("a", "lq", "cq"), local_queue("secret-ns", "lq", "cq")] {
        store.note(&Input::Applied(object));
    }
    for (namespace, name) in [("secret-ns", "secret"), ("a", "own"), ("a", "urgent")] {
        store.note(&Input::Applied(workload(namespace, name, &[])));
    }
    store.synced();
    store
}

fn tomorrow(most: usize, checks: bool) -> (Tomorrow, Arc<Store>, Arc<Cluster>) {
    tomorrow_of(most, if checks { || objects(true) } else { || objects(false) })
}

fn tomorrow_of(most: usize, objects: fn() -> Vec<Manifest>) -> (Tomorrow, Arc<Store>, Arc<Cluster>) {
    let store = Arc::new(store());
    let cluster = Arc::new(Cluster { read: AtomicUsize::new(0), objects });
    let source: Arc<dyn Source> = cluster.clone();
    (Tomorrow { most, ..Tomorrow::new(Arc::clone(&store), source) }, store, cluster)
}

fn viewer(user: &str, all: bool) -> Viewer {
    Viewer { user: user.to_owned(), all, namespaces: ["a".into()].into(), nodes: all, queues: all }
}

fn item<'a>(answer: &'a Value, name: &str) -> &'a Value {
    answer["items"].as_array().unwrap().iter().find(|item| item["workload"] == name).unwrap()
}

#[tokio::test]
async fn starts_are_times_and_one_simulation_serves_all_who_look() {
    let (tomorrow, store, cluster) = tomorrow(10, false);
    let snapshot = store.snapshot().unwrap();
    let asked = || ("cq".into(), None);
    let all = tomorrow.starts(&viewer("root", true), &snapshot, asked(), None).await.unwrap();
    assert_eq!(
        (&all["futures"], &all["complete"], &all["waiting"], &all["first"]),
        (&json!(1), &json!(true), &json!(3), &json!(FIRST))
    );
    let seconds = |name: &str| {
        let at = |text: &Value| text.as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
        let start = item(&all, name);
        assert_eq!(
            (&start["early"], &start["late"]),
            (&start["expected"], &start["expected"]),
            "all run times are known"
        );
        at(&start["expected"]) - at(&all["at"])
    };
    // Jobs that say nothing are taken to run for ten minutes.
    assert_eq!(seconds("urgent"), 0);
    let later = (seconds("secret"), seconds("own"));
    assert!((600..=601).contains(&later.0) && (1200..=1202).contains(&later.1), "{all}");
    let own = tomorrow.starts(&viewer("alice", false), &snapshot, asked(), None).await.unwrap();
    assert_eq!(cluster.read.load(Ordering::Relaxed), 1, "nothing has changed");
    assert!(!own.to_string().contains("secret") && own["items"].as_array().unwrap().len() == 2, "{own}");
    let one = ("cq".into(), Some(WorkloadKey { namespace: "a".into(), name: "own".into() }));
    let one = tomorrow.starts(&viewer("bob", true), &snapshot, one, None).await.unwrap();
    assert_eq!(one["items"].as_array().unwrap().len(), 1);
    assert_eq!(item(&one, "own")["starts"], 1);
}

/// Changes an object as a merge patch does.
fn change(objects: &mut [Manifest], kind: Kind, name: &str, merge: &Value) {
    let mut own = objects.iter_mut().filter(|m| m.kind == kind && m.object["metadata"]["name"] == name);
    json_patch::merge(&mut own.next().unwrap().object, merge);
}

#[tokio::test]
async fn no_start_is_expected_of_workloads_that_are_refused_or_inactive() {
    let cluster = || {
        let mut all = objects(false);
        let refused = json!({"type": "QuotaReserved", "status": "False", "reason": "WaitingForCapacity", "message": "no node has room", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        change(&mut all, Kind::Workload, "urgent", &json!({"status": {"conditions": [refused]}}));
        change(&mut all, Kind::Workload, "own", &json!({"spec": {"active": false}}));
        all
    };
    let (tomorrow, store, _) = tomorrow_of(10, cluster);
    let snapshot = store.snapshot().unwrap();
    let all = tomorrow.starts(&viewer("root", true), &snapshot, ("cq".into(), None), None).await.unwrap();
    let why = |name: &str| item(&all, name)["whyNot"].as_str().unwrap_or_default();
    assert_eq!(why("urgent"), "the manager refuses it (WaitingForCapacity): no node has room");
    assert!(why("own").starts_with("it is deactivated"), "{all}");
    assert!(item(&all, "urgent")["expected"].is_null() && item(&all, "own")["expected"].is_null());
    assert!(item(&all, "secret")["expected"].is_string() && why("secret").is_empty(), "{all}");
}

#[tokio::test]
async fn no_start_is_expected_in_queues_that_are_stopped_incomplete_or_being_deleted() {
    type Change = fn(&mut Vec<Manifest>);
    let changes: [(Change, &str); 5] = [
        (|all| change(all, Kind::ClusterQueue, "cq", &json!({"spec": {"stopPolicy": "Hold"}})), "is stopped"),
        (
            |all| change(all, Kind::ClusterQueue, "cq", &json!({"spec": {"namespaceSelector": null}})),
            "namespaceSelector",
        ),
        (|all| all.retain(|m| m.kind != Kind::ResourceFlavor), "is not active"),
        (
            |all| {
                let going =
                    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}});
                change(all, Kind::ClusterQueue, "cq", &going);
            },
            "is being deleted",
        ),
        (
            |all| {
                let checks = json!([{"name": "budget", "state": "Rejected", "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
                for name in ["own", "secret", "urgent"] {
                    change(all, Kind::Workload, name, &json!({"status": {"admissionChecks": checks}}));
                }
            },
            "budget",
        ),
    ];
    for (change, why) in changes {
        let mut all = objects(false);
        change(&mut all);
        let begin = Begin {
            live: Live { objects: all, ..Live::default() },
            configuration: Options::default_configuration(),
            assumed: false,
            left: 0,
        };
        let keys: Vec<_> = [("secret-ns", "secret"), ("a", "own"), ("a", "urgent")]
            .map(|(namespace, name)| WorkloadKey { namespace: namespace.into(), name: name.into() })
            .into();
        let pace = Pace { alone: STOPS, shared: STOPS, waiting: Waiting::default() };
        let known = found((begin, Cancel::default(), pace), "cq", &keys, 3).unwrap();
        assert!(known.expected.starts.is_empty(), "{why}: {known:?}");
        for key in &keys {
            assert!(known.barred[key].contains(why), "{why}: {:?}", known.barred);
        }
    }
}

#[test]
fn starts_with_a_configuration_that_is_not_the_managers_say_so() {
    for assumed in [false, true] {
        let live = Live { objects: objects(false), ..Live::default() };
        let begin = Begin { live, configuration: Options::default_configuration(), assumed, left: 0 };
        let keys = [WorkloadKey { namespace: "a".into(), name: "own".into() }];
        let pace = Pace { alone: STOPS, shared: STOPS, waiting: Waiting::default() };
        let known = found((begin, Cancel::default(), pace), "cq", &keys, 3).unwrap();
        assert_eq!(known.expected.basis.ends_with(ASSUMED), assumed, "{}", known.expected.basis);
    }
}

#[test]
fn what_others_lose_is_a_number() {
    let key = WorkloadKey { namespace: "a".into(), name: "own".into() };
    let preempts = vec!["secret-ns/secret".to_owned(), "a/other".to_owned()];
    let start = Start { p10: Some(60), p50: Some(120), p90: None, starts: 15, preempts };
    let now = Timestamp::UNIX_EPOCH;
    let seen = super::item(&key, &start, now, &viewer("alice", false));
    assert_eq!((&seen["preempts"], &seen["others"]), (&json!(["a/other"]), &json!(1)));
    assert_eq!((&seen["early"], &seen["late"]), (&json!("1970-01-01T00:01:00Z"), &Value::Null));
    assert_eq!(super::item(&key, &start, now, &viewer("root", true))["others"], 0);
}

#[tokio::test]
async fn too_many_beside_a_queue_and_checks_are_said() {
    let (tomorrow, store, _) = tomorrow(2, false);
    let snapshot = store.snapshot().unwrap();
    let refused =
        tomorrow.starts(&viewer("root", true), &snapshot, ("cq".into(), None), None).await.unwrap_err();
    assert!(
        matches!(&refused, Refusal::Other(_, why) if why.contains("3 unfinished Workloads")),
        "{refused:?}"
    );
    let (tomorrow, store, _) = self::tomorrow(10, true);
    let snapshot = store.snapshot().unwrap();
    let answer = tomorrow.starts(&viewer("root", true), &snapshot, ("cq".into(), None), None).await.unwrap();
    assert!(answer["whyNot"].as_str().unwrap().contains("admission checks"), "{answer}");
    let empty =
        tomorrow.starts(&viewer("root", true), &snapshot, ("cq".into(), None), Some(Vec::new())).await;
    assert!(empty.is_ok());
}

#[tokio::test]
async fn workloads_that_have_ended_do_not_count_as_too_many() {
    let ask = async |most: usize| {
        let (tomorrow, store, _) = tomorrow(most, false);
        let finished = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        for number in 0..10 {
            let ended = workload("a", &format!("ended-{number}"), std::slice::from_ref(&finished));
            store.note(&Input::Applied(ended));
        }
        tomorrow.answer(&viewer("root", true), b"{}").await
    };
    assert!(ask(3).await.is_ok());
    let refused = ask(2).await.unwrap_err();
    assert!(
        matches!(&refused, Refusal::Other(_, why) if why.contains("3 unfinished Workloads")),
        "{refused:?}"
    );
}

#[test]
fn what_is_kept_is_bounded() {
    let cache = Cache::default();
    let known = Arc::new(Known::blank(Timestamp::UNIX_EPOCH, 0));
    for n in 0..MOST_KEPT + 9 {
        cache.put((n.to_string().into(), None), 1, &known);
    }
    assert_eq!(cache.0.lock().unwrap().len(), MOST_KEPT);
    let last: Asked = ((MOST_KEPT + 8).to_string().into(), None);
    assert!(cache.get(&last, 1).is_some() && cache.get(&last, 2).is_some());
    assert!(cache.get(&("0".into(), None), 1).is_none());
}

#[tokio::test]
async fn viewers_who_ask_at_the_same_time_share_one_simulation() {
    let (tomorrow, store, cluster) = tomorrow(10, false);
    let snapshot = store.snapshot().unwrap();
    let (root, bob) = (viewer("root", true), viewer("bob", true));
    let ask = |viewer| tomorrow.starts(viewer, &snapshot, ("cq".into(), None), None);
    let (first, second) = tokio::join!(ask(&root), ask(&bob));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(cluster.read.load(Ordering::Relaxed), 1);
}

/// Waits for the turn, and simulates.
async fn play<T: Send + 'static>(
    tomorrow: &Tomorrow,
    extent: Extent<'_>,
    most: Duration,
    work: impl FnOnce(Begin, Cancel) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tomorrow.play(&tomorrow.turn().await?, extent, most, work).await
}

#[tokio::test]
async fn one_whose_turn_it_is_knows_when_another_waits() {
    let (tomorrow, _, _) = tomorrow(10, false);
    let extent = || Extent::Around { namespace: "a", local_queue: "lq", room: false };
    let (hour, waiting) = (Duration::from_hours(1), tomorrow.waiting.clone());
    let (said, begun) = tokio::sync::oneshot::channel();
    let first = play(&tomorrow, extent(), hour, move |_, _| {
        said.send(waiting.any()).unwrap();
        while !waiting.any() {
            std::thread::yield_now();
        }
        Ok(())
    });
    // The second one asks only when the first has its turn.
    let second = async {
        assert!(!begun.await.unwrap(), "none waits yet");
        play(&tomorrow, extent(), hour, |_, _| Ok("played")).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.unwrap(), second.unwrap()), ((), "played"));
    assert!(!tomorrow.waiting.any());
}

#[tokio::test]
async fn the_turn_is_free_again_soon_after_a_caller_is_gone() {
    let (tomorrow, _, _) = tomorrow(10, false);
    let (said, begun) = tokio::sync::oneshot::channel();
    let extent = Extent::Around { namespace: "a", local_queue: "lq", room: false };
    let endless = play(&tomorrow, extent, Duration::from_hours(1), move |_, cancel| {
        said.send(()).unwrap();
        while !cancel.is_cancelled() {
            std::thread::yield_now();
        }
        Ok(())
    });
    tokio::select! {
        biased;
        begun = begun => begun.unwrap(),
        _ = endless => unreachable!("nothing ends it"),
    }
    // `endless` is dropped, as where a caller closes the connection. The next one waits for its turn and gets it.
    let next = play(&tomorrow, extent, Duration::from_hours(1), |_, _| Ok("played"));
    assert_eq!(next.await.unwrap(), "played");
}
