//! Taints' effects and tolerations, as pods may have them.

use k8s_openapi::api::core::v1::Toleration;

use super::FieldError;
use super::syntax::{check_key, label_value};

/// The effects of a taint.
pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check_tolerations(path: &str, tolerations: &[Toleration], errors: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        check(&format!("{path}[{index}]"), toleration, errors);
    }
}

fn check(path: &str, toleration: &Toleration, errors: &mut Vec<FieldError>) {
    let key = toleration.key.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !key.is_empty() {
        check_key(&format!("{path}.key"), key, errors);
    } else if operator != "Exists" {
        errors.push(FieldError::invalid(
            format!("{path}.operator"),
            operator,
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ));
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        errors.push(FieldError::invalid(
            format!("{path}.effect"),
            effect,
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    match operator {
        "" | "Equal" => {
            let problems = label_value(value);
            errors
                .extend(problems.into_iter().map(|p| FieldError::invalid(format!("{path}.value"), value, p)));
        }
        "Exists" if value.is_empty() => {}
        "Exists" => errors.push(FieldError::invalid(
            format!("{path}.value"),
            value,
            "value must be empty when `operator` is 'Exists'",
        )),
        other => {
            errors.push(FieldError::not_supported(format!("{path}.operator"), other, ["Equal", "Exists"]));
        }
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.push(FieldError::not_supported(format!("{path}.effect"), effect, EFFECTS));
    }
}
