//! The view Nodes: Workloads that lost nodes and wait for others.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::conditions::{WorkloadCondition, reason};
use sluice_engine::Name;

use super::items::item;
use crate::dashboard::query::Page;
use crate::dashboard::rows::{Fact, State, WorkloadRow};
use crate::dashboard::seen_queues::SeenQueues;
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::viewer::Viewer;

/// Nodes of a Workload that are named at most.
const MOST_NODES: usize = 20;

/// A page of the Workloads that have pods on unhealthy nodes, or were evicted because of nodes and do not run again yet: highest priority first, then
/// those that have waited longest. Workloads that the viewer may not see have no names.
pub fn displaced(snapshot: &Snapshot, viewer: &Viewer, page: Page) -> Value {
    let mut all: Vec<(&WorkloadRow, Option<Timestamp>)> = snapshot
        .workloads
        .values()
        .filter(|row| is_displaced(row))
        .map(|row| (&**row, since(snapshot, row)))
        .collect();
    all.sort_by_key(|(row, since)| (-i64::from(row.priority), since.is_none(), *since, &row.key));
    let shown = all.iter().skip(page.offset).take(page.limit);
    let queues = snapshot.seen_queues(viewer);
    let items: Vec<Value> =
        shown.map(|(row, since)| shown_item(snapshot, (viewer, &queues), row, *since)).collect();
    json!({"total": all.len(), "items": items})
}

fn evicted(row: &WorkloadRow) -> Option<&Fact> {
    row.fact(WorkloadCondition::Evicted).filter(|fact| *fact.reason == *reason::NODE_FAILURES)
}

fn is_displaced(row: &WorkloadRow) -> bool {
    row.state != State::Finished && (!row.lost.is_empty() || evicted(row).is_some())
}

/// Since when it is displaced: since its eviction, or since the first of its nodes is not ready, or since its status lists any.
fn since(snapshot: &Snapshot, row: &WorkloadRow) -> Option<Timestamp> {
    if let Some(fact) = evicted(row) {
        return Some(fact.at);
    }
    let of = |name: &Name| snapshot.nodes.get(name).and_then(|node| node.not_ready_since);
    row.lost.iter().filter_map(of).min().or(row.lost_since)
}

