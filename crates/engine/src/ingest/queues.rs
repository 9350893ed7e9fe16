//! ResourceFlavor, ClusterQueue, LocalQueue and Cohort as input of the core.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use sluice_api::{conditions, labels, v1beta2 as api};
use sluice_core as core;
use sluice_quantity::{Quantity, amount_of};

use super::name;
use super::scheduling::{pairs, selector, taints, tolerations};

/// A quota; what cannot be parsed is none (the schema keeps it out).
fn quota(resource: &str, text: &Text) -> core::Amount {
    Quantity::parse(&text.0).map_or(core::Amount::ZERO, |q| amount_of(resource, &q))
}

fn groups(api: &[api::ResourceGroup]) -> Vec<core::ResourceGroup> {
    let resource = |r: &api::ResourceQuota| core::ResourceQuota {
        name: name(&r.name),
        nominal: quota(&r.name, &r.nominal_quota),
        borrowing_limit: r.borrowing_limit.as_ref().map(|q| quota(&r.name, q)),
        lending_limit: r.lending_limit.as_ref().map(|q| quota(&r.name, q)),
    };
    let flavor = |f: &api::FlavorQuotas| core::FlavorQuotas {
        name: name(&f.name),
        resources: f.resources.iter().map(resource).collect(),
    };
    api.iter()
        .map(|g| core::ResourceGroup {
            covered: g.covered_resources.iter().map(|r| name(r)).collect(),
            flavors: g.flavors.iter().map(flavor).collect(),
        })
        .collect()
}

fn weight(api: Option<&api::FairSharing>) -> core::Weight {
    let text = api.and_then(|f| f.weight.as_ref());
    text.and_then(|w| Quantity::parse(&w.0).ok())
        .map_or(core::Weight::ONE, |q| core::Weight::from_nano(q.nano()))
}

const fn stop_policy(api: api::StopPolicy) -> core::StopPolicy {
    match api {
        api::StopPolicy::None => core::StopPolicy::None,
        api::StopPolicy::Hold => core::StopPolicy::Hold,
        api::StopPolicy::HoldAndDrain => core::StopPolicy::HoldAndDrain,
    }
}

fn fungibility(api: &api::FlavorFungibility) -> core::Fungibility {
    use api::FlavorFungibilityPolicy::{MayStopSearch, TryNextFlavor};
    core::Fungibility {
        when_can_borrow: match api.when_can_borrow {
            MayStopSearch => core::FungibilityPolicy::MayStopSearch,
            TryNextFlavor => core::FungibilityPolicy::TryNextFlavor,
        },
        when_can_preempt: match api.when_can_preempt {
            MayStopSearch => core::WhenCanPreempt::MayStopSearch,
            TryNextFlavor => core::WhenCanPreempt::TryNextFlavor,
        },
        preference: api.preference.map(|p| match p {
            api::FlavorFungibilityPreference::BorrowingOverPreemption => {
                core::FungibilityPreference::BorrowingOverPreemption
            }
            api::FlavorFungibilityPreference::PreemptionOverBorrowing => {
                core::FungibilityPreference::PreemptionOverBorrowing
            }
        }),
    }
}

fn preemption(api: &api::ClusterQueuePreemption) -> core::Preemption {
    core::Preemption {
        within_cluster_queue: match api.within_cluster_queue {
            api::WithinClusterQueue::Never => core::PreemptionPolicy::Never,
            api::WithinClusterQueue::LowerPriority => core::PreemptionPolicy::LowerPriority,
            api::WithinClusterQueue::LowerOrNewerEqualPriority => {
                core::PreemptionPolicy::LowerOrNewerEqualPriority
            }
        },
        reclaim_within_cohort: match api.reclaim_within_cohort {
            api::ReclaimWithinCohort::Never => core::PreemptionPolicy::Never,
            api::ReclaimWithinCohort::LowerPriority => core::PreemptionPolicy::LowerPriority,
            api::ReclaimWithinCohort::Any => core::PreemptionPolicy::Any,
        },
        borrow_within_cohort: match api.borrow_within_cohort.policy {
            api::BorrowWithinCohortPolicy::Never => None,
            api::BorrowWithinCohortPolicy::LowerPriority => Some(core::BorrowWithinCohort {
                max_priority_threshold: api.borrow_within_cohort.max_priority_threshold,
            }),
        },
    }
}

