//! The preemption-loop guard, ours (gate `PreemptionLoopGuard`). The reference's rules allow endless preemption without
//! any change from outside: A evicts B, B or somebody else takes the room before A does, and A evicts again; or A and B
//! evict each other in turn. So each tree remembers who evicted whom since its last outside change: an arrival, an end, a
//! deletion, a changed quota or configuration, but not the comings and goings that preemption itself causes. Who evicts
//! the same victim for the second time goes before all others until it is admitted, so that its room is not taken
//! again; a third time, or an eviction in return, is refused. There are only so many pairs: everything comes to rest.

use std::collections::{BTreeMap, BTreeSet};

use crate::intern::{NodeId, WorkloadId};
use crate::reason::LoopKind;

/// How often a workload may evict the same victim while nothing changes outside.
const MOST: u32 = 2;

/// What happened since the last outside change, by the root of the tree; trees without preemption are not in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoopGuard {
    trees: BTreeMap<NodeId, Memory>,
}

#[derive(Debug, Clone, Default)]
struct Memory {
    /// How often the first evicted the second.
    evictions: BTreeMap<(WorkloadId, WorkloadId), u32>,
    /// Who evicted the same victim again, and was not admitted since.
    first: BTreeSet<WorkloadId>,
}

impl LoopGuard {
    /// Something outside changed in every tree.
    pub(crate) fn outside_change_anywhere(&mut self) {
        self.trees.clear();
    }

    /// Something outside changed in this tree.
    pub(crate) fn outside_change(&mut self, root: NodeId) {
        if !self.trees.is_empty() {
            self.trees.remove(&root);
        }
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
            (before >= MOST).then_some((victim, LoopKind::Repeated))
        })
    }

    /// Notes an eviction.
    pub(crate) fn evicted(&mut self, root: NodeId, by: WorkloadId, victim: WorkloadId) {
        let memory = self.trees.entry(root).or_default();
        let times = memory.evictions.entry((by, victim)).or_default();
        *times += 1;
        if *times >= MOST {
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
