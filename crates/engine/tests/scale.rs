//! The cost of large worlds, as counts: start-up grows with the number of objects, and a change costs only what depends on it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::{Effect, Engine, EngineConfig, Input, Kind, Object, ObjectRef, Work, Write};

mod big;

use big::{FLAVORS, Size};

/// Inputs between two cycles.
const BATCH: usize = 64;

/// Gives an engine inputs, with a cycle after each batch. Answers of writes do not come.
fn give(engine: &mut Engine, inputs: Vec<Input>) {
    for (at, input) in inputs.into_iter().enumerate() {
        engine.apply(big::now(), input);
        if at % BATCH == BATCH - 1 {
            engine.cycle(big::now());
        }
    }
    rest(engine);
}

fn rest(engine: &mut Engine) {
    engine.cycle(big::now());
    while engine.has_work() {
        engine.cycle(big::now());
    }
}

fn size(queues: usize) -> Size {
    Size { queues, workloads: 4, admitted: 1 }
}

fn leader() -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    engine.apply(big::now(), Input::Leader(true));
    engine
}

/// What a leader does to take in a world, and the allocations that it makes.
fn start_up(queues: usize, backwards: bool) -> (Work, u64) {
    let mut objects = big::objects(size(queues));
    if backwards {
        objects.reverse();
    }
    let inputs = big::start(objects);
    let mut engine = leader();
    let allocated = allocation_counter::measure(|| give(&mut engine, inputs));
    (engine.work(), allocated.count_total)
}

/// What a change costs an engine.
fn cost(engine: &mut Engine, inputs: Vec<Input>) -> Work {
    let before = engine.work();
    give(engine, inputs);
    let after = engine.work();
    Work {
        statuses: after.statuses - before.statuses,
        workloads: after.workloads - before.workloads,
        jobs: after.jobs - before.jobs,
        rebuilt_nodes: after.rebuilt_nodes - before.rebuilt_nodes,
        evaluations: after.evaluations - before.evaluations,
        hotswap_steps: after.hotswap_steps - before.hotswap_steps,
        hotswap_looks: after.hotswap_looks - before.hotswap_looks,
        hotswap_workloads: after.hotswap_workloads - before.hotswap_workloads,
        hotswap_rooms: after.hotswap_rooms - before.hotswap_rooms,
        brakes: after.brakes - before.brakes,
        placement_searches: after.placement_searches - before.placement_searches,
        counted_domains: after.counted_domains - before.counted_domains,
        ordered_domains: after.ordered_domains - before.ordered_domains,
        freed_queues: after.freed_queues - before.freed_queues,
        counted_pods: after.counted_pods - before.counted_pods,
        followed_workloads: after.followed_workloads - before.followed_workloads,
        asked_hosts: after.asked_hosts - before.asked_hosts,
    }
}

#[test]
fn start_up_grows_with_the_number_of_objects_and_not_faster() {
    for backwards in [false, true] {
        let (small, small_allocations) = start_up(500, backwards);
        let (large, large_allocations) = start_up(1_000, backwards);
        // Flavors, the check and the Cohorts have a look, too.
        let most = 2 * 1_000 + FLAVORS as u64 + 1 + 52;
        assert!(large.statuses <= most, "{} statuses for 2,000 queues", large.statuses);
        assert!(large.rebuilt_nodes <= 2 * small.rebuilt_nodes, "{small:?} {large:?}");
        assert!(large.workloads <= 2 * small.workloads + 4, "{small:?} {large:?}");
        assert!(large.evaluations <= 2 * small.evaluations + 4, "{small:?} {large:?}");
        let growth = large_allocations * 100 / small_allocations;
        assert!(growth <= 210, "{small_allocations} allocations, then {large_allocations}");
    }
}

#[test]
fn before_everything_was_seen_and_without_the_lease_no_status_is_worked_out() {
    let mut inputs = big::start(big::objects(size(100)));
    let synced = inputs.pop();
    let mut engine = leader();
    give(&mut engine, inputs);
    assert_eq!(engine.work(), Work::default());
    give(&mut engine, synced.into_iter().collect());
    assert!(engine.work().statuses >= 200);

    let mut standby = Engine::new(EngineConfig::default());
    give(&mut standby, big::start(big::objects(size(100))));
    assert_eq!(standby.work().statuses, 0);
    let taken_over = cost(&mut standby, vec![Input::Leader(true)]);
    assert!((200..=300).contains(&taken_over.statuses), "{taken_over:?}");
    assert!(taken_over.rebuilt_nodes == 0, "{taken_over:?}");
}

