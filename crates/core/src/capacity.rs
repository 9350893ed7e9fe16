//! Physical capacity: how much of a (flavor, resource) pair the workloads of all queues may hold together, whatever their
//! quotas say. Ours (gate `Hotswap`): the reference knows quotas only. A pair without a limit is not limited.
//!
//! Some waiting workloads are *displaced*: they lost their nodes and are to get others. Each goes first in its queue, and
//! what it needs is kept from all that come after it.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::cluster_queue::ClusterQueue;
use crate::intern::{FlavorId, FrId, QueueId, WorkloadId};
use crate::queue::{OrderKey, Placement};
use crate::quota::{clamp, exact};
use crate::reason::Refusal;
use crate::scheduler::Scheduler;
use crate::view::{FlavorResourceQuantity, View};
use crate::workload::WorkloadKey;
use crate::workloads::{QuotaReservation, Workloads};
use crate::{Amount, Name};

/// The limits, and what is used of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capacity {
    rows: BTreeMap<FrId, PhysicalCapacity>,
    /// In the order in which they go.
    displaced: Vec<(WorkloadKey, DisplacedNeeds)>,
}

/// A workload that lost its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Displaced {
    /// The workload.
    pub key: WorkloadKey,
    /// What it needs: (flavor, resource, amount); cpu in milli-CPU, everything else in whole units.
    pub needs: Vec<(Name, Name, Amount)>,
}

/// What a displaced workload needs.
type DisplacedNeeds = SmallVec<[(FrId, i128); 2]>;

/// One limited pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PhysicalCapacity {
    limit: i128,
    used: i128,
}

impl Capacity {
    /// Counts what a workload holds.
    pub(crate) fn add(&mut self, pair: FrId, amount: i128) {
        if let Some(row) = self.rows.get_mut(&pair) {
            row.used += amount;
        }
    }

    /// The pairs that are limited or claimed.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = FrId> + '_ {
        let claimed = self.displaced.iter().flat_map(|(_, claim)| claim).map(|(pair, _)| *pair);
        self.rows.keys().copied().chain(claimed)
    }

    /// Whether a pair has a limit.
    fn limits(&self, pair: FrId) -> bool {
        self.rows.contains_key(&pair)
    }

    /// What is left of a pair for a workload; `None` where there is no limit.
    fn left(
        &self,
        pair: FrId,
        head: WorkloadId,
        workloads: &Workloads,
        queues: &[ClusterQueue],
    ) -> Option<i128> {
        let row = self.rows.get(&pair)?;
        Some(row.limit - row.used - self.kept_for_displaced(pair, head, workloads, queues))
    }

    /// What displaced workloads that go before `head` are kept of a pair: all that they need while they wait, and what they do not
    /// hold of it while they leave their place. A claim counts only while the limits have room for it: one that cannot be met
    /// keeps no other workload waiting.
    fn kept_for_displaced(
        &self,
        pair: FrId,
        head: WorkloadId,
        workloads: &Workloads,
        queues: &[ClusterQueue],
    ) -> i128 {
        let mut kept: BTreeMap<FrId, i128> = BTreeMap::new();
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
                self.rows.get(pair).is_none_or(|row| before + amount <= row.limit)
            });
            if room {
                for (pair, amount) in claim {
                    let usage = workloads.usage_of(id).iter().filter(|of| of.0 == *pair);
                    let has: i128 = usage.map(|of| of.2).sum();
                    *kept.entry(*pair).or_default() += (amount - has).max(0);
                }
            }
        }
        kept.get(&pair).copied().unwrap_or(0)
    }
}

impl View<'_> {
    /// What physical capacity has against a head that needs `wanted` of a pair, with `freed` given back by its victims.
    pub(crate) fn lacks_capacity(
        &self,
        head: WorkloadId,
        pair: FrId,
        wanted: i128,
        freed: i128,
    ) -> Option<Refusal> {
        let left = self.capacity.left(pair, head, self.workloads, self.queues)? + freed;
        if wanted <= left {
            return None;
        }
        let (flavor, resource) = self.names.flavor_and_resource(pair);
        Some(Refusal::InsufficientCapacity {
            flavor: self.names.flavor_name(flavor).clone(),
            resource: self.names.resource_name(resource).clone(),
            needed: clamp(wanted),
            free: clamp(left.max(0)),
            missing: clamp(wanted - left.max(0)),
        })
    }

    /// What a workload gives back of a pair when it goes.
    fn usage_of_pair(&self, id: WorkloadId, pair: FrId) -> i128 {
        self.workloads.usage_of(id).iter().filter(|usage| usage.0 == pair).map(|usage| usage.2).sum()
    }

    /// Why the first of the quantities that exceeds physical capacity does so once these workloads are gone.
    pub(crate) fn first_lack(
        &self,
        head: WorkloadId,
        quantities: &[FlavorResourceQuantity],
        gone: &[WorkloadId],
    ) -> Option<Refusal> {
        quantities.iter().find_map(|quantity| {
            if !self.capacity.limits(quantity.pair) {
                return None;
            }
            let freed = gone.iter().map(|&id| self.usage_of_pair(id, quantity.pair)).sum();
            self.lacks_capacity(head, quantity.pair, quantity.amount, freed)
        })
    }
}

