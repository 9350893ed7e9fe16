//! Writes lines; a file that is large is closed and a new one begun.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_api::config;
use sluice_api::journal::{Line, LostLine};
use tracing::{error, info, warn};

use super::files::{self, Quota, Remove};
use super::lines::{Lines, Losses, Lost, Worth};
use super::store::{self, Closed, PART};
use crate::metrics::registry::Registry;
use crate::supervise::Supervisor;

/// Lines in the buffer: some megabytes.
const BUFFER: usize = 16_384;
/// After this time readers see what was written.
const FLUSH: Duration = Duration::from_secs(1);
/// The pause after a failure, for example if the disk is full.
const PAUSE: Duration = Duration::from_secs(30);
/// The folder is looked at after this many bytes: others may write to it, too.
const LOOK: u64 = 4 << 20;

/// Takes lines.
pub struct Journal {
    lines: Option<SyncSender<Line>>,
    lost: Lost,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Begins a file in the configured folder, which is created if necessary. With `closed`, files are sent to an object store: they are also closed
    /// when they are old, and that is signalled.
    ///
    /// # Errors
    /// If the folder or the file cannot be created.
    pub fn start(
        supervisor: &Supervisor,
        section: &config::Journal,
        process: &str,
        registry: Arc<Registry>,
        closed: Option<Closed>,
    ) -> io::Result<Self> {
        let disk = Disk { make: files::create, remove: |path| std::fs::remove_file(path), pause: PAUSE };
        Self::with(supervisor, section, process, (BUFFER, disk, closed), Lost::new(registry))
    }

    fn with(
        supervisor: &Supervisor,
        section: &config::Journal,
        process: &str,
        (buffer, disk, closed): (usize, Disk, Option<Closed>),
        lost: Lost,
    ) -> io::Result<Self> {
        let folder = PathBuf::from(&section.directory);
        std::fs::create_dir_all(&folder)?;
        files::mark(&folder, process)?;
        // Only a file that is sent to the store in one request can be kept from overwriting another.
        let most = closed.as_ref().and_then(|_| u64::try_from(PART).ok()).unwrap_or(u64::MAX);
        let bounds = Bounds { file: section.file_bytes().min(most), total: section.total_bytes() };
        let process = process.to_owned();
        let (every, patience) = (section.store.every.as_std(), store::patience(section));
        let sent = closed.map(|closed| Sent { closed, every, patience });
        let mut target =
            Target { folder, process, bounds, disk, open: None, since_look: 0, sent, stuck: None };
        // An unusable folder is reported at the start, not by missing lines.
        target.begin(&lost)?;
        let (lines, received) = sync_channel(buffer);
        let counted = lost.clone();
        let thread = supervisor.thread_finite("journal", move || target.run(&received, &counted))?;
        Ok(Self { lines: Some(lines), lost, thread: Some(thread) })
    }

    /// Hands a line over; never waits.
    pub fn put(&self, line: Line) {
        let Some(lines) = &self.lines else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = lines.try_send(line) {
            self.lost.add(Losses::of(Worth::Line));
        }
    }
}

impl Drop for Journal {
    /// Writes what is still in the buffer.
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was printed.
            let _ = thread.join();
        }
    }
}

/// How large files become, in bytes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    file: u64,
    total: u64,
}

/// Makes the next file of a process in a folder, and gives its name.
type Make = fn(&Path, &str) -> io::Result<(String, File)>;

/// How files are made and deleted, and what is done when the former fails.
#[derive(Clone, Copy)]
struct Disk {
    make: Make,
    remove: Remove,
    /// The pause after a failure.
    pause: Duration,
}

/// The current file.
struct Open {
    name: String,
    lines: Lines,
    /// When its first line came.
    since: Option<Instant>,
}

/// The settings if files are sent to an object store.
struct Sent {
    closed: Closed,
    /// The age at which a file is closed.
    every: Duration,
    /// For how long another process's file without a lock may still be in use.
    patience: Duration,
}

struct Target {
    folder: PathBuf,
    process: String,
    bounds: Bounds,
    disk: Disk,
    open: Option<Open>,
    since_look: u64,
    sent: Option<Sent>,
    /// Why files could not be deleted when that was tried last.
    stuck: Option<io::ErrorKind>,
}

