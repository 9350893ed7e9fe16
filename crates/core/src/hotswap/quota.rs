//! What a search asks of quotas: whether a queue is within its own quota including a workload, and whether it will have quota for a workload again.

use crate::scheduler::Scheduler;
use crate::scheduler::claims::Claim;
use crate::scheduler::snapshot::Snapshot;
use crate::workload::WorkloadKey;

/// The usage of quotas, for trying changes; it is copied when it is first asked for.
#[derive(Debug)]
pub(super) struct QuotaTrials<'a> {
    scheduler: &'a Scheduler,
    /// Of all workloads.
    now: Option<Snapshot>,
    /// After those that leave for good gave theirs back.
    later: Option<Snapshot>,
}

impl<'a> QuotaTrials<'a> {
    /// Of these quotas.
    pub(super) fn new(scheduler: &'a Scheduler) -> Self {
        Self { scheduler, now: None, later: None }
    }

    /// Whether a queue is within its nominal quota of what a workload needs, with that workload in it.
    pub(super) fn within_nominal(&mut self, queue: &str, me: &WorkloadKey, claim: &Claim) -> bool {
        let scheduler = self.scheduler;
        self.now.get_or_insert_with(|| scheduler.snapshot()).trial(|usage| {
            usage.release(scheduler, me);
            usage.is_within_nominal(scheduler, queue, claim)
        })
    }

    /// Whether a queue will have quota for a claim once those that leave `for_good`, and those that have to go for it, gave theirs back: its quota may
    /// be less than its usage. `goes` are other workloads than `for_good`, each once.
    pub(super) fn will_hold<'k>(
        &mut self,
        (queue, claim): (&str, &Claim),
        goes: impl Iterator<Item = &'k WorkloadKey>,
        for_good: impl Iterator<Item = &'k WorkloadKey>,
    ) -> bool {
        let scheduler = self.scheduler;
        let later = self.later.get_or_insert_with(|| {
            let mut usage = scheduler.snapshot();
            for key in for_good {
                usage.release(scheduler, key);
            }
            usage
        });
        later.trial(|usage| {
            for key in goes {
                usage.release(scheduler, key);
            }
            usage.has_quota_for(scheduler, queue, claim)
        })
    }
}
