//! Conditions: well formed, and each type once.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::FieldError;
use super::syntax::qualified_name;

pub(super) fn check_conditions(path: &str, conditions: &[Condition], errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let kind = &condition.type_;
        let problems = qualified_name(kind);
        errors.extend(problems.into_iter().map(|p| FieldError::invalid(format!("{at}.type"), kind, p)));
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{at}.type"), kind));
        }
        if !["True", "False", "Unknown"].contains(&condition.status.as_str()) {
            let supported = ["False", "True", "Unknown"];
            errors.push(FieldError::not_supported(format!("{at}.status"), &condition.status, supported));
        }
        if condition.observed_generation.is_some_and(|generation| generation < 0) {
            errors.push(FieldError::invalid(
                format!("{at}.observedGeneration"),
                condition.observed_generation,
                super::NEGATIVE,
            ));
        }
        if condition.reason.is_empty() {
            errors.push(FieldError::required(format!("{at}.reason"), ""));
        } else if !is_reason(&condition.reason) {
            errors.push(FieldError::invalid(
                format!("{at}.reason"),
                &condition.reason,
                "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
            ));
        }
    }
}

fn is_reason(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(inner)
}
