//! Reads the files, a page of lines at a time.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use sluice_api::journal::{Line, MOST_LINE};

use super::files::{self, Found};

/// Lines of a page, unless fewer are asked for.
pub const MOST_LINES: usize = 5_000;
/// Bytes of lines that a page is made from at most.
const MOST_BYTES: u64 = 16 << 20;
/// How many files have their first line read: each process has one that begins its part.
const MOST_FIRST: usize = 16;

/// The parameters of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Lines from then on.
    pub since: Timestamp,
    /// How many to return at most.
    pub limit: usize,
    /// Where the page before ended.
    pub token: Option<String>,
}

/// A page.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The lines; those of one file are in the order in which they were written.
    pub lines: Vec<Line>,
    /// Where the next page begins, if there may be more.
    pub token: Option<String>,
    /// The time of the first line that there is, of whatever time; only with the first page.
    pub oldest: Option<Timestamp>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The token is not one of ours.
    #[error("continue: the token is not from an earlier page of this replica; begin again")]
    Token,
    /// The files cannot be read.
    #[error("the journal cannot be read")]
    Files(#[from] io::Error),
}

/// Reads the journal of a folder.
#[derive(Clone, Debug)]
pub struct Reader {
    folder: PathBuf,
}

impl Reader {
    /// A reader of the files in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// A page; blocks while it reads at most 16 MiB.
    ///
    /// # Errors
    /// If the token does not come from an earlier page, or the files cannot be read.
    pub fn page(&self, asked: &Asked) -> Result<Page, JournalError> {
        let id = files::id(&self.folder)?;
        let begin = asked.token.as_deref().map(|token| parse(token, &id)).transpose()?;
        let mut found = files::list(&self.folder)?;
        let oldest = if begin.is_none() { self.oldest(&found) } else { None };
        // By name, which does not change while pages are read.
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let since = SystemTime::from(asked.since);
        let mut page = Page { lines: Vec::new(), token: None, oldest };
        let mut read = 0;
        for Found { name, .. } in found.into_iter().filter(|found| found.changed >= since) {
            let offset = match &begin {
                Some((at, _)) if name < *at => continue,
                Some((at, offset)) if name == *at => *offset,
                _ => 0,
            };
            let end = match self.file(&name, offset, asked, &mut read, &mut page.lines) {
                // Deleted meanwhile: it was the oldest.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                end => end?,
            };
            if let Some(end) = end {
                page.token = Some(format!("{id}/{name}@{end}"));
                break;
            }
        }
        Ok(page)
    }

    /// The time of the first line of the files that changed first, which come first.
    fn oldest(&self, found: &[Found]) -> Option<Timestamp> {
        let mut oldest: Option<Timestamp> = None;
        for Found { name, .. } in found.iter().take(MOST_FIRST) {
            let first = Asked { since: Timestamp::MIN, limit: 1, token: None };
            let mut lines = Vec::new();
            // A first line that cannot be read has no time, and may be older than requested.
            let _ = self.file(name, 0, &first, &mut 0, &mut lines);
            let first = lines.first().map(Line::at);
            oldest = oldest.into_iter().chain(first).min();
        }
        oldest
    }

