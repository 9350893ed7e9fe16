//! The sources of lines: the manager's API, or files.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::Value;
use sluice_api::journal::{Line, MOST_LINE};
use sluice_client::error_chain::message;
use sluice_sim::Kind;

use super::open::{FileEnds, OfFiles, Open};
use super::running;
use crate::cluster::{self, collection, selector};
use crate::print::say;

/// After this time the manager's latest lines are readable.
const FLUSHED: Duration = Duration::from_secs(2);
/// Lines this recent are read once more then.
const RECENT: SignedDuration = SignedDuration::from_mins(1);
/// How often reading restarts when another replica with its own disk answers.
const ATTEMPTS: usize = 5;

/// Receives lines.
pub(crate) trait Sink: Send {
    /// Everything so far is given once more: another replica answers now.
    fn begin_again(&mut self);
    /// Takes a line.
    fn take(&mut self, line: Line);
}

/// What was read besides lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Online {
    /// The first line of the journal that answered: it knows nothing of before.
    pub oldest: Option<Timestamp>,
    /// The number of reservations without an end that no Workload holds any more.
    pub without_end: usize,
}

impl Online {
    /// Says what is not known.
    pub(crate) fn warn(&self, since: Timestamp) {
        warn_of_beginning(self.oldest, since);
        if self.without_end > 0 {
            say(&format!(
                "warning: {} reservations have no end in the journal; they count up to the last line about them",
                self.without_end
            ));
        }
    }
}

impl FileEnds {
    /// All of them.
    pub(crate) fn lines(self) -> impl Iterator<Item = Line> {
        self.before.into_iter().chain(self.at_last)
    }

    /// Says what is not known of the time until then.
    pub(crate) fn warn(&self, until: Timestamp) {
        self.warn_of_lost();
        let open = self.at_last.len();
        if let Some(last) = self.last.filter(|last| *last < until && open > 0) {
            say(&format!(
                "warning: {open} reservations have no end in these files; they count up to their last line, at {last}"
            ));
        }
    }

    /// Says how many ends are lost.
    pub(crate) fn warn_of_lost(&self) {
        if !self.before.is_empty() {
            say(&format!(
                "warning: {} reservations have no end in these files; they count up to the last line about them",
                self.before.len()
            ));
        }
    }
}

/// Says that the journal begins later than what is asked for, if it does.
pub(crate) fn warn_of_beginning(oldest: Option<Timestamp>, since: Timestamp) {
    if let Some(oldest) = oldest.filter(|oldest| *oldest > since) {
        say(&format!("warning: this journal begins at {oldest}: what ended before is not in it"));
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
    // Users who may not read the journal get only this error, not those of the other lists.
    let journal = journal(queue)?;
    page(client, &format!("{journal}?limit=1&since={}", encoded(&now.to_string()))).await?;
    let workloads = collection(Kind::Workload, None);
    let workloads = cluster::list(client, &workloads, "", |object| running::workload(object, now)).await?;
    let queues = collection(Kind::ClusterQueue, None);
    let queues = cluster::list(client, &queues, "", |object| running::cluster_queue(object, now)).await?;
    let ask = async |uri: String| page(client, &uri).await;
    let wait = async || tokio::time::sleep(FLUSHED).await;
    let (oldest, ends) = reported(&ask, &wait, (&journal, since, now), &workloads, sink).await?;
    let without_end = ends.len();
    for line in workloads.into_iter().chain(ends).chain(queues) {
        sink.take(line);
    }
    Ok(Online { oldest, without_end })
}

/// Gives what the manager has written down, and reports the time of its first line and the ends of what has no end in it.
async fn reported(
    ask: &impl AsyncFn(String) -> anyhow::Result<Value>,
    wait: &impl AsyncFn(),
    (journal, since, now): (&str, Timestamp, Timestamp),
    workloads: &[Line],
    sink: &mut dyn Sink,
) -> anyhow::Result<(Option<Timestamp>, Vec<Line>)> {
    let recent = now.checked_sub(RECENT).map_or(since, |recent| recent.max(since));
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut open = Open::default();
        for line in workloads {
            open.note(line);
        }
        let mut take = |line: Line| {
            open.note(&line);
            sink.take(line);
        };
        let mut read = pages(ask, journal, since, &mut take).await;
        if read.is_ok() && !open.ends(now).is_empty() {
            // The end of a recent reservation may not be written yet, and would count as lost.
            wait().await;
            let mut take = |line: Line| {
                // Lines about Workloads that come twice count once; how many are missing would count twice.
                if matches!(line, Line::Workload(_)) {
                    open.note(&line);
                    sink.take(line);
                }
            };
            if let Err(error) = pages(ask, journal, recent, &mut take).await {
                read = Err(error);
            }
        }
        match read {
            Err(error) if attempt < ATTEMPTS && is_another_replica(&error) => sink.begin_again(),
            read => return Ok((read?, open.ends(now))),
        }
    }
}

