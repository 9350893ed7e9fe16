//! A world of many queues as inputs of the engine: one tree of Cohorts, some flavors, one LocalQueue for each ClusterQueue, and
//! Workloads of which some hold quota.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_engine::{Input, Kind, Object, ObjectRef};

/// How large a world is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// ClusterQueues, and as many LocalQueues.
    pub queues: usize,
    /// Workloads of each queue.
    pub workloads: usize,
    /// Those of them that are admitted.
    pub admitted: usize,
}

/// ClusterQueues of one Cohort.
const PER_COHORT: usize = 20;
/// LocalQueues of one namespace.
const PER_NAMESPACE: usize = 10;
/// Flavors; each queue has quota of one.
pub const FLAVORS: usize = 10;

/// A time at which everything is old.
pub fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().expect("a time")
}

fn namespace_of(queue: usize) -> String {
    format!("team-{}", queue / PER_NAMESPACE)
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "uid": format!("uid-{name}"), "generation": 1, "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z"});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the object decodes")
}

/// A flavor; nodes of it have the label `pool=value`.
pub fn flavor(number: usize, value: &str) -> Object {
    let spec = json!({"nodeLabels": {"pool": value}});
    Object::ResourceFlavor(typed(
        json!({"metadata": metadata(&format!("flavor-{number}"), None), "spec": spec}),
    ))
}

/// A check of another controller.
pub fn check(name: &str, active: bool) -> Object {
    let condition = json!({"type": "Active", "status": if active { "True" } else { "False" }, "reason": "Active",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    Object::AdmissionCheck(typed(json!({"metadata": metadata(name, None),
        "spec": {"controllerName": "example.com/check"}, "status": {"conditions": [condition]}})))
}

/// A Cohort below the top.
pub fn cohort(number: usize) -> Object {
    let spec = json!({"parentName": "top"});
    Object::Cohort(typed(json!({"metadata": metadata(&format!("cohort-{number}"), None), "spec": spec})))
}

/// A ClusterQueue with so much quota.
pub fn cluster_queue(number: usize, cpus: usize) -> Object {
    Object::ClusterQueue(typed(json!({
        "metadata": metadata(&format!("cq-{number}"), None),
        "spec": {
            "cohortName": format!("cohort-{}", number / PER_COHORT),
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": format!("flavor-{}", number % FLAVORS), "resources": [{"name": "cpu", "nominalQuota": cpus}]}]}],
        },
    })))
}

/// The LocalQueue of a ClusterQueue.
pub fn local_queue(number: usize) -> Object {
    let name = format!("lq-{number}");
    Object::LocalQueue(typed(json!({"metadata": metadata(&name, Some(&namespace_of(number))),
        "spec": {"clusterQueue": format!("cq-{number}")}})))
}

/// A Workload of one pod with one CPU.
pub fn workload(queue: usize, number: usize, admitted: bool) -> Object {
    let name = format!("w-{queue}-{number}");
    let mut metadata = metadata(&name, Some(&namespace_of(queue)));
    let age = i64::try_from(number).unwrap_or(0);
    let created = now().checked_sub(SignedDuration::from_secs(86_400 - age)).expect("a time");
    metadata["creationTimestamp"] = json!(created.to_string());
    let status = if admitted {
        let condition = |type_: &str| {
            json!({"type": type_, "status": "True", "reason": type_, "message": "",
                "observedGeneration": 1, "lastTransitionTime": "2026-01-01T12:00:00Z"})
        };
        let assignment = json!({"name": "main", "count": 1, "flavors": {"cpu": format!("flavor-{}", queue % FLAVORS)},
            "resourceUsage": {"cpu": "1"}});
        json!({
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
            "admission": {"clusterQueue": format!("cq-{queue}"), "podSetAssignments": [assignment]},
        })
    } else {
        json!({})
    };
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    Object::Workload(typed(json!({
        "metadata": metadata,
        "spec": {"active": true, "queueName": format!("lq-{queue}"), "podSets": [{"name": "main", "count": 1,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}]},
        "status": status,
    })))
}

/// Every object, by kind: configuration, queues, Workloads.
pub fn objects(size: Size) -> Vec<Object> {
    let mut all: Vec<Object> = Vec::new();
    for number in 0..size.queues.div_ceil(PER_NAMESPACE) {
        let name = format!("team-{number}");
        all.push(Object::Namespace(typed(json!({"metadata": metadata(&name, None)}))));
    }
    all.extend((0..FLAVORS).map(|number| flavor(number, "a")));
    all.push(check("checked", true));
    all.push(Object::Cohort(typed(json!({"metadata": metadata("top", None), "spec": {}}))));
    all.extend((0..size.queues.div_ceil(PER_COHORT)).map(cohort));
    // What waits does not fit: half of it would with what others lend.
    all.extend((0..size.queues).map(|queue| cluster_queue(queue, size.admitted + 1)));
    all.extend((0..size.queues).map(local_queue));
    for queue in 0..size.queues {
        all.extend((0..size.workloads).map(|number| workload(queue, number, number < size.admitted)));
    }
    all
}

/// The inputs of an engine that starts: all objects, that each list is complete, and that the initial state is complete.
pub fn start(objects: Vec<Object>) -> Vec<Input> {
    let mut kinds: Vec<(Kind, Vec<ObjectRef>)> = Vec::new();
    for object in &objects {
        let reference = object.object_ref();
        match kinds.iter_mut().find(|(kind, _)| *kind == reference.kind) {
            Some((_, present)) => present.push(reference),
            None => kinds.push((reference.kind, vec![reference])),
        }
    }
    let lists = kinds.into_iter().map(|(kind, present)| Input::Listed { kind, present, as_of: Some(1) });
    let lists: Vec<_> = lists.collect();
    objects.into_iter().map(Input::Applied).chain(lists).chain([Input::Synced]).collect()
}
