//! The rows of the table, read from the API objects alone.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;

/// One Workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `kind/name` of the job.
    pub job: String,
    /// The LocalQueue.
    pub queue: String,
    /// The ClusterQueue that has reserved quota for it, or nothing.
    pub reserved_in: String,
    /// Whether it is admitted.
    pub admitted: bool,
    /// Its place among the waiting of its ClusterQueue, from 1.
    pub position: Option<usize>,
    /// `Waiting`, `Admitted`, `Evicted (Preempted)`, `Finished`, …
    pub state: String,
    /// Why it waits.
    pub why: String,
    /// Orders the table.
    created: String,
}

impl Row {
    /// The columns of the table.
    pub fn columns(&self) -> [String; 7] {
        let position = self.position.map_or_else(String::new, |position| position.to_string());
        let admitted = if self.admitted { "True" } else { "" };
        [
            self.job.clone(),
            self.queue.clone(),
            self.reserved_in.clone(),
            admitted.to_owned(),
            position,
            self.state.clone(),
            self.why.clone(),
        ]
    }
}

/// The titles of [`Row::columns`].
pub const TITLES: [&str; 7] = ["JOB", "QUEUE", "RESERVED IN", "ADMITTED", "POSITION", "STATE", "WHY PENDING"];

fn api(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data.pointer("/status/conditions")?.as_array()?.iter().find(|one| one["type"] == kind)
}

fn holds(object: &DynamicObject, kind: &str) -> bool {
    condition(object, kind).is_some_and(|one| one["status"] == "True")
}

fn text<'a>(value: Option<&'a Value>, field: &str) -> &'a str {
    value.and_then(|value| value[field].as_str()).unwrap_or_default()
}

fn created(object: &DynamicObject) -> String {
    object.metadata.creation_timestamp.as_ref().map_or_else(String::new, |time| time.0.to_string())
}

/// All Workloads, in the order of their creation.
pub async fn rows(client: &Client) -> Result<Vec<Row>> {
    let queues = api(client, "LocalQueue", "localqueues").list(&ListParams::default()).await?.items;
    let cluster_queues: BTreeMap<(String, String), String> = queues
        .into_iter()
        .map(|queue| {
            let target = queue
                .data
                .pointer("/spec/clusterQueue")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            ((queue.metadata.namespace.unwrap_or_default(), queue.metadata.name.unwrap_or_default()), target)
        })
        .collect();
    let workloads = api(client, "Workload", "workloads").list(&ListParams::default()).await?.items;
    let mut waiting: BTreeMap<&str, Vec<(i64, String, String)>> = BTreeMap::new();
    let cluster_queue = |workload: &DynamicObject| {
        let namespace = workload.metadata.namespace.clone().unwrap_or_default();
        let queue = text(workload.data.get("spec"), "queueName").to_owned();
        cluster_queues.get(&(namespace, queue)).map_or("", String::as_str)
    };
    for workload in &workloads {
        if !holds(workload, "QuotaReserved") && !holds(workload, "Finished") {
            waiting.entry(cluster_queue(workload)).or_default().push(order(workload));
        }
    }
    for queue in waiting.values_mut() {
        queue.sort();
    }
    let mut rows: Vec<Row> = workloads
        .iter()
        .map(|workload| {
            let queue = waiting.get(cluster_queue(workload));
            let me = order(workload);
            let place = queue.and_then(|queue| queue.iter().position(|one| *one == me));
            row(workload, place.map(|place| place + 1))
        })
        .collect();
    rows.sort_by(|a, b| (&a.created, &a.job).cmp(&(&b.created, &b.job)));
    Ok(rows)
}

/// The order of a queue: priority, then the time of the last eviction or of creation.
fn order(workload: &DynamicObject) -> (i64, String, String) {
    let priority = workload.data.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0);
    let evicted = condition(workload, "Evicted").filter(|one| one["status"] == "True");
    let since =
        evicted.map_or_else(|| created(workload), |one| text(Some(one), "lastTransitionTime").to_owned());
    (-priority, since, workload.metadata.uid.clone().unwrap_or_default())
}

fn row(workload: &DynamicObject, position: Option<usize>) -> Row {
    let owner =
        workload.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let own_name = || format!("workload/{}", workload.metadata.name.as_deref().unwrap_or_default());
    let job = owner.map_or_else(own_name, |owner| format!("{}/{}", owner.kind.to_lowercase(), owner.name));
    let reserved = condition(workload, "QuotaReserved");
    let evicted = condition(workload, "Evicted").filter(|one| one["status"] == "True");
    let finished = holds(workload, "Finished");
    let admitted = holds(workload, "Admitted");
    let state = if finished {
        "Finished".to_owned()
    } else if admitted {
        "Admitted".to_owned()
    } else if holds(workload, "QuotaReserved") {
        "Reserved".to_owned()
    } else if let Some(evicted) = evicted {
        format!("Evicted ({})", text(Some(evicted), "reason"))
    } else {
        "Waiting".to_owned()
    };
    let why = if position.is_some() { text(reserved, "message") } else { "" };
    let admission = workload.data.pointer("/status/admission");
    Row {
        job,
        queue: text(workload.data.get("spec"), "queueName").to_owned(),
        reserved_in: text(admission, "clusterQueue").to_owned(),
        admitted,
        position,
        state,
        why: why.to_owned(),
        created: created(workload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workload(status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {
                "name": "jobset-one-12345",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{ "apiVersion": "v1", "kind": "JobSet", "name": "one", "uid": "o", "controller": true }],
            },
            "spec": { "queueName": "queue", "priority": 7 },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_waiting_workload_has_its_place_and_why() {
        let message = "couldn't assign flavors";
        let waiting = workload(&json!({ "conditions": [
            { "type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message },
        ] }));
        let row = row(&waiting, Some(2));
        let columns = row.columns();
        assert_eq!(columns, ["jobset/one", "queue", "", "", "2", "Waiting", message].map(str::to_owned));
    }

    #[test]
    fn an_evicted_workload_queues_from_the_time_of_its_eviction() {
        let evicted = workload(&json!({ "conditions": [
            { "type": "Evicted", "status": "True", "reason": "Preempted", "lastTransitionTime": "2026-01-01T00:00:09Z" },
        ] }));
        assert_eq!(order(&evicted), (-7, "2026-01-01T00:00:09Z".to_owned(), "u".to_owned()));
        assert_eq!(row(&evicted, Some(1)).state, "Evicted (Preempted)");
    }
}
