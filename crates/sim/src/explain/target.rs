//! Which job is meant, and which objects it consists of.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use sluice_api::conditions::is_true;
use sluice_api::job::JobKind;
use sluice_api::slim;
use sluice_engine::{Kind, ObjectRef, is_superseded};

use super::patch::{Patch, patch_of};
use super::{ExplainError, Question};
use crate::record::{component, component_index};
use crate::simulation::Simulation;

/// A job that has a Workload.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The job as in the record. For an object whose pods are in groups: one of the groups; for a pod group: one of its pods.
    pub job: ObjectRef,
    /// Its Workload.
    pub workload: ObjectRef,
    /// The objects to patch for a change of the job: its object, or all pods of the group.
    pub objects: Vec<ObjectRef>,
}

impl Target {
    /// A merge patch of the job as patches of its objects.
    pub fn patches(&self, merge: &Value) -> Vec<Patch> {
        self.objects.iter().map(|object| patch_of(object, merge.clone())).collect()
    }

    /// The target of a Workload. If its job is of a kind that is not simulated (`alone`), the Workload itself.
    fn of(reference: ObjectRef, workload: &slim::Workload, alone: bool) -> (Option<JobKind>, Self) {
        let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
        let object = |owner: &OwnerReference| {
            let kind = JobKind::from_owner(&owner.api_version, &owner.kind)?;
            let namespace = Arc::clone(&reference.namespace);
            Some((kind, ObjectRef::namespaced(Kind::Job(kind), namespace, &*owner.name)))
        };
        // The pods of a group own its Workload together.
        let owner = owners.iter().find(|o| o.controller == Some(true)).or_else(|| owners.first());
        let Some((kind, job)) = owner.filter(|_| !alone).and_then(object) else {
            let (job, objects) = (reference.clone(), vec![reference.clone()]);
            return (None, Self { job, workload: reference, objects });
        };
        let of_pods = kind.integration().of_pods;
        let pods = owners.iter().filter(|_| of_pods).filter_map(object).map(|(_, pod)| pod);
        let objects: Vec<_> = if of_pods { pods.collect() } else { vec![job.clone()] };
        let group = Some(kind).filter(|kind| kind.has_groups()).and_then(|_| component_index(workload));
        let job = group.map_or_else(|| job.clone(), |number| component(&job, number));
        (Some(kind), Self { job, workload: reference, objects })
    }
}

impl Question<'_> {
    /// The job and its Workload.
    pub(super) fn find(&self, simulation: &Simulation) -> Result<Target, ExplainError> {
        let missing = || self.not_found();
        let workloads = simulation.engine().workloads();
        let of_namespace = workloads.filter(|(reference, _)| *reference.namespace == *self.namespace);
        // The job of a replaced slice continues.
        let found = of_namespace.filter(|(_, workload)| !is_superseded(workload));
        let mut running = None;
        for (reference, workload) in found {
            let alone = simulation.record().job(&reference).is_some();
            let (kind, target) = Target::of(reference, workload, alone);
            if self.means(kind, &target) {
                return Ok(target);
            }
            if self.means_object_of(simulation, &target.job) {
                if !is_true(&workload.status.conditions, "Admitted") {
                    return Ok(target);
                }
                running.get_or_insert(target);
            }
        }
        running.ok_or_else(missing)
    }

    /// Whether a pod that is a job belongs to the object of the question: a waiting pod stands for its object.
    fn means_object_of(&self, simulation: &Simulation, pod: &ObjectRef) -> bool {
        let (Some(Kind::Job(kind)), Kind::Job(own), None) = (self.kind, pod.kind, self.live) else {
            return false;
        };
        let object = ObjectRef::namespaced(Kind::Job(kind), self.namespace, self.name);
        own.integration().of_pods
            && kind.integration().pods_are_jobs
            && (simulation.serving.object_of(pod) == Some(&object) || kind.names_pod(self.name, &pod.name))
    }

    /// Whether a job is the one of the question.
    fn means(&self, kind: Option<JobKind>, target: &Target) -> bool {
        if let Some(account) = self.live {
            return account.workload == target.workload;
        }
        let is = |r: &ObjectRef| *r.name == *self.name && self.kind.is_none_or(|kind| kind == r.kind);
        // A group of pods goes by its own name, too, which is that of its Workload.
        let is_group = || {
            let pods = kind.filter(|kind| kind.integration().of_pods).map(Kind::Job);
            pods.is_some()
                && self.kind.is_none_or(|kind| Some(kind) == pods)
                && *target.workload.name == *self.name
        };
        is(&target.workload) || is(&target.job) || target.objects.iter().any(is) || is_group()
    }
}
