//! Usage above a limit. A late reservation of a former leader may arrive after the next leader has given the same quota away: no resource version
//! covers both writes. It is revoked before its job starts (`late reservation revoked` in the manager's log), so such moments are counted separately:
//! if a replica began to lead shortly before, the running jobs stay within the limits, and what has not run is revoked or deleted by its user.

use std::time::Duration;

use super::objects::Workload;
use super::quota::FlavorResource;
use super::{Checker, Rule, Violation};

/// A limit that is exceeded by reservations with which nothing has run.
#[derive(Clone, Debug)]
pub(super) struct Excess {
    queue: String,
    resource: FlavorResource,
    violation: Violation,
    /// A replica had begun to lead shortly before.
    after_a_change: bool,
}

/// How late a write of a former leader may be: its request ends after 15 s, and the control plane stands still for 3.5 s at most.
pub(super) const LATE_WRITE: Duration = Duration::from_secs(20);

impl Checker {
    pub(super) fn is_within_limits(&mut self, key: &str, before: &Workload, now: &Workload) {
        let held = before.charges();
        for (queue, usage) in now.charges() {
            for (resource, amount) in usage {
                let held = held.iter().filter(|(name, _)| *name == queue);
                // Less is always right, also when a limit was lowered meanwhile.
                if held.filter_map(|(_, usage)| usage.get(resource)).any(|held| amount <= held) {
                    continue;
                }
                if self.quotas.above(&queue, resource).is_some()
                    && let Some(text) = self.reserved_above(&queue, resource)
                {
                    let violation = self.violation(Rule::AboveQuota, key, text);
                    let (queue, resource) = (queue.clone(), resource.clone());
                    let after_a_change = self.leader.began_within(LATE_WRITE, self.now);
                    self.excesses.push(Excess { queue, resource, violation, after_a_change });
                }
            }
        }
    }

    /// Checks whether exceeded limits still are, and whether the running jobs alone exceed them.
    pub(super) fn judge_excesses(&mut self) {
        let dropped = self.dropped.take();
        for excess in std::mem::take(&mut self.excesses) {
            if let Some(text) = self.running_above(&excess.queue, &excess.resource) {
                let Violation { rule, revision, key, text: first } = excess.violation;
                let text = format!("{first}; of what has run, at revision {}: {text}", self.revision);
                self.violations.push(Violation { rule, revision, key, text });
            } else if self.reserved_above(&excess.queue, &excess.resource).is_some() {
                self.excesses.push(excess);
            } else if excess.after_a_change && dropped.is_none() {
                self.account.late_reservations += 1;
            } else {
                let Violation { rule, revision, key, text } = excess.violation;
                let why = match &dropped {
                    Some(dropped) => {
                        format!("{dropped} lost its quota, and not because a former leader gave it")
                    }
                    None => format!("none had begun to lead within {} s", LATE_WRITE.as_secs()),
                };
                let text = format!("{text}, until revision {}: {why}", self.revision);
                self.violations.push(Violation { rule, revision, key, text });
            }
        }
    }

    /// Notes a Workload that no longer holds quota on which nothing has run, if that was neither revoked, nor it or its job deleted by its user.
    pub(super) fn note_dropped(&mut self, key: &str, before: Option<&Workload>, now: Option<&Workload>) {
        let held = before.filter(|before| before.reserved && !before.finished);
        let holds = now.is_some_and(|now| now.reserved && !now.finished);
        let Some(before) = held.filter(|_| !holds && !self.ran.contains(key)) else { return };
        // By its user, as its job may be.
        let deleted =
            before.deleting || before.job.as_deref().is_some_and(|uid| self.is_deleted_by_its_user(uid));
        let evicted = now.is_some_and(|now| now.evicted);
        if !deleted && !evicted && !now.is_some_and(|now| now.revoked) {
            self.dropped = Some(key.to_owned());
        }
    }

    /// Reports the limits that are exceeded now, since nothing is revoked any more.
    pub(super) fn end_excesses(&mut self) {
        let left = std::mem::take(&mut self.excesses);
        self.violations.extend(left.into_iter().map(|excess| excess.violation));
    }

    /// The amount above the limit, without Workloads that do not count: deactivated ones whose job, which would release them, is gone
    /// (docs/reference/11-observed.md 11.1.6).
    fn reserved_above(&mut self, queue: &str, resource: &FlavorResource) -> Option<String> {
        self.above_without(queue, resource, |_, _| false)
    }

    /// The same without reservations with which no job has run.
    fn running_above(&mut self, queue: &str, resource: &FlavorResource) -> Option<String> {
        self.above_without(queue, resource, |checker, key| !checker.ran.contains(key))
    }

    fn above_without(
        &mut self,
        queue: &str,
        resource: &FlavorResource,
        left_out: impl Fn(&Self, &str) -> bool,
    ) -> Option<String> {
        let gone = |workload: &Workload| workload.job.as_ref().is_none_or(|uid| !self.keys.contains_key(uid));
        let counts_not = |key: &str, workload: &Workload| {
            (workload.inactive && gone(workload)) || (workload.reserved && left_out(self, key))
        };
        let out = self.workloads.iter().filter(|(key, workload)| counts_not(key, workload));
        let out: Vec<_> = out.map(|(_, workload)| workload.clone()).collect();
        let mut above = None;
        for sign in [-1, 1] {
            for workload in &out {
                self.quotas.charge(workload, sign);
            }
            if sign < 0 {
                above = self.quotas.above(queue, resource);
            }
        }
        above
    }
}
