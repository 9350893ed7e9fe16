//! Which objects exist.

use std::sync::Arc;

use super::World;
use crate::input::{Kind, ObjectRef};

impl World {
    /// Whether an object exists that has a status or a finalizer of Sluice.
    pub fn has(&self, object: &ObjectRef) -> bool {
        let name = &object.name;
        match object.kind {
            Kind::ClusterQueue => self.cluster_queues.contains_key(name),
            Kind::Cohort => self.cohorts.contains_key(name),
            Kind::ResourceFlavor => self.flavors.contains_key(name),
            Kind::Topology => self.topologies.contains_key(name),
            Kind::AdmissionCheck => self.checks.contains_key(name),
            Kind::LocalQueue => {
                self.local_queues.contains_key(&(Arc::clone(&object.namespace), Arc::clone(name)))
            }
            _ => false,
        }
    }
}
