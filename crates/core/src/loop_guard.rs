//! The preemption-loop guard, not in Kueue (gate `PreemptionLoopGuard`). The reference's rules allow endless preemption without any change from
//! outside: A evicts B, B or another workload takes the quota before A does, and A evicts again; or A and B evict each other in turn. So each tree
//! remembers which workload evicted which since its last outside change: an arrival, an end, a deletion, a changed quota or configuration. Changes
//! that preemption itself causes do not count. A workload that evicts the same victim for the second time has precedence over all others until it is
//! admitted, so that the quota is not taken again. A third eviction, or one in return, is refused. The number of pairs is limited, so that preemption
//! ends. A refused workload is tried again after the next outside change.

use std::collections::{BTreeMap, BTreeSet};

use crate::intern::{NodeId, QueueId, WorkloadId};
use crate::reason::LoopKind;

/// How often a workload may evict the same victim while nothing changes outside.
const MAX_EVICTIONS: u32 = 2;

/// Evictions since the last outside change, by the root of the tree; trees without preemption are not listed.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoopGuard {
    trees: BTreeMap<NodeId, TreeEvictions>,
}

#[derive(Debug, Clone, Default)]
struct TreeEvictions {
    /// How often the first evicted the second.
    evictions: BTreeMap<(WorkloadId, WorkloadId), u32>,
    /// Workloads that evicted the same victim again, and were not admitted since.
    first: BTreeSet<WorkloadId>,
    /// Queues with heads that were refused an eviction.
    refused: BTreeSet<QueueId>,
}

impl LoopGuard {
    /// Something outside changed in every tree. Gives the queues whose heads may be allowed now what they were refused.
    pub(crate) fn outside_change_anywhere(&mut self) -> BTreeSet<QueueId> {
        std::mem::take(&mut self.trees).into_values().flat_map(|memory| memory.refused).collect()
    }

    /// The same for one tree.
    pub(crate) fn outside_change(&mut self, root: NodeId) -> BTreeSet<QueueId> {
        if self.trees.is_empty() {
            return BTreeSet::new();
        }
        self.trees.remove(&root).unwrap_or_default().refused
    }

    /// The first of the victims that `by` must not evict now, and why.
    pub(crate) fn objection(
        &self,
        root: NodeId,
        by: WorkloadId,
        mut victims: impl Iterator<Item = WorkloadId>,
    ) -> Option<(WorkloadId, LoopKind)> {
        let memory = self.trees.get(&root)?;
        victims.find_map(|victim| {
            if memory.evictions.contains_key(&(victim, by)) {
                return Some((victim, LoopKind::InReturn));
            }
            let before = memory.evictions.get(&(by, victim)).copied().unwrap_or(0);
            (before >= MAX_EVICTIONS).then_some((victim, LoopKind::Repeated))
        })
    }

    /// Notes that the head of a queue was refused an eviction.
    pub(crate) fn refused(&mut self, root: NodeId, queue: QueueId) {
        self.trees.entry(root).or_default().refused.insert(queue);
    }

    /// Notes an eviction.
    pub(crate) fn evicted(&mut self, root: NodeId, by: WorkloadId, victim: WorkloadId) {
        let memory = self.trees.entry(root).or_default();
        let times = memory.evictions.entry((by, victim)).or_default();
        *times += 1;
        if *times >= MAX_EVICTIONS {
            memory.first.insert(by);
        }
    }

    /// Whether a workload goes before all others of its tree.
    pub(crate) fn goes_first(&self, root: NodeId, id: WorkloadId) -> bool {
        self.trees.get(&root).is_some_and(|memory| memory.first.contains(&id))
    }

    /// A workload was admitted: it had its turn.
    pub(crate) fn admitted(&mut self, root: NodeId, id: WorkloadId) {
        if let Some(memory) = self.trees.get_mut(&root) {
            memory.first.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: NodeId = NodeId(0);
    const A: WorkloadId = WorkloadId(1);
    const B: WorkloadId = WorkloadId(2);
    const C: WorkloadId = WorkloadId(3);

    fn objects(guard: &LoopGuard, by: WorkloadId, victims: &[WorkloadId]) -> Option<(WorkloadId, LoopKind)> {
        guard.objection(TREE, by, victims.iter().copied())
    }

    #[test]
    fn an_eviction_in_return_is_refused() {
        let mut guard = LoopGuard::default();
        guard.evicted(TREE, A, B);
        assert_eq!(objects(&guard, B, &[C, A]), Some((A, LoopKind::InReturn)));
        assert_eq!(objects(&guard, B, &[C]), None);
        assert_eq!(objects(&guard, C, &[A, B]), None);
        assert_eq!(guard.objection(NodeId(1), B, std::iter::once(A)), None, "another tree");
    }

    #[test]
    fn the_second_eviction_is_allowed_and_the_third_is_not() {
        let mut guard = LoopGuard::default();
        guard.evicted(TREE, A, B);
        assert!(!guard.goes_first(TREE, A));
        assert_eq!(objects(&guard, A, &[B]), None);
        guard.evicted(TREE, A, B);
        assert_eq!(objects(&guard, A, &[C, B]), Some((B, LoopKind::Repeated)));
    }

    #[test]
    fn a_workload_that_evicts_again_goes_first_until_admitted() {
        let mut guard = LoopGuard::default();
        guard.evicted(TREE, A, B);
        guard.evicted(TREE, A, B);
        assert!(guard.goes_first(TREE, A));
        assert!(!guard.goes_first(TREE, B));
        assert!(!guard.goes_first(NodeId(1), A));
        guard.admitted(TREE, A);
        assert!(!guard.goes_first(TREE, A));
    }

    #[test]
    fn a_change_from_outside_forgets_the_tree() {
        let mut guard = LoopGuard::default();
        for _ in 0..2 {
            guard.evicted(TREE, A, B);
            guard.evicted(NodeId(1), C, B);
        }
        guard.refused(TREE, QueueId(7));
        guard.refused(NodeId(1), QueueId(8));
        assert_eq!(guard.outside_change(TREE), BTreeSet::from([QueueId(7)]));
        assert_eq!(objects(&guard, B, &[A]), None);
        assert!(!guard.goes_first(TREE, A));
        assert!(guard.goes_first(NodeId(1), C));
        assert_eq!(guard.outside_change_anywhere(), BTreeSet::from([QueueId(8)]));
        assert!(!guard.goes_first(NodeId(1), C));
        assert_eq!(guard.outside_change(TREE), BTreeSet::new(), "said once");
    }
}
