//! `kubectl kueue list` (reference 08, 8.1).

mod pods;
mod queues;
mod workloads;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use sluice_engine::Kind;
use sluice_sim::table::columns;

use crate::client::Person;
use crate::cluster::{self, ClusterArgs, collection, selector};
use crate::print::{Documents, documents, print};

pub use pods::Pods;
pub use queues::{ClusterQueues, Flavors, LocalQueues};
pub use workloads::Workloads;

/// What every list takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Listing {
    /// Only those with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Only those with these fields
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    /// Print the objects instead of a table
    #[arg(long, short, value_enum)]
    pub output: Option<Documents>,
    /// No headings
    #[arg(long)]
    pub no_headers: bool,
    /// Where the cluster is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// `kubectl kueue list`.
#[derive(Clone, Debug, Subcommand)]
pub enum ListCommand {
    /// ClusterQueues
    #[command(aliases = ["clusterqueues", "cq"])]
    Clusterqueue(ClusterQueues),
    /// LocalQueues
    #[command(aliases = ["localqueues", "lq"])]
    Localqueue(LocalQueues),
    /// ResourceFlavors
    #[command(aliases = ["resourceflavors", "rf"])]
    Resourceflavor(Flavors),
    /// Workloads
    #[command(aliases = ["workloads", "wl"])]
    Workload(Workloads),
    /// The pods of a job
    #[command(aliases = ["pod", "po"])]
    Pods(Pods),
}

impl ListCommand {
    /// Does it.
    pub async fn run(self) -> anyhow::Result<u8> {
        match self {
            Self::Clusterqueue(args) => args.run().await,
            Self::Localqueue(args) => args.run().await,
            Self::Resourceflavor(args) => args.run().await,
            Self::Workload(args) => args.run().await,
            Self::Pods(args) => args.run().await,
        }
    }
}

/// A table's headings, and how an object becomes a row.
struct Table<'a> {
    headings: Vec<&'static str>,
    row: &'a dyn Fn(&Value, Timestamp) -> Vec<String>,
}

impl Listing {
    /// The objects of a kind that the selectors choose.
    async fn fetch(&self, person: &Person, kind: Kind, all_namespaces: bool) -> anyhow::Result<Vec<Value>> {
        let place = collection(kind, (!all_namespaces).then_some(person.namespace.as_str()));
        let query = selector("labelSelector", self.selector.as_deref())
            + &selector("fieldSelector", self.field_selector.as_deref());
        cluster::list(&person.client, &place, &query).await
    }

    /// Prints objects as was asked for.
    fn show(&self, kind: Kind, found: Vec<Value>, table: &Table<'_>) -> anyhow::Result<u8> {
        if let Some(how) = self.output {
            print(&documents(kind, found, false, how)?)?;
            return Ok(0);
        }
        if found.is_empty() {
            eprintln!("No resources found");
            return Ok(0);
        }
        let now = Timestamp::now();
        let rows: Vec<_> = found.iter().map(|object| (table.row)(object, now)).collect();
        let text = columns(&table.headings, &rows);
        let text = if self.no_headers { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text };
        print(text)?;
        Ok(0)
    }
}

/// A text of a document, empty where there is none.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number of a status, 0 where there is none yet.
fn number(value: &Value) -> String {
    value.as_i64().unwrap_or(0).to_string()
}

/// Whether a condition is true.
fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

/// When a condition became what it is.
fn since(object: &Value, condition: &str) -> Option<Timestamp> {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == condition)?;
    found["lastTransitionTime"].as_str()?.parse().ok()
}

/// A document, or nothing where the server has none or says no.
async fn maybe(client: &Client, uri: String) -> Option<Value> {
    let request = http::Request::get(uri).body(Vec::new()).ok()?;
    client.request(request).await.ok()
}
