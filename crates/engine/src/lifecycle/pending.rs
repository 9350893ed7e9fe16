//! A Workload that waits: what keeps it from being considered, and what lets it be queued again (docs/reference/03-conditions-events.md 3.1;
//! docs/reference/06-algorithm.md 6.17).

use std::sync::Arc;

use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::config::selector_matches;
use sluice_api::gates::Gate;
use sluice_api::v1beta2::{ClusterQueue, StopPolicy, WorkloadStatus};
use sluice_core::{Detail, Name, Reason, WorkloadKey};

use super::reserved::required_checks;
use super::transition;
use super::workload::later;
use crate::effect::{Effect, EventType, Purpose};
use crate::engine::{Alarm, Engine};
use crate::ingest;
use crate::ingest::workload::{self as ingested, admission_gates, is, reserved};
use crate::outbox::{About, event, normal};

/// The remedy behind the message about a namespace that no selector picks.
const NO_SELECTOR: &str = "; the ClusterQueue has no namespaceSelector and therefore selects no namespace: set \
                           `namespaceSelector: {}` to select all";

/// How many checks fit into the status of a Workload (docs/reference/01-api.md 1.5): with more its reason for waiting would be refused, too.
pub(super) const MOST_CHECKS: usize = 8;

/// For how many seconds after its creation there is no warning that a Workload's queues are missing or inactive.
const QUIET_SECONDS: i64 = 5;

/// The message of a Workload that no cycle has looked at yet.
const NOT_LOOKED_AT: &str = "Workload is pending evaluation in the scheduling queue";

