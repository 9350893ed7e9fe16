//! The transitions of a Workload's status, each one function: from the status as it is to the status to write.
//!
//! Sources: docs/reference/03-conditions-events.md 3.1 (reasons and messages), docs/reference/06-algorithm.md 6.10 (checks), 6.17 (eviction), 6.19.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_api::conditions::{self, Wanted, WorkloadCondition as Type, reason, whole_seconds};
use sluice_api::v1beta2::{
    Admission, AdmissionCheckState, CheckState, DelayedTopologyRequestState, GatePosition, PodSetAssignment,
    PodSetRequest, RequeueState, WorkloadSchedulingStatsEviction, WorkloadStatus,
};
use sluice_core as core;
use sluice_quantity::quantity_of;

use crate::ingest::requests::amount_in;
use crate::ingest::topology;
use crate::ingest::workload::reserved;

/// The time and the generation of a transition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransitionContext {
    /// Now.
    pub now: Timestamp,
    /// The generation of the workload's spec.
    pub generation: i64,
    /// Gate UnadmittedWorkloadsObservability: granular reasons.
    pub granular: bool,
    /// Gate TASAssignmentsEncodingByHostnamePrefix.
    pub by_hostname_prefix: bool,
}

impl TransitionContext {
    /// The reason to write: the granular one, or the older one.
    pub fn reason<'a>(self, granular: &'a str, legacy: &'a str) -> &'a str {
        if self.granular { granular } else { legacy }
    }

    /// Sets one condition.
    fn set(self, status: &mut WorkloadStatus, type_: Type, value: bool, reason: &str, message: &str) -> bool {
        let wanted = Wanted { status: value, reason, message };
        conditions::set(&mut status.conditions, type_.as_str(), wanted, self.generation, self.now)
    }
}

/// A list of amounts as the API has it.
fn resource_list(amounts: &[(core::Name, core::Amount)]) -> BTreeMap<String, Text> {
    amounts.iter().map(|(r, a)| (r.to_string(), Text(quantity_of(r, *a).to_string()))).collect()
}

/// The core's admission as the API has it.
pub(crate) fn admission(decided: &core::Admission, by_hostname_prefix: bool) -> Admission {
    let pod_set = |p: &core::PodSetAssignment| PodSetAssignment {
        name: p.name.to_string(),
        flavors: p.flavors.iter().map(|(r, f)| (r.to_string(), f.to_string())).collect(),
        resource_usage: resource_list(&p.usage),
        count: Some(i32::try_from(p.count).unwrap_or(i32::MAX)),
        topology_assignment: p.topology.as_ref().and_then(|one| topology::written(one, by_hostname_prefix)),
        delayed_topology_request: p.topology_delayed.then_some(DelayedTopologyRequestState::Pending),
    };
    Admission {
        cluster_queue: decided.cluster_queue.to_string(),
        pod_set_assignments: decided.pod_sets.iter().map(pod_set).collect(),
    }
}

/// Quota is reserved, and, when every required check is ready, the workload admitted in the same write.
pub(crate) fn reserve(
    status: &mut WorkloadStatus,
    decided: &core::Admission,
    required_checks: &[core::Name],
    at: TransitionContext,
) {
    let message = format!("Quota reserved in ClusterQueue {}", decided.cluster_queue);
    at.set(status, Type::QuotaReserved, true, reason::QUOTA_RESERVED, &message);
    for type_ in [Type::Evicted, Type::Preempted, Type::BlockedOnPreemptionGates] {
        if let Some(old) = conditions::find(&status.conditions, type_.as_str()).filter(|c| c.status == "True")
        {
            let message = format!("Previously: {}", old.message);
            at.set(status, type_, false, reason::QUOTA_RESERVED, &message);
        }
    }
    status.admission = Some(admission(decided, at.by_hostname_prefix));
    status.resource_requests.clear();
    sync_checks(status, required_checks, at);
    admit_if_ready(status, at);
}

/// Makes `Admitted` follow from the reservation, the checks and delayed nodes; says whether it changed (docs/reference/06-algorithm.md 6.10). A Workload that was
/// never admitted
/// gets no condition that says so where reasons are not granular.
pub(crate) fn admit_if_ready(status: &mut WorkloadStatus, at: TransitionContext) -> bool {
    let reserved = conditions::is_true(&status.conditions, Type::QuotaReserved.as_str());
    let ready = status.admission_checks.iter().all(|c| c.state == CheckState::Ready);
    let admitted = conditions::is_true(&status.conditions, Type::Admitted.as_str());
    if reserved && ready && !status.admission.as_ref().is_some_and(waits_for_nodes) {
        return !admitted
            && at.set(status, Type::Admitted, true, reason::ADMITTED, "The workload is admitted");
    }
    if admitted {
        count_execution_time(status, at.now);
    } else if !at.granular {
        return false;
    }
    match (reserved, ready) {
        (false, false) if !at.granular => at.set(
            status,
            Type::Admitted,
            false,
            reason::NO_RESERVATION_UNSATISFIED_CHECKS,
            "The workload has no reservation and not all checks ready",
        ),
        (false, _) => {
            at.set(status, Type::Admitted, false, reason::NO_RESERVATION, "The workload has no reservation")
        }
        (true, true) => at.set(
            status,
            Type::Admitted,
            false,
            reason::PENDING_DELAYED_TOPOLOGY_REQUESTS,
            "There are pending delayed topology requests",
        ),
        (true, false) => {
            let why = at.reason(reason::UNSATISFIED_ADMISSION_CHECKS, reason::UNSATISFIED_CHECKS);
            at.set(status, Type::Admitted, false, why, "The workload has not all checks ready")
        }
    }
}

