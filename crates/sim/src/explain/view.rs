//! The objects of an explanation: as they were read from a cluster, or as they are in a virtual one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_engine::{Kind, ObjectRef};

use crate::Manifests;
use crate::simulation::Simulation;

/// Objects by their reference.
pub(super) enum View<'a> {
    /// As they were read, and the plural names of the kinds that were not, or not wholly.
    Read(BTreeMap<ObjectRef, &'a Value>, BTreeSet<&'static str>),
    /// From a virtual cluster.
    Played(&'a Simulation),
}

impl<'a> View<'a> {
    /// The objects that were read.
    pub fn read(manifests: &'a Manifests) -> Self {
        let all = manifests.objects.iter();
        let all = all.map(|m| (crate::object::reference(m.kind, &m.object), &m.object));
        Self::Read(all.collect(), manifests.unread.iter().map(|unread| unread.what).collect())
    }

    /// Whether the view has all objects of the kind, so that an absent one does not exist.
    pub fn knows(&self, kind: Kind) -> bool {
        match self {
            Self::Read(_, unread) => !unread.contains(kind.plural()),
            Self::Played(_) => true,
        }
    }

    /// An object.
    pub fn get(&self, reference: &ObjectRef) -> Option<&'a Value> {
        match self {
            Self::Read(all, _) => all.get(reference).copied(),
            Self::Played(simulation) => simulation.object(reference),
        }
    }

    /// An object of a cluster-scoped kind.
    pub fn cluster(&self, kind: Kind, name: &str) -> Option<&'a Value> {
        self.get(&ObjectRef::cluster(kind, name))
    }

    /// An object in a namespace.
    pub fn namespaced(&self, kind: Kind, namespace: &str, name: &str) -> Option<&'a Value> {
        self.get(&ObjectRef::namespaced(kind, namespace, name))
    }

    /// All objects of a kind, by name.
    pub fn of_kind(&self, kind: Kind) -> Vec<(&ObjectRef, &'a Value)> {
        match self {
            Self::Read(all, _) => all.iter().filter(|(r, _)| r.kind == kind).map(|(r, v)| (r, *v)).collect(),
            Self::Played(simulation) => simulation.objects(kind).collect(),
        }
    }
}
