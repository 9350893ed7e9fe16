//! Carries out what the core decided in a cycle (docs/reference/06-algorithm.md 6.5 "Admit" and "requeueAndUpdate", 6.17).

use std::sync::Arc;

use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_api::{labels, slim};
use sluice_core::{Detail, EntryReport, Name, Outcome, Reason, Unadmitted, Victim, WorkloadKey};

use super::pending::namespace_message;
use super::report::{News, news, same_words};
use super::transition::{self, Eviction};
use crate::effect::{Effect, Level, Purpose};
use crate::engine::{Engine, NextCycle};
use crate::hotswap::brake::Brakes;
use crate::ingest::workload::{effective_priority, holds_quota, is, priority_boost, reserved};
use crate::ingest::{time, workload as ingested};
use crate::outbox::{About, normal, observe, observe_with, warning};
use crate::unreported::PendingMessage;
use crate::world::{Decision, WorkloadEntry, workload_ref};
use crate::{REPORTER_ADMISSION, metrics};

/// The highest number of cycles in a row that only continue searches through flavors: each search ends before, but several heads of StrictFIFO queues
/// may begin again in turn.
const MOST_SCANS: u32 = 64;

/// The priorities behind a preemption, as the events state them.
pub(crate) fn priorities(who: &str, entry: &WorkloadEntry, config: &crate::config::EngineConfig) -> String {
    let boost = if config.on(Gate::PriorityBoost) { priority_boost(&entry.object) } else { 0 };
    let base = entry.object.spec.priority.unwrap_or(0);
    format!(
        "{who} effective priority: {} (base: {base}, boost: {boost})",
        effective_priority(&entry.object, config)
    )
}

/// The UID of a Workload's job, as its label says.
pub(crate) fn job_uid(object: &slim::Workload) -> Option<&str> {
    object.metadata.labels.as_ref()?.get(labels::JOB_UID).map(String::as_str)
}

impl Engine {
    /// Runs one cycle of the core and carries out what it decided.
    pub(crate) fn schedule(&mut self) {
        self.next_cycle = NextCycle::Unasked;
        let report = self.scheduler.cycle(time(self.now));
        let moved = report.progress
            || self.scheduler.has_heads() && !report.entries.is_empty() && self.heads_moved(&report.entries);
        self.scans = if moved { 0 } else { self.scans.saturating_add(1) };
        self.cycle_needed = moved || report.scanning && self.scans < MOST_SCANS;
        if self.cycle_needed && self.scheduler.has_heads() {
            self.next_cycle = NextCycle::Follows;
        }
        let result = if report.progress { "success" } else { "inadmissible" };
        self.outbox.push(observe(metrics::ADMISSION_ATTEMPTS_TOTAL, &[result], 1.0));
        self.count_skips(&report.entries);
        let (cycle, heads) = (report.cycle, report.entries.len());
        let mut brakes = Brakes::new();
        for entry in report.entries {
            self.working_on = Some(workload_ref(&entry.key));
            self.decided(entry, (cycle, heads), &mut brakes);
        }
        for (key, why) in report.bypassed {
            self.working_on = Some(workload_ref(&key));
            self.report_unadmitted(&key, &why, false);
        }
        self.working_on = None;
    }

    /// Whether a head that was not admitted lets the next one of its queue be tried, so that another cycle has other heads.
    fn heads_moved(&self, entries: &[EntryReport]) -> bool {
        entries.iter().any(|e| {
            !matches!(e.outcome, Outcome::Admitted { .. })
                && self.scheduler.waits_in(&e.key).is_some_and(|(_, active)| !active)
        })
    }

    fn decided(&mut self, entry: EntryReport, (cycle, heads): (u64, usize), brakes: &mut Brakes) {
        match entry.outcome {
            Outcome::Admitted { admission, required_checks, considered } => {
                let considered = considered.to_string();
                self.attempt_decided(&entry.key, cycle, heads, &considered);
                let decision = Decision::Reserve { admission, required_checks, considered };
                self.decide(&entry.key, decision);
            }
            Outcome::Preempting { victims, why } => {
                for victim in &victims {
                    self.preempt(&entry.key, victim);
                }
                self.report_unadmitted(&entry.key, &why, true);
            }
            Outcome::Unadmitted(why) => self.report_unadmitted(&entry.key, &why, true),
            Outcome::SecondPass(Ok(nodes)) => self.nodes_found(&entry.key, nodes),
            Outcome::SlicesMoved(moved) => self.slices_moved(&entry.key, moved),
            Outcome::SliceReclaims(victims) => self.slice_reclaims(&entry.key, &victims, brakes),
            Outcome::NodesNotReplaced(nodes, slice) => self.nodes_not_replaced(&entry.key, &nodes, slice),
            Outcome::SecondPass(Err(why)) => self.report_second_pass_failed(&entry.key, why),
            Outcome::PreemptionGated(why) => self.report_gated(&entry.key, &why),
        }
    }

