use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Room for `most` bytes, as a process without files has it.
fn room(folder: &Path, most: u64) -> Quota<'_> {
    let remove: Remove = |path| fs::remove_file(path);
    Quota { folder, most, kept: "", process: "none", patience: Duration::ZERO, remove }
}

#[test]
fn a_process_counts_on_and_leaves_others_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<_> =
        ["a", "b", "a", "a.b"].map(|process| create(folder.path(), process).unwrap().0).into_iter().collect();
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
    Quota { kept: "a.00000000.jsonl", ..room(folder.path(), 150) }.shrink().unwrap();
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
    room(path, 60).shrink_sent(&mut lost).unwrap();
    assert_eq!((names(list(path).unwrap()).len(), lost), (2, 0), "the one that was sent made room");
    assert!(!path.join("b.00000000.jsonl.sent").exists());
    room(path, 30).shrink_sent(&mut lost).unwrap();
    assert_eq!((names(list(path).unwrap()), lost), (vec!["a.00000001.jsonl".to_owned()], 10));
    // One that is being sent stays until it is.
    let sending = open(path, "a.00000001.jsonl").unwrap();
    assert!(is_free(&sending, Duration::ZERO));
    room(path, 0).shrink_sent(&mut lost).unwrap();
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
    for name in ["pod-1.00000000.jsonl", "..00000000.jsonl", "a b.00000000.jsonl", "old.jsonl", "a.1.jsonl"] {
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
    room(folder.path(), 1 << 20).shrink_sent(&mut 0).unwrap();
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

/// As with a file that has the attribute "immutable".
fn keeps_the_first(path: &Path) -> io::Result<()> {
    let is_first = path.ends_with("a.00000000.jsonl");
    if is_first { Err(ErrorKind::PermissionDenied.into()) } else { fs::remove_file(path) }
}

#[test]
fn a_file_that_cannot_be_deleted_is_not_in_the_way_of_others() {
    for sent_first in [None, Some("a.00000000.jsonl")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for (name, age) in [("a.00000000.jsonl", 50), ("a.00000001.jsonl", 40), ("b.00000000.jsonl", 30)] {
            written(path, name, 10, age);
        }
        if let Some(name) = sent_first {
            sent(path, name);
        }
        let mut lost = 0;
        let room = Quota { remove: keeps_the_first, ..room(path, 60) };
        assert_eq!(room.shrink_sent(&mut lost).unwrap_err().kind(), ErrorKind::PermissionDenied);
        let left = ["a.00000000.jsonl".to_owned(), "b.00000000.jsonl".to_owned()];
        assert_eq!((names(list(path).unwrap()), lost), (left.to_vec(), 10));
        let noted = path.join("a.00000000.jsonl.sent").exists();
        assert_eq!(noted, sent_first.is_some(), "what stays in the store's books");
        assert!(Quota { most: 30, ..room }.shrink().is_err());
        assert_eq!(names(list(path).unwrap()), left[..1]);
    }
}

#[test]
fn what_no_process_made_is_deleted_in_its_turn_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "a.00000000.jsonl", 10, 50);
    written(folder.path(), "kept-by-hand.jsonl", 10, 40);
    let mut lost = 0;
    room(folder.path(), 30).shrink_sent(&mut lost).unwrap();
    assert_eq!((names(list(folder.path()).unwrap()), lost), (vec!["kept-by-hand.jsonl".to_owned()], 10));
    room(folder.path(), 0).shrink_sent(&mut lost).unwrap();
    assert_eq!((names(list(folder.path()).unwrap()), lost), (vec![], 20));
}

#[test]
fn a_file_is_opened_so_that_nfs_can_lock_it_if_that_may_be() {
    let (folder, name) = (tempfile::tempdir().unwrap(), "a.00000000.jsonl");
    written(folder.path(), name, 1, 30);
    let changed = list(folder.path()).unwrap();
    let mut file = open_to_lock(folder.path(), name).unwrap();
    assert_eq!(list(folder.path()).unwrap(), changed);
    file.write_all(b"{}\n{}\n").unwrap();
    assert_eq!(lines_of(&open(folder.path(), name).unwrap()).unwrap(), 2);
    assert!(open(folder.path(), name).unwrap().write_all(b"x").is_err());
    fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o440)).unwrap();
    assert_eq!(lines_of(&open_to_lock(folder.path(), name).unwrap()).unwrap(), 2);
}

#[test]
fn where_there_are_no_locks_the_age_of_another_processs_file_says_whether_it_is_free() {
    let (folder, name) = (tempfile::tempdir().unwrap(), "a.00000000.jsonl");
    written(folder.path(), name, 1, 30);
    // A handle of the path alone (O_PATH) cannot be locked.
    let file = File::options().read(true).custom_flags(0o10_000_000).open(folder.path().join(name)).unwrap();
    assert!(matches!(file.try_lock(), Err(TryLockError::Error(_))));
    let mut room = Quota { patience: Duration::from_mins(1), ..room(folder.path(), 0) };
    assert!(!is_free(&file, room.patience_with(name)));
    room.process = "a";
    assert!(is_free(&file, room.patience_with(name)));
    room = Quota { process: "b", patience: Duration::from_secs(20), ..room };
    assert!(is_free(&file, room.patience_with(name)));
}
