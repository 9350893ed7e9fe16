//! Changes of the places of waiting Workloads, collected until they are fetched.

use std::collections::BTreeSet;

use crate::input::ObjectRef;

/// Changes that were not fetched yet. Each queue is listed once.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    /// Nothing was fetched yet.
    pub rebuilt: bool,
    /// The caller knows that the initial state is complete.
    pub synced: bool,
    /// The queues that changed.
    pub queues: BTreeSet<ObjectRef>,
}

impl Followed {
    /// Nothing was fetched yet.
    pub fn rebuilt() -> Self {
        Self { rebuilt: true, synced: false, queues: BTreeSet::new() }
    }
}
