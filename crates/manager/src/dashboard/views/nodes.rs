//! The view Nodes: flavors, and the nodes that belong to them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_engine::Name;

use crate::dashboard::amounts::{Amounts, add, all_shown};
use crate::dashboard::placed::HOSTNAME;
use crate::dashboard::query::Page;
use crate::dashboard::rows::NodeRow;
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::viewer::Viewer;

/// The answer. Only viewers who may list nodes get their names.
pub fn nodes(snapshot: &Snapshot, viewer: &Viewer, page: Page) -> Value {
    let flavors: Vec<Value> = snapshot.flavors.keys().map(|name| flavor(snapshot, name)).collect();
    if !viewer.nodes {
        return json!({"flavors": flavors, "nodes": [], "total": 0, "hidden": true});
    }
    let used = used(snapshot);
    let shown = snapshot.nodes.iter().skip(page.offset).take(page.limit);
    let of = |name: &Name, row: &NodeRow| used.get(row.labels.get(HOSTNAME).map_or(&**name, String::as_str));
    let nodes: Vec<Value> = shown.map(|(name, row)| node(snapshot, name, row, of(name, row))).collect();
    json!({"flavors": flavors, "nodes": nodes, "total": snapshot.nodes.len()})
}

fn flavor(snapshot: &Snapshot, name: &Name) -> Value {
    let Some(row) = snapshot.flavors.get(name) else { return Value::Null };
    let nodes = || snapshot.nodes.values().filter(|node| row.has(node));
    json!({
        "name": name,
        "labels": row.labels,
        "nodes": nodes().count(),
        "healthy": nodes().filter(|node| node.why.is_none()).count(),
        "topology": row.topology,
    })
}

/// What the Workloads with topology assignments use of each host, by its label; empty if there are none.
fn used(snapshot: &Snapshot) -> BTreeMap<Name, Amounts> {
    let mut all = BTreeMap::<Name, Amounts>::new();
    for row in snapshot.workloads.values().filter(|row| row.state.holds()) {
        for placed in &row.placed {
            for (node, pods) in placed.hosts() {
                add(all.entry(Name::clone(node)).or_default(), &placed.each, pods);
            }
        }
    }
    all
}

fn node(snapshot: &Snapshot, name: &Name, row: &NodeRow, used: Option<&Amounts>) -> Value {
    let own = snapshot.flavors.iter().filter(|(_, flavor)| flavor.has(row));
    let (mut flavors, mut levels) = (Vec::new(), BTreeMap::new());
    for (flavor, of) in own {
        flavors.push(flavor);
        let topology = of.topology.as_ref().and_then(|topology| snapshot.topologies.get(topology));
        for level in topology.iter().flat_map(|levels| levels.iter()) {
            if let Some(value) = row.labels.get(level) {
                levels.insert(level, value);
            }
        }
    }
    json!({
        "name": name,
        "flavors": flavors,
        "healthy": row.why.is_none(),
        "why": row.why,
        "levels": levels,
        "used": used.map(all_shown),
        "capacity": all_shown(&row.capacity),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};
    use sluice_engine::input::{Input, Object};

    use super::*;
    use crate::dashboard::store::tests::world;

    #[test]
    fn use_is_that_of_the_host_whose_label_a_node_has() {
        let store = world();
        // The Workloads of the world are on the host n1.
        for (name, host) in [("vm-1", "n1"), ("n1", "other")] {
            let labels = json!({"kubernetes.io/hostname": host, "pool": "spot", "rack": "r1"});
            let node = json!({"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"cpu": "8"}}});
            store.note(&Input::Applied(Object::Node(from_value(node).unwrap())));
        }
        let viewer = Viewer { all: true, nodes: true, ..Viewer::default() };
        let seen = nodes(&store.fresh(), &viewer, Page { offset: 0, limit: 10 });
        let used: Vec<_> =
            seen["nodes"].as_array().unwrap().iter().map(|node| (&node["name"], &node["used"])).collect();
        assert_eq!(
            used,
            [
                (&json!("n1"), &json!(null)),
                (&json!("n2"), &json!(null)),
                (&json!("vm-1"), &json!({"cpu": "6"}))
            ]
        );
    }
}
