//! The checks of the admission webhooks (docs/reference/01-api.md 1.0): rules over several fields or over the old and the new object, and rules that
//! depend on a gate. Rules about one object that CEL can express are in the schemas, and apply without Sluice.
//!
//! Pure functions: objects and gates in, errors out. Errors have Kubernetes' form: `path: Kind of error: value: detail`.

mod cluster_queue;
mod cohort;
mod conditions;
mod quota;
mod resource_flavor;
mod selector;
mod syntax;
mod template;
mod tolerations;
mod workload;
mod workload_update;

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

pub use cluster_queue::validate_cluster_queue;
pub use cohort::validate_cohort;
pub use resource_flavor::validate_resource_flavor;
pub use workload::validate_workload;

/// The type of a field's error.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldErrorType {
    /// The value is not allowed.
    Invalid(Value),
    /// The value is missing.
    Required,
    /// The field must not be set here.
    Forbidden,
    /// The value was there before.
    Duplicate(Value),
    /// The value names nothing that exists.
    NotFound(Value),
    /// The value is none of these.
    NotSupported(Value, Vec<String>),
    /// The list is longer than allowed.
    TooMany {
        /// How many there are.
        actual: usize,
        /// How many are allowed.
        max: usize,
    },
}

/// An error in one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The field, as `spec.resourceGroups[0].flavors[1].name`.
    pub path: String,
    /// The type of the error.
    pub kind: FieldErrorType,
    /// The problem, or what to do.
    pub detail: String,
}

impl FieldError {
    pub(crate) fn invalid(path: impl Into<String>, value: impl Serialize, detail: impl Into<String>) -> Self {
        let kind = FieldErrorType::Invalid(shown(value));
        Self { path: path.into(), kind, detail: detail.into() }
    }

    pub(crate) fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), kind: FieldErrorType::Required, detail: detail.into() }
    }

    pub(crate) fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), kind: FieldErrorType::Forbidden, detail: detail.into() }
    }

    pub(crate) fn duplicate(path: impl Into<String>, value: impl Serialize) -> Self {
        Self { path: path.into(), kind: FieldErrorType::Duplicate(shown(value)), detail: String::new() }
    }

    pub(crate) fn not_found(path: impl Into<String>, value: impl Serialize) -> Self {
        Self { path: path.into(), kind: FieldErrorType::NotFound(shown(value)), detail: String::new() }
    }

    pub(crate) fn not_supported<S: ToString>(
        path: impl Into<String>,
        value: impl Serialize,
        supported: impl IntoIterator<Item = S>,
    ) -> Self {
        let supported = supported.into_iter().map(|s| s.to_string()).collect();
        let kind = FieldErrorType::NotSupported(shown(value), supported);
        Self { path: path.into(), kind, detail: String::new() }
    }

    pub(crate) fn too_many(path: impl Into<String>, actual: usize, max: usize) -> Self {
        let detail = format!("must have at most {max} items");
        Self { path: path.into(), kind: FieldErrorType::TooMany { actual, max }, detail }
    }

    /// A field that may not change.
    pub(crate) fn immutable(path: impl Into<String>, value: impl Serialize) -> Self {
        Self::invalid(path, value, IMMUTABLE)
    }
}

/// The detail of a change that is not allowed.
const IMMUTABLE: &str = "field is immutable";

/// The detail of an amount below zero.
const NEGATIVE: &str = "must be greater than or equal to 0";

fn shown(value: impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match &self.kind {
            FieldErrorType::Invalid(value) => write!(f, "Invalid value: {value}")?,
            FieldErrorType::Required => f.write_str("Required value")?,
            FieldErrorType::Forbidden => f.write_str("Forbidden")?,
            FieldErrorType::Duplicate(value) => write!(f, "Duplicate value: {value}")?,
            FieldErrorType::NotFound(value) => write!(f, "Not found: {value}")?,
            FieldErrorType::NotSupported(value, supported) => {
                write!(f, "Unsupported value: {value}")?;
                let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
                write!(f, ": supported values: {}", quoted.join(", "))?;
            }
            FieldErrorType::TooMany { actual, .. } => write!(f, "Too many: {actual}")?,
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// Several errors as one message: a single error unchanged, several in brackets.
pub fn aggregate(errors: &[FieldError]) -> String {
    if let [only] = errors {
        return only.to_string();
    }
    let mut known = BTreeSet::new();
    let texts: Vec<String> =
        errors.iter().map(ToString::to_string).filter(|text| known.insert(text.clone())).collect();
    format!("[{}]", texts.join(", "))
}
