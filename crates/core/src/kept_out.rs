//! Inadmissible workloads that others kept from quota which these only reserved are tried again when it is reserved no more.
//! Ours: the reference tries them again only when something becomes free, and the end of a reservation frees nothing.
//!
//! A head without victims reserves what it may not have yet, for the rest of the cycle. Whom that keeps out goes on with its next
//! flavor, and becomes inadmissible if none is left, although the flavor before would do in the next cycle.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::CycleState;
use crate::intern::{ClassId, NodeId, QueueId, WorkloadId};
use crate::queue::Placement;
use crate::scheduler::Scheduler;

/// So many times workloads of a tree are tried again before something becomes free there: a head that reserves something in every
/// other cycle must not keep the tree busy for ever.
const MAX_RETRIES: u8 = 12;

/// Who keeps whom out.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptOut {
    /// By workload, the heads that kept it out.
    by: BTreeMap<WorkloadId, Vec<WorkloadId>>,
    /// The same the other way round.
    waiting: BTreeMap<WorkloadId, BTreeSet<WorkloadId>>,
    /// By root, how often something was tried again since capacity became free, and when that was.
    retries: BTreeMap<NodeId, (u64, u8)>,
}

impl KeptOut {
    /// Says which heads keep a workload out from now on.
    pub(crate) fn replace(&mut self, id: WorkloadId, by: &[WorkloadId]) {
        for head in self.by.remove(&id).into_iter().flatten() {
            if let Some(waiting) = self.waiting.get_mut(&head) {
                waiting.remove(&id);
                if waiting.is_empty() {
                    self.waiting.remove(&head);
                }
            }
        }
        if !by.is_empty() {
            self.by.insert(id, by.to_vec());
            for &head in by {
                self.waiting.entry(head).or_default().insert(id);
            }
        }
    }

    /// Whether a tree may be tried once more, after capacity became free there at this count.
    fn may_retry(&mut self, root: NodeId, freed: u64) -> bool {
        let retries = self.retries.entry(root).or_default();
        if retries.0 != freed {
            *retries = (freed, 0);
        }
        retries.1 += u8::from(retries.1 <= MAX_RETRIES);
        retries.1 <= MAX_RETRIES
    }
}

impl Scheduler {
    /// Tries again who was kept out by heads that reserved nothing in this cycle, or will not be heads of the next one. Called at its
    /// end.
    pub(crate) fn wake_kept_out(&mut self, state: &mut CycleState) {
        if self.kept_out.by.is_empty() {
            return;
        }
        let reserving: BTreeSet<WorkloadId> =
            state.reserved.values().flatten().map(|&(id, ..)| id).filter(|&id| self.stays_head(id)).collect();
        let ended = self.kept_out.waiting.iter().filter(|(head, _)| !reserving.contains(head));
        let concerned: BTreeSet<WorkloadId> = ended.flat_map(|(_, waiting)| waiting).copied().collect();
        let mut classes: BTreeMap<NodeId, BTreeSet<(QueueId, ClassId)>> = BTreeMap::new();
        for id in concerned {
            self.kept_out.replace(id, &[]);
            if let Some((queue, class, Placement::Inadmissible)) = self.place_in_queue(id) {
                let root = self.tree.forest.node(self.queues[queue.at()].node).root;
                classes.entry(root).or_default().insert((queue, class));
            }
        }
        for (root, classes) in classes {
            if !self.kept_out.may_retry(root, self.tree.forest.freed(root)) {
                continue;
            }
            for (queue, class) in classes {
                for shape in self.queues[queue.at()].pending.flush_class(class) {
                    self.shapes.release(shape);
                }
                self.sync_ready(queue);
            }
            state.report.scanning = true;
        }
    }

    /// Whether a head of this cycle went back into its heap.
    fn stays_head(&self, id: WorkloadId) -> bool {
        self.place_in_queue(id).is_some_and(|(.., placement)| placement == Placement::Active)
    }

    fn place_in_queue(&self, id: WorkloadId) -> Option<(QueueId, ClassId, Placement)> {
        let (queue, class) = self.workloads.try_get(id)?.waiting()?.at?;
        let placement = self.queues[queue.at()].pending.placement(class, &self.order_key(id))?;
        Some((queue, class, placement))
    }
}
