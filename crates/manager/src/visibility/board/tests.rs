use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_engine::input::{Input, Object, ObjectRef};
use sluice_engine::{Engine, EngineConfig};

use super::*;

/// An engine that does not lead, and the board that follows it.
pub(crate) struct Follower {
    pub(crate) engine: Engine,
    pub(crate) board: Board,
    pub(crate) now: Instant,
}

fn object<T: serde::de::DeserializeOwned>(of: Value) -> T {
    serde_json::from_value(of).unwrap()
}

pub(crate) fn cluster_queue(name: &str) -> Object {
    Object::ClusterQueue(Box::new(object(json!({
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}],
        }]},
    }))))
}

pub(crate) fn local_queue(namespace: &str, name: &str, target: &str, version: u32) -> Object {
    Object::LocalQueue(Box::new(object(json!({
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": version.to_string()},
        "spec": {"clusterQueue": target},
    }))))
}

pub(crate) fn workload(namespace: &str, name: &str, queue: &str, priority: i32, second: u32) -> Object {
    Object::Workload(Box::new(object(json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "generation": 1,
            "resourceVersion": format!("{}", second + 1),
            "creationTimestamp": Timestamp::from_second(1_000_000 + i64::from(second)).unwrap(),
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": format!("job-{name}"), "uid": "j", "controller": true}],
        },
        "spec": {"queueName": queue, "priority": priority, "podSets": [{
            "name": "main", "count": 1,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        }]},
    }))))
}

impl Follower {
    pub(crate) fn new() -> Self {
        Self::with(EngineConfig::default())
    }

    fn with(config: EngineConfig) -> Self {
        let mut engine = Engine::new(config);
        engine.follow_positions();
        let mut follower = Self { engine, board: Board::default(), now: Instant::now() };
        follower.apply(Input::Synced);
        follower
    }

    fn apply(&mut self, input: Input) {
        self.engine.apply(Timestamp::from_second(2_000_000).unwrap(), input);
    }

    pub(crate) fn see(&mut self, object: Object) {
        self.apply(Input::Applied(object));
    }

    fn gone(&mut self, object: &Object) {
        self.apply(Input::Deleted { object: ObjectRef { ..object.object_ref() }, uid: None });
    }

    /// Takes over what changed, two at a time; how many Workloads were reported.
    pub(crate) fn follow(&mut self) -> usize {
        let mut reported = 0;
        while self.engine.has_moves() {
            let moves = self.engine.take_moves(2);
            assert!(moves.usages.len() <= 2 && moves.cluster_queues.len() + moves.local_queues.len() <= 2);
            reported += moves.workloads.len();
            self.board.apply(moves);
        }
        self.now += STALE;
        reported
    }

    fn cluster_queue(&mut self, name: &str, page: Page) -> Option<Vec<String>> {
        let order = self.board.order(name, self.now)?;
        Some(order.page(page).map(line).collect())
    }

    fn local_queue(&mut self, namespace: &str, name: &str, page: Page) -> Option<Vec<String>> {
        let key = (namespace.into(), name.into());
        let order = self.board.order_of(&key, self.now)?;
        Some(order.page_of(&key, page).map(line).collect())
    }
}

fn line(place: Place<'_>) -> String {
    format!("{} {} {}", place.waiting.standing.key().name, place.in_cluster_queue, place.in_local_queue)
}

const ALL: Page = Page { offset: 0, limit: 1000 };

fn world() -> Follower {
    let mut follower = Follower::new();
    follower.see(cluster_queue("cq"));
    follower.see(local_queue("a", "lq", "cq", 1));
    follower.see(local_queue("b", "lq", "cq", 1));
    for (at, (namespace, name, priority)) in
        [("a", "a0", 0), ("b", "b0", 0), ("a", "a1", 5), ("b", "b1", 0)].into_iter().enumerate()
    {
        follower.see(workload(namespace, name, "lq", priority, u32::try_from(at).unwrap()));
    }
    assert_eq!(follower.follow(), 4);
    follower
}

#[test]
fn a_replica_that_does_not_lead_knows_all_places() {
    let mut follower = world();
    assert_eq!(follower.cluster_queue("cq", ALL).unwrap(), ["a1 0 0", "a0 1 1", "b0 2 0", "b1 3 1"]);
    assert_eq!(follower.local_queue("b", "lq", ALL).unwrap(), ["b0 2 0", "b1 3 1"]);
}

#[test]
fn one_place_is_found_by_name() {
    let mut follower = world();
    let order = follower.board.order("cq", follower.now).unwrap();
    let place = |namespace: &str, name: &str| {
        order.place_of(&WorkloadKey { namespace: namespace.into(), name: name.into() })
    };
    let all = [place("a", "a0"), place("a", "a1"), place("b", "b0"), place("b", "b1")];
    assert_eq!(all, [Some(1), Some(0), Some(2), Some(3)]);
    assert_eq!((place("b", "a0"), place("a", "none")), (None, None));
}

