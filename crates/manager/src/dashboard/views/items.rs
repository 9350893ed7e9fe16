//! Lists of Workloads: those of a ClusterQueue in its order, and the results of a search.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::conditions::reason;
use sluice_engine::{Name, WorkloadKey};

use crate::dashboard::amounts::all_shown;
use crate::dashboard::query::Page;
use crate::dashboard::rows::{State, WorkloadRow};
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::viewer::Viewer;

/// The Workloads that wait in a ClusterQueue, in its order, each with its place from 0; those of other tenants may be missing. `None` if the order is
/// not known.
pub type Order = Option<Arc<Vec<(usize, WorkloadKey)>>>;

/// Places from 0, each in the ClusterQueue that its Workload waits in.
pub type Places = BTreeMap<WorkloadKey, usize>;

/// The reason of a condition. Of what the viewer may not see only one that managers write: other programs that may write a
/// status may write any text.
pub fn shown_reason(text: &str, seen: bool) -> Option<&str> {
    Some(text).filter(|text| seen || reason::is_known(text))
}

/// A Workload as lists show it. What the viewer may not see has no names and no message.
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
        "reason": shown_reason(&row.reason, seen),
        "message": seen.then_some(&row.message),
        "state": row.state.as_str(),
    })
}

/// The members of a ClusterQueue: admitted, reserved, then waiting ones, in order. `None` if there is no such queue, as far as the viewer may know:
/// viewers who may not list ClusterQueues know those that their LocalQueues name.
pub fn queue(
    snapshot: &Snapshot,
    viewer: &Viewer,
    name: &str,
    order: &Order,
    (state, page): (Option<State>, Page),
) -> Option<Value> {
    let named =
        |((namespace, _), target): (&(Name, Name), &Name)| **target == *name && viewer.sees(namespace);
    let listed = viewer.queues && snapshot.cluster_queues.contains_key(name);
    if !listed && !snapshot.local_queues.iter().any(named) {
        return None;
    }
    let empty = Vec::new();
    let members = snapshot.sums().get(name).map_or(&empty, |sums| &sums.members);
    let order = order.iter().flat_map(|order| order.iter());
    let places: BTreeMap<&WorkloadKey, usize> = order.map(|(at, key)| (key, *at)).collect();
    let place = |row: &WorkloadRow| places.get(&row.key).copied().filter(|_| row.state == State::Pending);
    let mut rows: Vec<&Arc<WorkloadRow>> =
        members.iter().filter(|row| state.is_none_or(|state| row.state == state)).collect();
    // Stable: what has no place keeps its order, at the end of its state.
    rows.sort_by_key(|row| (row.state, place(row).unwrap_or(usize::MAX)));
    let shown = rows.iter().skip(page.offset).take(page.limit);
    let items: Vec<Value> = shown.map(|row| item(row, place(row), viewer)).collect();
    Some(json!({"name": name, "total": rows.len(), "items": items}))
}

/// The parameters of a search.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// A part of the name, of its job's, of its LocalQueue's or of its ClusterQueue's.
    pub text: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The state.
    pub state: Option<State>,
}

/// A page of what was looked for.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    total: usize,
    /// Each with its ClusterQueue.
    rows: Vec<(Arc<WorkloadRow>, Option<Name>)>,
}

impl Hits {
    /// Waiting Workloads, by ClusterQueue.
    pub fn waiting(&self) -> BTreeMap<Name, Vec<WorkloadKey>> {
        let mut queues: BTreeMap<Name, Vec<WorkloadKey>> = BTreeMap::new();
        for (row, queue) in self.rows.iter().filter(|(row, _)| row.state == State::Pending) {
            if let Some(queue) = queue {
                queues.entry(Name::clone(queue)).or_default().push(row.key.clone());
            }
        }
        queues
    }

    /// The answer.
    pub fn shown(&self, viewer: &Viewer, places: &Places) -> Value {
        let shown = |(row, queue): &(Arc<WorkloadRow>, Option<Name>)| {
            let mut item = item(row, places.get(&row.key).copied(), viewer);
            item["clusterQueue"] = json!(queue);
            item
        };
        json!({"total": self.total, "items": self.rows.iter().map(shown).collect::<Vec<_>>()})
    }
}

/// The Workloads that the viewer may see and that are looked for, by namespace and name.
pub fn search(snapshot: &Snapshot, viewer: &Viewer, search: &Search, page: Page) -> Hits {
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
    let mut hits = Hits::default();
    for row in snapshot.workloads.values().filter(wanted) {
        if hits.total >= page.offset && hits.rows.len() < page.limit {
            hits.rows.push((Arc::clone(row), snapshot.queue_of(row).cloned()));
        }
        hits.total += 1;
    }
    hits
}

#[cfg(test)]
mod tests {
    use sluice_engine::input::Object;

    use super::*;
    use crate::dashboard::store::tests::{condition, workload};

    #[test]
    fn of_others_no_reason_is_shown_that_managers_do_not_write() {
        let viewer = |namespace: &str| Viewer { namespaces: [namespace.into()].into(), ..Viewer::default() };
        for (reason, others) in [
            ("Pending", json!("Pending")),
            ("WaitingForQuota", json!("WaitingForQuota")),
            ("DeactivatedDueToAdmissionCheck", json!("DeactivatedDueToAdmissionCheck")),
            ("the secret plan", Value::Null),
        ] {
            let conditions = [condition("QuotaReserved", "False", reason, 1)];
            let Object::Workload(workload) = workload("a", "w", &conditions) else { unreachable!() };
            let row = WorkloadRow::of(&workload);
            let shown = |namespace: &str| item(&row, None, &viewer(namespace))["reason"].clone();
            assert_eq!((shown("a"), shown("b")), (json!(reason), others));
        }
    }
}
