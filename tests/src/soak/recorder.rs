//! Follows etcd from its first revision, passes every change of every object to the checker and stores it in a file, together with the users' next
//! deletions and the faults: the file alone is enough to check the run, and to see what else happened.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_testkit::ControlPlane;
use sluice_testkit::etcd::{Change, Etcd};
use sluice_testkit::wait::{eventually, progress};
use tokio::task::JoinHandle;

use super::checker::{Checker, STALL};

/// A key that is written to know that all before it was seen.
const MARK: &str = "/registry/recorder/mark";
/// Secrets are left out: the file is for others to look into.
const SECRETS: &str = "/registry/secrets/";
/// How long the recorder may take to see what there is.
const CATCH_UP: Duration = Duration::from_mins(5);

/// How often the recorder looks whether it runs.
const TICK: Duration = Duration::from_millis(100);
/// If it did not for more than so many thousandths of a second, the machine stood still, or had no time for any process.
const LONG: u64 = 1_000;

/// What the first line says: a file of an older format does not say which faults were played.
const FORMAT: u32 = 2;

/// A line of the file. All times are thousandths of a second since the recording began.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    /// What etcd has stored.
    Change {
        at: u64,
        revision: u64,
        key: String,
        /// Null: it is deleted.
        object: Value,
    },
    /// A user is about to delete this job.
    Unwanted { unwanted: String },
    /// A fault of this kind begins.
    Fault { fault: String, number: usize, at: u64 },
    /// The fault of this number is over.
    Over { over: usize, at: u64 },
    /// The first line.
    Format { format: u32 },
}

impl Line {
    fn judge(self, checker: &mut Checker) -> Result<()> {
        match self {
            Self::Unwanted { unwanted } => checker.expect_deletion(&unwanted),
            Self::Fault { fault, number, at } => {
                checker.clock(Duration::from_millis(at));
                checker.fault_begins(number, &fault);
            }
            Self::Over { over, at } => {
                checker.clock(Duration::from_millis(at));
                checker.fault_ends(over);
            }
            Self::Format { .. } => {}
            Self::Change { key, .. } if key == MARK => {}
            Self::Change { at, revision, key, object } => {
                checker.clock(Duration::from_millis(at));
                checker.observe(&Change { revision, key, object: (!object.is_null()).then_some(object) })?;
            }
        }
        Ok(())
    }
}

/// Judges the recording of a day, also of one that was broken off: its last line may be cut.
///
/// # Errors
///
/// If the file cannot be read, or is of an older format, which does not say which faults were played; if a line before the last is not one of a
/// recording, or a change in it cannot be read: see [`Checker::observe`].
pub fn judge(file: &Path) -> Result<Checker> {
    let mut checker = Checker::default();
    let mut lines = BufReader::new(File::open(file).context("opening the recording")?).lines().peekable();
    let first = lines.next().transpose().context("reading the recording")?.unwrap_or_default();
    let Ok(Line::Format { format: FORMAT }) = serde_json::from_str(&first) else {
        bail!(
            "the recording does not begin with {{\"format\":{FORMAT}}}: it does not say which faults were played, and only the version that wrote it can \
             judge it"
        );
    };
    while let Some(line) = lines.next() {
        let line = line.context("reading the recording")?;
        match serde_json::from_str::<Line>(&line) {
            Ok(line) => line.judge(&mut checker)?,
            Err(_) if lines.peek().is_none() => {}
            Err(error) => return Err(error).context(format!("after revision {}", checker.revision())),
        }
    }
    Ok(checker)
}

/// What the recorder's task and its owner share.
struct Shared {
    checker: Checker,
    file: BufWriter<File>,
    began: Instant,
    /// When it last ran, in the time of the recording.
    ticked: Arc<AtomicU64>,
    /// The newest revision that was seen.
    seen: u64,
    /// Why it can continue no more.
    failure: Option<String>,
    /// Why it last had to begin again.
    trouble: String,
    /// How many faults have begun.
    faults: usize,
}

impl Shared {
    fn new(file: &Path) -> Result<Self> {
        let file = BufWriter::new(File::create(file).context("making the file of the recording")?);
        let mut shared = Self {
            checker: Checker::default(),
            file,
            began: Instant::now(),
            ticked: Arc::default(),
            seen: 0,
            failure: None,
            trouble: String::new(),
            faults: 0,
        };
        shared.keep(Line::Format { format: FORMAT })?;
        Ok(shared)
    }

    /// The time of the recording, in thousandths of a second. What stood still until now is noted first.
    fn now(&mut self) -> Result<u64> {
        let now = since(self.began)?;
        self.runs_at(now)?;
        Ok(now)
    }

