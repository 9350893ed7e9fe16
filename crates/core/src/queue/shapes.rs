//! The requests of a ClusterQueue's pending workloads.

use crate::intern::ShapeId;
use crate::queue::PendingQueue;

impl PendingQueue {
    /// The shape of each class that has members, and how many those are.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = (ShapeId, usize)> + '_ {
        let classes = self.index.values().map(|&id| self.class(id));
        let waiting =
            classes.map(|class| (class, class.active.len() + class.inadmissible.len() + class.on_hold.len()));
        waiting.filter(|(_, members)| *members > 0).map(|(class, members)| (class.key.shape, members))
    }
}
