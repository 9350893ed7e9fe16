//! What is kept of a Workload, without unused capacity; and of a finished one, only what is still needed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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
    if let Some(finalizers) = &mut object.metadata.finalizers {
        finalizers.shrink_to_fit();
    }
    if let Some(owners) = &mut object.metadata.owner_references {
        owners.shrink_to_fit();
    }
    object.status.conditions.shrink_to_fit();
    if let Some(admission) = &mut object.status.admission {
        admission.pod_set_assignments.shrink_to_fit();
    }
}

/// The conditions that show a Workload's course and its end.
const SHOWN: [Type; 5] =
    [Type::QuotaReserved, Type::Admitted, Type::PodsReady, Type::Evicted, Type::Finished];

/// Keeps of a finished Workload what shows its course and its end, its contents and its queues; and its templates, which it shares with others. Its
/// status is incomplete from then on: no status is computed from it.
pub(super) fn reduce(object: &mut slim::Workload) {
    let metadata = &mut object.metadata;
    // A map takes half a kilobyte for its first entry. The label of a Workload that has owners says what they say.
    let owned = metadata.owner_references.iter().flatten().next().is_some();
    keep(&mut metadata.labels, |key| !owned && key == labels::JOB_UID);
    keep(&mut metadata.annotations, |key| key.contains("kueue.x-k8s.io/") || key.starts_with("sluice.dev/"));
    let status = &mut object.status;
    status.conditions.retain(|condition| SHOWN.iter().any(|shown| condition.type_ == shown.as_str()));
    status.conditions.shrink_to_fit();
    for condition in &mut status.conditions {
        // How it ended, and why it waited if it never held quota.
        let is_shown = condition.type_ == Type::Finished.as_str()
            || condition.type_ == Type::QuotaReserved.as_str() && condition.status != "True";
        if !is_shown {
            condition.message = String::new();
        }
    }
    if let Some(admission) = &mut status.admission {
        admission.pod_set_assignments = Vec::new();
    }
    for check in &mut status.admission_checks {
        (check.message, check.pod_set_updates) = (String::new(), Vec::new());
    }
    status.resource_requests = Vec::new();
    status.nominated_cluster_names = Vec::new();
}

/// Keeps the entries with these keys, and no map without any.
fn keep(map: &mut Option<BTreeMap<String, String>>, is_kept: impl Fn(&str) -> bool) {
    if let Some(entries) = map {
        entries.retain(|key, _| is_kept(key));
    }
    map.take_if(|entries| entries.is_empty());
}

/// The number of specs of ended Workloads that are found again: those of one kind of work, in one queue, are mostly equal.
const SPECS: usize = 16;

/// The specs that Workloads which are over had last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Specs(VecDeque<Arc<slim::WorkloadSpec>>);

impl Specs {
    /// Makes a spec the one that is known and equal to it; otherwise it is known from now on.
    pub(super) fn share(&mut self, spec: &mut Arc<slim::WorkloadSpec>) {
        if let Some(known) = self.0.iter().find(|known| is_same(known, spec)) {
            *spec = Arc::clone(known);
            return;
        }
        self.0.truncate(SPECS - 1);
        self.0.push_front(Arc::clone(spec));
    }
}

/// Whether two specs are equal. Those of different work differ early.
fn is_same(one: &slim::WorkloadSpec, other: &slim::WorkloadSpec) -> bool {
    let templates = |spec: &slim::WorkloadSpec| spec.pod_sets.first().map(|set| Arc::as_ptr(&set.template));
    templates(one) == templates(other) && one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(queue: &str) -> Arc<slim::WorkloadSpec> {
        Arc::new(slim::WorkloadSpec { queue_name: queue.to_owned(), ..slim::WorkloadSpec::default() })
    }

    #[test]
    fn equal_specs_of_what_is_over_are_one_and_few_are_remembered() {
        let mut known = Specs::default();
        let mut shared = |queue: &str| {
            let mut spec = spec(queue);
            known.share(&mut spec);
            spec
        };
        let first = shared("a");
        assert!(!Arc::ptr_eq(&first, &shared("b")));
        assert!(Arc::ptr_eq(&first, &shared("a")));
        for number in 0..SPECS {
            shared(&number.to_string());
        }
        assert!(!Arc::ptr_eq(&first, &shared("a")), "it was forgotten");
        assert_eq!(known.0.len(), SPECS);
    }
}
