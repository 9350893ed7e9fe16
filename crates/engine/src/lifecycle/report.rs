//! What is reported to the user of a job, and when the reason why a Workload waits is written.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::job::JobView;
use sluice_core::{Detail, PREEMPTION_HELD_BACK, Reason, Unadmitted, WorkloadKey};
use sluice_quantity::Quantity;

use super::workload::later;
use crate::effect::{EventType, Level};
use crate::engine::{Alarm, Engine};
use crate::input::WaitingWrites;
use crate::outbox::event;
use crate::unreported::Unreported;
use crate::world::{JobKey, WorkloadEntry};

/// How many reasons for waiting are written at once. Those that wait for their turn here take no memory, and can still be dropped.
const MOST_REPORTS: usize = 64;

/// How many reasons for waiting are written in a second, and at most in one while the API server has more important writes to carry out for much
/// of the time: each delays those, and many Workloads are admitted before their reason is due.
const REASONS_PER_SECOND: u32 = 100;
const REASONS_PER_BUSY_SECOND: u32 = 10;
/// How many troubles are written in a second beside the reasons: a trouble ends only when a user changes an object, so the user should learn of it
/// soon.
const TROUBLES_PER_SECOND: u32 = 10;

impl WorkloadEntry {
    /// Whether nothing is reported about it for now, as that failed before. Decisions about it are written all the same.
    pub(crate) fn reports_wait(&self, now: Timestamp) -> bool {
        self.reports.waits(now)
    }

    /// A newer version of it was seen.
    pub(crate) fn seen_newer(&mut self) {
        self.retry.seen_newer();
        self.reports.seen_newer();
    }
}

/// What is new about the reason why a Workload waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing, or only numbers.
    Figures,
    /// Others use what it needs, as before, but another Workload is in its way.
    Others,
    /// It began to wait since the last look, or waits for something else.
    Reason,
}

/// The usage of others comes and goes; all other reasons last until an object is changed.
const fn is_for_others(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::WaitingForQuota
            | Reason::WaitingForPodsReady
            | Reason::WaitingForCapacity
            | Reason::TopologyPlacementFailed
    )
}

/// The words of a message, with all numbers equal: messages that differ only in numbers are the same. A number is a word that is a quantity; names
/// may have digits, too.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().map(|word| {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        // "2/3 slice(s)"
        let is_figure = bare.split('/').all(|part| Quantity::parse(part).is_ok());
        if is_figure { "0" } else { word }
    })
}

