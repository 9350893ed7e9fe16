//! The files of a folder: `NAME.NUMBER.jsonl`, where NAME is that of the process and NUMBER counts up.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const SUFFIX: &str = ".jsonl";
/// What ends the name of the file that tells one folder from another.
const MARK: &str = ".id";
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
        // Another replica may have deleted it, too.
        match fs::remove_file(folder.join(&file.name)) {
            Ok(()) => total -= file.size,
            Err(error) if error.kind() == ErrorKind::NotFound => total -= file.size,
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
