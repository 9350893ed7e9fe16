//! Objects as the API server sends them, and what it costs to read them.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_engine::input::{Kind, Object};

use super::big;

/// What the API server notes of who wrote which fields: a third of what it sends of an object.
fn managed_fields() -> Value {
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:kueue.x-k8s.io/job-uid": {}}, "f:ownerReferences": {".": {}}},
        "f:spec": {".": {}, "f:active": {}, "f:podSets": {".": {}, "k:{\"name\":\"main\"}": {".": {}, "f:count": {}, "f:template": {}}},
            "f:queueName": {}}});
    json!([{"manager": "kueue", "operation": "Update", "apiVersion": "kueue.x-k8s.io/v1beta2", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields}])
}

/// The queues and Workloads of a world: nearly all of its objects.
pub fn of(size: big::Size) -> Vec<(Kind, String)> {
    let queues = 0..size.queues;
    let numbers = queues.clone().flat_map(|queue| (0..size.workloads).map(move |number| (queue, number)));
    let cluster_queues = queues.clone().map(|queue| big::cluster_queue_value(queue, size.admitted + 1));
    let local_queues = queues.map(big::local_queue_value);
    let workloads = numbers.map(|(queue, number)| big::workload_value(queue, number, number < size.admitted));
    let all = cluster_queues.map(|value| (Kind::ClusterQueue, value));
    let all = all.chain(local_queues.map(|value| (Kind::LocalQueue, value)));
    let all = all.chain(workloads.map(|value| (Kind::Workload, value)));
    let text = |(kind, mut value): (Kind, Value)| {
        value["metadata"]["managedFields"] = managed_fields();
        (kind, value.to_string())
    };
    all.map(text).collect()
}

/// Reads an object, as a watch does.
pub fn read(kind: Kind, text: &str) -> Object {
    match kind {
        Kind::ClusterQueue => Object::ClusterQueue(typed(text)),
        Kind::LocalQueue => Object::LocalQueue(typed(text)),
        _ => Object::Workload(typed(text)),
    }
}

fn typed<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).expect("the object decodes")
}