    /// Reads a file from an offset on, and gives where it ended if the page is full.
    fn file(
        &self,
        name: &str,
        offset: u64,
        asked: &Asked,
        read: &mut u64,
        lines: &mut Vec<Line>,
    ) -> io::Result<Option<u64>> {
        let mut file = files::open(&self.folder, name)?;
        file.seek(SeekFrom::Start(offset))?;
        let (mut at, mut file) = (offset, BufReader::new(file));
        let mut text = Vec::new();
        loop {
            if lines.len() >= asked.limit.clamp(1, MOST_LINES) || *read >= MOST_BYTES {
                return Ok(Some(at));
            }
            text.clear();
            let most = u64::try_from(MOST_LINE).unwrap_or(u64::MAX);
            let bytes = u64::try_from((&mut file).take(most).read_until(b'\n', &mut text)?).unwrap_or(0);
            if bytes == 0 {
                return Ok(None);
            }
            (at, *read) = (at + bytes, *read + bytes);
            // A line that is being written, or was cut by the end of a process, is skipped; and so is one that is too long.
            if let Ok(line) = serde_json::from_slice::<Line>(&text)
                && line.at() >= asked.since
            {
                lines.push(line);
            }
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// A file and an offset, if the token belongs to this folder. Another replica, with a disk of its own, may have given it out.
fn parse(token: &str, id: &str) -> Result<(String, u64), JournalError> {
    let (of, token) = token.split_once('/').ok_or(JournalError::Token)?;
    if of != id {
        return Err(JournalError::Token);
    }
    let (name, offset) = token.rsplit_once('@').ok_or(JournalError::Token)?;
    Ok((name.to_owned(), offset.parse().map_err(|_| JournalError::Token)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::journal::LostLine;

    fn line(second: i64, lost: u64) -> String {
        let line = Line::Lost(LostLine { at: Timestamp::from_second(second).unwrap(), lost });
        serde_json::to_string(&line).unwrap() + "\n"
    }

    fn all(reader: &Reader, since: i64, limit: usize) -> Vec<u64> {
        let since = Timestamp::from_second(since).unwrap();
        let mut asked = Asked { since, limit, token: None };
        let mut numbers = Vec::new();
        loop {
            let page = reader.page(&asked).unwrap();
            assert!(page.lines.len() <= limit);
            numbers.extend(page.lines.iter().map(|line| match line {
                Line::Lost(line) => line.lost,
                other => panic!("{other:?}"),
            }));
            asked.token = page.token;
            if asked.token.is_none() {
                return numbers;
            }
        }
    }

    #[test]
    fn pages_give_every_line_once_over_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let text = |range: std::ops::Range<u64>| range.map(|n| line(10, n)).collect::<String>();
        std::fs::write(folder.path().join("a.00000000.jsonl"), text(0..7)).unwrap();
        std::fs::write(folder.path().join("a.00000001.jsonl"), text(7..9)).unwrap();
        std::fs::write(folder.path().join("b.00000000.jsonl"), text(9..20)).unwrap();
        let reader = Reader::new(folder.path());
        for limit in [1, 3, 7, 100] {
            assert_eq!(all(&reader, 0, limit), (0..20).collect::<Vec<_>>(), "{limit}");
        }
        assert!(all(&reader, 11, 100).is_empty());
    }

    #[test]
    fn the_first_page_says_when_the_journal_begins() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, second: i64| {
            std::fs::write(folder.path().join(name), line(second, 1) + &line(second + 9, 2)).unwrap();
        };
        let reader = Reader::new(folder.path());
        let asked = |token| Asked { since: Timestamp::from_second(50).unwrap(), limit: 1, token };
        assert_eq!(reader.page(&asked(None)).unwrap().oldest, None);
        file("b.00000000.jsonl", 30);
        file("a.00000000.jsonl", 60);
        let first = reader.page(&asked(None)).unwrap();
        assert_eq!(first.oldest, Some(Timestamp::from_second(30).unwrap()));
        assert!(first.token.is_some());
        assert_eq!(reader.page(&asked(first.token)).unwrap().oldest, None);
    }

    #[test]
    fn a_file_that_cannot_be_read_does_not_hide_when_the_journal_begins() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.00000000.jsonl"), line(30, 1)).unwrap();
        let reader = Reader::new(folder.path());
        let mut found = files::list(folder.path()).unwrap();
        // The system takes no name of that length.
        found.insert(0, Found { name: format!("{}.jsonl", "x".repeat(300)), ..found[0].clone() });
        let name = found[0].name.clone();
        let error = files::open(folder.path(), &name).unwrap_err();
        assert_ne!(error.kind(), ErrorKind::NotFound, "{error}");
        assert_eq!(reader.oldest(&found), Some(Timestamp::from_second(30).unwrap()));
    }

    #[test]
    fn broken_and_half_lines_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(MOST_LINE + 10);
        // Of a later version.
        let later = "{\"at\":\"2026-01-01T00:00:00Z\",\"unheard\":1}\n{\"at\":\"2026-01-01T00:00:00Z\",\"namespace\":\"a\",\
                     \"workload\":\"w\",\"uid\":\"u\",\"what\":\"Unheard\"}\n";
        let text = format!("{}not json\n{long}\n\n{later}{}{}", line(1, 1), line(2, 2), &line(3, 3)[..10]);
        std::fs::write(folder.path().join("a.00000000.jsonl"), text).unwrap();
        assert_eq!(all(&Reader::new(folder.path()), 0, 100), [1, 2]);
    }

    #[test]
    fn a_token_that_no_page_said_is_refused_or_finds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let secret = tempfile::tempdir().unwrap();
        std::fs::write(secret.path().join("a.jsonl"), line(1, 1)).unwrap();
        let reader = Reader::new(folder.path());
        let asked =
            |token: &str| Asked { since: Timestamp::UNIX_EPOCH, limit: 10, token: Some(token.to_owned()) };
        for wrong in ["a", "/a", "/a@-1", "other/a.jsonl@0", ""] {
            assert!(matches!(reader.page(&asked(wrong)), Err(JournalError::Token)), "{wrong}");
        }
        let elsewhere = format!("/{}/a.jsonl@0", secret.path().display());
        assert_eq!(reader.page(&asked(&elsewhere)).unwrap().lines, []);
    }
}
