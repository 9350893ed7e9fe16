//! `kubectl kueue create` (docs/reference/08-tooling.md 8.1).

mod flavor;
mod quota;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use sluice_sim::Kind;

use crate::cluster::{FIELD_MANAGER, ask, collection, send};
use crate::complete;
use crate::connection::ClusterArgs;
use crate::write::{DryRun, WriteArgs};

pub use flavor::FlavorArgs;
pub use quota::QueueArgs;

/// What every creation takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Making {
    /// The name
    pub name: String,
    /// How far it goes, and how it is reported.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// `kubectl kueue create localqueue`.
#[derive(Clone, Debug, Args)]
pub struct LocalQueueArgs {
    /// Which.
    #[command(flatten)]
    pub making: Making,
    /// The ClusterQueue of the LocalQueue
    #[arg(long, short, value_name = "NAME", add = complete::names(Kind::ClusterQueue))]
    pub clusterqueue: String,
    /// Create the LocalQueue even if the ClusterQueue does not exist
    #[arg(long, short)]
    pub ignore_unknown_cq: bool,
}

/// `kubectl kueue create`.
#[derive(Clone, Debug, Subcommand)]
pub enum CreateCommand {
    /// Create a ClusterQueue
    #[command(visible_alias = "cq", alias = "clusterqueues")]
    Clusterqueue(QueueArgs),
    /// Create a LocalQueue
    #[command(visible_alias = "lq", aliases = ["localqueues", "queue", "queues"])]
    Localqueue(LocalQueueArgs),
    /// Create a ResourceFlavor
    #[command(visible_alias = "rf", aliases = ["resourceflavors", "flavor", "flavors"])]
    Resourceflavor(FlavorArgs),
}

impl CreateCommand {
    /// Creates it.
    ///
    /// # Errors
    /// When a flag is wrong, or the cluster cannot be reached or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        match self {
            Self::Clusterqueue(args) => {
                make(cluster, &args.making, Kind::ClusterQueue, args.spec()?, None).await
            }
            Self::Localqueue(args) => {
                let spec = json!({"clusterQueue": args.clusterqueue});
                let needed = (!args.ignore_unknown_cq).then_some(args.clusterqueue.as_str());
                make(cluster, &args.making, Kind::LocalQueue, spec, needed).await
            }
            Self::Resourceflavor(args) => {
                make(cluster, &args.making, Kind::ResourceFlavor, args.spec()?, None).await
            }
        }
    }
}

/// Creates an object. `queue` is a ClusterQueue that must be there.
async fn make(
    cluster: &ClusterArgs,
    making: &Making,
    kind: Kind,
    spec: Value,
    queue: Option<&str>,
) -> anyhow::Result<u8> {
    let write = &making.write;
    let format = write.format(kind)?;
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.as_str(),
        "metadata": {"name": making.name}, "spec": spec,
    });
    if write.dry_run == DryRun::Client && queue.is_none() {
        // Without a request no cluster is needed.
        if kind.namespaced() {
            object["metadata"]["namespace"] = json!(cluster.namespace()?);
        }
    } else {
        let person = cluster.connect().await?;
        if kind.namespaced() {
            object["metadata"]["namespace"] = json!(person.namespace);
        }
        if let Some(queue) = queue {
            known(&person.client, queue).await?;
        }
        if write.dry_run != DryRun::Client {
            let place = collection(kind, Some(&person.namespace));
            let uri = format!("{place}?fieldManager={FIELD_MANAGER}{}", write.query());
            object = send(&person.client, Method::POST, &uri, "application/json", &object).await?;
        }
    }
    write.report(format.as_ref(), kind, object, "created")?;
    Ok(0)
}

/// Fails if the ClusterQueue does not exist.
async fn known(client: &kube::Client, queue: &str) -> anyhow::Result<()> {
    let uri = crate::cluster::object(&collection(Kind::ClusterQueue, None), queue)?;
    let request = http::Request::get(uri).body(Vec::new()).context("making a request")?;
    let advice = "the ClusterQueue cannot be read (--ignore-unknown-cq creates the LocalQueue anyway)";
    ask(client, request).await.map(drop).context(advice)
}
