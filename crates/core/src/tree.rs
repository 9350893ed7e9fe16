//! The forest of Cohorts and ClusterQueues with its numbers.

use crate::fair_sharing::Lendable;
use crate::forest::Forest;
use crate::intern::{Names, NodeId};
use crate::usage::Usage;

/// The forest with its numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) forest: Forest,
    pub(crate) usage: Usage,
    pub(crate) lendable: Lendable,
}

impl Tree {
    /// Brings the numbers up to date; returns the roots of the trees that changed.
    pub(crate) fn refresh(&mut self, names: &Names) -> Vec<NodeId> {
        let roots = self.forest.refresh(&mut self.usage);
        for &root in &roots {
            self.lendable.rebuild(&self.forest, names, root);
        }
        roots
    }
}
