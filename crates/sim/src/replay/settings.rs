//! Settings of a manager's engine outside the configuration file: flags and built-in values.

use serde::{Deserialize, Serialize};
use sluice_api::config::Configuration;
use sluice_api::job::JobKind;
use sluice_engine::{EngineConfig, Level, Part};

/// Settings of the engine outside the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct EngineSettings {
    /// The job kinds that are looked at, by their names in `integrations.frameworks`.
    frameworks: Vec<String>,
    /// Whether only those pods are looked at that another object suspends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    implied_pods: bool,
    /// Whether it schedules.
    scheduling: bool,
    /// Whether it is the controller of provisioning checks.
    provisioning: bool,
    /// The names of the parts that are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without: Vec<String>,
    /// Whether objects may make it panic on purpose.
    inject_panics: bool,
    /// The least important log lines whose fields are recorded.
    log_level: String,
}

impl From<&EngineConfig> for EngineSettings {
    fn from(config: &EngineConfig) -> Self {
        Self {
            frameworks: config.frameworks.iter().map(|kind| kind.framework().to_owned()).collect(),
            implied_pods: config.implied_pods,
            scheduling: config.scheduling,
            provisioning: config.provisioning,
            without: config.without.iter().map(|part| part.name().to_owned()).collect(),
            inject_panics: config.inject_panics,
            log_level: config.log_level.as_str().to_owned(),
        }
    }
}

impl EngineSettings {
    /// The engine's configuration under a file's.
    pub fn config(&self, configuration: &Configuration) -> EngineConfig {
        let named = |kind: &JobKind| self.frameworks.iter().any(|name| name == kind.framework());
        EngineConfig {
            frameworks: JobKind::jobs().filter(named).collect(),
            implied_pods: self.implied_pods,
            scheduling: self.scheduling,
            provisioning: self.provisioning,
            without: Part::ALL
                .into_iter()
                .filter(|part| self.without.iter().any(|n| n == part.name()))
                .collect(),
            inject_panics: self.inject_panics,
            log_level: Level::named(&self.log_level).unwrap_or(Level::Debug),
            ..EngineConfig::from(configuration)
        }
    }
}
