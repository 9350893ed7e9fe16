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

use super::open::Open;
use super::running;
use crate::cluster::{self, collection, selector};

/// How often it is begun anew where another replica answers that has a disk of its own.
const ATTEMPTS: usize = 5;

/// What lines are given to.
pub(crate) trait Sink: Send {
    /// Everything so far is given once more: another replica answers now.
    fn begin_again(&mut self);
    /// Takes a line.
    fn take(&mut self, line: Line);
}

/// What was read, besides lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Online {
    /// The first line of the journal that answered: it knows nothing of before.
    pub oldest: Option<Timestamp>,
    /// How many reservations have no end in it, though nothing holds them any more.
    pub without_end: usize,
}

impl Online {
    /// Says what is not known.
    pub(crate) fn warn(&self, since: Timestamp) {
        warn_of_beginning(self.oldest, since);
        if self.without_end > 0 {
            eprintln!(
                "warning: {} reservations have no end in the journal; they count up to the last line about them",
                self.without_end
            );
        }
    }
}

/// Says that the journal begins later than what is asked for, if it does.
pub(crate) fn warn_of_beginning(oldest: Option<Timestamp>, since: Timestamp) {
    if let Some(oldest) = oldest.filter(|oldest| *oldest > since) {
        eprintln!("warning: this journal begins at {oldest}: what ended before is not in it");
    }
}

/// Reads what the manager has, and what holds quota now. What holds quota is read first, so that no end comes between.
pub(crate) async fn online(
    client: &Client,
    queue: Option<&str>,
    since: Timestamp,
    now: Timestamp,
    sink: &mut dyn Sink,
) -> anyhow::Result<Online> {
    // Those who may not read the journal are told so, and not what else they may not read.
    let journal = journal(queue)?;
    page(client, &format!("{journal}?limit=1&since={}", encoded(&now.to_string()))).await?;
    let workloads = cluster::list(client, &collection(Kind::Workload, None), "").await?;
    let queues = cluster::list(client, &collection(Kind::ClusterQueue, None), "").await?;
    let workloads: Vec<Line> =
        workloads.into_iter().filter_map(|object| running::workload(object, now)).collect();
    let mut attempt = 0;
    let (oldest, mut open) = loop {
        attempt += 1;
        let mut open = Open::default();
        let mut take = |line: Line| {
            open.note(&line);
            sink.take(line);
        };
        match pages(client, &journal, since, &mut take).await {
            Err(error) if attempt < ATTEMPTS && is_another_replica(&error) => sink.begin_again(),
            read => break (read?, open),
        }
    };
    for line in &workloads {
        open.note(line);
    }
    let ends = open.ends(now);
    let without_end = ends.len();
    let queues = queues.into_iter().filter_map(|object| running::cluster_queue(object, now));
    for line in workloads.into_iter().chain(ends).chain(queues) {
        sink.take(line);
    }
    Ok(Online { oldest, without_end })
}

/// Where the journal of a ClusterQueue is, or of all.
fn journal(queue: Option<&str>) -> anyhow::Result<String> {
    let queues = "/apis/visibility.sluice.dev/v1alpha1/clusterqueues";
    // All queues are the one that no queue can be called.
    let all = || Ok(format!("{queues}/-"));
    Ok(queue.map_or_else(all, |queue| cluster::object(queues, queue))? + "/journal")
}

async fn page(client: &Client, uri: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(uri).body(Vec::new()).context("making a request")?;
    cluster::ask(client, request).await.map_err(advised)
}

/// Gives every line that the manager has, and the time of the first line of its journal.
async fn pages(
    client: &Client,
    journal: &str,
    since: Timestamp,
    take: &mut (dyn FnMut(Line) + Send),
) -> anyhow::Result<Option<Timestamp>> {
    let (mut oldest, mut token) = (None, String::new());
    loop {
        let more = if token.is_empty() { String::new() } else { selector("continue", Some(&token)) };
        let uri = format!("{journal}?since={}{more}", encoded(&since.to_string()));
        let mut page = page(client, &uri).await?;
        let Value::Array(lines) = page["lines"].take() else { bail!("the answer has no lines") };
        if token.is_empty() {
            oldest = page["metadata"]["oldest"].as_str().and_then(|text| text.parse().ok());
        }
        // A line of a later version is left out.
        lines.into_iter().filter_map(|line| serde_json::from_value(line).ok()).for_each(&mut *take);
        match page["metadata"]["continue"].as_str() {
            None | Some("") => return Ok(oldest),
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
