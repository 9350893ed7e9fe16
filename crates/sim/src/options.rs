//! The options of a simulation.

use jiff::{SignedDuration, Timestamp};
use sluice_api::config::{Configuration, Environment};
use sluice_api::job::JobKind;
use sluice_engine::{EngineConfig, Gather, StatusDelay};

use crate::cancel::Cancel;
use crate::random::Distribution;
use crate::serving::PodMemory;

/// The options of a simulation, besides its objects.
#[derive(Clone, Debug)]
pub struct Options {
    /// The manager's configuration.
    pub configuration: Configuration,
    /// The beginning.
    pub start: Timestamp,
    /// The seed of all random draws.
    pub seed: u64,
    /// The end, counted from the beginning; without it the simulation ends when nothing is left to happen.
    pub until: Option<SignedDuration>,
    /// The run time of jobs that do not have one; without it the scenario's, else ten minutes.
    pub run_time: Option<Distribution>,
    /// Recompute everything after every step and compare (slow).
    pub audit: bool,
    /// When it has to give up.
    pub cancel: Cancel,
    /// The memory for the pods that the simulation makes; without it only each object has a limit.
    pub pod_memory: Option<PodMemory>,
}

impl Options {
    /// The default beginning: a Monday, so that reports read well.
    pub fn default_start() -> Timestamp {
        // 2026-01-05T00:00:00Z.
        Timestamp::from_second(1_767_571_200).unwrap_or_default()
    }

    /// The default configuration: all defaults, and every kind of job that Sluice integrates.
    ///
    /// (A manager without a configuration file manages batch Jobs only, as Kueue does; the installed configuration lists more.)
    pub fn default_configuration() -> Configuration {
        let (configuration, _) = Configuration::defaults_in(&Environment::default())
            .expect("the defaults are a valid configuration without feature gates to parse");
        Self::with_every_kind(configuration)
    }

    /// A configuration that lists every kind of job that Sluice integrates, with the feature gates that these need.
    pub fn with_every_kind(mut configuration: Configuration) -> Configuration {
        let kinds = JobKind::ALL.into_iter();
        configuration.integrations.frameworks = kinds.map(|kind| kind.framework().to_owned()).collect();
        for gate in JobKind::ALL.into_iter().filter_map(|kind| kind.integration().gate) {
            configuration.gates = configuration.gates.with(gate, true);
        }
        configuration
    }

    /// All defaults, under a configuration.
    pub fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            start: Self::default_start(),
            seed: 0,
            until: None,
            run_time: None,
            audit: false,
            cancel: Cancel::default(),
            pod_memory: None,
        }
    }

    /// The engine's configuration: as on a cluster, but statuses that only show figures are written seldom, because
    /// they are not read here. Reasons come at once: no write waits here.
    pub(crate) fn engine(&self) -> EngineConfig {
        EngineConfig {
            status_delay: StatusDelay::NONE,
            gather: Gather::NONE,
            status_interval_ms: 3_600_000,
            message_interval_seconds: 600,
            provisioning: true,
            ..EngineConfig::from(&self.configuration)
        }
    }
}
