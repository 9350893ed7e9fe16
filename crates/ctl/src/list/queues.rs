//! Lists of ClusterQueues, LocalQueues and ResourceFlavors.

use clap::Args;
use serde_json::Value;
use sluice_engine::Kind;

use super::{Listing, Table, is_true, number, text};
use crate::print::age;

/// `kubectl kueue list clusterqueue`.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterQueues {
    /// What and how.
    #[command(flatten)]
    pub listing: Listing,
    /// Only those that are active, or only those that are not
    #[arg(long, value_name = "true|false")]
    pub active: Vec<bool>,
}

/// `kubectl kueue list localqueue`.
#[derive(Clone, Debug, Default, Args)]
pub struct LocalQueues {
    /// What and how.
    #[command(flatten)]
    pub listing: Listing,
    /// Of all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Only those of this ClusterQueue
    #[arg(long, short, value_name = "NAME")]
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
    pub async fn run(self) -> anyhow::Result<u8> {
        let person = self.listing.cluster.connect().await?;
        let mut found = self.listing.fetch(&person, Kind::ClusterQueue, true).await?;
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
        self.listing.show(Kind::ClusterQueue, found, &Table { headings, row: &row })
    }
}

impl LocalQueues {
    /// Prints them.
    pub async fn run(self) -> anyhow::Result<u8> {
        let person = self.listing.cluster.connect().await?;
        let mut found = self.listing.fetch(&person, Kind::LocalQueue, self.all_namespaces).await?;
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
        self.listing.show(Kind::LocalQueue, found, &Table { headings, row: &row })
    }
}

impl Flavors {
    /// Prints them.
    pub async fn run(self) -> anyhow::Result<u8> {
        let person = self.listing.cluster.connect().await?;
        let found = self.listing.fetch(&person, Kind::ResourceFlavor, true).await?;
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
        self.listing.show(Kind::ResourceFlavor, found, &Table { headings, row: &row })
    }
}
