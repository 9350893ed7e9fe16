//! Where Hotswap acts: flavors with node labels that a ClusterQueue with `preemption.reclaimOutOfCohort.enable` uses, unless a queue requests their
//! nodes through a provisioning check: such nodes come and go with their workloads.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::labels::PROVISIONING_REQUEST_CONTROLLER_NAME;
use sluice_api::v1beta2::ClusterQueue;
use sluice_core::Name;

use crate::config::EngineConfig;
use crate::world::World;

/// The flavors and queues that Hotswap acts for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Scope {
    /// By flavor: the resources that queues have quota of.
    pub flavors: BTreeMap<Name, BTreeSet<Name>>,
    /// The ClusterQueues whose workloads are moved, and whether they may take from others while above nominal quota.
    pub queues: BTreeMap<Name, bool>,
}

/// Whether a check of the queue asks for nodes.
fn provisions(world: &World, queue: &ClusterQueue) -> bool {
    let rules = queue.spec.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks);
    rules.into_iter().any(|rule| {
        let check = world.checks.get(rule.name.as_str());
        check.is_some_and(|check| check.spec.controller_name == PROVISIONING_REQUEST_CONTROLLER_NAME)
    })
}

/// Whether Hotswap acts for the Workloads of a queue.
pub(crate) fn acts_for(world: &World, queue: &str) -> bool {
    world.cluster_queues.get(queue).is_some_and(|queue| {
        let reclaim = queue.spec.preemption.reclaim_out_of_cohort.as_ref();
        reclaim.is_some_and(|reclaim| reclaim.enable) && !provisions(world, queue)
    })
}

/// The flavors of a queue with the resources that they have quota of.
fn quotas(queue: &ClusterQueue) -> impl Iterator<Item = (&str, &str)> {
    let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    flavors.flat_map(|flavor| flavor.resources.iter().map(|r| (flavor.name.as_str(), r.name.as_str())))
}

impl Scope {
    /// The scope, from the objects.
    pub fn of(world: &World, config: &EngineConfig) -> Self {
        let mut scope = Self::default();
        let mut provisioned = BTreeSet::new();
        for (name, queue) in &world.cluster_queues {
            if provisions(world, queue) {
                provisioned.extend(quotas(queue).map(|(flavor, _)| flavor));
                continue;
            }
            let reclaim = queue.spec.preemption.reclaim_out_of_cohort.as_ref();
            if let Some(reclaim) = reclaim.filter(|reclaim| reclaim.enable) {
                scope.queues.insert(Name::clone(name), reclaim.reclaim_more_than_nominal_quota);
            }
        }
        let acts = |queue: &Name| scope.queues.contains_key(queue);
        let wanted: BTreeSet<&str> = world
            .cluster_queues
            .iter()
            .filter(|(name, _)| acts(name))
            .flat_map(|(_, queue)| quotas(queue).map(|(flavor, _)| flavor))
            .filter(|flavor| !provisioned.contains(flavor))
            .filter(|flavor| world.flavors.get(*flavor).is_some_and(|f| !f.spec.node_labels.is_empty()))
            .collect();
        for (flavor, resource) in world.cluster_queues.values().flat_map(|queue| quotas(queue)) {
            if wanted.contains(flavor) && !is_transformed(resource, config) {
                scope.flavors.entry(Name::from(flavor)).or_default().insert(Name::from(resource));
            }
        }
        scope
    }
}

/// Whether quota counts something else under that name than nodes have.
fn is_transformed(resource: &str, config: &EngineConfig) -> bool {
    let rules = &config.resources.transformations;
    rules.contains_key(resource) || rules.values().any(|rule| rule.outputs.contains_key(resource))
}