#[test]
fn places_follow_changes_and_only_what_changed_is_reported() {
    let mut follower = world();
    follower.see(workload("b", "b1", "lq", 9, 3_000));
    assert_eq!(follower.follow(), 1);
    assert_eq!(follower.cluster_queue("cq", ALL).unwrap(), ["b1 0 0", "a1 1 0", "a0 2 1", "b0 3 1"]);
    follower.gone(&workload("a", "a1", "lq", 5, 2));
    assert_eq!(follower.follow(), 1);
    assert_eq!(follower.cluster_queue("cq", ALL).unwrap(), ["b1 0 0", "a0 1 0", "b0 2 1"]);
    // Nothing changed: nothing is reported.
    assert_eq!(follower.follow(), 0);
}

#[test]
fn a_local_queue_that_points_elsewhere_takes_its_workloads_with_it() {
    let mut follower = world();
    follower.see(cluster_queue("other"));
    follower.see(local_queue("b", "lq", "other", 2));
    follower.follow();
    assert_eq!(follower.cluster_queue("other", ALL).unwrap(), ["b0 0 0", "b1 1 1"]);
    assert_eq!(follower.cluster_queue("cq", ALL).unwrap(), ["a1 0 0", "a0 1 1"]);
    assert_eq!(follower.local_queue("b", "lq", ALL).unwrap().len(), 2);
    follower.see(local_queue("b", "lq", "nowhere", 3));
    follower.follow();
    assert_eq!(follower.local_queue("b", "lq", ALL).unwrap(), [""; 0]);
}

#[test]
fn missing_queues_are_distinguished_from_empty_ones() {
    let mut follower = world();
    follower.see(cluster_queue("empty"));
    follower.follow();
    assert_eq!(follower.cluster_queue("empty", ALL).unwrap(), [""; 0]);
    assert_eq!(follower.cluster_queue("missing", ALL), None);
    assert_eq!(follower.local_queue("a", "missing", ALL), None);
    follower.gone(&cluster_queue("cq"));
    follower.gone(&local_queue("a", "lq", "cq", 1));
    follower.follow();
    assert_eq!(follower.cluster_queue("cq", ALL), None);
    assert_eq!(follower.local_queue("a", "lq", ALL), None);
    assert_eq!(follower.local_queue("b", "lq", ALL).unwrap(), [""; 0]);
    follower.gone(&local_queue("b", "lq", "cq", 1));
    for name in ["a0", "a1"] {
        follower.gone(&workload("a", name, "lq", 0, 0));
    }
    for name in ["b0", "b1"] {
        follower.gone(&workload("b", name, "lq", 0, 0));
    }
    follower.follow();
    assert!(follower.board.homes.is_empty() && follower.board.local_queues.is_empty());
    assert_eq!(follower.board.cluster_queues.len(), 1, "nothing is kept of what is gone");
}

#[test]
fn pages_are_cut_out_with_the_places_of_the_whole() {
    let mut follower = world();
    let page = |offset, limit| Page { offset, limit };
    assert_eq!(follower.cluster_queue("cq", page(1, 2)).unwrap(), ["a0 1 1", "b0 2 0"]);
    assert_eq!(follower.local_queue("b", "lq", page(1, 5)).unwrap(), ["b1 3 1"]);
    assert_eq!(follower.cluster_queue("cq", page(usize::MAX, 5)).unwrap(), [""; 0]);
    assert_eq!(follower.cluster_queue("cq", page(0, 0)).unwrap(), [""; 0]);
    assert_eq!(follower.cluster_queue("cq", page(2, usize::MAX)).unwrap().len(), 2);
}

#[test]
fn a_new_owner_is_shown_although_the_place_is_the_same() {
    let mut follower = world();
    let Object::Workload(mut changed) = workload("a", "a0", "lq", 0, 0) else { unreachable!("it is one") };
    changed.metadata.resource_version = Some("900".to_owned());
    changed.metadata.owner_references = None;
    follower.see(Object::Workload(changed));
    assert_eq!(follower.follow(), 1);
    let order = follower.board.order("cq", follower.now).unwrap();
    let owners: Vec<_> = order.page(ALL).map(|place| place.waiting.owners.len()).collect();
    assert_eq!(owners, [1, 0, 1, 1]);
}

/// ClusterQueues whose members are in the order of the usage of their LocalQueues, and `count` of these.
fn by_usage(count: u32) -> Follower {
    let mut configuration = sluice_sim::Options::default_configuration();
    configuration.admission_fair_sharing = Some(sluice_api::config::AdmissionFairSharing {
        usage_half_life_time: sluice_api::config::Duration::ZERO,
        usage_sampling_interval: sluice_api::config::Duration::from_secs(300),
        resource_weights: std::collections::BTreeMap::new(),
    });
    let mut follower = Follower::with(EngineConfig::from(&configuration));
    follower.see(Object::ClusterQueue(Box::new(object(json!({
        "metadata": {"name": "cq", "resourceVersion": "1"},
        "spec": {
            "namespaceSelector": {}, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}],
        },
    })))));
    for number in 0..count {
        follower.see(cluster_queue(&format!("other{number}")));
        // The later its name, the less it has used.
        let used = json!({"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
            "consumedResources": {"cpu": (count - number).to_string()}, "lastUpdate": "1970-01-24T00:00:00Z"}}});
        follower.see(Object::LocalQueue(Box::new(object(json!({
            "metadata": {"name": format!("lq{number}"), "namespace": "a", "resourceVersion": "1"},
            "spec": {"clusterQueue": "cq"}, "status": used,
        })))));
        follower.see(workload("a", &format!("w{number}"), &format!("lq{number}"), 0, number));
    }
    follower
}

