//! What Hotswap must know of quotas: whether a queue is within its own with a Workload in it, and whether it could ever be.

use std::collections::BTreeSet;

use sluice_api::v1beta2::ResourceQuota;
use sluice_core::{Amount, Name, WorkloadKey};
use sluice_quantity::{Quantity, amount_of};

use super::displaced::{for_nodes, leaves};
use super::scene::{exact, holds};
use crate::engine::Engine;
use crate::ingest::requests::amount_in;

/// What a Workload takes: flavor, resource, amount.
type Claim = [(Name, Name, Amount)];

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
    pub(super) fn within_nominal(&self, queue: &Name, me: &WorkloadKey, claim: &Claim) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let others = self.world.workloads.iter().filter(|(key, entry)| *key != me && holds(entry));
            let used: i128 = others
                .filter_map(|(_, entry)| entry.status().admission.as_ref())
                .filter(|admission| *admission.cluster_queue == **queue)
                .flat_map(|admission| &admission.pod_set_assignments)
                .filter(|set| set.flavors.get(&**resource).is_some_and(|f| **f == **flavor))
                .map(|set| exact(amount_in(&set.resource_usage, resource)))
                .sum();
            used + taken(claim, flavor, resource) <= self.nominal(queue, flavor, resource)
        })
    }

    /// Whether a queue could ever hold a claim, with all that it could borrow.
    pub(super) fn could_ever_hold(&self, queue: &str, claim: &Claim) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let most = self.scheduler.most(queue, flavor, resource);
            self.quota(queue, flavor, resource).is_some()
                && most.is_some_and(|most| taken(claim, flavor, resource) <= exact(most))
        })
    }

    /// Whether a queue will have quota for a claim once this Workload, whose claim it is, and those who make way gave back what they
    /// hold: its quota may be less than what is used of it.
    pub(super) fn will_hold(
        &self,
        queue: &str,
        me: &WorkloadKey,
        claim: &Claim,
        way: &[WorkloadKey],
    ) -> bool {
        let mut quota = self.scheduler.snapshot();
        // Who leaves failing nodes comes back.
        let leaving = self.world.workloads.iter().filter(|(_, entry)| leaves(entry) && !for_nodes(entry));
        for key in leaving.map(|(key, _)| key).chain(way).chain([me]).collect::<BTreeSet<_>>() {
            quota.release(&self.scheduler, key);
        }
        claim.iter().all(|(flavor, resource, _)| {
            let free = quota.available(&self.scheduler, queue, flavor, resource);
            free.is_some_and(|free| taken(claim, flavor, resource) <= exact(free))
        })
    }
}
