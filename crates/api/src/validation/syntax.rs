//! The syntax of names that Kubernetes shares: label keys, label values, annotations.

use std::collections::BTreeMap;

use super::FieldError;

/// The most bytes that all annotations of an object may have.
const MAX_ANNOTATIONS: usize = 256 * 1024;

const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// The error of a qualified name: `[prefix/]name`.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut parts = text.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a qualified name {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > 253 {
                problems.push("prefix part must be no more than 253 characters".to_owned());
            }
            if !prefix.split('.').all(is_label) {
                problems.push(format!("prefix part {SUBDOMAIN}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME_PART}"));
    }
    problems
}

/// The error of a label's value.
pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push("must be no more than 63 characters".to_owned());
    }
    if !text.is_empty() && !is_name(text) {
        problems.push(LABEL_VALUE.to_owned());
    }
    problems
}

fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_label(text: &str) -> bool {
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    end(text.chars().next())
        && end(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// A key of a label, taint or toleration.
pub(super) fn check_key(path: &str, key: &str, errors: &mut Vec<FieldError>) {
    errors.extend(qualified_name(key).into_iter().map(|problem| FieldError::invalid(path, key, problem)));
}

/// Labels: keys and values.
pub(super) fn check_labels(path: &str, labels: &BTreeMap<String, String>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels {
        check_key(path, key, errors);
        errors
            .extend(label_value(value).into_iter().map(|problem| FieldError::invalid(path, value, problem)));
    }
}

/// Annotations: keys in any case, and a bound on their size.
pub(super) fn check_annotations(
    path: &str,
    annotations: &BTreeMap<String, String>,
    errors: &mut Vec<FieldError>,
) {
    let mut size = 0;
    for (key, value) in annotations {
        let problems = qualified_name(&key.to_lowercase());
        errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path, key, problem)));
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS {
        let detail = format!("may not be more than {MAX_ANNOTATIONS} bytes");
        errors.push(FieldError::invalid(path, size, detail));
    }
}
