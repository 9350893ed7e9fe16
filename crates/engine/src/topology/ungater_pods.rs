//! Which Workloads' pods need a look.

use std::sync::Arc;

use sluice_core::{Name, WorkloadKey};

use crate::engine::Engine;
use crate::job_pod::JobPod;
use crate::lifecycle::slices::first_slice;

impl Engine {
    /// Marks the pods of the Workload that a pod is of.
    pub(crate) fn mark_place(&mut self, namespace: &Name, pod: &JobPod) {
        if let Some(place) = &pod.place {
            self.dirty.placed.insert(WorkloadKey::new(Arc::clone(namespace), Arc::clone(&place.workload)));
        }
    }

    /// Marks the pods of a Workload that was looked at, if any have a place.
    pub(crate) fn mark_places_of(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        let first = WorkloadKey::new(Arc::clone(&key.namespace), first_slice(&key.name, entry));
        if self.world.placed.contains_key(&first) {
            self.dirty.placed.insert(first);
        }
    }

    /// Marks all pods with a place.
    pub(crate) fn mark_places(&mut self) {
        self.dirty.placed.extend(self.world.placed.keys().cloned());
    }
}
