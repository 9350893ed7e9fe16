//! Where pods are: the nodes and topologies over time, and the domains that Workloads were assigned.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_api::conversion::topology::decode;
use sluice_api::slim;
use sluice_api::v1beta2::TopologyAssignment;
use sluice_quantity::{Quantity, amount_of};

use super::Record;
use crate::json::text;

/// The state of a node from a time on, in milliseconds from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// When.
    pub at: i64,
    /// The node.
    pub name: Arc<str>,
    /// Its properties; absent after its removal.
    pub node: Option<Arc<NodeSeen>>,
}

/// The properties of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its allocatable amounts: millicores for `cpu`, whole units otherwise.
    pub offers: BTreeMap<String, i64>,
    /// Whether it takes pods.
    pub healthy: bool,
}

/// Where the pods of a job are from a time on, in milliseconds from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceChange {
    /// When.
    pub at: i64,
    /// The job: an index into [`Record::jobs`].
    pub job: usize,
    /// Its pod sets that have a place.
    pub sets: Arc<[PlacedSet]>,
}

/// The pods of one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedSet {
    /// The flavors.
    pub flavors: Vec<String>,
    /// The labels of the levels; only the host name's if that is the lowest level.
    pub levels: Vec<String>,
    /// The requests of each pod.
    pub each: Vec<(String, i64)>,
    /// The values of each domain, and its pods.
    pub domains: Vec<(Vec<String>, i64)>,
}

