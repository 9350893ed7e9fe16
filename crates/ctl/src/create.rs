//! `kubectl kueue create` (reference 08, 8.1).

mod flavor;
mod quota;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};
use sluice_engine::Kind;

use crate::cluster::{ClusterArgs, FIELD_MANAGER, ask, collection, send, shown};
use crate::print::{Documents, documents, print};

pub use flavor::FlavorArgs;
pub use quota::QueueArgs;

/// How far a creation goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// It is created
    #[default]
    None,
    /// It is only printed
    Client,
    /// The server checks it, and stores nothing
    Server,
}

/// What every creation takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Making {
    /// The name
    pub name: String,
    /// Create nothing: print it, or let the server check it
    #[arg(long, value_enum, default_value_t)]
    pub dry_run: DryRun,
    /// Print the object instead of what was done
    #[arg(long, short, value_enum)]
    pub output: Option<Documents>,
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// `kubectl kueue create localqueue`.
#[derive(Clone, Debug, Args)]
pub struct LocalQueueArgs {
    /// Which.
    #[command(flatten)]
    pub making: Making,
    /// The ClusterQueue that it feeds
    #[arg(long, short, value_name = "NAME")]
    pub clusterqueue: String,
    /// Create it although there is no such ClusterQueue
    #[arg(long, short)]
    pub ignore_unknown_cq: bool,
}

/// `kubectl kueue create`.
#[derive(Clone, Debug, Subcommand)]
pub enum CreateCommand {
    /// A ClusterQueue
    #[command(alias = "cq")]
    Clusterqueue(QueueArgs),
    /// A LocalQueue
    #[command(alias = "lq")]
    Localqueue(LocalQueueArgs),
    /// A ResourceFlavor
    #[command(alias = "rf")]
    Resourceflavor(FlavorArgs),
}

impl CreateCommand {
    /// Does it.
    pub async fn run(self) -> anyhow::Result<u8> {
        match self {
            Self::Clusterqueue(args) => make(&args.making, Kind::ClusterQueue, args.spec()?, None).await,
            Self::Localqueue(args) => {
                let spec = json!({"clusterQueue": args.clusterqueue});
                let needed = (!args.ignore_unknown_cq).then_some(args.clusterqueue.as_str());
                make(&args.making, Kind::LocalQueue, spec, needed).await
            }
            Self::Resourceflavor(args) => make(&args.making, Kind::ResourceFlavor, args.spec()?, None).await,
        }
    }
}

/// Creates an object. `queue` is a ClusterQueue that must be there.
async fn make(making: &Making, kind: Kind, spec: Value, queue: Option<&str>) -> anyhow::Result<u8> {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.as_str(),
        "metadata": {"name": making.name}, "spec": spec,
    });
    let mut done = "created";
    if making.dry_run == DryRun::Client && queue.is_none() {
        if let Some(namespace) = making.cluster.namespace.as_ref().filter(|_| kind.namespaced()) {
            object["metadata"]["namespace"] = json!(namespace);
        }
        done = "created (dry run)";
    } else {
        let person = making.cluster.connect().await?;
        if kind.namespaced() {
            object["metadata"]["namespace"] = json!(person.namespace);
        }
        if let Some(queue) = queue {
            known(&person.client, queue).await?;
        }
        let dry = match making.dry_run {
            DryRun::None => "",
            DryRun::Client => "client",
            DryRun::Server => "&dryRun=All",
        };
        if !dry.is_empty() {
            done = if dry == "client" { "created (dry run)" } else { "created (server dry run)" };
        }
        if dry != "client" {
            let place = collection(kind, Some(&person.namespace));
            let uri = format!("{place}?fieldManager={FIELD_MANAGER}{dry}");
            object = send(&person.client, Method::POST, &uri, "application/json", &object).await?;
        }
    }
    match making.output {
        Some(how) => print(&documents(kind, vec![object], true, how)?)?,
        None => print(&format!("{} {done}\n", shown(kind, &making.name)))?,
    }
    Ok(0)
}

/// Fails unless there is such a ClusterQueue.
async fn known(client: &kube::Client, queue: &str) -> anyhow::Result<()> {
    let uri = format!("{}/{queue}", collection(Kind::ClusterQueue, None));
    let request = http::Request::get(uri).body(Vec::new()).context("making a request")?;
    if let Err(error) = ask(client, request).await {
        bail!("ClusterQueue {queue}: {error:#} (--ignore-unknown-cq creates the LocalQueue nevertheless)");
    }
    Ok(())
}