fn shown_item(
    snapshot: &Snapshot,
    (viewer, queues): (&Viewer, &SeenQueues<'_>),
    row: &WorkloadRow,
    since: Option<Timestamp>,
) -> Value {
    let seen = viewer.sees(&row.key.namespace);
    let mut shown = item(row, None, viewer);
    shown["clusterQueue"] = json!(snapshot.queue_of(row).filter(|queue| seen || queues.queue(queue)));
    shown["since"] = json!(since.map(|since| since.to_string()));
    // The status of an evicted Workload lists no nodes any more: its message names them.
    shown["lost"] = json!({
        "count": row.lost.len(),
        "nodes": (seen && viewer.nodes).then(|| row.lost.iter().take(MOST_NODES).collect::<Vec<_>>()),
        "message": evicted(row).filter(|_| seen).map(|fact| &fact.message),
    });
    shown
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::json;
    use sluice_engine::input::{Input, Object};

    use super::*;
    use crate::dashboard::store::Store;
    use crate::dashboard::store::tests::{condition, local_queue, workload, world};

    const ALL: Page = Page { offset: 0, limit: 100 };

    /// A Workload of a priority with these unhealthy nodes in its status.
    fn on_lost_nodes(
        namespace: &str,
        name: &str,
        priority: i32,
        conditions: &[Value],
        nodes: &[&str],
    ) -> Input {
        let Object::Workload(mut workload) = workload(namespace, name, conditions) else { unreachable!() };
        Arc::make_mut(&mut workload.spec).priority = Some(priority);
        let nodes = nodes.iter().map(|name| json!({"name": name})).collect::<Value>();
        workload.status.unhealthy_nodes = serde_json::from_value(nodes).unwrap();
        Input::Applied(Object::Workload(workload))
    }

    fn root() -> Viewer {
        Viewer { user: "root".to_owned(), all: true, nodes: true, queues: true, ..Viewer::default() }
    }

    /// The view of a complete store.
    fn seen(store: &Store, viewer: &Viewer, page: Page) -> Value {
        displaced(&store.fresh(), viewer, page)
    }

    fn not_ready(name: &str, since: &str) -> Input {
        Input::Applied(Object::Node(
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]},
            }))
            .unwrap(),
        ))
    }

    #[test]
    fn work_that_lost_nodes_is_listed_by_priority_and_age_and_other_work_is_not() {
        let runs = [
            condition("QuotaReserved", "True", "QuotaReserved", 1),
            condition("Admitted", "True", "Admitted", 2),
        ];
        let evicted = [
            condition("Evicted", "True", "NodeFailures", 30),
            condition("QuotaReserved", "False", "Pending", 31),
        ];
        let preempted = [condition("Evicted", "True", "Preempted", 30)];
        let done = [
            condition("Evicted", "True", "NodeFailures", 30),
            condition("Finished", "True", "Succeeded", 40),
        ];
        let store = world();
        assert_eq!(seen(&store, &root(), ALL), json!({"total": 0, "items": []}));
        for input in [
            not_ready("gone-1", "2026-01-01T00:00:50Z"),
            not_ready("gone-2", "2026-01-01T00:00:20Z"),
            on_lost_nodes("a", "evicted", 5, &evicted, &[]),
            on_lost_nodes("a", "preempted", 9, &preempted, &[]),
            on_lost_nodes("a", "done", 9, &done, &["gone-1"]),
            on_lost_nodes("a", "stays", 5, &runs, &["gone-1", "gone-2"]),
            on_lost_nodes("a", "unknown", 5, &runs, &["deleted"]),
            on_lost_nodes("a", "high", 7, &evicted, &[]),
        ] {
            store.note(&input);
        }
        let all = seen(&store, &root(), ALL);
        let of = |field: &str| {
            all["items"].as_array().unwrap().iter().map(|item| item[field].clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("workload"), ["high", "stays", "evicted", "unknown"]);
        let times = [
            json!("2026-01-01T00:01:30Z"),
            json!("2026-01-01T00:00:20Z"),
            json!("2026-01-01T00:01:30Z"),
            json!(null),
        ];
        assert_eq!(of("since"), times);
        assert_eq!((of("clusterQueue")[0].clone(), of("priority")[0].clone()), (json!("cq"), json!(7)));
        assert_eq!(of("lost")[1], json!({"count": 2, "nodes": ["gone-1", "gone-2"], "message": null}));
        assert_eq!(of("lost")[0]["message"], json!("Evicted because of secret-message"));
        let page = seen(&store, &root(), Page { offset: 1, limit: 1 });
        assert_eq!((&page["total"], &page["items"][0]["workload"]), (&json!(4), &json!("stays")));
    }

    #[test]
    fn nodes_that_are_gone_are_lost_since_the_status_lists_them() {
        let runs = [condition("QuotaReserved", "True", "QuotaReserved", 1)];
        let store = world();
        let before = Timestamp::now();
        store.note(&on_lost_nodes("a", "w", 5, &runs, &[]));
        store.note(&on_lost_nodes("a", "w", 5, &runs, &["deleted"]));
        let first = seen(&store, &root(), ALL)["items"][0]["since"].clone();
        assert!(first.as_str().unwrap().parse::<Timestamp>().unwrap() >= before, "{first}");
        store.note(&on_lost_nodes("a", "w", 6, &runs, &["deleted", "another"]));
        let item = seen(&store, &root(), ALL)["items"][0].clone();
        assert_eq!((&item["since"], &item["lost"]["count"]), (&first, &json!(2)));
        store.note(&on_lost_nodes("a", "w", 6, &runs, &[]));
        assert_eq!(seen(&store, &root(), ALL)["total"], 0);
    }

    #[test]
    fn lost_nodes_are_counted_for_those_who_may_not_list_nodes() {
        let runs = [condition("QuotaReserved", "True", "QuotaReserved", 1)];
        let store = world();
        store.note(&on_lost_nodes("a", "w", 5, &runs, &["gone-1", "gone-2"]));
        let shown = |nodes: bool| {
            let namespaces = BTreeSet::from(["a".into()]);
            let viewer = Viewer { user: "alice".to_owned(), namespaces, nodes, ..Viewer::default() };
            let shown = seen(&store, &viewer, ALL)["items"][0].clone();
            assert_eq!(shown["workload"], "w");
            shown["lost"].clone()
        };
        assert_eq!(shown(false), json!({"count": 2, "nodes": null, "message": null}));
        assert_eq!(shown(true)["nodes"], json!(["gone-1", "gone-2"]));
    }

    #[test]
    fn of_other_tenants_there_are_no_names_of_workloads_and_nodes() {
        let evicted = [condition("Evicted", "True", "NodeFailures", 30)];
        let runs = [condition("QuotaReserved", "True", "QuotaReserved", 1)];
        let store = world();
        store.note(&on_lost_nodes("secret-ns", "secret-evicted", 5, &evicted, &[]));
        store.note(&on_lost_nodes("secret-ns", "secret-stays", 4, &runs, &["secret-node"]));
        store.note(&Input::Applied(local_queue("secret-ns", "lq", "secret-team")));
        let viewer = Viewer {
            user: "alice".to_owned(),
            namespaces: BTreeSet::from(["a".into()]),
            nodes: true,
            ..Viewer::default()
        };
        let shown = seen(&store, &viewer, ALL);
        assert!(!shown.to_string().contains("secret"), "{shown}");
        assert_eq!((&shown["total"], &shown["items"][1]["lost"]["count"]), (&json!(2), &json!(1)));
        assert_eq!(shown["items"][0]["requests"], json!({"cpu": "3"}), "amounts are for all");
        let queues = [0, 1].map(|at: usize| shown["items"][at]["clusterQueue"].clone());
        assert_eq!(
            queues,
            [json!(null), json!("cq")],
            "one waits in a queue of others, one runs in a shared one"
        );
    }
}
