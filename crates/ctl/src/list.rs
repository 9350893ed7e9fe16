//! `kubectl kueue list` (docs/reference/08-tooling.md 8.1).

mod job_pods;
mod pods;
mod queues;
mod resource_type;
mod workloads;

use anyhow::bail;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use sluice_client::error_chain::{Chain, message};
use sluice_sim::Kind;

use crate::cluster::{self, collection, selector};
use crate::connection::{ClusterArgs, Person};
use crate::kubectl::{full_name, kubectl};
use crate::output::{Format, OutputArgs};
use crate::print::{nothing_found, print, table};

pub use job_pods::Named;
pub use pods::Pods;
pub use queues::{ClusterQueues, Flavors, LocalQueues};
pub use workloads::Workloads;
#[cfg(test)]
pub(crate) use workloads::job as job_of;

/// What every list takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Listing {
    /// Only objects with these labels
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Only objects with these fields
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    /// Print the table without headings
    #[arg(long)]
    pub no_headers: bool,
    /// How to print the objects.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `kubectl kueue list`.
#[derive(Clone, Debug, Subcommand)]
pub enum ListCommand {
    /// List ClusterQueues
    #[command(visible_alias = "cq", aliases = ["clusterqueues"])]
    Clusterqueue(ClusterQueues),
    /// List LocalQueues
    #[command(visible_alias = "lq", aliases = ["localqueues", "queue", "queues"])]
    Localqueue(LocalQueues),
    /// List ResourceFlavors
    #[command(visible_alias = "rf", aliases = ["resourceflavors", "flavor", "flavors"])]
    Resourceflavor(Flavors),
    /// List Workloads
    #[command(visible_alias = "wl", aliases = ["workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload(Workloads),
    /// List the pods of a job
    #[command(visible_alias = "po", aliases = ["pod"])]
    Pods(Pods),
}

impl ListCommand {
    /// Lists.
    ///
    /// # Errors
    /// When a flag is wrong, or the cluster cannot be reached or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        match self {
            Self::Clusterqueue(args) => args.run(cluster).await,
            Self::Localqueue(args) => args.run(cluster).await,
            Self::Resourceflavor(args) => args.run(cluster).await,
            Self::Workload(args) => args.run(cluster).await,
            Self::Pods(args) => args.run(cluster).await,
        }
    }
}

/// The fields of objects that every table shows, or that select its rows.
const OF_EVERY_TABLE: &[&str] =
    &["/metadata/name", "/metadata/namespace", "/metadata/creationTimestamp", "/metadata/ownerReferences"];

/// A table's headings, and how an object becomes a row.
struct Table<'a> {
    headings: Vec<&'static str>,
    row: &'a dyn Fn(&Value, Timestamp) -> Vec<String>,
}

/// A list that this program prints, not kubectl.
struct Printing<'a> {
    listing: &'a Listing,
    format: Option<Format>,
    kind: Kind,
    /// In all namespaces.
    all: bool,
    person: Person,
}

impl Listing {
    /// Connects, unless kubectl prints the list: then it has, and this is its exit code. `filters` are the flags that were given
    /// which kubectl does not know.
    ///
    /// # Errors
    /// When the format is none, or kubectl would have to know a filter, or cannot be run.
    async fn begin(
        &self,
        cluster: &ClusterArgs,
        kind: Kind,
        all: bool,
        filters: &[&str],
    ) -> anyhow::Result<Result<Printing<'_>, u8>> {
        let format = self.output.format()?;
        if format == Some(Format::OfKubectl) {
            let words = self.words_of_kubectl(cluster, kind, all, filters)?;
            return Ok(Err(kubectl(&words)?));
        }
        let person = cluster.connect().await?;
        Ok(Ok(Printing { listing: self, format, kind, all, person }))
    }

    /// The words that have kubectl print the list.
    fn words_of_kubectl(
        &self,
        cluster: &ClusterArgs,
        kind: Kind,
        all: bool,
        filters: &[&str],
    ) -> anyhow::Result<Vec<String>> {
        if let Some(filter) = filters.first() {
            bail!(
                "{filter} cannot be combined with this output format, which only kubectl prints: use -o jsonpath=TEMPLATE, or -o json"
            );
        }
        let mut words = vec!["get".to_owned(), full_name(kind)];
        words.extend(cluster.flags());
        words.extend(self.output.flags());
        words.extend(self.selector.iter().map(|labels| format!("--selector={labels}")));
        words.extend(self.field_selector.iter().map(|fields| format!("--field-selector={fields}")));
        words.extend(all.then(|| "--all-namespaces".to_owned()).filter(|_| kind.namespaced()));
        words.extend(self.no_headers.then(|| "--no-headers".to_owned()));
        Ok(words)
    }
}

