//! `kubectl kueue stop` and `resume` (reference 08, 8.1): queues by their stop policy, Workloads by `spec.active`.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use sluice_engine::Kind;

use crate::cluster::{ClusterArgs, FIELD_MANAGER, collection, send, shown};
use crate::print::print;

/// Names an object.
#[derive(Clone, Debug, Args)]
pub struct One {
    /// The name
    pub name: String,
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Names a queue that is to stop.
#[derive(Clone, Debug, Args)]
pub struct StopQueue {
    /// Which.
    #[command(flatten)]
    pub one: One,
    /// Let what runs go on (stopPolicy Hold); without it, it is evicted (HoldAndDrain)
    #[arg(long)]
    pub keep_already_running: bool,
}

/// `kubectl kueue stop`.
#[derive(Clone, Debug, Subcommand)]
pub enum StopCommand {
    /// Admit nothing more from any of its LocalQueues
    #[command(alias = "cq")]
    Clusterqueue(StopQueue),
    /// Admit nothing more from it
    #[command(alias = "lq")]
    Localqueue(StopQueue),
    /// Evict it, or keep it from being admitted
    #[command(alias = "wl")]
    Workload(One),
}

/// `kubectl kueue resume`.
#[derive(Clone, Debug, Subcommand)]
pub enum ResumeCommand {
    /// Admit again
    #[command(alias = "cq")]
    Clusterqueue(One),
    /// Admit again
    #[command(alias = "lq")]
    Localqueue(One),
    /// Queue it again
    #[command(alias = "wl")]
    Workload(One),
}

fn policy(args: &StopQueue) -> Value {
    let policy = if args.keep_already_running { "Hold" } else { "HoldAndDrain" };
    json!({"spec": {"stopPolicy": policy}})
}

impl StopCommand {
    /// What is changed, and to what.
    fn change(&self) -> (Kind, &One, Value) {
        match self {
            Self::Clusterqueue(args) => (Kind::ClusterQueue, &args.one, policy(args)),
            Self::Localqueue(args) => (Kind::LocalQueue, &args.one, policy(args)),
            Self::Workload(one) => (Kind::Workload, one, json!({"spec": {"active": false}})),
        }
    }

    /// Does it.
    pub async fn run(self) -> anyhow::Result<u8> {
        let (kind, one, change) = self.change();
        apply(kind, one, &change, "stopped").await
    }
}

impl ResumeCommand {
    fn change(&self) -> (Kind, &One, Value) {
        let goes = json!({"spec": {"stopPolicy": "None"}});
        match self {
            Self::Clusterqueue(one) => (Kind::ClusterQueue, one, goes),
            Self::Localqueue(one) => (Kind::LocalQueue, one, goes),
            Self::Workload(one) => (Kind::Workload, one, json!({"spec": {"active": true}})),
        }
    }

    /// Does it.
    pub async fn run(self) -> anyhow::Result<u8> {
        let (kind, one, change) = self.change();
        apply(kind, one, &change, "resumed").await
    }
}

async fn apply(kind: Kind, one: &One, change: &Value, done: &str) -> anyhow::Result<u8> {
    let person = one.cluster.connect().await?;
    let place = collection(kind, Some(&person.namespace));
    let uri = format!("{place}/{}?fieldManager={FIELD_MANAGER}", one.name);
    send(&person.client, Method::PATCH, &uri, "application/merge-patch+json", change).await?;
    print(&format!("{} {done}\n", shown(kind, &one.name)))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_drains_unless_what_runs_is_to_go_on() {
        let queue = |keep_already_running| StopQueue {
            one: One { name: "a".to_owned(), cluster: ClusterArgs::default() },
            keep_already_running,
        };
        let change = |keep| StopCommand::Clusterqueue(queue(keep)).change().2;
        assert_eq!(change(false)["spec"]["stopPolicy"], "HoldAndDrain");
        assert_eq!(change(true)["spec"]["stopPolicy"], "Hold");
    }
}
