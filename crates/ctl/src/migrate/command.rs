//! `sluice migrate …` on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sluice_client::kubeconfig::{client, connection};

use super::{Outcome, Place, check, definitions, migrate_storage};
use crate::print::{line, print};

/// Something is not supported, has to be done first, or is left to do: not a failure, but not the end either.
const NOT_CLEAR: u8 = 3;

/// Refusals that are reported for a kind: they often have one cause.
const EXAMPLES: usize = 10;

/// `sluice migrate …`.
#[derive(Debug, Subcommand)]
pub enum MigrateCommand {
    /// Report what is in the cluster, what would change, and what is not supported; nothing is written (exit code 3: something
    /// is not supported, or has to be done first)
    Check(CheckArgs),
    /// Rewrite all objects in the storage version, and clean up storedVersions; can be interrupted and repeated
    Storage(StorageArgs),
}

/// How to reach the cluster.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// Kubeconfig; without it KUBECONFIG, else the in-cluster account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// `sluice migrate check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The namespace of the manager
    #[arg(long, value_name = "NAME", default_value = "kueue-system")]
    pub namespace: String,
}

/// `sluice migrate storage`.
#[derive(Debug, Args)]
pub struct StorageArgs {
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How many objects are listed at a time
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub page_size: u32,
}

/// Runs it; the process's exit code.
///
/// # Errors
///
/// If the kubeconfig is not usable, the API server cannot be reached or refuses a request, a list expires too often, or standard output cannot be
/// written.
pub async fn run(command: MigrateCommand) -> anyhow::Result<u8> {
    match command {
        MigrateCommand::Check(args) => {
            let client = client(&connection(args.cluster.kubeconfig.as_deref()).await?)?;
            let report = check(&Place { client, namespace: args.namespace }).await?;
            print(&report.to_string())?;
            Ok(if report.is_clear() { 0 } else { NOT_CLEAR })
        }
        MigrateCommand::Storage(args) => storage(&args).await,
    }
}

async fn storage(args: &StorageArgs) -> anyhow::Result<u8> {
    let client = client(&connection(args.cluster.kubeconfig.as_deref()).await?)?;
    let mut complete = true;
    for mut definition in definitions(&client).await? {
        let plural = definition.plural.clone();
        // A closed pipe, or a full disk behind it, is no reason to stop halfway.
        let progress = |done| drop(line(&format!("{plural}: {done} rewritten so far")));
        match migrate_storage(&client, &mut definition, args.page_size, progress).await? {
            Outcome::Unknown => line(&format!("{plural}: not in the cluster"))?,
            Outcome::Clean => line(&format!("{plural}: nothing to do"))?,
            Outcome::Done { objects, version } => {
                line(&format!("{plural}: done, {objects} rewritten; stored only in {version}"))?;
            }
            Outcome::Refused { objects, failures } => {
                complete = false;
                let refused = failures.len();
                line(&format!("{plural}: {objects} rewritten, {refused} refused; storedVersions stays"))?;
                for failure in failures.iter().take(EXAMPLES) {
                    eprintln!("refused: {failure}");
                }
            }
            Outcome::Changed => {
                complete = false;
                line(&format!("{plural}: the definition changed meanwhile; run this again"))?;
            }
        }
    }
    Ok(if complete { 0 } else { NOT_CLEAR })
}
