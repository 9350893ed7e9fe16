use serde_json::json;
use sluice_engine::input::Kind;
use sluice_sim::live::Live;
use sluice_sim::{Manifest, Source as Place};

use super::*;
use crate::access::TurnsByUser;

/// The answer, as a page reads it.
fn simulated(
    begin: Begin,
    lasts: SignedDuration,
    wanted: &[Change],
    viewer: &Viewer,
) -> Result<Value, Refusal> {
    let text = super::simulated((begin, Cancel::default()), lasts, wanted, (viewer, None), &alone(STOPS))?;
    Ok(serde_json::from_str(&text).unwrap())
}

/// Of one who knows no queue but by the right to list them.
fn read(viewer: &Viewer, body: &[u8]) -> Result<(SignedDuration, Vec<Change>), Refusal> {
    super::read((viewer, &SeenQueues::of(None, viewer)), body)
}

/// No other user waits.
fn alone(stops: Stops) -> Pace {
    Pace { alone: stops, shared: stops, waiting: Waiting::default() }
}

fn viewer(namespaces: &[&str]) -> Viewer {
    Viewer {
        user: "alice".to_owned(),
        namespaces: namespaces.iter().map(|n| (*n).into()).collect(),
        ..Viewer::default()
    }
}

fn admin() -> Viewer {
    Viewer { all: true, nodes: true, queues: true, ..viewer(&[]) }
}

fn manifest(kind: Kind, object: Value) -> Manifest {
    let mut object = object;
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.as_str());
    Manifest { source: Place { file: kind.plural().to_owned(), document: 1 }, kind, object }
}

fn job(namespace: &str, name: &str, second: u32) -> Manifest {
    let kind = Kind::Job(sluice_api::job::JobKind::JOB);
    manifest(
        kind,
        json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("uid-{name}"),
                "labels": {"kueue.x-k8s.io/queue-name": "lq"}, "annotations": {"sluice.dev/run-seconds": "600"},
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": {"suspend": true, "parallelism": 1, "completions": 1, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            }}},
        }),
    )
}

/// One core for two teams, and a job of each: the first one runs first.
fn begin() -> Begin {
    let quota = json!({"name": "cpu", "nominalQuota": "1"});
    let mut objects = vec![
        manifest(Kind::ResourceFlavor, json!({"metadata": {"name": "spot"}})),
        manifest(
            Kind::ClusterQueue,
            json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [quota]}]},
            ]}}),
        ),
    ];
    for (second, (namespace, name)) in [("secret-ns", "secret-job"), ("a", "own-job")].into_iter().enumerate()
    {
        objects.push(manifest(Kind::Namespace, json!({"metadata": {"name": namespace}})));
        let target = json!({"clusterQueue": "cq"});
        objects.push(manifest(
            Kind::LocalQueue,
            json!({"metadata": {"name": "lq", "namespace": namespace}, "spec": target}),
        ));
        objects.push(job(namespace, name, u32::try_from(second).unwrap()));
    }
    let live = Live { objects, ..Live::default() };
    Begin { live, configuration: Options::default_configuration(), assumed: false, left: 1 << 20 }
}

fn quota_of(value: &str) -> Change {
    let text = |text: &str| text.to_owned();
    Change::Quota {
        cluster_queue: text("cq"),
        flavor: text("spot"),
        resource: text("cpu"),
        value: text(value),
    }
}

/// When a job is admitted, in seconds.
fn start(report: &Value, job: &str) -> Option<f64> {
    let mut lines = report["timeline"].as_array().unwrap().iter();
    lines.find(|line| line["job"] == job && line["event"] == "admitted").and_then(|line| line["at"].as_f64())
}

