//! Why a ClusterQueue is inactive (docs/reference/03-conditions-events.md 3.2): because of its own spec, or of objects that it names.

use super::Scheduler;
use crate::Name;
use crate::cluster_queue::ClusterQueue;
use crate::intern::QueueId;
use crate::report::InactiveCause;
use crate::spec::{CheckController, CheckRule, CheckSpec, ClusterQueueSpec, StopPolicy};

impl Scheduler {
    /// Works out why a queue is not active, and whether it has heads to offer.
    pub(crate) fn update_activity(&mut self, id: QueueId) {
        let queue = &self.world.queues[id.at()];
        let mut causes = Vec::new();
        if let Some(spec) = &queue.spec {
            if spec.terminating {
                causes.push(InactiveCause::Terminating);
            }
            if spec.stop_policy != StopPolicy::None {
                causes.push(InactiveCause::Stopped);
            }
            causes.extend(self.missing_flavors(queue));
            causes.extend(self.unusable_checks(spec));
            causes.extend(self.missing_topologies(queue));
        }
        let locals_too = queue.inactive.is_empty() != causes.is_empty();
        self.world.queues[id.at()].inactive = causes;
        self.changes.queues.mark(id.at());
        if locals_too {
            for local in &self.world.queues[id.at()].locals {
                self.changes.locals.mark(local.at());
            }
        }
        self.sync_ready(id);
    }

    fn missing_flavors(&self, queue: &ClusterQueue) -> Option<InactiveCause> {
        let flavors = queue.groups.iter().flat_map(|group| &group.flavors);
        let missing =
            flavors.filter(|flavor| self.world.flavors.get(flavor.at()).is_none_or(Option::is_none));
        // In the order of the spec.
        let mut names: Vec<Name> = Vec::new();
        for name in missing.map(|&flavor| self.world.names.flavor_name(flavor)) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        (!names.is_empty()).then_some(InactiveCause::FlavorNotFound(names))
    }

    /// The problems of the checks, in the reference's order.
    fn unusable_checks(&self, spec: &ClusterQueueSpec) -> Vec<InactiveCause> {
        let which = |wanted: &dyn Fn(&CheckRule, Option<&CheckSpec>) -> bool| {
            let rules = spec.admission_checks.iter();
            sorted(
                rules.filter(|rule| wanted(rule, self.world.checks.get(&rule.name))).map(|rule| &rule.name),
            )
        };
        let answered_by = |controller: CheckController, rule_too: &dyn Fn(&CheckRule) -> bool| {
            which(&|rule, check| check.is_some_and(|check| check.controller == controller) && rule_too(rule))
        };
        let missing = which(&|_, check| check.is_none());
        let inactive = which(&|_, check| check.is_some_and(|check| !check.active));
        let elsewhere = answered_by(CheckController::MultiKueue, &|_| true);
        let per_flavor = answered_by(CheckController::MultiKueue, &|rule| !rule.on_flavors.is_empty());
        let provisioning = answered_by(CheckController::ProvisioningRequest, &|_| true);
        let mut causes = Vec::new();
        if !missing.is_empty() {
            causes.push(InactiveCause::AdmissionCheckNotFound(missing));
        }
        if !inactive.is_empty() {
            causes.push(InactiveCause::AdmissionCheckInactive(inactive));
        }
        if elsewhere.len() > 1 {
            causes.push(InactiveCause::MultipleMultiKueueAdmissionChecks(elsewhere.clone()));
        }
        if !per_flavor.is_empty() {
            causes.push(InactiveCause::MultiKueueAdmissionCheckAppliedPerFlavor(per_flavor));
        }
        if !elsewhere.is_empty() && !provisioning.is_empty() {
            causes.push(InactiveCause::MultiKueueWithProvisioningRequest(elsewhere, provisioning));
        }
        causes
    }

    /// One cause for each flavor whose Topology does not exist.
    fn missing_topologies(&self, queue: &ClusterQueue) -> Vec<InactiveCause> {
        let flavors = queue.groups.iter().flat_map(|group| &group.flavors);
        let known = flavors.filter_map(|flavor| self.world.flavors.get(flavor.at())?.as_ref());
        let topology = |flavor: &crate::spec::FlavorSpec| {
            let topology = flavor.topology.as_ref().filter(|name| !self.world.topology.exists(name))?;
            Some((flavor.name.clone(), topology.clone()))
        };
        let mut missing: Vec<_> = known.filter_map(topology).collect();
        missing.sort();
        missing.dedup();
        missing
            .into_iter()
            .map(|(flavor, topology)| InactiveCause::TopologyNotFound { flavor, topology })
            .collect()
    }
}

/// Each name once, in order.
fn sorted<'a>(names: impl Iterator<Item = &'a Name>) -> Vec<Name> {
    let mut names: Vec<Name> = names.cloned().collect();
    names.sort();
    names.dedup();
    names
}
