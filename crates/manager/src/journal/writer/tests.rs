use std::path::Path;

use super::*;
use crate::metrics;
use crate::metrics::registry::Role;
use crate::supervise::tests::supervisor;
use sluice_api::journal::QuotaLine;

fn registry() -> Arc<Registry> {
    Arc::new(Registry::new(metrics::definitions(&[]), Role::Leader).unwrap())
}

const DISK: Disk = Disk { make: files::create, remove: |path| std::fs::remove_file(path), pause: PAUSE };

/// A journal with room for `buffer` lines before it.
fn with(supervisor: &Supervisor, section: &config::Journal, buffer: usize) -> Journal {
    Journal::with(supervisor, section, "pod", (buffer, DISK, None), Lost::new(registry())).unwrap()
}

fn section(folder: &Path, file: &str, total: &str) -> config::Journal {
    let directory = folder.display().to_string();
    let (max_file_size, max_total_size) = (file.to_owned(), total.to_owned());
    config::Journal { directory, max_file_size, max_total_size, ..config::Journal::default() }
}

fn line(number: usize) -> Line {
    let (at, cluster_queue, cohort) = (Timestamp::UNIX_EPOCH, format!("queue-{number}"), "c".repeat(900));
    Line::Quota(QuotaLine { at, cluster_queue, cohort, ..QuotaLine::default() })
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
    let journal = Journal::start(&supervisor, &section(folder.path(), "1Mi", "8Mi"), "pod", registry(), None);
    let journal = journal.unwrap();
    (0..100).for_each(|number| journal.put(line(number)));
    drop(journal);
    assert_eq!(read(folder.path()), (0..100).map(line).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_files_together_stay_within_their_bound_and_the_newest_lines_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (supervisor, _fatal, _stopper) = supervisor();
    let section = section(folder.path(), "1Mi", "2Mi");
    let journal = with(&supervisor, &section, 1 << 20);
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
    let journal = with(&supervisor, &section(folder.path(), "64Mi", "1Gi"), 1);
    (0..5000).for_each(|number| journal.put(line(number)));
    drop(journal);
    let lines = read(folder.path());
    let (written, lost) = counts(&lines);
    assert_eq!(lost + written, 5000);
}

/// Lines, and how many the others say are missing.
fn counts(lines: &[Line]) -> (u64, u64) {
    let lost = |line: &Line| if let Line::Lost(lost) = line { Some(lost.lost) } else { None };
    let said: Vec<u64> = lines.iter().filter_map(lost).collect();
    (u64::try_from(lines.len() - said.len()).unwrap(), said.iter().sum())
}

/// Every second file is on a disk that is full.
fn sometimes_full(folder: &Path, process: &str) -> io::Result<(String, File)> {
    let (name, file) = files::create(folder, process)?;
    let is_full = name.contains("1.") || name.contains("3.");
    Ok((name, if is_full { File::options().write(true).open("/dev/full")? } else { file }))
}

#[tokio::test]
async fn a_full_disk_costs_lines_that_are_counted_and_said_once_it_takes_some_again() {
    let folder = tempfile::tempdir().unwrap();
    let (supervisor, mut fatal, _stopper) = supervisor();
    let disk = Disk { make: sometimes_full, pause: Duration::ZERO, ..DISK };
    let registry = registry();
    let section = section(folder.path(), "1Mi", "64Mi");
    let lost = Lost::new(Arc::clone(&registry));
    let journal = Journal::with(&supervisor, &section, "pod", (1 << 20, disk, None), lost).unwrap();
    (0..5000).for_each(|number| journal.put(line(number)));
    drop(journal);
    let lines = read(folder.path());
    let (written, lost) = counts(&lines);
    assert_eq!(written + lost, 5000);
    assert!(lost > 0 && written > 4000, "{lost} of {written}");
    assert!(
        registry.text().contains(&format!("sluice_journal_lines_lost_total {lost}\n")),
        "{}",
        registry.text()
    );
    assert!(fatal.try_recv().is_err(), "the manager continues");
}

#[tokio::test]
async fn a_disk_that_stays_full_is_tried_seldom_and_everything_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (supervisor, mut fatal, _stopper) = supervisor();
    let full = |_: &Path, _: &str| Ok(("f".to_owned(), File::options().write(true).open("/dev/full")?));
    let registry = registry();
    let section = section(folder.path(), "1Mi", "64Mi");
    let disk = Disk { make: full, ..DISK };
    let lost = Lost::new(Arc::clone(&registry));
    let journal = Journal::with(&supervisor, &section, "pod", (1 << 20, disk, None), lost).unwrap();
    (0..5000).for_each(|number| journal.put(line(number)));
    drop(journal);
    assert!(registry.text().contains("sluice_journal_lines_lost_total 5000\n"), "{}", registry.text());
    assert!(fatal.try_recv().is_err(), "the manager continues");
}

