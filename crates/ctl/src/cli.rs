//! The command line of `kubectl kueue`.

use std::ffi::OsString;

use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::ask_explain::AskExplainArgs;
use crate::complete;
use crate::connection::ClusterArgs;
use crate::create::CreateCommand;
use crate::delete::DeleteCommand;
use crate::kubectl::PassArgs;
use crate::list::ListCommand;
use crate::report::ReportArgs;
use crate::simulate::SimulateArgs;
use crate::switch::{ResumeCommand, StopCommand};
use crate::switch_values::with_values;
use crate::usage::UsageArgs;
use crate::version::VersionArgs;

/// Manage queues and Workloads, and see why jobs wait: the kubectl plugin of Sluice, for Kueue's API.
#[derive(Debug, Parser)]
#[command(name = "kubectl-kueue", bin_name = "kubectl kueue", version, max_term_width = 120)]
#[command(
    after_help = "All commands take kubectl's connection flags (--as, --cluster, --token, …): kubectl kueue options"
)]
pub struct Plugin {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Explain why a job waits, what would let it start, and when it will start, by asking the manager
    Explain(AskExplainArgs),
    /// Simulate manifests, or the cluster's objects, in a virtual cluster; nothing is written
    Simulate(SimulateArgs),
    /// Show what teams used for how long, from the manager's journal
    Usage(UsageArgs),
    /// Show a past period from the manager's journal, in the format of simulate
    Report(ReportArgs),
    /// List queues, Workloads, flavors or pods
    List {
        /// What.
        #[command(subcommand)]
        command: ListCommand,
    },
    /// Create a queue or a flavor
    Create {
        /// What.
        #[command(subcommand)]
        command: CreateCommand,
    },
    /// Stop a queue or a Workload
    Stop {
        /// What.
        #[command(subcommand)]
        command: StopCommand,
    },
    /// Resume a queue or a Workload that was stopped
    Resume {
        /// What.
        #[command(subcommand)]
        command: ResumeCommand,
    },
    /// Delete the jobs of Workloads, a queue or a flavor
    Delete {
        /// What.
        #[command(subcommand)]
        command: DeleteCommand,
    },
    /// Run kubectl get for a kind of Kueue's API
    Get(PassArgs),
    /// Run kubectl describe for a kind of Kueue's API
    Describe(PassArgs),
    /// Run kubectl edit for a kind of Kueue's API
    Edit(PassArgs),
    /// Run kubectl patch for a kind of Kueue's API
    Patch(PassArgs),
    /// Print the script that completes commands, flags and names in your shell
    #[command(after_help = "Bash:          source <(kubectl kueue completion bash)\n\
                            kubectl kueue: ln -s \"$(command -v kubectl-kueue)\" ~/bin/kubectl_complete-kueue, in a folder of your PATH")]
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// List the connection flags that every command takes
    Options,
    /// Print the versions of this program and of the manager
    Version(VersionArgs),
}

impl Plugin {
    /// Reads a command line, with the name of the program as its first word.
    ///
    /// # Errors
    /// When it is wrong, or asks for help or the version.
    pub fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let mut command = with_values(Self::command());
        let matches = command.try_get_matches_from_mut(words)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// Runs the command; the process's exit code.
    ///
    /// # Errors
    /// When the command fails.
    pub async fn run(self) -> anyhow::Result<u8> {
        let cluster = &self.cluster;
        match self.command {
            Command::Explain(args) => crate::ask_explain::run(args, cluster).await,
            Command::Simulate(args) => crate::simulate::run(args, cluster).await,
            Command::Usage(args) => crate::usage::run(args, cluster).await,
            Command::Report(args) => crate::report::run(args, cluster).await,
            Command::List { command } => command.run(cluster).await,
            Command::Create { command } => command.run(cluster).await,
            Command::Stop { command } => command.run(cluster).await,
            Command::Resume { command } => command.run(cluster).await,
            Command::Delete { command } => command.run(cluster).await,
            Command::Get(args) => args.run("get", cluster),
            Command::Describe(args) => args.run("describe", cluster),
            Command::Edit(args) => args.run("edit", cluster),
            Command::Patch(args) => args.run("patch", cluster),
            Command::Completion { shell } => {
                crate::print::print(&complete::script(shell)?)?;
                Ok(0)
            }
            Command::Options => {
                crate::print::print(&options())?;
                Ok(0)
            }
            Command::Version(args) => args.run(cluster).await,
        }
    }
}

