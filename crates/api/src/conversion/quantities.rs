//! Quantities that were written as numbers: converted objects have them as strings, as Kueue's clients do.

use serde_json::Value;

use crate::v1beta2::{ClusterQueue, Cohort, LocalQueue, Workload};

/// Where a kind has quantities: names of fields; `*` stands for every item, or every field.
type Path = &'static [&'static str];

const QUOTAS: [Path; 3] = [
    &["spec", "resourceGroups", "*", "flavors", "*", "resources", "*", "nominalQuota"],
    &["spec", "resourceGroups", "*", "flavors", "*", "resources", "*", "borrowingLimit"],
    &["spec", "resourceGroups", "*", "flavors", "*", "resources", "*", "lendingLimit"],
];
const WEIGHT: Path = &["spec", "fairSharing", "weight"];
const USAGES: [Path; 5] = [
    &["status", "flavorsReservation", "*", "resources", "*", "*"],
    &["status", "flavorsUsage", "*", "resources", "*", "*"],
    &["status", "flavorUsage", "*", "resources", "*", "*"],
    &["status", "fairSharing", "admissionFairSharingStatus", "consumedResources", "*"],
    WEIGHT,
];
const ADMISSION: [Path; 2] = [
    &["status", "admission", "podSetAssignments", "*", "resourceUsage", "*"],
    &["status", "resourceRequests", "*", "resources", "*"],
];
/// Below the `spec` of a pod template.
const POD: [Path; 6] = [
    &["overhead", "*"],
    &["resources", "requests", "*"],
    &["resources", "limits", "*"],
    &["volumes", "*", "emptyDir", "sizeLimit"],
    &["volumes", "*", "ephemeral", "volumeClaimTemplate", "spec", "resources", "requests", "*"],
    &["volumes", "*", "ephemeral", "volumeClaimTemplate", "spec", "resources", "limits", "*"],
];
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// Makes strings of an object's quantities.
pub(super) fn to_strings(object: &mut Value, kind: &str) {
    let mut all = |paths: &[Path]| paths.iter().for_each(|path| each(object, path, &mut text));
    match kind {
        ClusterQueue::KIND => {
            all(&QUOTAS);
            all(&USAGES);
        }
        Cohort::KIND => {
            all(&QUOTAS);
            all(&[WEIGHT]);
        }
        LocalQueue::KIND => all(&USAGES),
        Workload::KIND => {
            all(&ADMISSION);
            each(object, &["spec", "podSets", "*", "template", "spec"], &mut of_pod);
        }
        _ => {}
    }
}

fn of_pod(spec: &mut Value) {
    for path in POD {
        each(spec, path, &mut text);
    }
    for list in CONTAINERS {
        for part in ["requests", "limits"] {
            each(spec, &[list, "*", "resources", part, "*"], &mut text);
        }
    }
}

/// Calls `change` on what stands at a path.
fn each(value: &mut Value, path: &[&str], change: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else { return change(value) };
    match value {
        Value::Array(items) if *first == "*" => items.iter_mut().for_each(|item| each(item, rest, change)),
        Value::Object(fields) if *first == "*" => {
            fields.values_mut().for_each(|field| each(field, rest, change));
        }
        Value::Object(fields) => {
            if let Some(field) = fields.get_mut(*first) {
                each(field, rest, change);
            }
        }
        _ => {}
    }
}

fn text(value: &mut Value) {
    if let Value::Number(number) = value {
        let text = number.to_string();
        *value = Value::String(text.strip_suffix(".0").map_or(text.clone(), str::to_owned));
    }
}
