//! The finalizer that keeps a ClusterQueue, ResourceFlavor, AdmissionCheck or Topology while it is in use (docs/reference/04-labels-annotations.md
//! 4.3), and the event that names what still uses it while it is being deleted.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::labels::RESOURCE_IN_USE_FINALIZER;
use sluice_api::v1beta2;

use crate::REPORTER_WORKLOAD;
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::outbox::{About, normal};

/// Names that an event lists.
const NAMES: usize = 10;
/// The reason of the event; Kueue has none.
const IN_USE: &str = "InUse";

impl Engine {
    /// The patch of an object's finalizers, if they have to change.
    pub(crate) fn finalizer_patch(&self, object: &ObjectRef) -> Option<Value> {
        let metadata = self.protected(object)?;
        let finalizers = metadata.finalizers.iter().flatten().map(String::as_str);
        let next: Vec<_> = match (metadata.deletion_timestamp.is_some(), is_held(metadata)) {
            (false, false) => finalizers.chain([RESOURCE_IN_USE_FINALIZER]).collect(),
            (true, true) if self.holders(object).is_none() => {
                finalizers.filter(|finalizer| *finalizer != RESOURCE_IN_USE_FINALIZER).collect()
            }
            _ => return None,
        };
        Some(json!({"metadata": {
            "finalizers": next,
            "resourceVersion": metadata.resource_version,
            "uid": metadata.uid,
        }}))
    }

    pub(crate) fn protected(&self, object: &ObjectRef) -> Option<&ObjectMeta> {
        let name = &object.name;
        match object.kind {
            Kind::ClusterQueue => self.world.cluster_queues.get(name).map(|queue| &queue.metadata),
            Kind::ResourceFlavor => self.world.flavors.get(name).map(|flavor| &flavor.metadata),
            Kind::AdmissionCheck => self.world.checks.get(name).map(|check| &check.metadata),
            Kind::Topology if self.config.gates.enabled(Gate::TopologyAwareScheduling) => {
                self.world.topologies.get(name).map(|topology| &topology.metadata)
            }
            _ => None,
        }
    }

    /// What uses an object, in words.
    fn holders(&self, object: &ObjectRef) -> Option<String> {
        let name = &*object.name;
        let queues = self.world.cluster_queues.iter();
        let names: Vec<_> = match object.kind {
            Kind::ClusterQueue => {
                let reserving = self.scheduler.cluster_queue_status(name).map_or(0, |s| s.reserving);
                return (reserving > 0).then(|| format!("{reserving} Workloads with a reservation"));
            }
            Kind::ResourceFlavor => {
                // Cohorts name flavors, too, and do not hold them.
                let queues = queues.filter(|(_, q)| names_flavor(&q.spec.resource_groups, name));
                queues.map(|(queue, _)| format!("ClusterQueue {queue}")).collect()
            }
            Kind::AdmissionCheck => {
                let queues = queues.filter(|(_, q)| names_check(&q.spec, name));
                queues.map(|(queue, _)| format!("ClusterQueue {queue}")).collect()
            }
            Kind::Topology => {
                let flavors = self.world.flavors.iter();
                let flavors = flavors.filter(|(_, f)| f.spec.topology_name.as_deref() == Some(name));
                flavors.map(|(flavor, _)| format!("ResourceFlavor {flavor}")).collect()
            }
            _ => return None,
        };
        let more = names.len().saturating_sub(NAMES);
        let mut text = names.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
        if more > 0 {
            // Writing into a String does not fail.
            let _ = write!(text, " and {more} more");
        }
        (!names.is_empty()).then_some(text)
    }

    /// Reports what still uses an object that is being deleted, once for each set of holders.
    pub(crate) fn report_holders(&mut self, object: &ObjectRef) {
        let leaves = |metadata: &&ObjectMeta| metadata.deletion_timestamp.is_some() && is_held(metadata);
        let Some(metadata) = self.protected(object).filter(leaves) else { return };
        let Some((uid, holders)) = metadata.uid.clone().zip(self.holders(object)) else { return };
        let entry = self.statuses.entry(object.clone()).or_default();
        if entry.reported_holders.as_ref() == Some(&holders) {
            return;
        }
        let note = format!("Kept until it is no longer used by: {holders}");
        entry.reported_holders = Some(holders);
        self.outbox.push(normal(About::new(object, &uid.into(), REPORTER_WORKLOAD), IN_USE, note));
    }
}

/// Whether an object has the finalizer.
fn is_held(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|finalizer| finalizer == RESOURCE_IN_USE_FINALIZER)
}

fn names_flavor(groups: &[v1beta2::ResourceGroup], name: &str) -> bool {
    groups.iter().any(|group| group.flavors.iter().any(|flavor| flavor.name == name))
}

fn names_check(spec: &v1beta2::ClusterQueueSpec, name: &str) -> bool {
    let strategy = spec.admission_checks_strategy.as_ref();
    strategy.is_some_and(|strategy| strategy.admission_checks.iter().any(|check| check.name == name))
}
