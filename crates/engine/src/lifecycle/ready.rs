//! Readiness, its deadlines, the longest execution time, and reclaimable pods (docs/reference/06-algorithm.md 6.16 and 6.19).

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use sluice_api::conditions::{self, Wanted, WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::job::JobView;
use sluice_api::v1beta2::{ReclaimablePod, WorkloadStatus};
use sluice_core::WorkloadKey;

use super::body;
use super::transition::{self, Eviction};
use super::workload::later;
use crate::backoff::{Backoff, jittered};
use crate::effect::Purpose;
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::{is, reserved};
use crate::metrics;
use crate::outbox::{About, observe, warning};
use crate::world::WorkloadEntry;

const NOT_READY: &str = "Not all pods are ready or succeeded";
const ALL_READY: &str = "All pods reached readiness and the workload is running";
const FAILED_POD: &str = "At least one pod has failed, waiting for recovery";

/// After how many seconds pod sets are taken off `status.reclaimablePods` again that another client added again.
const TAKEN_AGAIN: i64 = 60;

/// Says that the pods of a Workload are not ready when it is just admitted, or its admission just ended: in the same write.
pub(super) fn ride(known: &WorkloadStatus, next: &mut WorkloadStatus, generation: i64, now: Timestamp) {
    let reported = conditions::find(&next.conditions, Type::PodsReady.as_str()).map(|c| c.reason.as_str());
    let ridden = match (is(known, Type::Admitted), is(next, Type::Admitted)) {
        (false, true) => true,
        // Another scheduler that admitted it may not have said so.
        (true, true) => reported.is_none() && is(next, Type::Evicted),
        (_, false) => reported.is_some(),
    };
    if ridden && reported != Some(reason::WAIT_FOR_START) {
        let wanted = Wanted { status: false, reason: reason::WAIT_FOR_START, message: NOT_READY };
        conditions::set(&mut next.conditions, Type::PodsReady.as_str(), wanted, generation, now);
    }
}

/// The new condition PodsReady, if it has to change (docs/reference/06-algorithm.md 6.16).
fn wanted_ready(
    view: &JobView,
    ready: bool,
    admitted: bool,
    status: &WorkloadStatus,
) -> Option<Wanted<'static>> {
    let known = conditions::find(&status.conditions, Type::PodsReady.as_str());
    let (was_true, why) = known.map_or((false, ""), |c| (c.status == "True", c.reason.as_str()));
    let wanted = |status, reason, message| Some(Wanted { status, reason, message });
    if !admitted || view.suspended {
        return match known {
            Some(_) if !admitted && why != reason::WAIT_FOR_START => {
                wanted(false, reason::WAIT_FOR_START, NOT_READY)
            }
            _ => None,
        };
    }
    if ready {
        let again = why == reason::WAIT_FOR_RECOVERY || why == reason::RECOVERED;
        let reason = if again { reason::RECOVERED } else { reason::STARTED };
        return if was_true { None } else { wanted(true, reason, ALL_READY) };
    }
    match known {
        None => wanted(false, reason::WAIT_FOR_START, NOT_READY),
        Some(_) if was_true => wanted(false, reason::WAIT_FOR_RECOVERY, FAILED_POD),
        Some(_) => None,
    }
}

/// How many pods of a pod set a list of reclaimable pods has.
fn count_in(list: &[ReclaimablePod], pod_set: &str) -> i32 {
    list.iter().find(|one| one.name == pod_set).map_or(0, |one| one.count)
}

/// How many pods of a Workload have to be ready: those that did not end.
fn awaited(entry: &WorkloadEntry) -> i64 {
    let given_back = &entry.status().reclaimable_pods;
    let sets = entry
        .object
        .spec
        .pod_sets
        .iter()
        .map(|set| i64::from(set.count) - i64::from(count_in(given_back, &set.name)));
    sets.sum()
}

