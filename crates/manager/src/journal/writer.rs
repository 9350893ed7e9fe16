//! Writes lines, in files that are begun anew when they are large.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_api::config;
use sluice_api::journal::{Line, LostLine};
use tracing::{error, info};

use super::files;
use crate::supervise::Supervisor;

/// Lines in the buffer: some megabytes.
const BUFFER: usize = 16_384;
/// What was written is seen by readers after this time.
const FLUSH: Duration = Duration::from_secs(1);
/// After a failure, for example where the disk is full, for so long nothing is tried.
const PAUSE: Duration = Duration::from_secs(30);
/// The folder is looked at after this many bytes: others may write to it, too.
const LOOK: u64 = 4 << 20;

/// Takes lines.
#[derive(Debug)]
pub struct Journal {
    lines: Option<SyncSender<Line>>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Begins a file in the folder of the configuration, which is made if it is not there.
    ///
    /// # Errors
    /// When the folder or the file cannot be made.
    pub fn start(supervisor: &Supervisor, section: &config::Journal, process: &str) -> io::Result<Self> {
        Self::with(supervisor, section, process, BUFFER)
    }

    fn with(
        supervisor: &Supervisor,
        section: &config::Journal,
        process: &str,
        buffer: usize,
    ) -> io::Result<Self> {
        let folder = PathBuf::from(&section.directory);
        std::fs::create_dir_all(&folder)?;
        files::mark(&folder, process)?;
        let bounds = Bounds { file: section.file_bytes(), total: section.total_bytes() };
        let mut target = Target { folder, process: process.to_owned(), bounds, open: None, since_look: 0 };
        // What cannot work is said at the start, not by missing lines.
        target.begin()?;
        let (lines, received) = sync_channel(buffer);
        let lost = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&lost);
        let thread = supervisor.thread_finite("journal", move || target.run(&received, &counted))?;
        Ok(Self { lines: Some(lines), lost, thread: Some(thread) })
    }

    /// Hands a line over; never waits.
    pub fn put(&self, line: Line) {
        let Some(lines) = &self.lines else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = lines.try_send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
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

/// The file that is written to.
struct Open {
    name: String,
    file: BufWriter<File>,
    written: u64,
}

struct Target {
    folder: PathBuf,
    process: String,
    bounds: Bounds,
    open: Option<Open>,
    since_look: u64,
}

impl Target {
    /// Writes until nothing comes any more.
    fn run(&mut self, lines: &Receiver<Line>, lost: &AtomicU64) {
        let mut failed: Option<Instant> = None;
        let mut flushed = Instant::now();
        loop {
            let line = match lines.recv_timeout(FLUSH) {
                Ok(line) => Some(line),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if failed.is_some_and(|at| at.elapsed() < PAUSE) {
                lost.fetch_add(u64::from(line.is_some()), Ordering::Relaxed);
                continue;
            }
            let due = line.is_none() || flushed.elapsed() >= FLUSH;
            let lines_now = u64::from(line.is_some());
            let done = self.take(line, lost).and_then(|()| if due { self.flush() } else { Ok(()) });
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
                    lost.fetch_add(lines_now, Ordering::Relaxed);
                    self.open = None;
                    if failed.replace(Instant::now()).is_none() {
                        error!(folder = %self.folder.display(), %error, "the journal cannot be written");
                    }
                }
            }
        }
        let missing = lost.swap(0, Ordering::Relaxed);
        let end = self.say_lost(missing).and_then(|()| self.flush());
        if let Err(error) = end {
            error!(%error, "the end of the journal cannot be written");
        }
    }

    fn take(&mut self, line: Option<Line>, lost: &AtomicU64) -> io::Result<()> {
        let missing = lost.swap(0, Ordering::Relaxed);
        self.say_lost(missing).inspect_err(|_| {
            lost.fetch_add(missing, Ordering::Relaxed);
        })?;
        line.map_or(Ok(()), |line| self.write(&line))
    }

    fn say_lost(&mut self, lost: u64) -> io::Result<()> {
        if lost == 0 {
            return Ok(());
        }
        self.write(&Line::Lost(LostLine { at: Timestamp::now(), lost }))
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if self.open.as_ref().is_none_or(|open| open.written.saturating_add(bytes) > self.bounds.file) {
            self.begin()?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.file.write_all(&text)?;
        open.written += bytes;
        self.since_look += bytes;
        if self.since_look >= LOOK.min(self.bounds.file) {
            self.look()?;
        }
        Ok(())
    }

    /// Closes the file, and begins the next.
    fn begin(&mut self) -> io::Result<()> {
        self.flush()?;
        let (name, file) = files::create(&self.folder, &self.process)?;
        self.open = Some(Open { name, file: BufWriter::new(file), written: 0 });
        self.look()
    }

    /// Keeps the folder within its bounds.
    fn look(&mut self) -> io::Result<()> {
        self.since_look = 0;
        let kept = self.open.as_ref().map(|open| open.name.as_str()).unwrap_or_default();
        files::shrink(&self.folder, self.bounds.total, kept)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.file.flush()?;
        if files::is_gone(open.file.get_ref()) {
            // Another process has deleted it: what comes goes into a new one.
            self.open = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::supervise::tests::supervisor;
    use sluice_api::journal::QuotaLine;

    fn section(folder: &Path, file: &str, total: &str) -> config::Journal {
        let directory = folder.display().to_string();
        config::Journal { directory, max_file_size: file.to_owned(), max_total_size: total.to_owned() }
    }

    fn line(number: usize) -> Line {
        let nominal = std::collections::BTreeMap::new();
        let cluster_queue = format!("queue-{number}");
        Line::Quota(QuotaLine { at: Timestamp::UNIX_EPOCH, cluster_queue, cohort: "c".repeat(900), nominal })
    }

    fn read(folder: &Path) -> Vec<Line> {
        let mut lines = Vec::new();
        for found in files::list(folder).unwrap() {
            let text = std::fs::read_to_string(folder.join(found.name)).unwrap();
            lines.extend(text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap()));
        }
        lines
    }

    #[tokio::test]
    async fn every_line_is_in_a_file_when_the_journal_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (supervisor, _fatal, _stopper) = supervisor();
        let journal = Journal::start(&supervisor, &section(folder.path(), "1Mi", "8Mi"), "pod").unwrap();
        (0..100).for_each(|number| journal.put(line(number)));
        drop(journal);
        assert_eq!(read(folder.path()), (0..100).map(line).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn the_files_together_stay_within_their_bound_and_the_newest_lines_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (supervisor, _fatal, _stopper) = supervisor();
        let section = section(folder.path(), "1Mi", "2Mi");
        let journal = Journal::with(&supervisor, &section, "pod", 1 << 20).unwrap();
        (0..8000).for_each(|number| journal.put(line(number)));
        drop(journal);
        let files = files::list(folder.path()).unwrap();
        let total: u64 = files.iter().map(|file| file.size).sum();
        assert!(files.len() >= 2 && total <= 3 << 20, "{files:?}");
        assert_eq!(read(folder.path()).last(), Some(&line(7999)));
    }

    #[tokio::test]
    async fn what_does_not_fit_into_the_buffer_is_counted_and_said() {
        let folder = tempfile::tempdir().unwrap();
        let (supervisor, _fatal, _stopper) = supervisor();
        let journal = Journal::with(&supervisor, &section(folder.path(), "64Mi", "1Gi"), "pod", 1).unwrap();
        (0..5000).for_each(|number| journal.put(line(number)));
        drop(journal);
        let lines = read(folder.path());
        let lost: u64 =
            lines.iter().map(|line| if let Line::Lost(lost) = line { lost.lost } else { 0 }).sum();
        let written = lines.iter().filter(|line| !matches!(line, Line::Lost(_))).count();
        assert_eq!(lost + u64::try_from(written).unwrap(), 5000);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_is_an_error_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let (supervisor, _fatal, _stopper) = supervisor();
        assert!(Journal::start(&supervisor, &section(&file.join("in"), "1Mi", "8Mi"), "pod").is_err());
    }
}
