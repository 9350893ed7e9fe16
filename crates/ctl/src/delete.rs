//! `kubectl kueue delete` (docs/reference/08-tooling.md 8.1): of a Workload the *job* is deleted, or it would come back; the rest goes to kubectl.

use std::fmt::Write as _;
use std::io::BufRead as _;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_sim::Kind;

use crate::cluster::{ask, collection, list, object};
use crate::complete;
use crate::connection::ClusterArgs;
use crate::kubectl::{PassArgs, full_name, kubectl};
use crate::output::Format;
use crate::print::nothing_found;
use crate::write::{DryRun, WriteArgs};

/// `kubectl kueue delete workload`.
#[derive(Clone, Debug, Default, Args)]
pub struct DeleteWorkloadArgs {
    /// The Workloads
    #[arg(value_name = "NAME", add = complete::names(Kind::Workload))]
    pub names: Vec<String>,
    /// All Workloads of the namespace
    #[arg(long)]
    pub all: bool,
    /// Delete without asking
    #[arg(long, short)]
    pub yes: bool,
    /// How far it goes, and how it is reported.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// `kubectl kueue delete` of what kubectl deletes.
#[derive(Clone, Debug, Default, Args)]
pub struct DeleteArgs {
    /// Names, and flags of kubectl
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS", add = complete::names_of_resource())]
    pub rest: Vec<String>,
}

impl DeleteArgs {
    async fn run(self, kind: Kind, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        PassArgs { resource: kind.as_str().to_owned(), rest: self.rest }.run("delete", cluster).await
    }
}

/// `kubectl kueue delete`.
#[derive(Clone, Debug, Subcommand)]
pub enum DeleteCommand {
    /// Delete the jobs of Workloads; a Workload without a job is deleted itself
    #[command(visible_alias = "wl", aliases = ["workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload(DeleteWorkloadArgs),
    /// Run kubectl delete for ClusterQueues
    #[command(visible_alias = "cq", alias = "clusterqueues")]
    Clusterqueue(DeleteArgs),
    /// Run kubectl delete for LocalQueues
    #[command(visible_alias = "lq", aliases = ["localqueues", "queue", "queues"])]
    Localqueue(DeleteArgs),
    /// Run kubectl delete for ResourceFlavors
    #[command(visible_alias = "rf", aliases = ["resourceflavors", "flavor", "flavors"])]
    Resourceflavor(DeleteArgs),
    /// kubectl delete, for another kind of Kueue's API
    #[command(external_subcommand)]
    Other(Vec<String>),
}

impl DeleteCommand {
    /// Deletes.
    ///
    /// # Errors
    /// When the cluster or kubectl cannot be reached, or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        match self {
            Self::Workload(args) => args.run(cluster).await,
            Self::Clusterqueue(args) => args.run(Kind::ClusterQueue, cluster).await,
            Self::Localqueue(args) => args.run(Kind::LocalQueue, cluster).await,
            Self::Resourceflavor(args) => args.run(Kind::ResourceFlavor, cluster).await,
            Self::Other(words) => {
                let mut words = words.into_iter();
                let resource = words.next().context("expected a kind")?;
                PassArgs { resource, rest: words.collect() }.run("delete", cluster).await
            }
        }
    }
}

impl DeleteWorkloadArgs {
    async fn run(&self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        if self.names.is_empty() != self.all {
            bail!("name Workloads, or delete all of the namespace with --all");
        }
        let format = self.write.output.format()?;
        let person = cluster.connect().await?;
        let place = collection(Kind::Workload, Some(&person.namespace));
        let workloads = if self.all {
            list(&person.client, &place, "").await?
        } else {
            let mut found = Vec::new();
            for name in &self.names {
                let request =
                    http::Request::get(object(&place, name)?).body(Vec::new()).context("making a request")?;
                found.push(ask(&person.client, request).await?);
            }
            found
        };
        let targets: Vec<String> = workloads.iter().flat_map(targets).collect();
        if targets.is_empty() {
            nothing_found(Some(&person.namespace));
            return Ok(0);
        }
        let asks = !self.yes && self.write.dry_run == DryRun::None;
        if asks && !agreed(&workloads, &person.namespace)? {
            eprintln!("Nothing was deleted.");
            return Ok(0);
        }
        let cluster = ClusterArgs { namespace: Some(person.namespace), ..cluster.clone() };
        let mut stdout = Stdio::inherit();
        if format.as_ref().is_some_and(|format| *format != Format::Name) {
            // kubectl delete prints names only: what goes is printed before it goes.
            let code = kubectl(&self.shows(&cluster, &targets), Stdio::inherit()).await?;
            if code != 0 {
                return Ok(code);
            }
            stdout = Stdio::null();
        }
        kubectl(&self.deletes(&cluster, &targets, format.as_ref()), stdout).await
    }