impl Printing<'_> {
    /// The namespace of the list, if it is only one.
    fn namespace(&self) -> Option<&str> {
        let one = self.kind.namespaced() && !self.all;
        one.then_some(self.person.namespace.as_str())
    }

    /// Whether a table is asked for.
    fn is_table(&self) -> bool {
        matches!(self.format, None | Some(Format::Wide))
    }

    /// The selected objects. For a table: their names, ages, owners and these fields; else everything that is printed.
    async fn fetch(&self, fields: &[&str]) -> anyhow::Result<Vec<Value>> {
        let query = selector("labelSelector", self.listing.selector.as_deref())
            + &selector("fieldSelector", self.listing.field_selector.as_deref());
        let fields = [OF_EVERY_TABLE, fields].concat();
        let keep = |mut object: Value| {
            if self.is_table() {
                return Some(cluster::only(object, &fields));
            }
            self.listing.output.drop_managed_fields(&mut object);
            Some(object)
        };
        cluster::list(&self.person.client, &collection(self.kind, self.namespace()), &query, keep).await
    }

    /// Prints objects as was asked for.
    fn show(&self, found: Vec<Value>, table: &Table<'_>) -> anyhow::Result<u8> {
        if let Some(format) = self.format.as_ref().filter(|_| !self.is_table()) {
            print(&self.listing.output.render(format, self.kind, found, false)?)?;
            return Ok(0);
        }
        let now = Timestamp::now();
        let rows: Vec<_> = found.iter().map(|object| (table.row)(object, now)).collect();
        self.show_rows(&table.headings, &rows)
    }

    fn show_rows(&self, headings: &[&str], rows: &[Vec<String>]) -> anyhow::Result<u8> {
        if rows.is_empty() {
            nothing_found(self.namespace());
            return Ok(0);
        }
        print(&table(headings, rows, !self.listing.no_headers))?;
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

/// The time of a condition's last transition.
fn since(object: &Value, condition: &str) -> Option<Timestamp> {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == condition)?;
    found["lastTransitionTime"].as_str()?.parse().ok()
}

/// A document, or nothing where the server has none or says no; or why that is not known.
async fn maybe(client: &Client, uri: &str) -> Result<Option<Value>, String> {
    match cluster::get(client, uri).await {
        Ok(found) => Ok(Some(found)),
        Err(error) => match cluster::refusal(&error) {
            Some(status) if [403, 404].contains(&status.code) => Ok(None),
            Some(status) => Err(message(status)),
            None => Err(Chain(error.as_ref()).to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_kubectl_prints_is_left_to_it_with_the_same_selectors() {
        let output = OutputArgs { output: Some("go-template={{.kind}}".to_owned()), ..OutputArgs::default() };
        let listing = Listing {
            selector: Some("a=b".to_owned()),
            field_selector: Some("metadata.name=x".to_owned()),
            no_headers: true,
            output,
        };
        let cluster = ClusterArgs { context: Some("c".to_owned()), ..ClusterArgs::default() };
        let words = |kind, all, filters: &[&str]| {
            listing.words_of_kubectl(&cluster, kind, all, filters).map(|words| words.join(" "))
        };
        assert_eq!(
            words(Kind::Workload, true, &[]).unwrap(),
            "get workloads.kueue.x-k8s.io --context=c --output=go-template={{.kind}} --selector=a=b \
             --field-selector=metadata.name=x --all-namespaces --no-headers"
        );
        assert!(!words(Kind::ClusterQueue, true, &[]).unwrap().contains("--all-namespaces"));
        let refused = words(Kind::Workload, false, &["--status"]).unwrap_err().to_string();
        assert!(refused.starts_with("--status cannot be combined with this output format"), "{refused}");
    }
}
