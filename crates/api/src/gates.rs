//! Feature gates: all of Kueue's gates, their values, and which of them Sluice supports (docs/reference/02-feature-gates.md).

mod table;

use std::fmt;

use crate::text;

pub use table::{ALWAYS_ON, Gate, REMOVED, Stage};

/// Which gates are on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Gates(u128);

impl Default for Gates {
    fn default() -> Self {
        let on = Gate::ALL.iter().filter(|gate| gate.default_on());
        Self(on.fold(0, |bits, gate| bits | bit(*gate)))
    }
}

impl fmt::Debug for Gates {
    /// Only what differs from the defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.overrides().map(|(gate, on)| (gate.name(), on))).finish()
    }
}

/// An error in a selection of gates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The gate does not exist.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// The entry is not of the form `Name=true`.
    #[error("invalid value {value:?} of feature gate {gate}: expected true or false")]
    Value {
        /// The gate as given.
        gate: String,
        /// The value as given.
        value: String,
    },
    /// An entry without `=`.
    #[error("missing bool value for {0}")]
    Missing(String),
    /// The gate can no longer be changed.
    #[error("cannot set feature gate {} to {value}, feature is locked to {}", gate.name(), gate.default_on())]
    Locked {
        /// The gate.
        gate: Gate,
        /// The value asked for.
        value: bool,
    },
    /// A gate was switched on while a gate that it needs is off.
    #[error("feature gate {} is enabled, but depends on {} which is disabled", gate.name(), parent.name())]
    Dependency {
        /// The gate switched on.
        gate: Gate,
        /// The gate it needs.
        parent: Gate,
    },
}

/// A warning about an accepted selection of gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateWarning {
    /// Kueue has removed the gate: it has no effect.
    Removed(&'static str),
    /// Kueue has removed the gate, and what it switched off is always on.
    AlwaysOn(&'static str),
    /// On by default, but switched off because a gate that it needs was switched off.
    SwitchedOff {
        /// The gate.
        gate: Gate,
        /// The gate that it needs.
        parent: Gate,
    },
    /// These gates are on, but Sluice has not built what they switch.
    NotBuilt(Vec<Gate>),
}

impl fmt::Display for GateWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed(name) => write!(f, "feature gate {name} was removed; it has no effect"),
            Self::AlwaysOn(name) => {
                write!(f, "feature gate {name} was removed: what it switches is always on")
            }
            Self::SwitchedOff { gate, parent } => write!(
                f,
                "feature gate {} is off because {}, which it depends on, is disabled",
                gate.name(),
                parent.name()
            ),
            Self::NotBuilt(gates) => {
                f.write_str("these feature gates are on, but what they switch is not built yet: ")?;
                for (index, gate) in gates.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { ", " }, gate.name())?;
                }
                Ok(())
            }
        }
    }
}

impl Gates {
    /// Whether a gate is on.
    pub const fn enabled(self, gate: Gate) -> bool {
        self.0 & bit(gate) != 0
    }

    /// The same gates with one gate set. For tests and builders: nothing is checked.
    #[must_use]
    pub const fn with(self, gate: Gate, on: bool) -> Self {
        if on { Self(self.0 | bit(gate)) } else { Self(self.0 & !bit(gate)) }
    }

    /// Reads the value of `--feature-gates`: `A=true,B=false`. Later entries win.
    ///
    /// # Errors
    ///
    /// Every entry without `=`, or with a value other than true or false; and what [`Self::from_entries`] refuses.
    pub fn parse(text: &str) -> Result<(Self, Vec<GateWarning>), Vec<GateError>> {
        let mut errors = Vec::new();
        let mut entries = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((name, value)) = entry.split_once('=') else {
                errors.push(GateError::Missing(entry.to_owned()));
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            match text::boolean(value) {
                Some(value) => entries.push((name, value)),
                None => errors.push(GateError::Value { gate: name.to_owned(), value: value.to_owned() }),
            }
        }
        match Self::from_entries(entries) {
            Ok(gates) if errors.is_empty() => Ok(gates),
            Ok(_) => Err(errors),
            Err(more) => {
                errors.extend(more);
                Err(errors)
            }
        }
    }

    /// The gates after these entries; later entries win. `AllAlpha` and `AllBeta` set every gate of the stage without an entry of its own.
    ///
    /// # Errors
    ///
    /// Every gate that does not exist, that is locked to its other value, or that is switched on while a gate that it requires is off.
    pub fn from_entries<'a>(
        entries: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Result<(Self, Vec<GateWarning>), Vec<GateError>> {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let (mut gates, mut named) = (Self::default(), 0_u128);
        let mut stages = Vec::new();
        for (name, on) in entries {
            if let Some(gate) = Gate::from_name(name) {
                if gate.stage() == Stage::Locked && on != gate.default_on() {
                    errors.push(GateError::Locked { gate, value: on });
                }
                gates = gates.with(gate, on);
                named |= bit(gate);
            } else if let Some(stage) = stage_wildcard(name) {
                stages.push((stage, on));
            } else if let Some(removed) = REMOVED.iter().find(|removed| **removed == name) {
                let is_kept = !on && ALWAYS_ON.contains(removed);
                warnings.push(if is_kept {
                    GateWarning::AlwaysOn(removed)
                } else {
                    GateWarning::Removed(removed)
                });
            } else {
                errors.push(GateError::Unknown(name.to_owned()));
            }
        }
        for (stage, on) in stages {
            for gate in Gate::ALL.iter().filter(|gate| gate.stage() == stage && named & bit(**gate) == 0) {
                gates = gates.with(*gate, on);
            }
        }
        gates.check_parents(named, &mut errors, &mut warnings);
        if errors.is_empty() { Ok((gates, warnings)) } else { Err(errors) }
    }

    /// A named gate requires its parents; a gate that is on by default is switched off if a parent is off. The table lists parents before children,
    /// so one pass is enough.
    fn check_parents(&mut self, named: u128, errors: &mut Vec<GateError>, warnings: &mut Vec<GateWarning>) {
        for &gate in Gate::ALL {
            let missing = gate.parents().iter().find(|parent| !self.enabled(**parent));
            let Some(&parent) = missing.filter(|_| self.enabled(gate)) else { continue };
            if named & bit(gate) != 0 {
                errors.push(GateError::Dependency { gate, parent });
            } else {
                warnings.push(GateWarning::SwitchedOff { gate, parent });
                *self = self.with(gate, false);
            }
        }
    }

    /// The gates that differ from their default, with their value.
    pub fn overrides(self) -> impl Iterator<Item = (Gate, bool)> {
        let all = Gate::ALL.iter().map(move |gate| (*gate, self.enabled(*gate)));
        all.filter(|(gate, on)| *on != gate.default_on())
    }

    /// The warning that names the gates that are on but have no effect yet.
    pub fn not_built(self) -> Option<GateWarning> {
        let gates: Vec<_> =
            Gate::ALL.iter().copied().filter(|gate| self.enabled(*gate) && !gate.built()).collect();
        (!gates.is_empty()).then_some(GateWarning::NotBuilt(gates))
    }
}

const fn bit(gate: Gate) -> u128 {
    1 << gate as u8
}

fn stage_wildcard(name: &str) -> Option<Stage> {
    match name {
        "AllAlpha" => Some(Stage::Alpha),
        "AllBeta" => Some(Stage::Beta),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
