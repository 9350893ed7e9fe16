//! Two futures as one page: the effects of the change in words, and both schedules side by side over the same time.

use std::fmt::Write as _;

use sluice_sim::Record;
use sluice_sim::duration::show;
use sluice_sim::series::steps;
use sluice_sim::whatif::{Difference, Moved};

use super::frame::Subject;
use super::schedule::Schedule;
use super::svg::escape;
use super::{colours, frame, place, wide};
use crate::table::{queue_cells, shift, time};

/// Jobs and queues that are listed.
const MOST_LISTED: usize = 500;

/// The page of two records without and with a change, each with its end in milliseconds from the beginning.
///
/// # Errors
/// A schedule cannot be written as JSON.
pub fn page(futures: [(&Record, i64); 2], difference: &Difference, seed: u64) -> serde_json::Result<String> {
    let slots = futures.map(|(record, end)| steps(record, end));
    let colours = colours(&slots);
    let [(before, before_end), (after, after_end)] = futures;
    let mut text = format!(
        "<main class=\"two\">\n<h1>Simulation with and without a change</h1><p>{} without it, {} with it, from {}, seed {seed}</p>\n",
        show(before_end),
        show(after_end),
        escape(&before.start.to_string())
    );
    text.push_str("<h2>What the change brings</h2>\n<ul class=\"words\">");
    for sentence in difference.words() {
        let _ = write!(text, "<li>{}</li>", escape(&sentence));
    }
    text.push_str("</ul>\n<h2>Jobs</h2>\n<div class=\"sides\">");
    let sides = [("Without the change", before), ("With the change", after)];
    for (number, (title, record)) in sides.into_iter().enumerate() {
        let _ = write!(text, "<section class=\"card\"><h3>{title}</h3>");
        text.push_str(&place(number, &format!("jobs {}", title.to_lowercase()), record.jobs.len()));
        text.push_str("</section>");
    }
    text.push_str("</div>\n");
    text.push_str(&moved(difference));
    text.push_str(&queues(difference));
    text.push_str("</main>");
    frame::document(
        Subject::Simulation,
        &text,
        &futures.map(|(record, end)| Schedule::new(record, end, &colours)),
    )
}

/// A table with a heading; the cells are escaped here.
fn table(title: &str, heads: &[&str], rows: &[Vec<String>], all: usize) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let region = wide(&title.to_lowercase());
    let mut text = format!("<h2>{title}</h2>\n<div class=\"card\">{region}<table><tr>");
    for head in heads {
        let _ = write!(text, "<th>{head}</th>");
    }
    text.push_str("</tr>\n");
    for row in rows {
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<td class=\"t\">{}</td>", escape(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table></div>");
    if all > rows.len() {
        let _ = write!(text, "<p>and {} more</p>", all - rows.len());
    }
    text.push_str("</div>\n");
    text
}

fn moved(difference: &Difference) -> String {
    let starts = |s: Option<f64>| s.map_or("never".to_owned(), time);
    let row = |m: &Moved| vec![m.job.clone(), starts(m.before), starts(m.after), shift(m)];
    let rows: Vec<_> = difference.moved.iter().take(MOST_LISTED).map(row).collect();
    let heads = ["Job", "Starts without", "Starts with", "Difference"];
    table("Jobs that start at another time", &heads, &rows, difference.moved.len())
}

fn queues(difference: &Difference) -> String {
    let rows: Vec<_> =
        difference.queues.iter().take(MOST_LISTED).map(|queue| queue_cells(queue, "→")).collect();
    let heads = ["Queue", "Wait p50", "p90", "Waiting at the end", "Preempted"];
    table("Queues", &heads, &rows, difference.queues.len())
}
