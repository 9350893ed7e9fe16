//! Changes since they were last fetched.

use crate::changed::ChangedSet;
use crate::moves::Moves;

/// Changes since they were last fetched.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// ClusterQueues.
    pub(crate) queues: ChangedSet,
    /// LocalQueues.
    pub(crate) locals: ChangedSet,
    /// Nodes of the trees.
    pub(crate) nodes: ChangedSet,
    /// Which workloads moved in a queue.
    pub(crate) moves: Moves,
}
