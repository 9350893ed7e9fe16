//! Which pods own the Workload of a group, and whether a Workload is that of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sluice_api::gates::{Gate, Gates};
use sluice_api::labels;

use super::group::Group;
use super::member::Member;

/// The reference that makes a pod one of the owners of its group's Workload: it goes when the last of them is gone.
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

/// Whether a Workload with these annotations may be that of a group. Another one has only the same name, unless the gate
/// `PodIntegrationValidateGroupOwner` is off.
pub fn is_group_workload(annotations: &BTreeMap<String, String>, gates: &Gates) -> bool {
    let marked = annotations.get(labels::IS_GROUP_WORKLOAD).is_some_and(|value| value == "true");
    marked || !gates.enabled(Gate::PodIntegrationValidateGroupOwner)
}

impl Group {
    /// References to pods that do not own their Workload yet, and are to: those that are not `leaving` the group.
    pub fn missing_owners(&self, owners: &[OwnerReference], leaving: &[&[Arc<str>]]) -> Vec<OwnerReference> {
        let known: BTreeSet<&str> = owners.iter().map(|owner| owner.uid.as_str()).collect();
        let leaving: BTreeSet<&str> =
            leaving.iter().flat_map(|names| names.iter()).map(|name| &**name).collect();
        let stays = |member: &&Member| !known.contains(&*member.uid) && !leaving.contains(&*member.name);
        self.members().filter(stays).map(owner_reference).collect()
    }
}