    /// Writes that a Workload would preempt others if its gates were open.
    fn report_gated(&mut self, key: &WorkloadKey, why: &Arc<Unadmitted>) {
        let Some(known) = self.world.workloads.get_mut(key) else { return };
        if is(known.status(), Type::BlockedOnPreemptionGates) {
            return self.report_unadmitted(key, why, true);
        }
        if known.open.is_some() || known.reports_wait(self.now) {
            let why = Arc::clone(why);
            known.reason_mut().pending_message = Some(PendingMessage { why, with_event: true, gated: true });
            return;
        }
        known.forget_message();
        let known = &self.world.workloads[key];
        let mut next = known.status().clone();
        let at = self.at(&known.object);
        transition::block_on_gates(&mut next, at);
        transition::pend(&mut next, why.reason, &why.message(), &why.requests, at);
        let reported = warning(
            About::admission(key, &known.uid()),
            if at.granular { why.reason.as_str() } else { why.reason.legacy() },
            why.message(),
        );
        self.write_status(key, Purpose::Pend, next, vec![reported]);
    }

    /// Writes why a Workload waits, if that could not be written yet.
    pub(super) fn report_pending(&mut self, key: &WorkloadKey) {
        let pending = self.world.workloads.get(key).and_then(|entry| entry.pending_message().cloned());
        let Some(pending) = pending else { return };
        if pending.gated {
            self.report_gated(key, &pending.why);
        } else {
            self.report_unadmitted(key, &pending.why, pending.with_event);
        }
    }

    /// What keeps a workload with quota from its admission (docs/reference/03-conditions-events.md 3.3).
    pub(crate) fn report_second_pass_failed(&mut self, key: &WorkloadKey, why: String) {
        self.note_unreplaced(key);
        let Some(entry) = self.world.workloads.get(key) else { return };
        let uid = entry.uid();
        let reported = warning(About::admission(key, &uid), "SecondPassFailed", why);
        self.outbox.push(reported);
    }

    /// Takes a decision on, and carries it out if nothing is under way.
    pub(crate) fn decide(&mut self, key: &WorkloadKey, decision: Decision) {
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        entry.decision = Some(Box::new(decision));
        entry.forget_message();
        if let Some(open) = entry.open {
            self.outbox.withdraw_report(open);
        }
        self.reported(key);
        let Some(entry) = self.world.workloads.get(key) else { return };
        if matches!(entry.decision.as_deref(), Some(Decision::Evict(..))) {
            self.world.watch_held(key);
        }
        let Some(entry) = self.world.workloads.get(key) else { return };
        // Nodes are found repeatedly: assignments that could not be written wait for their turn.
        let waits =
            matches!(entry.decision.as_deref(), Some(Decision::Place(..))) && entry.retry.waits(self.now);
        if entry.open.is_none() && !entry.uncertain && !waits && !self.is_starting(key) {
            self.carry_out(key);
        }
    }

