//! Where lines come from: the manager's API, or files.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use sluice_api::journal::{Line, MOST_LINE};
use sluice_sim::Kind;

use super::running;
use crate::cluster::{self, collection, selector};

/// How often it is begun anew where another replica answers that has a disk of its own.
const ATTEMPTS: usize = 5;

/// Reads what the manager has, and what holds quota now.
pub(crate) async fn online(
    client: &Client,
    queue: Option<&str>,
    since: Timestamp,
    now: Timestamp,
    take: &mut (dyn FnMut(Line) + Send),
) -> anyhow::Result<()> {
    let mut attempt = 0;
    let lines = loop {
        attempt += 1;
        match pages(client, queue, since).await {
            Err(error) if attempt < ATTEMPTS && is_another_replica(&error) => {}
            lines => break lines?,
        }
    };
    let workloads = cluster::list(client, &collection(Kind::Workload, None), "").await?;
    let queues = cluster::list(client, &collection(Kind::ClusterQueue, None), "").await?;
    let workloads = workloads.into_iter().filter_map(|object| running::workload(object, now));
    let queues = queues.into_iter().filter_map(|object| running::cluster_queue(object, now));
    for line in lines.into_iter().chain(workloads).chain(queues) {
        take(line);
    }
    Ok(())
}

async fn pages(client: &Client, queue: Option<&str>, since: Timestamp) -> anyhow::Result<Vec<Line>> {
    let queues = "/apis/visibility.sluice.dev/v1alpha1/clusterqueues";
    // All queues are the one that no queue can be called.
    let all = || Ok(format!("{queues}/-"));
    let path = queue.map_or_else(all, |queue| cluster::object(queues, queue))? + "/journal";
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let more = if token.is_empty() { String::new() } else { selector("continue", Some(&token)) };
        let uri = format!("{path}?since={}{more}", encoded(&since.to_string()));
        let request = http::Request::get(uri).body(Vec::new()).context("making a request")?;
        let mut page = cluster::ask(client, request).await.map_err(advised)?;
        let Value::Array(lines) = page["lines"].take() else { bail!("the answer has no lines") };
        // A line of a later version is left out.
        all.extend(lines.into_iter().filter_map(|line| serde_json::from_value::<Line>(line).ok()));
        match page["metadata"]["continue"].as_str() {
            None | Some("") => return Ok(all),
            Some(next) if next == token => bail!("the manager gives the same page again"),
            Some(next) => next.clone_into(&mut token),
        }
    }
}

fn encoded(text: &str) -> String {
    text.replace(':', "%3A").replace('+', "%2B")
}

/// Whether a page could not be continued because another replica answered.
fn is_another_replica(error: &anyhow::Error) -> bool {
    let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>() else { return false };
    status.code == 400 && status.message.contains("continue")
}

/// What to do where there is no journal.
fn advised(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if [404, 503].contains(&status.code) => anyhow::anyhow!(
            "the manager has no journal, or its visibility API is not served ({}): set journal.directory in its configuration",
            status.message
        ),
        _ => error,
    }
}

/// Reads files, and the files of folders.
pub(crate) fn files(paths: &[PathBuf], take: &mut dyn FnMut(Line)) -> anyhow::Result<()> {
    for path in paths {
        let found = if path.is_dir() { folder(path)? } else { vec![path.clone()] };
        if found.is_empty() {
            bail!("{} has no files of a journal (*.jsonl)", path.display());
        }
        for file in found {
            read(&file, take).with_context(|| format!("reading {}", file.display()))?;
        }
    }
    Ok(())
}

fn folder(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?.path();
        if entry.extension().is_some_and(|extension| extension == "jsonl") {
            found.push(entry);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads one file. What is no line of a journal is left out, as the last one of a process that was killed.
fn read(path: &Path, take: &mut dyn FnMut(Line)) -> anyhow::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut text = Vec::new();
    loop {
        text.clear();
        let most = u64::try_from(MOST_LINE).unwrap_or(u64::MAX);
        if (&mut file).take(most).read_until(b'\n', &mut text)? == 0 {
            return Ok(());
        }
        if let Ok(line) = serde_json::from_slice(&text) {
            take(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::journal::ledger::Collector;

    #[test]
    fn files_and_folders_are_read_and_what_is_broken_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let line = |hour: &str, event: &str| {
            format!(
                "{{\"at\":\"2026-01-01T{hour}:00:00Z\",\"namespace\":\"a\",\"workload\":\"w\",\"uid\":\"u\",{event},\
                 \"usage\":{{\"spot\":{{\"cpu\":\"2\"}}}}}}\n"
            )
        };
        let begun = line("01", "\"what\":\"QuotaReserved\"") + "not json\n";
        let ended =
            line("03", "\"what\":\"Released\",\"since\":\"2026-01-01T01:00:00Z\",\"outcome\":\"Failed\"");
        std::fs::write(folder.path().join("a.00000000.jsonl"), begun).unwrap();
        std::fs::write(folder.path().join("b.00000000.jsonl"), ended + "{\"at\":").unwrap();
        std::fs::write(folder.path().join("x.id"), "").unwrap();
        let mut collector = Collector::default();
        files(&[folder.path().to_owned()], &mut |line| collector.take(line)).unwrap();
        let until = "2026-01-02T00:00:00Z".parse().unwrap();
        let ledger = collector.ledger(Timestamp::UNIX_EPOCH, until);
        let used: Vec<_> = ledger.accounts.values().collect();
        assert_eq!((used.len(), used[0].total, used[0].failed), (1, 2 * 1000 * 7_200_000, used[0].total));
        let empty = tempfile::tempdir().unwrap();
        assert!(files(&[empty.path().to_owned()], &mut |_| ()).is_err());
        assert!(files(&[empty.path().join("none")], &mut |_| ()).is_err());
    }
}
