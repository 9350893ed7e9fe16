//! What Hotswap asks about quota: whether a queue is within its own quota including a Workload, and whether it will have quota for a Workload again.

use std::cell::RefCell;
use std::collections::BTreeSet;

use sluice_core::{Claim, Snapshot as UsageSnapshot, WorkloadKey};

use super::displaced::for_nodes;
use super::snapshot::SeenWorkload;
use crate::engine::Engine;

/// What is used of quotas, to try what would be.
pub(crate) type QuotaInUse = RefCell<UsageSnapshot>;

/// What is used of quotas once some Workloads have given back what they hold.
pub(crate) struct QuotaToBe<'a> {
    usage: QuotaInUse,
    leaving: BTreeSet<&'a WorkloadKey>,
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
            usage.is_within_nominal(&self.scheduler, queue, claim)
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
    /// hold: its quota may be less than what is used of it. It is none of those that make room, each of which comes once.
    pub(super) fn will_hold<'k>(
        &self,
        queue: &str,
        me: &'k WorkloadKey,
        claim: &Claim,
        way: impl Iterator<Item = &'k WorkloadKey>,
        to_be: &QuotaToBe<'_>,
    ) -> bool {
        to_be.usage.borrow_mut().trial(|usage| {
            for key in way.chain([me]).filter(|key| !to_be.leaving.contains(key)) {
                usage.release(&self.scheduler, key);
            }
            usage.has_quota_for(&self.scheduler, queue, claim)
        })
    }
}
