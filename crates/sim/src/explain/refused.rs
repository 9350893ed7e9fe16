//! Why each flavor was refused to each pod set.

use std::sync::Arc;

use serde::Serialize;
use sluice_core::{Detail, Refusal, Unadmitted};

use super::Question;
use crate::record::{JobRecord, show_amount};
use crate::simulation::Simulation;

/// Why a pod set cannot have a flavor, and which jobs hold it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The pod set.
    pub pod_set: Arc<str>,
    /// The flavor, if the refusal is about one.
    pub flavor: Option<Arc<str>>,
    /// The resource, if the refusal is about one.
    pub resource: Option<Arc<str>>,
    /// The refusal in words.
    pub why: String,
    /// The amount that is needed, with what the pod sets before and those of its pod set group need.
    pub needed: Option<String>,
    /// The amount that is free.
    pub free: Option<String>,
    /// Which preemption was considered, and why it does not help.
    pub preemption: Option<String>,
    /// Jobs that a policy protects, and which policy.
    pub spared: Vec<String>,
    /// The jobs that hold it, the largest first.
    pub held_by: Vec<String>,
}

impl Question<'_> {
    /// Every refusal of a decision.
    pub(super) fn refusals(
        &self,
        simulation: &Simulation,
        record: &JobRecord,
        decision: &Unadmitted,
    ) -> Vec<Refused> {
        let (Detail::Flavors { pod_sets, .. } | Detail::PreemptionLoop { pod_sets, .. }) = &decision.detail
        else {
            return Vec::new();
        };
        let each = pod_sets.iter().flat_map(|set| set.refusals.iter().map(move |refusal| (set, refusal)));
        each.map(|(set, refusal)| self.refused(simulation, record, &set.name, refusal)).collect()
    }

    fn refused(
        &self,
        simulation: &Simulation,
        record: &JobRecord,
        pod_set: &Arc<str>,
        refusal: &Refusal,
    ) -> Refused {
        let mut refused = Refused {
            pod_set: Arc::clone(pod_set),
            flavor: None,
            resource: None,
            why: refusal.to_string(),
            needed: None,
            free: None,
            preemption: None,
            spared: Vec::new(),
            held_by: Vec::new(),
        };
        match refusal {
            Refusal::ResourceUnavailable { resource, .. } => refused.resource = Some(Arc::clone(resource)),
            Refusal::FlavorNotFound { flavor }
            | Refusal::UntoleratedTaint { flavor, .. }
            | Refusal::NodeAffinity { flavor }
            | Refusal::WithoutTopology { flavor }
            | Refusal::TopologyUnknown { flavor }
            | Refusal::LevelMissing { flavor }
            | Refusal::OnlyTopology { flavor }
            | Refusal::Ungated { flavor }
            | Refusal::NoPlacement { flavor, .. }
            | Refusal::OtherFlavor { flavor, .. } => refused.flavor = Some(Arc::clone(flavor)),
            Refusal::SeveralTopologies { .. } | Refusal::NoTopology => {}
            Refusal::ExceedsMaxQuota { flavor, resource, previous, needed, max } => {
                refused.flavor = Some(Arc::clone(flavor));
                refused.resource = Some(Arc::clone(resource));
                // With the pod sets before, as of quota that is in use.
                refused.needed = Some(show_amount(resource, previous.add(*needed).get()));
                refused.free = Some(show_amount(resource, max.get()));
            }
            Refusal::InsufficientQuota { flavor, resource, needed, free, preemption, nominal, .. } => {
                refused.flavor = Some(Arc::clone(flavor));
                refused.resource = Some(Arc::clone(resource));
                refused.needed = Some(show_amount(resource, needed.get()));
                refused.free = Some(show_amount(resource, free.get().max(0)));
                self.refused_by_policy(simulation, record, &mut refused, (*needed, *nominal, *preemption));
                self.held_by(simulation, &mut refused);
            }
            Refusal::InsufficientCapacity { flavor, resource, needed, free, .. } => {
                refused.flavor = Some(Arc::clone(flavor));
                refused.resource = Some(Arc::clone(resource));
                refused.needed = Some(show_amount(resource, needed.get()));
                refused.free = Some(show_amount(resource, free.get().max(0)));
                self.held_by(simulation, &mut refused);
            }
        }
        refused
    }
}
