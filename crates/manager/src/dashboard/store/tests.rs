use serde_json::{Value, json};
use sluice_engine::input::Object;

use super::*;
use crate::dashboard::rows::State;

fn object<T: serde::de::DeserializeOwned>(of: Value) -> T {
    serde_json::from_value(of).unwrap()
}

/// A ClusterQueue of the cohort `all`, with four cores of the flavor `spot`.
pub(crate) fn cluster_queue(name: &str) -> Object {
    cluster_queue_of("all", name)
}

fn cluster_queue_of(cohort: &str, name: &str) -> Object {
    let quota = json!({"name": "cpu", "nominalQuota": "4", "borrowingLimit": "2"});
    Object::ClusterQueue(object(json!({
        "metadata": {"name": name},
        "spec": {"cohortName": cohort, "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [quota]}]},
        ]},
        "status": {"pendingWorkloads": 7, "flavorsReservation": [
            {"name": "spot", "resources": [{"name": "cpu", "total": "3500m", "borrowed": "0"}]},
        ]},
    })))
}

pub(crate) fn local_queue(namespace: &str, name: &str, target: &str) -> Object {
    Object::LocalQueue(object(json!({
        "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": target},
    })))
}

/// A condition that has had its status since a second of a minute.
pub(crate) fn condition(of: &str, status: &str, reason: &str, second: u32) -> Value {
    json!({
        "type": of, "status": status, "reason": reason, "message": format!("{of} because of secret-message"),
        "lastTransitionTime": format!("2026-01-01T00:01:{second:02}Z"),
    })
}

/// A Workload of three cores in a queue `lq`, with these conditions; with a reservation in `cq`, if it says so.
pub(crate) fn workload(namespace: &str, name: &str, conditions: &[Value]) -> Object {
    let reserved = conditions.iter().any(|c| c["type"] == "QuotaReserved" && c["status"] == "True");
    let domain =
        json!({"domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 3}});
    let admission = json!({"clusterQueue": "cq", "podSetAssignments": [{
        "name": "main", "count": 3, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "3"},
        "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": [domain]},
    }]});
    let mut status = json!({"conditions": conditions});
    if reserved {
        status["admission"] = admission;
    }
    let requests = json!({"requests": {"cpu": "1"}});
    Object::Workload(object(json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": format!("job-{name}"), "uid": "j", "controller": true}],
        },
        "spec": {"queueName": "lq", "priority": 5, "podSets": [{
            "name": "main", "count": 3, "template": {"spec": {"containers": [{"name": "c", "resources": requests}]}},
        }]},
        "status": status,
    })))
}

