//! Physical capacity: how much of a (flavor, resource) pair the workloads of all queues may hold together, whatever their quotas are. Not in Kueue
//! (gate `Hotswap`): the reference knows quotas only. A pair without a limit is not limited.
//!
//! Some waiting workloads are *displaced*: they lost their nodes and have to get others. Each is the first of its queue, and what it needs is kept
//! from all workloads after it.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::cluster_queue::ClusterQueue;
use crate::intern::{FrId, WorkloadId};
use crate::workload::WorkloadKey;
use crate::workloads::Workloads;
use crate::{Amount, Name};

/// The limits, and the workloads that lost their nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capacity {
    pub(crate) limits: BTreeMap<FrId, i128>,
    /// In order of precedence.
    displaced: Vec<(WorkloadKey, DisplacedNeeds)>,
    /// The same by name.
    named: BTreeSet<WorkloadKey>,
}

/// What is kept for displaced workloads, by pair.
pub(crate) type Kept = BTreeMap<FrId, i128>;

/// A workload that lost its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Displaced {
    /// The workload.
    pub key: WorkloadKey,
    /// What it needs: (flavor, resource, amount); cpu in milli-CPU, everything else in whole units.
    pub needs: Vec<(Name, Name, Amount)>,
}

/// What a displaced workload needs.
pub(crate) type DisplacedNeeds = SmallVec<[(FrId, i128); 2]>;

impl Capacity {
    /// The displaced workloads with their needs, in order of precedence.
    pub(crate) fn displaced(&self) -> &[(WorkloadKey, DisplacedNeeds)] {
        &self.displaced
    }

    /// Replaces them; returns the previous ones.
    pub(crate) fn replace_displaced(
        &mut self,
        displaced: Vec<(WorkloadKey, DisplacedNeeds)>,
    ) -> Vec<(WorkloadKey, DisplacedNeeds)> {
        self.named = displaced.iter().map(|(key, _)| key.clone()).collect();
        std::mem::replace(&mut self.displaced, displaced)
    }

    /// Whether a workload is displaced.
    pub(crate) fn is_displaced(&self, key: &WorkloadKey) -> bool {
        self.named.contains(key)
    }

    /// The pairs that are limited or claimed.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = FrId> + '_ {
        let claimed = self.displaced.iter().flat_map(|(_, claim)| claim).map(|(pair, _)| *pair);
        self.limits.keys().copied().chain(claimed)
    }

    /// Whether any pair has a limit.
    #[inline]
    pub(crate) fn limits_any(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Whether a pair has a limit.
    pub(crate) fn limits(&self, pair: FrId) -> bool {
        self.limits.contains_key(&pair)
    }

    /// What is left of a pair beside what is kept for displaced workloads; `None` without a limit.
    pub(crate) fn left(&self, used: &BTreeMap<FrId, i128>, pair: FrId, kept: &Kept) -> Option<i128> {
        let of = |amounts: &BTreeMap<FrId, i128>| amounts.get(&pair).copied().unwrap_or(0);
        Some(self.limits.get(&pair)? - of(used) - of(kept))
    }

    /// What is kept of each pair for displaced workloads with precedence over `head`: all that they need while they wait, and the part that they do
    /// not hold while they leave their nodes. A claim counts only while the limits have room for it: one that cannot be met keeps no other workload
    /// waiting.
    pub(crate) fn kept_for_displaced(
        &self,
        head: WorkloadId,
        workloads: &Workloads,
        queues: &[ClusterQueue],
    ) -> Kept {
        let mut kept = Kept::new();
        for (key, claim) in &self.displaced {
            let Some(id) = workloads.find(key) else { continue };
            if id == head {
                break;
            }
            let waits = workloads.get(id).waiting().and_then(|waiting| waiting.at);
            let leaves = workloads.get(id).reservation().is_some();
            if !leaves && !waits.is_some_and(|(queue, _)| queues[queue.at()].is_active()) {
                continue;
            }
            let room = claim.iter().all(|(pair, amount)| {
                let before = kept.get(pair).copied().unwrap_or(0);
                self.limits.get(pair).is_none_or(|limit| before + amount <= *limit)
            });
            if room {
                for (pair, amount) in claim {
                    let usage = workloads.usage_of(id).iter().filter(|of| of.0 == *pair);
                    let has: i128 = usage.map(|of| of.2).sum();
                    *kept.entry(*pair).or_default() += (amount - has).max(0);
                }
            }
        }
        kept
    }
}
