//! The flags of `sluice manager`.

use std::path::PathBuf;

use clap::Args;

use crate::logging::LogFormat;

/// `sluice manager`.
#[derive(Clone, Debug, Args)]
pub struct ManagerArgs {
    /// Configuration file (kind Configuration of config.kueue.x-k8s.io, v1beta1 or v1beta2); without one, all defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates: A=true,B=false; not together with featureGates in the file (`sluice gates` lists them)
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Option<String>,
    /// Kubeconfig; without it KUBECONFIG, else the in-cluster account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Log level: error, warn, info, debug, trace, a zap verbosity (0 to 10), or target=level pairs
    #[arg(long, visible_aliases = ["zap-log-level", "v"], value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Log format
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Controllers that run: * for all, NAME turns one on, -NAME turns one off (see below)
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    pub controllers: String,
    /// Record the engine's inputs and decisions for `sluice replay`; the file contains all queued objects
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Honour the annotation sluice.dev/inject-panic (tests of the manager only)
    #[arg(long, hide = true)]
    pub inject_panics: bool,
}
