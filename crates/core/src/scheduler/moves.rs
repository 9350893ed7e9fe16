//! Which workloads may have changed their place in a queue since the last fetch: a copy of all places can be kept elsewhere, at a cost in proportion
//! to the changes.

use super::{Scheduler, standing::Standing};
use crate::Name;
use crate::intern::{LocalId, WorkloadId};
use crate::workload::WorkloadKey;

impl Scheduler {
    /// Records from now on which places change. At most one note is kept for each workload and LocalQueue until it is fetched.
    pub fn follow_moves(&mut self) {
        self.changes.moves.followed = true;
    }

    /// The place of a workload may change, or what is shown of it has changed.
    pub fn note_move(&mut self, key: &WorkloadKey) {
        if self.changes.moves.followed {
            self.changes.moves.workloads.insert(key.clone());
        }
    }

    pub(crate) fn moved(&mut self, id: WorkloadId) {
        if self.changes.moves.followed {
            self.changes.moves.workloads.insert(self.world.workloads.get(id).key.clone());
        }
    }

    /// The usage of a LocalQueue may have changed.
    pub(crate) fn usage_moved(&mut self, id: LocalId) {
        if self.keeps_ledgers().is_some() {
            self.usages.stale.insert(id);
        }
        if self.changes.moves.followed && self.world.config.admission_fair_sharing.is_some() {
            self.changes.moves.locals.mark(id.at());
        }
    }

    /// Whether anything moved.
    pub fn has_moves(&self) -> bool {
        !self.changes.moves.workloads.is_empty() || !self.changes.moves.locals.is_empty()
    }

    /// At most `most` of the workloads that moved, each with where it stands now: nowhere if it does not wait.
    pub fn take_moves(&mut self, most: usize) -> Vec<(WorkloadKey, Option<Standing>)> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(key) = self.changes.moves.workloads.pop_first()
        {
            let standing = self.standing(&key, None);
            taken.push((key, standing));
        }
        taken
    }

    /// At most `most` of the LocalQueues whose usage moved, each with the usage that orders it now: see [`Standing::usage`].
    pub fn take_usages(&mut self, most: usize) -> Vec<((Name, Name), f64)> {
        let moved = self.changes.moves.locals.take_most(most);
        let usage = |at: usize| {
            let (id, local) = (LocalId::new(at), &self.world.locals[at]);
            let ordered =
                local.queue.is_some_and(|queue| self.orders_by_usage(&self.world.queues[queue.at()]));
            let usage = if ordered { self.fair_usage(id) } else { 0.0 };
            ((local.namespace.clone(), local.name.clone()), usage)
        };
        moved.into_iter().filter(|&at| self.world.locals[at].spec.is_some()).map(usage).collect()
    }
}
