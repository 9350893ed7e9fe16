//! The files of a folder: `NAME.NUMBER.jsonl`, where NAME is that of the process and NUMBER counts up.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const SUFFIX: &str = ".jsonl";
/// What ends the name of the file that tells one folder from another.
const MARK: &str = ".id";
/// What ends the name of the empty file that says of another one that it is in the object store.
const SENT: &str = ".sent";
/// So many files that are in the object store stay in the folder.
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

/// Whether a file of the folder is one that a process like this one made: others are not sent anywhere.
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
/// When the folder cannot be read.
pub(super) fn list(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)?.take(MOST_FILES) {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.ends_with(SUFFIX) {
            continue;
        }
        // Not followed where it is a link. One that is gone by now is no error.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push(Found { name, size: metadata.len(), changed });
        }
    }
    found.sort_by(|a, b| (a.changed, &a.name).cmp(&(b.changed, &b.name)));
    Ok(found)
}

/// What tells this folder from that of a replica with a disk of its own: the name of a mark in it. Empty without a mark.
///
/// # Errors
/// When the folder cannot be read.
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

/// Marks a folder that has no mark. Where two processes do so at once the lesser name counts from then on.
///
/// # Errors
/// When the folder cannot be read or written to.
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

/// Whether a file that is open was deleted.
pub(super) fn is_gone(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

/// Deletes the oldest files while all together have more bytes than that. The named one stays.
///
/// # Errors
/// When the folder cannot be read.
pub(super) fn shrink(folder: &Path, most: u64, kept: &str) -> io::Result<()> {
    let files = list(folder)?;
    let mut total: u64 = files.iter().map(|file| file.size).sum();
    for file in files.iter().filter(|file| file.name != kept) {
        if total <= most {
            break;
        }
        remove(folder, &file.name)?;
        total -= file.size;
    }
    Ok(())
}

/// Notes that a file is in the object store as it was when it had changed last at this time. The note has that time, whatever a clock says.
///
/// # Errors
/// When the note cannot be made.
pub(super) fn mark_sent(folder: &Path, name: &str, changed: SystemTime) -> io::Result<()> {
    let note = folder.join(format!("{name}{SENT}"));
    // One from before the file grew, or a link that someone put there, is not written to.
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

/// Files that are to be sent: not empty, and not noted as sent.
///
/// # Errors
/// When the folder cannot be read.
pub(super) fn unsent(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = list(folder)?;
    found.retain(|file| file.size > 0 && is_of_a_process(&file.name) && !is_sent(folder, file));
    Ok(found)
}

/// Whether a file is not written to by its process, nor sent by another. Where the file system has no locks that is known from its age.
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

/// Deletes files like [`shrink`], and those that are in the object store first. What had to be deleted before it was sent is given, in lines.
///
/// # Errors
/// When the folder cannot be read.
pub(super) fn shrink_sent(folder: &Path, most: u64, kept: &str, lost: &mut u64) -> io::Result<()> {
    let mut files = list(folder)?;
    let mut total: u64 = files.iter().map(|file| file.size).sum();
    files.retain(|file| file.name != kept);
    let is_kept = |file: &Found| is_of_a_process(&file.name) && !is_sent(folder, file);
    let (unsent, sent): (Vec<_>, Vec<_>) = files.into_iter().partition(is_kept);
    let too_many = sent.len().saturating_sub(MOST_SENT);
    for (at, file) in sent.iter().enumerate() {
        if total <= most && at >= too_many {
            break;
        }
        remove(folder, &file.name)?;
        total -= file.size;
    }
    for file in unsent {
        if total <= most {
            break;
        }
        let lines = match open(folder, &file.name) {
            // One that is written to or is being sent is not in the way for long.
            Ok(opened) if !is_free(&opened, Duration::ZERO) => continue,
            Ok(opened) => lines_of(opened)?,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        remove(folder, &file.name)?;
        total -= file.size;
        *lost += lines;
    }
    Ok(())
}

/// Deletes a file, and what is noted of it. Another replica may have deleted it, too.
fn remove(folder: &Path, name: &str) -> io::Result<()> {
    // A note without its file says nothing.
    let _ = fs::remove_file(folder.join(format!("{name}{SENT}")));
    match fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn lines_of(file: File) -> io::Result<u64> {
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

/// Opens a file that was listed; not through a link that was put in its place.
///
/// # Errors
/// When it is gone, cannot be read, or is no file of the folder.
pub(super) fn open(folder: &Path, name: &str) -> io::Result<File> {
    if name.contains('/') || !name.ends_with(SUFFIX) {
        return Err(io::Error::new(ErrorKind::NotFound, "not a file of the journal"));
    }
    let path: PathBuf = folder.join(name);
    let named = fs::symlink_metadata(&path)?;
    if !named.is_file() {
        return Err(io::Error::new(ErrorKind::NotFound, "not a regular file"));
    }
    let file = File::open(&path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
        return Err(io::Error::new(ErrorKind::NotFound, "replaced while it was opened"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_on_and_leaves_others_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<_> = ["a", "b", "a", "a.b"]
            .map(|process| create(folder.path(), process).unwrap().0)
            .into_iter()
            .collect();
        assert_eq!(names, ["a.00000000.jsonl", "b.00000000.jsonl", "a.00000001.jsonl", "a.b.00000000.jsonl"]);
    }

    #[test]
    fn the_oldest_files_go_first_and_the_open_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, age| {
            let path = folder.path().join(name);
            fs::write(&path, [b'x'; 100]).unwrap();
            let time = SystemTime::now() - std::time::Duration::from_secs(age);
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        at("a.00000000.jsonl", 30);
        at("a.00000001.jsonl", 20);
        at("b.00000000.jsonl", 10);
        at("other.txt", 40);
        shrink(folder.path(), 150, "a.00000000.jsonl").unwrap();
        let left: Vec<_> = list(folder.path()).unwrap().into_iter().map(|found| found.name).collect();
        assert_eq!(left, ["a.00000000.jsonl"]);
        assert!(folder.path().join("other.txt").exists());
    }

    #[test]
    fn a_folder_has_one_id_that_no_other_folder_has() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(id(one.path()).unwrap(), "");
        mark(one.path(), "a").unwrap();
        let marked = id(one.path()).unwrap();
        mark(one.path(), "b").unwrap();
        mark(other.path(), "a").unwrap();
        assert_eq!(id(one.path()).unwrap(), marked);
        assert!(!marked.is_empty() && marked != id(other.path()).unwrap());
    }

    fn written(folder: &Path, name: &str, lines: usize, age: u64) {
        let path = folder.join(name);
        fs::write(&path, "{}\n".repeat(lines)).unwrap();
        let time = SystemTime::now() - Duration::from_secs(age);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    /// Notes that a file is sent as it is.
    fn sent(folder: &Path, name: &str) {
        let found = list(folder).unwrap().into_iter().find(|found| found.name == name).unwrap();
        mark_sent(folder, name, found.changed).unwrap();
    }

    fn names(files: Vec<Found>) -> Vec<String> {
        files.into_iter().map(|found| found.name).collect()
    }

    #[test]
    fn what_was_sent_goes_first_and_lines_that_were_not_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for (name, age) in [("a.00000000.jsonl", 50), ("a.00000001.jsonl", 40), ("b.00000000.jsonl", 30)] {
            written(path, name, 10, age);
        }
        sent(path, "b.00000000.jsonl");
        assert_eq!(names(unsent(path).unwrap()), ["a.00000000.jsonl", "a.00000001.jsonl"]);
        let mut lost = 0;
        shrink_sent(path, 60, "", &mut lost).unwrap();
        assert_eq!((names(list(path).unwrap()).len(), lost), (2, 0), "the one that was sent made room");
        assert!(!path.join("b.00000000.jsonl.sent").exists());
        shrink_sent(path, 30, "", &mut lost).unwrap();
        assert_eq!((names(list(path).unwrap()), lost), (vec!["a.00000001.jsonl".to_owned()], 10));
        // One that is being sent stays until it is.
        let sending = open(path, "a.00000001.jsonl").unwrap();
        assert!(is_free(&sending, Duration::ZERO));
        shrink_sent(path, 0, "", &mut lost).unwrap();
        assert_eq!((names(list(path).unwrap()).len(), lost), (1, 10));
    }

    #[test]
    fn a_file_that_grew_after_it_was_sent_is_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), "a.00000000.jsonl", 1, 30);
        sent(folder.path(), "a.00000000.jsonl");
        assert_eq!(unsent(folder.path()).unwrap(), []);
        let later = SystemTime::now() + Duration::from_secs(5);
        let file = File::options().append(true).open(folder.path().join("a.00000000.jsonl")).unwrap();
        file.set_modified(later).unwrap();
        assert_eq!(names(unsent(folder.path()).unwrap()), ["a.00000000.jsonl"]);
        // The clock went back meanwhile: the note counts all the same, and no link is followed for it.
        let secret = folder.path().join("secret");
        fs::write(&secret, "x").unwrap();
        let note = folder.path().join("a.00000000.jsonl.sent");
        fs::remove_file(&note).unwrap();
        std::os::unix::fs::symlink(&secret, note).unwrap();
        sent(folder.path(), "a.00000000.jsonl");
        assert_eq!(unsent(folder.path()).unwrap(), []);
        assert_eq!(fs::read_to_string(secret).unwrap(), "x");
    }

    #[test]
    fn only_files_that_a_process_made_are_sent() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["pod-1.00000000.jsonl", "..00000000.jsonl", "a b.00000000.jsonl", "old.jsonl", "a.1.jsonl"]
        {
            written(folder.path(), name, 1, 1);
        }
        fs::write(folder.path().join("empty.00000000.jsonl"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("c.00000000.jsonl")).unwrap();
        assert_eq!(names(unsent(folder.path()).unwrap()), ["pod-1.00000000.jsonl"]);
    }

    #[test]
    fn files_that_were_sent_stay_in_a_bounded_number() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MOST_SENT + 3 {
            let name = name_of("a", u64::try_from(number).unwrap());
            let file = File::create(folder.path().join(&name)).unwrap();
            mark_sent(folder.path(), &name, file.metadata().unwrap().modified().unwrap()).unwrap();
        }
        shrink_sent(folder.path(), 1 << 20, "", &mut 0).unwrap();
        assert_eq!(list(folder.path()).unwrap().len(), MOST_SENT);
    }

    #[test]
    fn links_are_neither_listed_nor_opened() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "x").unwrap();
        std::os::unix::fs::symlink(&secret, folder.path().join("a.00000000.jsonl")).unwrap();
        assert_eq!(list(folder.path()).unwrap(), []);
        assert!(open(folder.path(), "a.00000000.jsonl").is_err());
        assert!(open(folder.path(), "../a.jsonl").is_err() && open(folder.path(), "secret").is_err());
    }
}
