//! Status numbers of queues and cohorts (docs/reference/03-conditions-events.md 3.2).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::Scheduler;
use crate::cluster_queue::ClusterQueue;
use crate::fair_sharing::{Lendable, share};
use crate::forest::Forest;
use crate::intern::{FrId, NodeId, SlotId};
use crate::quota::{clamp, exact};
use crate::reason::Unadmitted;
use crate::report::{
    Changed, ClusterQueueStatus, CohortStatus, FlavorUsage, InactiveCause, LocalQueueInactive,
    LocalQueueStatus, PendingClasses, ResourceUsage,
};
use crate::spec::StopPolicy;
use crate::usage::Usage;
use crate::workload::WorkloadKey;
use crate::world::refresh;
use crate::{Amount, Name};

/// The trees with their numbers.
pub(super) struct Numbers<'a> {
    pub(super) forest: Cow<'a, Forest>,
    pub(super) usage: Cow<'a, Usage>,
    lendable: Cow<'a, Lendable>,
}

impl Scheduler {
    /// The objects with status figures that changed since the last call.
    pub fn take_changed(&mut self) -> Changed {
        self.refresh();
        let mut changed = Changed::default();
        for at in self.changes.queues.take() {
            if self.world.queues[at].spec.is_some() {
                changed.cluster_queues.push(self.world.queues[at].name.clone());
            }
        }
        for at in self.changes.locals.take() {
            let local = &self.world.locals[at];
            if local.spec.is_some() {
                changed.local_queues.push((local.namespace.clone(), local.name.clone()));
            }
        }
        for at in self.changes.nodes.take() {
            let node = self.world.forest.node(NodeId::new(at));
            if node.queue.is_none() {
                // The node of a removed ClusterQueue has no name.
                changed.cohorts.extend(Some(node.name.clone()).filter(|name| !name.is_empty()));
            } else if let Some(queue) =
                node.queue.filter(|queue| self.world.queues[queue.at()].spec.is_some())
            {
                changed.cluster_queues.push(self.world.queues[queue.at()].name.clone());
            }
        }
        changed.cluster_queues.sort();
        changed.cluster_queues.dedup();
        changed.local_queues.sort();
        changed.cohorts.sort();
        changed
    }

