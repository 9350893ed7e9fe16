//! Which job a Workload belongs to, by its owner references. The Workload of a group has all of its pods as owners: the world keeps what a search
//! through them finds.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sluice_api::job::JobKind;
use sluice_api::{labels, slim};

use crate::keys::pod_group_uid;
use crate::pod_jobs::component::of_group;

/// Whether an owner reference names a pod.
fn is_pod(owner: &OwnerReference) -> bool {
    owner.kind == "Pod" && owner.api_version == "v1"
}

/// The position of the owner reference of a Workload's controller; or of the object whose pods it is for, which is not marked as controller.
pub(super) fn controller_position(object: &slim::Workload) -> Option<usize> {
    let owners = object.metadata.owner_references.as_deref()?;
    let gathers = |kind: JobKind| kind.gathers_pods();
    let of_kind = |owner: &OwnerReference| {
        !is_pod(owner) && JobKind::from_owner(&owner.api_version, &owner.kind).is_some_and(gathers)
    };
    let controller = owners.iter().position(|owner| owner.controller == Some(true));
    controller.or_else(|| owners.iter().position(of_kind))
}

/// That owner reference.
pub(crate) fn controller(object: &slim::Workload) -> Option<&OwnerReference> {
    object.metadata.owner_references.as_deref()?.get(controller_position(object)?)
}

/// Whether a Workload belongs to a group of pods: it has the annotation of groups, or pods own it, and none of them is its controller.
pub(crate) fn is_of_group(object: &slim::Workload) -> bool {
    let metadata = &object.metadata;
    let marked = metadata.annotations.as_ref().and_then(|all| all.get(labels::IS_GROUP_WORKLOAD));
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let by_pods = || owners.iter().any(is_pod);
    controller(object).is_none() && (marked.is_some_and(|value| value == "true") || by_pods())
}

/// The UID of the job that a Workload belongs to: its controller's; that of its group; or, if it lost all its owner references, that of the label
/// which it got from its job.
pub(super) fn job_uid(object: &slim::Workload) -> Option<Cow<'_, str>> {
    if is_of_group(object) {
        let metadata = &object.metadata;
        return Some(pod_group_uid(metadata.namespace.as_deref()?, metadata.name.as_deref()?).into());
    }
    if object.metadata.owner_references.iter().flatten().next().is_some() {
        return controller(object).map(|owner| of_group(object, Some(owner), &owner.uid));
    }
    object.metadata.labels.as_ref()?.get(labels::JOB_UID).map(|uid| of_group(object, None, uid))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_core::WorkloadKey;

    use super::super::World;
    use super::*;

    #[test]
    fn a_workload_is_found_by_the_queue_and_the_job_that_its_latest_version_names() {
        let (mut world, key) = (World::default(), WorkloadKey::new("ns", "w"));
        for (queue, job) in [("a", "1"), ("a", "1"), ("b", "1"), ("b", "2"), ("a", "1")] {
            let object = json!({
                "metadata": {"name": "w", "namespace": "ns", "uid": "u", "labels": {(labels::JOB_UID): job}},
                "spec": {"queueName": queue, "podSets": []},
            });
            world.put_workload(&key, serde_json::from_value(object).unwrap());
            let queues: Vec<_> = world.by_queue.keys().map(|(_, name)| &**name).collect();
            let jobs: Vec<_> = world.by_owner.keys().map(|uid| &**uid).collect();
            assert_eq!((queues, jobs), (vec![queue], vec![job]));
        }
        world.take_workload(&key);
        assert!(world.by_queue.is_empty() && world.by_owner.is_empty());
    }
}
