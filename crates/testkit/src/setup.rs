//! How a manager runs outside the cluster: its configuration file, ports, credentials and flags.

use std::path::PathBuf;

use anyhow::Result;
use json_patch::merge;
use serde_json::{Value, json};

use crate::plane::ControlPlane;
use crate::ports::free_ports;

/// Everything that [`crate::Manager`] needs to start.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The Configuration (config.kueue.x-k8s.io/v1beta2) in the file.
    pub configuration: Value,
    /// The user that the manager acts as.
    pub kubeconfig: PathBuf,
    /// Flags after `sluice manager --config … --kubeconfig …`.
    pub args: Vec<String>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Port of /healthz and /readyz, plain HTTP.
    pub health: u16,
    /// Port of /metrics.
    pub metrics: u16,
    /// Port of the webhooks.
    pub webhook: u16,
    /// Port of the aggregated APIs.
    pub visibility: u16,
    /// The limits of the process; unlimited by default.
    pub limits: Option<Limits>,
}

/// Limits of a process: `ulimit`, which every machine supports, and a memory cgroup if the machine allows one.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Memory of its own, in bytes: at least what a cgroup would count, as what is reserved and not used counts, too.
    pub memory: u64,
    /// File descriptors.
    pub files: u32,
}

impl Limits {
    /// The memory limit of the chart, and no more descriptors than many systems give.
    pub const CHART: Self = Self { memory: 512 << 20, files: 1024 };
}

impl Setup {
    /// A manager with the administrator's rights and free ports, for tests that do without the chart. Its leases last 15 s, as a user's do.
    ///
    /// # Errors
    ///
    /// If there are not four free ports: see [`free_ports`].
    pub fn new(plane: &ControlPlane) -> Result<Self> {
        let ports = free_ports(4)?;
        let (health, metrics, webhook, visibility) = (ports[0], ports[1], ports[2], ports[3]);
        let configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": "kueue-system",
            "health": { "healthProbeBindAddress": format!("127.0.0.1:{health}") },
            "metrics": { "bindAddress": format!("127.0.0.1:{metrics}") },
            "webhook": { "port": webhook, "host": "127.0.0.1" },
            "visibilityServer": { "bindPort": visibility, "bindAddress": "127.0.0.1" },
            "leaderElection": {
                "leaderElect": true,
                "resourceName": "c1f6bfd2.kueue.x-k8s.io",
            },
            "integrations": { "frameworks": ["batch/job", "jobset.x-k8s.io/jobset"] },
        });
        let kubeconfig = plane.kubeconfig_path();
        let (args, environment, limits) = (Vec::new(), Vec::new(), None);
        Ok(Self {
            configuration,
            kubeconfig,
            args,
            environment,
            health,
            metrics,
            webhook,
            visibility,
            limits,
        })
    }

    /// The same setup for a second replica: other ports, everything else equal.
    ///
    /// # Errors
    ///
    /// If there are not four free ports: see [`free_ports`].
    pub fn replica(&self) -> Result<Self> {
        let ports = free_ports(4)?;
        let (health, metrics, webhook, visibility) = (ports[0], ports[1], ports[2], ports[3]);
        let other = Self { health, metrics, webhook, visibility, ..self.clone() };
        Ok(other.with(&json!({
            "health": { "healthProbeBindAddress": format!("127.0.0.1:{health}") },
            "metrics": { "bindAddress": format!("127.0.0.1:{metrics}") },
            "webhook": { "port": webhook },
            "visibilityServer": { "bindPort": visibility },
        })))
    }

    /// Merges these fields into the configuration (as a JSON merge patch: null removes).
    #[must_use]
    pub fn with(mut self, overrides: &Value) -> Self {
        merge(&mut self.configuration, overrides);
        self
    }

    /// Leases of 5 s, for a test that kills a leader, so that its successor takes over sooner. If an API server does not answer for 4 s, even a
    /// healthy leader loses such a lease.
    #[must_use]
    pub fn brief_leases(self) -> Self {
        self.with(&json!({
            "leaderElection": {"leaseDuration": "5s", "renewDeadline": "4s", "retryPeriod": "500ms"},
        }))
    }

    /// Leases of a minute, for a plane that many tests use and on which no leader is killed: a busy API server may not answer for 10 s, and a leader
    /// with the usual lease then has to win it again.
    #[must_use]
    pub fn lasting_leases(self) -> Self {
        self.with(&json!({"leaderElection": {"leaseDuration": "60s", "renewDeadline": "50s"}}))
    }

    /// Without a lease, for a test that kills its only manager: the next one need not wait for the lease to expire.
    #[must_use]
    pub fn alone(self) -> Self {
        self.with(&json!({"leaderElection": {"leaderElect": false}}))
    }

    /// Adds a flag, for example `--controllers=*,-scheduler`.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The user that the manager acts as.
    #[must_use]
    pub fn acting_as(mut self, kubeconfig: PathBuf) -> Self {
        self.kubeconfig = kubeconfig;
        self
    }

    /// Sets the limits of the process.
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Where the API server reaches the webhooks.
    pub fn webhook_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.webhook)
    }
}
