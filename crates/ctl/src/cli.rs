//! The command line of `kubectl kueue`.

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::ask_explain::AskExplainArgs;
use crate::cluster::ClusterArgs;
use crate::create::CreateCommand;
use crate::delete::DeleteCommand;
use crate::kubectl::PassArgs;
use crate::list::ListCommand;
use crate::simulate::SimulateArgs;
use crate::switch::{ResumeCommand, StopCommand};

/// Queues, Workloads, and why they wait: the kubectl plugin of Sluice, which works with Kueue's API.
#[derive(Debug, Parser)]
#[command(name = "kubectl-kueue", bin_name = "kubectl kueue", version, max_term_width = 120)]
pub struct Plugin {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Why a job waits, what would let it start, and when it will, as the running manager says
    Explain(AskExplainArgs),
    /// See what will happen: run manifests or the cluster's objects in a virtual cluster; nothing is written
    Simulate(SimulateArgs),
    /// List queues, Workloads or flavors
    List {
        /// What.
        #[command(subcommand)]
        command: ListCommand,
    },
    /// Create a queue or flavor
    Create {
        /// What.
        #[command(subcommand)]
        command: CreateCommand,
    },
    /// Let a queue admit nothing more, or a Workload stop
    Stop {
        /// What.
        #[command(subcommand)]
        command: StopCommand,
    },
    /// Let a queue or Workload that was stopped go on
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
    /// kubectl get, of a kind of Kueue's
    Get(PassArgs),
    /// kubectl describe, of a kind of Kueue's
    Describe(PassArgs),
    /// kubectl edit, of a kind of Kueue's
    Edit(PassArgs),
    /// kubectl patch, of a kind of Kueue's
    Patch(PassArgs),
    /// Print a script that completes commands and flags in your shell
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// The versions of this program and of the manager
    Version {
        /// The namespace that the manager runs in
        #[arg(long, value_name = "NAMESPACE", default_value = "kueue-system")]
        manager_namespace: String,
        /// Where the cluster is.
        #[command(flatten)]
        cluster: ClusterArgs,
    },
}

impl Command {
    /// Does it; the process's exit code.
    pub async fn run(self) -> anyhow::Result<u8> {
        match self {
            Self::Explain(args) => crate::ask_explain::run(args).await,
            Self::Simulate(args) => crate::simulate::run(args).await,
            Self::List { command } => command.run().await,
            Self::Create { command } => command.run().await,
            Self::Stop { command } => command.run().await,
            Self::Resume { command } => command.run().await,
            Self::Delete { command } => command.run().await,
            Self::Get(args) => args.run("get").await,
            Self::Describe(args) => args.run("describe").await,
            Self::Edit(args) => args.run("edit").await,
            Self::Patch(args) => args.run("patch").await,
            Self::Completion { shell } => {
                crate::print::print(&completion(shell))?;
                Ok(0)
            }
            Self::Version { manager_namespace, cluster } => {
                crate::version::print_both(&cluster, &manager_namespace).await
            }
        }
    }
}

/// The script that completes `kubectl-kueue` in a shell.
fn completion(shell: Shell) -> String {
    const PROGRAM: &str = "kubectl-kueue";
    // The generator for bash (clap_complete 4.6) writes a hyphen in two ways, and then finds no subcommand.
    const WITHOUT_HYPHEN: &str = "kubectl_kueue";
    let name = if shell == Shell::Bash { WITHOUT_HYPHEN } else { PROGRAM };
    let mut script = Vec::new();
    // One word: a shell completes words of one program, and `kubectl kueue` are two.
    clap_complete::generate(shell, &mut Plugin::command().bin_name(name), name, &mut script);
    let script = String::from_utf8_lossy(&script);
    let line = |line: &str| match line.strip_suffix(WITHOUT_HYPHEN) {
        Some(head) if line.trim_start().starts_with("complete ") => format!("{head}{PROGRAM}\n"),
        _ => format!("{line}\n"),
    };
    script.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn the_command_line_is_consistent() {
        Plugin::command().debug_assert();
    }

    #[test]
    fn every_shell_learns_the_subcommands() {
        for shell in Shell::value_variants() {
            let script = completion(*shell);
            for word in ["kubectl-kueue", "explain", "localqueue", "lending-limit"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn kueuectl_s_short_names_are_understood() {
        for line in [
            "list wl -A --status pending --status admitted",
            "list cq --active true --no-headers",
            "list lq -c cluster-queue -o name",
            "list rf -l a=b",
            "list pods --for job/train -A --no-headers",
            "completion bash",
            "create lq main -c cluster-queue -i",
            "create rf spot --node-labels a=b --node-taints k=v:NoSchedule",
            "stop cq a --keep-already-running",
            "stop wl a -n team",
            "resume lq a",
            "delete workload a b -y",
            "get wl -o yaml",
            "patch cq a --type=merge -p {}",
            "describe lq main -n team",
        ] {
            let words = std::iter::once("kubectl-kueue").chain(line.split_whitespace());
            assert!(Plugin::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
