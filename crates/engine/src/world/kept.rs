//! What is kept of a Workload, without unused capacity; and of a finished one, only what is still needed.

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::JobKind;
use sluice_api::{labels, slim};

use super::owners::{controller, is_of_group};
use crate::ingest::workload::is;

/// A copy of the whole object, which `kubectl apply` leaves in it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether a Workload is over and nothing is restored from it any more. If its job is made of its pods some may still run: the quota of each is
/// needed until they are gone.
pub(crate) fn is_over(object: &slim::Workload) -> bool {
    let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
    let of_kind = |kind: JobKind| kind.gathers_pods();
    let gathers = || {
        let owner = controller(object);
        owner.and_then(|owner| JobKind::from_owner(&owner.api_version, &owner.kind)).is_some_and(of_kind)
    };
    is(&object.status, Type::Finished)
        && !finalizers.iter().any(|name| name == labels::RESOURCE_IN_USE_FINALIZER)
        && !is_of_group(object)
        && !gathers()
}

/// Gives back the room that decoding left, and what is not read.
pub(super) fn fit(object: &mut slim::Workload) {
    if let Some(annotations) = &mut object.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    object.metadata.annotations.take_if(|all| all.is_empty());
    object.metadata.labels.take_if(|all| all.is_empty());
    object.status.conditions.shrink_to_fit();
    if let Some(admission) = &mut object.status.admission {
        admission.pod_set_assignments.shrink_to_fit();
    }
}

/// Keeps of a finished Workload what shows its course and its end, its contents and its queues; and its templates, which it shares with others. Its
/// status is incomplete from then on: no status is computed from it.
pub(super) fn reduce(object: &mut slim::Workload) {
    let status = &mut object.status;
    for condition in &mut status.conditions {
        // How it ended, and why it waited if it never held quota.
        let told = condition.type_ == Type::Finished.as_str()
            || condition.type_ == Type::QuotaReserved.as_str() && condition.status != "True";
        if !told {
            condition.message = String::new();
        }
    }
    for set in status.admission.iter_mut().flat_map(|admission| &mut admission.pod_set_assignments) {
        set.flavors.clear();
        set.resource_usage.clear();
        (set.topology_assignment, set.delayed_topology_request) = (None, None);
    }
    for check in &mut status.admission_checks {
        (check.message, check.pod_set_updates) = (String::new(), Vec::new());
    }
    status.resource_requests = Vec::new();
    status.nominated_cluster_names = Vec::new();
}
