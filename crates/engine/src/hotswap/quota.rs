//! What Hotswap must know of quotas: whether a queue is within its own with a Workload in it, and whether it could ever be.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use sluice_api::v1beta2::ResourceQuota;
use sluice_core::{Amount, Name, Snapshot as UsageSnapshot, WorkloadKey};
use sluice_quantity::{Quantity, amount_of};

use super::displaced::{for_nodes, leaves};
use super::snapshot::{exact, holds};
use crate::engine::Engine;
use crate::ingest::requests::amount_in;
use crate::world::WorkloadEntry;

/// What a Workload takes: flavor, resource, amount.
type Claim = [(Name, Name, Amount)];

/// Amounts by ClusterQueue, flavor and resource.
pub(crate) type QuotaInUse = BTreeMap<(Name, Name, Name), i128>;

/// What is used of quotas once some Workloads have given back what they hold.
pub(crate) struct QuotaToBe<'a> {
    usage: RefCell<UsageSnapshot>,
    leaving: BTreeSet<&'a WorkloadKey>,
}

/// What a Workload holds.
fn held_by(entry: &WorkloadEntry) -> impl Iterator<Item = ((Name, Name, Name), i128)> {
    entry.status().admission.iter().flat_map(|admission| {
        admission.pod_set_assignments.iter().flat_map(|set| {
            set.flavors.iter().map(|(resource, flavor)| {
                let names = (admission.cluster_queue.as_str(), flavor.as_str(), resource.as_str());
                let pair = (Name::from(names.0), Name::from(names.1), Name::from(names.2));
                (pair, exact(amount_in(&set.resource_usage, resource)))
            })
        })
    })
}

/// All that a claim takes of a pair.
fn taken(claim: &Claim, flavor: &Name, resource: &Name) -> i128 {
    claim.iter().filter(|c| (&c.0, &c.1) == (flavor, resource)).map(|c| exact(c.2)).sum()
}

impl Engine {
    /// The quota of a pair in a queue.
    fn quota(&self, queue: &str, flavor: &str, resource: &str) -> Option<&ResourceQuota> {
        let groups = &self.world.cluster_queues.get(queue)?.spec.resource_groups;
        let flavors = groups.iter().flat_map(|group| &group.flavors).filter(|f| f.name == flavor);
        flavors.flat_map(|f| &f.resources).find(|r| r.name == resource)
    }

    fn nominal(&self, queue: &str, flavor: &str, resource: &str) -> i128 {
        let quota = self.quota(queue, flavor, resource);
        let nominal = quota.and_then(|quota| Quantity::parse(&quota.nominal_quota.0).ok());
        nominal.map_or(0, |nominal| exact(amount_of(resource, &nominal)))
    }

    /// Whether a queue is within its nominal quota of what a Workload needs, with that Workload in it.
    pub(super) fn within_nominal(
        &self,
        queue: &Name,
        me: &WorkloadKey,
        claim: &Claim,
        held: &QuotaInUse,
    ) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let pair = (Name::clone(queue), Name::clone(flavor), Name::clone(resource));
            let all = held.get(&pair).copied().unwrap_or(0);
            let own = self.world.workloads.get(me).filter(|entry| holds(entry));
            let own = own.into_iter().flat_map(held_by).filter(|(held, _)| *held == pair).map(|(_, n)| n);
            all - own.sum::<i128>() + taken(claim, flavor, resource) <= self.nominal(queue, flavor, resource)
        })
    }

    /// What all Workloads hold, by ClusterQueue, flavor and resource.
    pub(super) fn quota_in_use(&self) -> QuotaInUse {
        let mut all = QuotaInUse::new();
        for entry in self.world.workloads.values().filter(|entry| holds(entry)) {
            for (pair, amount) in held_by(entry) {
                *all.entry(pair).or_default() += amount;
            }
        }
        all
    }

    /// Whether a queue could ever hold a claim, with all that it could borrow.
    pub(super) fn could_ever_hold(&self, queue: &str, claim: &Claim) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let most = self.scheduler.potential_available(queue, flavor, resource);
            self.quota(queue, flavor, resource).is_some()
                && most.is_some_and(|most| taken(claim, flavor, resource) <= exact(most))
        })
    }

    /// The Workloads that give back what they hold for good. (Those that leave failing nodes come back.)
    fn leaving_for_good(&self) -> Vec<&WorkloadKey> {
        let all = self.world.workloads.iter();
        all.filter(|(_, entry)| leaves(entry) && !for_nodes(entry)).map(|(key, _)| key).collect()
    }

    /// What is used of quotas once those have given it back that leave for good.
    pub(super) fn quota_to_be(&self) -> QuotaToBe<'_> {
        let leaving: BTreeSet<_> = self.leaving_for_good().into_iter().collect();
        let mut usage = self.scheduler.snapshot();
        for key in &leaving {
            usage.release(&self.scheduler, key);
        }
        QuotaToBe { usage: RefCell::new(usage), leaving }
    }

    /// Whether a queue will have quota for a claim once this Workload, whose claim it is, and those that make room gave back what they
    /// hold: its quota may be less than what is used of it.
    pub(super) fn will_hold(
        &self,
        queue: &str,
        me: &WorkloadKey,
        claim: &Claim,
        way: &[WorkloadKey],
        to_be: &QuotaToBe<'_>,
    ) -> bool {
        to_be.usage.borrow_mut().trial(|usage| {
            let all: BTreeSet<_> = way.iter().chain([me]).collect();
            for key in all.difference(&to_be.leaving) {
                usage.release(&self.scheduler, key);
            }
            claim.iter().all(|(flavor, resource, _)| {
                let free = usage.available(&self.scheduler, queue, flavor, resource);
                free.is_some_and(|free| taken(claim, flavor, resource) <= exact(free))
            })
        })
    }
}
