//! The nodes found for work that was evicted from failing nodes: kept from one look to the next, so that the search is not repeated.

use std::sync::Arc;

use sluice_core::{Amount, AssignedPods, Name};

/// Room that a search found.
#[derive(Clone, Debug)]
pub(crate) struct FoundCapacity {
    /// By pod set.
    pub(super) flavors: Vec<Option<Name>>,
    /// By flavor and resource: what it takes of the quota.
    pub(super) claim: Vec<(Name, Name, Amount)>,
    /// The nodes, by name.
    pub(super) nodes: Vec<Arc<str>>,
    /// How many pods are on which node.
    pub(super) assigned: AssignedPods,
}
