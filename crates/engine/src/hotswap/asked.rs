//! Computes what the pods of Workloads ask for, and keeps the result with the Workloads.

use std::sync::{Arc, OnceLock};

use serde_json::json;
use sluice_api::slim;
use sluice_core::{Amount, WorkloadKey};

use super::asks::{Asks, SetAsks};
use super::pod::takes;
use super::snapshot::{Asked, SeenWorkload, Snapshot};
use crate::engine::Engine;
use crate::ingest::requests::per_pod;
use crate::ingest::workload::effective_count;

/// The number of templates whose pods' requests are kept during a look: the latest ones.
const MOST_ASKED: usize = 8;

impl Engine {
    /// What the pods of a Workload ask for.
    pub(super) fn asks<'a>(&self, workload: &SeenWorkload<'a>, snapshot: &Snapshot<'_>) -> &'a Asks {
        let entry = workload.entry;
        entry.asks.get_or_init(|| {
            let sets = entry.object.spec.pod_sets.iter().enumerate();
            let asks = sets.map(|(at, set)| self.shared_asks(workload.key, (at, set), snapshot));
            Box::new(Asks(asks.collect()))
        })
    }

    /// The requests of the pods of one pod set: shared with an equal template that was looked at before in this look, as most Workloads are alike.
    fn shared_asks(
        &self,
        key: &WorkloadKey,
        (pod_set, set): (usize, &slim::PodSet),
        snapshot: &Snapshot<'_>,
    ) -> Arc<SetAsks> {
        let template = &set.template;
        let like = |known: &&Asked| {
            let other = &snapshot.workloads[known.workload];
            let sets = &other.entry.object.spec.pod_sets;
            other.key.namespace == key.namespace
                && sets.get(known.pod_set).is_some_and(|other| other.template == *template)
        };
        if let Some(known) = snapshot.asked.borrow().iter().rev().find(like) {
            return Arc::clone(&known.asks);
        }
        let asks = Arc::new(self.asks_of(key, template));
        if let Some(workload) = snapshot.number(self, key) {
            let mut asked = snapshot.asked.borrow_mut();
            if asked.len() == MOST_ASKED {
                asked.remove(0);
            }
            asked.push(Asked { workload, pod_set, asks: Arc::clone(&asks) });
        }
        asks
    }

    /// Whether it is certain that the requests of the pods of a Workload are valid. The rules are those for all Workloads; what they need is known
    /// here already.
    pub(super) fn asks_rightly(&self, workload: &SeenWorkload<'_>, snapshot: &Snapshot<'_>) -> bool {
        let (object, status) = (&workload.entry.object, workload.entry.status());
        let asks = &self.asks(workload, snapshot).0;
        let most = i64::MAX / i64::try_from(asks.len() + 1).unwrap_or(i64::MAX);
        object.spec.pod_sets.iter().zip(asks).all(|(set, asks)| {
            let count = effective_count(set, status, &self.config);
            let counted =
                |(_, amount): &(_, Amount)| amount.get().checked_mul(count).is_some_and(|all| all < most);
            asks.valid && !set.template.has_resource_claims && asks.of_quota.iter().all(counted)
        })
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
        let class = around.class_of(template);
        let mut tolerations = template.tolerations.clone();
        tolerations.extend(class.into_iter().flat_map(|class| class.tolerations.iter().cloned()));
        let of_node = takes(template, around.limits, around.runtime_classes);
        let shape = json!([
            template.node_selector,
            class.map(|class| &class.node_selector),
            template.node_affinity(),
            tolerations,
            of_node.iter().map(|(resource, amount)| (&**resource, amount.get() > 0)).collect::<Vec<_>>(),
        ]);
        let (of_quota, wrong) = per_pod(template, "", around);
        SetAsks { of_node, valid: wrong.is_none(), of_quota, tolerations, shape: shape.to_string().into() }
    }
}