    /// The words that have kubectl print what goes.
    fn shows(&self, cluster: &ClusterArgs, targets: &[String]) -> Vec<String> {
        let words = ["get".to_owned()].into_iter().chain(cluster.flags());
        words.chain(self.write.output.flags()).chain(targets.iter().cloned()).collect()
    }

    /// The words that have kubectl delete it.
    fn deletes(&self, cluster: &ClusterArgs, targets: &[String], format: Option<&Format>) -> Vec<String> {
        let dry = match self.write.dry_run {
            DryRun::None => None,
            DryRun::Client => Some("--dry-run=client".to_owned()),
            DryRun::Server => Some("--dry-run=server".to_owned()),
        };
        let name = (format == Some(&Format::Name)).then(|| "--output=name".to_owned());
        let words = ["delete".to_owned()].into_iter().chain(cluster.flags());
        words.chain(dry).chain(name).chain(targets.iter().cloned()).collect()
    }
}

/// What is deleted instead of a Workload: its owners, as kubectl names them; the Workload itself if it has none.
pub(crate) fn targets(workload: &Value) -> Vec<String> {
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
        return vec![format!("{}/{}", full_name(Kind::Workload), text(&workload["metadata"]["name"]))];
    }
    found
}

/// Lists on standard error what would go, and asks. Standard output is for what was deleted.
fn agreed(workloads: &[Value], namespace: &str) -> anyhow::Result<bool> {
    let mut text = format!("In namespace {namespace}:\n");
    for workload in workloads {
        let name = workload["metadata"]["name"].as_str().unwrap_or_default();
        // Writing into a String does not fail.
        let _ = writeln!(text, "  Workload {name}: deletes {}", targets(workload).join(", "));
    }
    eprint!("{text}Do you want to proceed (y/n)? ");
    let mut answer = String::new();
    if std::io::stdin().lock().read_line(&mut answer)? == 0 {
        eprintln!();
        bail!("no answer on standard input: --yes deletes without asking");
    }
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
        // Of a kind that the plugin does not know.
        let owner = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "a"});
        assert_eq!(
            targets(&json!({"metadata": {"name": "w", "ownerReferences": [owner]}})),
            ["workflow.v1alpha1.argoproj.io/a"]
        );
        assert_eq!(targets(&json!({"metadata": {"name": "w"}})), ["workloads.kueue.x-k8s.io/w"]);
    }

    #[test]
    fn flags_go_to_kubectl_and_documents_are_printed_before_their_objects_go() {
        use crate::output::OutputArgs;
        use clap::Parser as _;

        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            delete: DeleteWorkloadArgs,
        }
        let args = |line: &str| Line::parse_from(std::iter::once("x").chain(line.split(' '))).delete;
        let cluster = ClusterArgs { namespace: Some("n".to_owned()), ..ClusterArgs::default() };
        let targets = ["job.v1.batch/a".to_owned()];
        let named = args("w --dry-run server -o name");
        let format = named.write.output.format().unwrap();
        assert_eq!(
            named.deletes(&cluster, &targets, format.as_ref()).join(" "),
            "delete --namespace=n --dry-run=server --output=name job.v1.batch/a"
        );
        let shown = args("w -o jsonpath={.kind} --show-managed-fields");
        assert_eq!(
            shown.shows(&cluster, &targets).join(" "),
            "get --namespace=n --output=jsonpath={.kind} --show-managed-fields job.v1.batch/a"
        );
        let format = shown.write.output.format().unwrap();
        assert_eq!(
            shown.deletes(&cluster, &targets, format.as_ref()).join(" "),
            "delete --namespace=n job.v1.batch/a"
        );
        assert_eq!(args("w").write.output, OutputArgs::default());
    }
}
