//! Nodes that go: pods that have a place there get another one without an eviction.

use std::collections::BTreeMap;

use super::objects::{Admission, Workload};

/// Which nodes went when, and since when Workloads have their places.
#[derive(Debug, Default)]
pub(super) struct LostNodes {
    /// By node: at which revision it was last deleted, and whether it is still away.
    deleted: BTreeMap<String, (u64, bool)>,
    /// By Workload: the revision at which its admission last changed.
    placed: BTreeMap<String, u64>,
}

impl LostNodes {
    /// A node is there, or is not.
    pub fn node(&mut self, name: &str, is_there: bool, revision: u64) {
        if !is_there {
            self.deleted.insert(name.to_owned(), (revision, true));
        } else if let Some((_, away)) = self.deleted.get_mut(name) {
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
        let is_lost = |node: &String| self.deleted.get(node).is_some_and(|(at, away)| *away || *at > placed);
        alike(before) == alike(now) && before.nodes.iter().flatten().any(|(node, _)| is_lost(node))
    }
}
