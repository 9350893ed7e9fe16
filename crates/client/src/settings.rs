//! The configuration in force: file, flags, and the environment of the process.

use std::path::Path;

use sluice_api::config::{ConfigErrors, Configuration, Environment, Warning};

const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Why the configuration is not usable.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The configuration is invalid.
    #[error("{path} is not a valid configuration:\n{source}")]
    Invalid {
        /// The file, or what stands in for it.
        path: String,
        /// Every mistake.
        source: ConfigErrors,
    },
}

/// The environment of the process.
pub fn environment(feature_gates: Option<String>) -> Environment {
    let namespace = std::fs::read_to_string(NAMESPACE_FILE).ok();
    let namespace = namespace.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let default = Environment::default();
    Environment { namespace: namespace.unwrap_or(default.namespace.clone()), feature_gates, ..default }
}

/// Reads the file, or takes all defaults.
///
/// # Errors
///
/// If the file cannot be read or is not a valid Configuration, the feature gates of the environment are wrong, or a declared kind cannot be compiled
/// or was declared otherwise before.
pub fn load(
    file: Option<&Path>,
    environment: &Environment,
) -> Result<(Configuration, Vec<Warning>), SettingsError> {
    let Some(file) = file else {
        return Configuration::defaults_in(environment)
            .map_err(|source| SettingsError::Invalid { path: "the default".to_owned(), source });
    };
    let path = file.display().to_string();
    let text =
        std::fs::read_to_string(file).map_err(|source| SettingsError::Read { path: path.clone(), source })?;
    Configuration::parse_in(&text, environment)
        .and_then(|read| sluice_jobs::declare(&read.0).map(|()| read))
        .map_err(|source| SettingsError::Invalid { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_all_defaults_hold() {
        let (configuration, _) = load(None, &environment(None)).unwrap();
        assert_eq!(configuration.leader_election.resource_name, "c1f6bfd2.kueue.x-k8s.io");
    }

    #[test]
    fn mistakes_name_the_file_and_the_field() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnope: 1\n")
            .unwrap();
        let error = load(Some(&file), &environment(None)).unwrap_err().to_string();
        assert!(error.contains("config.yaml") && error.contains("nope"), "{error}");
        let error = load(Some(&folder.path().join("none")), &environment(None)).unwrap_err();
        assert!(matches!(error, SettingsError::Read { .. }));
    }
}
