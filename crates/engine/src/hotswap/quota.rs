//! What Hotswap asks about quota: whether a queue is within its own quota including a Workload, and whether it will have quota for a Workload again.

use std::cell::RefCell;
use std::collections::BTreeSet;

use sluice_core::{Claim, Snapshot as UsageSnapshot, WorkloadKey};

use super::displaced::for_nodes;
use super::snapshot::SeenWorkload;
use crate::engine::Engine;

/// The usage of quotas, for trying changes.
pub(crate) type QuotaInUse = RefCell<UsageSnapshot>;

/// The usage of quotas after some Workloads have given theirs back.
pub(crate) struct QuotaToBe<'a> {
    usage: QuotaInUse,
    leaving: BTreeSet<&'a WorkloadKey>,
}

impl Engine {
    /// The usage of all Workloads.
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

    /// The usage of quotas after Workloads that leave for good gave theirs back. (Those that leave failing nodes come back.)
    pub(super) fn quota_to_be<'a>(&self, workloads: &[SeenWorkload<'a>]) -> QuotaToBe<'a> {
        let leaving = workloads.iter().filter(|one| one.leaves && !for_nodes(one.entry));
        let leaving: BTreeSet<_> = leaving.map(|one| one.key).collect();
        let mut usage = self.scheduler.snapshot();
        for key in &leaving {
            usage.release(&self.scheduler, key);
        }
        QuotaToBe { usage: RefCell::new(usage), leaving }
    }

    /// Whether a queue will have quota for a claim once the Workload of the claim and the victims gave theirs back: its quota may be less than its
    /// usage. The Workload is not one of the victims, each of which is listed once.
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
