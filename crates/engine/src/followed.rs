//! What is known to have changed about the places of waiting Workloads, since it was last taken.

use std::collections::BTreeSet;

use crate::input::ObjectRef;

/// What was not taken yet. Each queue is in it once.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    /// Nothing was taken yet.
    pub anew: bool,
    /// It was said that everything has been seen once.
    pub synced: bool,
    /// The queues that changed.
    pub queues: BTreeSet<ObjectRef>,
}

impl Followed {
    /// Nothing was taken yet.
    pub fn anew() -> Self {
        Self { anew: true, synced: false, queues: BTreeSet::new() }
    }
}