pub(crate) fn node(name: &str, ready: bool) -> Object {
    Object::Node(object(json!({
        "metadata": {"name": name, "labels": {"pool": "spot", "rack": "r1"}},
        "status": {
            "allocatable": {"cpu": "8"},
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    })))
}

/// Two namespaces that share a ClusterQueue: `a` has a Workload that is admitted and one that waits, `secret-ns` the same, and one more that waits in a
/// ClusterQueue of its own.
pub(crate) fn world() -> Store {
    let store = Store::default();
    let labels = json!({"nodeLabels": {"pool": "spot"}, "topologyName": "racks"});
    let flavor = object(json!({"metadata": {"name": "spot"}, "spec": labels}));
    let levels = json!({"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]});
    let topology = object(json!({"metadata": {"name": "racks"}, "spec": levels}));
    let mut objects = vec![
        Object::ResourceFlavor(flavor),
        Object::Topology(topology),
        cluster_queue("cq"),
        node("n1", true),
        node("n2", false),
    ];
    for namespace in ["a", "secret-ns"] {
        let own = |name: &str| if namespace == "a" { name.to_owned() } else { format!("secret-{name}") };
        // Who may write a status may write any reason.
        let why = if namespace == "a" { "Admitted" } else { "secret-reason" };
        let admitted =
            [condition("QuotaReserved", "True", "QuotaReserved", 1), condition("Admitted", "True", why, 2)];
        objects.extend([
            local_queue(namespace, "lq", "cq"),
            workload(namespace, &own("runs"), &admitted),
            workload(
                namespace,
                &own("<script>alert(1)</script>"),
                &[condition("QuotaReserved", "False", "Pending", 1)],
            ),
        ]);
    }
    let waits = condition("QuotaReserved", "False", "Pending", 1);
    objects.extend([
        cluster_queue_of("secret-cohort", "secret-team"),
        local_queue("secret-ns", "secret-lq", "secret-team"),
        waiting_in("secret-ns", "secret-lq", "secret-waits", &waits),
    ]);
    for object in objects {
        store.note(&Input::Applied(object));
    }
    store.synced();
    store
}

/// ClusterQueues with a LocalQueue each, and Workloads that wait in them in turn.
pub(crate) fn many(queues: usize, workloads: usize) -> Store {
    let store = Store::default();
    let waits = condition("QuotaReserved", "False", "Pending", 1);
    for number in 0..queues {
        store.note(&Input::Applied(cluster_queue(&format!("cq-{number}"))));
        store.note(&Input::Applied(local_queue("a", &format!("lq-{number}"), &format!("cq-{number}"))));
    }
    for number in 0..workloads {
        let name = format!("w-{number:05}");
        store.note(&Input::Applied(waiting_in("a", &format!("lq-{}", number % queues), &name, &waits)));
    }
    store.synced();
    store
}

fn waiting_in(namespace: &str, queue: &str, name: &str, waits: &Value) -> Object {
    let Object::Workload(mut object) = workload(namespace, name, std::slice::from_ref(waits)) else {
        unreachable!()
    };
    Arc::make_mut(&mut object.spec).queue_name = queue.into();
    Object::Workload(object)
}

#[test]
fn one_change_among_twenty_thousand_workloads_copies_only_what_changed() {
    let store = many(1_000, 20_000);
    let before = store.fresh();
    let waits = condition("QuotaReserved", "False", "Other", 2);
    let change = waiting_in("a", "lq-7", "w-00007", &waits);
    let noted = allocation_counter::measure(|| store.note(&Input::Applied(change.clone())));
    assert!(noted.count_total < 200, "{noted:?}");
    let after = store.fresh();
    let seven = |of: &Snapshot| of.workloads.values().nth(7).map(Arc::clone).unwrap();
    assert!(!Arc::ptr_eq(&seven(&before), &seven(&after)), "the one before stays as it was");
    let rows = before.workloads.values().zip(after.workloads.values());
    assert_eq!(rows.filter(|(old, new)| !Arc::ptr_eq(old, new)).count(), 1);
    let mut queues = before.cluster_queues.values().zip(after.cluster_queues.values());
    assert!(queues.all(|(old, new)| Arc::ptr_eq(old, new)));
    // Once the one before is not in use, not even the pointers of the others are copied.
    drop(before);
    drop(after);
    store.note(&Input::Applied(waiting_in(
        "a",
        "lq-7",
        "w-00007",
        &condition("QuotaReserved", "False", "Again", 3),
    )));
    let made = allocation_counter::measure(|| drop(store.fresh()));
    // One for each would be 160 kB.
    assert!(made.bytes_total < 40_000, "{made:?}");
}

#[test]
fn nothing_is_shown_before_everything_was_listed() {
    let store = Store::default();
    store.note(&Input::Applied(cluster_queue("cq")));
    assert!(store.snapshot().is_none());
    store.synced();
    assert_eq!(store.snapshot().unwrap().cluster_queues.len(), 1);
}

#[test]
fn sums_are_those_of_the_workloads_of_a_queue() {
    let store = world();
    let snapshot = store.snapshot().unwrap();
    let sums = &snapshot.sums()["cq"];
    assert_eq!((sums.pending, sums.reserving, sums.admitted), (2, 2, 2));
    assert_eq!(sums.used["spot"]["cpu"], 6000);
    let states: Vec<_> = sums.members.iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Admitted, State::Admitted, State::Pending, State::Pending]);
}

#[test]
fn what_is_gone_is_not_shown_and_what_is_the_same_is_no_change() {
    let store = world();
    let before = store.revisions().borrow().all;
    store.note(&Input::Applied(node("n1", true)));
    store.note(&Input::Applied(cluster_queue("cq")));
    assert_eq!(store.revisions().borrow().all, before);
    let gone = workload("a", "runs", &[]).object_ref();
    store.note(&Input::Deleted { object: gone, uid: None });
    let kept = node("n2", true).object_ref();
    store.note(&Input::Listed { kind: Kind::Node, present: vec![kept], as_of: None });
    store.expire();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.workloads.len(), 4);
    assert_eq!(snapshot.nodes.keys().map(AsRef::as_ref).collect::<Vec<&str>>(), ["n2"]);
    let revisions = *store.revisions().borrow();
    assert_eq!((revisions.all, revisions.nodes, revisions.queues), (before + 2, before + 2, before + 1));
}