impl Engine {
    /// Keeps the condition PodsReady; says whether it wrote.
    pub(crate) fn sync_pods_ready(&mut self, view: &JobView, workload: &WorkloadKey) -> bool {
        let Some(waits_for_pods) = &self.config.wait_for_pods_ready else { return false };
        let entry = &self.world.workloads[workload];
        let status = entry.status();
        if is(status, Type::Admitted) && is(status, Type::Evicted) || entry.reports_wait(self.now) {
            return false;
        }
        // While pods of the job wait for a slice, readiness is that of the slice before. Not all kinds show which pods are not ready, and why.
        let waits = self.has_waiting_pods(view, workload);
        let ready = if waits { i64::from(view.ready) >= awaited(entry) } else { view.pods_ready };
        if waits && !ready {
            return false;
        }
        let Some(wanted) = wanted_ready(view, ready, is(status, Type::Admitted), status) else {
            return false;
        };
        let first = wanted.status && wanted.reason == reason::STARTED;
        let unblocks = wanted.status && waits_for_pods.block_admission;
        let purpose = if unblocks { Purpose::Unblock } else { Purpose::PodsReady };
        let mut next = status.clone();
        let at = self.at(&entry.object);
        conditions::set(&mut next.conditions, Type::PodsReady.as_str(), wanted, at.generation, at.now);
        let then = if first { self.report_ready(workload) } else { Vec::new() };
        self.write_part(workload, purpose, body::PODS_READY, next, then);
        true
    }

    fn report_ready(&self, workload: &WorkloadKey) -> Vec<crate::effect::Effect> {
        let entry = &self.world.workloads[workload];
        let status = entry.status();
        let queue = status.admission.as_ref().map(|a| a.cluster_queue.as_str()).unwrap_or_default();
        let class = metrics::priority_class(&entry.object);
        let admitted =
            conditions::true_since(&status.conditions, Type::Admitted.as_str()).unwrap_or(self.now);
        let waited = metrics::seconds_between(super::decisions::queued_since(entry), self.now);
        let since_admitted = metrics::seconds_between(admitted, self.now);
        let mut then = vec![
            observe(metrics::READY_WAIT_TIME_SECONDS, &[queue, class], waited),
            observe(metrics::ADMITTED_UNTIL_READY_WAIT_TIME_SECONDS, &[queue, class], since_admitted),
        ];
        if self.measures(&workload.namespace, &entry.object.spec.queue_name) {
            let local = [&*entry.object.spec.queue_name, &*workload.namespace, class];
            then.push(observe(metrics::LOCAL_QUEUE_READY_WAIT_TIME_SECONDS, &local, waited));
            then.push(observe(
                metrics::LOCAL_QUEUE_ADMITTED_UNTIL_READY_WAIT_TIME_SECONDS,
                &local,
                since_admitted,
            ));
        }
        then
    }

    /// Keeps `status.reclaimablePods` as the job reports them; says whether it wrote. While quota is reserved they only grow.
    pub(crate) fn sync_reclaimable(&mut self, view: &JobView, workload: &WorkloadKey) -> bool {
        if !self.config.on(Gate::ReclaimablePods) {
            return false;
        }
        let status = self.world.workloads[workload].status();
        let wanted = self.reclaimable(view, workload);
        let same = wanted.len() == status.reclaimable_pods.iter().filter(|r| r.count > 0).count()
            && wanted.iter().all(|w| count_in(&status.reclaimable_pods, &w.name) == w.count);
        if same {
            return false;
        }
        let left_out = |r: &ReclaimablePod| r.count > 0 && wanted.iter().all(|w| w.name != r.name);
        let takes_away = status.reclaimable_pods.iter().any(left_out);
        let mut next = status.clone();
        next.reclaimable_pods = wanted;
        if takes_away {
            return self.take_reclaimable(workload, next);
        }
        self.keep_taken(workload, None);
        self.write_part(workload, Purpose::Reclaim, body::RECLAIMABLE_PODS, next, Vec::new());
        true
    }

