//! `kubectl kueue delete` (reference 08, 8.1): of a Workload the *job* is deleted, or it would come back; the rest goes to kubectl.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_engine::Kind;

use crate::cluster::{ClusterArgs, ask, collection, list};
use crate::kubectl::{PassArgs, kubectl};
use crate::print::print;

/// `kubectl kueue delete workload`.
#[derive(Clone, Debug, Args)]
pub struct DeleteWorkloadArgs {
    /// The Workloads
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// All Workloads of the namespace
    #[arg(long)]
    pub all: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// `kubectl kueue delete`.
#[derive(Clone, Debug, Subcommand)]
pub enum DeleteCommand {
    /// The jobs of Workloads; Workloads without a job themselves
    #[command(visible_alias = "wl")]
    Workload(DeleteWorkloadArgs),
    /// kubectl delete, of another kind of Kueue's
    #[command(external_subcommand)]
    Other(Vec<String>),
}

impl DeleteCommand {
    /// Does it.
    pub async fn run(self) -> anyhow::Result<u8> {
        match self {
            Self::Workload(args) => args.run().await,
            Self::Other(words) => {
                let mut words = words.into_iter();
                let resource = words.next().context("expected a kind")?;
                PassArgs { resource, rest: words.collect() }.run("delete").await
            }
        }
    }
}

impl DeleteWorkloadArgs {
    async fn run(&self) -> anyhow::Result<u8> {
        if self.names.is_empty() != self.all {
            bail!("name Workloads, or --all of the namespace");
        }
        let person = self.cluster.connect().await?;
        let place = collection(Kind::Workload, Some(&person.namespace));
        let workloads = if self.all {
            list(&person.client, &place, "").await?
        } else {
            let mut found = Vec::new();
            for name in &self.names {
                let request = http::Request::get(format!("{place}/{name}"))
                    .body(Vec::new())
                    .context("making a request")?;
                found.push(ask(&person.client, request).await?);
            }
            found
        };
        let targets: Vec<String> = workloads.iter().flat_map(targets).collect();
        if targets.is_empty() {
            print("nothing to delete\n")?;
            return Ok(0);
        }
        if !self.yes && !agreed(&workloads, &person.namespace)? {
            print("nothing was deleted\n")?;
            return Ok(1);
        }
        let mut words = vec!["delete".to_owned(), format!("--namespace={}", person.namespace)];
        words.extend(self.cluster.flags().into_iter().filter(|flag| !flag.starts_with("--namespace=")));
        words.extend(targets);
        kubectl(&words).await
    }
}

/// What is deleted instead of a Workload: its owners, as kubectl names them; the Workload itself if it has none.
fn targets(workload: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owners = workload["metadata"]["ownerReferences"].as_array();
    let of = |owner: &Value| {
        let (version, kind) = (text(&owner["apiVersion"]), text(&owner["kind"]).to_ascii_lowercase());
        let kind = match version.split_once('/') {
            Some((group, version)) => format!("{kind}.{version}.{group}"),
            None => kind,
        };
        format!("{kind}/{}", text(&owner["name"]))
    };
    let found: Vec<_> = owners.into_iter().flatten().map(of).collect();
    if found.is_empty() {
        return vec![format!("workloads.kueue.x-k8s.io/{}", text(&workload["metadata"]["name"]))];
    }
    found
}

/// Lists what would go, and asks.
fn agreed(workloads: &[Value], namespace: &str) -> anyhow::Result<bool> {
    let mut text = format!("in namespace {namespace}:\n");
    for workload in workloads {
        let name = workload["metadata"]["name"].as_str().unwrap_or_default();
        // Writing into a String does not fail.
        let _ = writeln!(text, "  Workload {name}: deletes {}", targets(workload).join(", "));
    }
    print(&text)?;
    if !std::io::stdin().is_terminal() {
        bail!("nobody to ask: --yes deletes without asking");
    }
    print("Delete them (y/n)? ")?;
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_job_goes_and_a_workload_without_one_goes_itself() {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a"});
        assert_eq!(
            targets(&json!({"metadata": {"name": "w", "ownerReferences": [owner]}})),
            ["job.v1.batch/a"]
        );
        assert_eq!(targets(&json!({"metadata": {"name": "w"}})), ["workloads.kueue.x-k8s.io/w"]);
    }
}
