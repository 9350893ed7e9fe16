//! The command line of `sluice`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use sluice_api::gates::Gates;
use sluice_ctl::explain::ExplainArgs;
use sluice_ctl::replay::ReplayArgs;
use sluice_ctl::simulate::SimulateArgs;

use crate::controllers::Controller;
use crate::logging::LogFormat;
use crate::migrate::command::MigrateCommand;

/// The job queue for Kubernetes that speaks Kueue's API.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, about, after_help = after_help(), max_term_width = 120)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the manager: watch, admit, serve webhooks and metrics
    #[command(after_help = after_help())]
    Manager(ManagerArgs),
    /// Look at a configuration file
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Take a cluster over from Kueue, or hand it back
    Migrate {
        /// What to do.
        #[command(subcommand)]
        command: MigrateCommand,
    },
    /// See what will happen: run manifests in a virtual cluster, with the real engine, under virtual time
    Simulate(SimulateArgs),
    /// Why a job waits, what would let it start, and when it will: in a virtual cluster, or a live one that is only read
    Explain(ExplainArgs),
    /// Give a recorded decision log to the engine again and compare
    Replay(ReplayArgs),
    /// Print the version
    Version,
}

/// `sluice config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Validate a file and print the effective configuration
    Check(ConfigCheckArgs),
}

/// `sluice config check`.
#[derive(Debug, Args)]
pub struct ConfigCheckArgs {
    /// The configuration file (kind Configuration of config.kueue.x-k8s.io)
    pub file: PathBuf,
    /// Feature gates as the manager would get them: A=true,B=false
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Option<String>,
}

/// `sluice manager`.
#[derive(Clone, Debug, Args)]
pub struct ManagerArgs {
    /// Configuration file (kind Configuration of config.kueue.x-k8s.io, v1beta1 or v1beta2); without one, all defaults
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates: A=true,B=false; not together with featureGates in the file
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Option<String>,
    /// Kubeconfig; without it KUBECONFIG, else the in-cluster account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Log level: error, warn, info, debug, trace, a zap verbosity (0 to 10), or target=level pairs
    #[arg(long, visible_alias = "zap-log-level", value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Log format
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Parts that run: * for all, NAME turns one on, -NAME turns one off (see below)
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    pub controllers: String,
    /// Record what the engine is told and decides, for `sluice replay`; the file holds all objects that are queued
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Honour the annotation sluice.dev/inject-panic (tests of the manager only)
    #[arg(long, hide = true)]
    pub inject_panics: bool,
}

fn after_help() -> String {
    let mut text = "Controllers (--controllers):\n".to_owned();
    for controller in Controller::ALL {
        // Writing into a String does not fail.
        let _ = writeln!(text, "  {:<14} {}", controller.name(), controller.about());
    }
    text.push_str("\nFeature gates (--feature-gates):\n");
    for line in Gates::help().lines() {
        let _ = writeln!(text, "  {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_kueues_deployment_are_understood() {
        let line = "sluice manager --config=/controller_manager_config.yaml --zap-log-level=2 \
                    --feature-gates=PartialAdmission=true --controllers=*,-scheduler";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Manager(args) = cli.command else { unreachable!("the line says manager") };
        assert_eq!(args.log_level, "2");
        assert_eq!(args.controllers, "*,-scheduler");
    }

    #[test]
    fn a_controllers_list_may_begin_with_a_minus() {
        let cli = Cli::try_parse_from(["sluice", "manager", "--controllers", "-job,*"]).unwrap();
        let Command::Manager(args) = cli.command else { unreachable!("the line says manager") };
        assert_eq!(args.controllers, "-job,*");
    }

    #[test]
    fn help_lists_controllers_and_gates() {
        let help = after_help();
        assert!(help.contains("scheduler      reserves quota"));
        assert!(help.contains("PartialAdmission"));
    }
}
