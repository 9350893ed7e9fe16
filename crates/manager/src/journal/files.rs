//! The files of a folder: `NAME.NUMBER.jsonl`, where NAME is the name of the process and NUMBER counts up.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const SUFFIX: &str = ".jsonl";
/// The suffix of the file that identifies a folder.
const MARK: &str = ".id";
/// The suffix of the empty file that marks another one as stored in the object store.
const SENT: &str = ".sent";
/// How many files that are in the object store stay in the folder.
const MOST_SENT: usize = 4096;
/// More files than this are not looked at.
const MOST_FILES: usize = 65_536;

/// A file of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its name in the folder.
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// When it was last written to.
    pub changed: SystemTime,
}

/// The name of a process's file.
pub(super) fn name_of(process: &str, number: u64) -> String {
    format!("{process}.{number:08}{SUFFIX}")
}

/// The number of a process's file, if it is one.
fn number_of(process: &str, name: &str) -> Option<u64> {
    name.strip_prefix(process)?.strip_prefix('.')?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Whether a file of the folder was made by a process like this one: others are not sent.
pub(super) fn is_of_a_process(name: &str) -> bool {
    let parts = name.strip_suffix(SUFFIX).and_then(|name| name.rsplit_once('.'));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    parts.is_some_and(|(process, number)| {
        let is_number = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && !process.is_empty() && process.bytes().all(plain)
    })
}

/// The files of a folder, the one that changed first comes first. Links and other things are left out.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn list(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)?.take(MOST_FILES) {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.ends_with(SUFFIX) {
            continue;
        }
        // Links are not followed. A file that was deleted meanwhile is no error.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push(Found { name, size: metadata.len(), changed });
        }
    }
    found.sort_by(|a, b| (a.changed, &a.name).cmp(&(b.changed, &b.name)));
    Ok(found)
}

/// Distinguishes this folder from that of a replica with a disk of its own: the name of a mark in it. Empty without a mark.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn id(folder: &Path) -> io::Result<String> {
    let mut least: Option<String> = None;
    for entry in fs::read_dir(folder)?.take(MOST_FILES) {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let Some(name) = name.strip_suffix(MARK) else { continue };
        if least.as_deref().is_none_or(|least| name < least) {
            least = Some(name.to_owned());
        }
    }
    Ok(least.unwrap_or_default())
}

/// Marks a folder that has no mark. If two processes do so at once the lesser name counts from then on.
///
/// # Errors
/// If the folder cannot be read or written to.
pub(super) fn mark(folder: &Path, process: &str) -> io::Result<()> {
    if id(folder)?.is_empty() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .open(folder.join(format!("{:x}-{process}{MARK}", now.as_nanos())))?;
    }
    Ok(())
}

/// Makes the next file of a process, for its owner and group to read.
///
/// # Errors
/// When the folder cannot be read or the file not be made.
pub(super) fn create(folder: &Path, process: &str) -> io::Result<(String, File)> {
    let mut number =
        list(folder)?.iter().filter_map(|found| number_of(process, &found.name)).max().map_or(0, |n| n + 1);
    loop {
        let name = name_of(process, number);
        match File::options().write(true).create_new(true).mode(0o640).open(folder.join(&name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            made => return Ok((name, made?)),
        }
    }
}

/// Whether an open file was deleted.
pub(super) fn is_gone(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

/// Deletes a file.
pub(super) type Remove = fn(&Path) -> io::Result<()>;

/// The room that files have in a folder.
#[derive(Clone, Copy)]
pub(super) struct Quota<'a> {
    pub folder: &'a Path,
    /// Bytes of all files together.
    pub most: u64,
    /// The current file, which is not deleted.
    pub kept: &'a str,
    /// Whose it is.
    pub process: &'a str,
    /// On a file system without locks, for how long a file of another process may still be in use.
    pub patience: Duration,
    pub remove: Remove,
}

impl Quota<'_> {
    /// Deletes the oldest files while the total size is too large. A file that cannot be deleted stays, and does not keep others from being deleted.
    ///
    /// # Errors
    /// The first error, if the folder cannot be read or a file cannot be deleted. Everything else was done.
    pub fn shrink(&self) -> io::Result<()> {
        let files = list(self.folder)?;
        let mut total: u64 = files.iter().map(|file| file.size).sum();
        let mut stuck = Ok(());
        for file in files.iter().filter(|file| file.name != self.kept) {
            if total <= self.most {
                break;
            }
            match self.remove(&file.name) {
                Ok(()) => total -= file.size,
                failed => stuck = stuck.and(failed),
            }
        }
        stuck
    }

    /// Deletes files like [`Self::shrink`], those that are in the object store first. Counts the lines of files that had to be deleted before they
    /// were sent in `lost`.
    ///
    /// # Errors
    /// As for [`Self::shrink`].
    pub fn shrink_sent(&self, lost: &mut u64) -> io::Result<()> {
        let mut files = list(self.folder)?;
        let mut total: u64 = files.iter().map(|file| file.size).sum();
        files.retain(|file| file.name != self.kept);
        let (sent, unsent): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| is_sent(self.folder, file));
        let mut too_many = sent.len().saturating_sub(MOST_SENT);
        let mut stuck = Ok(());
        for file in &sent {
            if total <= self.most && too_many == 0 {
                break;
            }
            match self.remove(&file.name) {
                Ok(()) => (total, too_many) = (total - file.size, too_many.saturating_sub(1)),
                failed => stuck = stuck.and(failed),
            }
        }
        for file in unsent {
            if total <= self.most {
                break;
            }
            match self.remove_unsent(&file.name) {
                Ok(Some(lines)) => (total, *lost) = (total - file.size, lost.saturating_add(lines)),
                Ok(None) => {}
                Err(error) => stuck = stuck.and(Err(error)),
            }
        }
        stuck
    }

    /// Deletes a file that is not in the object store, and returns its number of lines; `None` if it is in use, which does not last long.
    fn remove_unsent(&self, name: &str) -> io::Result<Option<u64>> {
        let opened = match open_to_lock(self.folder, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return self.remove(name).map(|()| Some(0)),
            opened => opened?,
        };
        if !is_free(&opened, self.patience_with(name)) {
            return Ok(None);
        }
        let lines = lines_of(&opened)?;
        self.remove(name)?;
        // The lock was kept until the file was deleted: no other process began to send it meanwhile.
        drop(opened);
        Ok(Some(lines))
    }

    /// A process knows that it no longer writes to its own files, except to one.
    fn patience_with(&self, name: &str) -> Duration {
        if number_of(self.process, name).is_some() { Duration::ZERO } else { self.patience }
    }

    /// Deletes a file, and what is noted of it. Another replica may have deleted it, too.
    fn remove(&self, name: &str) -> io::Result<()> {
        match (self.remove)(&self.folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A note without its file says nothing.
        let _ = fs::remove_file(self.folder.join(format!("{name}{SENT}")));
        Ok(())
    }
}

