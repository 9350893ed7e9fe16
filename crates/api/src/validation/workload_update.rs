//! Workload: allowed changes (docs/reference/01-api.md 1.4: webhook rules).

use std::collections::{BTreeMap, BTreeSet};

use super::FieldError;
use super::workload::{annotation, is_elastic, is_reserved};
use crate::gates::{Gate, Gates};
use crate::v1beta2::{
    Admission, AdmissionCheckState, CheckState, PodSet, ReclaimablePod, Workload, WorkloadStatus,
};
use crate::{labels, text};

pub(super) fn check_update(new: &Workload, old: &Workload, gates: Gates, errors: &mut Vec<FieldError>) {
    let elastic = is_elastic(new, gates);
    if is_reserved(old) {
        check_pod_sets(new, old, elastic, errors);
    }
    if gates.enabled(Gate::AdmissionGatedBy) {
        check_gated_by(new, old, errors);
    }
    let none = WorkloadStatus::default();
    let now = new.status.as_ref().unwrap_or(&none);
    let before = old.status.as_ref().unwrap_or(&none);
    if is_reserved(old) && is_reserved(new) {
        check_reclaimable(now, before, elastic, errors);
        if let (Some(now), Some(before)) = (&now.admission, &before.admission) {
            check_admission(now, before, errors);
        }
    }
    check_cluster_name(new, now, before, errors);
    check_pod_set_updates(now, before, errors);
}

/// Fixed once quota is reserved; an elastic job's slice may shrink.
fn check_pod_sets(new: &Workload, old: &Workload, elastic: bool, errors: &mut Vec<FieldError>) {
    let (now, before) = (&new.spec.pod_sets, &old.spec.pod_sets);
    let shrunk = |now: &PodSet, before: &PodSet| {
        now.count < before.count && PodSet { count: before.count, ..now.clone() } == *before
    };
    let allowed = |(now, before): (&PodSet, &PodSet)| now == before || (elastic && shrunk(now, before));
    if now.len() != before.len() || !now.iter().zip(before).all(allowed) {
        errors.push(FieldError {
            kind: super::FieldErrorType::Forbidden,
            ..FieldError::immutable("spec.podSets", ())
        });
    }
}

/// The gates that an annotation lists; entries can only be taken away.
fn check_gated_by(new: &Workload, old: &Workload, errors: &mut Vec<FieldError>) {
    let listed = |workload| -> BTreeSet<&str> {
        let list = annotation(workload, labels::ADMISSION_GATED_BY).unwrap_or_default();
        text::listed(list).filter(|gate| !gate.is_empty()).collect()
    };
    let before = listed(old);
    for gate in listed(new).difference(&before) {
        errors.push(FieldError::invalid(
            format!("metadata.annotations[{}]", labels::ADMISSION_GATED_BY),
            gate,
            "gates can only be removed after creation",
        ));
    }
}

/// While quota is reserved, pods that were given back are not taken back.
fn check_reclaimable(
    now: &WorkloadStatus,
    before: &WorkloadStatus,
    elastic: bool,
    errors: &mut Vec<FieldError>,
) {
    // A slice that shrank has fewer reclaimable pods, since fewer of its pods remain.
    if elastic {
        return;
    }
    let now: BTreeMap<&str, &ReclaimablePod> =
        now.reclaimable_pods.iter().rev().map(|pod| (pod.name.as_str(), pod)).collect();
    for old in &before.reclaimable_pods {
        let path = format!("status.reclaimablePods[{}]", old.name);
        match now.get(old.name.as_str()) {
            None => errors.push(FieldError::required(path, "cannot be removed")),
            Some(pod) if pod.count < old.count => errors.push(FieldError::invalid(
                format!("{path}.count"),
                pod.count,
                format!("cannot be less than {}", old.count),
            )),
            Some(_) => {}
        }
    }
}

/// A reservation does not change, apart from the topology assignment, which may come later.
fn check_admission(now: &Admission, before: &Admission, errors: &mut Vec<FieldError>) {
    if now.cluster_queue != before.cluster_queue {
        errors.push(FieldError::immutable("status.admission.clusterQueue", &now.cluster_queue));
    }
    if now.pod_set_assignments.len() != before.pod_set_assignments.len() {
        let count = now.pod_set_assignments.len();
        errors.push(FieldError::immutable("status.admission.podSetAssignments", count));
        return;
    }
    for (index, (now, before)) in now.pod_set_assignments.iter().zip(&before.pod_set_assignments).enumerate()
    {
        let path = format!("status.admission.podSetAssignments[{index}]");
        if now.name != before.name {
            errors.push(FieldError::immutable(format!("{path}.name"), &now.name));
        }
        if now.flavors != before.flavors {
            errors.push(FieldError::immutable(format!("{path}.flavors"), &now.flavors));
        }
        if now.resource_usage != before.resource_usage {
            errors.push(FieldError::immutable(format!("{path}.resourceUsage"), &now.resource_usage));
        }
        if now.count != before.count {
            errors.push(FieldError::immutable(format!("{path}.count"), now.count));
        }
    }
}

/// A worker cluster must have been nominated, except for a slice that follows the slice it replaces.
fn check_cluster_name(
    new: &Workload,
    now: &WorkloadStatus,
    before: &WorkloadStatus,
    errors: &mut Vec<FieldError>,
) {
    let Some(name) = &now.cluster_name else { return };
    let replaces = annotation(new, labels::WORKLOAD_SLICE_REPLACEMENT_FOR).is_some();
    if before.cluster_name.is_none() && !replaces && !before.nominated_cluster_names.contains(name) {
        errors.push(FieldError::invalid(
            "status.clusterName",
            name,
            "must be one of the nominatedClusterNames",
        ));
    }
}

/// While a check stays ready, its pod set updates must not change: the pods may run already.
fn check_pod_set_updates(now: &WorkloadStatus, before: &WorkloadStatus, errors: &mut Vec<FieldError>) {
    let before: BTreeMap<&str, &AdmissionCheckState> =
        before.admission_checks.iter().rev().map(|check| (check.name.as_str(), check)).collect();
    for (index, check) in now.admission_checks.iter().enumerate() {
        let old = before.get(check.name.as_str());
        let stays_ready = |old: &CheckState| *old == CheckState::Ready && check.state == CheckState::Ready;
        if let Some(old) = old
            && stays_ready(&old.state)
            && old.pod_set_updates != check.pod_set_updates
        {
            let path = format!("status.admissionChecks[{index}].podSetUpdates");
            errors.push(FieldError::immutable(path, &check.pod_set_updates));
        }
    }
}
