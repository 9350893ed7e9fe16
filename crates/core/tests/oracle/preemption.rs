//! Common parts of classical and fair preemption: policies, the order of candidates, fill-back (6.7).

use super::snapshot::Snapshot;
use super::world::{Cause, Fr, Name, Policy, Queue, Reservation, Target, Usage, Workload};
use super::{classical, fair_preemption};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The workload that preempts, and for what.
pub struct Preemptor<'a> {
    pub workload: &'a Workload,
    /// The (flavor, resource) pairs that do not fit.
    pub needed: BTreeSet<Fr>,
    /// Everything the workload asks for.
    pub requests: Usage,
}

impl Preemptor<'_> {
    pub fn queue<'s>(&self, snapshot: &Snapshot<'s>) -> &'s Queue {
        &snapshot.world.queues[&self.workload.queue]
    }

    pub fn satisfies(&self, policy: Policy, candidate: &Workload) -> bool {
        let lower = self.workload.priority > candidate.priority;
        match policy {
            Policy::Never => false,
            Policy::LowerPriority => lower,
            Policy::LowerOrNewerEqualPriority => {
                lower
                    || self.workload.priority == candidate.priority
                        && self.workload.created < candidate.created
            }
            Policy::Any => true,
        }
    }

    pub fn uses_needed(&self, candidate: &Reservation) -> bool {
        self.needed.iter().any(|fr| candidate.usage.contains_key(fr))
    }

    /// Workloads of the own queue that may be preempted.
    pub fn candidates_in_own_queue<'s>(&self, snapshot: &Snapshot<'s>) -> Vec<&'s Reservation> {
        let policy = self.queue(snapshot).preemption.within_cluster_queue;
        held_in(snapshot, &self.workload.queue)
            .filter(|held| self.uses_needed(held) && self.satisfies(policy, &held.workload))
            .collect()
    }

    /// Already evicted first; those of other queues first; lower priority; more recently reserved; UID.
    pub fn order<'h>(&self, held: &'h Reservation) -> impl Ord + use<'h> {
        let workload = &held.workload;
        let own_queue = workload.queue == self.workload.queue;
        (!held.evicted, own_queue, workload.priority, Reverse(held.reserved_at), &workload.uid)
    }

    pub fn fits(&self, snapshot: &Snapshot<'_>, allow_borrowing: bool) -> bool {
        let node = super::snapshot::queue(&self.workload.queue);
        let borrows = || self.requests.iter().any(|(fr, amount)| snapshot.borrowing_with(&node, fr, *amount));
        snapshot.fits(&self.workload.queue, &self.requests) && (allow_borrowing || !borrows())
    }

    /// From second-last to first, spares each victim without which it still fits; the last one takes the place of a
    /// spared one. All victims are back in the snapshot afterwards.
    pub fn fill_back<'s>(
        &self,
        snapshot: &mut Snapshot<'s>,
        mut victims: Vec<(&'s Reservation, Cause)>,
        allow_borrowing: bool,
    ) -> Vec<Target> {
        for index in (0..victims.len().saturating_sub(1)).rev() {
            snapshot.add_workload(victims[index].0);
            if self.fits(snapshot, allow_borrowing) {
                victims.swap_remove(index);
            } else {
                snapshot.remove_workload(victims[index].0);
            }
        }
        self.assert_minimal(snapshot, &victims, allow_borrowing);
        restore(snapshot, &victims);
        victims.into_iter().map(|(held, cause)| (held.workload.key.clone(), cause)).collect()
    }

    /// No victim could be given back.
    fn assert_minimal<'s>(
        &self,
        snapshot: &mut Snapshot<'s>,
        victims: &[(&'s Reservation, Cause)],
        allow_borrowing: bool,
    ) {
        assert!(self.fits(snapshot, allow_borrowing), "{} fits after its preemptions", self.workload.key);
        for (held, _) in victims {
            snapshot.add_workload(held);
            let key = &held.workload.key;
            assert!(!self.fits(snapshot, allow_borrowing), "{} needs no {key}", self.workload.key);
            snapshot.remove_workload(held);
        }
    }
}

pub fn held_in<'s>(snapshot: &Snapshot<'s>, queue: &Name) -> impl Iterator<Item = &'s Reservation> {
    snapshot.held.get(queue).into_iter().flat_map(|held| held.values().copied())
}

pub fn restore<'s>(snapshot: &mut Snapshot<'s>, victims: &[(&'s Reservation, Cause)]) {
    for (held, _) in victims {
        snapshot.add_workload(held);
    }
}

/// The workloads to preempt so that the workload fits; empty if that is not possible. Leaves the snapshot as it was.
pub fn targets(snapshot: &mut Snapshot<'_>, preemptor: &Preemptor<'_>) -> Vec<Target> {
    match &snapshot.world.fair {
        Some(strategies) => fair_preemption::targets(snapshot, preemptor, strategies),
        None => classical::targets(snapshot, preemptor),
    }
}
