//! The list of a job's pods, with the columns that the API server gives kubectl.

use std::collections::BTreeSet;

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use serde_json::Value;
use sluice_client::list::without_clutter;
use sluice_sim::Kind;

use super::job_pods::{Choice, Named};
use super::{Listing, Printing, text};
use crate::cluster::{self, collection, selector};
use crate::complete;
use crate::connection::ClusterArgs;
use crate::output::Format;
use crate::print::print;

/// An answer in rows and columns instead of objects (meta.k8s.io/v1).
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// `kubectl kueue list pods`.
#[derive(Clone, Debug, Default, Args)]
pub struct Pods {
    /// What and how.
    #[command(flatten)]
    pub listing: Listing,
    /// In all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// The job: TYPE[.GROUP]/NAME, for example job/train or jobset.jobset.x-k8s.io/train; pod/NAME is a pod or a group of pods
    #[arg(long = "for", value_name = "TYPE/NAME", add = complete::jobs())]
    pub of: String,
}

/// Columns and rows; `all_namespaces` adds the namespace in front, `wide` the columns of low priority.
fn table(answers: &[Value], all_namespaces: bool, wide: bool) -> (Vec<String>, Vec<Vec<String>>) {
    let defined = answers.first().and_then(|answer| answer["columnDefinitions"].as_array());
    let shown: Vec<(usize, String)> = defined
        .into_iter()
        .flatten()
        .enumerate()
        .filter(|(_, column)| wide || column["priority"].as_i64().unwrap_or(0) == 0)
        .map(|(at, column)| (at, text(&column["name"]).to_uppercase()))
        .collect();
    let namespace = |value: String| all_namespaces.then_some(value).into_iter();
    let row = |row: &Value| {
        let cells = shown.iter().map(|(at, _)| text(&row["cells"][*at]));
        namespace(text(&row["object"]["metadata"]["namespace"])).chain(cells).collect()
    };
    let rows = answers.iter().filter_map(|answer| answer["rows"].as_array()).flatten().map(row).collect();
    let names = shown.iter().map(|(_, name)| name.clone());
    (namespace("NAMESPACE".to_owned()).chain(names).collect(), rows)
}

/// The pages of a collection as tables.
async fn tables(client: &Client, place: &str, query: &str) -> anyhow::Result<Vec<Value>> {
    let ask = async |uri: String| {
        let request = http::Request::get(uri).header("accept", AS_TABLE).body(Vec::new());
        cluster::ask(client, request.context("making a request")?).await
    };
    let mut all = Vec::new();
    let take = |mut page: Value| {
        for row in page["rows"].as_array_mut().into_iter().flatten() {
            row["object"] = without_clutter(row["object"].take());
        }
        all.push(page);
    };
    cluster::each_page(place, query, ask, take).await?;
    Ok(all)
}

impl Pods {
    /// Prints them.
    ///
    /// # Errors
    /// When `--for` names no job, or the cluster cannot be reached or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        let job = Named::parse(&self.of)?;
        let own = match job.choice() {
            Choice::Labelled(own) => Some(own),
            Choice::Said => None,
        };
        // kubectl cannot look at what pods say.
        let filters: &[&str] = if own.is_some() { &[] } else { &["--for"] };
        let parts: Vec<String> = own.iter().cloned().chain(self.listing.selector.clone()).collect();
        let selector_of_all = (!parts.is_empty()).then(|| parts.join(","));
        let listing = Listing { selector: selector_of_all, ..self.listing };
        let printing = match listing.begin(cluster, Kind::Pod, self.all_namespaces, filters).await? {
            Ok(printing) => printing,
            Err(code) => return Ok(code),
        };
        let job = job.with_made(&printing.person.client, printing.namespace()).await?;
        let workloads = if own.is_some() { BTreeSet::new() } else { workloads_of(&job, &printing).await? };
        let is_own = |pod: &Value| own.is_some() || job.has(pod, &workloads);
        if let Some(format) = printing.format.as_ref().filter(|_| !printing.is_table()) {
            let mut pods = printing.fetch(&[]).await?;
            pods.retain(is_own);
            print(&listing.output.render(format, Kind::Pod, pods, false)?)?;
            return Ok(0);
        }
        let query = selector("labelSelector", listing.selector.as_deref())
            + &selector("fieldSelector", listing.field_selector.as_deref());
        let place = collection(Kind::Pod, printing.namespace());
        let mut answers = tables(&printing.person.client, &place, &query).await?;
        for rows in answers.iter_mut().filter_map(|answer| answer["rows"].as_array_mut()) {
            rows.retain(|row| is_own(&row["object"]));
        }
        let wide = printing.format == Some(Format::Wide);
        let (headings, rows) = table(&answers, self.all_namespaces, wide);
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        printing.show_rows(&headings, &rows)
    }
}

/// The Workloads of a job, by namespace and name: its pods say which of them they are for.
async fn workloads_of(job: &Named, printing: &Printing<'_>) -> anyhow::Result<BTreeSet<(String, String)>> {
    let place = collection(Kind::Workload, printing.namespace());
    let named = |workload: Value| {
        let metadata = &workload["metadata"];
        job.owns(&workload).then(|| (text(&metadata["namespace"]), text(&metadata["name"])))
    };
    Ok(cluster::list(&printing.person.client, &place, "", named).await?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_for_wide_tables_are_shown_in_wide_tables_only() {
        let columns =
            json!([{"name": "Name"}, {"name": "IP", "priority": 1}, {"name": "Age", "priority": 0}]);
        let row = |name: &str| json!({"cells": [name, "10.0.0.1", "5m"], "object": {"metadata": {"namespace": "ns"}}});
        let pages = [json!({"columnDefinitions": columns, "rows": [row("a")]}), json!({"rows": [row("b")]})];
        let (headings, rows) = table(&pages, true, false);
        assert_eq!(headings, ["NAMESPACE", "NAME", "AGE"]);
        assert_eq!(rows, [["ns", "a", "5m"], ["ns", "b", "5m"]]);
        assert_eq!(table(&pages, false, false).0, ["NAME", "AGE"]);
        assert_eq!(table(&pages, false, true).0, ["NAME", "IP", "AGE"]);
    }
}
