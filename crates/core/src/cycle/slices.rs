//! Slices of elastic jobs (docs/reference/06-algorithm.md 6.26): a slice that replaces another needs only the difference, in the same flavors. The
//! replaced one keeps its quota until then, and is not a victim of the new one.

use super::entry::Entry;
use crate::intern::{FrId, WorkloadId};
use crate::scheduler::Scheduler;
use crate::view::Head;
use crate::workloads::ReservedUsage;

impl Scheduler {
    /// The slice that a head replaces, if the head may take its usage: quota of the same ClusterQueue, which is not promised to another preemptor.
    pub(super) fn replaced_slice(&self, head: &Head) -> Option<WorkloadId> {
        let replaces = self.world.workloads.get(head.workload).replaces.as_ref()?;
        let id = self.world.workloads.find(&replaces.key).filter(|&id| id != head.workload)?;
        let reservation = self.world.workloads.get(id).reservation()?;
        (reservation.queue == head.queue && !reservation.evicted).then_some(id)
    }

    /// An earlier entry of this cycle took the slice that an entry takes over from as its victim.
    pub(super) fn slice_is_taken(&self, entry: &Entry) -> bool {
        entry.replaced.is_some_and(|id| self.world.workloads.get(id).taken_in_cycle == self.cycle)
    }

    /// What an entry uses of a pair beyond the usage of the slice that it replaces.
    pub(super) fn beyond_replaced(&self, entry: &Entry, pair: FrId, amount: i128) -> i128 {
        let Some(slice) = entry.replaced else { return amount };
        let held = self.world.workloads.usage_of(slice).iter().find(|usage| usage.0 == pair);
        (amount - held.map_or(0, |usage| usage.2)).max(0)
    }

    /// A slice gets quota: the slice that it replaces keeps only the usage beyond that.
    pub(super) fn take_over(&mut self, entry: &Entry, usage: &ReservedUsage) {
        let Some(old) = entry.replaced else { return };
        let Some(mut reservation) = self.take_out(old) else { return };
        for (pair, _, amount) in &mut reservation.usage {
            let taken = usage.iter().find(|taken| taken.0 == *pair).map_or(0, |taken| taken.2);
            *amount = (*amount - taken).max(0);
        }
        // Its pods continue as pods of the new slice, which has their nodes.
        reservation.topology = None;
        self.reserve_quota(old, reservation);
        self.world.workloads.get_mut(old).taken_in_cycle = self.cycle;
    }
}
