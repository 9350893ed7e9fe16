//! The manager's configuration file: `config.kueue.x-k8s.io`, kind Configuration, v1beta1 and v1beta2.
//!
//! Reading is strict: an unknown field is an error, every error is reported with its path, and settings that Sluice does not support are refused or
//! cause a warning; they are never silently ignored. Source: docs/reference/01-api.md 1.12.

mod dashboard;
mod declared;
mod decode;
mod duration;
mod endpoints;
mod environment;
mod errors;
mod features;
mod frameworks;
mod hotswap;
mod journal;
mod journal_store;
mod reader;
mod scheduler;
mod sections;
mod selector;
mod tracing;
mod types;
mod url;
mod validate;
mod warning;
mod written;

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

pub use dashboard::Dashboard;
pub use declared::{
    DeclaredInjection, DeclaredKind, DeclaredPodSet, DeclaredStates, DeclaredSuspend, path_parts,
};
pub use duration::Duration;
pub use environment::Environment;
pub use errors::{ConfigErrors, FieldError};
pub use hotswap::Hotswap;
pub use journal::Journal;
pub use journal_store::{JournalStore, StorePlace};
pub use scheduler::Scheduler;
pub use selector::matches as selector_matches;
pub use tracing::Tracing;
pub use types::*;
pub use warning::Warning;

use crate::gates::Gate;
use crate::job::JobKind;
use environment::FileVersion;
use reader::Reader;

/// The API group of the file.
pub const GROUP: &str = "config.kueue.x-k8s.io";
/// The kind of the file.
pub const KIND: &str = "Configuration";

/// The largest accepted file in bytes: far above any real one.
const MAX_BYTES: usize = 1 << 20;

impl Configuration {
    /// Reads a file, in an environment without a service account and flags.
    ///
    /// # Errors
    ///
    /// As [`Self::parse_in`].
    pub fn parse(text: &str) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        Self::parse_in(text, &Environment::default())
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the text is larger than 1 MiB or is not YAML; else every error in it with its path: another kind or version, an unknown field, a value that
    /// is not allowed, a feature gate that cannot have the value.
    pub fn parse_in(text: &str, environment: &Environment) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        let whole = |message: String| ConfigErrors(vec![FieldError { path: String::new(), message }]);
        if text.len() > MAX_BYTES {
            return Err(whole(format!("the file is larger than {MAX_BYTES} bytes")));
        }
        let value: Value =
            serde_saphyr::from_str(text).map_err(|error| whole(format!("not valid YAML: {error}")))?;
        let errors = reader::Errors::default();
        let mut warnings = Vec::new();
        let configuration = read(&value, environment, &errors, &mut warnings);
        let errors = errors.into_inner();
        match configuration {
            Some(configuration) if errors.is_empty() => Ok((configuration, warnings)),
            _ => Err(ConfigErrors(errors)),
        }
    }

    /// The configuration without a file: every default of v1beta2.
    ///
    /// # Errors
    ///
    /// If the feature gates of the environment are invalid, or contradict each other.
    pub fn defaults_in(environment: &Environment) -> Result<(Self, Vec<Warning>), ConfigErrors> {
        Self::parse_in(&format!("apiVersion: {GROUP}/v1beta2\nkind: {KIND}\n"), environment)
    }

    /// The configuration in force as a v1beta2 file; reading it gives the same configuration again.
    pub fn effective_yaml(&self) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct File<'a> {
            api_version: String,
            kind: &'static str,
            #[serde(flatten)]
            configuration: &'a Configuration,
        }
        let mut configuration = self.clone();
        // v1beta2 has no other way to say that waiting is off.
        if configuration.wait_for_pods_ready.is_none() {
            configuration.gates = configuration.gates.with(Gate::DisableWaitForPodsReady, true);
        }
        configuration.feature_gates =
            configuration.gates.overrides().map(|(gate, on)| (gate.name().to_owned(), on)).collect();
        let file =
            File { api_version: format!("{GROUP}/v1beta2"), kind: KIND, configuration: &configuration };
        serde_saphyr::to_string(&file).expect("the configuration has only string keys and plain values")
    }

    /// The enabled job kinds, in the reference's order: the listed ones and those that they imply.
    pub fn job_kinds(&self) -> Vec<JobKind> {
        self.integrations.job_kinds()
    }

    /// The kinds that others manage.
    pub fn external_kinds(&self) -> BTreeSet<JobKind> {
        self.integrations.external_kinds()
    }
}

impl Default for Configuration {
    /// Every default of v1beta2, in the default environment.
    fn default() -> Self {
        let (configuration, _) =
            Self::defaults_in(&Environment::default()).expect("a file without fields is valid");
        configuration
    }
}

fn read(
    value: &Value,
    environment: &Environment,
    errors: &reader::Errors,
    warnings: &mut Vec<Warning>,
) -> Option<Configuration> {
    let mut file = Reader::root(value, errors)?;
    let kind = file.string("kind").unwrap_or_default();
    if kind != KIND {
        file.error("kind", format!("expected {KIND:?}, found {kind:?}"));
    }
    let api_version = file.string("apiVersion").unwrap_or_default();
    let version = match api_version.strip_prefix(GROUP).unwrap_or_default() {
        "/v1beta1" => FileVersion::V1beta1,
        "/v1beta2" => FileVersion::V1beta2,
        _ => {
            let message =
                format!("expected \"{GROUP}/v1beta2\" or \"{GROUP}/v1beta1\", found {api_version:?}");
            file.error("apiVersion", message);
            FileVersion::V1beta2
        }
    };
    let configuration = decode::configuration(&mut file, version, environment, warnings);
    drop(file);
    validate::check(&configuration, errors, warnings);
    Some(configuration)
}

#[cfg(test)]
mod tests;
