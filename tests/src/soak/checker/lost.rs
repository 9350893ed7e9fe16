//! Nodes that go or fail: pods that have a place there get another one without an eviction.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::{Admission, Workload};

/// Which nodes were lost when, and since when Workloads have their places.
#[derive(Debug, Default)]
pub(super) struct LostNodes {
    /// By node: at which revision it was last seen to be lost, and whether it still is.
    lost: BTreeMap<String, (u64, bool)>,
    /// By Workload: the revision at which its admission last changed.
    placed: BTreeMap<String, u64>,
}

impl LostNodes {
    /// A node as it is now, or that it is gone. On a busy machine its heartbeat may come late, and the control plane takes it for lost.
    pub fn node(&mut self, name: &str, object: Option<&Value>, revision: u64) {
        if !object.is_some_and(is_well) {
            self.lost.insert(name.to_owned(), (revision, true));
        } else if let Some((_, away)) = self.lost.get_mut(name) {
            *away = false;
        }
    }

    /// A Workload's admission changes.
    pub fn placed(&mut self, workload: &str, revision: u64) {
        self.placed.insert(workload.to_owned(), revision);
    }

    /// Whether a Workload may get other places as it is: it had one on a node that is away, or went since.
    pub fn allow(&self, key: &str, before: &Workload, now: &Workload) -> bool {
        let alike = |admission: &Workload| admission.admission.as_ref().map(Admission::without_places);
        let placed = self.placed.get(key).copied().unwrap_or_default();
        let is_lost = |node: &String| self.lost.get(node).is_some_and(|(at, away)| *away || *at > placed);
        alike(before) == alike(now) && before.nodes.iter().flatten().any(|(node, _)| is_lost(node))
    }
}

/// Whether a node is not known to be unready, and evicts no pods.
fn is_well(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    conditions.filter(|one| one["type"] == "Ready").all(|ready| ready["status"] == "True")
        && taints.into_iter().all(|taint| taint["effect"] != "NoExecute")
}
