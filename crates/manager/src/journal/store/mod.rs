//! Sends files of the journal to an object store, as a whole, once they are closed.
//!
//! The folder says what is still to be sent: files that no process holds a lock on, and that have no note that they were sent. So files of a killed
//! process are sent, too, and a restart forgets nothing. Nothing waits for this: a store that refuses or hangs costs a message, a metric, and room in
//! the folder.

mod client;
mod target;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_api::config;
use sluice_engine::Backoff;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use self::client::Client;
pub(super) use self::target::PART;
pub use self::target::SettingsError;
use self::target::{SendError, Target, Variables};
use super::files;
use crate::metrics::registry::Registry;
use crate::metrics::{JOURNAL_FILES_STORED, JOURNAL_STORE_FAILURES};
use crate::supervise::{self, Supervisor};

/// The folder is looked at so often: files of a process that ended come without a message.
const LOOK: Duration = Duration::from_secs(30);
/// The pauses after failures; the longest one is that after a refusal, too.
const PAUSES: Backoff = Backoff::seconds(1, 60);
/// After this number of refusals without a file in between it is the store that refuses, not one file that is refused.
const MOST_REFUSALS: usize = 2;

/// Signals that a file was closed; dropped when the last one is.
pub type Closed = watch::Sender<()>;

/// Starts to send files, if the configuration says where to. The task ends when all that could be sent is, after the last file is closed.
///
/// # Errors
/// When something of the settings is no good.
pub fn start(
    supervisor: &Supervisor,
    section: &config::Journal,
    registry: Arc<Registry>,
) -> Result<Option<(Closed, JoinHandle<()>)>, SettingsError> {
    if section.store.url.is_empty() {
        return Ok(None);
    }
    let client = Client::new(&section.store.ca_file).map_err(SettingsError::Certificates)?;
    let variables = std::env::vars_os();
    let variables: Variables = variables
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let target = Target::new(&section.store, client, &variables)?;
    // Where it cannot be made the journal says so.
    let _ = std::fs::create_dir_all(&section.directory);
    let (closed, hears) = watch::channel(());
    let sender = Sender {
        folder: PathBuf::from(&section.directory),
        url: section.store.url.clone(),
        target,
        registry,
        patience: patience(section),
        failing: None,
        settled: BTreeMap::new(),
    };
    let task = supervisor.spawn_finite("store of the journal", sender.run(hears, PAUSES));
    Ok(Some((closed, task)))
}

/// A file without a lock that did not change for this long is not written to any more.
pub(super) fn patience(section: &config::Journal) -> Duration {
    section.store.every.as_std() * 2 + LOOK
}

/// How sending fails, as the metric has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Refused,
    Unavailable,
}

