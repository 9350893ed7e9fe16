//! What Hotswap must know of quotas: whether a queue is within its own with a Workload in it, and whether it could ever be.

use std::cell::RefCell;
use std::collections::BTreeSet;

use sluice_core::{Amount, Name, Snapshot as UsageSnapshot, WorkloadKey};

use super::displaced::for_nodes;
use super::snapshot::{SeenWorkload, exact};
use crate::engine::Engine;

/// What a Workload takes: flavor, resource, amount.
type Claim = [(Name, Name, Amount)];

/// What is used of quotas, to try what would be.
pub(crate) type QuotaInUse = RefCell<UsageSnapshot>;

/// What is used of quotas once some Workloads have given back what they hold.
pub(crate) struct QuotaToBe<'a> {
    usage: QuotaInUse,
    leaving: BTreeSet<&'a WorkloadKey>,
}

/// All that a claim takes of a pair.
fn taken(claim: &Claim, flavor: &Name, resource: &Name) -> i128 {
    claim.iter().filter(|c| (&c.0, &c.1) == (flavor, resource)).map(|c| exact(c.2)).sum()
}

impl Engine {
    /// What all Workloads hold.
    pub(super) fn quota_in_use(&self) -> QuotaInUse {
        RefCell::new(self.scheduler.snapshot())
    }

    /// Whether a queue is within its nominal quota of what a Workload needs, with that Workload in it.
    pub(super) fn within_nominal(
        &self,
        queue: &str,
        me: &WorkloadKey,
        claim: &Claim,
        held: &QuotaInUse,
    ) -> bool {
        held.borrow_mut().trial(|usage| {
            usage.release(&self.scheduler, me);
            claim.iter().all(|(flavor, resource, _)| {
                let used = usage.used(&self.scheduler, queue, flavor, resource);
                let nominal = self.scheduler.nominal(queue, flavor, resource);
                used.zip(nominal).is_some_and(|(used, nominal)| {
                    exact(used) + taken(claim, flavor, resource) <= exact(nominal)
                })
            })
        })
    }

    /// Whether a queue could ever hold a claim, with all that it could borrow.
    pub(super) fn could_ever_hold(&self, queue: &str, claim: &Claim) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let most = self.scheduler.potential_available(queue, flavor, resource);
            most.is_some_and(|most| taken(claim, flavor, resource) <= exact(most))
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
