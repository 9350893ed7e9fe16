//! `sluice migrate …` on the command line.

use clap::{Args, Subcommand};

use super::{Outcome, Place, check, definitions, migrate_storage};
use crate::complete;
use crate::connection::{ClusterArgs, checked};
use crate::deployed::NAMESPACE;
use crate::print::{line, print, say};

/// Something is not supported, has to be done first, or is left to do: not a failure, but not the end either.
const NOT_CLEAR: u8 = 3;

/// How many refusals are reported per kind: they often have the same cause.
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

/// `sluice migrate check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The namespace of the manager; --namespace names it, too [default: kueue-system]
    #[arg(long, value_name = "NAME", add = complete::namespaces())]
    pub manager_namespace: Option<String>,
}

impl CheckArgs {
    /// The namespace of the manager.
    fn namespace(&self) -> &str {
        let given = self.manager_namespace.as_deref().or(self.cluster.namespace.as_deref());
        given.unwrap_or(NAMESPACE)
    }
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
            let namespace = checked(args.namespace())?.to_owned();
            let client = args.cluster.connect().await?.client;
            let report = check(&Place { client, namespace }).await?;
            print(&report.to_string())?;
            Ok(if report.is_clear() { 0 } else { NOT_CLEAR })
        }
        MigrateCommand::Storage(args) => storage(&args).await,
    }
}

async fn storage(args: &StorageArgs) -> anyhow::Result<u8> {
    let client = args.cluster.connect().await?.client;
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
                    say(&format!("refused: {failure}"));
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