    /// Notes the time for which it did not run until now, if that is long.
    fn runs_at(&mut self, now: u64) -> Result<()> {
        let before = self.ticked.fetch_max(now, Ordering::Relaxed);
        if now.saturating_sub(before) <= LONG {
            return Ok(());
        }
        let number = self.number();
        self.keep(Line::Fault { fault: STALL.to_owned(), number, at: before })?;
        self.keep(Line::Over { over: number, at: now })
    }

    /// The number of the next fault.
    fn number(&mut self) -> usize {
        self.faults += 1;
        self.faults - 1
    }

    /// Writes a line, and judges what it says.
    fn keep(&mut self, line: Line) -> Result<()> {
        serde_json::to_writer(&mut self.file, &line).context("writing the recording")?;
        writeln!(self.file).and_then(|()| self.file.flush()).context("writing the recording")?;
        if let Line::Change { revision, .. } = line {
            self.seen = revision;
        }
        line.judge(&mut self.checker)
    }
}

/// Records until it is dropped.
pub(super) struct Recorder {
    etcd: Etcd,
    shared: Arc<Mutex<Shared>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Writes into the recording which faults there are.
#[derive(Clone)]
pub(super) struct FaultLog(Arc<Mutex<Shared>>);

impl FaultLog {
    /// A fault of this kind begins. Gives its number.
    pub fn begins(&self, kind: String) -> Result<usize> {
        let mut shared = lock(&self.0);
        let at = shared.now()?;
        let number = shared.number();
        shared.keep(Line::Fault { fault: kind, number, at })?;
        Ok(number)
    }

