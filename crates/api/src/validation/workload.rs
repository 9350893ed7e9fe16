//! Workload: checks of a single object (docs/reference/01-api.md 1.4: webhook rules). Changes are in `workload_update`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_quantity::Quantity;

use super::FieldError;
use super::conditions::check_conditions;
use super::syntax::{check_annotations, check_labels};
use super::template::check_template;
use super::tolerations::check_tolerations;
use super::workload_update::check_update;
use crate::gates::{Gate, Gates};
use crate::labels;
use crate::v1beta2::{Admission, PodSet, PodSetTopologyRequest, Workload, WorkloadStatus};

/// The most pod sets of a workload, as in its schema.
const MAX_POD_SETS: usize = 18;

/// Everything about a workload, on creation, update and writes of its status.
pub fn validate_workload(new: &Workload, old: Option<&Workload>, gates: Gates) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The schema allows no more; without this limit, each unknown name would be answered with all valid ones.
    let pod_sets = new.spec.pod_sets.len();
    if pod_sets > MAX_POD_SETS {
        return vec![FieldError::too_many("spec.podSets", pod_sets, MAX_POD_SETS)];
    }
    // Most writes change only the status: a spec that was accepted is not checked again.
    if old.is_none_or(|old| old.spec.pod_sets != new.spec.pod_sets) {
        check_pod_sets(new, gates, &mut errors);
    }
    check_annotated(new, gates, &mut errors);
    if let Some(status) = &new.status {
        check_status(new, status, old, &mut errors);
    }
    if let Some(old) = old {
        check_update(new, old, gates, &mut errors);
    }
    errors
}

/// Whether a condition of the workload is true.
pub(super) fn is_true(workload: &Workload, kind: &str) -> bool {
    let conditions: &[Condition] = workload.status.as_ref().map_or(&[], |status| &status.conditions);
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

pub(super) fn is_reserved(workload: &Workload) -> bool {
    is_true(workload, "QuotaReserved")
}

pub(super) fn annotation<'a>(workload: &'a Workload, key: &str) -> Option<&'a str> {
    workload.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key)).map(String::as_str)
}

/// Whether the workload is a slice of an elastic job.
pub(super) fn is_elastic(workload: &Workload, gates: Gates) -> bool {
    gates.enabled(Gate::ElasticJobsViaWorkloadSlices)
        && annotation(workload, labels::ELASTIC_JOB) == Some("true")
}

fn check_pod_sets(workload: &Workload, gates: Gates, errors: &mut Vec<FieldError>) {
    let pod_sets = &workload.spec.pod_sets;
    for (index, pod_set) in pod_sets.iter().enumerate() {
        let path = format!("spec.podSets[{index}]");
        check_template(&format!("{path}.template"), &pod_set.template, gates, errors);
        if let Some(request) = &pod_set.topology_request
            && gates.enabled(Gate::TASValidateWorkloadSliceSize)
        {
            check_slices(&format!("{path}.topologyRequest"), request, errors);
        }
    }
    let reducible = pod_sets.iter().filter(|pod_set| pod_set.min_count.is_some()).count();
    if reducible > 1 {
        errors.push(FieldError::invalid("spec.podSets", reducible, "at most one podSet can use minCount"));
    }
}

/// The values of annotations, and their combinations.
fn check_annotated(workload: &Workload, gates: Gates, errors: &mut Vec<FieldError>) {
    if is_elastic(workload, gates) {
        for (index, pod_set) in workload.spec.pod_sets.iter().enumerate() {
            if pod_set.min_count.is_some() {
                errors.push(FieldError::forbidden(
                    format!("spec.podSets[{index}].minCount"),
                    format!("cannot be used together with the annotation {}", labels::ELASTIC_JOB),
                ));
            }
        }
    }
    if gates.enabled(Gate::PriorityBoost)
        && let Some(boost) = annotation(workload, labels::PRIORITY_BOOST)
        && boost.parse::<i32>().is_err()
    {
        let path = format!("metadata.annotations[{}]", labels::PRIORITY_BOOST);
        errors.push(FieldError::invalid(path, boost, "must be a 32-bit integer"));
    }
}