#[test]
fn usages_that_arrive_before_their_queues_order_them_all_the_same() {
    let mut follower = by_usage(9);
    follower.follow();
    let names = |lines: Vec<String>| -> Vec<String> {
        lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let least_used_first: Vec<_> = (0..9).rev().map(|number| format!("w{number}")).collect();
    assert_eq!(names(follower.cluster_queue("cq", ALL).unwrap()), least_used_first);
    // An order that was made before a queue is known is made again when that comes.
    let mut follower = by_usage(9);
    let (mut reported, mut usages) = (0, Vec::new());
    while follower.engine.has_moves() {
        let moves = follower.engine.take_moves(2);
        reported += moves.workloads.len();
        usages.push(moves.usages.len());
        follower.board.apply(moves);
        follower.now += STALE;
        follower.cluster_queue("cq", ALL);
    }
    assert_eq!((reported, names(follower.cluster_queue("cq", ALL).unwrap())), (9, least_used_first));
    assert!(usages.iter().all(|reported| *reported <= 2) && usages.iter().sum::<usize>() >= 9, "{usages:?}");
    assert_eq!(follower.board.usages.len(), 9);
    for number in 0..9 {
        follower.gone(&local_queue("a", &format!("lq{number}"), "cq", 1));
    }
    follower.follow();
    assert!(follower.board.usages.is_empty(), "what is gone is forgotten");
}

#[test]
fn a_queue_is_put_in_order_once_for_all_who_ask() {
    let mut follower = world();
    let now = follower.now;
    let first = follower.board.order("cq", now).unwrap();
    follower.see(workload("b", "b2", "lq", 0, 10));
    let moves = follower.engine.take_moves(10);
    follower.board.apply(moves);
    assert!(Arc::ptr_eq(&first, &follower.board.order("cq", now).unwrap()), "not again at once");
    let second = follower.board.order("cq", now + STALE).unwrap();
    assert_eq!(second.page(ALL).count(), 5);
    assert!(Arc::ptr_eq(&second, &follower.board.order("cq", now + 50 * STALE).unwrap()), "nothing changed");
}

#[test]
fn reports_cost_as_much_as_the_changes_in_a_world_of_a_thousand_queues() {
    let mut follower = Follower::new();
    for at in 0..1000 {
        follower.see(cluster_queue(&format!("cq{at}")));
        follower.see(local_queue("ns", &format!("lq{at}"), &format!("cq{at}"), 1));
    }
    for at in 0..10_000 {
        follower.see(workload("ns", &format!("w{at}"), &format!("lq{}", at % 1000), 0, at));
    }
    follower.follow();
    follower.see(workload("ns", "w17", "lq17", 3, 20_000));
    let moves = follower.engine.take_moves(1000);
    let reported =
        (moves.workloads.len(), moves.cluster_queues.len(), moves.local_queues.len(), moves.usages.len());
    assert_eq!(reported, (1, 0, 0, 0));
    let orders = |follower: &mut Follower| -> Vec<_> {
        let now = follower.now;
        (0..1000).map(|at| follower.board.order(&format!("cq{at}"), now).unwrap()).collect()
    };
    let before = orders(&mut follower);
    follower.board.apply(moves);
    follower.now += STALE;
    let shared = orders(&mut follower).iter().zip(&before).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert_eq!(shared, 999, "only one queue is put in order again");
}

/// Bytes that the board keeps of `workloads` waiting Workloads, with the order of their queue.
fn bytes_of(workloads: u32) -> i64 {
    let mut follower = Follower::new();
    follower.see(cluster_queue("cq"));
    follower.see(local_queue("a", "lq", "cq", 1));
    for number in 0..workloads {
        follower.see(workload("a", &format!("job-train-{number:06}-1a2b3"), "lq", 0, number));
    }
    let mut batches = Vec::new();
    while follower.engine.has_moves() {
        let moves = follower.engine.take_moves(250);
        assert!(moves.workloads.len() <= 250);
        batches.push(moves);
    }
    let cost = allocation_counter::measure(|| {
        // Copies, so that all that is kept was made here.
        for moves in &batches {
            follower.board.apply(moves.clone());
        }
        follower.board.order("cq", follower.now).unwrap();
    });
    cost.bytes_current
}

#[test]
fn a_waiting_workload_takes_less_than_a_kilobyte_of_the_copy() {
    let workloads = 2_000;
    let bytes = bytes_of(workloads);
    println!("{} bytes for each of {workloads}", bytes / i64::from(workloads));
    assert!(bytes < i64::from(workloads) * 1024, "{bytes}");
}