#[tokio::test]
async fn files_for_a_store_are_closed_when_they_are_old_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (supervisor, _fatal, _stopper) = supervisor();
    let mut section = section(folder.path(), "1Mi", "8Mi");
    section.store.every = sluice_api::config::Duration::from_secs(1);
    let (closed, mut hears) = tokio::sync::watch::channel(());
    let journal = Journal::start(&supervisor, &section, "pod", registry(), Some(closed)).unwrap();
    let first = files::open(folder.path(), "pod.00000000.jsonl").unwrap();
    assert!(!files::is_free(&first, Duration::ZERO), "it is written to");
    journal.put(line(0));
    hears.changed().await.unwrap();
    assert!(files::is_free(&first, Duration::ZERO));
    journal.put(line(1));
    drop(journal);
    assert!(hears.changed().await.is_ok() && hears.changed().await.is_err());
    let sizes: Vec<_> = files::unsent(folder.path()).unwrap().into_iter().map(|file| file.size).collect();
    assert_eq!((sizes.len(), read(folder.path()).len()), (2, 2), "{sizes:?}");
}

#[tokio::test]
async fn no_file_for_a_store_grows_beyond_what_goes_there_in_one_request() {
    let folder = tempfile::tempdir().unwrap();
    let (supervisor, _fatal, _stopper) = supervisor();
    let (closed, _hears) = tokio::sync::watch::channel(());
    let section = section(folder.path(), "64Mi", "1Gi");
    let (lost, lines) = (Lost::new(registry()), 10_000);
    let journal = Journal::with(&supervisor, &section, "pod", (1 << 20, DISK, Some(closed)), lost).unwrap();
    (0..lines).for_each(|number| journal.put(line(number)));
    drop(journal);
    let sizes: Vec<_> = files::list(folder.path()).unwrap().into_iter().map(|file| file.size).collect();
    let most = u64::try_from(PART).unwrap();
    assert!(sizes.len() == 2 && sizes.iter().all(|size| *size <= most), "{sizes:?}");
    assert_eq!(read(folder.path()).len(), lines);
}

#[tokio::test]
async fn lines_that_made_room_before_they_were_sent_are_counted_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let (supervisor, _fatal, _stopper) = supervisor();
    let (closed, _hears) = tokio::sync::watch::channel(());
    let (registry, section) = (registry(), section(folder.path(), "1Mi", "2Mi"));
    let lost = Lost::new(Arc::clone(&registry));
    let journal = Journal::with(&supervisor, &section, "pod", (1 << 20, DISK, Some(closed)), lost).unwrap();
    (0..8000).for_each(|number| journal.put(line(number)));
    drop(journal);
    let (written, lost) = counts(&read(folder.path()));
    let text = registry.text();
    let counted = text.lines().find_map(|line| line.strip_prefix("sluice_journal_lines_lost_total "));
    let counted: u64 = counted.unwrap().parse().unwrap();
    assert!(counted > 4000 && lost > 0 && lost <= counted, "{lost} of {counted}");
    assert!(written + counted >= 8000, "{written} and {counted}");
}

#[tokio::test]
async fn files_that_cannot_be_deleted_cost_no_line_and_do_not_keep_the_manager_from_starting() {
    for is_stored in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("old-1.00000000.jsonl"), vec![b'\n'; 3 << 20]).unwrap();
        let (supervisor, _fatal, _stopper) = supervisor();
        let (closed, _hears) = tokio::sync::watch::channel(());
        let (registry, section) = (registry(), section(folder.path(), "1Mi", "2Mi"));
        let lost = Lost::new(Arc::clone(&registry));
        let disk = Disk { remove: |_| Err(io::ErrorKind::PermissionDenied.into()), ..DISK };
        let closed = is_stored.then_some(closed);
        let journal = Journal::with(&supervisor, &section, "pod", (1 << 20, disk, closed), lost).unwrap();
        (0..5000).for_each(|number| journal.put(line(number)));
        drop(journal);
        std::fs::remove_file(folder.path().join("old-1.00000000.jsonl")).unwrap();
        assert_eq!(counts(&read(folder.path())), (5000, 0));
        let is_counted = |line: &str| line.starts_with("sluice_journal_lines_lost_total");
        assert!(!registry.text().lines().any(is_counted), "{}", registry.text());
        assert!(files::list(folder.path()).unwrap().len() < 8);
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_an_error_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let (supervisor, _fatal, _stopper) = supervisor();
    let section = section(&file.join("in"), "1Mi", "8Mi");
    assert!(Journal::start(&supervisor, &section, "pod", registry(), None).is_err());
}
