//! `kubectl kueue stop` and `resume` (docs/reference/08-tooling.md 8.1): queues by their stop policy, Workloads by `spec.active`.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use sluice_sim::Kind;

use crate::cluster::{FIELD_MANAGER, ask, collection, send};
use crate::complete;
use crate::connection::ClusterArgs;
use crate::write::{DryRun, WriteArgs};

/// Names a ClusterQueue.
#[derive(Clone, Debug, Args)]
pub struct OneClusterQueue {
    /// The name
    #[arg(add = complete::names(Kind::ClusterQueue))]
    pub name: String,
    /// How far it goes, and how it is reported.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// Names a LocalQueue.
#[derive(Clone, Debug, Args)]
pub struct OneLocalQueue {
    /// The name
    #[arg(add = complete::names(Kind::LocalQueue))]
    pub name: String,
    /// How far it goes, and how it is reported.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// Names a Workload.
#[derive(Clone, Debug, Args)]
pub struct OneWorkload {
    /// The name
    #[arg(add = complete::names(Kind::Workload))]
    pub name: String,
    /// How far it goes, and how it is reported.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// What becomes of admitted Workloads.
#[derive(Clone, Debug, Args)]
pub struct Keeping {
    /// Let admitted Workloads finish (stopPolicy Hold); without this flag they are evicted (HoldAndDrain)
    #[arg(long)]
    pub keep_already_running: bool,
}

/// `kubectl kueue stop`.
#[derive(Clone, Debug, Subcommand)]
pub enum StopCommand {
    /// Stop admission in a ClusterQueue, and evict its admitted Workloads
    #[command(visible_alias = "cq", alias = "clusterqueues")]
    Clusterqueue {
        /// Which.
        #[command(flatten)]
        one: OneClusterQueue,
        /// What becomes of admitted Workloads.
        #[command(flatten)]
        keeping: Keeping,
    },
    /// Stop admission in a LocalQueue, and evict its admitted Workloads
    #[command(visible_alias = "lq", aliases = ["localqueues", "queue", "queues"])]
    Localqueue {
        /// Which.
        #[command(flatten)]
        one: OneLocalQueue,
        /// What becomes of admitted Workloads.
        #[command(flatten)]
        keeping: Keeping,
    },
    /// Deactivate a Workload: it is evicted, and stays inactive
    #[command(visible_alias = "wl", aliases = ["workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload(OneWorkload),
}

/// `kubectl kueue resume`.
#[derive(Clone, Debug, Subcommand)]
pub enum ResumeCommand {
    /// Resume admission in a ClusterQueue
    #[command(visible_alias = "cq", alias = "clusterqueues")]
    Clusterqueue(OneClusterQueue),
    /// Resume admission in a LocalQueue
    #[command(visible_alias = "lq", aliases = ["localqueues", "queue", "queues"])]
    Localqueue(OneLocalQueue),
    /// Activate a Workload: it is queued again
    #[command(visible_alias = "wl", aliases = ["workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload(OneWorkload),
}

/// The field to change, and its value.
struct Change<'a> {
    kind: Kind,
    name: &'a str,
    write: &'a WriteArgs,
    /// The field of the spec.
    field: &'static str,
    value: Value,
}

fn policy(keeping: &Keeping) -> Value {
    json!(if keeping.keep_already_running { "Hold" } else { "HoldAndDrain" })
}

impl StopCommand {
    fn change(&self) -> Change<'_> {
        let (kind, name, write, field, value) = match self {
            Self::Clusterqueue { one, keeping } => {
                (Kind::ClusterQueue, &one.name, &one.write, "stopPolicy", policy(keeping))
            }
            Self::Localqueue { one, keeping } => {
                (Kind::LocalQueue, &one.name, &one.write, "stopPolicy", policy(keeping))
            }
            Self::Workload(one) => (Kind::Workload, &one.name, &one.write, "active", json!(false)),
        };
        Change { kind, name, write, field, value }
    }

    /// Stops it.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        self.change().apply(cluster, "stopped").await
    }
}

impl ResumeCommand {
    fn change(&self) -> Change<'_> {
        let (kind, name, write, field, value) = match self {
            Self::Clusterqueue(one) => {
                (Kind::ClusterQueue, &one.name, &one.write, "stopPolicy", json!("None"))
            }
            Self::Localqueue(one) => (Kind::LocalQueue, &one.name, &one.write, "stopPolicy", json!("None")),
            Self::Workload(one) => (Kind::Workload, &one.name, &one.write, "active", json!(true)),
        };
        Change { kind, name, write, field, value }
    }

    /// Resumes it.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        self.change().apply(cluster, "resumed").await
    }
}

impl Change<'_> {
    async fn apply(self, cluster: &ClusterArgs, done: &str) -> anyhow::Result<u8> {
        let format = self.write.format(self.kind)?;
        let person = cluster.connect().await?;
        let place = crate::cluster::object(&collection(self.kind, Some(&person.namespace)), self.name)?;
        let object = if self.write.dry_run == DryRun::Client {
            let request = http::Request::get(place).body(Vec::new()).context("making a request")?;
            let mut object = ask(&person.client, request).await?;
            object["spec"][self.field] = self.value;
            object
        } else {
            let uri = format!("{place}?fieldManager={FIELD_MANAGER}{}", self.write.query());
            let patch = json!({"spec": {self.field: self.value}});
            send(&person.client, Method::PATCH, &uri, "application/merge-patch+json", &patch).await?
        };
        self.write.report(format.as_ref(), self.kind, object, done)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admitted_workloads_are_evicted_unless_the_flag_keeps_them() {
        let one = || OneClusterQueue { name: "a".to_owned(), write: WriteArgs::default() };
        let change = |keep_already_running| {
            let stop = StopCommand::Clusterqueue { one: one(), keeping: Keeping { keep_already_running } };
            stop.change().value.clone()
        };
        assert_eq!((change(false), change(true)), (json!("HoldAndDrain"), json!("Hold")));
        assert_eq!(ResumeCommand::Clusterqueue(one()).change().value, "None");
    }
}
