//! What is worth saying about a configuration that is accepted.

use std::fmt;

use crate::gates::GateWarning;

/// What is worth saying about a configuration that is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// About feature gates.
    Gate(GateWarning),
    /// A kind of Kueue's default list is not served: its objects that name a queue are refused.
    FrameworkNotBuilt {
        /// Path of the entry.
        path: String,
        /// The job kind.
        name: String,
    },
    /// A kind that a controller of its own makes Workloads of.
    ExternalFramework {
        /// Path of the entry.
        path: String,
        /// The job kind.
        name: String,
    },
    /// A field that changes nothing.
    NoEffect {
        /// Its path.
        path: &'static str,
        /// Why.
        why: &'static str,
    },
}

impl Warning {
    pub(super) fn no_effect(path: &'static str, why: &'static str) -> Self {
        Self::NoEffect { path, why }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gate(warning) => warning.fmt(f),
            Self::FrameworkNotBuilt { path, name } => {
                write!(f, "{path}: {name:?} is not built: objects of this kind that name a queue are refused")
            }
            Self::ExternalFramework { path, name } => write!(
                f,
                "{path}: {name:?}: Workloads that its controller makes are admitted like others; a Job that it makes is queued by \
                 itself if it names a queue"
            ),
            Self::NoEffect { path, why } => write!(f, "{path} has no effect: {why}"),
        }
    }
}
