//! An owned copy of the numbers, for trials outside of a cycle.

use super::Scheduler;
use crate::Amount;
use crate::intern::NodeId;
use crate::quota::clamp;
use crate::usage::Usage;
use crate::workload::WorkloadKey;

/// Usage of every slot at one moment: a trial owns nothing else, since it restores nothing in the world.
#[derive(Debug, Clone)]
pub struct Snapshot {
    usage: Usage,
}

impl Scheduler {
    /// A copy of the usage numbers: one memory copy, whatever the number of workloads.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { usage: self.books.usage.copy() }
    }
}

impl Snapshot {
    /// Does something with the numbers and takes back what it changed.
    pub fn trial<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let mark = self.usage.mark();
        let result = work(self);
        self.usage.rollback(&mark);
        result
    }

    /// Subtracts the usage of a workload of the scheduler from which this snapshot was taken.
    pub fn release(&mut self, scheduler: &Scheduler, workload: &WorkloadKey) {
        let Some(reservation) = scheduler
            .world
            .workloads
            .find(workload)
            .and_then(|id| scheduler.world.workloads.get(id).reservation())
        else {
            return;
        };
        for (_, slot, amount) in reservation.charged() {
            self.usage.remove(&scheduler.world.forest.quota, slot, amount);
        }
    }

    /// Whether a workload of the scheduler from which this snapshot was taken uses a flavor of which its ClusterQueue uses more than its nominal
    /// quota.
    pub fn borrows(
        &self,
        scheduler: &Scheduler,
        workload: &WorkloadKey,
        counts: impl Fn(&str) -> bool,
    ) -> bool {
        let world = &scheduler.world;
        let id = world.workloads.find(workload);
        let Some(reservation) = id.and_then(|id| world.workloads.get(id).reservation()) else {
            return false;
        };
        reservation.charged().any(|(pair, slot, _)| {
            let (flavor, _) = world.names.flavor_and_resource(pair);
            self.usage.has(slot)
                && world.forest.quota.borrowing(&self.usage, slot)
                && counts(world.names.flavor_name(flavor))
        })
    }

    /// What a ClusterQueue could still use of a flavor's resource in this snapshot, at least zero; `None` if the scheduler from which it was taken
    /// has no such quota.
    pub fn available(
        &self,
        scheduler: &Scheduler,
        queue: &str,
        flavor: &str,
        resource: &str,
    ) -> Option<Amount> {
        let node: NodeId = scheduler.world.queues[scheduler.world.queue_index.get(queue)?.at()].node;
        let pair = scheduler.world.names.find_pair(flavor, resource)?;
        let slot = scheduler.world.forest.node(node).slot(pair)?;
        self.usage.has(slot).then(|| scheduler.world.forest.quota.available(&self.usage, slot))
    }

    /// What a ClusterQueue used of a flavor's resource in this snapshot.
    pub fn used(&self, scheduler: &Scheduler, queue: &str, flavor: &str, resource: &str) -> Option<Amount> {
        let node: NodeId = scheduler.world.queues[scheduler.world.queue_index.get(queue)?.at()].node;
        let slot =
            scheduler.world.forest.node(node).slot(scheduler.world.names.find_pair(flavor, resource)?)?;
        self.usage.has(slot).then(|| clamp(self.usage.get(slot)))
    }
}