#[test]
fn with_more_quota_a_job_starts_sooner_and_the_words_say_so() {
    let day = SignedDuration::from_hours(24);
    let answer = simulated(begin(), day, &[quota_of("2")], &admin()).unwrap();
    // Which of the two is first is a draw.
    let last = |report: &Value| {
        let starts = ["a/own-job", "secret-ns/secret-job"].map(|job| start(report, job).unwrap());
        starts[0].max(starts[1])
    };
    let (before, after) = (last(&answer["base"]), last(&answer["changed"]));
    assert!(before >= 600.0 && after < 60.0, "{before} {after}");
    let words = answer["difference"].as_array().unwrap();
    assert!(words.iter().any(|w| w.as_str().unwrap().ends_with("-job starts 10 min sooner.")), "{words:?}");
    assert_eq!(answer["base"]["hidden"], false);
    let same = simulated(begin(), day, &[], &admin()).unwrap();
    assert_eq!((&same["changed"], &same["difference"]), (&Value::Null, &json!([])));
    assert_eq!(same["defaultConfiguration"], false);
    let assumed = simulated(Begin { assumed: true, ..begin() }, day, &[], &admin()).unwrap();
    assert_eq!(assumed["defaultConfiguration"], true);
}

/// The difference in words.
fn words(answer: &Value) -> Vec<&str> {
    answer["difference"].as_array().unwrap().iter().map(|words| words.as_str().unwrap()).collect()
}

#[test]
fn with_a_higher_priority_a_job_starts_sooner_and_the_words_say_so() {
    let mut begin = begin();
    // Both wait already: the one that came first is first.
    for (second, (namespace, name)) in [("secret-ns", "secret-job"), ("a", "own-job")].into_iter().enumerate()
    {
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("uid-{name}"), "controller": true}]);
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        begin.live.objects.push(manifest(
            Kind::Workload,
            json!({
                "metadata": {
                    "name": format!("w-{name}"), "namespace": namespace, "uid": format!("uid-w-{name}"),
                    "ownerReferences": owner, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                },
                "spec": {"queueName": "lq", "priority": 0, "podSets": [{"name": "main", "count": 1, "template": template}]},
            }),
        ));
    }
    let first = Change::Priority { namespace: "a".to_owned(), workload: "w-own-job".to_owned(), value: 9 };
    let answer = simulated(begin, SignedDuration::from_hours(24), &[first], &admin()).unwrap();
    let starts = |job: &str| ["base", "changed"].map(|world| start(&answer[world], job).unwrap());
    let [before, after] = starts("a/own-job");
    assert!(before >= 600.0 && after < 60.0, "{before} {after}");
    let [before, after] = starts("secret-ns/secret-job");
    assert!(before < 60.0 && after >= 600.0, "{before} {after}");
    let words = words(&answer);
    for said in ["a/own-job starts 10 min sooner.", "secret-ns/secret-job starts 10 min later."] {
        assert!(words.iter().any(|words| words.ends_with(said)), "{said}: {words:?}");
    }
}

#[test]
fn with_more_nodes_a_job_starts_sooner_and_the_words_say_so() {
    let mut begin = begin();
    // Quota for both, and a node for one.
    let objects = &mut begin.live.objects;
    let flavor = json!({"nodeLabels": {"pool": "spot"}, "topologyName": "hosts"});
    objects.iter_mut().find(|m| m.kind == Kind::ResourceFlavor).unwrap().object["spec"] = flavor;
    changed::apply(objects, &[quota_of("2")], 0).unwrap();
    let levels = json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]});
    objects.push(manifest(Kind::Topology, json!({"metadata": {"name": "hosts"}, "spec": levels})));
    objects.push(manifest(
        Kind::Node,
        json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"kubernetes.io/hostname": "n", "pool": "spot"}},
            "status": {
                "allocatable": {"cpu": "1", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}],
            },
        }),
    ));
    let more = Change::Nodes { like: "n".to_owned(), count: 1 };
    let answer = simulated(begin, SignedDuration::from_hours(24), &[more], &admin()).unwrap();
    let last = |report: &Value| {
        let starts = ["a/own-job", "secret-ns/secret-job"].map(|job| start(report, job).unwrap());
        starts[0].max(starts[1])
    };
    let (before, after) = (last(&answer["base"]), last(&answer["changed"]));
    assert!(before >= 600.0 && after < 60.0, "{before} {after}");
    let words = words(&answer);
    assert!(words.iter().any(|words| words.ends_with("-job starts 10 min sooner.")), "{words:?}");
}