    /// What `status.reclaimablePods` is to be.
    fn reclaimable(&self, view: &JobView, workload: &WorkloadKey) -> Vec<ReclaimablePod> {
        let entry = &self.world.workloads[workload];
        let known = &entry.status().reclaimable_pods;
        let (held, elastic) = (reserved(entry.status()), self.is_elastic(view));
        let sets = view.pod_sets.iter().zip(&entry.object.spec.pod_sets);
        let wanted = sets.filter_map(|(of_job, set)| {
            let reported =
                view.reclaimable.iter().find(|(name, _)| *name == of_job.name).map_or(0, |(_, n)| *n);
            // The numbers of an elastic job are those of all its pods, of which some may wait for another slice.
            let count = if elastic {
                set.count.saturating_sub(of_job.count.saturating_sub(reported))
            } else if held {
                reported.max(count_in(known, &set.name))
            } else {
                reported
            };
            let count = count.clamp(0, set.count.max(0));
            (count > 0).then(|| ReclaimablePod { name: set.name.clone(), count })
        });
        wanted.collect()
    }

    /// Until when nothing is decided for a Workload that waits: its status as it is written, by which its pods are counted, says that some ended which
    /// its job is to run. A minute after each correction at most, for which the answer may still be missing, or which another client undoes.
    pub(super) fn too_few_pods_until(&self, workload: &WorkloadKey) -> Option<Timestamp> {
        let entry = self.world.workloads.get(workload)?;
        let known = &entry.object.status.reclaimable_pods;
        if known.is_empty() || !self.config.on(Gate::ReclaimablePods) {
            return None;
        }
        let job = self.world.jobs.get(&self.world.job_of(entry)?)?;
        let wanted = self.reclaimable(&job.view, workload);
        let has_ended = |name: &str| count_in(known, name) > count_in(&wanted, name);
        let is_wrong =
            !job.view.status_unread && entry.object.spec.pod_sets.iter().any(|set| has_ended(&set.name));
        let taken = job.trouble.as_ref().and_then(|trouble| trouble.reclaimed.as_ref());
        let since = taken.filter(|(list, _)| *list == wanted).map_or(self.now, |(_, at)| *at);
        Some(later(since, TAKEN_AGAIN)).filter(|until| is_wrong && *until > self.now)
    }

    /// Takes pod sets off `status.reclaimablePods`: an apply would leave those that another manager owns, too. A client that adds them again and again
    /// is answered once a minute. Says whether it wrote.
    fn take_reclaimable(&mut self, workload: &WorkloadKey, next: WorkloadStatus) -> bool {
        let job = self.world.job_of(&self.world.workloads[workload]);
        let trouble = job.as_ref().and_then(|job| self.world.jobs.get(job)?.trouble.as_ref());
        let before = trouble.and_then(|trouble| trouble.reclaimed.as_ref());
        let again =
            before.filter(|(list, _)| *list == next.reclaimable_pods).map(|(_, at)| later(*at, TAKEN_AGAIN));
        if let (Some(until), Some(job)) = (again.filter(|until| *until > self.now), &job) {
            self.wake_at(until, Alarm::Job(job.clone()));
            return false;
        }
        self.keep_taken(workload, Some((next.reclaimable_pods.clone(), self.now)));
        // An empty list would stay as one.
        let list = (!next.reclaimable_pods.is_empty()).then_some(&next.reclaimable_pods);
        let status = json!({"reclaimablePods": list});
        self.patch_status(workload, Purpose::Reclaim, &status, next);
        self.sync_core(workload);
        true
    }

    /// A write of `status.reclaimablePods` failed: it is repeated as any other is. A reservation that was decided meanwhile counts the pods of the status
    /// as it still is.
    pub(crate) fn reclaimable_not_taken(&mut self, workload: &WorkloadKey) {
        self.keep_taken(workload, None);
        self.forget_reservation(workload);
        // The job is looked at as soon as its Workload is: before a cycle decides on it with the old number.
        let job = self.world.workloads.get(workload).and_then(|entry| self.world.job_of(entry));
        self.dirty.jobs.extend(job);
    }

