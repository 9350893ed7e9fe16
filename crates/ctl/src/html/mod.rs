//! The report as one self-contained page: which job ran when, usage against quota, queue depth, and two schedules side by side for a
//! what-if. No network, light and dark.
//!
//! The schedule is drawn by the page's script, the component of the dashboard (`gantt.js`). Charts are drawn here, and only for the [`MOST_QUEUES`]
//! queues with the longest waits.

mod compared;
mod curve;
mod frame;
mod schedule;
mod svg;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use sluice_sim::duration::show;
use sluice_sim::report::{QueueReport, Report};
use sluice_sim::series::{Point, SlotKey, steps};
use sluice_sim::{Record, show_amount};

use crate::table::figures;
pub use compared::page as compared;
use curve::{Step, own_steps, thinned, waiting};
pub use frame::Subject;
use schedule::{MOST_JOBS, Schedule};
use svg::{Svg, colour, escape};

/// The most queues with pictures.
const MOST_QUEUES: usize = 60;
/// The most rows of the table of queues.
const MOST_ROWS: usize = 2000;
/// The most lines of the timeline.
const MOST_LINES: usize = 2000;
/// Pixels of a curve's height.
const CURVE: i64 = 90;

/// The input for drawing.
struct Page<'a> {
    subject: Subject,
    record: &'a Record,
    report: &'a Report,
    end: i64,
    slots: BTreeMap<SlotKey, Vec<Point>>,
    /// The colour of each flavor.
    colours: BTreeMap<Arc<str>, usize>,
}

/// The page. `end` in milliseconds from the beginning.
///
/// # Errors
/// The schedule cannot be written as JSON.
pub fn page(subject: Subject, record: &Record, report: &Report, end: i64) -> serde_json::Result<String> {
    let slots = steps(record, end);
    let colours = colours([&slots]);
    Page { subject, record, report, end, slots, colours }.whole()
}

/// A colour for each flavor that any of these slots is of.
fn colours<'a>(
    slots: impl IntoIterator<Item = &'a BTreeMap<SlotKey, Vec<Point>>>,
) -> BTreeMap<Arc<str>, usize> {
    let keys = slots.into_iter().flat_map(BTreeMap::keys);
    let flavors: BTreeSet<Arc<str>> = keys.map(|(_, flavor, _)| Arc::clone(flavor)).collect();
    flavors.into_iter().enumerate().map(|(i, flavor)| (flavor, i)).collect()
}

/// Where the script draws a schedule, by its number.
fn place(number: usize, label: &str, jobs: usize) -> String {
    let cut = match jobs.checked_sub(MOST_JOBS) {
        Some(more) if more > 0 => format!("<p>The first {MOST_JOBS} jobs of {jobs} are drawn.</p>"),
        _ => String::new(),
    };
    format!(
        "{cut}<div data-schedule=\"{number}\" data-label=\"{}\"><noscript>The schedule is drawn by the script of this page.</noscript></div>\n",
        escape(label)
    )
}

/// The beginning of what a table moves in where there is too little room. Keys move it, too.
fn wide(what: &str) -> String {
    format!("<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"table of {}\">", escape(what))
}

