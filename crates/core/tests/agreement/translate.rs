//! Conversions between the oracle's plain types and the core's.

use crate::oracle::world as plain;
use sluice_core as core;

pub fn time(seconds: plain::Time) -> core::Time {
    core::Time::from_seconds(seconds)
}

/// `<namespace>/<name>`; the namespace is the queue's name.
pub fn key(key: &plain::Name) -> core::WorkloadKey {
    let (namespace, name) = key.split_once('/').expect("keys have a namespace");
    core::WorkloadKey::new(namespace, name)
}

#[expect(clippy::cast_possible_truncation, reason = "weights are small and have few decimals")]
fn weight(weight: f64) -> core::Weight {
    core::Weight::from_milli((weight * 1000.0).round() as i64)
}

pub fn config(world: &plain::World, gates: core::Gates) -> core::Config {
    let strategy = |strategy: &plain::FairStrategy| match strategy {
        plain::FairStrategy::LessThanOrEqualToFinalShare => core::FairStrategy::LessThanOrEqualToFinalShare,
        plain::FairStrategy::LessThanInitialShare => core::FairStrategy::LessThanInitialShare,
    };
    let fair = |strategies: &Vec<plain::FairStrategy>| core::FairSharing {
        strategies: strategies.iter().map(strategy).collect(),
    };
    core::Config { gates, fair_sharing: world.fair.as_ref().map(fair), ..core::Config::default() }
}

