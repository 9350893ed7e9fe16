//! What a Workload needs next, apart from its job (reference 03, 3.1 precedence; 06, 6.10, 6.17–6.19).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_api::v1beta2::{Admission, CheckState, ClusterQueue, StopPolicy, WorkloadStatus};
use sluice_api::{labels, slim};
use sluice_core::{Name, Reason, WorkloadKey, WorkloadState};

use super::body::{self, strict_patch};
use super::transition::{self, At, Eviction};
use crate::effect::{Effect, EventType, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::scheduling::{self, selector};
use crate::ingest::workload::{self as ingested, admission_gates, is, reserved};
use crate::ingest::{self, time};
use crate::input::Kind;
use crate::outbox::{event, log, observe};
use crate::world::{Decision, controller, workload_ref};
use crate::{REPORTER_WORKLOAD, metrics};

/// The remedy behind the message about a namespace that no selector picks.
const NO_SELECTOR: &str = "; the ClusterQueue has no namespaceSelector and so selects no namespace: set \
                           `namespaceSelector: {}` to select all";

impl Engine {
    /// When and for which generation a transition is made now.
    pub(crate) fn at(&self, object: &slim::Workload) -> At {
        At {
            now: self.now,
            generation: object.metadata.generation.unwrap_or(0),
            granular: self.config.on(Gate::UnadmittedWorkloadsObservability),
        }
    }

    /// Tells the core what a Workload is, as far as it is written; what the core itself assumed stays.
    pub(crate) fn sync_core(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        let reserving = matches!(entry.decision, Some(Decision::Reserve { .. }))
            || (entry.assumed.as_ref().is_some_and(reserved) && !reserved(&entry.object.status));
        if reserving {
            return;
        }
        let around = self.world.around(&key.namespace, &self.config);
        let mut spec = ingested::spec(&entry.object, &entry.object.status, around, &self.config);
        match &mut spec.state {
            WorkloadState::Reserved { evicted, .. } => {
                *evicted |=
                    is(entry.status(), Type::Evicted) || matches!(entry.decision, Some(Decision::Evict(..)));
            }
            WorkloadState::Pending { requeue_at, .. } => {
                let backoff = entry.retry.until.filter(|_| entry.retry.waits(self.now)).map(time);
                *requeue_at = (*requeue_at).max(backoff);
            }
            WorkloadState::Parked => {}
        }
        self.scheduler.set_workload(spec, time(self.now));
        self.restless = true;
    }

    /// Does the next thing that a Workload needs.
    pub(crate) fn reconcile_workload(&mut self, key: &WorkloadKey) {
        self.sync_core(key);
        if !self.decides() {
            return;
        }
        let Some(entry) = self.world.workloads.get(key) else { return };
        if entry.open.is_some() {
            return;
        }
        if let Some(until) = entry.retry.until.filter(|until| *until > self.now) {
            self.wake_at(until, Alarm::Workload(key.clone()));
            return;
        }
        if entry.decision.is_some() {
            return self.carry_out(key);
        }
        if self.ends(key) {
            return;
        }
        if is(self.world.workloads[key].status(), Type::Finished) {
            return self.retain(key);
        }
        if self.sync_priority(key) || self.sync_activity(key) {
            return;
        }
        let entry = &self.world.workloads[key];
        if reserved(entry.status()) {
            self.reconcile_reserved(key);
        } else if object_is_idle(&entry.object) {
            self.reconcile_pending(key);
        }
        if let Some(job) = self.world.workloads.get(key).and_then(|e| self.world.job_of(e)) {
            self.dirty.jobs.insert(job);
        }
    }

    /// Handles a Workload that goes, or whose owner went; says whether that is all there is to do.
    fn ends(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let object = &entry.object;
        let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
        let held = finalizers.iter().any(|f| f == labels::RESOURCE_IN_USE_FINALIZER);
        let orphan = object.metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
        let ours = object.metadata.labels.as_ref().is_some_and(|l| l.contains_key(labels::JOB_UID));
        if object.metadata.deletion_timestamp.is_some() {
            if held && self.job_is_gone(object) {
                self.drop_finalizer(key);
                return true;
            }
            // Its job stops first; whatever it still holds stays accounted for until then.
            return self.world.job_of(entry).is_none();
        }
        if orphan && ours && self.config.on(Gate::FinishOrphanedWorkloads) {
            if !is(entry.status(), Type::Finished) {
                let mut next = entry.status().clone();
                let message = "The workload's owner no longer exists";
                transition::finish(&mut next, reason::OWNER_NOT_FOUND, message, self.at(object));
                self.write_status(key, Purpose::Finish, next, Vec::new());
                return true;
            }
            if held {
                self.drop_finalizer(key);
                return true;
            }
        }
        false
    }

    /// Whether nothing is left that could stop the workload's pods or would do so.
    fn job_is_gone(&self, object: &slim::Workload) -> bool {
        let Some(owner) = controller(object) else { return true };
        let Some(kind) = JobKind::from_owner(&owner.api_version, &owner.kind) else { return true };
        if !self.config.frameworks.contains(&kind) {
            return true;
        }
        self.listed.contains(&Kind::Job(kind)) && !self.world.job_by_uid.contains_key(owner.uid.as_str())
    }

    /// Removes a finished Workload whose retention is over.
    fn retain(&mut self, key: &WorkloadKey) {
        let Some(seconds) = self.config.retention_after_finished_seconds else { return };
        let entry = &self.world.workloads[key];
        let Some(since) = conditions::true_since(&entry.status().conditions, Type::Finished.as_str()) else {
            return;
        };
        let until = later(since, seconds);
        if until > self.now {
            return self.wake_at(until, Alarm::Workload(key.clone()));
        }
        let note = "Deleted finished workload due to elapsed retention";
        let uid = entry.uid();
        let told = event(&workload_ref(key), &uid, EventType::Normal, "Deleted", note, REPORTER_WORKLOAD);
        self.delete_workload(key, vec![told]);
    }

    /// Keeps the priority as its WorkloadPriorityClass has it (reference 01, 1.5); says whether it wrote.
    fn sync_priority(&mut self, key: &WorkloadKey) -> bool {
        let object = &self.world.workloads[key].object;
        let class = object.spec.priority_class_ref.as_ref();
        let Some(class) = class.filter(|c| c.kind == super::priority::WORKLOAD_PRIORITY_CLASS) else {
            return false;
        };
        let Some(value) = self.world.workload_priority_classes.get(class.name.as_str()).copied() else {
            return false;
        };
        if object.spec.priority == Some(value) {
            return false;
        }
        let patch = strict_patch(object, json!({"spec": {"priority": value}}));
        self.patch_workload(key, Purpose::UpdateWorkload, patch, Vec::new());
        true
    }

    /// Deactivates, evicts what is deactivated, and lets what is active again be queued; says whether it wrote.
    fn sync_activity(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let (object, status) = (&entry.object, entry.status());
        let at = self.at(object);
        let target = conditions::find(&status.conditions, Type::DeactivationTarget.as_str())
            .filter(|c| c.status == "True")
            .cloned();
        let evicted_for = |prefix: &str| {
            conditions::find(&status.conditions, Type::Evicted.as_str())
                .is_some_and(|c| c.status == "True" && c.reason.starts_with(prefix))
        };
        if object.spec.active {
            if target.is_some() {
                let patch = strict_patch(object, json!({"spec": {"active": false}}));
                self.patch_workload(key, Purpose::Deactivate, patch, Vec::new());
                return true;
            }
            let requeued = conditions::find(&status.conditions, Type::Requeued.as_str());
            let held =
                requeued.is_some_and(|c| c.status == "False" && c.reason.starts_with(reason::DEACTIVATED));
            if held && !reserved(status) {
                let mut next = status.clone();
                transition::requeue(&mut next, reason::REACTIVATED, "The workload was reactivated", at);
                self.write_status(key, Purpose::Requeue, next, Vec::new());
                return true;
            }
            return false;
        }
        if !reserved(status) || evicted_for(reason::DEACTIVATED) {
            return false;
        }
        let mut message = "The workload is deactivated".to_owned();
        let mut cause = String::new();
        if let Some(target) = &target {
            message = format!("{message} due to {}", target.message);
            cause.clone_from(&target.reason);
        }
        let mut next = status.clone();
        next.requeue_state = None;
        transition::forget(&mut next, Type::DeactivationTarget);
        let eviction = Eviction { reason: reason::DEACTIVATED, cause, message, preemption: None };
        self.evict_from(key, next, &eviction, Vec::new());
        true
    }

    /// A Workload that holds quota: checks, stopped queues, timeouts.
    fn reconcile_reserved(&mut self, key: &WorkloadKey) {
        if is(self.world.workloads[key].status(), Type::Evicted) {
            return;
        }
        let _ = self.reconcile_checks(key) || self.reconcile_stop(key) || self.reconcile_deadlines(key);
    }

    /// Two-phase admission (reference 06, 6.10); says whether it wrote.
    fn reconcile_checks(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let (object, mut next) = (&entry.object, entry.status().clone());
        let at = self.at(object);
        let queue =
            next.admission.as_ref().and_then(|a| self.world.cluster_queues.get(a.cluster_queue.as_str()));
        if let Some(queue) = queue {
            let required = required_checks(queue, next.admission.as_ref());
            if transition::sync_checks(&mut next, &required, at) {
                self.write_checks(key, next);
                return true;
            }
        }
        let in_state = |state: CheckState| -> Vec<(&str, &str)> {
            let checks = entry.status().admission_checks.iter().filter(|c| c.state == state);
            checks.map(|c| (c.name.as_str(), c.message.as_str())).collect()
        };
        let rejected = in_state(CheckState::Rejected);
        if !rejected.is_empty() {
            let text = check_text("Rejected", &rejected);
            transition::target_deactivation(&mut next, reason::ADMISSION_CHECK, &text, at);
            let note = format!("Deactivated due to {text}");
            let uid = entry.uid();
            let told = event(
                &workload_ref(key),
                &uid,
                EventType::Warning,
                "AdmissionCheckRejected",
                note,
                REPORTER_WORKLOAD,
            );
            self.write_status(key, Purpose::Deactivate, next, vec![told]);
            return true;
        }
        let retry = in_state(CheckState::Retry);
        if !retry.is_empty() {
            let message = format!("Evicted due to {}", check_text("Retry", &retry));
            raise_requeue_at(&mut next, self.now);
            let eviction =
                Eviction { reason: reason::ADMISSION_CHECK, cause: String::new(), message, preemption: None };
            self.evict_from(key, next, &eviction, Vec::new());
            return true;
        }
        if transition::admit_if_ready(&mut next, at) {
            let then = if is(&next, Type::Admitted) { self.tell_admitted(key, &next) } else { Vec::new() };
            self.write_status(key, Purpose::Admit, next, then);
            return true;
        }
        false
    }

    /// Writes the list of checks: as a patch of the whole list, because dropped ones have other owners too.
    fn write_checks(&mut self, key: &WorkloadKey, next: WorkloadStatus) {
        let entry = &self.world.workloads[key];
        let patch =
            strict_patch(&entry.object, json!({"status": {"admissionChecks": next.admission_checks}}));
        let write = Write::MergePatch { subresource: Some("status"), body: patch };
        let id = self.outbox.write(workload_ref(key), Purpose::SyncChecks, write, Vec::new());
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.open = Some(id);
            entry.assumed = Some(next);
        }
    }

    /// Stopped, terminating and missing queues (reference 06, 6.18); says whether it wrote.
    fn reconcile_stop(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let status = entry.status();
        let Some(queue_name) = status.admission.as_ref().map(|a| a.cluster_queue.as_str()) else {
            return false;
        };
        let cluster = self.world.cluster_queues.get(queue_name);
        let local = self
            .world
            .local_queues
            .get(&(Arc::clone(&key.namespace), entry.object.spec.queue_name.as_str().into()));
        let cluster_stop = cluster.map_or(StopPolicy::None, |q| q.spec.stop_policy);
        let local_stop = local.map_or(StopPolicy::None, |q| q.spec.stop_policy);
        if is(status, Type::Admitted) {
            let (reason, message) = if cluster_stop == StopPolicy::HoldAndDrain {
                (reason::CLUSTER_QUEUE_STOPPED, "The ClusterQueue is stopped")
            } else if local_stop == StopPolicy::HoldAndDrain {
                (reason::LOCAL_QUEUE_STOPPED, "The LocalQueue is stopped")
            } else {
                return false;
            };
            let next = status.clone();
            let eviction =
                Eviction { reason, cause: String::new(), message: message.to_owned(), preemption: None };
            self.evict_from(key, next, &eviction, Vec::new());
            return true;
        }
        let local_name = &entry.object.spec.queue_name;
        let (why, message) = if local.is_none_or(|q| q.metadata.deletion_timestamp.is_some()) {
            (Reason::Misconfigured, format!("LocalQueue {local_name} is terminating or missing"))
        } else if cluster.is_none_or(|q| q.metadata.deletion_timestamp.is_some()) {
            (Reason::Misconfigured, format!("ClusterQueue {queue_name} is terminating or missing"))
        } else if cluster_stop != StopPolicy::None {
            (Reason::Suspended, format!("ClusterQueue {queue_name} is stopped"))
        } else if local_stop != StopPolicy::None {
            (Reason::Suspended, format!("LocalQueue {local_name} is stopped"))
        } else {
            return false;
        };
        let at = self.at(&entry.object);
        let mut next = status.clone();
        let reason = if at.granular { why.as_str() } else { why.legacy() };
        transition::unreserve(&mut next, reason, &message, at);
        self.write_status(key, Purpose::ReleaseQuota, next, Vec::new());
        true
    }

    /// A Workload that waits: what keeps it from being looked at, and what lets it be queued again.
    fn reconcile_pending(&mut self, key: &WorkloadKey) {
        if self.reconcile_requeue(key) {
            return;
        }
        let trouble = self.trouble(key);
        let entry = &self.world.workloads[key];
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
                return;
            }
            let told = self.tell_trouble(key, why, &message);
            self.write_status(key, Purpose::Pend, next, told);
            return;
        }
        let Some(condition) = condition else { return };
        let outdated =
            [reason::MISCONFIGURED, reason::SUSPENDED, reason::DEACTIVATED, reason::ADMISSION_GATED];
        if !outdated.contains(&condition.reason.as_str()) {
            return;
        }
        let gate_cleared = condition.reason == reason::ADMISSION_GATED;
        let message = if gate_cleared {
            "AdmissionGatedBy cleared, waiting for quota reservation"
        } else {
            "Workload is pending evaluation in the scheduling queue"
        };
        transition::pend(&mut next, Reason::PendingEvaluation, message, &[], at);
        let then = if gate_cleared {
            let note = "Admission gate cleared, workload is now admissible";
            let uid = entry.uid();
            vec![event(
                &workload_ref(key),
                &uid,
                EventType::Normal,
                "AdmissionGateCleared",
                note,
                REPORTER_WORKLOAD,
            )]
        } else {
            Vec::new()
        };
        self.write_status(key, Purpose::Pend, next, then);
    }

    fn tell_trouble(&self, key: &WorkloadKey, why: Reason, message: &str) -> Vec<Effect> {
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
            event(&workload_ref(key), &uid, type_, reason, note, REPORTER_WORKLOAD),
            log(
                crate::effect::Level::Info,
                "workload waits",
                &[("workload", key), ("reason", &reason), ("message", &message)],
            ),
        ]
    }

    /// What keeps a waiting Workload from being looked at at all: the first of the reference's list.
    fn trouble(&self, key: &WorkloadKey) -> Option<(Reason, String)> {
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
        if let (_, Some(invalid)) = ingested::pod_sets(object, entry.status(), around, &self.config) {
            return Some((Reason::Misconfigured, invalid));
        }
        admission_gates(object, &self.config)
            .map(|gates| (Reason::AdmissionGated, format!("Admission is gated by: {gates}")))
    }

    /// Whether a ClusterQueue selects a namespace.
    fn selects(&self, queue: &ClusterQueue, namespace: &Name) -> bool {
        let selector = queue.spec.namespace_selector.as_ref().and_then(selector);
        let namespace = self.world.namespaces.get(namespace);
        match (selector, namespace) {
            (Some(selector), Some(namespace)) => {
                scheduling::matches(&selector, &namespace.metadata.labels.clone().unwrap_or_default())
            }
            _ => false,
        }
    }

    /// Turns `Requeued` true when what held it back is over (reference 06, 6.17); says whether it wrote.
    fn reconcile_requeue(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let (object, status) = (&entry.object, entry.status());
        let requeued = conditions::find(&status.conditions, Type::Requeued.as_str());
        let Some(held) = requeued.filter(|c| c.status == "False").map(|c| c.reason.clone()) else {
            return false;
        };
        let (why, message) = match held.as_str() {
            reason::PODS_READY_TIMEOUT | reason::ADMISSION_CHECK => {
                let until = status.requeue_state.as_ref().and_then(|r| r.requeue_at.as_ref()).map(|t| t.0);
                if let Some(until) = until.filter(|until| *until > self.now) {
                    self.wake_at(until, Alarm::Workload(key.clone()));
                    return false;
                }
                (reason::BACKOFF_FINISHED, "The workload backoff was finished")
            }
            reason::CLUSTER_QUEUE_STOPPED => {
                let queue = self.world.cluster_queue_of(key, object);
                let queue = queue.and_then(|q| self.world.cluster_queues.get(&q));
                if queue.is_none_or(|q| q.spec.stop_policy != StopPolicy::None) {
                    return false;
                }
                (reason::CLUSTER_QUEUE_RESTARTED, "The ClusterQueue was restarted after being stopped")
            }
            reason::LOCAL_QUEUE_STOPPED => {
                let queue = self.world.local_queues.get(&crate::world::World::queue_of(key, object));
                if queue.is_none_or(|q| q.spec.stop_policy != StopPolicy::None) {
                    return false;
                }
                (reason::LOCAL_QUEUE_RESTARTED, "The LocalQueue was restarted after being stopped")
            }
            _ => return false,
        };
        let mut next = status.clone();
        transition::requeue(&mut next, why, message, self.at(object));
        self.write_status(key, Purpose::Requeue, next, Vec::new());
        true
    }

    /// Writes an eviction on top of a status.
    pub(crate) fn evict_from(
        &mut self,
        key: &WorkloadKey,
        mut next: WorkloadStatus,
        eviction: &Eviction,
        more: Vec<Effect>,
    ) {
        let entry = &self.world.workloads[key];
        let at = self.at(&entry.object);
        let first = transition::evict(&mut next, eviction, at);
        let mut then = self.tell_evicted(key, &next, eviction, first);
        then.extend(more);
        self.write_status(key, Purpose::Evict, next, then);
    }

    fn tell_evicted(
        &self,
        key: &WorkloadKey,
        next: &WorkloadStatus,
        eviction: &Eviction,
        first: bool,
    ) -> Vec<Effect> {
        let entry = &self.world.workloads[key];
        let why = eviction.condition_reason();
        let queue = next.admission.as_ref().map(|a| a.cluster_queue.as_str()).unwrap_or_default();
        let class = metrics::priority_class(&entry.object);
        let labels = [queue, eviction.reason, &eviction.cause, class];
        let mut name = format!("EvictedDueTo{why}");
        if eviction.reason != reason::DEACTIVATED && !eviction.cause.is_empty() {
            name = format!("{name}DueTo{}", eviction.cause);
        }
        let uid = entry.uid();
        let mut then = vec![
            event(
                &workload_ref(key),
                &uid,
                EventType::Normal,
                name,
                eviction.message.clone(),
                REPORTER_WORKLOAD,
            ),
            observe(metrics::EVICTED_WORKLOADS_TOTAL, &labels, 1.0),
            log(
                crate::effect::Level::Info,
                "workload evicted",
                &[("workload", key), ("queue", &queue), ("reason", &why), ("message", &eviction.message)],
            ),
        ];
        if self.config.local_queue_metrics {
            let local =
                [&entry.object.spec.queue_name, &*key.namespace, eviction.reason, &eviction.cause, class];
            then.push(observe(metrics::LOCAL_QUEUE_EVICTED_WORKLOADS_TOTAL, &local, 1.0));
        }
        if first {
            then.push(observe(metrics::EVICTED_WORKLOADS_ONCE_TOTAL, &labels, 1.0));
        }
        if let Some(since) = conditions::true_since(&next.conditions, Type::PodsReady.as_str()) {
            let seconds = metrics::seconds_between(since, self.now);
            let labels = [queue, eviction.reason, &eviction.cause];
            then.push(observe(metrics::PODS_READY_TO_EVICTED_TIME_SECONDS, &labels, seconds));
        }
        then
    }

    /// Applies the status that admission owns.
    pub(crate) fn write_status(
        &mut self,
        key: &WorkloadKey,
        purpose: Purpose,
        next: WorkloadStatus,
        then: Vec<Effect>,
    ) {
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        let body = body::admission_status(&entry.object, &next);
        let write = Write::Apply { subresource: Some("status"), field_manager: body::ADMISSION, body };
        let id = self.outbox.write(workload_ref(key), purpose, write, then);
        entry.open = Some(id);
        entry.assumed = Some(next);
    }

    /// Applies a part of the status under a manager of its own.
    pub(crate) fn write_part(
        &mut self,
        key: &WorkloadKey,
        purpose: Purpose,
        field_manager: &'static str,
        next: WorkloadStatus,
        then: Vec<Effect>,
    ) {
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        let body = match purpose {
            Purpose::Reclaim => body::reclaimable_pods(&entry.object, &next),
            _ => body::pods_ready(&entry.object, &next),
        };
        let write = Write::Apply { subresource: Some("status"), field_manager, body };
        let id = self.outbox.write(workload_ref(key), purpose, write, then);
        entry.open = Some(id);
        entry.assumed = Some(next);
    }

    /// Patches the Workload itself.
    pub(crate) fn patch_workload(
        &mut self,
        key: &WorkloadKey,
        purpose: Purpose,
        body: serde_json::Value,
        then: Vec<Effect>,
    ) {
        let write = Write::MergePatch { subresource: None, body };
        let id = self.outbox.write(workload_ref(key), purpose, write, then);
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.open = Some(id);
        }
    }

    /// Takes our finalizer off a Workload, if it is on it and nothing else is under way.
    pub(crate) fn drop_finalizer(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        if entry.open.is_some() || entry.retry.waits(self.now) {
            return;
        }
        let finalizers = entry.object.metadata.finalizers.clone().unwrap_or_default();
        let rest: Vec<_> = finalizers.iter().filter(|f| *f != labels::RESOURCE_IN_USE_FINALIZER).collect();
        if rest.len() == finalizers.len() {
            return;
        }
        let body = strict_patch(&entry.object, json!({"metadata": {"finalizers": rest}}));
        self.patch_workload(key, Purpose::Finalizer, body, Vec::new());
    }

    /// Removes a Workload: its finalizer first, then itself.
    pub(crate) fn delete_workload(&mut self, key: &WorkloadKey, then: Vec<Effect>) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        if entry.open.is_some() || entry.retry.waits(self.now) {
            return;
        }
        let held =
            entry.object.metadata.finalizers.iter().flatten().any(|f| f == labels::RESOURCE_IN_USE_FINALIZER);
        if held {
            return self.drop_finalizer(key);
        }
        if entry.object.metadata.deletion_timestamp.is_some() {
            return;
        }
        let write = Write::Delete { uid: Some(entry.uid()) };
        let id = self.outbox.write(workload_ref(key), Purpose::DeleteWorkload, write, then);
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.open = Some(id);
        }
    }
}