/// Whether some pod set waits for its nodes.
pub(crate) fn waits_for_nodes(admission: &Admission) -> bool {
    admission
        .pod_set_assignments
        .iter()
        .any(|set| topology::is_delayed(set) && set.topology_assignment.is_none())
}

/// Adds the seconds since `Admitted` turned true (docs/reference/06-algorithm.md 6.17).
fn count_execution_time(status: &mut WorkloadStatus, now: Timestamp) {
    if let Some(since) = conditions::true_since(&status.conditions, Type::Admitted.as_str()) {
        let seconds = i32::try_from((now.as_second() - since.as_second()).max(0)).unwrap_or(i32::MAX);
        let past = status.accumulated_past_execution_time_seconds.unwrap_or(0);
        status.accumulated_past_execution_time_seconds = Some(past.saturating_add(seconds));
    }
}

/// Updates the list of checks: new ones Pending, others dropped, sorted; returns whether it changed.
pub(crate) fn sync_checks(
    status: &mut WorkloadStatus,
    required: &[core::Name],
    at: TransitionContext,
) -> bool {
    let before = status.admission_checks.clone();
    status.admission_checks.retain(|c| required.iter().any(|r| **r == *c.name));
    for name in required {
        if !status.admission_checks.iter().any(|c| *c.name == **name) {
            status.admission_checks.push(AdmissionCheckState {
                name: name.to_string(),
                state: CheckState::Pending,
                last_transition_time: Time(whole_seconds(at.now)),
                message: String::new(),
                requeue_after_seconds: None,
                retry_count: None,
                pod_set_updates: Vec::new(),
            });
        }
    }
    status.admission_checks.sort_by(|a, b| a.name.cmp(&b.name));
    status.admission_checks != before
}

/// Why and how a workload is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    /// The reason of `Evicted`, without the cause of a deactivation.
    pub reason: &'static str,
    /// The cause: the target of a deactivation, or the kind of timeout.
    pub cause: String,
    /// The message.
    pub message: String,
    /// For preemptions: the reason of `Preempted`.
    pub preemption: Option<&'static str>,
}

impl Eviction {
    /// The reason of the condition: with the cause, where it was a deactivation.
    pub fn condition_reason(&self) -> String {
        if self.reason == reason::DEACTIVATED && !self.cause.is_empty() {
            return format!("{}DueTo{}", self.reason, self.cause);
        }
        self.reason.to_owned()
    }
}

/// Asks the job to stop; the reservation stays (docs/reference/06-algorithm.md 6.17). Says whether it is the first eviction of its kind.
pub(crate) fn evict(status: &mut WorkloadStatus, eviction: &Eviction, at: TransitionContext) -> bool {
    let has_quota = reserved(status);
    let before = status.conditions.iter_mut().find(|c| c.type_ == Type::Evicted.as_str());
    if let Some(before) = before.filter(|_| !has_quota) {
        // That one is over: it waits since then, and is evicted from now on.
        "False".clone_into(&mut before.status);
    }
    at.set(status, Type::Evicted, true, &eviction.condition_reason(), &eviction.message);
    if let Some(why) = eviction.preemption {
        at.set(status, Type::Preempted, true, why, &eviction.message);
    }
    status.cluster_name = None;
    status.nominated_cluster_names.clear();
    status.unhealthy_nodes.clear();
    reset_checks(status, at.now);
    if conditions::is_true(&status.conditions, Type::BlockedOnPreemptionGates.as_str()) {
        at.set(
            status,
            Type::BlockedOnPreemptionGates,
            false,
            &eviction.condition_reason(),
            &eviction.message,
        );
    }
    for gate in status.preemption_gates.iter_mut().filter(|g| g.position == GatePosition::Open) {
        gate.position = GatePosition::Closed;
        gate.last_transition_time = Time(whole_seconds(at.now));
    }
    count_eviction(status, eviction)
}

fn count_eviction(status: &mut WorkloadStatus, eviction: &Eviction) -> bool {
    let known_kinds = &mut status.scheduling_stats.get_or_insert_default().evictions;
    let (reason, cause) = (eviction.reason, &eviction.cause);
    if let Some(known) = known_kinds.iter_mut().find(|e| e.reason == reason && e.underlying_cause == *cause) {
        known.count = known.count.saturating_add(1);
        return false;
    }
    known_kinds.push(WorkloadSchedulingStatsEviction {
        reason: reason.to_owned(),
        underlying_cause: cause.clone(),
        count: 1,
    });
    true
}