    /// The fault of this number is over.
    pub fn ends(&self, number: usize) -> Result<()> {
        let mut shared = lock(&self.0);
        let at = shared.now()?;
        shared.keep(Line::Over { over: number, at })
    }
}

/// Thousandths of a second since then.
fn since(began: Instant) -> Result<u64> {
    u64::try_from(began.elapsed().as_millis()).context("reading the clock")
}

/// Looks again and again whether it runs. It waits for the lock only to note that it did not: to wait for a judgement is not to stand still.
async fn tick(shared: Arc<Mutex<Shared>>) {
    let (began, ticked) = {
        let shared = lock(&shared);
        (shared.began, Arc::clone(&shared.ticked))
    };
    loop {
        tokio::time::sleep(TICK).await;
        let Ok(now) = since(began) else { return };
        if now.saturating_sub(ticked.load(Ordering::Relaxed)) <= LONG {
            ticked.fetch_max(now, Ordering::Relaxed);
            continue;
        }
        let mut shared = lock(&shared);
        if let Err(error) = shared.runs_at(now) {
            shared.failure = Some(format!("{error:#}"));
            return;
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Begins with the first revision, into a new file.
    pub fn start(plane: &ControlPlane, file: &Path) -> Result<Self> {
        let etcd = Etcd::of(plane)?;
        let shared = Arc::new(Mutex::new(Shared::new(file)?));
        let record = tokio::spawn(record(etcd.clone(), Arc::clone(&shared)));
        let tasks = [record, tokio::spawn(tick(Arc::clone(&shared)))];
        Ok(Self { etcd, shared, tasks })
    }

    /// Looks at the checker, or changes it.
    pub fn checker<T>(&self, look: impl FnOnce(&mut Checker) -> T) -> T {
        look(&mut lock(&self.shared).checker)
    }

    /// A user is about to delete this job.
    pub fn expect_deletion(&self, key: String) -> Result<()> {
        lock(&self.shared).keep(Line::Unwanted { unwanted: key })
    }

    /// Where faults are written.
    pub fn faults(&self) -> FaultLog {
        FaultLog(Arc::clone(&self.shared))
    }

    /// Fails when the recording cannot be complete any more.
    pub fn check(&self) -> Result<()> {
        let shared = lock(&self.shared);
        ensure!(shared.failure.is_none(), "the recording ended: {:?}", shared.failure);
        Ok(())
    }

    /// Waits until everything that was stored until now has been seen.
    pub async fn catch_up(&self) -> Result<()> {
        let mut mark = 0;
        eventually("etcd to take a mark", CATCH_UP, || async {
            Ok(sluice_testkit::wait::Progress::Done(self.etcd.put(MARK, &json!({})).await?))
        })
        .await
        .map(|revision| mark = revision)?;
        eventually("the recorder to have seen everything", CATCH_UP, || async {
            self.check()?;
            let shared = lock(&self.shared);
            Ok(progress(shared.seen >= mark, format!("{} of {mark}; {}", shared.seen, shared.trouble)))
        })
        .await
    }
}

async fn record(etcd: Etcd, shared: Arc<Mutex<Shared>>) {
    loop {
        let from = lock(&shared).seen + 1;
        let wanted = |key: &str| !key.starts_with(SECRETS);
        let followed = etcd.follow(from, wanted, |change| {
            let kept = keep(&shared, change);
            if let Err(error) = &kept {
                lock(&shared).failure = Some(format!("{error:#}"));
            }
            kept
        });
        if let Err(error) = followed.await {
            let mut shared = lock(&shared);
            shared.trouble = format!("{error:#}");
            if shared.trouble.contains("compact") {
                shared.failure = Some(shared.trouble.clone());
            }
            if shared.failure.is_some() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn keep(shared: &Mutex<Shared>, mut change: Change) -> Result<()> {
    if let Some(metadata) = change.object.as_mut().and_then(|object| object["metadata"].as_object_mut()) {
        metadata.remove("managedFields");
    }
    let mut shared = lock(shared);
    let at = shared.now()?;
    let Change { revision, key, object } = change;
    shared.keep(Line::Change { at, revision, key, object: object.unwrap_or(Value::Null) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str, revision: u64) -> Line {
        let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
        let object = json!({"metadata": {"uid": name, "labels": labels}, "spec": {"suspend": true}});
        Line::Change { at: revision, revision, key: format!("/registry/jobs/ns/{name}"), object }
    }

    fn deleted(name: &str, revision: u64) -> Line {
        Line::Change { at: revision, revision, key: format!("/registry/jobs/ns/{name}"), object: Value::Null }
    }

    #[test]
    fn a_day_is_judged_from_its_file_as_it_was_while_it_was_played() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording.jsonl");
        let mut shared = Shared::new(&path).unwrap();
        let unwanted = Line::Unwanted { unwanted: "/registry/jobs/ns/asked".to_owned() };
        // Objects that no rule looks at are kept, too.
        let event = json!({"involvedObject": {"kind": "Job", "name": "lost"}, "reason": "Stopped"});
        let key = "/registry/events/ns/lost.1".to_owned();
        shared.keep(Line::Change { at: 0, revision: 1, key, object: event }).unwrap();
        for line in [made("asked", 1), made("lost", 2), unwanted, deleted("asked", 3), deleted("lost", 4)] {
            shared.keep(line).unwrap();
        }
        shared.keep(Line::Fault { fault: "Freeze Etcd".to_owned(), number: 0, at: 4 }).unwrap();
        shared.keep(Line::Over { over: 0, at: 5 }).unwrap();
        // The day is broken off in the middle of a line.
        write!(shared.file, "{{\"at\":5,\"revi").unwrap();
        shared.file.flush().unwrap();
        let read = judge(&path).unwrap();
        assert_eq!(read.account(), shared.checker.account());
        assert_eq!((read.account().changes, read.account().jobs), (4, 2));
        assert_eq!((read.account().deleted, read.revision()), (1, 4));
        let reported: Vec<_> = read.violations().iter().map(ToString::to_string).collect();
        assert_eq!(
            reported,
            ["Lost at revision 4, /registry/jobs/ns/lost: it is deleted, and has not ended"]
        );
        let text = std::fs::read_to_string(&path).unwrap();
        for line in
            [r#"{"format":2}"#, r#"{"fault":"Freeze Etcd","number":0,"at":4}"#, r#"{"over":0,"at":5}"#]
        {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        // A line in the middle that cannot be read is no end.
        shared.file.write_all(b"\n").unwrap();
        shared.keep(made("more", 5)).unwrap();
        assert!(judge(&path).is_err());
    }

    #[test]
    fn a_time_in_which_the_machine_stands_still_is_recorded_as_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording.jsonl");
        let mut shared = Shared::new(&path).unwrap();
        for now in [900, 1_900, 3_100, 3_200, 3_150, 4_200] {
            shared.runs_at(now).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, [r#"{"fault":"Stall","number":0,"at":1900}"#, r#"{"over":0,"at":3100}"#]);
        assert_eq!(shared.number(), 1, "that of the next fault is another");
    }

    #[test]
    fn a_recording_that_does_not_say_which_faults_there_were_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording.jsonl");
        for text in ["", "{\"unwanted\":\"/registry/jobs/ns/j\"}\n", "{\"format\":1}\n"] {
            std::fs::write(&path, text).unwrap();
            let refused = judge(&path).unwrap_err().to_string();
            assert!(refused.contains("does not say which faults were played"), "{refused}");
        }
    }
}