#[test]
fn with_a_new_pool_that_brings_quota_a_job_starts_sooner() {
    let pool = |capacity: &str, queue: Option<&str>| {
        let pool = json!({"kind": "pool", "flavor": "spot", "count": 1, "capacity": {"cpu": capacity}, "clusterQueue": queue});
        let (_, changes) = read(&admin(), json!({"changes": [pool]}).to_string().as_bytes()).unwrap();
        let answer = simulated(begin(), SignedDuration::from_hours(24), &changes, &admin()).unwrap();
        let last = |report: &Value| {
            let starts = ["a/own-job", "secret-ns/secret-job"].map(|job| start(report, job).unwrap());
            starts[0].max(starts[1])
        };
        last(&answer["base"]) - last(&answer["changed"])
    };
    assert!(pool("1", Some("cq")) > 500.0, "its quota is the queue's");
    assert!(pool("1", None).abs() < 1.0, "no queue has quota for it");
}

#[test]
fn a_team_sees_its_own_jobs_of_tomorrow_and_no_others_names() {
    let answer =
        simulated(begin(), SignedDuration::from_hours(24), &[quota_of("2")], &viewer(&["a"])).unwrap();
    assert!(start(&answer["base"], "a/own-job").is_some());
    assert!(!answer.to_string().contains("secret"), "{answer}");
    assert_eq!((&answer["base"]["hidden"], &answer["base"]["totals"]["admitted"]), (&json!(true), &json!(2)));
}

#[test]
fn a_queue_that_is_stopped_is_shown_so_to_those_who_may_know_it() {
    let all =
        json!([{"queue": "cq", "from": 0.0}, {"queue": "cq", "localQueue": "secret-ns/lq", "from": 0.0}]);
    let lists = Viewer { queues: true, ..viewer(&["a"]) };
    for (viewer, stops) in [(lists, json!([all[0]])), (admin(), all), (viewer(&["a"]), Value::Null)] {
        let mut begin = begin();
        begin.live.objects[1].object["spec"]["stopPolicy"] = json!("Hold");
        begin.live.objects[3].object["spec"]["stopPolicy"] = json!("Hold");
        let answer = simulated(begin, SignedDuration::from_hours(24), &[], &viewer).unwrap();
        assert_eq!(answer["base"]["stops"], stops, "{answer}");
    }
}

