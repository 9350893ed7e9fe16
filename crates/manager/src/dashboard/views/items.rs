//! Lists of Workloads: those of a ClusterQueue in its order, and those that are looked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_engine::{Name, WorkloadKey};

use crate::dashboard::amounts::all_shown;
use crate::dashboard::query::Page;
use crate::dashboard::rows::{State, WorkloadRow};
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::viewer::Viewer;

/// The Workloads that wait in a ClusterQueue, in its order, each with its place from 0; those of other tenants may be missing. Not known
/// everywhere.
pub type Order = Option<Vec<(usize, WorkloadKey)>>;

/// A Workload as lists show it. What the viewer may not see has no names.
pub fn item(row: &WorkloadRow, position: Option<usize>, viewer: &Viewer) -> Value {
    let seen = viewer.sees(&row.key.namespace);
    json!({
        "position": position,
        "namespace": seen.then_some(&row.key.namespace),
        "workload": seen.then_some(&row.key.name),
        "job": seen.then_some(row.job.as_ref()).flatten(),
        "localQueue": seen.then_some(&row.local_queue),
        "priority": row.priority,
        "created": row.created.map(|created| created.to_string()),
        "requests": all_shown(&row.requests),
        "reason": row.reason,
        "message": seen.then_some(&row.message),
        "state": row.state.as_str(),
    })
}

/// The members of a ClusterQueue: admitted, reserved, then those that wait, in order. Nothing if there is no such queue, as far as the viewer may
/// know: where ClusterQueues cannot be read, the viewer's LocalQueues name theirs.
pub fn queue(
    snapshot: &Snapshot,
    viewer: &Viewer,
    name: &str,
    order: &Order,
    (state, page): (Option<State>, Page),
) -> Option<Value> {
    let named =
        |((namespace, _), target): (&(Name, Name), &Name)| **target == *name && viewer.sees(namespace);
    if !snapshot.cluster_queues.contains_key(name) && !snapshot.local_queues.iter().any(named) {
        return None;
    }
    let empty = Vec::new();
    let members = snapshot.sums().get(name).map_or(&empty, |sums| &sums.members);
    let places: BTreeMap<&WorkloadKey, usize> = order.iter().flatten().map(|(at, key)| (key, *at)).collect();
    let place = |row: &WorkloadRow| places.get(&row.key).copied().filter(|_| row.state == State::Pending);
    let mut rows: Vec<&Arc<WorkloadRow>> =
        members.iter().filter(|row| state.is_none_or(|state| row.state == state)).collect();
    // Stable: what has no place keeps its order, at the end of its state.
    rows.sort_by_key(|row| (row.state, place(row).unwrap_or(usize::MAX)));
    let shown = rows.iter().skip(page.offset).take(page.limit);
    let items: Vec<Value> = shown.map(|row| item(row, place(row), viewer)).collect();
    Some(json!({"name": name, "total": rows.len(), "items": items}))
}

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// A part of the name, of its job's, of its LocalQueue's or of its ClusterQueue's.
    pub text: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The state.
    pub state: Option<State>,
}

/// The Workloads that the viewer may see and that are looked for, by namespace and name.
pub fn search(snapshot: &Snapshot, viewer: &Viewer, search: &Search, page: Page) -> Value {
    let text = search.text.as_deref().map(str::to_lowercase);
    let wanted = |row: &&Arc<WorkloadRow>| {
        let has = |name: &str, text: &str| name.to_lowercase().contains(text);
        viewer.sees(&row.key.namespace)
            && search.namespace.as_deref().is_none_or(|namespace| *row.key.namespace == *namespace)
            && search.state.is_none_or(|state| row.state == state)
            && text.as_deref().is_none_or(|text| {
                has(&row.key.name, text)
                    || row.job.as_ref().is_some_and(|job| has(job, text))
                    || has(&row.local_queue, text)
                    || snapshot.queue_of(row).is_some_and(|queue| has(queue, text))
            })
    };
    let (mut total, mut items) = (0_usize, Vec::new());
    for row in snapshot.workloads.values().filter(wanted) {
        if total >= page.offset && items.len() < page.limit {
            let mut item = item(row, None, viewer);
            item["clusterQueue"] = json!(snapshot.queue_of(row));
            items.push(item);
        }
        total += 1;
    }
    json!({"total": total, "items": items})
}
