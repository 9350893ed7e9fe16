//! Limits of physical capacity and displaced workloads come and go, and what that lets be tried again.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::Scheduler;
use crate::capacity::{Displaced, DisplacedNeeds, PhysicalCapacity};
use crate::intern::{ClassId, FlavorId, FrId, QueueId, WorkloadId};
use crate::queue::{OrderKey, Placement};
use crate::quota::exact;
use crate::workloads::QuotaReservation;
use crate::{Amount, Name};

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
        let concerned: BTreeSet<FlavorId> = before
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
    pub(super) fn try_again_with(&mut self, flavor: FlavorId) {
        for id in self.referring_queues.of_flavor(flavor) {
            self.tree.forest.capacity_changed(self.queues[id.at()].node);
            self.flush_later.insert(id);
        }
    }

    /// A workload gave back what it held: queues of other trees may have waited for its physical capacity.
    pub(crate) fn capacity_freed(&mut self, before: &QuotaReservation) {
        self.nodes_freed(before);
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
    pub(crate) fn first_displaced(&self, id: QueueId) -> Option<(ClassId, OrderKey)> {
        self.capacity.displaced.iter().find_map(|(key, _)| {
            let workload = self.workloads.find(key)?;
            let (queue, class) = self.workloads.get(workload).waiting()?.at?;
            let order = self.workloads.order_key(workload);
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
