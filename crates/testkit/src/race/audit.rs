//! What the API server's audit log says of the Jobs of a race: when each was created, when its start arrived, and when its end was written.
//!
//! Both ends of the delay are times of the API server: the start counts when it is received, and so without its own write and without the watch of
//! who measures.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use tempfile::TempDir;

use super::load::Queue;

/// Only writes of Jobs, each once: creations and statuses when they are answered, starts when they are received.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: Metadata
  verbs: [create]
  resources: [{group: batch, resources: [jobs]}]
  omitStages: [RequestReceived, ResponseStarted]
- level: Metadata
  verbs: [patch]
  resources: [{group: batch, resources: [jobs/status]}]
  omitStages: [RequestReceived, ResponseStarted]
- level: Metadata
  verbs: [patch, update]
  resources: [{group: batch, resources: [jobs]}]
  omitStages: [ResponseStarted, ResponseComplete]
- level: None
";

/// The log of one API server, in a folder of its own.
pub(super) struct Audit(TempDir);

impl Audit {
    /// Writes the policy.
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("sluice-audit-").tempdir();
        let audit = Self(folder.context("making a folder for the audit log")?);
        std::fs::write(audit.path("policy.yaml"), POLICY).context("writing the audit policy")?;
        Ok(audit)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// What the API server is started with. All lines are in one file: beyond a size, the earlier ones would be in another.
    pub(super) fn flags(&self) -> [String; 3] {
        [
            "--audit-log-maxsize=100000".to_owned(),
            format!("--audit-policy-file={}", self.path("policy.yaml").display()),
            format!("--audit-log-path={}", self.path("log").display()),
        ]
    }

    /// From each end in a queue with waiting Jobs to the arrival of the next start there. Each Job starts once: see [`delays`].
    pub(super) fn delays(&self) -> Result<Vec<Duration>> {
        let log = std::fs::read_to_string(self.path("log")).context("reading the audit log")?;
        delays(&log)
    }
}

/// A line of the log, as far as it is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    object_ref: Object,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct Object {
    name: Option<String>,
    subresource: Option<String>,
}

/// What happened to a Job, in the order in which it is counted if two have one time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Made,
    Ended,
    Started,
}

impl Line {
    /// The event, with the Job's name.
    fn event(self) -> Option<(Timestamp, Event, String)> {
        let event = match (self.verb.as_str(), self.object_ref.subresource.as_deref()) {
            ("create", None) => Event::Made,
            (_, Some("status")) => Event::Ended,
            (_, None) => Event::Started,
            _ => return None,
        };
        Some((self.stage_timestamp, event, self.object_ref.name?))
    }
}

/// The queue of a Job of the load, which is the first part of its name.
fn queue_of(job: &str) -> Option<&str> {
    let (queue_and_class, _) = job.rsplit_once('-')?;
    queue_and_class.rsplit_once('-').map(|(queue, _)| queue)
}

/// The delays of a log in which each Job is created, started and ended once. The first patch of a Job is its start: one that was answered with a
/// conflict is sent again. Of Jobs that are stopped, patches would not be starts.
fn delays(log: &str) -> Result<Vec<Duration>> {
    let mut events = Vec::new();
    for line in log.lines() {
        let line: Line = serde_json::from_str(line).context("a line of the audit log")?;
        events.extend(line.event());
    }
    events.sort();
    let mut queues: HashMap<&str, Queue> = HashMap::new();
    let (mut started, mut all) = (HashSet::new(), Vec::new());
    for (at, event, job) in &events {
        let Some(queue) = queue_of(job) else { continue };
        let queue = queues.entry(queue).or_default();
        let at = Duration::try_from(at.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default();
        match event {
            Event::Made => queue.waits(),
            Event::Ended => queue.ended(at),
            Event::Started if started.insert(job) => all.extend(queue.runs(at)),
            Event::Started => {}
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verb: &str, job: &str, status: bool, at: &str) -> String {
        let subresource = if status { r#","subresource":"status""# } else { "" };
        format!(
            r#"{{"kind":"Event","level":"Metadata","verb":"{verb}","objectRef":{{"resource":"jobs","namespace":"default","name":"{job}","apiGroup":"batch"{subresource}}},"requestReceivedTimestamp":"2026-11-30T02:00:00.000000Z","stageTimestamp":"2026-11-30T02:00:0{at}Z"}}"#
        )
    }

    #[test]
    fn a_start_counts_from_the_first_end_in_its_queue_while_others_wait() {
        let lines = [
            line("create", "q-a-freed-0", false, "1.000000"),
            line("create", "q-a-freed-1", false, "1.100000"),
            line("create", "q-b-freed-0", false, "1.100000"),
            line("patch", "q-a-freed-0", false, "1.200000"),
            // Lines are written as requests are answered, not in the order of their times.
            line("patch", "q-a-freed-1", false, "2.012500"),
            line("patch", "q-a-freed-0", true, "2.000000"),
            line("patch", "q-b-freed-0", false, "2.030000"),
            line("patch", "q-a-freed-1", true, "3.000000"),
        ];
        let found = delays(&lines.join("\n")).unwrap();
        assert_eq!(found, [Duration::from_micros(12_500)]);
    }

    #[test]
    fn a_start_that_is_sent_again_counts_once() {
        let lines = [
            line("create", "q-a-freed-0", false, "1.000000"),
            line("create", "q-a-freed-1", false, "1.000000"),
            line("create", "q-a-freed-2", false, "1.000000"),
            line("patch", "q-a-freed-0", false, "1.200000"),
            // The first try was answered with a conflict.
            line("patch", "q-a-freed-0", false, "1.250000"),
            line("patch", "q-a-freed-0", true, "2.000000"),
            line("patch", "q-a-freed-1", false, "2.010000"),
            line("patch", "q-a-freed-1", true, "3.000000"),
            line("patch", "q-a-freed-1", false, "3.005000"),
            line("patch", "q-a-freed-2", false, "3.020000"),
        ];
        let found = delays(&lines.join("\n")).unwrap();
        assert_eq!(found, [Duration::from_millis(10), Duration::from_millis(20)]);
    }

    #[test]
    fn what_is_no_line_of_an_audit_log_is_an_error() {
        assert!(delays("{}").is_err());
        assert_eq!(delays("").unwrap(), Vec::<Duration>::new());
    }
}
