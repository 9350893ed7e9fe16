//! Rules that a write breaks.

use std::fmt;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field.
    pub path: String,
    /// What is wrong, as Kubernetes words it.
    pub message: String,
}

/// The rules that a write breaks; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied(pub Vec<Violation>);

impl fmt::Display for Denied {
    /// One violation by itself, several in brackets, as Kubernetes does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = self.0.len() > 1;
        f.write_str(if several { "[" } else { "" })?;
        for (index, violation) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {}", violation.path, violation.message)?;
        }
        f.write_str(if several { "]" } else { "" })
    }
}

impl std::error::Error for Denied {}

/// Collects violations.
#[derive(Default)]
pub(crate) struct Violations(pub(super) Vec<Violation>);

impl Violations {
    pub(crate) fn invalid(&mut self, path: &str, value: &str, message: &str) {
        self.add(path, format!("Invalid value: {value:?}: {message}"));
    }

    pub(crate) fn forbidden(&mut self, path: &str, message: &str) {
        self.add(path, format!("Forbidden: {message}"));
    }

    pub(super) fn immutable(&mut self, path: &str, value: &str) {
        self.invalid(path, value, "field is immutable");
    }

    pub(super) fn add(&mut self, path: &str, message: String) {
        self.0.push(Violation { path: path.to_owned(), message });
    }
}

pub(super) fn label_path(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

pub(crate) fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}
