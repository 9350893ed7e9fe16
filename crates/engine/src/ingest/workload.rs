//! The Workload as input of the core: pod sets with their requests, priority, order, state.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::v1beta2::{self, CheckState, GatePosition, WorkloadStatus};
use sluice_api::{labels, slim};
use sluice_core as core;
use sluice_core::WorkloadKey;

use super::requests::{Surroundings, amount_in, per_pod};
use super::scheduling::{affinity, pairs, preferred_affinity, tolerations};
use super::{name, time, topology};
use crate::config::EngineConfig;

/// The key of a Workload.
pub(crate) fn key(object: &slim::Workload) -> WorkloadKey {
    let metadata = &object.metadata;
    WorkloadKey::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Effective priority (docs/reference/06-algorithm.md 6.4): the spec's and, behind its gate, the boost.
pub(crate) fn effective_priority(object: &slim::Workload, config: &EngineConfig) -> i32 {
    let base = object.spec.priority.unwrap_or(0);
    if !config.on(Gate::PriorityBoost) {
        return base;
    }
    base.saturating_add(priority_boost(object))
}

/// The annotation `priority-boost`, 0 if it is absent or malformed.
pub(crate) fn priority_boost(object: &slim::Workload) -> i32 {
    let annotation = object.metadata.annotations.as_ref().and_then(|a| a.get(labels::PRIORITY_BOOST));
    annotation.and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// When the workload was created.
pub(crate) fn created(object: &slim::Workload) -> Timestamp {
    object.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0)
}

/// The queue-order timestamp (docs/reference/06-algorithm.md 6.4).
pub(crate) fn queue_order(
    object: &slim::Workload,
    status: &WorkloadStatus,
    config: &EngineConfig,
) -> Timestamp {
    let true_for = |type_: Type, why: &str| {
        let condition = conditions::find(&status.conditions, type_.as_str())?;
        (condition.status == "True" && condition.reason == why).then_some(condition.last_transition_time.0)
    };
    let by_eviction = config.wait_for_pods_ready.as_ref().is_some_and(|w| w.order_by_eviction);
    if let Some(at) = true_for(Type::Evicted, reason::PODS_READY_TIMEOUT).filter(|_| by_eviction) {
        return at;
    }
    if let Some(at) = true_for(Type::Evicted, reason::ADMISSION_CHECK) {
        return at;
    }
    let borrowed = core::PreemptionReason::InCohortReclaimWhileBorrowing.as_str();
    if let Some(at) = true_for(Type::Preempted, borrowed)
        && !config.on(Gate::PrioritySortingWithinCohort)
    {
        return at.checked_add(SignedDuration::from_millis(1)).unwrap_or(at);
    }
    created(object)
}

/// Pods of a pod set that need quota: the count less what is reclaimable.
pub(crate) fn effective_count(pod_set: &slim::PodSet, status: &WorkloadStatus, config: &EngineConfig) -> i64 {
    if !config.on(Gate::ReclaimablePods) {
        return i64::from(pod_set.count);
    }
    let reclaimable = status.reclaimable_pods.iter().find(|r| r.name == pod_set.name).map_or(0, |r| r.count);
    i64::from(pod_set.count - reclaimable.clamp(0, pod_set.count.max(0)))
}

/// The pod sets as the core takes them, and what is wrong with them.
pub(crate) fn pod_sets(
    object: &slim::Workload,
    status: &WorkloadStatus,
    around: Surroundings<'_>,
    config: &EngineConfig,
) -> (Vec<core::PodSetSpec>, Option<String>) {
    let mut invalid = None;
    let mut totals: BTreeMap<core::Name, i64> = BTreeMap::new();
    let ungated = topology::ungated(object);
    let sets: Vec<_> = object
        .spec
        .pod_sets
        .iter()
        .enumerate()
        .map(|(at, set)| {
            let path = || format!("spec.podSets[{at}].template.spec");
            let (requests, mut wrong) = per_pod(&set.template, "", around);
            if wrong.is_some() {
                // Only the message has the path in it.
                (_, wrong) = per_pod(&set.template, &path(), around);
            }
            invalid = invalid.take().or(wrong);
            let count = effective_count(set, status, config);
            invalid = invalid.take().or_else(|| uncountable(path, count, &requests, &mut totals));
            let node_requests = topology::node_requests(set, &requests, around, config);
            let mut node_selector = pairs(&set.template.node_selector);
            let mut tolerated = tolerations(&set.template.tolerations);
            // Defaults that are added when pods are created decide on their nodes.
            let class = around.class_of(&set.template).filter(|_| config.on(Gate::TopologyAwareScheduling));
            if let Some(class) = class {
                node_selector.extend(pairs(&class.node_selector));
                tolerated.extend(tolerations(&class.tolerations));
            }
            // What checks add to the pods counts for nodes that are assigned after the checks.
            for update in topology::updates(set, status, config) {
                node_selector.extend(pairs(&update.node_selector));
                tolerated.extend(tolerations(&update.tolerations));
            }
            core::PodSetSpec {
                name: name(&set.name),
                count,
                min_count: set
                    .min_count
                    .filter(|_| config.on(Gate::PartialAdmission))
                    .map(|m| i64::from(m).min(count)),
                requests,
                node_selector,
                affinity: affinity(set.template.node_affinity()),
                preferred_affinity: if config.on(Gate::TASRespectNodeAffinityPreferred) {
                    preferred_affinity(set.template.affinity.as_deref())
                } else {
                    Vec::new()
                },
                tolerations: tolerated,
                group: topology::group(set, config),
                topology: topology::request(set, config),
                ungated: ungated.contains(&&*set.name),
                node_requests,
                shape: 0,
            }
        })
        .collect();
    if invalid.is_none()
        && object.spec.pod_sets.iter().any(|s| s.template.has_resource_claims)
        && !config.on(Gate::KueueDRAIntegration)
        && config.on(Gate::KueueDRARejectWorkloadsWhenDRADisabled)
    {
        invalid = Some(
            "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled".to_owned(),
        );
    }
    (sets, invalid)
}

/// An error if the sum of all pods' requests overflows: it would be charged as less, and no status can express it.
fn uncountable(
    path: impl Fn() -> String,
    count: i64,
    requests: &[(core::Name, core::Amount)],
    totals: &mut BTreeMap<core::Name, i64>,
) -> Option<String> {
    for (resource, amount) in requests.iter().filter(|_| count > 0) {
        let total = totals.entry(core::Name::clone(resource)).or_default();
        let sum = amount.get().checked_mul(count).and_then(|more| total.checked_add(more));
        match sum.filter(|sum| *sum < i64::MAX) {
            Some(sum) => *total = sum,
            None => {
                return Some(format!(
                    "resources validation failed: {}: Invalid value: {resource}: the pods ask for more in all than can be counted",
                    path()
                ));
            }
        }
    }
    None
}

/// The names of the open preemption gates' opposites: whether any gate of the spec is closed.
pub(crate) fn preemption_gated(object: &slim::Workload, status: &WorkloadStatus) -> bool {
    let open = |name: &str| {
        status.preemption_gates.iter().any(|g| g.name == name && g.position == GatePosition::Open)
    };
    object.spec.preemption_gates.iter().any(|gate| !open(&gate.name))
}

/// The admission gates that hold the workload back (docs/reference/06-algorithm.md 6.19).
pub(crate) fn admission_gates<'a>(object: &'a slim::Workload, config: &EngineConfig) -> Option<&'a str> {
    let annotation = object.metadata.annotations.as_ref().and_then(|a| a.get(labels::ADMISSION_GATED_BY));
    annotation.map(String::as_str).filter(|v| !v.trim().is_empty() && config.on(Gate::AdmissionGatedBy))
}

