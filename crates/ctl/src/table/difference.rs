//! Two futures side by side, as plain text.

use std::fmt::Write as _;

use sluice_sim::explain::plain;
use sluice_sim::whatif::{Difference, FlavorDifference, Moved, QueueDifference};

use super::{columns, time};

/// Jobs that are listed; all are in the documents.
const MOST_LISTED: usize = 30;

/// The difference as text.
pub fn difference(difference: &Difference) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = writeln!(text, "what changes (before -> after):");
    let totals = [
        ("admitted", difference.before.admitted, difference.after.admitted),
        ("finished", difference.before.finished, difference.after.finished),
        ("running at the end", difference.before.running, difference.after.running),
        ("waiting at the end", difference.before.waiting, difference.after.waiting),
    ];
    for (what, before, after) in totals {
        let _ = writeln!(text, "  {what}: {before} -> {after}");
    }
    let _ = writeln!(
        text,
        "  preemptions: {} -> {}",
        difference.before.preemptions, difference.after.preemptions
    );
    moved_table(difference, &mut text);
    let lists = [
        ("newly preempted", &difference.newly_preempted),
        ("no longer preempted", &difference.no_longer_preempted),
        ("no longer started at all", &difference.starved),
    ];
    for (what, jobs) in lists {
        if !jobs.is_empty() {
            let more = jobs.len().saturating_sub(MOST_LISTED);
            let shown = plain::whole(&jobs[..jobs.len().min(MOST_LISTED)].join(", "));
            let _ = writeln!(text, "\n{what}: {shown}{}", and_more(more));
        }
    }
    for job in &difference.new_jobs {
        let starts = job.starts.map_or("never starts".to_owned(), |s| format!("starts at {}", time(s)));
        let _ = writeln!(text, "\nnew: {} {starts}", plain::whole(&job.job));
    }
    queue_tables(difference, &mut text);
    text
}

/// How much sooner or later a job starts, in words.
pub(crate) fn shift(moved: &Moved) -> String {
    match (moved.before, moved.after) {
        (Some(a), Some(b)) if b < a => format!("{} sooner", time(a - b)),
        (Some(a), Some(b)) => format!("{} later", time(b - a)),
        (None, _) => "only with the change".to_owned(),
        (_, None) => "only without it".to_owned(),
    }
}

/// A queue's name and what differs of it; `arrow` stands between what was and what comes.
pub(crate) fn queue_cells(queue: &QueueDifference, arrow: &str) -> Vec<String> {
    let both = |a: String, b: String| if a == b { a } else { format!("{a} {arrow} {b}") };
    vec![
        queue.name.to_string(),
        both(time(queue.wait_p50.0), time(queue.wait_p50.1)),
        both(time(queue.wait_p90.0), time(queue.wait_p90.1)),
        both(queue.waiting.0.to_string(), queue.waiting.1.to_string()),
        both(queue.preempted.0.to_string(), queue.preempted.1.to_string()),
    ]
}

fn moved_table(difference: &Difference, text: &mut String) {
    if difference.moved.is_empty() {
        let _ = writeln!(text, "\nno job starts at another time");
        return;
    }
    let starts = |s: Option<f64>| s.map_or("never".to_owned(), time);
    let row = |m: &Moved| vec![m.job.clone(), starts(m.before), starts(m.after), shift(m)];
    let _ = writeln!(text, "\n{} jobs start at another time:", difference.moved.len());
    let rows: Vec<_> = difference.moved.iter().take(MOST_LISTED).map(row).collect();
    text.push_str(&columns(&["JOB", "BEFORE", "AFTER", ""], &rows));
    let more = difference.moved.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        let _ = writeln!(text, "{}", and_more(more).trim_start());
    }
}

fn queue_tables(difference: &Difference, text: &mut String) {
    let arrow = |a: String, b: String| if a == b { a } else { format!("{a} -> {b}") };
    if !difference.queues.is_empty() {
        let rows: Vec<_> = difference.queues.iter().map(|queue| queue_cells(queue, "->")).collect();
        text.push('\n');
        text.push_str(&columns(&["QUEUE", "WAIT P50", "WAIT P90", "WAITING", "PREEMPTED"], &rows));
    }
    if !difference.flavors.is_empty() {
        let percent = |p: Option<f64>| p.map_or("-".to_owned(), |p| format!("{p:.1} %"));
        let row = |f: &FlavorDifference| {
            vec![f.flavor.to_string(), f.resource.to_string(), arrow(percent(f.before), percent(f.after))]
        };
        let rows: Vec<_> = difference.flavors.iter().map(row).collect();
        text.push('\n');
        text.push_str(&columns(&["FLAVOR", "RESOURCE", "USED"], &rows));
    }
}

fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_s_shift_is_said_in_words_and_a_queue_s_figures_with_an_arrow() {
        let moved = |before, after| shift(&Moved { job: "t/a".to_owned(), before, after });
        assert_eq!(moved(Some(600.0), Some(0.0)), "10m sooner");
        assert_eq!(moved(Some(0.0), Some(5.0)), "5s later");
        assert_eq!(
            (moved(None, Some(5.0)).as_str(), moved(Some(5.0), None).as_str()),
            ("only with the change", "only without it")
        );
        let queue = QueueDifference {
            name: "q".into(),
            wait_p50: (60.0, 0.0),
            wait_p90: (5.0, 5.0),
            waiting: (1, 2),
            preempted: (0, 0),
        };
        assert_eq!(queue_cells(&queue, "->"), ["q", "1m -> 0s", "5s", "1 -> 2", "0"]);
    }
}
