//! The list of a job's pods, in the columns that the API server gives kubectl.

use anyhow::{Context as _, bail};
use clap::Args;
use kube::Client;
use serde_json::Value;
use sluice_sim::Kind;

use super::{Listing, text};
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
    /// The job: TYPE[.GROUP]/NAME, for example job/train or jobset.jobset.x-k8s.io/train
    #[arg(long = "for", value_name = "TYPE/NAME", add = complete::jobs())]
    pub of: String,
}

/// A job's kind: its names, its group, and the label that its pods carry with its name.
struct JobType {
    names: [&'static str; 2],
    group: &'static str,
    label: &'static str,
}

/// The kinds of jobs that are queued.
const TYPES: [JobType; 2] = [
    JobType { names: ["job", "jobs"], group: "batch", label: "batch.kubernetes.io/job-name" },
    JobType {
        names: ["jobset", "jobsets"],
        group: "jobset.x-k8s.io",
        label: "jobset.sigs.k8s.io/jobset-name",
    },
];

/// The selector of the pods of `TYPE[.GROUP]/NAME`.
fn pods_of(job: &str) -> anyhow::Result<String> {
    let Some((kind, name)) = job.split_once('/').filter(|(_, name)| !name.is_empty()) else {
        bail!("expected TYPE[.GROUP]/NAME, for example job/train, found {job}");
    };
    let kind = kind.to_ascii_lowercase();
    let (word, group) =
        kind.split_once('.').map_or((kind.as_str(), None), |(word, group)| (word, Some(group)));
    let found = TYPES.iter().find(|one| {
        // `jobs.v1.batch`, too, as kubectl understands it.
        let fits = |group: &str| {
            group == one.group || group.split_once('.').is_some_and(|(_, rest)| rest == one.group)
        };
        one.names.contains(&word) && group.is_none_or(fits)
    });
    let Some(found) = found else { bail!("expected job or jobset, found {kind}") };
    Ok(format!("{}={name}", found.label))
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
    cluster::pages(place, query, ask).await
}

impl Pods {
    /// Prints them.
    ///
    /// # Errors
    /// When `--for` names no job, or the cluster cannot be reached or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        let own = pods_of(&self.of)?;
        let selector_of = |listing: &Listing| match &listing.selector {
            Some(more) => format!("{own},{more}"),
            None => own.clone(),
        };
        let listing = Listing { selector: Some(selector_of(&self.listing)), ..self.listing };
        let printing = match listing.begin(cluster, Kind::Pod, self.all_namespaces, &[]).await? {
            Ok(printing) => printing,
            Err(code) => return Ok(code),
        };
        if let Some(format) = printing.format.as_ref().filter(|_| !printing.is_table()) {
            print(&listing.output.render(format, Kind::Pod, printing.fetch().await?, false)?)?;
            return Ok(0);
        }
        let query = selector("labelSelector", listing.selector.as_deref())
            + &selector("fieldSelector", listing.field_selector.as_deref());
        let place = collection(Kind::Pod, printing.namespace());
        let answers = tables(&printing.person.client, &place, &query).await?;
        let wide = printing.format == Some(Format::Wide);
        let (headings, rows) = table(&answers, self.all_namespaces, wide);
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        printing.show_rows(&headings, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_pods_of_a_job_carry_its_name() {
        for job in ["job/train", "Jobs/train", "job.batch/train", "jobs.v1.batch/train"] {
            assert_eq!(pods_of(job).unwrap(), "batch.kubernetes.io/job-name=train", "{job}");
        }
        for job in ["jobset/train", "jobset.jobset.x-k8s.io/train", "jobsets.v1alpha2.jobset.x-k8s.io/train"]
        {
            assert_eq!(pods_of(job).unwrap(), "jobset.sigs.k8s.io/jobset-name=train", "{job}");
        }
        for wrong in ["job", "job/", "pod/a", "job.jobset.x-k8s.io/a", "jobset.batch/a"] {
            assert!(pods_of(wrong).is_err(), "{wrong}");
        }
    }

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