impl Page<'_> {
    fn whole(&self) -> serde_json::Result<String> {
        let mut text = "<main>\n".to_owned();
        text.push_str(&self.head());
        text.push_str("<h2>Jobs</h2>\n<div class=\"card\">");
        text.push_str(&place(0, "jobs over time", self.record.jobs.len()));
        text.push_str("</div>\n");
        text.push_str("<h2>Usage against quota</h2>\n");
        text.push_str(&self.key());
        for flavor in &self.report.flavors {
            let steps = self.total(&flavor.flavor, &flavor.resource);
            let title = format!("{} of {}", flavor.resource, flavor.flavor);
            let used = flavor.utilisation.map_or(String::new(), |u| format!(" <span>{u:.1} % used</span>"));
            let _ = write!(text, "<div class=\"card\"><h3>{}{used}</h3>", escape(&title));
            text.push_str(&self.usage(&steps, &flavor.flavor, &flavor.resource, &title));
            text.push_str("</div>\n");
        }
        text.push_str("<h2>Queues</h2>\n");
        text.push_str(&self.queue_table());
        for queue in self.drawn_queues() {
            text.push_str(&self.queue(queue));
        }
        text.push_str(&self.timeline());
        text.push_str("</main>");
        frame::document(self.subject, &text, &[Schedule::new(self.record, self.end, &self.colours)])
    }

    fn head(&self) -> String {
        let t = &self.report.totals;
        let seed = match self.subject {
            Subject::Simulation => format!(", seed {}", self.report.seed),
            Subject::Recorded => String::new(),
        };
        let mut text = format!(
            "<h1>{}</h1><p>{} from {}{seed}</p><div class=\"tiles\">",
            self.subject.title(),
            show(self.end),
            escape(&self.report.start),
        );
        let tiles = [
            (t.submitted, "submitted"),
            (t.admitted, "admitted"),
            (t.finished, "finished"),
            (t.failed, "failed"),
            (t.running, "running at the end"),
            (t.waiting, "waiting at the end"),
            (usize::try_from(t.preemptions).unwrap_or(usize::MAX), "preemptions"),
            (t.refused, "refused"),
        ];
        for (count, what) in tiles {
            let _ = write!(text, "<div class=\"tile\"><b>{count}</b><span>{what}</span></div>");
        }
        text.push_str("</div>\n");
        text
    }

    fn key(&self) -> String {
        let mut text = "<div class=\"key\">".to_owned();
        for (flavor, number) in &self.colours {
            let _ = write!(text, "<span><i class=\"{}\"></i>{}</span>", colour(*number), escape(flavor));
        }
        text.push_str(
            "<span>pale: borrowed, so lent by others</span><span><i class=\"quota\"></i>nominal quota</span>\
             </div>\n",
        );
        text
    }

    /// The steps of a flavor and resource over all nodes.
    fn total(&self, flavor: &str, resource: &str) -> Vec<Step> {
        let of = |key: &SlotKey| *key.1 == *flavor && *key.2 == *resource;
        let mut moves: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
        for (_, points) in self.slots.iter().filter(|(key, _)| of(key)) {
            let mut before = (0, 0, 0);
            for (point, borrowed) in own_steps(points) {
                let delta = moves.entry(point.at).or_default();
                delta.0 += point.used - before.0;
                delta.1 = delta.1.saturating_add(point.nominal.saturating_sub(before.1));
                delta.2 += borrowed - before.2;
                before = (point.used, point.nominal, borrowed);
            }
        }
        let (mut last, mut lent) = (Point { at: 0, used: 0, nominal: 0 }, 0);
        let step = |(at, (used, nominal, borrowed)): (i64, (i64, i64, i64))| {
            last = Point { at, used: last.used + used, nominal: last.nominal.saturating_add(nominal) };
            lent += borrowed;
            (last, lent)
        };
        moves.into_iter().map(step).collect()
    }

    /// Usage as areas, nominal quota as a dashed line.
    fn usage(&self, steps: &[Step], flavor: &str, resource: &str, label: &str) -> String {
        let steps = thinned(steps, self.end);
        let most = steps.iter().map(|(p, _)| p.used.max(p.nominal)).max().unwrap_or(0).max(1);
        let height = |amount: i64| {
            let h = i128::from(amount.clamp(0, most)) * i128::from(CURVE) / i128::from(most);
            i64::try_from(h).unwrap_or(CURVE)
        };
        let mut svg = Svg::new(CURVE + 28, self.end);
        let top = 8;
        let colour = self.colours.get(flavor).copied();
        for (i, (point, borrowed)) in steps.iter().enumerate() {
            let until = steps.get(i + 1).map_or(self.end, |(p, _)| p.at);
            let (x, right) = (svg.x(point.at), svg.x(until));
            if right <= x || point.used <= 0 {
                continue;
            }
            let own = height(point.used - borrowed);
            let all = height(point.used);
            let tip = format!(
                "{} – {}\nused {} of nominal {}{}",
                show(point.at),
                show(until),
                show_amount(resource, point.used),
                show_amount(resource, point.nominal),
                match *borrowed {
                    0 => String::new(),
                    borrowed => format!("\nborrowed (lent by others) {}", show_amount(resource, borrowed)),
                }
            );
            if own > 0 {
                svg.rect("used", colour, (x, top + CURVE - own, right - x, own), &tip);
            }
            if all > own {
                svg.rect("borrowed", colour, (x, top + CURVE - all, right - x, all - own), &tip);
            }
        }
        let line: Vec<_> = steps.iter().map(|(p, _)| (p.at, top + CURVE - height(p.nominal))).collect();
        svg.steps("nominal", &line);
        svg.label(top + 4, &show_amount(resource, most));
        svg.label(top + CURVE + 4, "0");
        // The dashed line says how much it is, where neither end of the scale does.
        let last = steps.last().map_or(0, |(p, _)| p.nominal);
        if (16..CURVE - 16).contains(&height(last)) {
            svg.label(top + CURVE - height(last) + 4, &show_amount(resource, last));
        }
        svg.axis(top + CURVE);
        svg.finish(&format!("usage of {label} over time"))
    }

    /// The queues with charts: those with jobs; if there are too many, the ones with the longest waits.
    fn drawn_queues(&self) -> Vec<&QueueReport> {
        let mut queues: Vec<_> = self.report.queues.iter().filter(|q| q.jobs > 0).collect();
        if queues.len() > MOST_QUEUES {
            queues.sort_by(|a, b| {
                let weight = |q: &QueueReport| (q.waiting, q.jobs);
                b.wait.p90.total_cmp(&a.wait.p90).then(weight(b).cmp(&weight(a))).then(a.name.cmp(&b.name))
            });
            queues.truncate(MOST_QUEUES);
        }
        queues
    }

    fn queue_table(&self) -> String {
        let mut text =
            format!("<div class=\"card\">{}<table><tr><th>Queue</th><th>Cohort</th>", wide("queues"));
        let heads = [
            "Jobs",
            "Admitted",
            "Finished",
            "Running",
            "Waiting",
            "Wait p50",
            "p90",
            "max",
            "Preempted",
            "Preempts",
            "Work lost",
        ];
        for head in heads {
            let _ = write!(text, "<th class=\"n\">{head}</th>");
        }
        text.push_str("</tr>\n");
        let queues = &self.report.queues;
        for q in queues.iter().take(MOST_ROWS) {
            let _ = write!(
                text,
                "<tr><td>{}</td><td>{}</td>",
                escape(&q.name),
                escape(q.cohort.as_deref().unwrap_or("–"))
            );
            for cell in figures(q) {
                let _ = write!(text, "<td class=\"n\">{cell}</td>");
            }
            text.push_str("</tr>\n");
        }
        text.push_str("</table></div>");
        if queues.len() > MOST_ROWS {
            let _ = write!(text, "<p>and {} more</p>", queues.len() - MOST_ROWS);
        }
        text.push_str("</div>\n");
        text
    }

    fn queue(&self, queue: &QueueReport) -> String {
        let jobs: Vec<usize> = (0..self.record.jobs.len())
            .filter(|i| self.record.jobs[*i].cluster_queue.as_ref() == Some(&queue.name))
            .collect();
        let mut text = format!(
            "<details class=\"card\" open><summary>{} <span>{} jobs, {} waiting at the end</span></summary>\n",
            escape(&queue.name),
            queue.jobs,
            queue.waiting
        );
        text.push_str("<h3>Queue depth</h3>\n");
        text.push_str(&self.depth(&jobs, &queue.name));
        for slot in &queue.usage {
            let key = (Arc::clone(&queue.name), Arc::clone(&slot.flavor), Arc::clone(&slot.resource));
            let Some(points) = self.slots.get(&key) else { continue };
            let title = format!("{} of {}", slot.resource, slot.flavor);
            let _ = write!(text, "<h3>{}</h3>", escape(&title));
            text.push_str(&self.usage(
                &own_steps(points),
                &slot.flavor,
                &slot.resource,
                &format!("{title} by {}", queue.name),
            ));
        }
        text.push_str("</details>\n");
        text
    }

    /// How many jobs wait.
    fn depth(&self, jobs: &[usize], queue: &str) -> String {
        let steps = waiting(jobs.iter().map(|i| &self.record.jobs[*i]));
        let steps = thinned(&steps, self.end);
        let most = steps.iter().map(|(p, _)| p.used).max().unwrap_or(0).max(1);
        let high = 40;
        let mut svg = Svg::new(high + 28, self.end);
        for (i, (point, _)) in steps.iter().enumerate() {
            let until = steps.get(i + 1).map_or(self.end, |(p, _)| p.at);
            let (x, right) = (svg.x(point.at), svg.x(until));
            if point.used > 0 && right > x {
                let h = (point.used * high / most).max(1);
                let tip = format!("{} – {}\n{} waiting", show(point.at), show(until), point.used);
                svg.rect("depth", None, (x, 8 + high - h, right - x, h), &tip);
            }
        }
        svg.label(12, &most.to_string());
        svg.axis(8 + high);
        svg.finish(&format!("waiting jobs of {queue} over time"))
    }

    fn timeline(&self) -> String {
        let lines = &self.report.timeline;
        let mut text = format!(
            "<details class=\"card\"><summary>Timeline <span>{} events{}</span></summary>{}<table>\n",
            lines.len(),
            if lines.len() > MOST_LINES { format!(", the first {MOST_LINES} shown") } else { String::new() },
            wide("timeline")
        );
        for (entry, line) in self.record.entries.iter().zip(lines).take(MOST_LINES) {
            let _ = writeln!(
                text,
                "<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"t\">{}</td></tr>",
                show(entry.at),
                entry.what.word(),
                escape(line.job.as_deref().unwrap_or("–")),
                escape(&entry.what.details())
            );
        }
        text.push_str("</table></div></details>\n");
        text
    }
}
