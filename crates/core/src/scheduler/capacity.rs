//! Changes of the limits of physical capacity and of displaced workloads, and what is retried after them.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::Scheduler;
use crate::capacity::{Displaced, DisplacedNeeds};
use crate::intern::{ClassId, FlavorId, FrId, QueueId, WorkloadId};
use crate::queue::{OrderKey, Placement};
use crate::quota::exact;
use crate::workload::WorkloadKey;
use crate::workloads::QuotaReservation;
use crate::{Amount, Name};

impl Scheduler {
    /// Limits what all workloads together may hold of a flavor: `(resource, most)`, cpu in milli-CPU, everything else in whole units. Resources that
    /// are not listed are not limited; an empty list removes all limits of the flavor. Returns whether anything changed.
    pub fn set_capacity(&mut self, flavor: &Name, limits: &[(Name, Amount)]) -> bool {
        self.sweep_if_due();
        let flavor = self.world.names.flavor(flavor);
        let mut wanted: BTreeMap<FrId, i128> = BTreeMap::new();
        for (resource, limit) in limits {
            let resource = self.world.names.resource(resource);
            wanted.insert(self.world.names.pair(flavor, resource), exact(*limit));
        }
        let mut changed = false;
        let names = &self.world.names;
        let used = &mut self.books.capacity;
        self.world.capacity.limits.retain(|pair, _| {
            let keep = names.flavor_and_resource(*pair).0 != flavor || wanted.contains_key(pair);
            if !keep {
                used.remove(pair);
            }
            changed |= !keep;
            keep
        });
        self.sweeps.replaced(changed);
        for (pair, limit) in wanted {
            let before = self.world.capacity.limits.insert(pair, limit);
            if before.is_none() {
                self.books.capacity.insert(pair, self.usage_by_all(pair));
            }
            changed |= before != Some(limit);
        }
        if changed {
            self.try_again_with(flavor);
        }
        changed
    }

    /// Sets the displaced workloads, in order of precedence, each with its needs. It matters only while they leave their nodes or wait for quota.
    /// Returns whether anything changed.
    pub fn set_displaced(&mut self, displaced: &[Displaced]) -> bool {
        self.sweep_if_due();
        let mut list = Vec::with_capacity(displaced.len());
        for Displaced { key, needs } in displaced {
            let mut claim = DisplacedNeeds::new();
            for (flavor, resource, amount) in needs {
                let (flavor, resource) =
                    (self.world.names.flavor(flavor), self.world.names.resource(resource));
                let pair = self.world.names.pair(flavor, resource);
                match claim.iter_mut().find(|known| known.0 == pair) {
                    Some(known) => known.1 += exact(*amount),
                    None => claim.push((pair, exact(*amount))),
                }
            }
            list.push((key.clone(), claim));
        }
        if self.world.capacity.displaced() == list {
            return false;
        }
        self.sweeps.removed();
        let before = self.world.capacity.replace_displaced(list);
        let concerned: BTreeSet<FlavorId> = before
            .iter()
            .chain(self.world.capacity.displaced())
            .flat_map(|(_, claim)| claim)
            .map(|(pair, _)| self.world.names.flavor_and_resource(*pair).0)
            .collect();
        let names = |list: &[(WorkloadKey, DisplacedNeeds)]| -> BTreeSet<WorkloadKey> {
            list.iter().map(|(key, _)| key.clone()).collect()
        };
        let (before, after) = (names(&before), names(self.world.capacity.displaced()));
        // Each of them is in a class of its own.
        for key in before.symmetric_difference(&after) {
            if let Some(id) = self.world.workloads.find(key) {
                self.requeue_one(id);
            }
        }
        for flavor in concerned {
            self.try_again_with(flavor);
        }
        true
    }

    /// The usage of a pair by all workloads.
    fn usage_by_all(&self, pair: FrId) -> i128 {
        let usage = self.world.workloads.iter().filter_map(|(_, workload)| workload.reservation());
        usage.flat_map(QuotaReservation::charged).filter(|usage| usage.0 == pair).map(|usage| usage.2).sum()
    }

    /// Lets every queue that uses a flavor try its inadmissible workloads again, once the trees are up to date.
    pub(super) fn try_again_with(&mut self, flavor: FlavorId) {
        if self.world.referring_queues.of_flavor(flavor).next().is_some() {
            self.agenda.flush_flavors.insert(flavor);
        }
    }

    /// Marks the queues of flavors of which something was freed. From then on the trees' capacity is up to date.
    pub(super) fn expand_flavors_to_flush(&mut self) {
        for flavor in std::mem::take(&mut self.agenda.flush_flavors) {
            for id in self.world.referring_queues.of_flavor(flavor) {
                self.stats.freed_queues += 1;
                self.world.forest.capacity_changed(self.world.queues[id.at()].node);
                self.agenda.flush_later.insert(id);
            }
        }
    }

    /// A workload gave back what it held: queues of other trees may have waited for its physical capacity.
    pub(crate) fn capacity_freed(&mut self, before: &QuotaReservation) {
        self.nodes_freed(before);
        let mut flavors: SmallVec<[FlavorId; 2]> = SmallVec::new();
        for (pair, _, _) in before.charged().filter(|usage| self.world.capacity.limits(usage.0)) {
            let flavor = self.world.names.flavor_and_resource(pair).0;
            if !flavors.contains(&flavor) {
                flavors.push(flavor);
            }
        }
        for flavor in flavors {
            self.try_again_with(flavor);
        }
    }

    /// By queue: the first displaced workload that waits in its heap.
    pub(crate) fn first_displaced(&self) -> BTreeMap<QueueId, (ClassId, OrderKey)> {
        let mut first = BTreeMap::new();
        for (key, _) in self.world.capacity.displaced() {
            let Some(workload) = self.world.workloads.find(key) else { continue };
            let at = self.world.workloads.get(workload).waiting().and_then(|waiting| waiting.at);
            let Some((queue, class)) = at.filter(|(queue, _)| !first.contains_key(queue)) else { continue };
            let order = self.world.workloads.order_key(workload);
            let placement = self.world.queues[queue.at()].pending.placement(class, &order);
            if placement == Some(Placement::Active) {
                first.insert(queue, (class, order));
            }
        }
        first
    }

    /// Whether a workload is displaced.
    pub(crate) fn is_displaced(&self, id: WorkloadId) -> bool {
        self.world.capacity.is_displaced(&self.world.workloads.get(id).key)
    }

    /// Compares the usage of each limited pair with a new sum.
    pub(crate) fn audit_capacity(&self, found: &mut Vec<String>) {
        if !self.world.capacity.limits.keys().eq(self.books.capacity.keys()) {
            found.push("other pairs are counted than are limited".to_owned());
        }
        for (pair, counted) in &self.books.capacity {
            let used = self.usage_by_all(*pair);
            if used != *counted {
                found.push(format!("{counted} is counted of the capacity of {pair:?}, should be {used}"));
            }
        }
    }
}
