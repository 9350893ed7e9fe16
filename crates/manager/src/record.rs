//! `--record FILE`: the engine's inputs and effects, as they happen, for `sluice replay`.
//!
//! The engine's thread only puts entries into a bounded buffer; another thread makes lines of them. Until the initial state is complete the engine
//! waits if the buffer is full, since nothing is decided yet. After that it never waits: if the buffer is full the recording ends, which its last
//! line and the log report, and the file can be replayed from its beginning.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;

use jiff::Timestamp;
use sluice_engine::{Effect, Input};
use sluice_sim::replay::Entry;
use tracing::{info, warn};

use crate::supervise::Supervisor;
use crate::watch::document::Document;

/// Entries in the buffer: some tens of megabytes when each is a large object.
const BUFFER: usize = 8192;
/// The largest file, in bytes.
const LARGEST: usize = 1 << 30;

/// Takes what happens to the engine.
#[derive(Debug)]
pub struct Recorder {
    entries: Option<SyncSender<Entry>>,
    thread: Option<JoinHandle<()>>,
    /// Everything was listed: decisions are made from now on, and must not wait.
    synced: bool,
}

/// Opens a file for its owner alone. It contains data that many users may not read: a link is not followed, and a file that belongs to another user
/// or has another name is not written to. The old content stays until that is checked.
fn own_file(path: &Path) -> io::Result<File> {
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let named = std::fs::symlink_metadata(path)?;
    if !named.is_file() {
        return refused("not a regular file; links are not followed");
    }
    let file = File::options().write(true).open(path)?;
    let found = file.metadata()?;
    let us = std::fs::metadata("/proc/self")?.uid();
    if (found.dev(), found.ino()) != (named.dev(), named.ino()) || found.nlink() != 1 || found.uid() != us {
        return refused("not a file of this process's user with one name");
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}

impl Recorder {
    /// Creates the file, readable for its owner alone, and begins with the header.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, is a link or no regular file, has another name too or another owner; or if the system cannot start another
    /// thread.
    pub fn start(supervisor: &Supervisor, file: &Path, header: Entry) -> io::Result<Self> {
        let target = own_file(file)?;
        Self::with(supervisor, target, header, BUFFER, LARGEST)
    }

    fn with(
        supervisor: &Supervisor,
        target: impl io::Write + Send + 'static,
        header: Entry,
        buffer: usize,
        largest: usize,
    ) -> io::Result<Self> {
        let (entries, received) = sync_channel(buffer);
        let thread = supervisor.thread_finite("record", move || {
            let mut log = Log { target: BufWriter::new(target), written: 0, largest };
            match log.run(&header, &received) {
                Ok(()) => info!(bytes = log.written, "the recording ended"),
                Err(error) => warn!(%error, "the recording ended: its file cannot be written"),
            }
        })?;
        Ok(Self { entries: Some(entries), thread: Some(thread), synced: false })
    }

    /// The engine gets an input.
    pub fn input(&mut self, at: Timestamp, input: &Input, document: Document) {
        if self.entries.is_some() {
            self.put(Entry::input(at, input, document.map(|document| *document)));
        }
        self.synced |= matches!(input, Input::Synced);
    }

    /// The engine did a cycle.
    pub fn cycle(&mut self, at: Timestamp, effects: &[Effect]) {
        if self.entries.is_some() {
            self.put(Entry::cycle(at, effects.to_vec()));
        }
    }

    /// The engine was rebuilt, and gets all objects again.
    pub fn rebuilt(&mut self, at: Timestamp) {
        self.synced = false;
        self.put(Entry::rebuilt(at));
    }

    fn put(&mut self, entry: Entry) {
        let Some(entries) = &self.entries else { return };
        let sent = if self.synced {
            entries.try_send(entry)
        } else {
            entries.send(entry).map_err(|error| TrySendError::Disconnected(error.0))
        };
        match sent {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                warn!("the recording cannot keep up with the engine: it ends here");
                self.entries = None;
            }
            // The other thread has said why.
            Err(TrySendError::Disconnected(_)) => self.entries = None,
        }
    }
}

impl Drop for Recorder {
    /// Writes what is still in the buffer.
    fn drop(&mut self) {
        if let Some(entries) = self.entries.take() {
            // The other thread may have ended.
            let _ = entries.send(Entry::end(Timestamp::now(), "the manager stopped"));
        }
        if let Some(thread) = self.thread.take() {
            // A panic there was printed.
            let _ = thread.join();
        }
    }
}

/// The file.
struct Log<W: io::Write> {
    target: BufWriter<W>,
    written: usize,
    largest: usize,
}

