//! Why an object cannot be converted.

use super::topology;
use crate::GROUP;

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The document is not an object.
    #[error("not an object")]
    NotAnObject,
    /// The document has another, or no, `apiVersion`.
    #[error("apiVersion {0:?} is not a version of {GROUP}")]
    ApiVersion(String),
    /// A topology assignment cannot be read.
    #[error("status.admission.podSetAssignments[{index}].topologyAssignment: {source}")]
    Topology {
        /// Which pod set assignment.
        index: usize,
        /// The error.
        source: topology::TopologyError,
    },
}