    /// Writes what was decided.
    pub(crate) fn carry_out(&mut self, key: &WorkloadKey) {
        let moving = self.is_moving(key);
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        let Some(decision) = entry.decision.take() else { return };
        match &*decision {
            Decision::Reserve { admission, required_checks, considered } => {
                let object = &entry.object;
                let usable = !moving
                    && !reserved(&object.status)
                    && object.spec.active
                    && object.metadata.deletion_timestamp.is_none()
                    && !is(&object.status, Type::Finished);
                if !usable {
                    self.reservation_failed(key);
                    self.sync_core(key);
                    // The cause of its end may still apply.
                    self.dirty.workloads.insert(key.clone());
                    return;
                }
                let entry = &self.world.workloads[key];
                let mut next = entry.object.status.clone();
                transition::reserve(&mut next, admission, required_checks, self.at(&entry.object));
                self.carry_time_over(key, &mut next);
                let admitted = is(&next, Type::Admitted);
                let (note, mut then) = self.report_reserved(key, &admission.cluster_queue, considered);
                if admitted {
                    then.extend(self.report_admitted(key, &next, Some(&note)));
                } else {
                    let uid = self.world.workloads[key].uid();
                    then.insert(0, normal(About::admission(key, &uid), "QuotaReserved", note));
                    let queue = &admission.cluster_queue;
                    then.push(self.log(
                        Level::Info,
                        "quota reserved",
                        &[("workload", key), ("queue", queue), ("waited_seconds", &self.waited(key))],
                    ));
                }
                self.write_status(key, Purpose::ReserveQuota, next, then);
                let now = self.now;
                if let Some(entry) = self.world.workloads.get_mut(key) {
                    entry.reserved_by_us = Some(now);
                }
            }
            Decision::Place(nodes, more) => {
                if !self.write_nodes(key, nodes, more) {
                    self.sync_core(key);
                    self.dirty.workloads.insert(key.clone());
                    return;
                }
            }
            Decision::Evict(eviction, _) => {
                // By what is written: one that has finished meanwhile gives its quota back by itself.
                if !holds_quota(&entry.object.status) || is(&entry.object.status, Type::Evicted) {
                    self.sync_core(key);
                    self.dirty.workloads.insert(key.clone());
                    return;
                }
                let next = entry.object.status.clone();
                // The other reports are made with the answer, from the decision that is kept until then.
                self.evict_from(key, next, eviction);
            }
        }
        let id = self.world.workloads.get(key).and_then(|e| e.open);
        if let Some(id) = id {
            self.outbox.amend(id, |open| open.decision = Some(decision));
        }
    }

    /// Evicts a victim.
    fn preempt(&mut self, preemptor: &WorkloadKey, victim: &Victim) {
        if !self.has_to_be_evicted(victim) {
            return;
        }
        let Some(entry) = self.world.workloads.get(&victim.key) else { return };
        let (eviction, more) = self.preemption(preemptor, victim, entry);
        self.decide(&victim.key, Decision::Evict(eviction, more));
    }

    /// Whether a victim has to be evicted: not if that is under way, or it is about to finish and give its quota back by itself.
    pub(crate) fn has_to_be_evicted(&mut self, victim: &Victim) -> bool {
        if victim.already_evicted {
            return false;
        }
        let Some(entry) = self.world.workloads.get(&victim.key) else { return false };
        match entry.decision.as_deref() {
            Some(Decision::Evict(..)) => return false,
            Some(Decision::Reserve { .. }) => {
                // Nothing of it was written: it only has to be dropped.
                if let Some(entry) = self.world.workloads.get_mut(&victim.key) {
                    entry.decision = None;
                }
                self.reservation_failed(&victim.key);
                return false;
            }
            Some(Decision::Place(..)) | None => {}
        }
        entry.assumed.as_deref().is_none_or(|s| !is(s, Type::Evicted) && !is(s, Type::Finished))
    }

    /// The eviction of a victim, and what is reported about it.
    fn preemption(
        &self,
        preemptor: &WorkloadKey,
        victim: &Victim,
        entry: &WorkloadEntry,
    ) -> (Eviction, Vec<Effect>) {
        let by = self.world.workloads.get(preemptor);
        let known = |uid: Option<Name>| uid.filter(|u| !u.is_empty()).unwrap_or_else(|| "UNKNOWN".into());
        let message = format!(
            "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
            known(by.map(WorkloadEntry::uid)),
            known(by.and_then(|e| job_uid(&e.object)).map(Name::from)),
            victim.reason.sentence(),
            victim.preemptor_path,
            victim.preemptee_path,
        );
        let mut who = Vec::new();
        if let Some(by) = by {
            who.push(priorities("preemptor", by, &self.config));
        }
        who.push(priorities("preemptee", entry, &self.config));
        let who = who.join("; ");
        let preempting_queue = victim.preemptor_path.rsplit('/').next().unwrap_or_default();
        let mut more = vec![
            normal(
                About::admission(&victim.key, &entry.uid()),
                reason::PREEMPTED,
                format!("{message}; {who}"),
            ),
            observe(metrics::PREEMPTED_WORKLOADS_TOTAL, &[preempting_queue, victim.reason.as_str()], 1.0),
        ];
        if let Some(by) = by {
            let note = format!(
                "Preempted workload {} (UID: {}) in ClusterQueue {}; {who}",
                victim.key, victim.uid, victim.cluster_queue
            );
            let reported = normal(About::admission(preemptor, &by.uid()), "PreemptedWorkload", note);
            more.push(reported);
        }
        let eviction = Eviction {
            reason: reason::PREEMPTED,
            cause: String::new(),
            message,
            preemption: Some(victim.reason.as_str()),
        };
        (eviction, more)
    }