/// Lets an engine write the statuses and finalizers of queues, flavors and checks, as an API server would take them, until it rests.
fn write_all(engine: &mut Engine, objects: &[Object]) {
    let mut known: BTreeMap<ObjectRef, Value> = BTreeMap::new();
    for object in objects {
        if let Some(value) = to_value(object) {
            known.insert(object.object_ref(), value);
        }
    }
    for version in 2.. {
        let mut writes = Vec::new();
        for effect in engine.cycle(big::now()) {
            if let Effect::Write(write) = effect {
                writes.push(write);
            }
        }
        let mut any = engine.has_work();
        for write in writes {
            let (Write::MergePatch { body, .. }, Some(value)) = (write.write, known.get_mut(&write.object))
            else {
                continue;
            };
            json_patch::merge(value, &body);
            value["metadata"]["resourceVersion"] = version.to_string().into();
            let result = Ok(Some(from_value(write.object.kind, value)));
            engine.apply(big::now(), Input::Written { id: write.id, result });
            any = true;
        }
        if !any {
            return;
        }
    }
}

fn to_value(object: &Object) -> Option<Value> {
    let value = match object {
        Object::ClusterQueue(o) => serde_json::to_value(o),
        Object::LocalQueue(o) => serde_json::to_value(o),
        Object::ResourceFlavor(o) => serde_json::to_value(o),
        Object::AdmissionCheck(o) => serde_json::to_value(o),
        _ => return None,
    };
    Some(value.expect("the object encodes"))
}

fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("the object decodes")
}

fn from_value(kind: Kind, value: &Value) -> Object {
    match kind {
        Kind::ClusterQueue => Object::ClusterQueue(typed(value)),
        Kind::LocalQueue => Object::LocalQueue(typed(value)),
        Kind::ResourceFlavor => Object::ResourceFlavor(typed(value)),
        _ => Object::AdmissionCheck(typed(value)),
    }
}

/// A leader that knows these objects and has written the statuses.
fn at_rest(objects: &[Object]) -> Engine {
    let mut engine = Engine::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    engine.apply(big::now(), Input::Leader(true));
    give(&mut engine, big::start(Vec::new()));
    for object in objects {
        engine.apply(big::now(), Input::Applied(object.clone()));
    }
    write_all(&mut engine, objects);
    engine
}

#[test]
fn a_change_costs_what_hangs_on_it() {
    let queues: usize = 200;
    let mut engine = at_rest(&big::objects(size(queues)));
    let mut cost = |input: Input| cost(&mut engine, vec![input]);

    assert_eq!(cost(Input::Tick), Work::default());
    let flavor = cost(Input::Applied(big::flavor(3, "b").object()));
    // What is inadmissible in the tree is tried again, so that each ClusterQueue is looked at; but no LocalQueue.
    assert!((1..=queues as u64 + 1).contains(&flavor.statuses), "{flavor:?}");
    assert!(flavor.evaluations <= queues as u64, "{flavor:?}");
    assert_eq!((flavor.rebuilt_nodes, flavor.workloads), (0, 0), "{flavor:?}");
    let check = cost(Input::Applied(big::check("checked", false).object()));
    assert_eq!((check.statuses, check.workloads, check.rebuilt_nodes), (1, 0, 0), "{check:?}");
    let same = cost(Input::Applied(big::cluster_queue(5, 2).object()));
    assert!(same.statuses <= 1 && same.workloads == 0 && same.rebuilt_nodes == 0, "{same:?}");
    let local = cost(Input::Deleted { object: reference(7), uid: None });
    // What is inadmissible in the tree may be tried again, as above.
    assert!(local.statuses <= queues as u64 && (1..=4).contains(&local.workloads), "{local:?}");
}

fn reference(queue: usize) -> ObjectRef {
    ObjectRef::namespaced(Kind::LocalQueue, format!("team-{}", queue / 10), format!("lq-{queue}"))
}

