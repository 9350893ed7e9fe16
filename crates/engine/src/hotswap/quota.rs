//! What Hotswap must know of quotas: whether a queue is within its own with a Workload in it, and whether it could ever be.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use sluice_api::v1beta2::ResourceQuota;
use sluice_core::{Amount, Name, Snapshot as UsageSnapshot, WorkloadKey};
use sluice_quantity::{Quantity, amount_of};

use super::displaced::for_nodes;
use super::snapshot::{SeenWorkload, exact, holds};
use crate::engine::Engine;
use crate::ingest::requests::amount_in;
use crate::world::WorkloadEntry;

/// What a Workload takes: flavor, resource, amount.
type Claim = [(Name, Name, Amount)];

/// A ClusterQueue, a flavor and a resource.
type Quota<'a> = (&'a str, &'a str, &'a str);

/// Amounts by ClusterQueue, flavor and resource.
pub(crate) type QuotaInUse<'a> = BTreeMap<Quota<'a>, i128>;

/// What is used of quotas once some Workloads have given back what they hold.
pub(crate) struct QuotaToBe<'a> {
    usage: RefCell<UsageSnapshot>,
    leaving: BTreeSet<&'a WorkloadKey>,
}

/// What a Workload holds.
fn held_by(entry: &WorkloadEntry) -> impl Iterator<Item = (Quota<'_>, i128)> {
    entry.status().admission.iter().flat_map(|admission| {
        admission.pod_set_assignments.iter().flat_map(|set| {
            set.flavors.iter().map(|(resource, flavor)| {
                let quota = (admission.cluster_queue.as_str(), flavor.as_str(), resource.as_str());
                (quota, exact(amount_in(&set.resource_usage, resource)))
            })
        })
    })
}

/// All that a claim takes of a pair.
fn taken(claim: &Claim, flavor: &Name, resource: &Name) -> i128 {
    claim.iter().filter(|c| (&c.0, &c.1) == (flavor, resource)).map(|c| exact(c.2)).sum()
}

/// What all Workloads hold.
pub(super) fn in_use<'a>(workloads: &[SeenWorkload<'a>]) -> QuotaInUse<'a> {
    let mut all = QuotaInUse::new();
    for workload in workloads.iter().filter(|one| one.holds) {
        for (quota, amount) in held_by(workload.entry) {
            *all.entry(quota).or_default() += amount;
        }
    }
    all
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
        held: &QuotaInUse<'_>,
    ) -> bool {
        let own = self.world.workloads.get(me).filter(|entry| holds(entry));
        claim.iter().all(|(flavor, resource, _)| {
            let quota = (&**queue, &**flavor, &**resource);
            let all = held.get(&quota).copied().unwrap_or(0);
            let own = own.into_iter().flat_map(held_by).filter(|(held, _)| *held == quota).map(|(_, n)| n);
            all - own.sum::<i128>() + taken(claim, flavor, resource) <= self.nominal(queue, flavor, resource)
        })
    }

    /// Whether a queue could ever hold a claim, with all that it could borrow.
    pub(super) fn could_ever_hold(&self, queue: &str, claim: &Claim) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let most = self.scheduler.potential_available(queue, flavor, resource);
            self.quota(queue, flavor, resource).is_some()
                && most.is_some_and(|most| taken(claim, flavor, resource) <= exact(most))
        })
    }

    /// What is used of quotas once those have given it back that leave for good. (Those that leave failing nodes come back.)
    pub(super) fn quota_to_be<'a>(&self, workloads: &[SeenWorkload<'a>]) -> QuotaToBe<'a> {
        let leaving = workloads.iter().filter(|one| one.leaves && !for_nodes(one.entry));
        let leaving: BTreeSet<_> = leaving.map(|one| one.key).collect();
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
        way: &[&WorkloadKey],
        to_be: &QuotaToBe<'_>,
    ) -> bool {
        to_be.usage.borrow_mut().trial(|usage| {
            let all: BTreeSet<_> = way.iter().copied().chain([me]).collect();
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