/// Notes that a file is in the object store as it was when it had changed last at this time. The note has that time, whatever a clock says.
///
/// # Errors
/// When the note cannot be made.
pub(super) fn mark_sent(folder: &Path, name: &str, changed: SystemTime) -> io::Result<()> {
    let note = folder.join(format!("{name}{SENT}"));
    // A note from before the file grew, or a link that another user put there, is replaced.
    match fs::remove_file(&note) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = File::options().write(true).create_new(true).mode(0o640).open(note)?;
    file.set_modified(changed)
}

/// Whether a file was noted to be in the object store, and was not written to since.
pub(super) fn is_sent(folder: &Path, found: &Found) -> bool {
    let note = fs::symlink_metadata(folder.join(format!("{}{SENT}", found.name)));
    note.is_ok_and(|note| note.is_file() && note.modified().is_ok_and(|noted| noted == found.changed))
}

/// Files that have to be sent: not empty, and not noted as sent.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn unsent(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = list(folder)?;
    found.retain(|file| file.size > 0 && is_of_a_process(&file.name) && !is_sent(folder, file));
    Ok(found)
}

/// Whether a file is neither written by its process nor sent by another. On a file system without locks its age decides.
pub(super) fn is_free(file: &File, patience: Duration) -> bool {
    match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => {
            let changed = file.metadata().and_then(|metadata| metadata.modified());
            changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age >= patience))
        }
    }
}

fn lines_of(file: &File) -> io::Result<u64> {
    let mut reader = BufReader::new(file);
    let mut lines = 0;
    loop {
        let part = reader.fill_buf()?;
        if part.is_empty() {
            return Ok(lines);
        }
        lines += u64::try_from(part.split(|byte| *byte == b'\n').count() - 1).unwrap_or(u64::MAX);
        let bytes = part.len();
        reader.consume(bytes);
    }
}

/// Opens a file that was listed, to read it; not through a link that was put in its place.
///
/// # Errors
/// When it is gone, cannot be read, or is no file of the folder.
pub(super) fn open(folder: &Path, name: &str) -> io::Result<File> {
    open_with(folder, name, File::options().read(true))
}

/// Opens a file like [`open`], to lock it: NFS locks only what may be written to. Where that may not be, to read it.
///
/// # Errors
/// As for [`open`].
pub(super) fn open_to_lock(folder: &Path, name: &str) -> io::Result<File> {
    match open_with(folder, name, File::options().read(true).write(true)) {
        Err(error) if error.kind() != ErrorKind::NotFound => open(folder, name),
        opened => opened,
    }
}

fn open_with(folder: &Path, name: &str, how: &OpenOptions) -> io::Result<File> {
    if name.contains('/') || !name.ends_with(SUFFIX) {
        return Err(io::Error::new(ErrorKind::NotFound, "not a file of the journal"));
    }
    let path: PathBuf = folder.join(name);
    let named = fs::symlink_metadata(&path)?;
    if !named.is_file() {
        return Err(io::Error::new(ErrorKind::NotFound, "not a regular file"));
    }
    let file = how.open(&path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
        return Err(io::Error::new(ErrorKind::NotFound, "replaced while it was opened"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
