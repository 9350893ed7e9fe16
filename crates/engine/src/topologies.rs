//! Topologies: which exist, for the flavors that name them (docs/reference/03-conditions-events.md 3.2 `TopologyNotFound`), with the gate
//! TopologyAwareScheduling.

use std::sync::Arc;

use sluice_api::gates::Gate;
use sluice_api::v1beta2;
use sluice_core::{FlavorSpec, Name};

use crate::engine::Engine;
use crate::ingest::{queues, topology as ingested};
use crate::input::ObjectRef;

impl Engine {
    /// A flavor as the core takes it: without the gate no Topology matters.
    pub(crate) fn flavor_spec(&self, flavor: &v1beta2::ResourceFlavor) -> FlavorSpec {
        let mut spec = queues::flavor(flavor);
        spec.topology = spec.topology.filter(|_| self.config.gates.enabled(Gate::TopologyAwareScheduling));
        spec
    }

    /// Takes in a Topology.
    pub(crate) fn observe_topology(&mut self, reference: ObjectRef, topology: Box<v1beta2::Topology>) {
        let name = Arc::clone(&reference.name);
        let spec = ingested::spec(&topology);
        let known = self.world.topologies.insert(name, topology);
        if known.is_none_or(|known| ingested::spec(&known) != spec) {
            self.scheduler.set_topology(&spec);
            self.quota_changed();
        }
        self.dirty.statuses.insert(reference);
    }

    /// A Topology is gone.
    pub(crate) fn forget_topology(&mut self, name: &Name) {
        self.world.topologies.remove(name);
        self.scheduler.remove_topology(name);
        self.quota_changed();
    }
}
