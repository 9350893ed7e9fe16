//! Status figures of queues and cohorts, and the places of pending workloads (reference 03, 3.2; 06, 6.4).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::cluster_queue::ClusterQueue;
use crate::fair_sharing::share;
use crate::intern::{FrId, LocalId, QueueId, WorkloadId};
use crate::queue::Spot;
use crate::quota::{clamp, exact};
use crate::reason::Unadmitted;
use crate::report::{
    ClusterQueueStatus, CohortStatus, FlavorUsage, InactiveCause, LocalQueueInactive, LocalQueueStatus,
    PendingPosition, ResourceUsage,
};
use crate::scheduler::{Scheduler, Tree};
use crate::spec::StopPolicy;
use crate::workload::WorkloadKey;
use crate::{Amount, Name};

impl Scheduler {
    /// The trees with their numbers up to date. Right after a change of specs that takes a copy;
    /// [`Scheduler::take_changed`] and every change of a workload bring the numbers up to date for good.
    fn numbers(&self) -> Cow<'_, Tree> {
        if !self.tree.forest.is_stale() {
            return Cow::Borrowed(&self.tree);
        }
        let mut tree = self.tree.clone();
        tree.refresh(&self.names);
        Cow::Owned(tree)
    }

    /// The status figures of a ClusterQueue; `None` if there is none.
    pub fn cluster_queue_status(&self, name: &str) -> Option<ClusterQueueStatus> {
        let queue = &self.queues[self.queue_index.get(name)?.at()];
        queue.spec.as_ref()?;
        let tree = self.numbers();
        let node = tree.forest.node(queue.node);
        let borrowed = |pair: FrId, used: i128| {
            node.slot(pair).map_or(0, |slot| (used - exact(tree.forest.quota.nominal(slot))).max(0))
        };
        let reserved: BTreeMap<FrId, i128> =
            node.slots().iter().map(|&(pair, slot)| (pair, tree.usage.get(slot))).collect();
        Some(ClusterQueueStatus {
            inactive: inactive_causes(queue, &tree),
            reservation: self.flavor_usage(queue, &reserved, borrowed),
            usage: self.flavor_usage(queue, &queue.admitted_usage, borrowed),
            pending_active: queue.pending.active(),
            pending_inadmissible: queue.pending.inadmissible(),
            reserving: queue.holders.len(),
            admitted: queue.admitted,
            weighted_share: share(&tree.forest, &self.names, &tree.lendable, &tree.usage, queue.node)
                .rounded(),
        })
    }

    /// The most that a ClusterQueue could ever use of a flavor's resource that it has quota of, with all that it could borrow.
    pub fn most(&self, queue: &str, flavor: &str, resource: &str) -> Option<Amount> {
        let queue = &self.queues[self.queue_index.get(queue)?.at()];
        let tree = self.numbers();
        let slot = tree.forest.node(queue.node).slot(self.names.find_pair(flavor, resource)?)?;
        Some(tree.forest.quota.potential(slot))
    }

    /// How many equivalence classes wait in the heap of a ClusterQueue, and how many have parked members; `None` if there is no such queue.
    pub fn pending_classes(&self, name: &str) -> Option<(usize, usize)> {
        let queue = &self.queues[self.queue_index.get(name)?.at()];
        queue.spec.as_ref()?;
        Some(queue.pending.classes())
    }

    /// Figures per flavor and resource in the order of the queue's spec.
    fn flavor_usage(
        &self,
        queue: &ClusterQueue,
        used: &BTreeMap<FrId, i128>,
        borrowed: impl Fn(FrId, i128) -> i128,
    ) -> FlavorUsage {
        let mut usage = FlavorUsage::new();
        for group in &queue.groups {
            for (&flavor, pairs) in group.flavors.iter().zip(&group.pairs) {
                let resources = group
                    .covered
                    .iter()
                    .zip(pairs)
                    .map(|(&resource, &pair)| {
                        let total = used.get(&pair).copied().unwrap_or(0);
                        ResourceUsage {
                            name: self.names.resource_name(resource).clone(),
                            total: clamp(total),
                            borrowed: clamp(borrowed(pair, total)),
                        }
                    })
                    .collect();
                usage.push((self.names.flavor_name(flavor).clone(), resources));
            }
        }
        usage
    }

    /// The status figures of a LocalQueue; `None` if there is none.
    pub fn local_queue_status(&self, namespace: &str, name: &str) -> Option<LocalQueueStatus> {
        let id = *self.local_index.get(&(Name::from(namespace), Name::from(name)))?;
        let local = &self.locals[id.at()];
        let spec = local.spec.as_ref()?;
        let queue = local.queue.map(|queue| &self.queues[queue.at()]);
        let usage = |admitted: bool| {
            let used: BTreeMap<FrId, i128> = local
                .held
                .iter()
                .map(|(&pair, held)| (pair, if admitted { held.1 } else { held.0 }))
                .collect();
            queue.map_or_else(FlavorUsage::new, |queue| self.flavor_usage(queue, &used, |_, _| 0))
        };
        let queue_active = queue
            .is_some_and(|queue| queue.is_active() && inactive_causes(queue, &self.numbers()).is_empty());
        Some(LocalQueueStatus {
            inactive: if spec.stop_policy != StopPolicy::None {
                Some(LocalQueueInactive::Stopped)
            } else if queue.is_none_or(|queue| queue.spec.is_none()) {
                Some(LocalQueueInactive::ClusterQueueDoesNotExist)
            } else if !queue_active {
                Some(LocalQueueInactive::ClusterQueueIsInactive)
            } else {
                None
            },
            reservation: usage(false),
            usage: usage(true),
            pending: local.pending.len(),
            reserving: local.reserving,
            admitted: local.admitted,
            consumed: local
                .ledger
                .consumed
                .iter()
                .map(|(&resource, &value)| (self.names.resource_name(resource).clone(), value))
                .collect(),
            consumed_at: local.ledger.at,
            fair_usage: self.fair_usage(id),
        })
    }

    /// The status figures of a Cohort, explicit or implicit; `None` if there is none.
    pub fn cohort_status(&self, name: &str) -> Option<CohortStatus> {
        let tree = self.numbers();
        let id = tree.forest.cohort(name)?;
        let node = tree.forest.node(id);
        if !node.exists && node.children().next().is_none() {
            return None;
        }
        let subtree = node
            .slots()
            .iter()
            .map(|&(pair, slot)| {
                let (flavor, resource) = self.names.parts(pair);
                let flavor = self.names.flavor_name(flavor).clone();
                let resource = self.names.resource_name(resource).clone();
                let used = clamp(tree.usage.get(slot));
                (flavor, resource, tree.forest.quota.subtree(slot), used)
            })
            .collect::<Vec<(Name, Name, Amount, Amount)>>();
        Some(CohortStatus {
            weighted_share: share(&tree.forest, &self.names, &tree.lendable, &tree.usage, id).rounded(),
            subtree,
            in_cycle: node.in_cycle,
        })
    }

    /// What all ClusterQueues below a Cohort hold, with what guaranteed quota covers: (flavor, resource, amount).
    /// Empty if there is no such Cohort.
    pub fn cohort_reservations(&self, name: &str) -> Vec<(Name, Name, Amount)> {
        let tree = self.numbers();
        let Some(top) = tree.forest.cohort(name) else { return Vec::new() };
        let slots = tree.forest.node(top).slots();
        let mut held: BTreeMap<FrId, i128> = slots.iter().map(|&(pair, _)| (pair, 0)).collect();
        // Cohorts may be declared in a cycle: each counts once.
        let (mut seen, mut open) = (BTreeSet::from([top]), vec![top]);
        while let Some(id) = open.pop() {
            let node = tree.forest.node(id);
            if node.queue.is_some() {
                for &(pair, slot) in node.slots() {
                    *held.entry(pair).or_default() += tree.usage.get(slot);
                }
            }
            open.extend(node.children().filter(|child| seen.insert(*child)));
        }
        let named = |(pair, amount)| {
            let (flavor, resource) = self.names.parts(pair);
            (
                self.names.flavor_name(flavor).clone(),
                self.names.resource_name(resource).clone(),
                clamp(amount),
            )
        };
        held.into_iter().map(named).collect()
    }

    /// Per resource, over all flavors: what a ClusterQueue may still use, and the most that it could ever use.
    /// Empty if there is no such queue.
    pub fn free_quota(&self, cluster_queue: &str) -> BTreeMap<Name, (Amount, Amount)> {
        let Some(id) = self.queue_index.get(cluster_queue) else { return BTreeMap::new() };
        let queue = &self.queues[id.at()];
        let tree = self.numbers();
        let node = tree.forest.node(queue.node);
        let mut free = BTreeMap::new();
        for group in &queue.groups {
            for pairs in &group.pairs {
                for (&resource, &pair) in group.covered.iter().zip(pairs) {
                    let Some(slot) = node.slot(pair) else { continue };
                    let sums = free
                        .entry(self.names.resource_name(resource).clone())
                        .or_insert((Amount::ZERO, Amount::ZERO));
                    sums.0 = sums.0.add(tree.forest.quota.available(&tree.usage, slot));
                    sums.1 = sums.1.add(tree.forest.quota.potential(slot));
                }
            }
        }
        free
    }

    /// The pending workloads of a ClusterQueue in its order, parked ones included.
    pub fn positions(&self, cluster_queue: &str) -> Vec<PendingPosition> {
        let Some(&id) = self.queue_index.get(cluster_queue) else { return Vec::new() };
        let mut places = BTreeMap::<LocalId, usize>::new();
        self.in_order(id)
            .into_iter()
            .enumerate()
            .map(|(at, (workload, active))| {
                let row = self.workloads.get(workload);
                let place = places.entry(row.local).or_default();
                let in_local_queue = *place;
                *place += 1;
                PendingPosition {
                    key: row.key.clone(),
                    local_queue: self.locals[row.local.at()].name.clone(),
                    cluster_queue: self.queues[id.at()].name.clone(),
                    priority: row.priority,
                    created: row.created,
                    in_cluster_queue: at,
                    in_local_queue,
                    active,
                }
            })
            .collect()
    }

    /// The members of a queue in its order, and whether they are in the heap.
    fn in_order(&self, id: QueueId) -> Vec<(WorkloadId, bool)> {
        let queue = &self.queues[id.at()];
        let sticky = queue.pending.preemptor().filter(|_| {
            queue
                .spec
                .as_ref()
                .is_some_and(|spec| spec.strategy == crate::spec::QueueingStrategy::BestEffortFIFO)
        });
        let by_usage = self.orders_by_usage(queue);
        let usages: BTreeMap<LocalId, f64> = if by_usage {
            queue.locals.iter().map(|&local| (local, self.fair_usage(local))).collect()
        } else {
            BTreeMap::new()
        };
        let mut members: Vec<_> = queue.pending.iter().collect();
        members.sort_by(|a, b| {
            let of = |id: WorkloadId| {
                let row = self.workloads.get(id);
                let usage = usages.get(&row.local).copied().unwrap_or(0.0);
                let sticky = sticky == Some((id, row.generation));
                (usage, !sticky, Reverse(row.priority))
            };
            let (left, right) = (of(a.1.id), of(b.1.id));
            left.0.total_cmp(&right.0).then((left.1, left.2, a.1).cmp(&(right.1, right.2, b.1)))
        });
        members.into_iter().map(|(_, key, spot)| (key.id, spot == Spot::Active)).collect()
    }

    /// The place of one pending workload.
    pub fn position(&self, key: &WorkloadKey) -> Option<PendingPosition> {
        let id = self.workloads.find(key)?;
        let (queue, _) = self.workloads.get(id).waiting()?.at?;
        self.positions(&self.queues[queue.at()].name).into_iter().find(|position| position.key == *key)
    }

    /// Why the workload was not admitted when it was last tried.
    pub fn last_decision(&self, key: &WorkloadKey) -> Option<&Unadmitted> {
        let workload = self.workloads.get(self.workloads.find(key)?);
        workload.decision.as_deref()
    }
}

/// Why a queue takes part in nothing: its own causes, and the cycle of Cohorts that it is below.
fn inactive_causes(queue: &ClusterQueue, tree: &Tree) -> Vec<InactiveCause> {
    let mut causes = queue.inactive.clone();
    if tree.forest.node(queue.node).in_cycle {
        causes.push(InactiveCause::CohortCycle(tree.forest.cycle_of(queue.node)));
    }
    causes
}
