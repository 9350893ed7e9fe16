//! Why a simulation breaks off.

use jiff::Timestamp;

use crate::object::FieldError;

/// Why a simulation cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// An object was refused, as the API server would.
    #[error("{object}: {}{}{message}", path, if path.is_empty() { "" } else { ": " })]
    Refused {
        /// Which.
        object: String,
        /// The field, if it is known.
        path: String,
        /// Why.
        message: String,
    },
    /// The engine's incremental state is not what its objects say.
    #[error("at {at}: the engine's state differs from its objects: {}", differences.join("; "))]
    Audit {
        /// When.
        at: Timestamp,
        /// Where.
        differences: Vec<String>,
    },
    /// A safety rule is broken.
    #[error("step {step}, at {at}: {}", wrong.join("; "))]
    Unsafe {
        /// The step: rounds of the engine from the beginning.
        step: u64,
        /// When.
        at: Timestamp,
        /// What.
        wrong: Vec<String>,
    },
    /// The engine does not settle.
    #[error("at {at}: the engine does not come to rest")]
    Restless {
        /// When.
        at: Timestamp,
    },
    /// The caller wanted it to give up.
    #[error("at {at}: the simulation was cancelled")]
    Cancelled {
        /// When.
        at: Timestamp,
    },
}

impl SimError {
    /// The refusal of an object of this kind and name.
    pub(crate) fn refused(kind: &str, name: &str, wrong: FieldError) -> Self {
        Self::Refused { object: format!("{kind} {name}"), path: wrong.path, message: wrong.message }
    }
}