impl Failure {
    fn of(error: &SendError) -> Self {
        match error {
            SendError::Refused(_) | SendError::Taken(_) => Self::Refused,
            SendError::Unavailable(_) | SendError::File(_) => Self::Unavailable,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

struct Sender {
    folder: PathBuf,
    url: String,
    target: Target,
    registry: Arc<Registry>,
    /// For how long a file without a lock may still be in use.
    patience: Duration,
    /// The error that was last logged.
    failing: Option<Failure>,
    /// Files that this process does not send again in this version: those that were sent and could not be noted as sent, and those whose names are
    /// taken.
    settled: BTreeMap<String, SystemTime>,
}

impl Sender {
    async fn run(mut self, mut closed: watch::Receiver<()>, pauses: Backoff) {
        let mut failures = 0_u32;
        loop {
            let (wait, is_failing) = match self.send_all().await {
                Ok(()) => {
                    failures = 0;
                    (LOOK, false)
                }
                Err(failure) => {
                    let wait = pauses.pause(if failure == Failure::Refused { u32::MAX } else { failures });
                    failures = failures.saturating_add(1);
                    (wait, true)
                }
            };
            if !wait_for_more(&mut closed, wait, is_failing).await {
                // Once more, without patience: the process ends.
                let _ = self.send_all().await;
                return;
            }
        }
    }

    /// Sends files until the store refuses. One file that is refused or cannot be read does not stop the others.
    async fn send_all(&mut self) -> Result<(), Failure> {
        let folder = self.folder.clone();
        let found = blocking(move || files::unsent(&folder)).await;
        let mut found = found.map_err(|error| self.failed(&error.into()))?;
        self.settled
            .retain(|name, changed| found.iter().any(|file| file.name == *name && file.changed == *changed));
        // Files of more than one part, which earlier versions made, come last: a store may refuse them all, as they are uploaded without a condition.
        found.sort_by_key(|file| !usize::try_from(file.size).is_ok_and(|size| size <= PART));
        let (mut result, mut refusals, mut sent) = (Ok(()), 0, false);
        for file in found {
            if self.settled.contains_key(&file.name) {
                continue;
            }
            let error = match self.send(&file.name).await {
                Ok(is_sent) => {
                    sent |= is_sent;
                    refusals = if is_sent { 0 } else { refusals };
                    continue;
                }
                Err(error) => error,
            };
            result = Err(self.failed(&error));
            match error {
                SendError::Taken(_) => {
                    self.settled.insert(file.name, file.changed);
                }
                SendError::Refused(_) => refusals += 1,
                SendError::Unavailable(_) => break,
                SendError::File(_) => {}
            }
            if refusals >= MOST_REFUSALS {
                break;
            }
        }
        if sent && result.is_ok() && self.failing.take().is_some() {
            info!(url = %self.url, "files of the journal are sent to the object store again");
        }
        result
    }

    /// Sends a file, and returns whether it did: a file that was deleted, or that another process writes or sends, is skipped.
    async fn send(&mut self, name: &str) -> Result<bool, SendError> {
        let (folder, patience) = (self.folder.clone(), self.patience);
        let of = name.to_owned();
        let Some((file, changed)) = blocking(move || take(&folder, &of, patience)).await? else {
            return Ok(false);
        };
        // The lock stays until the note is made.
        self.target.send(name, file.try_clone()?).await?;
        let (folder, of) = (self.folder.clone(), name.to_owned());
        let noted = blocking(move || {
            let noted = files::mark_sent(&folder, &of, changed);
            drop(file);
            noted
        });
        if let Err(error) = noted.await {
            // A full disk has no room for a note. The next process finds the object in the store.
            self.settled.insert(name.to_owned(), changed);
            warn!(file = name, %error, "cannot record that a journal file is in the object store");
        }
        self.registry.record(JOURNAL_FILES_STORED.sample([], 1.0));
        Ok(true)
    }

    /// Logs why nothing is sent, if that is new.
    fn failed(&mut self, error: &SendError) -> Failure {
        let failure = Failure::of(error);
        self.registry.record(JOURNAL_STORE_FAILURES.sample([failure.name()], 1.0));
        if self.failing.replace(failure) != Some(failure) {
            match failure {
                Failure::Refused => {
                    warn!(url = %self.url, %error, "the object store refuses files of the journal; they stay in the folder and are tried again");
                }
                Failure::Unavailable => {
                    warn!(url = %self.url, %error, "files of the journal cannot be sent to the object store; they stay in the folder and are tried again");
                }
            }
        }
        failure
    }
}

/// Waits for a file that was closed, or for that long; false at the end. A pause after a failure is not cut short by more files.
async fn wait_for_more(closed: &mut watch::Receiver<()>, wait: Duration, is_failing: bool) -> bool {
    let until = Instant::now() + wait;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(until) => return true,
            more = closed.changed() => match more {
                Err(_) => return false,
                Ok(()) if is_failing => {}
                Ok(()) => return true,
            },
        }
    }
}

/// Opens a file to send it, unless it is gone, is written to, or another replica sends it or has sent it.
fn take(folder: &Path, name: &str, patience: Duration) -> io::Result<Option<(File, SystemTime)>> {
    let file = match files::open_to_lock(folder, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !files::is_free(&file, patience) {
        return Ok(None);
    }
    let metadata = file.metadata()?;
    let found = files::Found { name: name.to_owned(), size: metadata.len(), changed: metadata.modified()? };
    Ok((!files::is_sent(folder, &found)).then_some((file, found.changed)))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    supervise::blocking("a journal file", work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
