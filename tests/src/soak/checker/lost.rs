//! Nodes that are removed or fail: pods with a place there get another one without an eviction.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::{Admission, Workload};

/// Which nodes were lost when, and since when Workloads have their places.
#[derive(Debug, Default)]
pub(super) struct LostNodes {
    /// By node: the revision at which it was well again after it was last lost; none while it is lost.
    lost: BTreeMap<String, Option<u64>>,
    /// By Workload: the revision at which its admission last changed.
    placed: BTreeMap<String, u64>,
}

impl LostNodes {
    /// Notes the state of a node, or its removal. On a busy machine its heartbeat may be late, so that the control plane treats it as lost.
    pub fn node(&mut self, name: &str, object: Option<&Value>, revision: u64) {
        if !object.is_some_and(is_well) {
            self.lost.insert(name.to_owned(), None);
        } else if let Some(until @ None) = self.lost.get_mut(name) {
            *until = Some(revision);
        }
    }

    /// A Workload's admission changes.
    pub fn placed(&mut self, workload: &str, revision: u64) {
        self.placed.insert(workload.to_owned(), revision);
    }

    /// Whether a node is lost, or was after a revision.
    pub fn is_lost_since(&self, node: &str, revision: u64) -> bool {
        self.lost.get(node).is_some_and(|until| until.is_none_or(|until| until > revision))
    }

    /// Whether a Workload may get these new places: it had one on a node that is lost, or was since the assignment, and it keeps its places on all
    /// others. The manager may learn of a loss only after it has assigned the node.
    pub fn allow(&self, key: &str, before: &Workload, now: &Workload) -> bool {
        let alike = |admission: &Workload| admission.admission.as_ref().map(Admission::without_places);
        let placed = self.placed.get(key).copied().unwrap_or_default();
        let (lost, kept): (Vec<_>, Vec<_>) =
            before.nodes.iter().flatten().partition(|(node, _)| self.is_lost_since(node, placed));
        let pods =
            |node: &str| now.nodes.as_ref().and_then(|nodes| nodes.get(node)).map_or(0, |has| has.pods);
        alike(before) == alike(now)
            && !lost.is_empty()
            && kept.iter().all(|(node, has)| pods(node) >= has.pods)
    }
}

/// Whether a node is not known to be unready, and takes pods (docs/reference/06-algorithm.md 6.14).
pub(super) fn is_well(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    conditions.filter(|one| one["type"] == "Ready").all(|ready| ready["status"] == "True")
        && taints.into_iter().all(|taint| taint["effect"] == "PreferNoSchedule")
}