impl Target {
    /// Writes until the sender is dropped.
    fn run(&mut self, lines: &Receiver<Line>, lost: &Lost) {
        let mut failed: Option<Instant> = None;
        let mut flushed = Instant::now();
        loop {
            let line = match lines.recv_timeout(FLUSH) {
                Ok(line) => Some(line),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if failed.is_some_and(|at| at.elapsed() < self.disk.pause) {
                lost.add(line.map_or_else(Losses::default, |_| Losses::of(Worth::Line)));
                continue;
            }
            // After a failure it is seen at once whether the disk takes lines again.
            let due = line.is_none() || failed.is_some() || flushed.elapsed() >= FLUSH;
            let done = self.take(line, lost).and_then(|()| if due { self.flush() } else { Ok(()) });
            let done = done.and_then(|()| self.close_if_old());
            if due {
                flushed = Instant::now();
            }
            match done {
                Ok(()) => {
                    if failed.take().is_some() {
                        info!(folder = %self.folder.display(), "the journal is written again");
                    }
                }
                Err(error) => {
                    self.give_up(lost);
                    if failed.replace(Instant::now()).is_none() {
                        error!(folder = %self.folder.display(), %error, "the journal cannot be written: lines are lost");
                    }
                }
            }
        }
        let end = self.say_lost(lost).and_then(|()| self.flush());
        if let Err(error) = end {
            self.give_up(lost);
            error!(%error, "the end of the journal cannot be written");
        }
        self.close();
    }

    /// Ends a file that was written to for long enough to be sent.
    fn close_if_old(&mut self) -> io::Result<()> {
        let Some(sent) = &self.sent else { return Ok(()) };
        let since = self.open.as_ref().and_then(|open| open.since);
        if since.is_none_or(|since| since.elapsed() < sent.every) {
            return Ok(());
        }
        self.flush()?;
        self.close();
        Ok(())
    }

    /// Closes the current file, and signals that.
    fn close(&mut self) {
        // Without it its lock is gone, too.
        if self.open.take().is_some()
            && let Some(sent) = &self.sent
        {
            sent.closed.send_replace(());
        }
    }

    /// Leaves the file that cannot be written to. What is not in it is lost.
    fn give_up(&mut self, lost: &Lost) {
        if let Some(open) = self.open.take() {
            lost.add(open.lines.give_up());
        }
    }

    fn take(&mut self, line: Option<Line>, lost: &Lost) -> io::Result<()> {
        let reported = self.say_lost(lost);
        let Some(line) = line else { return reported };
        if reported.is_err() {
            lost.add(Losses::of(Worth::Line));
            return reported;
        }
        self.write(&line, Worth::Line, lost)
    }

    /// Says how many lines are missing here.
    fn say_lost(&mut self, lost: &Lost) -> io::Result<()> {
        let lines = lost.take();
        if lines == 0 {
            return Ok(());
        }
        let line = Line::Lost(LostLine { at: Timestamp::now(), lost: lines });
        self.write(&line, Worth::Lost(lines), lost)
    }

    /// Writes a line; if no file can be begun the line counts as lost, else it waits in its file.
    fn write(&mut self, line: &Line, worth: Worth, lost: &Lost) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let is_full = |open: &Open| open.lines.bytes().saturating_add(bytes) > self.bounds.file;
        if self.open.as_ref().is_none_or(is_full) {
            self.begin(lost).inspect_err(|_| lost.add(Losses::of(worth)))?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.since.get_or_insert_with(Instant::now);
        open.lines.push(&text, worth)?;
        self.since_look += bytes;
        if self.since_look >= LOOK.min(self.bounds.file) {
            self.look(lost);
        }
        Ok(())
    }

    /// Closes the file, and begins the next.
    fn begin(&mut self, lost: &Lost) -> io::Result<()> {
        self.flush()?;
        self.close();
        let (name, file) = (self.disk.make)(&self.folder, &self.process)?;
        if self.sent.is_some() {
            // A locked file is not sent. On a file system without locks its age decides.
            let _ = file.try_lock();
        }
        self.open = Some(Open { name, lines: Lines::new(file), since: None });
        self.look(lost);
        Ok(())
    }

    /// Keeps the folder within its bounds. Where that fails lines are written all the same.
    fn look(&mut self, lost: &Lost) {
        self.since_look = 0;
        let room = Quota {
            folder: &self.folder,
            most: self.bounds.total,
            kept: self.open.as_ref().map(|open| open.name.as_str()).unwrap_or_default(),
            process: &self.process,
            patience: self.sent.as_ref().map(|sent| sent.patience).unwrap_or_default(),
            remove: self.disk.remove,
        };
        let mut lines = 0;
        let done = if self.sent.is_some() { room.shrink_sent(&mut lines) } else { room.shrink() };
        if lines > 0 {
            lost.add(Losses { lines, unreported: 0 });
            warn!(
                lines,
                "files of the journal were deleted before the object store had them: their lines are lost"
            );
        }
        let Err(error) = done else {
            self.stuck = None;
            return;
        };
        if self.stuck.replace(error.kind()) != Some(error.kind()) {
            warn!(folder = %self.folder.display(), %error, "old files of the journal cannot be deleted: the folder may grow beyond maxTotalSize");
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.lines.flush()?;
        if files::is_gone(open.lines.file()) {
            // Another process has deleted it: the next lines are written to a new one.
            self.open = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
