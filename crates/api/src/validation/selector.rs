//! Label selectors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::FieldError;
use super::syntax::{check_key, check_labels, label_value};

pub(super) fn check_selector(path: &str, selector: &LabelSelector, errors: &mut Vec<FieldError>) {
    if let Some(labels) = &selector.match_labels {
        check_labels(&format!("{path}.matchLabels"), labels, errors);
    }
    for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = expression.values.as_deref().unwrap_or_default();
        match expression.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                format!("{path}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
        check_key(&format!("{path}.key"), &expression.key, errors);
        for (at, value) in values.iter().enumerate() {
            let path = format!("{path}.values[{at}]");
            errors.extend(label_value(value).into_iter().map(|p| FieldError::invalid(&path, value, p)));
        }
    }
}