/// The maximum capacities that a message names: these change with what is configured, and not with what others use.
fn capacities(text: &str) -> impl Iterator<Item = &str> {
    text.split("maximum capacity (").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Whether two messages are the same except for numbers.
#[must_use]
pub fn same_words(a: &str, b: &str) -> bool {
    words(a).eq(words(b))
}

/// What is new in `message` compared with the current condition.
pub(super) fn news(known: &Condition, why: &Unadmitted, granular: bool, message: &str) -> News {
    let name = |reason: Reason| if granular { reason.as_str() } else { reason.legacy() };
    let same_reason = known.reason == name(why.reason);
    // The reason itself says more than that an equivalent Workload failed.
    if same_reason && why.detail == Detail::Bypassed {
        return News::Figures;
    }
    let mut both = capacities(&known.message).zip(capacities(message));
    if both.any(|(known, now)| known != now) {
        return News::Reason;
    }
    if same_reason && same_words(&known.message, message) {
        return News::Figures;
    }
    // Not before something changes does it get what others use, although it could preempt them.
    let held_back = |text: &str| text.contains(PREEMPTION_HELD_BACK);
    if held_back(&known.message) != held_back(message) {
        return News::Reason;
    }
    let others = [
        Reason::WaitingForQuota,
        Reason::WaitingForPodsReady,
        Reason::WaitingForCapacity,
        Reason::TopologyPlacementFailed,
        Reason::WaitingForPreemptedWorkloads,
    ];
    let known_others = others.into_iter().any(|reason| known.reason == name(reason));
    // Quota that comes free may still be on nodes that are too far apart.
    let lasts = why.reason == Reason::TopologyPlacementFailed && !same_reason;
    if known_others && is_for_others(why.reason) && !lasts { News::Others } else { News::Reason }
}

impl Engine {
    /// Reports something about a job, once.
    pub(crate) fn report_job(
        &mut self,
        key: &JobKey,
        view: &JobView,
        type_: EventType,
        why: &str,
        note: &str,
    ) {
        let reported = format!("{why}: {note}");
        let Some(entry) = self.world.jobs.get_mut(key) else { return };
        if entry.reported.as_ref() == Some(&reported) {
            return;
        }
        entry.reported = Some(reported);
        self.outbox.push(event(self.about_job(key, view), type_, why, note));
        self.outbox.push(self.log(Level::Warn, "job left alone", &[("job", &key.object()), ("why", &note)]));
    }

    /// Whether the reason why a Workload waits is not written yet: it may be admitted before, others may write first, or too many are being
    /// written. Then it is looked at again.
    pub(super) fn hold_back(&mut self, key: &WorkloadKey, not_before: Option<Timestamp>) -> bool {
        let Some(unreported) = self.report_due(key, not_before) else { return true };
        if self.reporting < MOST_REPORTS && self.may_report() {
            return false;
        }
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.reason_mut().unreported = Some(Unreported { wake_at: None, ..unreported });
        }
        self.unreported.insert((unreported.since, key.clone()));
        true
    }

    /// The same for a trouble: it does not stand behind the reasons of others, however many these are.
    pub(super) fn hold_back_trouble(&mut self, key: &WorkloadKey) -> bool {
        let Some(unreported) = self.report_due(key, None) else { return true };
        // When very many come at once, as those of a stopped queue, the rest waits for its turn among the others and leaves room to the next one.
        let is_first_look = unreported.wake_at.is_some() && self.reporting < 2 * MOST_REPORTS;
        if is_first_look && self.trouble_budget.take_now(self.now, TROUBLES_PER_SECOND).is_ok() {
            return false;
        }
        self.hold_back(key, None)
    }

    /// What is to be reported of a Workload that waits, if it is due. If not, it is looked at again when it is.
    fn report_due(&mut self, key: &WorkloadKey, not_before: Option<Timestamp>) -> Option<Unreported> {
        let now = self.now;
        let delay = self.config.status_delay.while_waiting(self.backlog.all);
        let entry = self.world.workloads.get_mut(key)?;
        let unreported =
            entry.reason_mut().unreported.get_or_insert(Unreported { since: now, wake_at: None });
        let due = unreported.since.checked_add(delay).unwrap_or(Timestamp::MAX);
        let due = not_before.map_or(due, |at| at.max(due));
        if due <= now {
            return Some(*unreported);
        }
        // An earlier alarm asks again.
        if unreported.wake_at.is_none_or(|at| at <= now || at > due) {
            unreported.wake_at = Some(due);
            self.wake_at(due, Alarm::Workload(key.clone()));
        }
        None
    }

    /// How many reasons for waiting may be written in a second now.
    fn reasons_per_second(&self) -> u32 {
        if self.backlog.busy { REASONS_PER_BUSY_SECOND } else { REASONS_PER_SECOND }
    }

    /// Whether one more reason for waiting may be written now. If there were enough in the last second, an alarm is set.
    fn may_report(&mut self) -> bool {
        let (now, most) = (self.now, self.reasons_per_second());
        let Err(next) = self.reason_budget.take_now(now, most) else { return true };
        if self.reasons_at.is_none_or(|at| at <= now) {
            self.reasons_at = Some(next);
            self.wake_at(next, Alarm::Reasons);
        }
        false
    }

    /// A turn after a second with many. One that turns out to need no write must not end the turns of the others.
    pub(crate) fn next_turn(&mut self) {
        self.reasons_at = None;
        self.next_reasons(1);
        // While many are unanswered, each answer gives the turn to the next.
        if !self.unreported.is_empty() && self.reporting < MOST_REPORTS {
            let step = SignedDuration::from_millis(1_000 / i64::from(self.reasons_per_second()));
            let next = self.now.checked_add(step).unwrap_or(self.now);
            self.reasons_at = Some(next);
            self.wake_at(next, Alarm::Reasons);
        }
    }

    /// The turn of those that have waited longest for their reason to be written.
    pub(crate) fn next_reasons(&mut self, most: usize) {
        for _ in 0..most {
            let Some((_, next)) = self.unreported.pop_first() else { return };
            self.dirty.workloads.insert(next);
        }
    }

    /// What is known of the writes that wait changed.
    pub(crate) fn backlog_changed(&mut self, writes: WaitingWrites) {
        let before = std::mem::replace(&mut self.backlog, writes);
        if before.busy && !writes.busy {
            self.next_reasons(MOST_REPORTS.saturating_sub(self.reporting));
        }
    }

    /// The reason why a Workload waits is as it was written, or is being written, or it does not wait any more.
    pub(crate) fn reported(&mut self, key: &WorkloadKey) {
        let entry = self.world.workloads.get_mut(key);
        if let Some(unreported) = entry.and_then(|entry| entry.reason.as_mut()?.unreported.take()) {
            self.unreported.remove(&(unreported.since, key.clone()));
        }
    }

    /// A Workload was deleted: nothing is written about it any more.
    pub(crate) fn forget_waiting(&mut self, key: &WorkloadKey, entry: &WorkloadEntry) {
        self.unreleased.remove(key);
        self.unlisted.remove(key);
        if let Some(unreported) = entry.reason.as_ref().and_then(|reason| reason.unreported) {
            self.unreported.remove(&(unreported.since, key.clone()));
        }
        if let Some(open) = entry.open {
            self.outbox.withdraw_report(open);
        }
    }

    /// A job is over: reports on its Workloads must not delay their end, which frees quota.
    pub(super) fn withdraw_reports_of_ended(&mut self, view: &JobView) {
        if view.finished.is_none() {
            return;
        }
        for workload in self.world.owned(&view.job.uid) {
            if let Some(open) = self.world.workloads[&workload].open {
                self.outbox.withdraw_report(open);
            }
        }
    }

    /// A reason was written, or dropped: the turn of the Workload that has waited longest.
    pub(crate) fn report_answered(&mut self) {
        self.reporting = self.reporting.saturating_sub(1);
        self.next_reasons(1);
    }

    /// The time before which nothing new is written of others that use what a Workload needs.
    pub(super) fn next_of_others(&self, key: &WorkloadKey) -> Option<Timestamp> {
        let at = self.world.workloads.get(key)?.reason.as_ref()?.message_at?;
        Some(later(at, self.config.message_interval_seconds))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use sluice_core::LoopKind;

    use super::*;

    #[test]
    fn each_reason_of_the_core_is_known_as_one_of_a_condition() {
        for reason in Reason::ALL {
            for text in [reason.as_str(), reason.legacy()] {
                assert!(sluice_api::conditions::reason::is_known(text), "{text}");
            }
        }
    }

    #[test]
    fn that_preemption_is_held_back_is_no_news_of_others() {
        let detail = |pod_sets| Detail::Flavors { pod_sets, pending_preemptions: 0 };
        let lacks = Unadmitted {
            reason: Reason::WaitingForQuota,
            detail: detail(Vec::new()),
            requests: Arc::from([]),
        };
        let victim = WorkloadKey::new("team-a", "victim");
        let kind = LoopKind::Repeated;
        let detail = Detail::PreemptionLoop { victim, elsewhere: false, kind, pod_sets: Vec::new() };
        let held_back = Unadmitted { detail, ..lacks.clone() };
        let known = |message: &str| Condition {
            type_: "QuotaReserved".to_owned(),
            status: "False".to_owned(),
            reason: Reason::WaitingForQuota.as_str().to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            observed_generation: None,
        };
        for (before, now, expected) in [
            ("1 more needed", &lacks, News::Others),
            ("1 more needed", &held_back, News::Reason),
            (held_back.message().as_str(), &held_back, News::Figures),
            (held_back.message().as_str(), &lacks, News::Reason),
        ] {
            assert_eq!(news(&known(before), now, true, &now.message()), expected, "{before}");
        }
    }

    #[test]
    fn digits_in_names_are_no_figures() {
        let says = |flavor: &str, more: &str| {
            format!("insufficient unused quota for nvidia.com/gpu in flavor {flavor}, {more} more needed")
        };
        for (a, b, same) in [
            (says("h100", "4"), says("h100", "8"), true),
            (says("h100", "4"), says("h100", "1500m"), true),
            (says("h100", "4Gi"), says("h100", "12.5Gi"), true),
            (says("h100", "4"), says("h200", "4"), false),
            (says("pool-1", "4"), says("pool-2", "4"), false),
            ("(4) > maximum capacity (2)".to_owned(), "(8) > maximum capacity (3)".to_owned(), true),
            ("fit; 2/3 slice(s)".to_owned(), "fit; 10/12 slice(s)".to_owned(), true),
            (
                "Total nodes: 3; excluded: affinity: 3".to_owned(),
                "Total nodes: 12; excluded: affinity: 5".to_owned(),
                true,
            ),
            ("fit only 2 out of 3 pod(s)".to_owned(), "fit only 2 out of 3 slice(s)".to_owned(), false),
        ] {
            assert_eq!(same_words(&a, &b), same, "{a} | {b}");
        }
    }
}
