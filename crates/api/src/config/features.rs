//! `featureGates`: from the file, or from the flag, never from both.

use std::collections::BTreeMap;

use super::environment::Environment;
use super::reader::Reader;
use super::warning::Warning;
use crate::gates::{GateError, Gates};

/// The gates of the file, and those in force.
pub(super) fn read(
    file: &mut Reader<'_>,
    environment: &Environment,
    warnings: &mut Vec<Warning>,
) -> (BTreeMap<String, bool>, Gates) {
    let named = file.map_of("featureGates", "true or false", serde_json::Value::as_bool).unwrap_or_default();
    let flag = environment.feature_gates.as_deref().filter(|flag| !flag.trim().is_empty());
    let result = match flag {
        Some(_) if !named.is_empty() => {
            file.error("featureGates", "feature gates for CLI and configuration cannot both specified");
            return (named, Gates::default());
        }
        Some(flag) => Gates::parse(flag),
        None => Gates::from_entries(named.iter().map(|(name, on)| (name.as_str(), *on))),
    };
    match result {
        Ok((gates, gate_warnings)) => {
            warnings.extend(gate_warnings.into_iter().chain(gates.not_built()).map(Warning::Gate));
            (named, gates)
        }
        Err(errors) => {
            let place = if flag.is_some() { "--feature-gates" } else { "featureGates" };
            report(file, place, &errors);
            (named, Gates::default())
        }
    }
}

fn report(file: &Reader<'_>, place: &str, errors: &[GateError]) {
    for error in errors {
        file.error(place, error.to_string());
    }
}
