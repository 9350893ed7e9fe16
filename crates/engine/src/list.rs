//! Complete lists: an object that a list lacks is gone, unless it may be younger than the list.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_core::{Name, WorkloadKey};

use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::world::JobKey;

impl Engine {
    /// Takes in a complete list: what it lacks is gone. What was made while the list was under way may not be in it: forgetting that
    /// would give its quota away, so it is read first.
    pub(crate) fn reconcile_list(&mut self, kind: Kind, present: Vec<ObjectRef>, as_of: Option<u64>) {
        let first = self.listed.insert(kind);
        let present: BTreeSet<_> = present.into_iter().collect();
        self.keep_aside(kind, &present);
        for lacking in self.known(kind).into_iter().filter(|o| !present.contains(o)) {
            let version = self.made_version(&lacking).and_then(|version| version.parse::<u64>().ok());
            if as_of.zip(version).is_some_and(|(as_of, version)| version > as_of) {
                self.read_again(&lacking);
            } else {
                self.forget_object(&lacking, None);
            }
        }
        if first {
            self.topology_may_be_used();
        }
        if matches!(kind, Kind::Pod | Kind::Node) {
            self.hotswap_stale();
            if first {
                self.mark_stuck();
                self.note_strays();
            }
        }
        if first && kind == Kind::JobPod {
            self.mark_jobs_of_pods();
            self.mark_places();
        }
        if first && let Kind::Job(_) = kind {
            self.dirty.workloads.extend(self.world.workloads.keys().cloned());
        }
    }

    /// The known version of an object, for kinds that we create ourselves.
    fn made_version(&self, object: &ObjectRef) -> Option<&str> {
        let (namespace, name) = (Arc::clone(&object.namespace), Arc::clone(&object.name));
        let metadata = match object.kind {
            Kind::Workload => &self.world.workloads.get(&WorkloadKey::new(namespace, name))?.object.metadata,
            Kind::ProvisioningRequest => &self.world.provisioning_requests.get(&(namespace, name))?.metadata,
            _ => return None,
        };
        metadata.resource_version.as_deref()
    }

    /// Every known object of a kind.
    fn known(&self, kind: Kind) -> Vec<ObjectRef> {
        let world = &self.world;
        let cluster =
            |names: Vec<&Name>| names.into_iter().map(|n| ObjectRef::cluster(kind, Arc::clone(n))).collect();
        match kind {
            Kind::ResourceFlavor => cluster(world.flavors.keys().collect()),
            Kind::ClusterQueue => cluster(world.cluster_queues.keys().collect()),
            Kind::Cohort => cluster(world.cohorts.keys().collect()),
            Kind::AdmissionCheck => cluster(world.checks.keys().collect()),
            Kind::Topology => cluster(world.topologies.keys().collect()),
            Kind::WorkloadPriorityClass => cluster(world.workload_priority_classes.keys().collect()),
            Kind::PriorityClass => cluster(world.priority_classes.keys().collect()),
            Kind::Namespace => cluster(world.namespaces.keys().collect()),
            Kind::Node => cluster(world.nodes.keys().collect()),
            Kind::Pod => world
                .pods
                .keys()
                .map(|(ns, n)| ObjectRef::namespaced(kind, Arc::clone(ns), Arc::clone(n)))
                .chain(self.terminating_pods())
                .collect(),
            Kind::JobPod => world
                .job_pods
                .keys()
                .map(|(ns, n)| ObjectRef::namespaced(kind, Arc::clone(ns), Arc::clone(n)))
                .collect(),
            Kind::RuntimeClass => cluster(world.runtime_classes.keys().collect()),
            Kind::ProvisioningRequestConfig => cluster(world.provisioning_configs.keys().collect()),
            Kind::ProvisioningRequest => {
                world.provisioning_requests.keys().map(crate::provisioning::seen::request_ref).collect()
            }
            Kind::Template(k) => {
                world.templates.names().filter(|t| t.kind == k).map(ObjectRef::of_template).collect()
            }
            // Never watched, so never listed.
            Kind::PodTemplate => Vec::new(),
            Kind::Workload => world.workloads.keys().map(crate::world::workload_ref).collect(),
            Kind::Job(k) if k.integration().of_pods => world
                .pod_homes
                .keys()
                .map(|(ns, n)| ObjectRef::namespaced(kind, Arc::clone(ns), Arc::clone(n)))
                .collect(),
            Kind::Job(k) if k.has_groups() => {
                world.sets.keys().filter(|j| j.kind == k).map(JobKey::object).collect()
            }
            Kind::Job(k) => {
                let keys = world.jobs.keys().chain(world.external.keys());
                keys.filter(|j| j.kind == k).map(JobKey::object).collect()
            }
            Kind::LocalQueue => world
                .local_queues
                .keys()
                .map(|(ns, n)| ObjectRef::namespaced(kind, Arc::clone(ns), Arc::clone(n)))
                .collect(),
            Kind::LimitRange => world
                .limit_ranges
                .iter()
                .flat_map(|(ns, m)| m.keys().map(move |n| (ns, n)))
                .map(|(ns, n)| ObjectRef::namespaced(kind, Arc::clone(ns), Arc::clone(n)))
                .collect(),
        }
    }
}
