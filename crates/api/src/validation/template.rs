//! Checks of pod templates (docs/reference/01-api.md 1.4: webhook rules).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use sluice_quantity::Quantity;

use super::syntax::{check_annotations, check_labels};
use super::{FieldError, NEGATIVE};
use crate::gates::{Gate, Gates};

/// The name under which Sluice itself counts pods.
const PODS: &str = "pods";

pub(super) fn check_template(
    path: &str,
    template: &PodTemplateSpec,
    gates: Gates,
    errors: &mut Vec<FieldError>,
) {
    if gates.enabled(Gate::WorkloadValidationForPodSetMetadata)
        && let Some(metadata) = &template.metadata
    {
        if let Some(labels) = &metadata.labels {
            check_labels(&format!("{path}.metadata.labels"), labels, errors);
        }
        if let Some(annotations) = &metadata.annotations {
            check_annotations(&format!("{path}.metadata.annotations"), annotations, errors);
        }
    }
    let Some(spec) = &template.spec else { return };
    let groups = [
        ("initContainers", spec.init_containers.as_deref().unwrap_or_default()),
        ("containers", spec.containers.as_slice()),
    ];
    for (field, containers) in groups {
        for (index, container) in containers.iter().enumerate() {
            let path = format!("{path}.spec.{field}[{index}].resources");
            check_resources(&path, container.resources.as_ref(), gates, errors);
        }
    }
    check_resources(&format!("{path}.spec.resources"), spec.resources.as_ref(), gates, errors);
}

fn check_resources(
    path: &str,
    resources: Option<&ResourceRequirements>,
    gates: Gates,
    errors: &mut Vec<FieldError>,
) {
    let Some(resources) = resources else { return };
    check_list(&format!("{path}.requests"), resources.requests.as_ref(), gates, errors);
    check_list(&format!("{path}.limits"), resources.limits.as_ref(), gates, errors);
}

fn check_list(path: &str, list: Option<&BTreeMap<String, Text>>, gates: Gates, errors: &mut Vec<FieldError>) {
    for (name, amount) in list.into_iter().flatten() {
        let path = format!("{path}[{name}]");
        if name == PODS {
            errors.push(FieldError::invalid(&path, name, "the key is reserved for internal kueue use"));
        }
        let negative = Quantity::parse(&amount.0).is_ok_and(|quantity| quantity.is_negative());
        if negative && gates.enabled(Gate::WorkloadValidateResourcesAreNonNegative) {
            errors.push(FieldError::invalid(path, amount, NEGATIVE));
        }
    }
}
