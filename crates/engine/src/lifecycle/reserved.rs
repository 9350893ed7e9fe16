//! A Workload that holds quota: admission checks, and queues that stop or are deleted (docs/reference/06-algorithm.md 6.10 and 6.18).

use jiff::Timestamp;
use serde_json::json;
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_api::v1beta2::{Admission, CheckState, ClusterQueue, StopPolicy, WorkloadStatus};
use sluice_core::{Name, Reason, WorkloadKey};

use super::body::strict_patch;
use super::pending::MOST_CHECKS;
use super::transition::{self, Eviction};
use super::workload::later;
use crate::effect::{Effect, Level, Purpose, Write};
use crate::engine::Engine;
use crate::ingest;
use crate::ingest::workload::{is, reserved};
use crate::outbox::{About, warning};
use crate::world::{JobKey, World, workload_ref};

/// The message of a Workload whose reservation came late and does not fit.
const REVOKED: &str = "Quota was reserved by a former leader, and other Workloads hold that quota now";

impl Engine {
    /// A Workload that holds quota: checks, stopped queues, timeouts.
    pub(super) fn reconcile_reserved(&mut self, key: &WorkloadKey) {
        if self.end_left_out(key) {
            return;
        }
        if is(self.world.workloads[key].status(), Type::Evicted) {
            self.end_backoff(key);
            return;
        }
        // No nodes are requested, and nothing is admitted, in a queue that stopped while its checks were asked, also if it needs none of them any more.
        // A reservation that another client made without any is respected wherever it is.
        let stopped = self.why_not_here(key);
        let admits = stopped.is_none() || self.waits_for_no_check(key);
        let _ = self.revoke_reservation(key)
            || stopped.is_none() && self.reconcile_provisioning(key)
            || if admits { self.reconcile_checks(key) } else { self.apply_check_states(key) }
            || self.reconcile_stop(key, stopped)
            || self.reconcile_nodes(key)
            || self.reconcile_deadlines(key);
    }

    /// Whether a Workload holds quota that it did not hold before, and that is not our own write in progress. (No other replica can have reserved for
    /// a Workload created since we lead.)
    pub(crate) fn is_foreign_reservation(&self, key: &WorkloadKey, workload: &slim::Workload) -> bool {
        if !self.decides() || !reserved(&workload.status) {
            return false;
        }
        let Some(entry) = self.world.workloads.get(key) else { return false };
        let reserving = entry.open.and_then(|id| self.outbox.purpose(id)) == Some(Purpose::ReserveQuota);
        let same = entry.object.metadata.uid == workload.metadata.uid;
        same && !reserving && !entry.uncertain && !reserved(&entry.object.status)
    }

    /// A write in progress of a former leader may reserve quota late, after we gave the same quota to another Workload: there is no version that both
    /// writes depend on. Such a reservation counts from when it is seen, and is revoked before its job starts if it does not fit beside what we have
    /// given since it was made, and would fit without that. A reservation that does not fit for another reason stays: other clients may reserve
    /// beyond the quota. Running work stays. Returns whether it is or will be revoked.
    pub(super) fn revoke_reservation(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        if !self.config.scheduling || !entry.unchecked || !reserved(entry.status()) {
            return false;
        }
        if entry.uncertain {
            // It is read first.
            return true;
        }
        let job = self.world.job_of(entry).and_then(|job| self.world.jobs.get(&job));
        let unused = self.is_unused_slice(key);
        let Some(job) = job.filter(|job| job.view.suspended || unused) else { return false };
        let stops = !unused && (job.view.active || job.open.is_some());
        if !self.was_overtaken(key) {
            if let Some(entry) = self.world.workloads.get_mut(key) {
                entry.unchecked = false;
            }
            return false;
        }
        if !stops {
            let entry = &self.world.workloads[key];
            let queue = entry.status().admission.as_ref().map(|a| a.cluster_queue.clone());
            let reported = self.log(
                Level::Warn,
                "late reservation revoked",
                &[("workload", key), ("queue", &queue.unwrap_or_default())],
            );
            self.end_reservation(key, Reason::WaitingForQuota, REVOKED, vec![reported]);
        }
        true
    }

    /// Whether a reservation exceeds the quota because we gave that to others since it was made.
    fn was_overtaken(&mut self, key: &WorkloadKey) -> bool {
        if self.scheduler.fits_its_reservation(key, &[]) {
            return false;
        }
        let status = self.world.workloads[key].status();
        let made = conditions::true_since(&status.conditions, Type::QuotaReserved.as_str());
        let made = made.unwrap_or(Timestamp::MIN);
        let since = |given: Timestamp| conditions::whole_seconds(given) >= made;
        let later = self
            .world
            .workloads
            .iter()
            .filter(|(other, entry)| *other != key && entry.reserved_by_us.is_some_and(since));
        let later: Vec<_> = later.map(|(key, _)| key.clone()).collect();
        self.scheduler.fits_its_reservation(key, &later)
    }