/// A slice has a size and a level, or neither.
fn check_slices(path: &str, request: &PodSetTopologyRequest, errors: &mut Vec<FieldError>) {
    match (&request.pod_set_slice_required_topology, request.pod_set_slice_size) {
        (Some(_), None) => errors.push(FieldError::required(
            format!("{path}.podSetSliceSize"),
            "must be set when podSetSliceRequiredTopology is set",
        )),
        (None, Some(_)) => errors.push(FieldError::required(
            format!("{path}.podSetSliceRequiredTopology"),
            "must be set when podSetSliceSize is set",
        )),
        _ => {}
    }
    if let Some(size) = request.pod_set_slice_size
        && size <= 0
    {
        errors.push(FieldError::invalid(format!("{path}.podSetSliceSize"), size, "must be greater than 0"));
    }
    for (index, layer) in request.podset_slice_required_topology_constraints.iter().enumerate() {
        if layer.size <= 0 {
            let path = format!("{path}.podsetSliceRequiredTopologyConstraints[{index}].size");
            errors.push(FieldError::invalid(path, layer.size, "must be greater than 0"));
        }
    }
}

fn check_status(
    workload: &Workload,
    status: &WorkloadStatus,
    old: Option<&Workload>,
    errors: &mut Vec<FieldError>,
) {
    check_conditions("status.conditions", &status.conditions, errors);
    let names: Vec<&str> = workload.spec.pod_sets.iter().map(|pod_set| pod_set.name.as_str()).collect();
    if is_reserved(workload) {
        match &status.admission {
            Some(admission) => check_admission(admission, &names, errors),
            None if old.is_some_and(reserved_without_admission) => {}
            None => errors.push(FieldError::required(
                "status.admission",
                "must be set when the condition QuotaReserved is True",
            )),
        }
    }
    for pod in &status.reclaimable_pods {
        let path = format!("status.reclaimablePods[{}]", pod.name);
        match workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == pod.name) {
            None => errors.push(FieldError::not_supported(format!("{path}.name"), &pod.name, &names)),
            Some(PodSet { count, .. }) if pod.count > *count => errors.push(FieldError::invalid(
                format!("{path}.count"),
                pod.count,
                format!("should be less or equal to {count}"),
            )),
            Some(_) => {}
        }
    }
    check_pod_set_updates(status, &names, errors);
}

fn reserved_without_admission(workload: &Workload) -> bool {
    is_reserved(workload) && workload.status.as_ref().is_some_and(|status| status.admission.is_none())
}

fn check_admission(admission: &Admission, names: &[&str], errors: &mut Vec<FieldError>) {
    for (index, assignment) in admission.pod_set_assignments.iter().enumerate() {
        let path = format!("status.admission.podSetAssignments[{index}]");
        if !names.contains(&assignment.name.as_str()) {
            errors.push(FieldError::not_found(format!("{path}.name"), &assignment.name));
        }
        let count = i128::from(assignment.count.unwrap_or_default());
        if count == 0 {
            continue;
        }
        for (resource, usage) in &assignment.resource_usage {
            let path = format!("{path}.resourceUsage[{resource}]");
            match Quantity::parse(&usage.0) {
                Ok(quantity) if quantity.nano() % count == 0 => {}
                Ok(_) => {
                    errors.push(FieldError::invalid(path, usage, format!("is not a multiple of {count}")));
                }
                Err(error) => errors.push(FieldError::invalid(path, usage, error.to_string())),
            }
        }
    }
}

fn check_pod_set_updates(status: &WorkloadStatus, names: &[&str], errors: &mut Vec<FieldError>) {
    for (index, check) in status.admission_checks.iter().enumerate() {
        for (at, update) in check.pod_set_updates.iter().enumerate() {
            let path = format!("status.admissionChecks[{index}].podSetUpdates[{at}]");
            if !names.contains(&update.name.as_str()) {
                errors.push(FieldError::not_supported(format!("{path}.name"), &update.name, names));
            }
            check_labels(&format!("{path}.labels"), &update.labels, errors);
            check_annotations(&format!("{path}.annotations"), &update.annotations, errors);
            check_labels(&format!("{path}.nodeSelector"), &update.node_selector, errors);
            check_tolerations(&format!("{path}.tolerations"), &update.tolerations, errors);
        }
    }
}
