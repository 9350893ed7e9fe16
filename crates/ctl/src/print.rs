//! Output of commands to the terminal.

use std::fmt::Write as _;
use std::io::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_sim::explain::plain;

/// Blanks after the widest cell of a column, as in kubectl's tables.
const PADDING: usize = 3;
/// The narrowest column of kubectl's tables, with its padding.
const NARROWEST: usize = 6;

/// A year, and two and eight of them, in seconds.
const YEAR: i64 = 365 * 86_400;
const TWO_YEARS: i64 = 2 * YEAR;
const EIGHT_YEARS: i64 = 8 * YEAR;

/// Writes to standard output. A closed pipe is no error: its reader has seen enough.
///
/// # Errors
/// When the text cannot be written for any other reason.
pub fn print(text: &str) -> std::io::Result<()> {
    is_read(text).map(drop)
}

/// Writes a line to standard output, as [`print`] does.
///
/// # Errors
/// When the line cannot be written, unless the pipe is closed.
pub fn line(text: &str) -> std::io::Result<()> {
    print(&format!("{text}\n"))
}

/// Writes to standard output; whether someone still reads.
///
/// # Errors
/// When the text cannot be written, unless the pipe is closed.
pub fn is_read(text: &str) -> std::io::Result<bool> {
    put(&mut std::io::stdout().lock(), text)
}

/// Writes all of a text. What stays in a buffer would be lost without an error if the disk is full when the process ends.
fn put(output: &mut impl std::io::Write, text: &str) -> std::io::Result<bool> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a line to standard error, or a message of several; whether someone still reads. What names and messages of others contain does not
/// act on a terminal.
pub fn say(text: &str) -> bool {
    std::io::stderr().write_all((plain::lines(text) + "\n").as_bytes()).is_ok()
}

/// Prints kubectl's message to standard error when a list is empty. `namespace` is the namespace that was listed, or `None` for all.
pub fn nothing_found(namespace: Option<&str>) {
    match namespace {
        Some(namespace) => say(&format!("No resources found in {namespace} namespace.")),
        None => say("No resources found"),
    };
}

/// A table as kubectl writes it: each column as wide as its widest cell and three blanks, the last as wide as its cell. What cells contain does
/// not act on a terminal.
pub fn table(headings: &[&str], rows: &[Vec<String>], with_headings: bool) -> String {
    let headings: Vec<String> = headings.iter().map(ToString::to_string).collect();
    let lines: Vec<Vec<String>> = with_headings
        .then_some(&headings)
        .into_iter()
        .chain(rows)
        .map(|line| line.iter().map(|cell| plain::whole(cell)).collect())
        .collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count());
        (cells.max().unwrap_or(0) + PADDING).max(NARROWEST)
    };
    let widths: Vec<_> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let Some((last, cells)) = line.split_last() else { continue };
        for (cell, width) in cells.iter().zip(&widths) {
            // Writing into a String does not fail.
            let _ = write!(text, "{cell:<width$}");
        }
        text.push_str(last);
        text.push('\n');
    }
    text
}

/// How long ago a time of the API was, as kubectl shows ages; `<unknown>` without one.
pub fn age(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => lasted(now.duration_since(time)),
        None => "<unknown>".to_owned(),
    }
}

/// A duration as kubectl shows ages: `45s`, `3m20s`, `25m`, `5h10m`, `30h`, `3d4h`, `40d`, `2y35d`, `8y`. A year has
/// 365 days.
pub fn lasted(duration: SignedDuration) -> String {
    let s = duration.as_secs().max(0);
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    let two = |a: i64, unit: &str, b: i64, small: &str| {
        if b == 0 { format!("{a}{unit}") } else { format!("{a}{unit}{b}{small}") }
    };
    match s {
        ..120 => format!("{s}s"),
        120..600 => two(m, "m", s % 60, "s"),
        600..10_800 => format!("{m}m"),
        10_800..28_800 => two(h, "h", m % 60, "m"),
        28_800..172_800 => format!("{h}h"),
        172_800..691_200 => two(d, "d", h % 24, "h"),
        691_200..TWO_YEARS => format!("{d}d"),
        TWO_YEARS..EIGHT_YEARS => two(d / 365, "y", d % 365, "d"),
        _ => format!("{}y", d / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let shown = |seconds| lasted(SignedDuration::from_secs(seconds));
        let all: Vec<_> = [-1, 119, 200, 1500, 18_600, 108_000, 273_600, 3_456_000].map(shown).into();
        assert_eq!(all, ["0s", "119s", "3m20s", "25m", "5h10m", "30h", "3d4h", "40d"]);
        let days = |days: i64| shown(days * 86_400);
        let all = [729, 730, 765, 2919, 2920, 4000].map(days);
        assert_eq!(all, ["729d", "2y", "2y35d", "7y364d", "8y", "10y"]);
    }

    #[test]
    fn a_full_disk_is_an_error_although_the_text_has_no_end_of_line() {
        struct Fails(std::io::ErrorKind);
        impl std::io::Write for Fails {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(self.0.into())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let written = |kind| put(&mut std::io::LineWriter::new(Fails(kind)), "main");
        assert!(written(std::io::ErrorKind::StorageFull).is_err());
        assert!(!written(std::io::ErrorKind::BrokenPipe).unwrap());
    }

    /// The expected text is what kubectl 1.36 prints for the same cells.
    #[test]
    fn columns_are_padded_as_kubectl_pads_them() {
        let rows = [vec!["a".to_owned(), String::new(), "x".to_owned(), "5m".to_owned()]];
        let headings = ["NAME", "COHORT", "A", "AGE"];
        assert_eq!(table(&headings, &rows, true), "NAME   COHORT   A     AGE\na               x     5m\n");
        assert_eq!(table(&headings, &rows, false), "a           x     5m\n");
        assert_eq!(table(&headings, &[], true), "NAME   COHORT   A     AGE\n");
    }

    #[test]
    fn what_cells_contain_does_not_act_on_a_terminal() {
        let rows = [vec!["\u{1b}[2J\u{9b}\r".to_owned(), "\u{202e}\n".to_owned()]];
        let shown = table(&["A", "B"], &rows, false);
        assert_eq!(shown, "\\u{1b}[2J\\u{9b}\\r   \\u{202e}\\n\n");
    }
}
