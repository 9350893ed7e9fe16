//! Programs that every wait depends on: once one of them has ended, waits end at once, with the program's last output.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The number of lines that are shown of a log.
const LINES: usize = 20;

/// A program that must not end.
#[derive(Debug)]
struct Vital {
    id: u32,
    name: String,
    log: PathBuf,
}

/// Programs that must not end.
#[derive(Debug, Default)]
pub(crate) struct Vitals(Mutex<Vec<Vital>>);

/// The vital programs of this process.
pub(crate) static VITALS: Vitals = Vitals(Mutex::new(Vec::new()));

impl Vitals {
    /// A program with this process id must not end from now on.
    pub fn add(&self, id: u32, name: &str, log: &Path) {
        let vital = Vital { id, name: name.to_owned(), log: log.to_path_buf() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(vital);
    }

    /// A program is ended on purpose.
    pub fn remove(&self, id: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|vital| vital.id != id);
    }

    /// The last output of the first program that has ended, if one has.
    pub fn ended(&self) -> Option<String> {
        let vitals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = vitals.iter().find(|vital| !is_alive(vital.id))?;
        Some(format!("{} has ended; its log ends:\n{}", ended.name, tail(&ended.log, LINES)))
    }
}

/// Whether a child runs. An ended one keeps its folder in /proc, with another state, until it is reaped.
fn is_alive(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

/// The last lines of a file; nothing if it cannot be read.
pub(crate) fn tail(file: &Path, lines: usize) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