impl<W: io::Write> Log<W> {
    fn run(&mut self, header: &Entry, entries: &Receiver<Entry>) -> io::Result<()> {
        self.line(header)?;
        loop {
            let entry = match entries.try_recv() {
                Ok(entry) => Some(entry),
                Err(TryRecvError::Empty) => {
                    // A reader of the file sees what happened so far.
                    self.target.flush()?;
                    entries.recv().ok()
                }
                Err(TryRecvError::Disconnected) => None,
            };
            let Some(entry) = entry else {
                return self.target.flush();
            };
            self.line(&entry)?;
            if self.written >= self.largest {
                let why = format!("the file reached {} bytes", self.largest);
                self.line(&Entry::end(Timestamp::now(), why))?;
                return self.target.flush();
            }
        }
    }

    fn line(&mut self, entry: &Entry) -> io::Result<()> {
        let line = entry.text();
        self.written += line.len() + 1;
        self.target.write_all(line.as_bytes())?;
        self.target.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::tests::supervisor;
    use std::sync::{Arc, Mutex, mpsc};

    use sluice_engine::EngineConfig;
    use sluice_sim::Options;
    use sluice_sim::replay::Replay;

    /// The written data, shared with the test.
    #[derive(Clone, Default)]
    struct Shelf(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Shelf {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shelf {
        fn replay(&self) -> sluice_sim::replay::Outcome {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            let mut replay = Replay::default();
            text.lines().for_each(|line| replay.line(line).unwrap());
            replay.finish()
        }
    }

    fn header() -> Entry {
        let config = EngineConfig::default();
        Entry::header(Timestamp::UNIX_EPOCH, &Options::default_configuration(), (&config).into())
    }

    fn at() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn the_file_is_the_owners_alone_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, other) = (folder.path().join("mine"), folder.path().join("other"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        own_file(&mine).unwrap();
        assert_eq!(mode(&mine), 0o600);
        std::fs::write(&mine, "before").unwrap();
        std::fs::set_permissions(&mine, Permissions::from_mode(0o644)).unwrap();
        own_file(&mine).unwrap();
        assert_eq!((mode(&mine), std::fs::read_to_string(&mine).unwrap().as_str()), (0o600, ""));
        std::fs::write(&other, "precious").unwrap();
        for (link, target) in [("link", &other), ("dangling", &folder.path().join("nothing"))] {
            let link = folder.path().join(link);
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(own_file(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        let hard = folder.path().join("hard");
        std::fs::hard_link(&other, &hard).unwrap();
        assert_eq!(own_file(&hard).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(own_file(folder.path()).is_err());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
        assert!(!folder.path().join("nothing").exists());
    }

    #[test]
    fn what_is_recorded_replays_and_says_why_it_ended() {
        let shelf = Shelf::default();
        let mut recorder = Recorder::with(&supervisor().0, shelf.clone(), header(), 16, 1 << 20).unwrap();
        recorder.input(at(), &Input::Synced, None);
        recorder.input(at(), &Input::Leader(true), None);
        recorder.cycle(at(), &[]);
        recorder.rebuilt(at());
        recorder.cycle(at(), &[]);
        drop(recorder);
        let outcome = shelf.replay();
        assert_eq!((outcome.inputs, outcome.cycles, outcome.rebuilt), (2, 2, 1));
        assert_eq!(outcome.mismatches, []);
        assert_eq!(outcome.ended.as_deref(), Some("the manager stopped"));
    }

    #[test]
    fn a_file_does_not_grow_beyond_its_limit() {
        let shelf = Shelf::default();
        let mut recorder = Recorder::with(&supervisor().0, shelf.clone(), header(), 1, 10).unwrap();
        recorder.cycle(at(), &[]);
        recorder.cycle(at(), &[]);
        drop(recorder);
        let outcome = shelf.replay();
        assert_eq!((outcome.cycles, outcome.ended.as_deref()), (1, Some("the file reached 10 bytes")));
    }

    /// A disk that takes nothing until it is allowed to.
    struct Stuck(mpsc::Receiver<()>, Shelf);

    impl io::Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Released, or the test is over.
            let _ = self.0.recv();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn decisions_never_wait_for_a_slow_disk() {
        let (go, stuck) = mpsc::channel();
        let shelf = Shelf::default();
        let mut recorder =
            Recorder::with(&supervisor().0, Stuck(stuck, shelf.clone()), header(), 4, 1 << 30).unwrap();
        recorder.input(at(), &Input::Synced, None);
        // Far more than the buffer and the writer hold; a wait here would be for ever.
        for _ in 0..1000 {
            recorder.cycle(at(), &[]);
        }
        assert!(recorder.entries.is_none(), "the recording ended");
        drop(go);
        drop(recorder);
        let outcome = shelf.replay();
        assert!(outcome.cycles < 1000 && outcome.mismatches.is_empty(), "{outcome:?}");
        assert_eq!(outcome.ended, None);
    }
}
