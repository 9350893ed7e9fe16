//! Why an expression has no value.

use super::cost::Budget;

/// Why an expression has no value for an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::declared) enum Failure {
    /// It reads a field that the object does not have.
    #[error("no such key: {0}")]
    Absent(String),
    /// It costs too much for an object like this.
    #[error("evaluation exceeds the limit of {} steps per object", Budget::STEPS)]
    TooCostly,
    /// It cannot be evaluated, or has a value of another type.
    #[error("{0}")]
    Wrong(String),
}
