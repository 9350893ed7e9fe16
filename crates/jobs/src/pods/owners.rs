//! Which pods own the Workload of a group, and whether a Workload belongs to a group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sluice_api::gates::{Gate, Gates};
use sluice_api::labels;

use super::group::Group;
use super::member::Member;

/// How many bytes of a Workload may be references to the pods of its group. etcd stores an object of at most 1.5 MiB; the rest is for spec and
/// status, which may have the nodes of each pod.
pub const MAX_OWNER_BYTES: usize = 1024 * 1024;

/// The bytes of a stored Workload for each owner besides its name: the reference, and its entry in `metadata.managedFields`.
pub(super) const OWNER_BYTES: usize = r#"{"apiVersion":"v1","kind":"Pod","name":"","uid":""},"#.len()
    + r#""k:{\"uid\":\"\"}":{},"#.len()
    + 2 * UID;

/// The length of a UID.
const UID: usize = "00000000-0000-0000-0000-000000000000".len();

/// How much of a stored Workload it takes that a pod of this name is an owner.
pub fn owner_bytes(name: &str) -> usize {
    OWNER_BYTES + name.len()
}

/// The reference that makes a pod one of the owners of its group's Workload: the Workload is deleted with the last of them.
pub fn owner_reference(member: &Member) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: member.name.to_string(),
        uid: member.uid.to_string(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// Whether a Workload with these annotations may belong to a group. Another one only has the same name, unless the gate
/// `PodIntegrationValidateGroupOwner` is off.
pub fn is_group_workload(annotations: &BTreeMap<String, String>, gates: &Gates) -> bool {
    let marked = annotations.get(labels::IS_GROUP_WORKLOAD).is_some_and(|value| value == "true");
    marked || !gates.enabled(Gate::PodIntegrationValidateGroupOwner)
}

impl Group {
    /// References to pods that have to become owners of their Workload: those that are not `leaving` the group.
    pub fn missing_owners(&self, owners: &[OwnerReference], leaving: &[&[Arc<str>]]) -> Vec<OwnerReference> {
        let known: BTreeSet<&str> = owners.iter().map(|owner| owner.uid.as_str()).collect();
        let leaving: BTreeSet<&str> =
            leaving.iter().flat_map(|names| names.iter()).map(|name| &**name).collect();
        let stays = |member: &&Member| !known.contains(&*member.uid) && !leaving.contains(&*member.name);
        self.members().filter(stays).map(owner_reference).collect()
    }

    /// The owners of the group's Workload after these pods came: all, as far as they fit. Where they do not, pods that are gone or do not count are
    /// left out first, then the last that came.
    pub fn owners_with(&self, owners: &[OwnerReference], new: Vec<OwnerReference>) -> Vec<OwnerReference> {
        let size =
            |owners: &[OwnerReference]| owners.iter().map(|owner| owner_bytes(&owner.name)).sum::<usize>();
        let mut all: Vec<_> = owners.iter().cloned().chain(new).collect();
        if size(&all) <= MAX_OWNER_BYTES {
            return all;
        }
        let counts = |owner: &OwnerReference| {
            let member = self.get(&owner.name).filter(|member| *member.uid == *owner.uid);
            owner.kind != "Pod" || member.is_some_and(Member::counts)
        };
        all.sort_by_key(|owner| !counts(owner));
        let mut bytes = 0;
        let fits = |owner: &OwnerReference| {
            bytes += owner_bytes(&owner.name);
            bytes <= MAX_OWNER_BYTES
        };
        all.into_iter().take_while(fits).collect()
    }
}
