//! ProvisioningRequests and their configurations as they were seen.

use std::sync::Arc;

use sluice_api::slim;
use sluice_core::{Name, WorkloadKey};

use super::parameters::parameters_of;
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::world::{WorkloadEntry, World};

/// The Workload that controls a request: its name and UID.
fn owner(request: &slim::ProvisioningRequest) -> Option<(&str, &str)> {
    let owners = request.metadata.owner_references.iter().flatten();
    owners
        .filter(|o| o.kind == Kind::Workload.as_str())
        .find(|o| o.controller == Some(true))
        .map(|o| (o.name.as_str(), o.uid.as_str()))
}

impl World {
    /// The requests that a Workload controls.
    pub(crate) fn requests_of(&self, uid: &str) -> Vec<(Name, Name)> {
        self.requests_by_owner.get(uid).into_iter().flatten().cloned().collect()
    }

    fn put_request(&mut self, key: (Name, Name), request: Box<slim::ProvisioningRequest>) {
        self.take_request(&key);
        if let Some((_, uid)) = owner(&request) {
            self.requests_by_owner.entry(Name::from(uid)).or_default().insert(key.clone());
        }
        self.provisioning_requests.insert(key, request);
    }

    fn take_request(&mut self, key: &(Name, Name)) -> Option<Box<slim::ProvisioningRequest>> {
        let request = self.provisioning_requests.remove(key)?;
        if let Some((_, uid)) = owner(&request)
            && let Some(siblings) = self.requests_by_owner.get_mut(uid)
        {
            siblings.remove(key);
            if siblings.is_empty() {
                self.requests_by_owner.remove(uid);
            }
        }
        Some(request)
    }
}

/// The reference to a request's object.
pub(crate) fn request_ref(key: &(Name, Name)) -> ObjectRef {
    ObjectRef::namespaced(Kind::ProvisioningRequest, Arc::clone(&key.0), Arc::clone(&key.1))
}

impl Engine {
    /// Takes in a request, as its provider or we wrote it.
    pub(crate) fn observe_request(&mut self, object: &ObjectRef, request: Box<slim::ProvisioningRequest>) {
        let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
        let known = self.world.provisioning_requests.get(&key).map(|r| &r.metadata);
        let older = known.is_some_and(|known| {
            known.uid == request.metadata.uid
                && crate::version::is_stale(
                    known.resource_version.as_deref(),
                    request.metadata.resource_version.as_deref(),
                )
        });
        if older {
            return;
        }
        self.mark_owner(&object.namespace, &request);
        self.world.put_request(key, request);
    }

    /// Whether a deletion is about the known object: the late event of a deleted one must not remove its successor.
    pub(crate) fn may_forget(&self, object: &ObjectRef, uid: Option<&str>) -> bool {
        if object.kind != Kind::ProvisioningRequest {
            return true;
        }
        let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
        let known = self.world.provisioning_requests.get(&key);
        known.is_some_and(|r| uid.is_none() || r.metadata.uid.as_deref() == uid)
    }

    /// Takes in that a request is gone.
    pub(crate) fn forget_request(&mut self, object: &ObjectRef) {
        let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
        if let Some(request) = self.world.take_request(&key) {
            self.mark_owner(&object.namespace, &request);
            // Its templates go with it.
            for set in &request.spec.pod_sets {
                let name = set.pod_template_ref.name.as_str();
                let template = ObjectRef::namespaced(Kind::PodTemplate, Arc::clone(&object.namespace), name);
                self.made.forget_object(&template);
                self.statuses.remove(&template);
            }
        }
        self.made.forget_object(object);
    }

    fn mark_owner(&mut self, namespace: &Name, request: &slim::ProvisioningRequest) {
        if let Some((name, _)) = owner(request) {
            self.dirty.workloads.insert(WorkloadKey::new(Arc::clone(namespace), name));
        }
    }

    /// A configuration came, changed or went: the checks that name it, and the Workloads that wait for those.
    pub(crate) fn config_changed(&mut self, name: &str) {
        let naming = self.world.checks.iter().filter(|(_, check)| parameters_of(check) == Ok(name));
        for check in naming.map(|(check, _)| Arc::clone(check)).collect::<Vec<_>>() {
            self.mark_checked_workloads(&check);
            self.dirty.statuses.insert(ObjectRef::cluster(Kind::AdmissionCheck, check));
        }
    }

    /// Marks the Workloads that an admission check is asked about.
    pub(crate) fn mark_checked_workloads(&mut self, check: &str) {
        if !self.synced {
            return;
        }
        let asks = |entry: &WorkloadEntry| entry.status().admission_checks.iter().any(|c| c.name == check);
        let checked = self.world.workloads.iter().filter(|(_, entry)| asks(entry));
        self.dirty.workloads.extend(checked.map(|(key, _)| key.clone()));
    }

    /// A write for a Workload was made, or has to be retried: look at the Workload.
    pub(crate) fn mark_maker(&mut self, object: &ObjectRef) {
        if let Some(key) = self.made.owners.get(object) {
            self.dirty.workloads.insert(key.clone());
        }
    }
}