/// Whether a Workload that waits is to be told why: not while it is being deleted.
fn object_is_idle(object: &slim::Workload) -> bool {
    object.metadata.deletion_timestamp.is_none()
}

/// `seconds` after `since`.
pub(crate) fn later(since: Timestamp, seconds: i64) -> Timestamp {
    since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// The message about a namespace that the queue does not select, with the remedy where there is a plain one.
pub(crate) fn namespace_message(queue: &ClusterQueue) -> String {
    let remedy = if queue.spec.namespace_selector.is_none() { NO_SELECTOR } else { "" };
    format!("workload namespace doesn't match ClusterQueue selector{remedy}")
}

/// The checks that apply (reference 06, 6.10): with an admission, those whose flavors it uses; without, those that stand
/// before every flavor.
pub(crate) fn required_checks(queue: &ClusterQueue, admission: Option<&Admission>) -> Vec<Name> {
    let rules =
        queue.spec.admission_checks_strategy.as_ref().map(|s| &s.admission_checks[..]).unwrap_or_default();
    let all = || queue.spec.resource_groups.iter().flat_map(|g| g.flavors.iter().map(|f| &f.name));
    let used = |flavor: &String| {
        admission
            .is_some_and(|a| a.pod_set_assignments.iter().any(|p| p.flavors.values().any(|f| f == flavor)))
    };
    let mut names: Vec<_> = rules
        .iter()
        .filter(|rule| match (admission, rule.on_flavors.is_empty()) {
            (_, true) => true,
            (Some(_), false) => rule.on_flavors.iter().any(used),
            (None, false) => all().all(|f| rule.on_flavors.contains(f)),
        })
        .map(|rule| ingest::name(&rule.name))
        .collect();
    names.sort_unstable();
    names
}

/// The text about checks in one state (reference 03, 3.1).
fn check_text(state: &str, checks: &[(&str, &str)]) -> String {
    let list: Vec<_> = checks.iter().map(|(name, message)| format!("\"{name}\" ({message})")).collect();
    let plural = if checks.len() == 1 { "" } else { "s" };
    format!("AdmissionCheck{plural} in {state} state: {}", list.join("; "))
}

/// The latest end of the delays that checks in state Retry ask for (reference 06, 6.10).
fn raise_requeue_at(status: &mut WorkloadStatus, now: Timestamp) {
    let retrying = status.admission_checks.iter().filter(|c| c.state == CheckState::Retry);
    let ends = retrying
        .filter_map(|c| c.requeue_after_seconds.map(|s| later(c.last_transition_time.0, i64::from(s))));
    let Some(end) = ends.max().filter(|end| *end > now) else { return };
    let state = status.requeue_state.get_or_insert_default();
    if state.requeue_at.as_ref().is_none_or(|at| at.0 < end) {
        state.requeue_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(end));
    }
}
