//! Where a Workload's topology assignment puts the pods of a job (docs/reference/06-algorithm.md 6.13).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use sluice_api::conversion::topology;
use sluice_api::v1beta2::TopologyAssignment;

use super::Nodes;
use super::fit::Labels;
use crate::json::text;

/// A number of pods on nodes with these labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    labels: Vec<(String, String)>,
    pub pods: i64,
}

impl Domain {
    /// The same domain for one pod.
    pub fn for_one(&self) -> Domain {
        Domain { labels: self.labels.clone(), pods: 1 }
    }

    /// Whether a node with these labels is in it.
    pub fn has(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

impl Nodes {
    /// Whether a node is in one of these domains.
    pub fn is_in_any(&self, node: &str, domains: &[Domain]) -> bool {
        self.by_name.get(node).is_some_and(|node| domains.iter().any(|domain| domain.has(&node.labels)))
    }
}

/// The domains of each pod set that has an assignment, in the order of ranks.
pub(crate) type Assigned = BTreeMap<String, Vec<Domain>>;

/// Reads the topology assignments of a Workload; an unreadable one is ignored.
pub(crate) fn assigned(workload: &Value) -> Assigned {
    let sets = workload["status"]["admission"]["podSetAssignments"].as_array().into_iter().flatten();
    sets.filter_map(|set| {
        let columns = TopologyAssignment::deserialize(set.get("topologyAssignment")?).ok()?;
        let rows = topology::decode(&columns).ok()?;
        let domain = |values: Vec<String>, count: i32| Domain {
            labels: rows.levels.iter().cloned().zip(values).collect(),
            pods: count.into(),
        };
        let domains = rows.domains.iter().map(|row| domain(row.values.clone(), row.count)).collect();
        Some((text(&set["name"]).to_owned(), domains))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn assignments_are_read_by_pod_set() {
        let slices = json!([{"domainCount": 2, "podCounts": {"individual": [2, 1]},
            "valuesPerLevel": [{"individual": {"prefix": "h", "roots": ["1", "2"]}}]}]);
        let assignment = json!({"levels": ["kubernetes.io/hostname"], "slices": slices});
        let sets = json!([{"name": "main", "topologyAssignment": assignment}, {"name": "other"},
            {"name": "odd", "topologyAssignment": {"levels": 7}}]);
        let all = assigned(&json!({"status": {"admission": {"podSetAssignments": sets}}}));
        assert_eq!(all.keys().collect::<Vec<_>>(), ["main"]);
        let node = |name: &str| Labels::from([("kubernetes.io/hostname".to_owned(), name.to_owned())]);
        let [first, second] = &all["main"][..] else { unreachable!("two domains") };
        assert!(first.has(&node("h1")) && !first.has(&node("h2")) && first.pods == 2);
        assert!(second.has(&node("h2")) && second.pods == 1);
    }
}