    /// The trees with their numbers up to date. Right after a change of specs that takes a copy;
    /// [`Scheduler::take_changed`] and every change of a workload bring the numbers up to date for good.
    pub(super) fn numbers(&self) -> Numbers<'_> {
        let (world, usage) = (&self.world, &self.books.usage);
        if !world.forest.is_stale() {
            let (forest, usage) = (Cow::Borrowed(&world.forest), Cow::Borrowed(usage));
            return Numbers { forest, usage, lendable: Cow::Borrowed(&world.lendable) };
        }
        let (mut forest, mut usage) = (world.forest.clone(), usage.clone());
        let mut lendable = world.lendable.clone();
        refresh(&mut forest, &mut lendable, &mut usage, &world.names);
        Numbers { forest: Cow::Owned(forest), usage: Cow::Owned(usage), lendable: Cow::Owned(lendable) }
    }

    /// The status figures of a ClusterQueue; `None` if there is none.
    pub fn cluster_queue_status(&self, name: &str) -> Option<ClusterQueueStatus> {
        let queue = &self.world.queues[self.world.queue_index.get(name)?.at()];
        queue.spec.as_ref()?;
        let tree = self.numbers();
        let node = tree.forest.node(queue.node);
        let borrowed = |pair: FrId, used: i128| {
            node.slot(pair).map_or(0, |slot| (used - exact(tree.forest.quota.nominal(slot))).max(0))
        };
        let reserved: BTreeMap<FrId, i128> =
            node.slots().iter().map(|&(pair, slot)| (pair, tree.usage.get(slot))).collect();
        let share = share(&tree.forest, &self.world.names, &tree.lendable, &tree.usage, queue.node);
        Some(ClusterQueueStatus {
            inactive: inactive_causes(queue, &tree),
            reservation: self.flavor_usage(queue, &reserved, borrowed),
            usage: self.flavor_usage(queue, &queue.admitted_usage, borrowed),
            pending_active: queue.pending.active(),
            pending_inadmissible: queue.pending.inadmissible(),
            reserving: queue.reservations.len(),
            admitted: queue.admitted,
            weighted_share: share.rounded(),
            exact_share: share.exact(),
        })
    }

    /// How many workloads of a ClusterQueue are admitted; 0 if there is no such queue.
    pub fn admitted_of(&self, cluster_queue: &str) -> usize {
        let queue = self.world.queue_index.get(cluster_queue).map(|id| &self.world.queues[id.at()]);
        queue.filter(|queue| queue.spec.is_some()).map_or(0, |queue| queue.admitted)
    }

    /// The workloads that hold quota of a ClusterQueue, whether it exists or not.
    pub fn holders(&self, cluster_queue: &str) -> impl Iterator<Item = &WorkloadKey> {
        let queue = self.world.queue_index.get(cluster_queue).map(|id| &self.world.queues[id.at()]);
        let holders = queue.map(|queue| &queue.reservations).into_iter();
        let holders = holders.flat_map(|all| all.evicted.iter().chain(&all.running));
        holders.map(|candidate| &self.world.workloads.get(candidate.id).key)
    }

    /// Whether a ClusterQueue exists and is not inactive for any cause.
    pub fn is_active(&self, cluster_queue: &str) -> bool {
        let queue = self.world.queue_index.get(cluster_queue).map(|id| &self.world.queues[id.at()]);
        queue.is_some_and(|queue| {
            queue.spec.is_some()
                && queue.inactive.is_empty()
                && !self.numbers().forest.node(queue.node).in_cycle
        })
    }

    /// The most that a ClusterQueue could ever use of a flavor's resource, with all that it could borrow; `None` if it has no quota of it.
    pub fn potential_available(&self, queue: &str, flavor: &str, resource: &str) -> Option<Amount> {
        let tree = self.numbers();
        let slot = self.slot_with_quota(&tree, queue, flavor, resource)?;
        Some(tree.forest.quota.potential_available(slot))
    }

    /// The nominal quota that a ClusterQueue has of a flavor's resource; `None` if it has no quota of it.
    pub fn nominal(&self, queue: &str, flavor: &str, resource: &str) -> Option<Amount> {
        let tree = self.numbers();
        let slot = self.slot_with_quota(&tree, queue, flavor, resource)?;
        Some(tree.forest.quota.nominal(slot))
    }

    fn slot_with_quota(
        &self,
        tree: &Numbers<'_>,
        queue: &str,
        flavor: &str,
        resource: &str,
    ) -> Option<SlotId> {
        let queue = &self.world.queues[self.world.queue_index.get(queue)?.at()];
        let node = tree.forest.node(queue.node);
        let pair = self.world.names.find_pair(flavor, resource)?;
        node.has_quota(pair).then(|| node.slot(pair))?
    }

    /// How many equivalence classes wait in a ClusterQueue; `None` if there is no such queue.
    pub fn pending_classes(&self, name: &str) -> Option<PendingClasses> {
        let queue = &self.world.queues[self.world.queue_index.get(name)?.at()];
        queue.spec.as_ref()?;
        Some(queue.pending.scheduling_hashes())
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
                            name: self.world.names.resource_name(resource).clone(),
                            total: clamp(total),
                            borrowed: clamp(borrowed(pair, total)),
                        }
                    })
                    .collect();
                usage.push((self.world.names.flavor_name(flavor).clone(), resources));
            }
        }
        usage
    }

    /// The status figures of a LocalQueue; `None` if there is none.
    pub fn local_queue_status(&self, namespace: &str, name: &str) -> Option<LocalQueueStatus> {
        let id = *self.world.local_index.get(&(Name::from(namespace), Name::from(name)))?;
        let local = &self.world.locals[id.at()];
        let spec = local.spec.as_ref()?;
        // Of a ClusterQueue that was removed by force nothing is held, whatever Workloads still say.
        let queue =
            local.queue.map(|queue| &self.world.queues[queue.at()]).filter(|queue| queue.spec.is_some());
        let usage = |admitted: bool| {
            let used: BTreeMap<FrId, i128> = local
                .usage
                .iter()
                .map(|(&pair, usage)| (pair, if admitted { usage.1 } else { usage.0 }))
                .collect();
            queue.map_or_else(FlavorUsage::new, |queue| self.flavor_usage(queue, &used, |_, _| 0))
        };
        let queue_active = queue
            .is_some_and(|queue| queue.is_active() && inactive_causes(queue, &self.numbers()).is_empty());
        Some(LocalQueueStatus {
            inactive: if spec.stop_policy != StopPolicy::None {
                Some(LocalQueueInactive::Stopped)
            } else if queue.is_none() {
                Some(LocalQueueInactive::ClusterQueueDoesNotExist)
            } else if !queue_active {
                Some(LocalQueueInactive::ClusterQueueIsInactive)
            } else {
                None
            },
            reservation: usage(false),
            usage: usage(true),
            pending: if spec.stop_policy == StopPolicy::None { local.pending.len() } else { 0 },
            reserving: if queue.is_some() { local.reserving } else { 0 },
            admitted: if queue.is_some() { local.admitted } else { 0 },
            consumed: self.consumed(id),
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
                let (flavor, resource) = self.world.names.flavor_and_resource(pair);
                let flavor = self.world.names.flavor_name(flavor).clone();
                let resource = self.world.names.resource_name(resource).clone();
                let used = clamp(tree.usage.get(slot));
                (flavor, resource, tree.forest.quota.subtree(slot), used)
            })
            .collect::<Vec<(Name, Name, Amount, Amount)>>();
        let share = share(&tree.forest, &self.world.names, &tree.lendable, &tree.usage, id);
        Some(CohortStatus {
            weighted_share: share.rounded(),
            exact_share: share.exact(),
            subtree,
            in_cycle: node.in_cycle,
        })
    }

    /// Whether there is a Cohort of this name, explicit or implicit.
    pub fn has_cohort(&self, name: &str) -> bool {
        let tree = self.numbers();
        tree.forest.cohort(name).is_some_and(|id| {
            let node = tree.forest.node(id);
            node.exists || node.children().next().is_some()
        })
    }

    /// The usage of all ClusterQueues below a Cohort, including what guaranteed quota covers: (flavor, resource, amount). Empty if there is no such
    /// Cohort. And how many nodes of the tree were added up.
    pub fn cohort_reservations(&self, name: &str) -> (Vec<(Name, Name, Amount)>, usize) {
        let tree = self.numbers();
        let Some(top) = tree.forest.cohort(name) else { return (Vec::new(), 0) };
        // By the dense numbers of the pairs: below the top of a large tree are all queues that there are.
        let mut usage: Vec<Option<i128>> = Vec::new();
        let mut add = |pair: FrId, amount: i128| {
            if usage.len() <= pair.at() {
                usage.resize(pair.at() + 1, None);
            }
            *usage[pair.at()].get_or_insert(0) += amount;
        };
        for &(pair, _) in tree.forest.node(top).slots() {
            add(pair, 0);
        }
        // Cohorts may be declared in a cycle: each counts once.
        let (mut seen, mut open) = (BTreeSet::from([top]), vec![top]);
        while let Some(id) = open.pop() {
            let node = tree.forest.node(id);
            if node.queue.is_some() {
                for &(pair, slot) in node.slots() {
                    add(pair, tree.usage.get(slot));
                }
            }
            open.extend(node.children().filter(|child| seen.insert(*child)));
        }
        let named = |(at, amount)| {
            let (flavor, resource) = self.world.names.flavor_and_resource(FrId::new(at));
            (
                self.world.names.flavor_name(flavor).clone(),
                self.world.names.resource_name(resource).clone(),
                clamp(amount),
            )
        };
        let usage = usage.into_iter().enumerate().filter_map(|(at, amount)| Some((at, amount?)));
        (usage.map(named).collect(), seen.len())
    }

    /// Per resource, over all flavors: what a ClusterQueue may still use, and the most that it could ever use. Empty if there is no such queue.
    pub fn free_quota(&self, cluster_queue: &str) -> BTreeMap<Name, (Amount, Amount)> {
        let Some(id) = self.world.queue_index.get(cluster_queue) else { return BTreeMap::new() };
        let queue = &self.world.queues[id.at()];
        let tree = self.numbers();
        let node = tree.forest.node(queue.node);
        let mut free = BTreeMap::new();
        for group in &queue.groups {
            for pairs in &group.pairs {
                for (&resource, &pair) in group.covered.iter().zip(pairs) {
                    let Some(slot) = node.slot(pair) else { continue };
                    let sums = free
                        .entry(self.world.names.resource_name(resource).clone())
                        .or_insert((Amount::ZERO, Amount::ZERO));
                    sums.0 = sums.0.add(tree.forest.quota.available(&tree.usage, slot));
                    sums.1 = sums.1.add(tree.forest.quota.potential_available(slot));
                }
            }
        }
        free
    }

    /// Why the workload was not admitted when it was last tried.
    pub fn last_decision(&self, key: &WorkloadKey) -> Option<&Unadmitted> {
        let workload = self.world.workloads.get(self.world.workloads.find(key)?);
        workload.decision.as_deref()
    }
}

/// Why a queue takes part in nothing: its own causes, and the cycle of Cohorts that it is below.
fn inactive_causes(queue: &ClusterQueue, tree: &Numbers<'_>) -> Vec<InactiveCause> {
    let mut causes = queue.inactive.clone();
    if tree.forest.node(queue.node).in_cycle {
        causes.push(InactiveCause::CohortCycle(tree.forest.cycle_of(queue.node)));
    }
    causes
}