impl Engine {
    /// A Workload that waits: what keeps it from being looked at, and what lets it be queued again.
    pub(super) fn reconcile_pending(&mut self, key: &WorkloadKey) {
        if self.apply_check_states(key) || self.reconcile_requeue(key) || self.end_backoff(key) {
            return;
        }
        let trouble = self.trouble(key);
        // The result of a cycle before its job was put on hold is not reported any more.
        if (trouble.is_some() || ingested::on_hold(self.world.workloads[key].status()))
            && let Some(entry) = self.world.workloads.get_mut(key)
        {
            entry.forget_message();
        }
        let entry = &self.world.workloads[key];
        if entry.reports_wait(self.now) {
            return;
        }
        let (object, status) = (&entry.object, entry.status());
        let at = self.at(object);
        let condition = conditions::find(&status.conditions, Type::QuotaReserved.as_str())
            .filter(|c| c.status == "False");
        let mut next = status.clone();
        if let Some((why, message)) = trouble {
            let same_queue = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                let subject = |text: &str| text.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
                why == Reason::Suspended
                    && (c.reason == why.as_str() || c.reason == why.legacy())
                    && subject(&c.message) == subject(&message)
            };
            if condition.is_some_and(same_queue) || !transition::pend(&mut next, why, &message, &[], at) {
                return self.reported(key);
            }
            if self.hold_back_trouble(key) {
                return;
            }
            let reported = self.report_trouble(key, why, &message);
            let reported = self.not_at_once(key, reported);
            self.list_checks(key, &mut next);
            self.write_status(key, Purpose::Pend, next, reported);
            return;
        }
        if entry.pending_message().is_some() {
            return self.report_pending(key);
        }
        let Some(condition) = condition else {
            return self.report_newcomer(key);
        };
        let outdated = [
            reason::MISCONFIGURED,
            reason::SUSPENDED,
            // The reason for both while reasons are not granular.
            reason::INADMISSIBLE,
            reason::DEACTIVATED,
            reason::ADMISSION_GATED,
        ];
        if !outdated.contains(&condition.reason.as_str()) {
            self.list_checks(key, &mut next);
            if next.admission_checks != status.admission_checks {
                self.write_checks(key, next, Vec::new());
            }
            return;
        }
        let gate_cleared = condition.reason == reason::ADMISSION_GATED;
        if !gate_cleared && self.hold_back(key, None) {
            return;
        }
        let entry = &self.world.workloads[key];
        let message = if gate_cleared {
            "AdmissionGatedBy cleared, waiting for quota reservation"
        } else {
            NOT_LOOKED_AT
        };
        self.list_checks(key, &mut next);
        transition::pend(&mut next, Reason::PendingEvaluation, message, &[], at);
        let then = if gate_cleared {
            let note = "Admission gate cleared, workload is now admissible";
            let uid = entry.uid();
            vec![normal(About::workload(key, &uid), "AdmissionGateCleared", note)]
        } else {
            Vec::new()
        };
        self.write_status(key, Purpose::Pend, next, then);
    }

    /// A Workload about which nothing was said yet.
    fn report_newcomer(&mut self, key: &WorkloadKey) {
        // Inadmissible with its equivalence class, and never looked at itself.
        let why = self.scheduler.last_decision(key).filter(|why| why.detail == Detail::Bypassed).cloned();
        if let Some(why) = why {
            return self.report_unadmitted(key, &Arc::new(why), false);
        }
        if self.config.on(Gate::UnadmittedWorkloadsExplicitStatus) {
            if self.hold_back(key, None) {
                return;
            }
            let entry = &self.world.workloads[key];
            let mut next = entry.status().clone();
            transition::pend(
                &mut next,
                Reason::PendingEvaluation,
                NOT_LOOKED_AT,
                &[],
                self.at(&entry.object),
            );
            self.list_checks(key, &mut next);
            self.write_status(key, Purpose::Pend, next, Vec::new());
            return;
        }
        // In most cases the next cycle writes its status, and lists them in the same write.
        self.unlisted.insert(key.clone());
    }

    /// Lists the checks of waiting Workloads without a reason: their turn has not come.
    pub(crate) fn list_checks_of_waiting(&mut self) {
        for key in std::mem::take(&mut self.unlisted) {
            let Some(entry) = self.world.workloads.get(&key) else { continue };
            if entry.open.is_some() || entry.decision.is_some() || entry.retry.waits(self.now) {
                // It is looked at again anyway.
                continue;
            }
            if reserved(entry.status()) || is(entry.status(), Type::Finished) || !entry.object.spec.active {
                continue;
            }
            let mut next = entry.status().clone();
            self.list_checks(&key, &mut next);
            if next.admission_checks != self.world.workloads[&key].status().admission_checks {
                self.write_checks(&key, next, Vec::new());
            }
        }
    }

    /// Lists the checks of a Workload that waits (docs/reference/06-algorithm.md 6.10): those that apply to every flavor of its ClusterQueue. Checks
    /// of single flavors stay if they are listed, because they count its attempts.
    pub(super) fn list_checks(&self, key: &WorkloadKey, next: &mut WorkloadStatus) {
        let entry = &self.world.workloads[key];
        let queue = self.world.cluster_queue_of(key, &entry.object);
        let Some(queue) = queue.and_then(|name| self.world.cluster_queues.get(&name)) else { return };
        let mut wanted = required_checks(queue, None);
        let known = |name: &str| next.admission_checks.iter().any(|check| check.name == name);
        let strategy = queue.spec.admission_checks_strategy.as_ref();
        let rules = strategy.into_iter().flat_map(|strategy| &strategy.admission_checks);
        wanted.extend(rules.filter(|rule| known(&rule.name)).map(|rule| ingest::name(&rule.name)));
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.len() <= MOST_CHECKS {
            transition::sync_checks(next, &wanted, self.at(&entry.object));
        }
    }

    /// Delays warnings about a new Workload: its queues may be created in a moment, and a job that is created with them from one file should not
    /// begin with a warning. Returns what is reported at once.
    pub(super) fn not_at_once(&mut self, key: &WorkloadKey, reported: Vec<Effect>) -> Vec<Effect> {
        let now = self.now;
        let Some(entry) = self.world.workloads.get_mut(key) else { return reported };
        if let Some(reason) = &mut entry.reason {
            reason.owed = None;
        }
        let due = later(ingested::created(&entry.object), QUIET_SECONDS);
        if due <= now {
            return reported;
        }
        let warns = |e: &Effect| matches!(e, Effect::Event(event) if event.type_ == EventType::Warning);
        let (warnings, rest): (Vec<_>, Vec<_>) = reported.into_iter().partition(warns);
        if let Some(Effect::Event(warning)) = warnings.into_iter().next() {
            entry.reason_mut().owed = Some((due, Box::new(warning)));
            self.wake_at(due, Alarm::Workload(key.clone()));
        }
        rest
    }

    /// Reports what was held back, if it still applies.
    pub(super) fn report_owed(&mut self, key: &WorkloadKey) {
        let now = self.now;
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        let owed = entry.reason.as_mut().and_then(|reason| reason.owed.take_if(|(due, _)| *due <= now));
        let Some((_, warning)) = owed else { return };
        let said = conditions::find(&entry.object.status.conditions, Type::QuotaReserved.as_str());
        if said.is_some_and(|c| c.status == "False" && c.reason == warning.reason) {
            self.outbox.push(Effect::Event(*warning));
        }
    }

    fn report_trouble(&self, key: &WorkloadKey, why: Reason, message: &str) -> Vec<Effect> {
        let uid = self.world.workloads[key].uid();
        let (type_, reason, note) = match why {
            Reason::AdmissionGated => {
                let gates = message.trim_start_matches("Admission is gated by: ");
                (EventType::Normal, why.as_str(), format!("Workload admission is gated by: {gates}"))
            }
            Reason::Misconfigured | Reason::Suspended => {
                let granular = self.config.on(Gate::UnadmittedWorkloadsObservability);
                let reason = if granular { why.as_str() } else { why.legacy() };
                (EventType::Warning, reason, message.to_owned())
            }
            _ => return Vec::new(),
        };
        vec![
            event(About::workload(key, &uid), type_, reason, note),
            self.log(
                crate::effect::Level::Info,
                "workload waits",
                &[("workload", key), ("reason", &reason), ("message", &message)],
            ),
        ]
    }

    /// What keeps a waiting Workload from being considered: the first problem in the reference's order. The core has it as it is now: what its pods
    /// request is not measured again.
    fn trouble(&self, key: &WorkloadKey) -> Option<(Reason, String)> {
        self.trouble_but_for(key, self.scheduler.waits_validly(key))
    }

    /// The same, without checking the requests of its pods if these are known to be valid.
    pub(crate) fn trouble_but_for(&self, key: &WorkloadKey, asks_rightly: bool) -> Option<(Reason, String)> {
        let entry = &self.world.workloads[key];
        let object = &entry.object;
        if !object.spec.active {
            return Some((Reason::Deactivated, "The workload is deactivated".to_owned()));
        }
        if ingested::on_hold(entry.status()) {
            return None;
        }
        let local_name = &object.spec.queue_name;
        let queue = self.world.local_queues.get(&(Arc::clone(&key.namespace), local_name.as_str().into()));
        let Some(queue) = queue else {
            return Some((Reason::Misconfigured, format!("LocalQueue {local_name} doesn't exist")));
        };
        if queue.spec.stop_policy != StopPolicy::None || queue.metadata.deletion_timestamp.is_some() {
            return Some((Reason::Suspended, format!("LocalQueue {local_name} is inactive")));
        }
        let cluster_name = queue.spec.cluster_queue.as_deref().unwrap_or_default();
        let Some(cluster) = self.world.cluster_queues.get(cluster_name) else {
            return Some((Reason::Misconfigured, format!("ClusterQueue {cluster_name} doesn't exist")));
        };
        if self.active.get(cluster_name) == Some(&false) {
            return Some((Reason::Suspended, format!("ClusterQueue {cluster_name} is inactive")));
        }
        if !self.selects(cluster, &key.namespace) {
            return Some((Reason::Misconfigured, namespace_message(cluster)));
        }
        let around = self.world.around(&key.namespace, &self.config);
        if !asks_rightly
            && let (_, Some(invalid)) = ingested::pod_sets(object, entry.status(), around, &self.config)
        {
            return Some((Reason::Misconfigured, invalid));
        }
        if let Some(too_many) = self.too_many_checks(key) {
            return Some((Reason::Misconfigured, too_many));
        }
        admission_gates(object, &self.config)
            .map(|gates| (Reason::AdmissionGated, format!("Admission is gated by: {gates}")))
    }

    /// What keeps a Workload from being admitted if more checks apply to every flavor than its status can hold: each write of its admission would be
    /// refused.
    pub(super) fn too_many_checks(&self, key: &WorkloadKey) -> Option<String> {
        let name = self.world.cluster_queue_of(key, &self.world.workloads.get(key)?.object)?;
        let queue = self.world.cluster_queues.get(&name)?;
        let rules = queue.spec.admission_checks_strategy.as_ref().map_or(0, |s| s.admission_checks.len());
        let count = if rules > MOST_CHECKS { required_checks(queue, None).len() } else { rules };
        (count > MOST_CHECKS).then(|| {
            format!(
                "ClusterQueue {name} has {count} admission checks for every flavor, and a Workload can have {MOST_CHECKS}"
            )
        })
    }

    /// Whether a ClusterQueue selects a namespace.
    fn selects(&self, queue: &ClusterQueue, namespace: &Name) -> bool {
        let selector = queue.spec.namespace_selector.as_ref();
        let namespace = self.world.namespaces.get(namespace);
        match (selector, namespace) {
            (Some(selector), Some(namespace)) => {
                selector_matches(selector, &namespace.metadata.labels.clone().unwrap_or_default())
            }
            _ => false,
        }
    }
}

/// The message about a namespace that the queue does not select, with the remedy if there is a simple one.
pub(crate) fn namespace_message(queue: &ClusterQueue) -> String {
    let remedy = if queue.spec.namespace_selector.is_none() { NO_SELECTOR } else { "" };
    format!("workload namespace doesn't match ClusterQueue selector{remedy}")
}