#[test]
fn what_the_manager_refuses_for_what_is_not_seen_here_does_not_start_tomorrow() {
    let with = |reason: &str| {
        let mut begin = begin();
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "own-job", "uid": "uid-own-job", "controller": true}]);
        let refused = json!([{"type": "QuotaReserved", "status": "False", "reason": reason, "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        begin.live.objects.retain(|m| m.object["metadata"]["name"] != "secret-job");
        begin.live.objects.push(manifest(
            Kind::Workload,
            json!({
                "metadata": {"name": "w", "namespace": "a", "uid": "uid-w", "ownerReferences": owner, "creationTimestamp": "2026-01-01T00:00:01Z"},
                "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
                "status": {"conditions": refused},
            }),
        ));
        simulated(begin, SignedDuration::from_hours(24), &[quota_of("2")], &admin()).unwrap()
    };
    let answer = with("WaitingForCapacity");
    assert_eq!(answer["refused"], json!({"count": 1, "names": ["a/w"]}));
    for world in ["base", "changed"] {
        assert_eq!(
            (start(&answer[world], "a/own-job"), &answer[world]["totals"]["admitted"]),
            (None, &json!(0))
        );
    }
    // What was put back, and is tried again, starts.
    let answer = with("Pending");
    assert_eq!(answer["refused"]["count"], 0);
    assert!(start(&answer["base"], "a/own-job").is_some(), "{answer}");
}

#[test]
fn an_object_that_cannot_be_played_does_not_stop_the_others() {
    let mut begin = begin();
    // More groups of pods than a Workload can have.
    let parts: Vec<Value> = (0..19)
        .map(|number| {
            let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}});
            json!({"name": format!("part-{number}"), "replicas": 1, "template": {"spec": {"template": pod}}})
        })
        .collect();
    begin.live.objects.push(manifest(
        Kind::Job(sluice_api::job::JobKind::JOB_SET),
        json!({
            "metadata": {"name": "broken", "namespace": "secret-ns", "uid": "uid-broken", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"suspend": true, "replicatedJobs": parts},
        }),
    ));
    let answer = simulated(begin, SignedDuration::from_hours(24), &[], &viewer(&["a"])).unwrap();
    assert_eq!(answer["notPlayed"], 1);
    assert!(start(&answer["base"], "a/own-job").is_some());
    assert!(!answer.to_string().contains("broken"), "{answer}");
}

#[test]
fn changes_that_cannot_be_made_say_why() {
    let day = SignedDuration::from_hours(1);
    let mut wrong = quota_of("2");
    if let Change::Quota { flavor, .. } = &mut wrong {
        *flavor = "other".to_owned();
    }
    let refused = simulated(begin(), day, &[wrong], &admin()).unwrap_err();
    assert!(
        matches!(&refused, Refusal::BadRequest(why) if why.contains("no quota of \"cpu\" in the flavor \"other\"")),
        "{refused:?}"
    );
    let node = Change::Nodes { like: "none".to_owned(), count: 1 };
    assert!(matches!(simulated(begin(), day, &[node], &admin()), Err(Refusal::BadRequest(_))));
}