    /// A suspended job that cannot run on its quota, because it names another queue or needs more, gives the quota back once its pods are gone, and
    /// is queued again; returns whether that has to be done first.
    pub(super) fn give_back(&mut self, job: &JobKey, view: &JobView, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        if !reserved(entry.status()) {
            return false;
        }
        let message = if let Some(queue) = view.queue_name.as_ref().filter(|_| self.is_moving(key)) {
            format!("The job was moved to the LocalQueue {queue}")
        } else if !self.is_elastic(view) && needs_more(view, entry.status()) {
            "The job needs more pods than were admitted: pods that had ended are to run again".to_owned()
        } else {
            return false;
        };
        if !self.is_active(job) {
            self.end_reservation(key, Reason::PendingEvaluation, &message, Vec::new());
        }
        true
    }

    /// Takes the reservation of a Workload away that was not evicted.
    fn end_reservation(&mut self, key: &WorkloadKey, why: Reason, message: &str, then: Vec<Effect>) {
        let at = self.at(&self.world.workloads[key].object);
        self.end_reservation_as(key, at.reason(why.as_str(), why.legacy()), message, then);
    }

    /// The same, with a reason that is not one of the scheduler's. What the checks approved was this reservation: the next one may be in another
    /// queue, on another flavor, or of another size.
    pub(super) fn end_reservation_as(
        &mut self,
        key: &WorkloadKey,
        why: &str,
        message: &str,
        then: Vec<Effect>,
    ) {
        let entry = &self.world.workloads[key];
        let (at, mut next) = (self.at(&entry.object), entry.status().clone());
        transition::unreserve(&mut next, why, message, at);
        transition::reset_checks(&mut next, self.now);
        self.write_status(key, Purpose::ReleaseQuota, next, then);
    }

    /// Writes which queue the job of a waiting Workload names now. What checks said since its reservation ended was about the queue before.
    pub(super) fn move_to_queue(&mut self, key: &WorkloadKey, queue: &str) {
        let entry = &self.world.workloads[key];
        let mut next = entry.status().clone();
        transition::reset_checks(&mut next, self.now);
        if next.admission_checks != entry.status().admission_checks {
            return self.write_checks(key, next, Vec::new());
        }
        let body = strict_patch(&entry.object, json!({"spec": {"queueName": queue}}));
        self.patch_workload(key, Purpose::UpdateWorkload, body, Vec::new());
    }

    /// Two-phase admission (docs/reference/06-algorithm.md 6.10); says whether it wrote. What is admitted stays so: a check that is added then, or is
    /// Pending again, can only have it evicted.
    fn reconcile_checks(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let (object, mut next) = (&entry.object, entry.status().clone());
        let at = self.at(object);
        let queue =
            next.admission.as_ref().and_then(|a| self.world.cluster_queues.get(a.cluster_queue.as_str()));
        if let Some(queue) = queue {
            let required = required_checks(queue, next.admission.as_ref());
            if required.len() > MOST_CHECKS {
                // Its status cannot list them. It stays unchanged, and is not admitted without them.
                return self.apply_check_states(key);
            }
            if transition::sync_checks(&mut next, &required, at) {
                self.write_checks(key, next, Vec::new());
                return true;
            }
        }
        if self.apply_check_states(key) {
            return true;
        }
        if !is(&next, Type::Admitted) && transition::admit_if_ready(&mut next, at) {
            self.carry_time_over(key, &mut next);
            let then =
                if is(&next, Type::Admitted) { self.report_admitted(key, &next, None) } else { Vec::new() };
            self.write_status(key, Purpose::Admit, next, then);
            return true;
        }
        false
    }

    /// Deactivates a Workload that a check rejects, and evicts one that a check wants to retry, also one that waits: a late answer of a check would
    /// keep it out of its queue for good. Returns whether it wrote.
    pub(super) fn apply_check_states(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        if !entry.object.spec.active {
            // It is evicted already.
            return false;
        }
        let in_state = |state: CheckState| -> Vec<(&str, &str)> {
            let checks = entry.status().admission_checks.iter().filter(|c| c.state == state);
            checks.map(|c| (c.name.as_str(), c.message.as_str())).collect()
        };
        let (rejected, retry) = (in_state(CheckState::Rejected), in_state(CheckState::Retry));
        if rejected.is_empty() && retry.is_empty() {
            return false;
        }
        let mut next = entry.status().clone();
        if !rejected.is_empty() {
            let at = self.at(&entry.object);
            let text = check_text("Rejected", &rejected);
            transition::target_deactivation(&mut next, reason::ADMISSION_CHECK, &text, at);
            let note = format!("Deactivated due to {text}");
            let uid = entry.uid();
            let reported = warning(About::workload(key, &uid), "AdmissionCheckRejected", note);
            self.write_status(key, Purpose::Deactivate, next, vec![reported]);
            return true;
        }
        let message = format!("Evicted due to {}", check_text("Retry", &retry));
        raise_requeue_at(&mut next, self.now);
        let eviction =
            Eviction { reason: reason::ADMISSION_CHECK, cause: String::new(), message, preemption: None };
        self.evict_from(key, next, &eviction);
        true
    }

