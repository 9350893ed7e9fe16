//! Works out what the pods of Workloads ask for, and keeps it with them.

use std::sync::OnceLock;

use serde_json::json;
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_core::WorkloadKey;

use super::asks::{Asks, SetAsks};
use super::pod::takes;
use crate::engine::Engine;
use crate::ingest::requests::per_pod;
use crate::world::WorkloadEntry;

impl Engine {
    /// The JobSet of a Workload.
    pub(super) fn jobset_of(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> Option<&JobView> {
        let job = self.world.job_by_uid.get(entry.owner.as_ref()?)?;
        // A job of another namespace is only claimed.
        let own = job.namespace == key.namespace && job.kind.integration().exclusive_topology.is_some();
        Some(&self.world.jobs.get(job).filter(|_| own)?.view)
    }

    /// What the pods of a Workload ask for.
    pub(super) fn asks<'a>(&self, key: &WorkloadKey, entry: &'a WorkloadEntry) -> &'a Asks {
        let set = |set: &slim::PodSet| self.asks_of(key, &set.template);
        entry.asks.get_or_init(|| Box::new(Asks(entry.object.spec.pod_sets.iter().map(set).collect())))
    }

    /// Forgets what pods ask for if LimitRanges or RuntimeClasses have changed since it was worked out.
    pub(super) fn forget_stale_asks(&mut self) {
        if std::mem::take(&mut self.world.asks_are_stale) {
            for entry in self.world.workloads.values_mut() {
                entry.asks = OnceLock::new();
            }
        }
    }

    fn asks_of(&self, key: &WorkloadKey, template: &slim::PodTemplate) -> SetAsks {
        let around = self.world.around(&key.namespace, &self.config);
        // The API server adds to a pod what its RuntimeClass says.
        let class = template.runtime_class_name.as_deref();
        let class = class.and_then(|name| self.world.runtime_classes.get(name));
        let mut tolerations = template.tolerations.clone();
        tolerations.extend(class.into_iter().flat_map(|class| class.tolerations.iter().cloned()));
        let of_node = takes(template, around.limits, around.runtime_classes);
        let shape = json!([
            template.node_selector,
            class.map(|class| &class.node_selector),
            template.node_affinity,
            tolerations,
            of_node.iter().map(|(resource, amount)| (&**resource, amount.get() > 0)).collect::<Vec<_>>(),
        ]);
        let (of_quota, _) = per_pod(template, "", around);
        SetAsks { of_node, of_quota, tolerations, shape: shape.to_string().into() }
    }
}
