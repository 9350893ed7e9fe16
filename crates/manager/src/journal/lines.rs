//! A file to which whole lines are appended: lines that could not be written are known, and no partial line stays in the file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::JOURNAL_LINES_LOST;
use crate::metrics::registry::Registry;

/// From this number of bytes on they are written.
const FULL: usize = 8 << 10;

/// What is lost with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// Itself.
    Line,
    /// The number of other lines that were lost before.
    Lost(u64),
}

/// What was lost with lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Lines.
    pub lines: u64,
    /// Lost lines that the lost line would have reported.
    pub unreported: u64,
}

impl Losses {
    fn add(&mut self, worth: Worth) {
        match worth {
            Worth::Line => self.lines += 1,
            Worth::Lost(lines) => self.unreported += lines,
        }
    }

    /// The losses of one line.
    pub fn of(worth: Worth) -> Self {
        let mut losses = Self::default();
        losses.add(worth);
        losses
    }
}

/// Counts lines that are lost.
#[derive(Clone)]
pub(super) struct Lost {
    /// Lost lines that no later line has reported yet.
    unreported: Arc<AtomicU64>,
    registry: Arc<Registry>,
}

impl Lost {
    /// Counts in this registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { unreported: Arc::default(), registry }
    }

    /// Some are lost.
    pub fn add(&self, losses: Losses) {
        self.unreported.fetch_add(losses.lines + losses.unreported, Ordering::Relaxed);
        if losses.lines > 0 {
            let value = f64::from(u32::try_from(losses.lines).unwrap_or(u32::MAX));
            self.registry.record(JOURNAL_LINES_LOST.sample([], value));
        }
    }

    /// Takes the number that a line reports.
    pub fn take(&self) -> u64 {
        self.unreported.swap(0, Ordering::Relaxed)
    }
}

/// The file, and the lines that wait to be written to it.
#[derive(Debug)]
pub(super) struct Lines {
    file: File,
    waiting: Vec<u8>,
    worths: VecDeque<Worth>,
    /// Bytes of whole lines in the file.
    whole: u64,
    /// Bytes in the file behind them.
    half: u64,
}

impl Lines {
    /// Adds to an empty file.
    pub fn new(file: File) -> Self {
        Self { file, waiting: Vec::new(), worths: VecDeque::new(), whole: 0, half: 0 }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes in the file, and of what waits.
    pub fn bytes(&self) -> u64 {
        let waiting = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        self.whole.saturating_add(self.half).saturating_add(waiting)
    }

    /// Adds a line, which ends with its line break. Even after an error it is one of those that wait.
    ///
    /// # Errors
    /// If lines cannot be written.
    pub fn push(&mut self, line: &[u8], worth: Worth) -> io::Result<()> {
        self.waiting.extend_from_slice(line);
        self.worths.push_back(worth);
        if self.waiting.len() >= FULL { self.flush() } else { Ok(()) }
    }

    /// Writes all that waits.
    ///
    /// # Errors
    /// If it cannot be written; the part that was written does not wait any more.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.file.write(&self.waiting) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// This number of bytes is in the file.
    fn written(&mut self, bytes: usize) {
        let written: Vec<u8> = self.waiting.drain(..bytes).collect();
        for part in written.split_inclusive(|byte| *byte == b'\n') {
            self.half += u64::try_from(part.len()).unwrap_or(u64::MAX);
            if part.ends_with(b"\n") {
                self.whole += self.half;
                self.half = 0;
                self.worths.pop_front();
            }
        }
    }

    /// Leaves the file with whole lines, and gives what is lost.
    pub fn give_up(self) -> Losses {
        if self.half > 0 {
            // Readers skip a partial line, too.
            let _ = self.file.set_len(self.whole);
        }
        let mut losses = Losses::default();
        self.worths.into_iter().for_each(|worth| losses.add(worth));
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_disk_does_not_take_is_known_by_the_line() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut lines = Lines::new(full);
        for _ in 0..3 {
            lines.push(b"{}\n", Worth::Line).unwrap();
        }
        lines.push(b"{}\n", Worth::Lost(7)).unwrap();
        let error = lines.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(lines.push(&[b'x'; FULL], Worth::Line).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(lines.give_up(), Losses { lines: 4, unreported: 7 });
    }

    #[test]
    fn a_half_line_is_taken_out_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut lines = Lines::new(File::create(&path).unwrap());
        lines.push(b"one\n", Worth::Line).unwrap();
        lines.flush().unwrap();
        // As if the disk had taken a part of the rest, and then nothing more.
        lines.push(b"two\nthree\n", Worth::Line).unwrap();
        lines.worths.push_back(Worth::Line);
        (&lines.file).write_all(b"two\nth").unwrap();
        lines.written(6);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\nth");
        assert_eq!((lines.bytes(), lines.give_up()), (14, Losses { lines: 1, unreported: 0 }));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }
}