    /// Writes the list of checks: as a patch of the whole list, because dropped ones have other owners too.
    pub(crate) fn write_checks(&mut self, key: &WorkloadKey, next: WorkloadStatus, then: Vec<Effect>) {
        let entry = &self.world.workloads[key];
        let patch =
            strict_patch(&entry.object, json!({"status": {"admissionChecks": next.admission_checks}}));
        let write = Write::MergePatch { subresource: Some("status"), body: patch };
        let id = self.outbox.write(workload_ref(key), Purpose::SyncChecks, write, then);
        self.world.assume(key, id, next);
    }

    /// Whether a Workload has no checks, so that its reservation and its admission are one decision.
    fn waits_for_no_check(&self, key: &WorkloadKey) -> bool {
        self.world.workloads[key].status().admission_checks.is_empty()
    }

    /// Why a Workload that is not admitted loses its reservation: a queue that is stopped, terminating or missing (docs/reference/06-algorithm.md 6.18).
    fn why_not_here(&self, key: &WorkloadKey) -> Option<(Reason, String)> {
        let entry = &self.world.workloads[key];
        if is(entry.status(), Type::Admitted) {
            return None;
        }
        let queue_name = entry.status().admission.as_ref()?.cluster_queue.as_str();
        let cluster = self.world.cluster_queues.get(queue_name);
        let local = self.world.local_queues.get(&World::queue_of(key, &entry.object));
        let local_name = &entry.object.spec.queue_name;
        if local.is_none_or(|q| q.metadata.deletion_timestamp.is_some()) {
            let message = format!("LocalQueue {local_name} is terminating or missing");
            return Some((Reason::Misconfigured, message));
        }
        if cluster.is_none_or(|q| q.metadata.deletion_timestamp.is_some()) {
            let message = format!("ClusterQueue {queue_name} is terminating or missing");
            return Some((Reason::Misconfigured, message));
        }
        if cluster.is_some_and(|q| q.spec.stop_policy != StopPolicy::None) {
            return Some((Reason::Suspended, format!("ClusterQueue {queue_name} is stopped")));
        }
        let stopped = local.is_some_and(|q| q.spec.stop_policy != StopPolicy::None);
        stopped.then(|| (Reason::Suspended, format!("LocalQueue {local_name} is stopped")))
    }

    /// Takes the reservation away for that reason, or evicts what runs in a queue that is drained (docs/reference/06-algorithm.md 6.18); says whether
    /// it wrote.
    fn reconcile_stop(&mut self, key: &WorkloadKey, stopped: Option<(Reason, String)>) -> bool {
        if let Some((why, message)) = stopped {
            self.end_reservation(key, why, &message, Vec::new());
            return true;
        }
        let entry = &self.world.workloads[key];
        let status = entry.status();
        let Some(admission) = status.admission.as_ref().filter(|_| is(status, Type::Admitted)) else {
            return false;
        };
        let cluster = self.world.cluster_queues.get(admission.cluster_queue.as_str());
        let local = self.world.local_queues.get(&World::queue_of(key, &entry.object));
        let (reason, message) = if cluster.is_some_and(|q| q.spec.stop_policy == StopPolicy::HoldAndDrain) {
            (reason::CLUSTER_QUEUE_STOPPED, "The ClusterQueue is stopped")
        } else if local.is_some_and(|q| q.spec.stop_policy == StopPolicy::HoldAndDrain) {
            (reason::LOCAL_QUEUE_STOPPED, "The LocalQueue is stopped")
        } else {
            return false;
        };
        let next = status.clone();
        let eviction =
            Eviction { reason, cause: String::new(), message: message.to_owned(), preemption: None };
        self.evict_from(key, next, &eviction);
        true
    }
}

/// Whether a job needs more pods than were admitted although it requests no more, for example because some had ended when they were counted.
fn needs_more(view: &JobView, status: &WorkloadStatus) -> bool {
    let assignments = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    view.pod_sets.iter().zip(assignments).any(|(set, assignment)| {
        let ended =
            view.reclaimable.iter().find(|(name, _)| *name == set.name).map_or(0, |(_, ended)| *ended);
        let needed = set.count.saturating_sub(ended);
        let least = set.min_count.map_or(needed, |least| least.min(needed));
        assignment.count.is_some_and(|admitted| admitted < least)
    })
}

/// The checks that apply (docs/reference/06-algorithm.md 6.10): with an admission, those of its flavors; without, those that apply to every flavor.
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

/// The text about checks in one state (docs/reference/03-conditions-events.md 3.1).
fn check_text(state: &str, checks: &[(&str, &str)]) -> String {
    let said = |message: &str| if message.is_empty() { String::new() } else { format!(" ({message})") };
    let list: Vec<_> = checks.iter().map(|(name, message)| format!("\"{name}\"{}", said(message))).collect();
    let plural = if checks.len() == 1 { "" } else { "s" };
    format!("AdmissionCheck{plural} in {state} state: {}", list.join("; "))
}

/// The latest end of the delays that checks in state Retry ask for (docs/reference/06-algorithm.md 6.10).
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
