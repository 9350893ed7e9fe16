//! Inadmissible workloads that reservations of quota or nodes kept out are tried again when the reservations end. Not in Kueue: the reference tries
//! them again only when something becomes free, and the end of a reservation frees nothing.
//!
//! A head without victims reserves what it cannot have yet, for the rest of the cycle. A workload that is kept out by that continues with its next
//! flavor, and becomes inadmissible if none is left, although the earlier flavor would fit in the next cycle.

use std::collections::{BTreeMap, BTreeSet};

use crate::intern::{NodeId, WorkloadId};

/// How often workloads of a tree are tried again before something becomes free there: a head that reserves something in every other cycle must not
/// keep the tree busy endlessly.
const MAX_RETRIES: u8 = 12;

/// Which heads keep which workloads out.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptOut {
    /// By workload, the heads that kept it out.
    by: BTreeMap<WorkloadId, Vec<WorkloadId>>,
    /// The same in the other direction.
    waiting: BTreeMap<WorkloadId, BTreeSet<WorkloadId>>,
    /// By root, how often something was tried again since capacity became free, and when that was.
    retries: BTreeMap<NodeId, (u64, u8)>,
}

impl KeptOut {
    /// Says which heads keep a workload out from now on.
    pub(crate) fn replace(&mut self, id: WorkloadId, by: &[WorkloadId]) {
        if by.is_empty() && self.by.is_empty() {
            return;
        }
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

    /// Whether no workload is kept out.
    pub(crate) fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// The workloads that heads kept out which are not among these.
    pub(crate) fn by_others_than(&self, heads: &BTreeSet<WorkloadId>) -> BTreeSet<WorkloadId> {
        let ended = self.waiting.iter().filter(|(head, _)| !heads.contains(head));
        ended.flat_map(|(_, waiting)| waiting).copied().collect()
    }

    /// A head waits no more: the workloads that it kept out, which it does not any longer.
    pub(crate) fn without(&mut self, head: WorkloadId) -> BTreeSet<WorkloadId> {
        let waiting = self.waiting.remove(&head).unwrap_or_default();
        for id in &waiting {
            if let Some(by) = self.by.get_mut(id) {
                by.retain(|one| *one != head);
                if by.is_empty() {
                    self.by.remove(id);
                }
            }
        }
        waiting
    }

    /// Whether a tree may be tried once more, after capacity became free there at this count.
    pub(crate) fn may_retry(&mut self, root: NodeId, freed: u64) -> bool {
        let retries = self.retries.entry(root).or_default();
        if retries.0 != freed {
            *retries = (freed, 0);
        }
        retries.1 += u8::from(retries.1 <= MAX_RETRIES);
        retries.1 <= MAX_RETRIES
    }
}