/// A ResourceFlavor.
pub(crate) fn flavor(object: &api::ResourceFlavor) -> core::FlavorSpec {
    core::FlavorSpec {
        name: name(object.metadata.name.as_deref().unwrap_or_default()),
        node_labels: pairs(&object.spec.node_labels),
        taints: taints(&object.spec.node_taints),
        tolerations: tolerations(&object.spec.tolerations),
        topology: object.spec.topology_name.as_deref().map(name),
    }
}

/// A Cohort.
pub(crate) fn cohort(object: &api::Cohort) -> core::CohortSpec {
    core::CohortSpec {
        name: name(object.metadata.name.as_deref().unwrap_or_default()),
        parent: object.spec.parent_name.as_deref().filter(|p| !p.is_empty()).map(name),
        resource_groups: groups(&object.spec.resource_groups),
        fair_weight: weight(object.spec.fair_sharing.as_ref()),
    }
}

/// A ClusterQueue.
pub(crate) fn cluster_queue(object: &api::ClusterQueue) -> core::ClusterQueueSpec {
    let spec = &object.spec;
    let rules = spec.admission_checks_strategy.as_ref().map(|s| &s.admission_checks[..]).unwrap_or_default();
    core::ClusterQueueSpec {
        name: name(object.metadata.name.as_deref().unwrap_or_default()),
        cohort: spec.cohort_name.as_deref().filter(|c| !c.is_empty()).map(name),
        resource_groups: groups(&spec.resource_groups),
        strategy: match spec.queueing_strategy {
            api::QueueingStrategy::StrictFIFO => core::QueueingStrategy::StrictFIFO,
            api::QueueingStrategy::BestEffortFIFO => core::QueueingStrategy::BestEffortFIFO,
        },
        namespace_selector: spec.namespace_selector.as_ref().and_then(selector),
        fungibility: fungibility(&spec.flavor_fungibility),
        preemption: preemption(&spec.preemption),
        stop_policy: stop_policy(spec.stop_policy),
        terminating: object.metadata.deletion_timestamp.is_some(),
        fair_weight: weight(spec.fair_sharing.as_ref()),
        admission_checks: rules
            .iter()
            .map(|r| core::CheckRule {
                name: name(&r.name),
                on_flavors: r.on_flavors.iter().map(|f| name(f)).collect(),
            })
            .collect(),
        usage_based_fair_sharing: spec
            .admission_scope
            .as_ref()
            .is_some_and(|s| s.admission_mode == api::AdmissionMode::UsageBasedAdmissionFairSharing),
    }
}

/// An AdmissionCheck.
pub(crate) fn check(object: &api::AdmissionCheck) -> core::CheckSpec {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    core::CheckSpec {
        active: conditions::is_true(conditions, conditions::ACTIVE),
        controller: match object.spec.controller_name.as_str() {
            labels::MULTIKUEUE_CONTROLLER_NAME => core::CheckController::MultiKueue,
            labels::PROVISIONING_REQUEST_CONTROLLER_NAME => core::CheckController::ProvisioningRequest,
            _ => core::CheckController::Other,
        },
    }
}

/// A LocalQueue.
pub(crate) fn local_queue(object: &api::LocalQueue) -> core::LocalQueueSpec {
    let fair = object.status.as_ref().and_then(|s| s.fair_sharing.as_ref());
    let consumed = fair.and_then(|f| f.admission_fair_sharing_status.as_ref()).map(|s| &s.consumed_resources);
    core::LocalQueueSpec {
        namespace: name(object.metadata.namespace.as_deref().unwrap_or_default()),
        name: name(object.metadata.name.as_deref().unwrap_or_default()),
        cluster_queue: name(object.spec.cluster_queue.as_deref().unwrap_or_default()),
        stop_policy: stop_policy(object.spec.stop_policy),
        terminating: object.metadata.deletion_timestamp.is_some(),
        fair_weight: weight(object.spec.fair_sharing.as_ref()),
        consumed: consumed.into_iter().flatten().map(|(r, q)| (name(r), units(q))).collect(),
    }
}

/// Whole units (cpu: cores) as a number with a fraction, as the usage ledger counts.
#[expect(clippy::cast_precision_loss, reason = "the ledger counts in floating point")]
fn units(text: &Text) -> f64 {
    Quantity::parse(&text.0).map_or(0.0, |q| q.nano() as f64 / 1e9)
}