    /// The message of a refusal, with the remedy where the core cannot know it.
    fn message_of(&self, key: &WorkloadKey, why: &Unadmitted) -> String {
        if let Detail::NamespaceMismatch = why.detail {
            let object = self.world.workloads.get(key).map(|e| &e.object);
            let queue = object.and_then(|o| self.world.cluster_queue_of(key, o));
            if let Some(queue) = queue.and_then(|q| self.world.cluster_queues.get(&q)) {
                return namespace_message(queue);
            }
        }
        why.message()
    }

    /// Writes why a workload waits, if it still waits after a delay; seldom while others use what it needs; and not at all if only numbers changed,
    /// except those of the Workload itself.
    pub(super) fn report_unadmitted(&mut self, key: &WorkloadKey, why: &Arc<Unadmitted>, with_event: bool) {
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        entry.forget_message();
        if entry.decision.is_some() || reserved(&entry.object.status) {
            return self.reported(key);
        }
        let pending_message = PendingMessage { why: Arc::clone(why), with_event, gated: false };
        // While writes on it fail, the message waits, too.
        if entry.open.is_some() || entry.retry.waits(self.now) || entry.reports_wait(self.now) {
            entry.reason_mut().pending_message = Some(pending_message);
            return;
        }
        let entry = &self.world.workloads[key];
        let granular = self.config.on(Gate::UnadmittedWorkloadsObservability);
        let reason = if granular { why.reason.as_str() } else { why.reason.legacy() };
        let object = &entry.object;
        // A message about the old Workload is not true any more.
        let known = entry.written_reason().filter(|known| {
            known.observed_generation == object.metadata.generation
                && transition::says_requests(&object.status, &why.requests)
        });
        // A head is looked at again with each end in its cohort tree: the message is made once something depends on it.
        let mut message = None;
        let not_before = match known {
            None => None,
            Some(known) => match news(known, why, granular, message.insert(self.message_of(key, why))) {
                News::Figures => return self.reported(key),
                News::Others => self.next_of_others(key),
                News::Reason => None,
            },
        };
        if self.hold_back(key, not_before) {
            if let Some(entry) = self.world.workloads.get_mut(key) {
                entry.reason_mut().pending_message = Some(pending_message);
            }
            return;
        }
        let now = self.now;
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.reason_mut().message_at = Some(now);
        }
        let message = message.unwrap_or_else(|| self.message_of(key, why));
        let entry = &self.world.workloads[key];
        let known = entry.written_reason();
        let same_words =
            known.is_some_and(|known| known.reason == reason && same_words(&known.message, &message));
        let mut next = entry.object.status.clone();
        if !transition::pend(&mut next, why.reason, &message, &why.requests, self.at(&entry.object)) {
            return self.reported(key);
        }
        self.list_checks(key, &mut next);
        let mut then = Vec::new();
        if with_event && !same_words {
            let object = workload_ref(key);
            then.push(warning(
                About::new(&object, &entry.uid(), REPORTER_ADMISSION),
                reason,
                message.clone(),
            ));
        }
        if why.reason == Reason::WaitingForPodsReady {
            then = self.not_at_once(key, then);
        }
        if !same_words {
            then.push(self.log(
                Level::Info,
                "workload waits",
                &[("workload", key), ("reason", &reason), ("message", &message)],
            ));
        }
        let purpose = if why.detail == Detail::Bypassed { Purpose::Bypassed } else { Purpose::Pend };
        self.write_status(key, purpose, next, then);
    }

    /// How long a Workload has been queued, in seconds.
    fn waited(&self, key: &WorkloadKey) -> f64 {
        metrics::seconds_between(queued_since(&self.world.workloads[key]), self.now)
    }

    /// What is reported when quota is reserved: the note of its event, and the rest.
    fn report_reserved(&self, key: &WorkloadKey, queue: &str, considered: &str) -> (String, Vec<Effect>) {
        let entry = &self.world.workloads[key];
        let waited = self.waited(key);
        let mut note =
            format!("Quota reserved in ClusterQueue {queue}, wait time since queued was {waited:.0}s");
        if !considered.is_empty() {
            note = format!("{note}; Flavors considered: {considered}");
        }
        let class = metrics::priority_class(&entry.object);
        let local = [&*entry.object.spec.queue_name, &*key.namespace, class];
        let mut then = vec![
            observe(metrics::QUOTA_RESERVED_WORKLOADS_TOTAL, &[queue, class], 1.0),
            observe(metrics::QUOTA_RESERVED_WAIT_TIME_SECONDS, &[queue, class], waited),
        ];
        if self.measures(&key.namespace, &entry.object.spec.queue_name) {
            then.push(observe(metrics::LOCAL_QUEUE_QUOTA_RESERVED_WORKLOADS_TOTAL, &local, 1.0));
            then.push(observe(metrics::LOCAL_QUEUE_QUOTA_RESERVED_WAIT_TIME_SECONDS, &local, waited));
        }
        (note, then)
    }

    /// What is reported when a workload is admitted; with the note on its quota if the same write reserves it, so that one event has both.
    pub(crate) fn report_admitted(
        &self,
        key: &WorkloadKey,
        next: &WorkloadStatus,
        reserved: Option<&str>,
    ) -> Vec<Effect> {
        let entry = &self.world.workloads[key];
        let queue = next.admission.as_ref().map(|a| a.cluster_queue.as_str()).unwrap_or_default();
        let since =
            conditions::true_since(&next.conditions, Type::QuotaReserved.as_str()).unwrap_or(self.now);
        let checked =
            if next.admission_checks.is_empty() { 0.0 } else { metrics::seconds_between(since, self.now) };
        let waited = self.waited(key);
        let mut note =
            format!("Admitted by ClusterQueue {queue}, wait time since reservation was {checked:.0}s");
        if let Some(reserved) = reserved {
            note = format!("{note}; {reserved}");
        }
        let class = metrics::priority_class(&entry.object);
        let mut then = vec![
            normal(About::admission(key, &entry.uid()), "Admitted", note),
            observe(metrics::ADMITTED_WORKLOADS_TOTAL, &[queue, class], 1.0),
            observe(metrics::ADMISSION_WAIT_TIME_SECONDS, &[queue, class], waited),
            self.log(
                Level::Info,
                "workload admitted",
                &[("workload", key), ("queue", &queue), ("waited_seconds", &waited)],
            ),
        ];
        let had_checks = !next.admission_checks.is_empty();
        if had_checks {
            then.push(observe(metrics::ADMISSION_CHECKS_WAIT_TIME_SECONDS, &[queue, class], checked));
        }
        if self.measures(&key.namespace, &entry.object.spec.queue_name) {
            let local = [&*entry.object.spec.queue_name, &*key.namespace, class];
            let custom = || self.custom.of_workload(&entry.object);
            then.push(observe_with(metrics::LOCAL_QUEUE_ADMITTED_WORKLOADS_TOTAL, &local, 1.0, custom()));
            then.push(observe_with(
                metrics::LOCAL_QUEUE_ADMISSION_WAIT_TIME_SECONDS,
                &local,
                waited,
                custom(),
            ));
            if had_checks {
                then.push(observe(metrics::LOCAL_QUEUE_ADMISSION_CHECKS_WAIT_TIME_SECONDS, &local, checked));
            }
        }
        if self.config.on(Gate::MetricsForCohorts) {
            for cohort in self.cohorts_above(queue) {
                let labels = [&*cohort, class];
                then.push(observe(metrics::COHORT_SUBTREE_ADMITTED_WORKLOADS_TOTAL, &labels, 1.0));
            }
        }
        then
    }
}

/// Since when a workload is queued: its creation, or when it was last let in again.
pub(crate) fn queued_since(entry: &WorkloadEntry) -> jiff::Timestamp {
    let created = ingested::created(&entry.object);
    conditions::true_since(&entry.object.status.conditions, Type::Requeued.as_str())
        .map_or(created, |t| t.max(created))
}