impl NodeSeen {
    fn of(value: &Value) -> Self {
        let texts = |object: &Value| -> BTreeMap<String, String> {
            let all = object.as_object().into_iter().flatten();
            all.map(|(key, value)| {
                (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect()
        };
        let amount = |(name, written): (String, String)| {
            let amount = amount_of(&name, &Quantity::parse(&written).ok()?).get();
            Some((name, amount))
        };
        let conditions = value["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
        let mut taints = value["spec"]["taints"].as_array().into_iter().flatten();
        let trouble = taints.any(|taint| {
            text(&taint["key"]).starts_with("node.kubernetes.io/") && taint["effect"] != "PreferNoSchedule"
        });
        let cordoned = value["spec"]["unschedulable"] == true;
        Self {
            labels: texts(&value["metadata"]["labels"]),
            offers: texts(&value["status"]["allocatable"]).into_iter().filter_map(amount).collect(),
            healthy: !trouble && !cordoned && ready.is_none_or(|ready| ready["status"] == "True"),
        }
    }
}

impl Record {
    /// A node was added or changed.
    pub(crate) fn node(&mut self, at: i64, name: &Arc<str>, value: &Value) {
        let seen = NodeSeen::of(value);
        let last = self.nodes_now.get(name).and_then(|at| self.nodes[*at].node.as_ref());
        if last.is_some_and(|last| **last == seen) {
            return;
        }
        self.nodes_now.insert(Arc::clone(name), self.nodes.len());
        self.nodes.push(NodeChange { at, name: Arc::clone(name), node: Some(Arc::new(seen)) });
    }

    /// A node is gone.
    pub(crate) fn node_gone(&mut self, at: i64, name: &Arc<str>) {
        if self.nodes_now.remove(name).is_some() {
            self.nodes.push(NodeChange { at, name: Arc::clone(name), node: None });
        }
    }

    /// The topology assignment of a Workload's hold is new or has changed. Returns from where to where pods move, if any do.
    pub(super) fn place(
        &mut self,
        at: i64,
        job: usize,
        workload: &slim::Workload,
        known: &mut Vec<TopologyAssignment>,
    ) -> Option<String> {
        let admission = workload.status.admission.as_ref()?;
        let assignments =
            || admission.pod_set_assignments.iter().filter_map(|set| set.topology_assignment.as_ref());
        if known.iter().eq(assignments()) {
            return None;
        }
        let before = std::mem::replace(known, assignments().cloned().collect());
        let sets = admission.pod_set_assignments.iter().filter_map(|set| {
            let rows = decode(set.topology_assignment.as_ref()?).ok()?;
            let count = i64::from(set.count.unwrap_or(1).max(1));
            let each = set.resource_usage.iter().filter_map(|(name, written)| {
                let amount = amount_of(name, &Quantity::parse(&written.0).ok()?).get();
                Some((name.clone(), amount / count))
            });
            let mut flavors: Vec<String> = set.flavors.values().cloned().collect();
            flavors.dedup();
            let domains = rows.domains.into_iter().map(|row| (row.values, i64::from(row.count))).collect();
            Some(PlacedSet { flavors, levels: rows.levels, each: each.collect(), domains })
        });
        let sets: Arc<[PlacedSet]> = sets.collect();
        self.places.push(PlaceChange { at, job, sets });
        moved(&before, known)
    }
}

/// The domains that pods leave, and their new ones.
fn moved(before: &[TopologyAssignment], now: &[TopologyAssignment]) -> Option<String> {
    let mut more: BTreeMap<String, i64> = BTreeMap::new();
    for (assignments, sign) in [(before, -1), (now, 1)] {
        let domains = assignments.iter().filter_map(|one| decode(one).ok()).flat_map(|rows| rows.domains);
        for domain in domains {
            *more.entry(domain.values.join("/")).or_default() += sign * i64::from(domain.count);
        }
    }
    let some = |sign: i64| -> Vec<String> {
        let changed = more.iter().filter(|(_, pods)| pods.signum() == sign);
        changed.map(|(name, _)| name.clone()).collect()
    };
    let (from, to) = (some(-1), some(1));
    (!from.is_empty() && !to.is_empty()).then(|| format!("from {} to {}", shorten(&from), shorten(&to)))
}

/// The first few names of many.
pub(crate) fn shorten(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a}, {b}, {c} and {} more", rest.len()),
        names => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(ready: &str) -> Value {
        json!({
            "metadata": {"labels": {"rack": "r1"}},
            "status": {"allocatable": {"cpu": "1500m", "nvidia.com/gpu": 8}, "conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    #[test]
    fn pods_move_from_domains_with_fewer_to_those_with_more() {
        let on = |nodes: &[(&str, i32)]| -> Vec<TopologyAssignment> {
            let (names, counts): (Vec<_>, Vec<_>) = nodes.iter().copied().unzip();
            let slices = json!([{"domainCount": nodes.len(), "podCounts": {"individual": counts},
                "valuesPerLevel": [{"individual": {"roots": names}}]}]);
            let assignment = json!({"levels": ["kubernetes.io/hostname"], "slices": slices});
            vec![serde_json::from_value(assignment).unwrap()]
        };
        let two = on(&[("a", 2), ("b", 1)]);
        assert_eq!(moved(&two, &on(&[("b", 1), ("c", 2)])).as_deref(), Some("from a to c"));
        assert_eq!(moved(&two, &on(&[("a", 1), ("b", 2)])).as_deref(), Some("from a to b"));
        assert_eq!(moved(&two, &on(&[("a", 2)])), None, "there are fewer");
        assert_eq!(moved(&[], &two), None, "they come");
    }

    #[test]
    fn a_node_is_noted_when_it_comes_changes_and_goes() {
        let mut record = Record::default();
        let name: Arc<str> = "n".into();
        record.node(0, &name, &node("True"));
        record.node(1, &name, &node("True"));
        record.node(2, &name, &node("False"));
        record.node_gone(3, &name);
        record.node_gone(4, &name);
        let seen: Vec<_> = record
            .nodes
            .iter()
            .map(|change| (change.at, change.node.as_ref().map(|node| node.healthy)))
            .collect();
        assert_eq!(seen, [(0, Some(true)), (2, Some(false)), (3, None)]);
        let offers = &record.nodes[0].node.as_ref().unwrap().offers;
        assert_eq!((offers["cpu"], offers["nvidia.com/gpu"]), (1500, 8));
    }
}