#[test]
fn a_runtime_class_concerns_the_workloads_that_name_it() {
    let mut sandboxed: Value =
        serde_json::from_slice(&big::workload(3, 99, false).text()).expect("it is JSON");
    sandboxed["spec"]["podSets"][0]["template"]["spec"]["runtimeClassName"] = json!("sandbox");
    let mut objects = big::objects(size(40));
    objects.push(big::decode(Kind::Workload, sandboxed.to_string().as_bytes()));
    let mut engine = at_rest(&objects);
    let mut cost = |input: Input| cost(&mut engine, vec![input]);
    let class = |name: &str, version: &str, cpus: &str| {
        let overhead = json!({"podFixed": {"cpu": cpus}});
        let metadata = json!({"name": name, "resourceVersion": version});
        let value = json!({"metadata": metadata, "handler": "runsc", "overhead": overhead});
        Input::Applied(Object::RuntimeClass(typed(&value)))
    };
    // What waits is 121 Workloads.
    let concerns_one = |cost: Work| assert!((1..=4).contains(&cost.workloads), "{cost:?}");

    assert_eq!(cost(class("other", "1", "1")).workloads, 0);
    concerns_one(cost(class("sandbox", "2", "1")));
    assert_eq!(cost(class("sandbox", "3", "1")), Work::default(), "it adds the same to its pods");
    concerns_one(cost(class("sandbox", "4", "2")));
    let object = ObjectRef::cluster(Kind::RuntimeClass, "sandbox");
    concerns_one(cost(Input::Deleted { object, uid: None }));
}

/// What work depends on, with this version, and with these CPUs or this priority in it.
fn surroundings(version: &str, number: i32) -> Vec<Object> {
    let metadata = |name: &str| json!({"name": name, "resourceVersion": version});
    let mut in_team = metadata("limits");
    in_team["namespace"] = json!("team-0");
    let limits = json!([{"type": "Container", "max": {"cpu": number.to_string()}}]);
    let class = json!({"metadata": metadata("urgent"), "value": number});
    let config =
        json!({"provisioningClassName": "queued", "managedResources": [format!("example.com/n{number}")]});
    vec![
        Object::LimitRange(typed(&json!({"metadata": in_team, "spec": {"limits": limits}}))),
        Object::PriorityClass(typed(&class)),
        Object::ProvisioningRequestConfig(typed(&json!({"metadata": metadata("dws"), "spec": config}))),
        Object::WorkloadPriorityClass(typed(&class)),
        Object::Namespace(typed(&json!({"metadata": metadata("team-0")}))),
    ]
}

/// The list after a watch that broke has every object again.
#[test]
fn objects_that_come_again_unchanged_cost_nothing() {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let pod = json!({"containers": [container], "priorityClassName": "missing", "restartPolicy": "Never"});
    let job = json!({
        "metadata": {"name": "job", "namespace": "team-0", "uid": "job", "generation": 1, "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"kueue.x-k8s.io/queue-name": "lq-0"}},
        "spec": {"suspend": true, "template": {"spec": pod}},
    });
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"});
    let check = json!({
        "metadata": {"name": "provisioned", "uid": "provisioned", "generation": 1, "resourceVersion": "1"},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters},
    });
    let mut objects = big::objects(size(20));
    objects.push(Object::Job(Box::new(sluice_jobs::observe(JobKind::JOB, &job))));
    objects.push(Object::AdmissionCheck(typed(&check)));
    objects.extend(surroundings("1", 5));
    let mut engine = at_rest(&objects);
    for object in surroundings("2", 5) {
        let what = object.object_ref();
        assert_eq!(cost(&mut engine, vec![Input::Applied(object)]), Work::default(), "{what}");
    }
    let mut changed = surroundings("3", 6).into_iter().map(Input::Applied);
    let mut next = || cost(&mut engine, changed.next().into_iter().collect());
    assert!(next().workloads >= 1, "other limits are those of the Workloads that wait in the namespace");
    assert!(next().jobs >= 1, "the job names a PriorityClass that does not exist");
    assert!(next().statuses >= 1, "the check says whether its configuration is in order");
}

#[test]
fn queues_that_come_together_rebuild_their_tree_once() {
    let mut engine = leader();
    give(&mut engine, big::start(big::objects(size(100))));
    let more = (100..150).map(|queue| Input::Applied(big::cluster_queue(queue, 1).object())).collect();
    let work = cost(&mut engine, more);
    // The top, the Cohorts and the ClusterQueues.
    assert!(work.rebuilt_nodes <= 1 + 8 + 150, "{work:?}");
}
