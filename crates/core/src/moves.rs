//! Which places in queues may have changed since they were last asked for.

use std::collections::BTreeSet;

use crate::changed::ChangedSet;
use crate::workload::WorkloadKey;

/// What moved. Nothing is noted unless it is followed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moves {
    pub(crate) followed: bool,
    pub(crate) workloads: BTreeSet<WorkloadKey>,
    /// LocalQueues whose usage orders their Workloads.
    pub(crate) locals: ChangedSet,
}
