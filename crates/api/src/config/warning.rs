//! Warnings about an accepted configuration.

use std::fmt;

use crate::gates::GateWarning;

/// A warning about an accepted configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// About feature gates.
    Gate(GateWarning),
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
            Self::NoEffect { path, why } => write!(f, "{path} has no effect: {why}"),
        }
    }
}
