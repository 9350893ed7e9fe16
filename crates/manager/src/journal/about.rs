//! The journal's lines about one Workload.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::time::SystemTime;

use jiff::Timestamp;
use sluice_api::journal::{Line, MOST_LINE, WorkloadLine};

use super::files::{self, Found};
use super::page::Reader;

/// The highest number of bytes that are searched: those of the most recent files.
const MOST_BYTES: u64 = 64 << 20;
/// The highest number of lines in an answer: the last ones.
const MOST_LINES: usize = 200;

impl Reader {
    /// The lines about the Workload of this UID, which was made then, in the order of their times; blocks while it reads. Of a journal with more than
    /// 64 MiB since then, the last 64 MiB are read.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn about(&self, uid: &str, since: Timestamp) -> io::Result<Vec<WorkloadLine>> {
        self.about_in(uid, since, MOST_BYTES)
    }

    fn about_in(&self, uid: &str, since: Timestamp, most: u64) -> io::Result<Vec<WorkloadLine>> {
        let (mut left, mut lines) = (most, Vec::new());
        let since = SystemTime::from(since);
        for found in files::list(self.folder())?.into_iter().rev().take_while(|found| found.changed >= since)
        {
            match self.about_in_file(uid, &found, left, &mut lines) {
                // Deleted meanwhile: it was the oldest.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                read => read?,
            }
            left = left.saturating_sub(found.size);
            if left == 0 {
                break;
            }
        }
        // Every replica writes what it sees.
        lines.sort_by_key(|line| line.at);
        lines.dedup();
        let more = lines.len().saturating_sub(MOST_LINES);
        Ok(lines.split_off(more))
    }

    /// Reads this number of bytes at the end of a file.
    fn about_in_file(
        &self,
        uid: &str,
        found: &Found,
        most: u64,
        lines: &mut Vec<WorkloadLine>,
    ) -> io::Result<()> {
        let mut file = files::open(self.folder(), &found.name)?;
        file.seek(SeekFrom::Start(found.size.saturating_sub(most)))?;
        let mut file = BufReader::new(file.take(most));
        let mut text = Vec::new();
        loop {
            text.clear();
            let longest = u64::try_from(MOST_LINE).unwrap_or(u64::MAX);
            if (&mut file).take(longest).read_until(b'\n', &mut text)? == 0 {
                return Ok(());
            }
            // Most lines are about others, and need not be parsed.
            let may_be = std::str::from_utf8(&text).is_ok_and(|text| text.contains(uid));
            if may_be
                && let Ok(Line::Workload(line)) = serde_json::from_slice(&text)
                && line.uid == uid
            {
                lines.push(*line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: i64, uid: &str, what: &str) -> String {
        let at = Timestamp::from_second(second).unwrap();
        let line = serde_json::json!({
            "at": at.to_string(), "namespace": "a", "workload": "w", "uid": uid, "localQueue": "lq", "clusterQueue": "cq",
            "what": what, "reason": "Preempted", "message": "for u-other",
        });
        line.to_string() + "\n"
    }

    fn reported(reader: &Reader, uid: &str, most: u64) -> Vec<i64> {
        let lines = reader.about_in(uid, Timestamp::UNIX_EPOCH, most).unwrap();
        lines.into_iter().map(|line| line.at.as_second()).collect()
    }

    #[test]
    fn what_is_said_of_one_workload_is_found_once_in_the_files_of_all_replicas() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        let [first, second, other] =
            [line(20, "u-1", "Evicted"), line(10, "u-1", "Admitted"), line(15, "u-other", "Evicted")];
        write("a.00000000.jsonl", format!("{second}{other}not json u-1\n{first}"));
        write("b.00000000.jsonl", format!("{second}{first}{}", &line(30, "u-1", "Evicted")[..40]));
        let reader = Reader::new(folder.path());
        assert_eq!(reported(&reader, "u-1", MOST_BYTES), [10, 20]);
        assert_eq!(reported(&reader, "u-other", MOST_BYTES), [15], "it is named in messages of others");
        assert_eq!(reported(&reader, "u-2", MOST_BYTES), [0; 0]);
    }

    #[test]
    fn of_a_large_journal_the_end_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..300).map(|second| line(second, "u-1", "Evicted")).collect();
        std::fs::write(folder.path().join("a.00000000.jsonl"), &text).unwrap();
        let reader = Reader::new(folder.path());
        let last: Vec<i64> = (100..300).collect();
        assert_eq!(reported(&reader, "u-1", MOST_BYTES), last, "the last lines");
        let two = u64::try_from(2 * line(299, "u-1", "Evicted").len()).unwrap();
        assert_eq!(reported(&reader, "u-1", two + 3), [298, 299]);
    }
}
