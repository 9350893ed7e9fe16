//! The results of a simulation as plain text: the timeline, figures, and the difference of two futures.

mod difference;

use std::fmt::Write as _;

use sluice_sim::duration::show;
use sluice_sim::explain::plain;
use sluice_sim::report::{Line, QueueReport, Report};
use sluice_sim::show_amount;

pub use difference::difference;
pub(crate) use difference::{queue_cells, shift};

/// Lines of the timeline that are printed unasked.
const MOST_LINES: usize = 400;

/// Seconds as people read them.
pub(crate) fn time(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "made from milliseconds in 64 bits")]
    let millis = (seconds * 1000.0).round() as i64;
    show(millis)
}

/// Units × hours as people read them: bytes as gibibytes.
pub(crate) fn hours(resource: &str, hours: f64) -> String {
    const GIBI: i64 = 1 << 30;
    if show_amount(resource, GIBI) == "1Gi" {
        return format!("{:.2}Gi", hours / 1_073_741_824.0);
    }
    format!("{hours:.2}")
}

/// Rows under a heading, each column as wide as its widest cell. What cells contain does not act on a terminal.
pub fn columns(heading: &[&str], rows: &[Vec<String>]) -> String {
    let safe = |row: &Vec<String>| row.iter().map(|cell| plain::whole(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(safe).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heading.len()).map(width).collect();
    let mut text = String::new();
    let mut put = |cells: &mut dyn Iterator<Item = &str>| {
        let line: Vec<_> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    };
    put(&mut heading.iter().copied());
    for row in &rows {
        put(&mut row.iter().map(String::as_str));
    }
    text
}

/// One line of the timeline as text that is safe to print.
pub fn line(line: &Line) -> String {
    let who = line.job.as_deref().unwrap_or("-");
    let text = format!("{:>10}  {:<9}  {who:<32}  {}", time(line.at), line.what.word(), line.what.details());
    plain::whole(text.trim_end())
}

/// The report as text. `timeline` forces, or suppresses, the list of events; without it, only a short one is shown.
pub fn report(report: &Report, timeline: Option<bool>) -> String {
    text(report, timeline, "of simulated time")
}

/// The same for a past period.
pub fn recorded(report: &Report, timeline: Option<bool>) -> String {
    text(report, timeline, "recorded")
}

fn text(report: &Report, timeline: Option<bool>, what: &str) -> String {
    let mut text = String::new();
    if timeline.unwrap_or(report.timeline.len() <= MOST_LINES) {
        for entry in &report.timeline {
            text.push_str(&line(entry));
            text.push('\n');
        }
    } else {
        // Writing into a String does not fail.
        let _ = writeln!(text, "({} events; --timeline shows them)", report.timeline.len());
    }
    let t = &report.totals;
    let _ = writeln!(
        text,
        "\n{} {what}: {} submitted, {} admitted, {} finished, {} failed, {} running, {} waiting, {} without a queue, {} preemptions",
        time(report.seconds),
        t.submitted,
        t.admitted,
        t.finished,
        t.failed,
        t.running,
        t.waiting,
        t.unmanaged,
        t.preemptions
    );
    if t.refused > 0 {
        let _ = writeln!(text, "{} objects were refused: see the timeline", t.refused);
    }
    text.push('\n');
    text.push_str(&queue_table(report));
    text.push('\n');
    text.push_str(&usage_table(report));
    for skipped in &report.skipped {
        let _ = writeln!(
            text,
            "skipped: {} ({})",
            plain::whole(&skipped.what),
            plain::whole(&skipped.source.to_string())
        );
    }
    text
}

fn queue_table(report: &Report) -> String {
    let heading = [
        "QUEUE",
        "COHORT",
        "JOBS",
        "ADMITTED",
        "FINISHED",
        "RUNNING",
        "WAITING",
        "WAIT P50",
        "WAIT P90",
        "WAIT MAX",
        "PREEMPTED",
        "PREEMPTS",
        "WORK LOST",
    ];
    let row = |q: &QueueReport| {
        let names = [q.name.to_string(), q.cohort.as_deref().unwrap_or("-").to_owned()];
        names.into_iter().chain(figures(q)).collect::<Vec<_>>()
    };
    let rows: Vec<_> = report.queues.iter().map(row).collect();
    columns(&heading, &rows)
}

fn usage_table(report: &Report) -> String {
    let percent = |p: Option<f64>| p.map_or("-".to_owned(), |p| format!("{p:.1} %"));
    let mut rows = Vec::new();
    for flavor in &report.flavors {
        rows.push(vec![
            "(all)".to_owned(),
            flavor.flavor.to_string(),
            flavor.resource.to_string(),
            flavor.nominal.clone(),
            percent(flavor.utilisation),
            hours(&flavor.resource, flavor.borrowed_hours),
            "-".to_owned(),
        ]);
    }
    for queue in &report.queues {
        for slot in &queue.usage {
            rows.push(vec![
                queue.name.to_string(),
                slot.flavor.to_string(),
                slot.resource.to_string(),
                slot.nominal.clone(),
                percent(slot.utilisation),
                hours(&slot.resource, slot.borrowed_hours),
                slot.most_borrowed.clone(),
            ]);
        }
    }
    let heading =
        ["QUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED (UNIT HOURS)", "MOST BORROWED"];
    columns(&heading, &rows)
}

/// A queue's figures that every rendering shows, in the order of its columns.
pub(crate) fn figures(queue: &QueueReport) -> [String; 11] {
    [
        queue.jobs.to_string(),
        queue.admitted.to_string(),
        queue.finished.to_string(),
        queue.running.to_string(),
        queue.waiting.to_string(),
        time(queue.wait.p50),
        time(queue.wait.p90),
        time(queue.wait.max),
        queue.preempted.to_string(),
        queue.preempts.to_string(),
        time(queue.work_lost),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borrowed_memory_is_reported_in_gibibytes() {
        assert_eq!(hours("memory", 10_293_144_436.8), "9.59Gi");
        assert_eq!(hours("memory", 0.0), "0.00Gi");
        assert_eq!(hours("cpu", 16.768), "16.77");
        assert_eq!(hours("google.com/tpu", 3.5), "3.50");
    }
}
