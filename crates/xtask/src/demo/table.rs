//! The live table. On a terminal it is redrawn in place; elsewhere each row is printed when it changes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::Client;

use super::rows::{Row, TITLES, rows};

/// How often the table looks.
const PERIOD: Duration = Duration::from_millis(250);
/// The longest line of a reason on a terminal, which is drawn below its row so that the table fits into 100 columns.
const REASON_WIDTH: usize = 92;
/// The indentation of a reason's lines.
const INDENT: &str = "      ";
/// The widest a column may be on a terminal.
const WIDEST: usize = 30;
/// The columns' widths if rows are printed one by one.
const LOG_WIDTHS: [usize; 7] = [26, 18, 16, 8, 8, 20, 0];

/// The table and what it has seen.
pub struct Table {
    client: Client,
    started: Instant,
    terminal: bool,
    /// Lines of the last drawing, to be drawn over.
    drawn: usize,
    shown: BTreeMap<String, [String; 7]>,
    states: BTreeMap<String, String>,
    timeline: Vec<(Duration, String)>,
}

impl Table {
    /// A table of all Workloads of the cluster.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            started: Instant::now(),
            terminal: std::io::stdout().is_terminal(),
            drawn: 0,
            shown: BTreeMap::new(),
            states: BTreeMap::new(),
            timeline: Vec::new(),
        }
    }

    /// Shows what changes, for ever.
    pub async fn watch(&mut self) -> Infallible {
        loop {
            // An API server that does not answer now will at the next look.
            let _ = self.look().await;
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Looks once, and shows what has changed.
    pub async fn look(&mut self) -> Result<()> {
        let rows = rows(&self.client).await?;
        self.note(&rows);
        if self.terminal {
            self.draw(&rows);
        } else {
            self.print_changes(&rows);
        }
        Ok(())
    }

    fn note(&mut self, rows: &[Row]) {
        for row in rows {
            if self.states.get(&row.job) != Some(&row.state) {
                let mut line = format!("{} {}", row.job, row.state);
                if row.admitted && row.state == "Admitted" {
                    // Writing to a string cannot fail.
                    let _ = write!(line, " by {}", row.reserved_in);
                }
                self.timeline.push((self.started.elapsed(), line));
                self.states.insert(row.job.clone(), row.state.clone());
            }
        }
    }

    fn print_changes(&mut self, rows: &[Row]) {
        for row in rows {
            let columns = row.columns();
            if self.shown.get(&row.job) != Some(&columns) {
                if self.shown.is_empty() {
                    println!("    TIME  {}", line(&TITLES.map(str::to_owned), &LOG_WIDTHS));
                }
                println!("{:6.1} s  {}", self.started.elapsed().as_secs_f32(), line(&columns, &LOG_WIDTHS));
                self.shown.insert(row.job.clone(), columns);
            }
        }
    }

    fn draw(&mut self, rows: &[Row]) {
        let mut lines: Vec<[String; 7]> = vec![TITLES.map(str::to_owned)];
        lines.extend(rows.iter().map(Row::columns));
        let reasons: Vec<String> = lines.iter_mut().map(|columns| std::mem::take(&mut columns[6])).collect();
        let mut widths = [0; 7];
        for columns in &mut lines {
            for (column, width) in columns.iter_mut().zip(&mut widths) {
                if column.chars().count() > WIDEST {
                    *column = column.chars().take(WIDEST - 1).chain(['…']).collect();
                }
                *width = (*width).max(column.chars().count());
            }
        }
        let mut screen = String::new();
        if self.drawn > 0 {
            // Up to the first line of the last drawing.
            let _ = write!(screen, "\x1b[{}A", self.drawn);
        }
        self.drawn = 0;
        for (number, (columns, reason)) in lines.iter().zip(&reasons).enumerate() {
            let _ = writeln!(screen, "\x1b[2K{}", line(columns, &widths));
            // The first line has the titles.
            let below = if number == 0 { Vec::new() } else { wrapped(reason) };
            for text in &below {
                let _ = writeln!(screen, "\x1b[2K{INDENT}{text}");
            }
            self.drawn += 1 + below.len();
        }
        // Clears the lines of a longer frame before.
        screen.push_str("\x1b[J");
        let mut out = std::io::stdout().lock();
        // A closed terminal ends the demo by a signal, not here.
        let _ = out.write_all(screen.as_bytes()).and_then(|()| out.flush());
    }

    /// What happened, in order.
    pub fn print_timeline(&self) {
        println!("\nWhat happened:");
        for (when, what) in &self.timeline {
            println!("{:6.1} s  {what}", when.as_secs_f32());
        }
        println!();
    }
}

/// A reason in lines of at most [`REASON_WIDTH`] characters, broken at blanks.
fn wrapped(reason: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in reason.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= REASON_WIDTH => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn line(columns: &[String; 7], widths: &[usize; 7]) -> String {
    let padded: Vec<String> =
        columns.iter().zip(widths).map(|(column, width)| format!("{column:<width$}")).collect();
    padded.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_broken_at_blanks_and_keeps_every_word() {
        let reason =
            "insufficient unused quota for google.com/tpu in flavor vlp-24, 24 more needed. ".repeat(3);
        let lines = wrapped(&reason);
        assert!(
            lines.len() > 2 && lines.iter().all(|line| line.chars().count() <= REASON_WIDTH),
            "{lines:?}"
        );
        assert_eq!(lines.join(" "), reason.trim());
        assert!(wrapped("").is_empty());
    }
}
