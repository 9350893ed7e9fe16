//! What a Workload needs next, apart from its job (docs/reference/03-conditions-events.md 3.1 precedence; docs/reference/06-algorithm.md
//! 6.10, 6.17–6.19).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_api::{labels, slim};
use sluice_core::{TopologyState, WorkloadKey, WorkloadState};

use super::body::strict_patch;
use super::transition::{self, Eviction, TransitionContext};
use crate::aside::state::Aside;
use crate::config::Part;
use crate::effect::Purpose;
use crate::engine::{Alarm, Engine};
use crate::ingest::time;
use crate::ingest::workload::{self as ingested, is, reserved};
use crate::input::Kind;
use crate::retry::Retry;
use crate::world::{Decision, WorkloadEntry, controller, is_of_group};

impl Engine {
    /// The time and the generation of a transition now.
    pub(crate) fn at(&self, object: &slim::Workload) -> TransitionContext {
        TransitionContext {
            now: self.now,
            generation: object.metadata.generation.unwrap_or(0),
            granular: self.config.on(Gate::UnadmittedWorkloadsObservability),
            by_hostname_prefix: self.config.on(Gate::TASAssignmentsEncodingByHostnamePrefix),
        }
    }

    /// Passes a Workload to the core as it is written; what the core itself assumed stays. The usages of the slices of one job depend on each other.
    pub(crate) fn sync_core(&mut self, key: &WorkloadKey) {
        self.sync_alone(key);
        for other in self.replacing(key).into_iter().chain(self.replaced_by(key)) {
            self.sync_alone(&other);
        }
    }

    /// The core forgets what it assumed of a reservation.
    pub(crate) fn reservation_failed(&mut self, key: &WorkloadKey) {
        self.scheduler.admission_failed(key, time(self.now));
        if let Some(old) = self.replaced_by(key) {
            self.sync_alone(&old);
        }
    }

    fn sync_alone(&mut self, key: &WorkloadKey) {
        let Some((kept, entry)) = self.world.workloads.get_key_value(key) else { return };
        let placing = matches!(entry.decision.as_deref(), Some(Decision::Place(..)))
            || entry.open.and_then(|id| self.outbox.purpose(id)) == Some(Purpose::Place);
        if is_being_reserved(entry) || placing && can_be_placed(&entry.object) {
            return;
        }
        if is(&entry.object.status, Type::Finished) {
            // It holds and requests nothing: the core does not have to know it.
            if self.scheduler.drop_workload(key) {
                self.request_cycle();
            }
            return self.nodes_of_workload_changed(key);
        }
        let around = self.world.around(&key.namespace, &self.config);
        let mut spec =
            ingested::spec(kept, &entry.object, &entry.object.status, &entry.nodes, around, &self.config);
        spec.replaces = self.replaced_slice(key);
        let left_out = self.left_out(entry).is_some();
        if !entry.object.spec.active && !left_out && self.job_is_gone(entry) && !self.left.waits(key) {
            // It runs nothing, and no job will give its quota back.
            spec.state = WorkloadState::Inactive;
        }
        // Nothing would start a job that is left out.
        if matches!(spec.state, WorkloadState::Pending { .. }) && (left_out || self.is_moving(key)) {
            spec.state = WorkloadState::Inactive;
        }
        match &mut spec.state {
            WorkloadState::Reserved { evicted, admission, topology, .. } => {
                if !self.topology.knows_nodes() {
                    // No nodes are looked for before all nodes are known.
                    *topology = TopologyState { pinned: topology.pinned, ..TopologyState::default() };
                }
                topology.pinned = topology.pinned && !self.waits_for_places(key);
                if !topology.unhealthy_nodes.is_empty() {
                    topology.slice_moves = self.slice_moves(key);
                }
                self.leave_to_others(key, admission);
                *evicted |= is(entry.status(), Type::Evicted)
                    || matches!(entry.decision.as_deref(), Some(Decision::Evict(..)));
                topology.eviction_refused = *evicted && self.eviction_is_refused(entry);
            }
            WorkloadState::Pending { requeue_at, keeps_place, invalid, .. } => {
                *invalid = invalid.take().or_else(|| self.too_many_checks(key));
                let pause = entry.retry.until().filter(|_| entry.retry.waits(self.now)).map(time);
                // It gets nothing that cannot be written; nor does, for that reason, another one before it.
                let backoff = requeue_at.filter(|at| *at > time(self.now));
                // Nor does one whose status is being corrected, for as long as the answer takes.
                let corrected = self.too_few_pods_until(key).map(time);
                *keeps_place = (pause.is_some() || corrected.is_some()) && backoff.is_none();
                *requeue_at = (*requeue_at).max(pause).max(corrected);
            }
            WorkloadState::Inactive => {}
        }
        if self.scheduler.put_workload(spec, time(self.now)) {
            self.request_cycle();
        }
        self.nodes_of_workload_changed(key);
    }