/// docs/reference/06-algorithm.md 6.10: all checks go back to Pending; a retry is counted and keeps its delay.
pub(crate) fn reset_checks(status: &mut WorkloadStatus, now: Timestamp) {
    for check in &mut status.admission_checks {
        if check.state == CheckState::Pending {
            continue;
        }
        check.message = format!("Reset to Pending after eviction. Previously: {:?}", check.state);
        if check.state == CheckState::Retry {
            check.retry_count = Some(check.retry_count.unwrap_or(0).saturating_add(1));
        } else {
            check.requeue_after_seconds = None;
        }
        check.state = CheckState::Pending;
        check.last_transition_time = Time(whole_seconds(now));
        check.pod_set_updates.clear();
    }
}

/// Gives the quota back after an eviction (docs/reference/06-algorithm.md 6.17): the job has stopped.
pub(crate) fn release(status: &mut WorkloadStatus, at: TransitionContext) {
    let evicted = conditions::find(&status.conditions, Type::Evicted.as_str());
    let (why, message) = evicted.map(|c| (c.reason.clone(), c.message.clone())).unwrap_or_default();
    unreserve(status, at.reason(reason::PENDING_EVALUATION, reason::PENDING), &message, at);
    let again = why == reason::PREEMPTED || why == reason::NODE_FAILURES;
    let before = status.conditions.iter_mut().find(|c| c.type_ == Type::Requeued.as_str());
    if let Some(before) = before.filter(|_| again) {
        // It ran since: the wait that begins now is not that after an earlier eviction.
        "False".clone_into(&mut before.status);
    }
    at.set(status, Type::Requeued, again, &why, &message);
}

/// Takes the reservation away.
pub(crate) fn unreserve(status: &mut WorkloadStatus, why: &str, message: &str, at: TransitionContext) {
    at.set(status, Type::QuotaReserved, false, why, message);
    status.admission = None;
    admit_if_ready(status, at);
}

/// Says why the workload waits, and what it asks for; says whether anything changed.
pub(crate) fn pend(
    status: &mut WorkloadStatus,
    why: core::Reason,
    message: &str,
    requests: &[(core::Name, Vec<(core::Name, core::Amount)>)],
    at: TransitionContext,
) -> bool {
    let why = at.reason(why.as_str(), why.legacy());
    let mut changed = at.set(status, Type::QuotaReserved, false, why, message);
    changed |= admit_if_ready(status, at);
    if !says_requests(status, requests) {
        changed = true;
        let of_pod_set = |(name, amounts): &(core::Name, Vec<_>)| PodSetRequest {
            name: name.to_string(),
            resources: resource_list(amounts),
        };
        status.resource_requests = requests.iter().map(of_pod_set).collect();
    }
    changed
}

/// Whether the status has the requests of a waiting Workload, if they are known. Called for all waiting Workloads each time, so that nothing is
/// allocated.
pub(crate) fn says_requests(
    status: &WorkloadStatus,
    requests: &[(core::Name, Vec<(core::Name, core::Amount)>)],
) -> bool {
    let said = &status.resource_requests;
    let mut both = said.iter().zip(requests);
    let all_same = both.all(|(said, (name, amounts))| {
        said.name == **name
            && said.resources.len() == amounts.len()
            && amounts.iter().all(|(resource, amount)| {
                said.resources.contains_key(&**resource) && amount_in(&said.resources, resource) == *amount
            })
    });
    requests.is_empty() || said.len() == requests.len() && all_same
}

/// Lets the workload be queued again.
pub(crate) fn requeue(status: &mut WorkloadStatus, why: &str, message: &str, at: TransitionContext) {
    at.set(status, Type::Requeued, true, why, message);
    if let Some(state) = &mut status.requeue_state {
        state.requeue_at = None;
    }
    if status.requeue_state.as_ref().is_some_and(|s| *s == RequeueState::default()) {
        status.requeue_state = None;
    }
}

/// The job ended.
pub(crate) fn finish(status: &mut WorkloadStatus, why: &str, message: &str, at: TransitionContext) {
    at.set(status, Type::Finished, true, why, message);
}

/// The workload will be deactivated, and why.
pub(crate) fn target_deactivation(
    status: &mut WorkloadStatus,
    why: &str,
    message: &str,
    at: TransitionContext,
) {
    at.set(status, Type::DeactivationTarget, true, why, message);
}

/// Removes a condition.
pub(crate) fn forget(status: &mut WorkloadStatus, type_: Type) {
    status.conditions.retain(|c| c.type_ != type_.as_str());
}

/// Preemption would be needed, and a gate forbids it.
pub(crate) fn block_on_gates(status: &mut WorkloadStatus, at: TransitionContext) -> bool {
    at.set(
        status,
        Type::BlockedOnPreemptionGates,
        true,
        reason::PREEMPTION_GATED,
        "Workload requires preemption, but it's gated",
    )
}
