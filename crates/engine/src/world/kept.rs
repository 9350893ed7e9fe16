//! What is kept of a Workload, without unused capacity; and of a finished one, only what is still needed.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

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

/// How many specs of ended Workloads are found again: those of one kind of work, in one queue, are mostly equal.
const SPECS: usize = 512;

/// The specs that Workloads which are over had last, by the hash of what distinguishes them: between [`SPECS`] and twice as many. A spec is kept as
/// long as a Workload has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Specs {
    young: BTreeMap<u64, Weak<slim::WorkloadSpec>>,
    old: BTreeMap<u64, Weak<slim::WorkloadSpec>>,
    hasher: foldhash::fast::RandomState,
}

impl Specs {
    /// Makes a spec the one that is known and equal to it; otherwise it is known from now on.
    pub(super) fn share(&mut self, spec: &mut Arc<slim::WorkloadSpec>) {
        let hash = self.hash_of(spec);
        let known = self.young.get(&hash).or_else(|| self.old.get(&hash)).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| **known == **spec) {
            *spec = known;
        }
        if self.young.len() >= SPECS && !self.young.contains_key(&hash) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, Arc::downgrade(spec));
    }

    fn hash_of(&self, spec: &slim::WorkloadSpec) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        (&spec.queue_name, spec.priority).hash(&mut hasher);
        for set in &spec.pod_sets {
            (&set.name, set.count, set.template.template_hash).hash(&mut hasher);
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::WorkloadEntry;

    fn spec(queue: usize, cpus: u64) -> Arc<slim::WorkloadSpec> {
        let template = slim::PodTemplate { template_hash: cpus, ..slim::PodTemplate::default() };
        let set = slim::PodSet { template: Arc::new(template), ..slim::PodSet::default() };
        Arc::new(slim::WorkloadSpec {
            queue_name: queue.to_string(),
            pod_sets: vec![set],
            ..slim::WorkloadSpec::default()
        })
    }

    fn shared(known: &mut Specs, queue: usize, cpus: u64) -> Arc<slim::WorkloadSpec> {
        let mut spec = spec(queue, cpus);
        known.share(&mut spec);
        spec
    }

    #[test]
    fn what_is_rarely_under_way_with_a_workload_takes_no_memory_in_all_of_them() {
        // The allocator gives 1,024 bytes for more than 896.
        assert!(size_of::<WorkloadEntry>() <= 896, "{}", size_of::<WorkloadEntry>());
    }

    #[test]
    fn equal_specs_of_what_is_over_are_one_although_their_templates_were_read_apart() {
        let mut known = Specs::default();
        // Thirty queues with three kinds of work in turn.
        let mut round = || -> Vec<_> {
            let all = (0..30).flat_map(|queue| (0..3).map(move |cpus| (queue, cpus)));
            all.map(|(queue, cpus)| shared(&mut known, queue, cpus)).collect()
        };
        let (first, again) = (round(), round());
        assert!(first.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert!(first.iter().zip(&first[1..]).all(|(one, other)| !Arc::ptr_eq(one, other)));
    }

    #[test]
    fn the_latest_specs_are_remembered_and_those_that_no_workload_has_are_not_kept() {
        let mut known = Specs::default();
        let first = shared(&mut known, 0, 1);
        let mut kept = Vec::new();
        for number in 1..10 * SPECS {
            kept.push(shared(&mut known, number, 1));
            assert!(known.young.len() <= SPECS && known.old.len() <= SPECS);
            if number % (SPECS / 2) == 0 {
                assert!(Arc::ptr_eq(&first, &shared(&mut known, 0, 1)), "it is in use");
            }
        }
        assert!(!Arc::ptr_eq(&kept[0], &shared(&mut known, 1, 1)), "it was forgotten");
        let dropped = Arc::downgrade(kept.last().unwrap());
        drop(kept);
        assert!(dropped.upgrade().is_none());
    }
}
