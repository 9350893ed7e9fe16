//! Workloads that reservations of heads kept out are tried again at the end of a cycle (see [`crate::kept_out`]).

use std::collections::{BTreeMap, BTreeSet};

use super::entry::CycleState;
use crate::intern::{ClassId, NodeId, QueueId, WorkloadId};
use crate::queue::Placement;
use crate::scheduler::Scheduler;

impl Scheduler {
    /// Retries the workloads that were kept out by heads that reserved nothing in this cycle, or will not be heads of the next one. Called at the end
    /// of the cycle.
    pub(super) fn wake_kept_out(&mut self, state: &mut CycleState) {
        if self.agenda.kept_out.is_empty() {
            return;
        }
        let of_quota = state.reserved.values().flatten().map(|&(id, ..)| id);
        let of_nodes = state.reserved_pods.iter().map(|&(id, _)| id);
        let reserving: BTreeSet<WorkloadId> =
            of_quota.chain(of_nodes).filter(|&id| self.stays_head(id)).collect();
        let concerned = self.agenda.kept_out.by_others_than(&reserving);
        let mut classes: BTreeMap<NodeId, BTreeSet<(QueueId, ClassId)>> = BTreeMap::new();
        for id in concerned {
            self.agenda.kept_out.replace(id, &[]);
            if let Some((queue, class, Placement::Inadmissible)) = self.place_in_queue(id) {
                let root = self.world.forest.node(self.world.queues[queue.at()].node).root;
                classes.entry(root).or_default().insert((queue, class));
            }
        }
        for (root, classes) in classes {
            if !self.agenda.kept_out.may_retry(root, self.world.forest.freed(root)) {
                continue;
            }
            for (queue, class) in classes {
                for shape in self.world.queues[queue.at()].pending.flush_class(class) {
                    self.world.shapes.release(shape);
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
        let (queue, class) = self.world.workloads.try_get(id)?.waiting()?.at?;
        let placement =
            self.world.queues[queue.at()].pending.placement(class, &self.world.workloads.order_key(id))?;
        Some((queue, class, placement))
    }
}