    /// Keeps what was last left on the list when others were taken off it, and when.
    fn keep_taken(&mut self, workload: &WorkloadKey, taken: Option<(Vec<ReclaimablePod>, Timestamp)>) {
        let job = self.world.workloads.get(workload).and_then(|entry| self.world.job_of(entry));
        let Some(entry) = job.and_then(|job| self.world.jobs.get_mut(&job)) else { return };
        if taken.is_some() {
            entry.trouble.get_or_insert_default().reclaimed = taken;
        } else if let Some(trouble) = &mut entry.trouble {
            trouble.reclaimed = None;
        }
    }

    /// Readiness timeouts and the longest execution time of an admitted workload; says whether it wrote.
    pub(crate) fn reconcile_deadlines(&mut self, key: &WorkloadKey) -> bool {
        let status = self.world.workloads[key].status();
        let Some(admitted) = conditions::true_since(&status.conditions, Type::Admitted.as_str()) else {
            return false;
        };
        self.check_execution_time(key, admitted) || self.check_ready_timeout(key, admitted)
    }

    fn check_execution_time(&mut self, key: &WorkloadKey, admitted: Timestamp) -> bool {
        let entry = &self.world.workloads[key];
        let Some(most) = entry.object.spec.maximum_execution_time_seconds else { return false };
        let past = entry.status().accumulated_past_execution_time_seconds.unwrap_or(0);
        let until = later(admitted, i64::from(most) - i64::from(past));
        if until > self.now {
            self.wake_at(until, Alarm::Workload(key.clone()));
            return false;
        }
        let mut next = entry.status().clone();
        next.accumulated_past_execution_time_seconds = None;
        let at = self.at(&entry.object);
        let why = reason::MAXIMUM_EXECUTION_TIME_EXCEEDED;
        transition::target_deactivation(&mut next, why, "exceeding the maximum execution time", at);
        let note = format!("The maximum execution time ({most}s) exceeded");
        let uid = entry.uid();
        let reported = warning(About::workload(key, &uid), why, note);
        self.write_status(key, Purpose::Deactivate, next, vec![reported]);
        true
    }

    fn check_ready_timeout(&mut self, key: &WorkloadKey, admitted: Timestamp) -> bool {
        let Some(config) = self.config.wait_for_pods_ready.clone() else { return false };
        let entry = &self.world.workloads[key];
        let status = entry.status();
        let ready = conditions::find(&status.conditions, Type::PodsReady.as_str());
        if ready.is_some_and(|c| c.status == "True") {
            return false;
        }
        let recovering = ready.filter(|c| c.reason == reason::WAIT_FOR_RECOVERY);
        let (since, seconds, cause) = match recovering {
            Some(c) => (c.last_transition_time.0, config.recovery_timeout_seconds, reason::WAIT_FOR_RECOVERY),
            None => (admitted, Some(config.timeout_seconds), reason::WAIT_FOR_START),
        };
        let Some(seconds) = seconds else { return false };
        let until = later(since, seconds);
        if until > self.now {
            self.wake_at(until, Alarm::Workload(key.clone()));
            return false;
        }
        let mut next = status.clone();
        let count = next.requeue_state.as_ref().and_then(|r| r.count).unwrap_or(0).saturating_add(1);
        if config.backoff_limit_count.is_some_and(|limit| count > limit) {
            let at = self.at(&entry.object);
            let message = "exceeding the maximum number of re-queuing retries";
            transition::target_deactivation(&mut next, reason::REQUEUING_LIMIT_EXCEEDED, message, at);
            self.write_status(key, Purpose::Deactivate, next, Vec::new());
            return true;
        }
        let backoff = Backoff::seconds(config.backoff_base_seconds, config.backoff_max_seconds);
        let state = next.requeue_state.get_or_insert_default();
        state.count = Some(count);
        state.requeue_at = self
            .now
            .checked_add(jittered(backoff, count.saturating_sub(1), &entry.uid()))
            .ok()
            .map(|at| Time(conditions::whole_seconds(at)));
        let eviction = Eviction {
            reason: reason::PODS_READY_TIMEOUT,
            cause: cause.to_owned(),
            message: format!("Exceeded the PodsReady timeout {key}"),
            preemption: None,
        };
        self.evict_from(key, next, &eviction);
        true
    }
}
