//! Objects that made the engine panic: they are left out until they change.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_core::WorkloadKey;

use crate::effect::Level;
use crate::engine::Engine;
use crate::input::{Kind, Object, ObjectRef};
use crate::outbox::{About, warning};
use crate::world::job_key;

impl Engine {
    /// Whether an object is left out, because it made an earlier engine panic and has not changed since.
    pub fn leaves_out(&self, object: &ObjectRef) -> bool {
        self.aside.contains_key(object)
    }

    /// Forgets the objects of a kind that a complete list lacks.
    pub(crate) fn keep_aside(&mut self, kind: Kind, present: &BTreeSet<ObjectRef>) {
        // A group of pods has no object that could be listed.
        if !matches!(kind, Kind::Job(kind) if kind.integration().of_pods) {
            self.aside.retain(|object, _| object.kind != kind || present.contains(object));
        }
    }

    /// Leaves an object out until it changes.
    pub(crate) fn set_aside(&mut self, object: &ObjectRef, why: String) {
        let version = match object.kind {
            Kind::Workload => {
                let key = WorkloadKey::new(Arc::clone(&object.namespace), Arc::clone(&object.name));
                self.world.workloads.get(&key).and_then(|e| e.object.metadata.resource_version.clone())
            }
            Kind::Job(kind) if kind.integration().of_pods => {
                self.world.member(object).map(|(_, member)| member.resource_version.clone())
            }
            Kind::Job(_) => job_key(object).and_then(|key| {
                let set = || self.world.sets.get(&key);
                let view = self.world.jobs.get(&key).map(|entry| &entry.view).or_else(set)?;
                Some(view.resource_version.clone())
            }),
            _ => None,
        };
        self.forget_object(object, None);
        let note = format!("Set aside until it changes, because it could not be handled: {why}");
        let uid: Arc<str> = "".into();
        self.outbox.push(warning(About::new(object, &uid, crate::REPORTER_WORKLOAD), "SetAside", note));
        self.outbox.push(self.log(Level::Error, "object set aside", &[("object", object), ("why", &why)]));
        self.aside.insert(object.clone(), (version, why));
    }

    /// Whether the object is set aside, and is still the version that was.
    pub(crate) fn is_aside(&mut self, reference: &ObjectRef, object: &Object) -> bool {
        let Some((version, _)) = self.aside.get_mut(reference) else { return false };
        let seen = match object {
            Object::Job(view) => Some(view.resource_version.clone()),
            Object::QueuedPod(member) => Some(member.resource_version.clone()),
            Object::Workload(workload) => workload.metadata.resource_version.clone(),
            _ => None,
        };
        match version {
            None => {
                *version = seen;
                true
            }
            Some(_) if *version == seen => true,
            Some(_) => {
                self.aside.remove(reference);
                false
            }
        }
    }
}