    /// Whether the API server refuses, and not just for a moment, a write without which a Workload does not give its nodes back. It counts as refused
    /// until the write is tried again.
    fn eviction_is_refused(&self, entry: &WorkloadEntry) -> bool {
        let refused = |retry: &Retry| retry.is_refused() && retry.waits(self.now);
        let key = self.world.job_of(entry);
        let job = key.as_ref().and_then(|key| self.world.jobs.get(key));
        let pods = key.as_ref().and_then(|key| self.world.pod_jobs.get(key));
        refused(&entry.retry)
            || job.is_some_and(|job| job.stop_failed && refused(&job.retry))
            || pods.is_some_and(|pods| pods.fares.values().any(|fare| refused(&fare.retry)))
    }

    /// Whether the job of a Workload names another queue: it is admitted there after its move, not before.
    pub(super) fn is_moving(&self, key: &WorkloadKey) -> bool {
        let Some(entry) = self.world.workloads.get(key) else { return false };
        let job = self.world.job_of(entry).and_then(|job| self.world.jobs.get(&job));
        let queue = job.and_then(|job| job.view.queue_name.as_deref());
        queue.is_some_and(|queue| *queue != *entry.object.spec.queue_name)
    }

    /// Does the next thing that a Workload needs.
    pub(crate) fn reconcile_workload(&mut self, key: &WorkloadKey) {
        self.sync_core(key);
        if !self.decides() {
            return;
        }
        self.mark_aside(key);
        let Some(entry) = self.world.workloads.get(key) else { return };
        if entry.open.is_some() || self.is_starting(key) {
            return;
        }
        if let Some(until) = entry.retry.until().filter(|until| *until > self.now) {
            self.wake_at(until, Alarm::Workload(key.clone()));
            return;
        }
        if entry.uncertain {
            return self.look_again(key);
        }
        self.forget_failed_decision(key);
        if self.world.workloads[key].decision.is_some() {
            return self.carry_out(key);
        }
        self.report_owed(key);
        self.sweep_requests(key);
        if !self.config.runs(Part::Workload) {
            return self.reconcile_for_others(key);
        }
        if self.ends(key) {
            return;
        }
        if is(self.world.workloads[key].status(), Type::Finished) {
            return self.reconcile_finished(key);
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

    /// The work of other parts on a Workload that another controller maintains: the scheduler reports why it waits, and revokes late reservations;
    /// nodes are requested; its job is reconciled.
    fn reconcile_for_others(&mut self, key: &WorkloadKey) {
        let entry = &self.world.workloads[key];
        if is(entry.status(), Type::Finished) || entry.object.metadata.deletion_timestamp.is_some() {
            return;
        }
        if reserved(entry.status()) {
            let _ = is(entry.status(), Type::Evicted)
                || self.revoke_reservation(key)
                || self.reconcile_provisioning(key);
        } else {
            self.report_pending(key);
        }
        if let Some(job) = self.world.workloads.get(key).and_then(|e| self.world.job_of(e)) {
            self.dirty.jobs.insert(job);
        }
    }

    /// Handles a Workload that is being deleted, or whose owner was deleted; returns whether nothing else is to be done.
    fn ends(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let object = &entry.object;
        let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
        let held = finalizers.iter().any(|f| f == labels::RESOURCE_IN_USE_FINALIZER);
        let orphan = object.metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
        let ours = object.metadata.labels.as_ref().is_some_and(|l| l.contains_key(labels::JOB_UID));
        if object.metadata.deletion_timestamp.is_some() {
            if held && self.job_is_gone(entry) && !self.is_cleaned_up_after(entry) {
                let unfinished = !is(entry.status(), Type::Finished);
                let runs = self.left_out(entry).is_some_and(Aside::goes_on);
                // Pods that terminate still use its quota.
                if runs || self.leftovers_are_active(key) || self.keeps_for_left(key) {
                    return true;
                }
                if orphan && unfinished {
                    self.finish_orphan(key);
                } else {
                    self.drop_finalizer(key);
                }
                return true;
            }
            // Its job stops first; whatever it still holds stays accounted for until then.
            return self.world.job_of(entry).is_none();
        }
        // An existing job adopts its Workload again.
        let lost = self.world.job_of(entry).is_none();
        if orphan && ours && lost && self.config.on(Gate::FinishOrphanedWorkloads) {
            if !is(entry.status(), Type::Finished) {
                if !self.keeps_for_left(key) {
                    self.finish_orphan(key);
                }
                return true;
            }
            if held {
                self.drop_finalizer(key);
                return true;
            }
        }
        false
    }

    /// No controller reports any more how a Workload without an owner ended (docs/reference/06-algorithm.md 6.19 "Orphans").
    fn finish_orphan(&mut self, key: &WorkloadKey) {
        let entry = &self.world.workloads[key];
        let mut next = entry.status().clone();
        let message = "The workload's owner no longer exists";
        transition::finish(&mut next, reason::OWNER_NOT_FOUND, message, self.at(&entry.object));
        self.write_status(key, Purpose::Finish, next, Vec::new());
    }

    /// Whether nothing is known any more that would stop the workload's pods.
    pub(super) fn job_is_gone(&self, entry: &WorkloadEntry) -> bool {
        if self.world.job_of(entry).is_some() {
            return false;
        }
        let object = &entry.object;
        if is_of_group(object) {
            let kind = JobKind::of_pods();
            return !self.config.frameworks.contains(&kind) || self.listed.contains(&Kind::Job(kind));
        }
        let Some(owner) = controller(object) else { return true };
        let Some(kind) = JobKind::from_owner(&owner.api_version, &owner.kind) else { return true };
        if !self.config.frameworks.contains(&kind) {
            return true;
        }
        self.listed.contains(&Kind::Job(kind))
    }

    /// Keeps the priority as its WorkloadPriorityClass has it (docs/reference/01-api.md 1.5); says whether it wrote.
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
        let target = conditions::find(&status.conditions, Type::DeactivationTarget.as_str())
            .filter(|c| c.status == "True");
        let (held, evicted) = (held_as_deactivated(status), evicted_as_deactivated(status));
        if !object.spec.active {
            // A target that stays, or that is set once more, is no reason to evict it again and again. One with another reason is, once: it goes, or
            // can be told from a new one when the Workload is active again.
            let names_it =
                |by: &Condition| target.is_none_or(|target| by.reason == deactivated_due_to(&target.reason));
            if evicted.is_some_and(names_it) {
                return self.forget_requeuing(key);
            }
            let target = target.cloned();
            self.evict_deactivated(key, target.as_ref());
            return true;
        }
        // The target that led to its deactivation stays until it is active again if it ran too long, or if another manager owns it, too.
        let carried_out = target.is_some_and(|target| {
            let by = if reserved(status) { evicted } else { held };
            by.is_some_and(|by| by.reason == deactivated_due_to(&target.reason))
        });
        if target.is_some() && !carried_out {
            let patch = strict_patch(object, json!({"spec": {"active": false}}));
            self.patch_workload(key, Purpose::Deactivate, patch, Vec::new());
            return true;
        }
        if held.is_some() && !reserved(status) {
            let kept = target.map(|target| target.reason == reason::MAXIMUM_EXECUTION_TIME_EXCEEDED);
            self.reactivate(key, kept);
            return true;
        }
        false
    }

    /// Evicts a Workload that is not active.
    fn evict_deactivated(&mut self, key: &WorkloadKey, target: Option<&Condition>) {
        let status = self.world.workloads[key].status();
        let mut message = "The workload is deactivated".to_owned();
        let mut cause = String::new();
        if let Some(target) = target {
            message = format!("{message} due to {}", target.message);
            cause.clone_from(&target.reason);
        } else if let Some((due_to, text)) = deactivated_before_release(status) {
            (cause, message) = (due_to.to_owned(), text.to_owned());
        }
        let mut next = status.clone();
        next.requeue_state = None;
        // A Workload that exceeded its maximum execution time keeps that reason until it is active again.
        if !(cause == reason::MAXIMUM_EXECUTION_TIME_EXCEEDED && reserved(status)) {
            transition::forget(&mut next, Type::DeactivationTarget);
        }
        let eviction = Eviction { reason: reason::DEACTIVATED, cause, message, preemption: None };
        self.evict_from(key, next, &eviction);
    }

    /// Queues a Workload again that is active again. `target`: there is still a target of its deactivation, and whether that is its execution time.
    fn reactivate(&mut self, key: &WorkloadKey, target: Option<bool>) {
        let entry = &self.world.workloads[key];
        let mut next = entry.status().clone();
        if target == Some(true) {
            // Its user gives it its time again.
            next.accumulated_past_execution_time_seconds = None;
        }
        transition::forget(&mut next, Type::DeactivationTarget);
        transition::requeue(
            &mut next,
            reason::REACTIVATED,
            "The workload was reactivated",
            self.at(&entry.object),
        );
        // Before it is queued, and given quota that others may have to leave for it.
        self.say_held(key, &mut next);
        // The states of its checks since the deactivation were about the run before.
        transition::reset_checks(&mut next, self.now);
        if target.is_none() {
            return self.write_status(key, Purpose::Requeue, next, Vec::new());
        }
        // In one write, whatever manager owns the target: it would be deactivated again by what is left of it.
        let status = json!({
            "conditions": next.conditions,
            "admissionChecks": next.admission_checks,
            "requeueState": next.requeue_state,
            "accumulatedPastExecutionTimeSeconds": next.accumulated_past_execution_time_seconds,
        });
        self.patch_status(key, Purpose::Requeue, &status, next);
    }
}

/// The condition that keeps a deactivated Workload from being queued.
fn held_as_deactivated(status: &WorkloadStatus) -> Option<&Condition> {
    let requeued = conditions::find(&status.conditions, Type::Requeued.as_str())?;
    (requeued.status == "False" && requeued.reason.starts_with(reason::DEACTIVATED)).then_some(requeued)
}

/// The eviction of a deactivated Workload: one that has not ended, or keeps it from being queued. One before the last reactivation does neither.
pub(super) fn evicted_as_deactivated(status: &WorkloadStatus) -> Option<&Condition> {
    let evicted = conditions::find(&status.conditions, Type::Evicted.as_str())?;
    let lasts = reserved(status) || held_as_deactivated(status).is_some();
    (lasts && evicted.status == "True" && evicted.reason.starts_with(reason::DEACTIVATED)).then_some(evicted)
}

/// Cause and message of the deactivation of a Workload that waited, as Kueue writes it: without `Requeued`, and its target is gone. `QuotaReserved`
/// tells it from one before the last resumption.
fn deactivated_before_release(status: &WorkloadStatus) -> Option<(&str, &str)> {
    let find = |type_: Type| conditions::find(&status.conditions, type_.as_str());
    let waits_for_it = find(Type::QuotaReserved)
        .is_some_and(|waits| waits.status == "False" && waits.reason == reason::DEACTIVATED);
    let evicted = find(Type::Evicted).filter(|evicted| evicted.status == "True" && waits_for_it)?;
    let cause = evicted.reason.strip_prefix(reason::DEACTIVATED)?.strip_prefix("DueTo")?;
    find(Type::Requeued).is_none().then_some((cause, &*evicted.message))
}

/// The reason of the eviction that a target of deactivation led to.
fn deactivated_due_to(target: &str) -> String {
    format!("{}DueTo{target}", reason::DEACTIVATED)
}

/// Whether a Workload was given quota, and it is not known whether that is written.
pub(crate) fn is_being_reserved(entry: &WorkloadEntry) -> bool {
    entry.uncertain
        || matches!(entry.decision.as_deref(), Some(Decision::Reserve { .. }))
        || (entry.assumed.as_deref().is_some_and(reserved) && !reserved(&entry.object.status))
}

/// Whether a Workload can still get other nodes: it holds quota, is active, and continues.
pub(crate) fn can_be_placed(object: &slim::Workload) -> bool {
    let status = &object.status;
    reserved(status)
        && !is(status, Type::Evicted)
        && !is(status, Type::Finished)
        && object.spec.active
        && object.metadata.deletion_timestamp.is_none()
}

/// Whether the reason why a Workload waits is written: not while it is being deleted.
fn object_is_idle(object: &slim::Workload) -> bool {
    object.metadata.deletion_timestamp.is_none()
}

/// `seconds` after `since`.
pub(crate) fn later(since: Timestamp, seconds: i64) -> Timestamp {
    since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use crate::input::{Input, Object};

    fn seen(version: u32, finished: &str) -> Input {
        let condition = json!({"type": "Finished", "status": finished, "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let object = json!({
            "metadata": {"namespace": "ns", "name": "w", "uid": "u", "resourceVersion": version.to_string()},
            "spec": {"queueName": "q"},
            "status": {"conditions": [condition]},
        });
        Input::Applied(Object::Workload(Box::new(serde_json::from_value(object).unwrap())))
    }

    #[test]
    fn the_core_does_not_know_a_finished_workload_but_one_that_is_made_to_continue() {
        let mut engine = Engine::new(EngineConfig::default());
        let key = WorkloadKey::new("ns", "w");
        let mut look = |input| engine.apply(Timestamp::UNIX_EPOCH, input);
        look(Input::Synced);
        look(seen(1, "False"));
        look(seen(2, "True"));
        assert!(!engine.scheduler.drop_workload(&key));
        engine.apply(Timestamp::UNIX_EPOCH, seen(3, "False"));
        assert!(engine.scheduler.drop_workload(&key));
        engine.apply(Timestamp::UNIX_EPOCH, seen(4, "False"));
        engine.cycle_needed = false;
        engine.apply(Timestamp::UNIX_EPOCH, seen(5, "True"));
        assert!(engine.cycle_needed, "what it may have held is free");
        engine.cycle_needed = false;
        engine.apply(Timestamp::UNIX_EPOCH, seen(6, "True"));
        assert!(!engine.cycle_needed, "nothing is new to decide on");
        assert_eq!(engine.audit(), Ok(()));
    }
}