#[test]
fn what_happened_is_reported_once_newest_first_and_bounded() {
    let store = Store::default();
    store.synced();
    let reported = |store: &Store| {
        store.expire();
        store.snapshot().unwrap().recent.iter().map(|one| one.what).collect::<Vec<_>>()
    };
    store.note(&Input::Applied(workload("a", "w", &[])));
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", 1);
    let evicted = condition("Evicted", "True", "Preempted", 3);
    store.note(&Input::Applied(workload("a", "w", std::slice::from_ref(&reserved))));
    store.note(&Input::Applied(workload("a", "w", &[reserved.clone(), evicted.clone()])));
    store.note(&Input::Applied(workload("a", "w", &[reserved, evicted])));
    assert_eq!(reported(&store), ["preempted", "reserved", "pending"]);
    for number in 0..500 {
        store.note(&Input::Applied(workload(
            "a",
            &format!("w{number}"),
            &[condition("Evicted", "True", "NodeFailures", 4)],
        )));
    }
    let reported = reported(&store);
    assert_eq!((reported.len(), reported[0]), (crate::dashboard::happening::MOST, "hotswap"));
}

#[test]
fn a_message_is_cut_at_a_character_and_a_wrong_topology_is_harmless() {
    let mut long = condition("QuotaReserved", "False", "Pending", 1);
    long["message"] = json!("ü".repeat(20_000));
    let Object::Workload(mut huge) =
        workload("a", "w", &[long, condition("Admitted", "True", "Admitted", 1)])
    else {
        unreachable!()
    };
    let domain = json!({"domainCount": i32::MAX, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 1}});
    huge.status.admission = Some(
        serde_json::from_value(json!({"clusterQueue": "cq", "podSetAssignments": [{
            "name": "main", "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": [domain]},
        }]}))
        .unwrap(),
    );
    let row = WorkloadRow::of(&huge);
    assert_eq!(row.placed[0].domains.len(), 1);
    let Object::Workload(waits) = workload(
        "a",
        "w",
        &[{
            let mut long = condition("QuotaReserved", "False", "Pending", 1);
            long["message"] = json!("ü".repeat(20_000));
            long
        }],
    ) else {
        unreachable!()
    };
    let row = WorkloadRow::of(&waits);
    assert!(row.message.len() <= 1024 && row.message.chars().all(|c| c == 'ü'));
}

#[test]
fn what_is_deactivated_is_a_member_of_its_queue_and_not_pending() {
    let store = world();
    let Object::Workload(mut off) = workload("a", "off", &[]) else { unreachable!() };
    Arc::make_mut(&mut off.spec).active = false;
    store.note(&Input::Applied(Object::Workload(off)));
    let snapshot = store.fresh();
    let sums = &snapshot.sums()["cq"];
    assert_eq!((sums.pending, sums.members.len()), (2, 5));
    assert_eq!(sums.members[4].state, State::Inactive);
}

#[test]
fn a_late_deletion_takes_no_namesake_away() {
    let store = world();
    let object = workload("a", "runs", &[]).object_ref();
    let gone = |uid: &str| store.note(&Input::Deleted { object: object.clone(), uid: Some(uid.into()) });
    gone("uid-of-one-before");
    assert_eq!(store.fresh().workloads.len(), 5);
    gone("uid-runs");
    assert_eq!(store.fresh().workloads.len(), 4);
}

#[test]
fn namespaces_are_those_of_workloads_and_queues() {
    let store = world();
    store.note(&Input::Applied(workload("lost", "w", &[])));
    store.note(&Input::Applied(local_queue("idle", "lq", "cq")));
    let snapshot = store.fresh();
    let all: Vec<&str> = snapshot.namespaces().iter().map(AsRef::as_ref).collect();
    assert_eq!(all, ["a", "idle", "lost", "secret-ns"]);
}

#[test]
fn it_is_reported_when_the_cluster_cannot_be_read_and_when_it_can_again() {
    let store = Store::default();
    let mut reported = store.revisions();
    let read = Timestamp::UNIX_EPOCH;
    store.alive(read);
    store.cut_off();
    assert!(reported.has_changed().unwrap());
    assert_eq!((reported.borrow_and_update().old, store.old()), (Some(read), Some(read)));
    store.cut_off();
    assert!(!reported.has_changed().unwrap(), "nothing new");
    store.alive(Timestamp::now());
    assert!(reported.has_changed().unwrap());
    assert_eq!(reported.borrow_and_update().old, None);
}