/// The connection flags, all of them.
fn options() -> String {
    let command = ClusterArgs::augment_args(clap::Command::new("options").max_term_width(120));
    let command = command.disable_help_flag(true).help_template("{all-args}\n");
    command
        .mut_args(|flag| flag.hide(false).help_heading("Every command takes these flags"))
        .render_help()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Plugin, clap::Error> {
        Plugin::read(std::iter::once("kubectl-kueue").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Plugin::command().debug_assert();
        with_values(Plugin::command()).debug_assert();
    }

    #[test]
    fn kueuectl_s_words_are_understood() {
        for line in [
            "list wl -A --status pending --status ADMITTED",
            "list kwl -o jsonpath={.items[*].metadata.name}",
            "list kueueworkloads --show-managed-fields -o yaml",
            "list cq --active true --no-headers",
            "list cq --active true,false",
            "list lq -c cluster-queue -o name",
            "list queues -o wide",
            "list rf -l a=b",
            "list flavors --template {{.kind}}",
            "list pods --for job/train -A --no-headers",
            "usage --since 7d --by namespace,lq -o csv",
            "completion bash",
            "version -n sluice",
            "options",
            "create lq main -c cluster-queue -i --dry-run=server",
            "create rf spot --node-labels a=b --node-taints k=v:NoSchedule",
            "stop cq a --keep-already-running --dry-run=client -o yaml",
            "stop kueueworkload a -n team",
            "resume lq a -o name",
            "delete workload a b -y --dry-run=client",
            "delete kwl --all -o json",
            "delete cq a --ignore-not-found",
            "delete wl --all=true --yes=true",
            "list wl --all-namespaces=true --no-headers=false --insecure-skip-tls-verify=true",
            "get wl -o yaml",
            "patch cq a --type=merge -p {}",
            "describe lq main -n team",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn watching_needs_a_speed_above_zero() {
        for (line, accepted) in
            [("--watch", true), ("--watch 1", true), ("--watch 0", false), ("--watch fast", false)]
        {
            let kind = parse(&format!("simulate queues.yaml {line}")).err().map(|error| error.kind());
            assert_eq!(kind, (!accepted).then_some(clap::error::ErrorKind::ValueValidation), "{line}");
        }
    }

    #[test]
    fn connection_flags_stand_anywhere() {
        let flags = "--as bob --as-group g --as-group h --as-uid 7 --cluster c --user u --token t -s https://a --context x \
                     --kubeconfig k -n team --request-timeout 5s --certificate-authority a --client-certificate b \
                     --client-key d --insecure-skip-tls-verify --tls-server-name e";
        let expected = parse(&format!("{flags} list wl")).unwrap().cluster;
        assert_eq!((expected.as_group.len(), expected.namespace.as_deref()), (2, Some("team")));
        for line in [
            "list FLAGS wl",
            "list wl FLAGS",
            "stop FLAGS cq a",
            "create cq FLAGS a",
            "delete wl a FLAGS",
            "delete FLAGS cq a",
            "explain job a FLAGS",
            "simulate --from-cluster FLAGS",
            "version FLAGS",
            "get FLAGS wl a",
            "get wl FLAGS -o yaml",
        ] {
            let plugin = parse(&line.replace("FLAGS", flags)).unwrap_or_else(|e| unreachable!("{line}: {e}"));
            assert_eq!(plugin.cluster, expected, "{line}");
        }
        // After a name everything is for kubectl as it stands.
        let Command::Get(args) = parse("get wl a -n team -o yaml").unwrap().command else {
            unreachable!("the line says get")
        };
        assert_eq!(args.rest, ["a", "-n", "team", "-o", "yaml"]);
    }

    #[test]
    fn options_lists_every_connection_flag() {
        let text = options();
        let command = ClusterArgs::augment_args(clap::Command::new("x"));
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(text.contains(&format!("--{flag}")), "{flag}: {text}");
        }
    }

    #[test]
    fn every_help_fits_on_a_screen_or_says_only_what_is_its_own() {
        let help = Plugin::command().render_help().to_string();
        assert!(help.lines().count() <= 36, "{help}");
        assert!(!help.contains("--as-group"), "{help}");
    }
}
