//! What searches keep for the next ones, so that none is repeated.

use std::collections::{BTreeMap, BTreeSet};

use super::cut::CutSearch;
use super::found::FoundCapacity;
use crate::workload::WorkloadKey;

/// What a search keeps for the next one.
#[derive(Debug, Clone, Default)]
pub struct SearchResults {
    /// By displaced workload: the nodes that were found for it.
    pub(super) found: BTreeMap<WorkloadKey, FoundCapacity>,
    /// The workloads for which nothing was found, in this search or in earlier ones that share its cycles; and why.
    pub(super) tried: BTreeMap<WorkloadKey, NotFound>,
    /// The search that alone takes more than a cycle, until it ends.
    pub(super) cut: Option<CutSearch>,
}

/// Why a search found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotFound {
    /// No nodes are free.
    NoNodes,
    /// It took too long.
    TooLong,
}

impl SearchResults {
    /// Whether workloads are not searched for again, since nothing was found for them.
    pub fn has_tried(&self) -> bool {
        !self.tried.is_empty()
    }

    /// Something has changed: a search that was cut begins again.
    pub fn restart_cut(&mut self) {
        if let Some(cut) = &mut self.cut {
            cut.restart();
        }
    }

    /// Takes in what the next search keeps, which has not reached the `postponed` workloads. Once it has reached all, none counts as tried.
    pub fn replace(&mut self, next: Self, postponed: &BTreeSet<WorkloadKey>) {
        self.found = next.found;
        self.tried = if postponed.is_empty() { BTreeMap::new() } else { next.tried };
        let cut = self.cut.take().filter(|cut| postponed.contains(&cut.key));
        self.cut = next.cut.or(cut);
    }
}