impl Scheduler {
    /// Limits what all workloads together may hold of a flavor: `(resource, most)`, cpu in milli-CPU, everything else in whole
    /// units. Resources that are not listed are not limited; an empty list takes all limits of the flavor away. Says whether
    /// anything changed.
    pub fn set_capacity(&mut self, flavor: &Name, limits: &[(Name, Amount)]) -> bool {
        self.sweep_if_due();
        let flavor = self.names.flavor(flavor);
        let mut wanted: BTreeMap<FrId, i128> = BTreeMap::new();
        for (resource, limit) in limits {
            let resource = self.names.resource(resource);
            wanted.insert(self.names.pair(flavor, resource), exact(*limit));
        }
        let mut changed = false;
        let names = &self.names;
        self.capacity.rows.retain(|pair, _| {
            let keep = names.flavor_and_resource(*pair).0 != flavor || wanted.contains_key(pair);
            changed |= !keep;
            keep
        });
        self.sweeps.replaced(changed);
        for (pair, limit) in wanted {
            if let Some(row) = self.capacity.rows.get_mut(&pair) {
                changed |= std::mem::replace(&mut row.limit, limit) != limit;
                continue;
            }
            let used = self.usage_by_all(pair);
            self.capacity.rows.insert(pair, PhysicalCapacity { limit, used });
            changed = true;
        }
        if changed {
            self.try_again_with(flavor);
        }
        changed
    }

    /// Which workloads are displaced, in the order in which they go, each with what it needs.
    /// It matters only while they leave their place or wait for quota. Says whether anything changed.
    pub fn set_displaced(&mut self, displaced: &[Displaced]) -> bool {
        self.sweep_if_due();
        let mut list = Vec::with_capacity(displaced.len());
        for Displaced { key, needs } in displaced {
            let mut claim = DisplacedNeeds::new();
            for (flavor, resource, amount) in needs {
                let (flavor, resource) = (self.names.flavor(flavor), self.names.resource(resource));
                let pair = self.names.pair(flavor, resource);
                match claim.iter_mut().find(|known| known.0 == pair) {
                    Some(known) => known.1 += exact(*amount),
                    None => claim.push((pair, exact(*amount))),
                }
            }
            list.push((key.clone(), claim));
        }
        if self.capacity.displaced == list {
            return false;
        }
        self.sweeps.removed();
        let before = std::mem::replace(&mut self.capacity.displaced, list);
        let concerned: Vec<FlavorId> = before
            .iter()
            .chain(&self.capacity.displaced)
            .flat_map(|(_, claim)| claim)
            .map(|(pair, _)| self.names.flavor_and_resource(*pair).0)
            .collect();
        for flavor in concerned {
            self.try_again_with(flavor);
        }
        true
    }

    /// What all workloads hold of a pair.
    fn usage_by_all(&self, pair: FrId) -> i128 {
        let usage = self.workloads.iter().filter_map(|(_, workload)| workload.reservation());
        usage.flat_map(QuotaReservation::charged).filter(|usage| usage.0 == pair).map(|usage| usage.2).sum()
    }

    /// Lets every queue that uses a flavor try its inadmissible workloads again.
    fn try_again_with(&mut self, flavor: FlavorId) {
        for id in self.referring_queues.of_flavor(flavor) {
            self.tree.forest.capacity_changed(self.queues[id.at()].node);
            self.flush_later.insert(id);
        }
    }

    /// A workload gave back what it held: queues of other trees may have waited for its physical capacity.
    pub(crate) fn capacity_freed(&mut self, before: &QuotaReservation) {
        let mut flavors: SmallVec<[FlavorId; 2]> = SmallVec::new();
        for (pair, _, _) in before.charged().filter(|usage| self.capacity.limits(usage.0)) {
            let flavor = self.names.flavor_and_resource(pair).0;
            if !flavors.contains(&flavor) {
                flavors.push(flavor);
            }
        }
        for flavor in flavors {
            self.try_again_with(flavor);
        }
    }

    /// The first displaced workload that waits in the heap of a queue.
    pub(crate) fn first_displaced(&self, id: QueueId) -> Option<(crate::intern::ClassId, OrderKey)> {
        self.capacity.displaced.iter().find_map(|(key, _)| {
            let workload = self.workloads.find(key)?;
            let (queue, class) = self.workloads.get(workload).waiting()?.at?;
            let order = self.order_key(workload);
            let active = self.queues[queue.at()].pending.placement(class, &order) == Some(Placement::Active);
            (queue == id && active).then_some((class, order))
        })
    }

    /// Whether a workload is displaced.
    pub(crate) fn is_displaced(&self, id: WorkloadId) -> bool {
        !self.capacity.displaced.is_empty() && {
            let key = &self.workloads.get(id).key;
            self.capacity.displaced.iter().any(|(displaced, _)| displaced == key)
        }
    }

    /// What is used of each limited pair, added up anew.
    pub(crate) fn audit_capacity(&self, found: &mut Vec<String>) {
        for (pair, row) in &self.capacity.rows {
            let used = self.usage_by_all(*pair);
            if used != row.used {
                found.push(format!("{} is counted of the capacity of {pair:?}, should be {used}", row.used));
            }
        }
    }
}
