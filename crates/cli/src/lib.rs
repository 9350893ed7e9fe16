//! The command line of `sluice`: the manager, and the commands of `sluice-ctl` that it has too.
//!
//! It must never contain what a command does: that is in the crates that it calls. Invariant: it is the only place where the manager and
//! `sluice-ctl` meet.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use sluice_api::gates::Gate;
use sluice_ctl::connection::ClusterArgs;
use sluice_ctl::explain::ExplainArgs;
use sluice_ctl::integration::IntegrationCommand;
use sluice_ctl::migrate::command::MigrateCommand;
use sluice_ctl::print::table;
use sluice_ctl::replay::ReplayArgs;
use sluice_ctl::simulate::SimulateArgs;
use sluice_ctl::switch_values::with_values;
use sluice_manager::args::ManagerArgs;
use sluice_manager::controllers::Controller;
use sluice_manager::dashboard::local::DashboardArgs;

/// Sluice queues jobs on Kubernetes, with Kueue's API.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, max_term_width = 120)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads a command line, with the name of the program as its first word.
    ///
    /// # Errors
    /// When it is wrong, or asks for help or the version.
    pub fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let mut command = with_values(Self::command());
        let matches = command.try_get_matches_from_mut(words)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the manager, which admits jobs and serves webhooks and metrics
    #[command(after_help = controllers())]
    Manager(ManagerArgs),
    /// Check a configuration file
    Config {
        /// What to do with it.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Try a declaration of a job kind
    Integration {
        /// What to do.
        #[command(subcommand)]
        command: IntegrationCommand,
    },
    /// Migrate a cluster from Kueue, or back to Kueue
    Migrate {
        /// What to do.
        #[command(subcommand)]
        command: MigrateCommand,
    },
    /// Simulate manifests, or a cluster's objects, in a virtual cluster; nothing is written
    Simulate(InCluster<SimulateArgs>),
    /// Show queues, Workloads and nodes of a cluster in a browser, on this computer only; nothing is written
    Dashboard(InCluster<DashboardArgs>),
    /// Explain why a job waits, what would let it start, and when it will start
    Explain(InCluster<ExplainArgs>),
    /// Replay a recorded decision log, and compare the decisions
    Replay(ReplayArgs),
    /// List the feature gates
    Gates,
    /// Print the version
    Version,
}

/// A command, and the cluster that it is about.
#[derive(Debug, Args)]
pub struct InCluster<T: Args> {
    /// Its own flags.
    #[command(flatten)]
    pub args: T,
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
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
    /// Feature gates, as given to the manager: A=true,B=false
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Option<String>,
}

fn controllers() -> String {
    let mut text = "Controllers (--controllers):\n".to_owned();
    for controller in Controller::all() {
        // Writing into a String does not fail.
        let _ = writeln!(text, "  {:<16} {}", controller.name(), controller.about());
    }
    text
}

/// The feature gates as a table, by name.
pub fn gates() -> String {
    let mut gates = Gate::ALL.to_vec();
    gates.sort_unstable_by_key(|gate| gate.name());
    let row = |gate: &Gate| {
        let built = if gate.built() { "" } else { " (not built yet)" };
        vec![
            gate.name().to_owned(),
            gate.stage().as_str().to_owned(),
            gate.default_on().to_string(),
            format!("{}{built}", gate.purpose()),
        ]
    };
    let rows: Vec<_> = gates.iter().map(row).collect();
    table(&["NAME", "STAGE", "DEFAULT", "PURPOSE"], &rows, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        with_values(Cli::command()).debug_assert();
    }

    #[test]
    fn flags_of_kueues_deployment_are_understood() {
        let line = "sluice manager --config=/controller_manager_config.yaml --zap-log-level=2 \
                    --feature-gates=PartialAdmission=true --controllers=*,-scheduler";
        let cli = Cli::read(line.split_whitespace()).unwrap();
        let Command::Manager(args) = cli.command else { unreachable!("the line says manager") };
        assert_eq!(args.log_level, "2");
        assert_eq!(args.controllers, "*,-scheduler");
        let Command::Manager(args) = Cli::read(["sluice", "manager", "--v=1"]).unwrap().command else {
            unreachable!("the line says manager")
        };
        assert_eq!(args.log_level, "1");
    }

    #[test]
    fn a_controllers_list_may_begin_with_a_minus() {
        let cli = Cli::read(["sluice", "manager", "--controllers", "-job,*"]).unwrap();
        let Command::Manager(args) = cli.command else { unreachable!("the line says manager") };
        assert_eq!(args.controllers, "-job,*");
    }

    #[test]
    fn the_help_fits_on_a_screen() {
        let help = Cli::command().render_help().to_string();
        assert!(help.lines().count() <= 24, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }

    #[test]
    fn controllers_are_in_the_help_of_the_manager_and_gates_have_their_own_command() {
        assert!(controllers().contains("scheduler        reserves quota"));
        assert!(matches!(Cli::read(["sluice", "gates"]).unwrap().command, Command::Gates));
        let gates = gates();
        assert_eq!(gates.lines().count(), Gate::ALL.len() + 1);
        let partial = gates.lines().find(|line| line.starts_with("PartialAdmission ")).unwrap();
        assert_eq!(partial.split_whitespace().nth(2), Some("true"), "{partial}");
        assert!(gates.contains("(not built yet)"));
    }

    #[test]
    fn migrations_take_the_flags_of_kubectl() {
        for line in [
            "sluice migrate check --context x --as eve --manager-namespace m",
            "sluice migrate check --kubeconfig k --namespace m",
            "sluice migrate storage --page-size 5 -s https://a",
        ] {
            assert!(Cli::read(line.split(' ')).is_ok(), "{line}");
        }
    }

    #[test]
    fn simulations_of_a_cluster_take_the_flags_of_kubectl() {
        let line = "sluice simulate --from-cluster --context x --as eve -s https://a";
        let Command::Simulate(simulate) = Cli::read(line.split(' ')).unwrap().command else {
            unreachable!("the line says simulate")
        };
        assert_eq!(simulate.cluster.as_user.as_deref(), Some("eve"));
        let line = "sluice explain job/a -n team --from-cluster --token t";
        let Command::Explain(explain) = Cli::read(line.split(' ')).unwrap().command else {
            unreachable!("the line says explain")
        };
        assert_eq!(explain.cluster.namespace.as_deref(), Some("team"));
    }
}
