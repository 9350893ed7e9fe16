//! Which group of an object's pods a Workload is for.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sluice_api::job::{JobKind, group_uid};
use sluice_api::names::{MAX_SHORT_WORKLOAD_NAME, MAX_WORKLOAD_NAME, workload_name};
use sluice_api::{labels, slim};

/// The UID of the job that a Workload of the object with this UID belongs to: that of a group, if the Workload is for one. Its owner reference may
/// have been lost.
pub(crate) fn of_group<'a>(
    object: &slim::Workload,
    owner: Option<&OwnerReference>,
    uid: &'a str,
) -> Cow<'a, str> {
    match index(object, owner) {
        Some(group) => group_uid(uid, group).into(),
        None => uid.into(),
    }
}

/// The Workload says it, or, as older releases of Kueue made it, its name does.
pub(super) fn index(object: &slim::Workload, owner: Option<&OwnerReference>) -> Option<u32> {
    let kind = owner.map(|owner| JobKind::from_owner(&owner.api_version, &owner.kind));
    if kind.is_some_and(|kind| !kind.is_some_and(JobKind::has_groups)) {
        return None;
    }
    let annotations = object.metadata.annotations.as_ref();
    if let Some(said) = annotations.and_then(|all| all.get(labels::COMPONENT_WORKLOAD_INDEX)) {
        return said.parse().ok();
    }
    let (owner, kind) = owner.zip(kind.flatten())?;
    let name = object.metadata.name.as_deref()?;
    let begin = format!("{}-{}-", kind.kind().to_ascii_lowercase(), owner.name);
    let index = name.strip_prefix(&begin)?.rsplit_once('-')?.0.parse::<u32>().ok()?;
    let full = format!("{}-{index}", owner.name);
    let named = |longest| workload_name(kind.kind(), kind.group(), &full, &owner.uid, None, longest) == name;
    [MAX_WORKLOAD_NAME, MAX_SHORT_WORKLOAD_NAME].into_iter().any(named).then_some(index)
}
