//! Which Workloads have pods assigned to which nodes.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::{HOSTNAME, Name, SharedAssignment, WorkloadKey};

use crate::index_map::IndexMap;

/// Which Workloads have pods assigned to which nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assigned {
    /// By pod set: its place in the Workload, and its nodes.
    pub(super) of: BTreeMap<WorkloadKey, Vec<(usize, SharedAssignment)>>,
    /// By hostname.
    pub(super) on: IndexMap<Name, BTreeSet<WorkloadKey>>,
    /// Workloads with a failed node that has no replacement yet.
    pub(super) unreplaced: BTreeSet<WorkloadKey>,
}

/// The nodes of an assignment whose lowest level is the hostname.
pub(super) fn hosts(assignment: &SharedAssignment) -> impl Iterator<Item = &Name> {
    let by_host = assignment.levels.last().is_some_and(|level| &**level == HOSTNAME);
    assignment.domains.iter().filter(move |_| by_host).filter_map(|domain| domain.values.last())
}

impl Assigned {
    /// Replaces the nodes of a Workload; says whether they are others.
    pub(super) fn replace(&mut self, key: &WorkloadKey, new: Vec<(usize, SharedAssignment)>) -> bool {
        if self.is(key, &new) {
            return false;
        }
        for (_, assignment) in self.of.remove(key).into_iter().flatten() {
            for host in hosts(&assignment) {
                if let Some(keys) = self.on.get_mut(host) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.on.swap_remove(host);
                    }
                }
            }
        }
        for host in new.iter().flat_map(|(_, assignment)| hosts(assignment)) {
            self.on.entry(Name::clone(host)).or_default().insert(key.clone());
        }
        if !new.is_empty() {
            self.of.insert(key.clone(), new);
        }
        true
    }

    /// Whether these are the nodes of a Workload.
    pub(super) fn is(&self, key: &WorkloadKey, nodes: &[(usize, SharedAssignment)]) -> bool {
        self.of.get(key).map_or(nodes.is_empty(), |known| known == nodes)
    }

    /// Whether a Workload has nodes by hostname.
    pub(crate) fn has_hosts(&self, key: &WorkloadKey) -> bool {
        let sets = self.of.get(key).into_iter().flatten();
        sets.flat_map(|(_, assignment)| hosts(assignment)).next().is_some()
    }

    /// The differences between the two indexes.
    pub(super) fn audit(&self) -> Vec<String> {
        let mut on: IndexMap<Name, BTreeSet<WorkloadKey>> = IndexMap::default();
        for (key, sets) in &self.of {
            for host in sets.iter().flat_map(|(_, assignment)| hosts(assignment)) {
                on.entry(Name::clone(host)).or_default().insert(key.clone());
            }
        }
        let same = on == self.on;
        (!same).then(|| "the index of nodes with assigned pods differs".to_owned()).into_iter().collect()
    }
}