/// Where the journal of a ClusterQueue is, or of all.
fn journal(queue: Option<&str>) -> anyhow::Result<String> {
    let queues = "/apis/visibility.sluice.dev/v1alpha1/clusterqueues";
    // The name for all queues; no queue can have it.
    let all = || Ok(format!("{queues}/-"));
    Ok(queue.map_or_else(all, |queue| cluster::object(queues, queue))? + "/journal")
}

async fn page(client: &Client, uri: &str) -> anyhow::Result<Value> {
    cluster::get(client, uri).await.map_err(advised)
}

/// Gives every line that the manager has, and the time of the first line of its journal.
async fn pages(
    ask: &impl AsyncFn(String) -> anyhow::Result<Value>,
    journal: &str,
    since: Timestamp,
    take: &mut (dyn FnMut(Line) + Send),
) -> anyhow::Result<Option<Timestamp>> {
    let (mut oldest, mut token) = (None, String::new());
    loop {
        let more = if token.is_empty() { String::new() } else { selector("continue", Some(&token)) };
        let uri = format!("{journal}?since={}{more}", encoded(&since.to_string()));
        let mut page = ask(uri).await?;
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

/// Adds advice for a missing journal.
fn advised(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if [404, 503].contains(&status.code) => anyhow::anyhow!(
            "the manager has no journal, or its visibility API is not served ({}): set journal.directory in its configuration",
            message(status)
        ),
        _ => error,
    }
}

/// Reads files, and the files of folders. Gives the ends of reservations that have none in them.
pub(crate) fn files(paths: &[PathBuf], take: &mut dyn FnMut(Line)) -> anyhow::Result<FileEnds> {
    let mut noted = OfFiles::default();
    for path in paths {
        let found = if path.is_dir() { folder(path)? } else { vec![path.clone()] };
        if found.is_empty() {
            bail!("{} has no files of a journal (*.jsonl)", path.display());
        }
        for file in found {
            let name = file.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
            let (process, number) = name.rsplit_once('.').unwrap_or((&*name, ""));
            // If a name exists twice in the store, its number is followed by the size.
            let number = number.split('-').next().unwrap_or_default();
            let is_first = number.parse::<u64>() == Ok(0);
            let mut take = |line: Line| {
                noted.note(process, is_first, &line);
                take(line);
            };
            read(&file, &mut take).with_context(|| format!("reading {}", file.display()))?;
        }
    }
    Ok(noted.ends())
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

/// Reads one file. Invalid lines are skipped, such as the last line of a killed process.
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    #[tokio::test]
    async fn a_line_of_a_later_version_is_left_out() {
        let known = line("01:00", "u", "\"what\":\"QuotaReserved\"");
        let unheard = line("02:00", "u", "\"what\":\"Unheard\"");
        let other = "{\"at\":\"2026-01-01T03:00:00Z\",\"unheard\":{}}";
        let page = format!("{{\"metadata\":{{}},\"lines\":[{known},{unheard},{other}]}}");
        let ask = async |_: String| -> anyhow::Result<Value> { Ok(serde_json::from_str(&page)?) };
        let mut taken = Vec::new();
        pages(&ask, "/journal", Timestamp::UNIX_EPOCH, &mut |line| taken.push(line)).await.unwrap();
        assert_eq!(taken.len(), 1, "{taken:?}");
    }

    const UNTIL: &str = "2026-01-03T00:00:00Z";

    fn line(time: &str, uid: &str, event: &str) -> String {
        format!(
            "{{\"at\":\"2026-01-01T{time}:00Z\",\"namespace\":\"a\",\"workload\":\"{uid}\",\"uid\":\"{uid}\",{event},\
             \"usage\":{{\"spot\":{{\"cpu\":\"2\"}}}}}}\n"
        )
    }

    /// Reserved at that time.
    fn reserved(time: &str, uid: &str) -> String {
        line(time, uid, "\"what\":\"QuotaReserved\"")
    }

    fn released(time: &str, uid: &str, since: &str) -> String {
        let since = format!("\"since\":\"2026-01-01T{since}:00Z\"");
        line(time, uid, &format!("\"what\":\"Released\",{since},\"outcome\":\"Finished\""))
    }

    fn holding(time: &str, uid: &str, since: &str) -> String {
        line(time, uid, &format!("\"what\":\"Holding\",\"since\":\"2026-01-01T{since}:00Z\""))
    }

    /// Hours of 2 processors that these files say, and how many reservations end at the last line, and before.
    fn used(files: &[(&str, String)]) -> (i128, usize, usize) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let mut collector = Collector::default();
        let ends = super::files(&[folder.path().to_owned()], &mut |line| collector.take(line)).unwrap();
        let (at_last, before) = (ends.at_last.len(), ends.before.len());
        ends.lines().for_each(|line| collector.take(line));
        let ledger = collector.ledger(Timestamp::UNIX_EPOCH, UNTIL.parse().unwrap());
        let total: i128 = ledger.accounts.values().map(|used| used.total).sum();
        (total / (2 * 1000 * 3_600_000), at_last, before)
    }

    #[test]
    fn what_has_no_end_in_files_counts_up_to_their_last_line() {
        let other = reserved("02:00", "over") + &released("03:00", "over", "02:00");
        let text = reserved("01:00", "runs") + &other;
        assert_eq!(used(&[("a.00000000.jsonl", text)]), (2 + 1, 1, 0));
    }

    #[test]
    fn what_a_later_manager_did_not_find_ended_at_the_last_line_about_it() {
        let before = reserved("01:00", "lost") + &line("02:00", "lost", "\"what\":\"Admitted\"");
        let before = before + &reserved("01:00", "runs");
        let later = |times: [&str; 2]| holding(times[0], "runs", "01:00") + &reserved(times[1], "new");
        let first = ("a.00000000.jsonl", before);
        // One hour, three hours, and none.
        let second = ("b.00000000.jsonl", later(["03:00", "04:00"]));
        assert_eq!(used(&[first.clone(), second]), (1 + 3, 2, 1));
        // Without its beginning or its end, or with missing lines, it proves nothing.
        let lost = "{\"at\":\"2026-01-01T03:00:00Z\",\"lost\":2}\n";
        for (name, text) in [
            ("b.00000001.jsonl", later(["03:00", "04:00"])),
            ("b.00000000.jsonl", later(["04:00", "04:00"])),
            ("b.00000000.jsonl", later(["03:00", "04:00"]) + lost),
        ] {
            assert_eq!(used(&[first.clone(), (name, text)]), (3 + 3, 3, 0), "{name}");
        }
    }

    impl Sink for Vec<Line> {
        fn begin_again(&mut self) {
            self.clear();
        }

        fn take(&mut self, line: Line) {
            self.push(line);
        }
    }

    /// A reservation that ended between the listing and the pages, and whose end was not written then.
    #[tokio::test]
    async fn an_end_that_is_not_written_out_yet_is_waited_for_once() {
        let lines = |text: String| -> Vec<Value> {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let (now, since) = ("2026-01-01T12:00:00Z".parse().unwrap(), Timestamp::UNIX_EPOCH);
        for (is_written, ends) in [(true, 0), (false, 1)] {
            let (asked, waited) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let ask = async |uri: String| {
                let text = match asked.fetch_add(1, Ordering::Relaxed) {
                    0 => reserved("01:00", "just"),
                    _ if is_written => released("11:59", "just", "01:00"),
                    _ => String::new(),
                };
                let of = if text.contains("Reserved") { "1970-01-01" } else { "2026-01-01T11%3A59%3A00Z" };
                assert!(uri.starts_with(&format!("/journal?since={of}")), "{uri}");
                anyhow::Ok(serde_json::json!({"lines": lines(text), "metadata": {}}))
            };
            let wait = async || {
                waited.fetch_add(1, Ordering::Relaxed);
            };
            let mut taken: Vec<Line> = Vec::new();
            let reported = reported(&ask, &wait, ("/journal", since, now), &[], &mut taken).await.unwrap();
            assert_eq!((reported.1.len(), waited.into_inner(), asked.into_inner()), (ends, 1, 2));
            assert_eq!(taken.len(), 2 - ends);
        }
    }

    #[tokio::test]
    async fn where_every_end_is_known_there_is_nothing_to_wait_for() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let running: Line = serde_json::from_str(&holding("12:00", "runs", "01:00")).unwrap();
        let ask = async |_: String| {
            let line: Value = serde_json::from_str(&reserved("01:00", "runs")).unwrap();
            anyhow::Ok(serde_json::json!({"lines": [line], "metadata": {}}))
        };
        let waited = AtomicUsize::new(0);
        let wait = async || {
            waited.fetch_add(1, Ordering::Relaxed);
        };
        let asked = ("/journal", Timestamp::UNIX_EPOCH, now);
        let reported = reported(&ask, &wait, asked, &[running], &mut Vec::new()).await.unwrap();
        assert_eq!((reported.1, waited.into_inner()), (vec![], 0));
    }
}
