//! ClusterQueue (docs/reference/01-api.md 1.2).

use std::collections::BTreeSet;

use super::quota::{Node, check_groups, check_weight};
use super::selector::check_selector;
use super::{FieldError, IMMUTABLE};
use crate::gates::{Gate, Gates};
use crate::v1beta2::{
    BorrowWithinCohortPolicy, ClusterQueue, ClusterQueueSpec, ConcurrentAdmissionMode,
    FlavorFungibilityPolicy, QueueingStrategy, ReclaimWithinCohort,
};

/// The most flavors of a queue that tries several at the same time.
const MAX_CONCURRENT_FLAVORS: usize = 16;

/// All checks of the spec. An update that does not change the spec is accepted, except for `onFlavors` with the gate
/// RejectUpdatesToCQWithInvalidOnFlavors.
pub fn validate_cluster_queue(
    new: &ClusterQueue,
    old: Option<&ClusterQueue>,
    gates: Gates,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new.spec;
    let old = old.map(|old| &old.spec);
    check_on_flavors(spec, old, gates, &mut errors);
    if old == Some(spec) {
        return errors;
    }
    let node = Node {
        has_parent: spec.cohort_name.as_ref().is_some_and(|name| !name.is_empty()),
        lends_own_quota_only: true,
        parent: "cohort",
    };
    check_groups("spec.resourceGroups", &spec.resource_groups, node, &mut errors);
    if let Some(selector) = &spec.namespace_selector {
        check_selector("spec.namespaceSelector", selector, &mut errors);
    }
    check_policies(spec, &mut errors);
    check_weight("spec.fairSharing", spec.fair_sharing.as_ref(), &mut errors);
    check_concurrent_admission(spec, old, gates, &mut errors);
    errors
}

fn check_policies(spec: &ClusterQueueSpec, errors: &mut Vec<FieldError>) {
    let preemption = &spec.preemption;
    if preemption.reclaim_within_cohort == ReclaimWithinCohort::Never
        && preemption.borrow_within_cohort.policy != BorrowWithinCohortPolicy::Never
    {
        errors.push(FieldError::invalid(
            "spec.preemption",
            preemption,
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        ));
    }
    let fungibility = &spec.flavor_fungibility;
    let tries_next = FlavorFungibilityPolicy::TryNextFlavor;
    if let Some(preference) = fungibility.preference
        && (fungibility.when_can_borrow != tries_next || fungibility.when_can_preempt != tries_next)
    {
        errors.push(FieldError::invalid(
            "spec.flavorFungibility.preference",
            preference,
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        ));
    }
}

/// The flavors in the order of the groups.
fn flavors(spec: &ClusterQueueSpec) -> BTreeSet<&str> {
    spec.resource_groups.iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect()
}

/// The pairs of check and flavor whose flavor the queue does not have, with where they are.
fn strangers(spec: &ClusterQueueSpec) -> Vec<(String, &str, &str)> {
    let known = flavors(spec);
    let mut strangers = Vec::new();
    let rules = spec.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks);
    for (index, rule) in rules.enumerate() {
        for (at, flavor) in rule.on_flavors.iter().enumerate() {
            if !known.contains(flavor.as_str()) {
                let path = format!("spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{at}]");
                strangers.push((path, rule.name.as_str(), flavor.as_str()));
            }
        }
    }
    strangers
}

/// Without the gate, what was wrong before stays allowed: otherwise nothing of an old queue could be changed.
fn check_on_flavors(
    spec: &ClusterQueueSpec,
    old: Option<&ClusterQueueSpec>,
    gates: Gates,
    errors: &mut Vec<FieldError>,
) {
    let before: BTreeSet<(&str, &str)> = match old {
        Some(old) if !gates.enabled(Gate::RejectUpdatesToCQWithInvalidOnFlavors) => {
            strangers(old).into_iter().map(|(_, check, flavor)| (check, flavor)).collect()
        }
        _ => BTreeSet::new(),
    };
    for (path, check, flavor) in strangers(spec) {
        if !before.contains(&(check, flavor)) {
            errors.push(FieldError::invalid(
                path,
                flavor,
                "must be a flavor of the ClusterQueue's resourceGroups",
            ));
        }
    }
}

fn check_concurrent_admission(
    spec: &ClusterQueueSpec,
    old: Option<&ClusterQueueSpec>,
    gates: Gates,
    errors: &mut Vec<FieldError>,
) {
    const PATH: &str = "spec.concurrentAdmissionPolicy";
    if old.is_some_and(|old| old.concurrent_admission_policy != spec.concurrent_admission_policy) {
        errors.push(FieldError::invalid(PATH, &spec.concurrent_admission_policy, IMMUTABLE));
    }
    let Some(policy) = &spec.concurrent_admission_policy else { return };
    if !gates.enabled(Gate::ConcurrentAdmission) {
        return;
    }
    if spec.queueing_strategy != QueueingStrategy::BestEffortFIFO {
        errors.push(FieldError::invalid(
            "spec.queueingStrategy",
            spec.queueing_strategy,
            "must be BestEffortFIFO when concurrentAdmissionPolicy is set",
        ));
    }
    let [group] = spec.resource_groups.as_slice() else {
        errors.push(FieldError::invalid(
            "spec.resourceGroups",
            spec.resource_groups.len(),
            "must have exactly one resource group when concurrentAdmissionPolicy is set",
        ));
        return;
    };
    if group.flavors.len() > MAX_CONCURRENT_FLAVORS {
        errors.push(FieldError::too_many(
            "spec.resourceGroups[0].flavors",
            group.flavors.len(),
            MAX_CONCURRENT_FLAVORS,
        ));
    }
    let Some(constraints) = &policy.migration.constraints else { return };
    if policy.migration.mode != ConcurrentAdmissionMode::TryPreferredFlavors {
        errors.push(FieldError::forbidden(
            format!("{PATH}.migration.constraints"),
            "may only be set when mode is TryPreferredFlavors",
        ));
    }
    if let Some(last) = &constraints.last_acceptable_flavor_name
        && !flavors(spec).contains(last.as_str())
    {
        errors.push(FieldError::invalid(
            format!("{PATH}.migration.constraints.lastAcceptableFlavorName"),
            last,
            "must be a flavor of the ClusterQueue's resourceGroups",
        ));
    }
}
