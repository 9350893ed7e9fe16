//! Follows etcd from its first revision, hands every change to the checker and keeps it in a file.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_testkit::ControlPlane;
use sluice_testkit::etcd::{Change, Etcd};
use sluice_testkit::wait::{eventually, progress};
use tokio::task::JoinHandle;

use super::checker::{Checker, is_relevant};

/// A key that is written to know that all before it was seen.
const MARK: &str = "/registry/recorder/mark";
/// How long the recorder may take to see what there is.
const CATCH_UP: Duration = Duration::from_mins(2);

/// What the recorder's task and its owner share.
#[derive(Default)]
struct Shared {
    checker: Checker,
    /// The newest revision that was seen.
    seen: u64,
    /// Why it can go on no more.
    failure: Option<String>,
    /// Why it last had to begin anew.
    trouble: String,
}

/// Records until it is dropped.
pub(super) struct Recorder {
    etcd: Etcd,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Begins with the first revision, into a new file.
    pub fn start(plane: &ControlPlane, file: &Path) -> Result<Self> {
        let etcd = Etcd::of(plane)?;
        let file = BufWriter::new(File::create(file).context("making the file of the recording")?);
        let shared = Arc::new(Mutex::new(Shared::default()));
        let task = tokio::spawn(record(etcd.clone(), file, Arc::clone(&shared)));
        Ok(Self { etcd, shared, task })
    }

    /// Looks at the checker, or changes it.
    pub fn checker<T>(&self, look: impl FnOnce(&mut Checker) -> T) -> T {
        look(&mut lock(&self.shared).checker)
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

async fn record(etcd: Etcd, mut file: BufWriter<File>, shared: Arc<Mutex<Shared>>) {
    loop {
        let from = lock(&shared).seen + 1;
        let wanted = |key: &str| key == MARK || is_relevant(key);
        let followed = etcd.follow(from, wanted, |change| {
            let kept = keep(&mut file, &shared, change);
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

fn keep(file: &mut BufWriter<File>, shared: &Mutex<Shared>, mut change: Change) -> Result<()> {
    if let Some(metadata) = change.object.as_mut().and_then(|object| object["metadata"].as_object_mut()) {
        metadata.remove("managedFields");
    }
    let object = change.object.as_ref().unwrap_or(&Value::Null);
    writeln!(file, "{}", json!({"revision": change.revision, "key": change.key, "object": object}))
        .and_then(|()| file.flush())
        .context("writing the recording")?;
    let mut shared = lock(shared);
    shared.seen = change.revision;
    if change.key != MARK {
        shared.checker.observe(&change)?;
    }
    Ok(())
}
