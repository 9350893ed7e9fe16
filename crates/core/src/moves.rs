//! Which places in queues may have changed since they were last fetched.

use std::collections::BTreeSet;

use crate::changed::ChangedSet;
use crate::workload::WorkloadKey;

/// The changed places. Nothing is recorded unless they are followed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moves {
    pub(crate) followed: bool,
    pub(crate) workloads: BTreeSet<WorkloadKey>,
    /// LocalQueues whose usage orders their Workloads.
    pub(crate) locals: ChangedSet,
}
