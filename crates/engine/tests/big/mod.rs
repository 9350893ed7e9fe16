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

/// An object as the API server has it.
pub struct Document {
    pub kind: Kind,
    value: Value,
}

impl Document {
    /// Its JSON.
    pub fn text(&self) -> Vec<u8> {
        self.value.to_string().into_bytes()
    }

    /// The object.
    pub fn object(&self) -> Object {
        decode(self.kind, &self.text())
    }
}

/// Decodes an object as its watch does.
pub fn decode(kind: Kind, text: &[u8]) -> Object {
    fn typed<T: serde::de::DeserializeOwned>(text: &[u8]) -> T {
        serde_json::from_slice(text).expect("the object decodes")
    }
    match kind {
        Kind::Namespace => Object::Namespace(typed(text)),
        Kind::ResourceFlavor => Object::ResourceFlavor(typed(text)),
        Kind::AdmissionCheck => Object::AdmissionCheck(typed(text)),
        Kind::Cohort => Object::Cohort(typed(text)),
        Kind::ClusterQueue => Object::ClusterQueue(typed(text)),
        Kind::LocalQueue => Object::LocalQueue(typed(text)),
        Kind::Workload => Object::Workload(typed(text)),
        other => unreachable!("no {} is here", other.plural()),
    }
}

/// A flavor; nodes of it have the label `pool=value`.
pub fn flavor(number: usize, value: &str) -> Document {
    let spec = json!({"nodeLabels": {"pool": value}});
    let value = json!({"metadata": metadata(&format!("flavor-{number}"), None), "spec": spec});
    Document { kind: Kind::ResourceFlavor, value }
}

/// A check of another controller.
pub fn check(name: &str, active: bool) -> Document {
    let condition = json!({"type": "Active", "status": if active { "True" } else { "False" }, "reason": "Active",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let value = json!({"metadata": metadata(name, None),
        "spec": {"controllerName": "example.com/check"}, "status": {"conditions": [condition]}});
    Document { kind: Kind::AdmissionCheck, value }
}

/// A Cohort below the top.
pub fn cohort(number: usize) -> Document {
    let spec = json!({"parentName": "top"});
    let value = json!({"metadata": metadata(&format!("cohort-{number}"), None), "spec": spec});
    Document { kind: Kind::Cohort, value }
}

/// A ClusterQueue with so much quota.
pub fn cluster_queue(number: usize, cpus: usize) -> Document {
    let value = json!({
        "metadata": metadata(&format!("cq-{number}"), None),
        "spec": {
            "cohortName": format!("cohort-{}", number / PER_COHORT),
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": format!("flavor-{}", number % FLAVORS), "resources": [{"name": "cpu", "nominalQuota": cpus}]}]}],
        },
    });
    Document { kind: Kind::ClusterQueue, value }
}

/// The LocalQueue of a ClusterQueue.
pub fn local_queue(number: usize) -> Document {
    let metadata = metadata(&format!("lq-{number}"), Some(&namespace_of(number)));
    let value = json!({"metadata": metadata, "spec": {"clusterQueue": format!("cq-{number}")}});
    Document { kind: Kind::LocalQueue, value }
}

/// A Workload of one pod with one CPU.
pub fn workload(queue: usize, number: usize, admitted: bool) -> Document {
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
    let value = json!({
        "metadata": metadata,
        "spec": {"active": true, "queueName": format!("lq-{queue}"), "podSets": [{"name": "main", "count": 1,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}]},
        "status": status,
    });
    Document { kind: Kind::Workload, value }
}

/// Every object, by kind: configuration, queues, Workloads.
pub fn documents(size: Size) -> impl Iterator<Item = Document> {
    let Size { queues, workloads, admitted } = size;
    let namespaces = (0..queues.div_ceil(PER_NAMESPACE)).map(|number| {
        let value = json!({"metadata": metadata(&format!("team-{number}"), None)});
        Document { kind: Kind::Namespace, value }
    });
    let value = json!({"metadata": metadata("top", None), "spec": {}});
    let top = Document { kind: Kind::Cohort, value };
    namespaces
        .chain((0..FLAVORS).map(|number| flavor(number, "a")))
        .chain([check("checked", true), top])
        .chain((0..queues.div_ceil(PER_COHORT)).map(cohort))
        // What waits does not fit: half of it would with what others lend.
        .chain((0..queues).map(move |queue| cluster_queue(queue, admitted + 1)))
        .chain((0..queues).map(local_queue))
        .chain((0..queues).flat_map(move |queue| {
            (0..workloads).map(move |number| workload(queue, number, number < admitted))
        }))
}

/// The same, decoded.
pub fn objects(size: Size) -> Vec<Object> {
    documents(size).map(|document| document.object()).collect()
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