/// Whether quota is reserved.
pub(crate) fn reserved(status: &WorkloadStatus) -> bool {
    status.admission.is_some() && conditions::is_true(&status.conditions, Type::QuotaReserved.as_str())
}

/// Whether what a workload asks for is counted as quota.
pub(crate) fn holds_quota(status: &WorkloadStatus) -> bool {
    reserved(status) && !is(status, Type::Finished)
}

/// Whether the last eviction was for failing nodes, and the workload has not run since.
pub(crate) fn was_evicted_for_nodes(status: &WorkloadStatus) -> bool {
    let evicted = conditions::find(&status.conditions, Type::Evicted.as_str());
    evicted.is_some_and(|c| c.status == "True" && c.reason == reason::NODE_FAILURES)
}

/// Whether a condition of a workload is true.
pub(crate) fn is(status: &WorkloadStatus, type_: Type) -> bool {
    conditions::is_true(&status.conditions, type_.as_str())
}

/// Whether the workload waits on hold, as its job wants it.
pub(crate) fn on_hold(status: &WorkloadStatus) -> bool {
    conditions::find(&status.conditions, Type::QuotaReserved.as_str())
        .is_some_and(|c| c.status == "False" && c.reason == reason::ON_HOLD)
}

/// Whether a workload that is not finished may be queued at all (docs/reference/06-algorithm.md 6.4).
fn queueable(object: &slim::Workload, status: &WorkloadStatus, config: &EngineConfig) -> bool {
    admission_gates(object, config).is_none()
        && object.spec.active
        && object.metadata.deletion_timestamp.is_none()
        && !on_hold(status)
        && !is(status, Type::WaitingForReplacementPods)
        // An eviction that came before quota was released: the job reconciler ends it.
        && !(is(status, Type::QuotaReserved) && status.admission.is_none())
}