#[test]
fn a_priority_and_nodes_are_changed_in_the_objects() {
    let mut objects = begin().live.objects;
    let owner = json!([{"uid": "uid-own-job", "controller": true}]);
    let class = json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"});
    objects.push(manifest(
        Kind::Workload,
        json!({"metadata": {"name": "w", "namespace": "a", "ownerReferences": owner}, "spec": {"priority": 1, "priorityClassRef": class}}),
    ));
    let job = objects.iter().position(|m| m.object["metadata"]["name"] == "own-job").unwrap();
    objects[job].object["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("low");
    objects.push(manifest(
        Kind::Node,
        json!({"metadata": {"name": "n", "uid": "u", "labels": {"kubernetes.io/hostname": "n", "rack": "r1"}}}),
    ));
    let before = objects.len();
    let priority = Change::Priority { namespace: "a".to_owned(), workload: "w".to_owned(), value: 9 };
    let nodes = Change::Nodes { like: "n".to_owned(), count: 2 };
    changed::apply(&mut objects, &[priority, nodes], 1 << 20).unwrap();
    let workload = objects.iter().find(|m| m.kind == Kind::Workload).unwrap();
    assert_eq!(workload.object["spec"], json!({"priority": 9}));
    assert!(objects[job].object["metadata"]["labels"]["kueue.x-k8s.io/priority-class"].is_null());
    assert_eq!(objects.len(), before + 2);
    let last = &objects.last().unwrap().object["metadata"];
    assert_eq!(
        (&last["name"], &last["labels"]["kubernetes.io/hostname"]),
        (&json!("n-more-2-2"), &json!("n-more-2-2"))
    );
    assert_eq!((&last["labels"]["rack"], last.get("uid")), (&json!("r1"), None));
}

#[test]
fn more_nodes_than_the_memory_holds_that_is_reserved_are_refused() {
    let labels: serde_json::Map<String, Value> =
        (0..100).map(|number| (format!("example.com/label-{number}"), json!("x".repeat(63)))).collect();
    let with = |left: usize, changes: usize, count: u32| {
        let mut begin = Begin { left, ..begin() };
        let node = json!({"metadata": {"name": "n", "uid": "u", "labels": labels}});
        begin.live.objects.push(manifest(Kind::Node, node));
        let more = vec![Change::Nodes { like: "n".to_owned(), count }; changes];
        simulated(begin, SignedDuration::from_hours(1), &more, &admin())
    };
    assert!(with(1 << 20, 20, 1).is_ok());
    for (left, changes, count) in [(1 << 20, 20, 1000), (1 << 20, 1, 1000), (0, 1, 1)] {
        let refused = with(left, changes, count).unwrap_err();
        let Refusal::Other(StatusCode::PAYLOAD_TOO_LARGE, why) = refused else {
            unreachable!("{left} {changes} {count}: {refused:?}")
        };
        assert!(why.contains("fewer nodes"), "{why}");
    }
}

#[test]
fn what_is_asked_has_bounds() {
    let asked = |body: Value| read(&viewer(&["a"]), body.to_string().as_bytes());
    assert_eq!(asked(json!({})).unwrap().0, USUAL);
    assert_eq!(read(&admin(), b"").unwrap().0, USUAL);
    let quota = |value: &str| json!({"kind": "quota", "clusterQueue": "cq", "flavor": "f", "resource": "cpu", "value": value});
    for body in [
        json!({"for": "169h"}),
        json!({"for": "0s"}),
        json!({"for": "-1h"}),
        json!({"for": "nonsense"}),
        json!({"unknown": 1}),
        json!([]),
        json!(["24h", []]),
        json!("24h"),
        json!({"changes": [["nodes", "n", 1]]}),
        json!({"changes": [{"kind": "nonsense"}]}),
        json!({"changes": vec![quota("1"); MOST_CHANGES + 1]}),
        json!({"changes": [quota("-1")]}),
        json!({"changes": [quota("much")]}),
        json!({"changes": [quota(&"1".repeat(1000))]}),
    ] {
        assert!(matches!(asked(body.clone()), Err(Refusal::BadRequest(_))), "{body}");
    }
    let Err(Refusal::BadRequest(why)) = asked(json!([])) else { unreachable!("a list is no object") };
    assert!(why.starts_with("expected an object such as"), "{why}");
    let other = json!({"changes": [{"kind": "priority", "namespace": "b", "workload": "w", "value": 5}]});
    assert!(matches!(asked(other), Err(Refusal::Forbidden(_))));
    let nodes = |count: u32| json!({"changes": [{"kind": "nodes", "like": "n", "count": count}]});
    assert!(matches!(asked(nodes(1)), Err(Refusal::Forbidden(_))), "the viewer may not list nodes");
    let pool = |count: u32, cpu: &str| json!({"changes": [{"kind": "pool", "flavor": "f", "count": count, "capacity": {"cpu": cpu}}]});
    assert!(matches!(asked(pool(1, "1")), Err(Refusal::Forbidden(_))), "the viewer may not list nodes");
    let asked = |body: Value| read(&admin(), body.to_string().as_bytes());
    assert!(
        asked(pool(1000, "1")).is_ok() && asked(pool(1001, "1")).is_err() && asked(pool(1, "0")).is_err()
    );
    assert!(asked(nodes(1000)).is_ok() && asked(nodes(1001)).is_err() && asked(nodes(0)).is_err());
}

/// Gives up when it was asked `most` times.
fn after(most: usize) -> (Cancel, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    (Cancel::when(move || counted.fetch_add(1, Ordering::Relaxed) >= most), asked)
}

#[test]
fn a_simulation_gives_up_wherever_it_is_when_its_time_is_over() {
    let day = SignedDuration::from_hours(24);
    let play =
        |cancel| super::simulated((begin(), cancel), day, &[quota_of("2")], (&admin(), None), &alone(STOPS));
    let (never, asked) = after(usize::MAX);
    play(never).unwrap();
    let whole = asked.load(Ordering::Relaxed);
    // While objects are taken in, while the first decisions are made, in the first and in the second simulation.
    let objects = begin().live.objects.len();
    assert!(whole > 4 * objects, "{whole}");
    for most in 0..whole {
        let (cancel, asked) = after(most);
        assert!(play(cancel).is_err(), "{most} of {whole}");
        // What is left to do is not begun.
        let more = asked.load(Ordering::Relaxed) - most;
        assert!(more <= 3, "asked {more} times more after {most} of {whole}");
    }
}

#[test]
fn a_simulation_for_which_there_is_no_time_shows_how_far_it_came() {
    let day = SignedDuration::from_hours(24);
    let none = Duration::ZERO;
    let simulated = |wanted: &[Change], stops: Stops| -> Value {
        let begin = (begin(), Cancel::default());
        let text = super::simulated(begin, day, wanted, (&admin(), None), &alone(stops)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let seconds = |report: &Value| report["seconds"].as_f64().unwrap();
    let latest = |report: &Value| {
        let lines = report["timeline"].as_array().unwrap().iter();
        lines.map(|line| line["at"].as_f64().unwrap()).fold(0.0, f64::max)
    };
    let whole = simulated(&[], STOPS);
    assert_eq!((&whole["base"]["partial"], seconds(&whole["base"])), (&json!(false), 86_400.0));
    let short = simulated(&[], Stops { one: none, ..STOPS });
    let end = seconds(&short["base"]);
    assert!(short["base"]["partial"] == true && end > 0.0 && end < 86_400.0, "{}", short["base"]);
    // Both sides of a what-if end at the same time.
    let wanted = [quota_of("2")];
    for stops in [Stops { first_of_two: none, ..STOPS }, Stops { second_of_two: none, ..STOPS }] {
        let answer = simulated(&wanted, stops);
        let sides = ["base", "changed"].map(|side| &answer[side]);
        assert!(sides.iter().all(|side| side["partial"] == true), "{answer}");
        assert_eq!(sides[0]["seconds"], sides[1]["seconds"]);
        assert!(
            sides.iter().all(|side| latest(side) <= seconds(side) && seconds(side) < 86_400.0),
            "{answer}"
        );
    }
}

#[test]
fn a_simulation_for_which_another_user_waits_stops_sooner() {
    let none = Duration::ZERO;
    let pace = Pace {
        alone: STOPS,
        shared: Stops { one: none, first_of_two: none, second_of_two: none },
        waiting: Waiting::default(),
    };
    let partial = || {
        let begin = (begin(), Cancel::default());
        let lasts = SignedDuration::from_hours(24);
        let text = super::simulated(begin, lasts, &[], (&admin(), None), &pace).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["base"]["partial"].clone()
    };
    assert_eq!(partial(), false);
    let waits = pace.waiting.enter();
    assert_eq!(partial(), true);
    drop(waits);
    assert_eq!(partial(), false);
}

#[test]
fn users_who_ask_as_often_as_they_may_leave_turns_to_others() {
    let now = Instant::now();
    let mut turns = TurnsByUser::new(EACH, ALL, now);
    for second in 0..60 {
        let now = now + Duration::from_secs(second);
        for user in ["alice", "carol", "dave"] {
            while turns.take(user, now) {}
        }
        assert!(turns.take(&format!("bob-{second}"), now), "in second {second}");
    }
}

#[test]
fn a_caller_who_is_gone_is_not_simulated_for() {
    let gone = CallerIsGone::default();
    let later = Instant::now() + Duration::from_hours(1);
    let cancel = gone.or_at(later);
    assert!(!cancel.is_cancelled() && gone.or_at(Instant::now()).is_cancelled());
    drop(gone);
    assert!(cancel.is_cancelled());
}
