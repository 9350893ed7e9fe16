//! What has changed since it was last asked for.

use crate::changed::ChangedSet;
use crate::moves::Moves;

/// What has changed since it was last asked for.
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
