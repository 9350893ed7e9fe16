//! The view Now: cohorts, ClusterQueues with their quotas, and what just happened.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_engine::Name;

use crate::dashboard::amounts::{shown, units};
use crate::dashboard::happening::Happening;
use crate::dashboard::rows::{QueueRow, Quota};
use crate::dashboard::snapshot::{QueueSums, Snapshot};
use crate::dashboard::viewer::Viewer;

/// The answer.
pub fn now(snapshot: &Snapshot, viewer: &Viewer, at: Timestamp) -> Value {
    let none = QueueSums::default();
    let queue = |(name, row): (&Name, &std::sync::Arc<QueueRow>)| {
        let sums = snapshot.sums().get(name).unwrap_or(&none);
        cluster_queue(name, row, snapshot.complete.then_some(sums))
    };
    json!({
        "at": at.to_string(),
        "revision": snapshot.revision,
        "cohorts": cohorts(snapshot),
        "clusterQueues": snapshot.cluster_queues.iter().map(queue).collect::<Vec<_>>(),
        "recent": snapshot.recent.iter().map(|one| happening(one, viewer)).collect::<Vec<_>>(),
    })
}

/// Cohorts that are objects, and those that are only named.
fn cohorts(snapshot: &Snapshot) -> Vec<Value> {
    let mut all: BTreeMap<&Name, Option<&Name>> = BTreeMap::new();
    for (name, parent) in &snapshot.cohorts {
        all.insert(name, parent.as_ref());
    }
    let named = snapshot.cohorts.values().flatten();
    for cohort in named.chain(snapshot.cluster_queues.values().filter_map(|row| row.cohort.as_ref())) {
        all.entry(cohort).or_default();
    }
    all.into_iter().map(|(name, parent)| json!({"name": name, "parent": parent})).collect()
}

/// `sums` are those of all Workloads, if they are known: else its own status says what it holds.
fn cluster_queue(name: &str, row: &QueueRow, sums: Option<&QueueSums>) -> Value {
    let state = match (row.stopped, row.active) {
        (true, _) => "stopped",
        (false, true) => "active",
        (false, false) => "inactive",
    };
    let [pending, reserving, admitted] = row.counts;
    let mut flavors: Vec<(&Name, Vec<Value>)> = Vec::new();
    for quota in &row.quotas {
        let used = match sums {
            Some(sums) => sums.used.get(&quota.flavor).and_then(|used| used.get(&quota.resource)).copied(),
            None => row
                .held
                .iter()
                .find(|held| held.0 == quota.flavor && held.1 == quota.resource)
                .map(|held| held.2),
        };
        let resource = resource(quota, used.unwrap_or(0));
        match flavors.iter_mut().find(|(flavor, _)| **flavor == quota.flavor) {
            Some((_, resources)) => resources.push(resource),
            None => flavors.push((&quota.flavor, vec![resource])),
        }
    }
    let flavor = |(flavor, resources)| json!({"flavor": flavor, "resources": resources});
    json!({
        "name": name,
        "cohort": row.cohort,
        "state": state,
        "reason": row.reason,
        "message": row.message,
        "pending": sums.map_or(json!(pending), |sums| json!(sums.pending)),
        "reserving": sums.map_or(json!(reserving), |sums| json!(sums.reserving)),
        "admitted": sums.map_or(json!(admitted), |sums| json!(sums.admitted)),
        "flavors": flavors.into_iter().map(flavor).collect::<Vec<_>>(),
    })
}

fn resource(quota: &Quota, used: i64) -> Value {
    let Quota { resource, nominal, .. } = quota;
    let borrowed = used.saturating_sub(*nominal).max(0);
    let limit = |limit: Option<i64>| limit.map(|limit| units(resource, limit));
    let words = |limit: Option<i64>| limit.map(|limit| shown(resource, limit));
    json!({
        "resource": resource,
        "nominal": units(resource, *nominal),
        "used": units(resource, used),
        "borrowed": units(resource, borrowed),
        "lendingLimit": limit(quota.lending_limit),
        "borrowingLimit": limit(quota.borrowing_limit),
        "shown": {
            "nominal": shown(resource, *nominal),
            "used": shown(resource, used),
            "borrowed": shown(resource, borrowed),
            "lendingLimit": words(quota.lending_limit),
            "borrowingLimit": words(quota.borrowing_limit),
        },
    })
}

/// Of what the viewer may not see: when, what and in which ClusterQueue. Messages name others.
fn happening(one: &Happening, viewer: &Viewer) -> Value {
    let seen = viewer.sees(&one.key.namespace);
    json!({
        "at": one.at.to_string(),
        "what": one.what,
        "namespace": seen.then_some(&one.key.namespace),
        "workload": seen.then_some(&one.key.name),
        "clusterQueue": one.cluster_queue,
        "reason": one.reason,
        "message": seen.then_some(&one.message),
    })
}