/// Where a workload stands that is not finished.
fn state(
    object: &slim::Workload,
    status: &WorkloadStatus,
    nodes: &[Option<core::SharedAssignment>],
    invalid: Option<String>,
    config: &EngineConfig,
) -> core::WorkloadState {
    if let Some(admission) = status.admission.as_ref().filter(|_| reserved(status)) {
        let since = |type_: Type| conditions::true_since(&status.conditions, type_.as_str());
        return core::WorkloadState::Reserved {
            admission: self::admission(admission, object, status, nodes, config),
            reserved_at: since(Type::QuotaReserved).map_or(core::Time::default(), time),
            admitted: is(status, Type::Admitted),
            evicted: is(status, Type::Evicted),
            pods_ready: is(status, Type::PodsReady),
            topology: topology::state(object, status, config),
        };
    }
    if !queueable(object, status, config) {
        return core::WorkloadState::Inactive;
    }
    core::WorkloadState::Pending {
        keeps_place: false,
        requeue_at: status.requeue_state.as_ref().and_then(|r| r.requeue_at.as_ref()).map(|t| time(t.0)),
        requeued_false: conditions::is_false(&status.conditions, Type::Requeued.as_str()),
        failed_checks: status
            .admission_checks
            .iter()
            .any(|c| matches!(c.state, CheckState::Retry | CheckState::Rejected)),
        invalid,
    }
}

/// The flavors of each pod set of an admission.
pub(crate) fn flavors(
    api: &v1beta2::Admission,
    object: &slim::Workload,
) -> Vec<(core::Name, Vec<(core::Name, core::Name)>)> {
    let of = |(at, a): (usize, &v1beta2::PodSetAssignment)| {
        let spec = object.spec.pod_sets.get(at);
        let flavors = a.flavors.iter().map(|(r, f)| (name(r), name(f))).collect();
        (name(spec.map_or(&a.name, |spec| &spec.name)), flavors)
    };
    api.pod_set_assignments.iter().enumerate().map(of).collect()
}

/// How many pods of an assignment need quota, and how much of a resource they take: reclaimable pods are over.
fn left_of<'a>(
    assignment: &'a v1beta2::PodSetAssignment,
    spec: Option<&slim::PodSet>,
    status: &WorkloadStatus,
    config: &EngineConfig,
) -> (i64, impl Fn(&str) -> core::Amount + use<'a>) {
    let assigned = i64::from(assignment.count.or(spec.map(|s| s.count)).unwrap_or(0));
    let left = spec.map_or(assigned, |s| assigned.min(effective_count(s, status, config)));
    let amount = move |resource: &str| {
        let total = amount_in(&assignment.resource_usage, resource);
        if left >= assigned || assigned <= 0 || total.is_unlimited() {
            return total;
        }
        core::Amount(total.get() / assigned).saturating_mul(left)
    };
    (left, amount)
}

/// The current usage of an admission, by flavor and resource of each pod set.
pub(crate) fn usage_held<'a>(
    admission: &'a v1beta2::Admission,
    object: &slim::Workload,
    config: &EngineConfig,
) -> Vec<(&'a str, &'a str, core::Amount)> {
    let of = |(at, a): (usize, &'a v1beta2::PodSetAssignment)| {
        let (_, amount) = left_of(a, object.spec.pod_sets.get(at), &object.status, config);
        let flavors = a.flavors.iter();
        flavors.map(move |(resource, flavor)| (flavor.as_str(), resource.as_str(), amount(resource)))
    };
    admission.pod_set_assignments.iter().enumerate().flat_map(of).collect()
}

/// `status.admission` as the core takes it; reclaimable pods lower the usage (docs/reference/06-algorithm.md 6.19).
fn admission(
    api: &v1beta2::Admission,
    object: &slim::Workload,
    status: &WorkloadStatus,
    nodes: &[Option<core::SharedAssignment>],
    config: &EngineConfig,
) -> core::Admission {
    let places = config.on(Gate::TopologyAwareScheduling);
    let pod_set = |(at, a): (usize, &v1beta2::PodSetAssignment)| {
        let spec = object.spec.pod_sets.get(at);
        let (left, amount) = left_of(a, spec, status, config);
        core::PodSetAssignment {
            name: name(spec.map_or(&a.name, |spec| &spec.name)),
            flavors: a.flavors.iter().map(|(r, f)| (name(r), name(f))).collect(),
            usage: a.resource_usage.keys().map(|r| (name(r), amount(r))).collect(),
            count: left,
            topology: nodes.get(at).cloned().flatten().filter(|_| places),
            topology_delayed: places && topology::is_delayed(a),
        }
    };
    core::Admission {
        cluster_queue: name(&api.cluster_queue),
        pod_sets: api.pod_set_assignments.iter().enumerate().map(pod_set).collect(),
    }
}

/// Everything that the core receives about a workload that is not finished; `nodes` are those of its pod sets.
pub(crate) fn spec(
    key: &WorkloadKey,
    object: &slim::Workload,
    status: &WorkloadStatus,
    nodes: &[Option<core::SharedAssignment>],
    around: Surroundings<'_>,
    config: &EngineConfig,
) -> core::WorkloadSpec {
    let (pod_sets, invalid) = pod_sets(object, status, around, config);
    core::WorkloadSpec {
        key: key.clone(),
        uid: name(object.metadata.uid.as_deref().unwrap_or_default()),
        local_queue: name(&object.spec.queue_name),
        priority: effective_priority(object, config),
        created: time(created(object)),
        queue_order: time(queue_order(object, status, config)),
        generation: object.metadata.generation.unwrap_or(0),
        pod_sets,
        state: state(object, status, nodes, invalid, config),
        preemption_gated: preemption_gated(object, status),
        replaces: None,
    }
}
