//! ResourceFlavor (docs/reference/01-api.md 1.0 and 1.1).

use std::collections::BTreeSet;

use super::FieldError;
use super::syntax::{check_key, check_labels, label_value};
use super::tolerations::{EFFECTS, check_tolerations};
use crate::v1beta2::ResourceFlavor;

/// Label syntax, taints unique by key and effect, tolerations. An update that leaves the spec alone is let through.
pub fn validate_resource_flavor(new: &ResourceFlavor, old: Option<&ResourceFlavor>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.is_some_and(|old| old.spec == new.spec) {
        return errors;
    }
    let spec = &new.spec;
    check_labels("spec.nodeLabels", &spec.node_labels, &mut errors);
    let mut seen = BTreeSet::new();
    for (index, taint) in spec.node_taints.iter().enumerate() {
        let path = format!("spec.nodeTaints[{index}]");
        check_key(&format!("{path}.key"), &taint.key, &mut errors);
        let value = taint.value.as_deref().unwrap_or_default();
        let problems = label_value(value);
        errors.extend(problems.into_iter().map(|p| FieldError::invalid(format!("{path}.value"), value, p)));
        if !EFFECTS.contains(&taint.effect.as_str()) {
            errors.push(FieldError::not_supported(format!("{path}.effect"), &taint.effect, EFFECTS));
        }
        if !seen.insert((&taint.key, &taint.effect)) {
            errors.push(FieldError::duplicate(path, taint));
        }
    }
    check_tolerations("spec.tolerations", &spec.tolerations, &mut errors);
    errors
}