fn pairs(map: &std::collections::BTreeMap<plain::Name, plain::Name>) -> Vec<(core::Name, core::Name)> {
    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

pub fn flavor(name: &plain::Name, flavor: &plain::Flavor) -> core::FlavorSpec {
    let taint = |key: &plain::Name| core::Taint {
        key: key.clone(),
        value: plain::name("true"),
        effect: core::TaintEffect::NoSchedule,
    };
    core::FlavorSpec {
        name: name.clone(),
        node_labels: pairs(&flavor.labels),
        taints: flavor.taints.iter().map(taint).collect(),
        tolerations: Vec::new(),
        topology: None,
    }
}

fn groups(groups: &[plain::Group]) -> Vec<core::ResourceGroup> {
    let resource = |(name, quota): (&plain::Name, &plain::Quota)| core::ResourceQuota {
        name: name.clone(),
        nominal: quota.nominal,
        borrowing_limit: quota.borrowing_limit,
        lending_limit: quota.lending_limit,
    };
    let flavor = |(name, quotas): &(plain::Name, std::collections::BTreeMap<plain::Name, plain::Quota>)| {
        core::FlavorQuotas { name: name.clone(), resources: quotas.iter().map(resource).collect() }
    };
    groups
        .iter()
        .map(|group| core::ResourceGroup {
            covered: group.covered.clone(),
            flavors: group.flavors.iter().map(flavor).collect(),
        })
        .collect()
}

pub fn cohort(name: &plain::Name, cohort: &plain::Cohort) -> core::CohortSpec {
    core::CohortSpec {
        name: name.clone(),
        parent: cohort.parent.clone(),
        resource_groups: groups(&cohort.groups),
        fair_weight: weight(cohort.weight),
    }
}

fn policy(policy: plain::Policy) -> core::PreemptionPolicy {
    match policy {
        plain::Policy::Never => core::PreemptionPolicy::Never,
        plain::Policy::LowerPriority => core::PreemptionPolicy::LowerPriority,
        plain::Policy::LowerOrNewerEqualPriority => core::PreemptionPolicy::LowerOrNewerEqualPriority,
        plain::Policy::Any => core::PreemptionPolicy::Any,
    }
}

pub fn queue(name: &plain::Name, queue: &plain::Queue) -> core::ClusterQueueSpec {
    let borrow = |borrow: plain::BorrowWithinCohort| core::BorrowWithinCohort {
        max_priority_threshold: borrow.threshold,
    };
    core::ClusterQueueSpec {
        cohort: queue.cohort.clone(),
        resource_groups: groups(&queue.groups),
        strategy: match queue.strategy {
            plain::Strategy::StrictFifo => core::QueueingStrategy::StrictFIFO,
            plain::Strategy::BestEffortFifo => core::QueueingStrategy::BestEffortFIFO,
        },
        fungibility: core::Fungibility {
            when_can_borrow: if queue.fungibility.try_next_when_borrowing {
                core::FungibilityPolicy::TryNextFlavor
            } else {
                core::FungibilityPolicy::MayStopSearch
            },
            when_can_preempt: if queue.fungibility.try_next_when_preempting {
                core::WhenCanPreempt::TryNextFlavor
            } else {
                core::WhenCanPreempt::MayStopSearch
            },
            preference: queue
                .fungibility
                .preemption_over_borrowing
                .then_some(core::FungibilityPreference::PreemptionOverBorrowing),
        },
        preemption: core::Preemption {
            within_cluster_queue: policy(queue.preemption.within_cluster_queue),
            reclaim_within_cohort: policy(queue.preemption.reclaim_within_cohort),
            borrow_within_cohort: queue.preemption.borrow_within_cohort.map(borrow),
        },
        stop_policy: if queue.active { core::StopPolicy::None } else { core::StopPolicy::Hold },
        fair_weight: weight(queue.weight),
        ..core::ClusterQueueSpec::named(name.clone())
    }
}

pub fn local_queue(queue: &plain::Name) -> core::LocalQueueSpec {
    core::LocalQueueSpec {
        namespace: queue.clone(),
        name: plain::name("lq"),
        cluster_queue: queue.clone(),
        stop_policy: core::StopPolicy::None,
        terminating: false,
        fair_weight: core::Weight::ONE,
        consumed: Vec::new(),
    }
}

fn pod_set(pod_set: &plain::PodSet) -> core::PodSetSpec {
    let tolerate = |key: &plain::Name| core::Toleration {
        key: Some(key.clone()),
        operator: core::TolerationOperator::Exists,
        value: plain::name(""),
        effect: None,
    };
    core::PodSetSpec {
        name: pod_set.name.clone(),
        count: pod_set.count,
        min_count: pod_set.min_count,
        requests: pod_set.requests.iter().map(|(name, amount)| (name.clone(), *amount)).collect(),
        node_selector: pairs(&pod_set.node_selector),
        affinity: Vec::new(),
        preferred_affinity: Vec::new(),
        tolerations: pod_set.tolerated.iter().map(tolerate).collect(),
        group: None,
        topology: None,
        ungated: false,
        node_requests: None,
        shape: 0,
    }
}

fn slice(slice: &plain::Slice) -> core::ReplacedSlice {
    let flavors = slice.flavors.iter();
    core::ReplacedSlice {
        key: key(&slice.key),
        flavors: flavors.map(|(name, flavors)| (name.clone(), pairs(flavors))).collect(),
    }
}

pub fn workload(workload: &plain::Workload, state: core::WorkloadState) -> core::WorkloadSpec {
    core::WorkloadSpec {
        key: key(&workload.key),
        uid: workload.uid.clone(),
        local_queue: plain::name("lq"),
        priority: workload.priority,
        created: time(workload.created),
        queue_order: time(workload.created),
        generation: 1,
        pod_sets: workload.pod_sets.iter().map(pod_set).collect(),
        state,
        preemption_gated: workload.gated,
        replaces: workload.replaces.as_ref().map(slice),
    }
}

/// The plain form of an admission.
pub fn admitted(admission: &core::Admission) -> plain::Admitted {
    let of = |pod_set: &core::PodSetAssignment| {
        (pod_set.name.clone(), pod_set.count, pod_set.flavors.iter().cloned().collect())
    };
    plain::Admitted { pod_sets: admission.pod_sets.iter().map(of).collect() }
}

pub fn cause(reason: core::PreemptionReason) -> plain::Cause {
    match reason {
        core::PreemptionReason::InClusterQueue => plain::Cause::InClusterQueue,
        core::PreemptionReason::InCohortReclamation => plain::Cause::InCohortReclamation,
        core::PreemptionReason::InCohortFairSharing => plain::Cause::InCohortFairSharing,
        core::PreemptionReason::InCohortReclaimWhileBorrowing => plain::Cause::InCohortReclaimWhileBorrowing,
    }
}
