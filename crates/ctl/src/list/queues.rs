//! Lists of ClusterQueues, LocalQueues and ResourceFlavors.

use clap::Args;
use serde_json::Value;
use sluice_sim::Kind;

use super::{Listing, Table, is_true, number, text};
use crate::complete;
use crate::connection::ClusterArgs;
use crate::print::age;

/// `kubectl kueue list clusterqueue`.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterQueues {
    /// What and how.
    #[command(flatten)]
    pub listing: Listing,
    /// Only active ClusterQueues (true), or only inactive ones (false)
    #[arg(long, value_name = "true|false", value_delimiter = ',')]
    pub active: Vec<bool>,
}

/// `kubectl kueue list localqueue`.
#[derive(Clone, Debug, Default, Args)]
pub struct LocalQueues {
    /// What and how.
    #[command(flatten)]
    pub listing: Listing,
    /// In all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Only LocalQueues of this ClusterQueue
    #[arg(long, short, value_name = "NAME", add = complete::names(Kind::ClusterQueue))]
    pub clusterqueue: Option<String>,
}

/// `kubectl kueue list resourceflavor`.
#[derive(Clone, Debug, Default, Args)]
pub struct Flavors {
    /// What and how.
    #[command(flatten)]
    pub listing: Listing,
}

impl ClusterQueues {
    /// Prints them.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        let filters: &[_] = if self.active.is_empty() { &[] } else { &["--active"] };
        let printing = match self.listing.begin(cluster, Kind::ClusterQueue, true, filters).await? {
            Ok(printing) => printing,
            Err(code) => return Ok(code),
        };
        let mut found = printing.fetch(&["/spec/cohortName", "/status"]).await?;
        found.retain(|queue| self.active.is_empty() || self.active.contains(&is_true(queue, "Active")));
        let row = |queue: &Value, now| {
            let status = &queue["status"];
            vec![
                text(&queue["metadata"]["name"]),
                text(&queue["spec"]["cohortName"]),
                number(&status["pendingWorkloads"]),
                number(&status["admittedWorkloads"]),
                is_true(queue, "Active").to_string(),
                age(&queue["metadata"]["creationTimestamp"], now),
            ]
        };
        let headings = vec!["NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE", "AGE"];
        printing.show(found, &Table { headings, row: &row })
    }
}

impl LocalQueues {
    /// Prints them.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        let filters: &[_] = if self.clusterqueue.is_some() { &["--clusterqueue"] } else { &[] };
        let printing =
            match self.listing.begin(cluster, Kind::LocalQueue, self.all_namespaces, filters).await? {
                Ok(printing) => printing,
                Err(code) => return Ok(code),
            };
        let mut found = printing.fetch(&["/spec/clusterQueue", "/status"]).await?;
        if let Some(wanted) = &self.clusterqueue {
            found.retain(|queue| queue["spec"]["clusterQueue"] == **wanted);
        }
        let row = |queue: &Value, now| {
            let mut row = vec![
                text(&queue["metadata"]["name"]),
                text(&queue["spec"]["clusterQueue"]),
                number(&queue["status"]["pendingWorkloads"]),
                number(&queue["status"]["admittedWorkloads"]),
                age(&queue["metadata"]["creationTimestamp"], now),
            ];
            if self.all_namespaces {
                row.insert(0, text(&queue["metadata"]["namespace"]));
            }
            row
        };
        let mut headings = vec!["NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "AGE"];
        if self.all_namespaces {
            headings.insert(0, "NAMESPACE");
        }
        printing.show(found, &Table { headings, row: &row })
    }
}

impl Flavors {
    /// Prints them.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        let printing = match self.listing.begin(cluster, Kind::ResourceFlavor, true, &[]).await? {
            Ok(printing) => printing,
            Err(code) => return Ok(code),
        };
        let found = printing.fetch(&["/spec/nodeLabels"]).await?;
        let row = |flavor: &Value, now| {
            let labels = flavor["spec"]["nodeLabels"].as_object();
            let shown: Vec<_> =
                labels.into_iter().flatten().map(|(k, v)| format!("{k}={}", text(v))).collect();
            vec![
                text(&flavor["metadata"]["name"]),
                shown.join(", "),
                age(&flavor["metadata"]["creationTimestamp"], now),
            ]
        };
        let headings = vec!["NAME", "NODE LABELS", "AGE"];
        printing.show(found, &Table { headings, row: &row })
    }
}
