//! The part of a simulation that a viewer may see: figures of the queues that they may know, sums over all, and the jobs of their namespaces.

use serde::Serialize;
use sluice_sim::explain::without_nodes;
use sluice_sim::report::Line;
use sluice_sim::whatif::{Difference, Moved};
use sluice_sim::{Record, Report, TimelineEvent};

use crate::dashboard::seen_queues::SeenQueues;
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::viewer::Viewer;

/// Lines of a timeline at most, the earliest: the stories of some twenty thousand jobs, in about forty megabytes.
const MOST_LINES: usize = 150_000;
/// Stretches of time of the nodes, and of the pods, of a topology at most.
const MOST_PLACES: usize = 50_000;
/// Sentences at most.
const MOST_WORDS: usize = 50;

/// Whether a job or a LocalQueue, `namespace/name`, may be named.
fn sees(viewer: &Viewer, name: &str) -> bool {
    viewer.all || name.split_once('/').is_some_and(|(namespace, _)| viewer.sees(namespace))
}

/// A report as the viewer may see it. It is never a document in memory, which would be many times larger than its text.
#[derive(Debug, Serialize)]
pub struct Seen {
    #[serde(flatten)]
    report: Report,
    /// Whether lines about others were left out.
    hidden: bool,
    /// Whether there are more lines than are shown.
    cut: bool,
    /// Whether it ends earlier than was asked for: there was no more time.
    partial: bool,
}

impl Seen {
    /// The same, for a simulation that was stopped before its end.
    #[must_use]
    pub fn stopped(self) -> Self {
        Self { partial: true, ..self }
    }
}

/// The report, and whether lines were left out. Nodes are those of the snapshot.
pub fn report(record: &Record, end: i64, seed: u64, viewer: &Viewer, snapshot: Option<&Snapshot>) -> Seen {
    let mut report = Report::new(record, end, seed, Vec::new());
    let queues = SeenQueues::of(snapshot, viewer);
    report.queues.retain(|queue| queues.queue(&queue.name));
    report.stops.retain(|stop| {
        queues.queue(&stop.queue) && stop.local_queue.as_deref().is_none_or(|queue| sees(viewer, queue))
    });
    let before = report.timeline.len();
    report.timeline.retain(|line| line.job.as_deref().is_none_or(|job| sees(viewer, job)));
    // A line without a job may name any job.
    if !viewer.all {
        report.timeline.retain(|line| line.job.is_some());
    }
    let hidden = report.timeline.len() != before;
    let cut = report.timeline.len() > MOST_LINES;
    report.timeline.truncate(MOST_LINES);
    for line in &mut report.timeline {
        without_others(line, viewer);
        if let Some(snapshot) = snapshot.filter(|_| !viewer.nodes) {
            without_node_names(line, snapshot);
        }
    }
    for places in &mut report.places {
        places.reduce(|job| sees(viewer, job), MOST_PLACES);
    }
    if !viewer.nodes {
        report.places.clear();
    }
    Seen { report, hidden, cut, partial: false }
}

/// A line whose message names no node.
fn without_node_names(line: &mut Line, snapshot: &Snapshot) {
    let (TimelineEvent::Waiting { message, .. }
    | TimelineEvent::Preempted { message, .. }
    | TimelineEvent::Evicted { message, .. }
    | TimelineEvent::Moved { message }
    | TimelineEvent::Refused { message }
    | TimelineEvent::Scenario { message }) = &mut line.what
    else {
        return;
    };
    if let Some(shown) = without_nodes(message, &|name| snapshot.nodes.contains_key(name)) {
        *message = shown.into();
    }
}

/// A line about a job of the viewer's may name what preempts it.
fn without_others(line: &mut Line, viewer: &Viewer) {
    if let TimelineEvent::Preempted { by, message, .. } = &mut line.what
        && by.as_deref().is_none_or(|by| !sees(viewer, by))
        && !viewer.all
    {
        *by = None;
        *message = "".into();
    }
}

/// A time in seconds, as people say it.
fn time(seconds: f64) -> String {
    let round = |value: f64| format!("{value:.0}");
    match seconds {
        s if s < 90.0 => format!("{} s", round(s)),
        s if s < 5_400.0 => format!("{} min", round(s / 60.0)),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// The differences as texts. Those whose texts are equal are left out, and so are those that the viewer may not know.
pub fn words(difference: &Difference, viewer: &Viewer, queues: &SeenQueues<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let (before, after) = (&difference.before, &difference.after);
    let totals = [
        ("Jobs that start", before.admitted, after.admitted),
        ("Jobs that end well", before.finished, after.finished),
        ("Jobs that still wait at the end", before.waiting, after.waiting),
    ];
    for (what, before, after) in totals.into_iter().filter(|(_, before, after)| before != after) {
        words.push(format!("{what}: {after} instead of {before}."));
    }
    if before.preemptions != after.preemptions {
        words.push(format!("Preemptions: {} instead of {}.", after.preemptions, before.preemptions));
    }
    for queue in difference.queues.iter().filter(|queue| queues.queue(&queue.name)) {
        let (old, new) = (time(queue.wait_p50.0), time(queue.wait_p50.1));
        if old != new {
            let name = &queue.name;
            words.push(format!(
                "In the ClusterQueue {name}, half of the jobs wait less than {new} instead of {old}."
            ));
        }
    }
    for flavor in &difference.flavors {
        let of = |percent: Option<f64>| percent.map_or("an unknown part".to_owned(), |p| format!("{p:.0} %"));
        let (name, resource) = (&flavor.flavor, &flavor.resource);
        let (old, new) = (of(flavor.before), of(flavor.after));
        if old != new {
            words.push(format!("Of {resource} in {name}, {new} is used instead of {old}."));
        }
    }
    words.extend(difference.moved.iter().filter(|moved| sees(viewer, &moved.job)).filter_map(moved));
    let lists = [
        ("is preempted", &difference.newly_preempted),
        ("is not preempted any more", &difference.no_longer_preempted),
    ];
    for (what, jobs) in lists {
        words.extend(jobs.iter().filter(|job| sees(viewer, job)).map(|job| format!("{job} {what}.")));
    }
    let more = words.len().saturating_sub(MOST_WORDS);
    words.truncate(MOST_WORDS);
    if more > 0 {
        words.push(format!("And {more} more."));
    }
    if words.is_empty() {
        words.push("Nothing changes.".to_owned());
    }
    words
}

fn moved(moved: &Moved) -> Option<String> {
    let job = &moved.job;
    Some(match (moved.before, moved.after) {
        (Some(before), Some(after)) => {
            let by = time((before - after).abs());
            if by == time(0.0) {
                return None;
            }
            let direction = if after < before { "sooner" } else { "later" };
            format!("{job} starts {by} {direction}.")
        }
        (None, Some(after)) => format!("{job} starts after {}, instead of not at all.", time(after)),
        (_, None) => format!("{job} does not start any more."),
    })
}

#[cfg(test)]
mod tests {
    use sluice_sim::report::Totals;
    use sluice_sim::whatif::{FlavorDifference, QueueDifference};

    use super::*;

    #[test]
    fn what_comes_to_the_same_in_words_is_left_out() {
        let difference = |wait: (f64, f64), used: (f64, f64), start: (f64, f64)| Difference {
            before: Totals::default(),
            after: Totals::default(),
            moved: vec![Moved { job: "a/j".to_owned(), before: Some(start.0), after: Some(start.1) }],
            newly_preempted: Vec::new(),
            no_longer_preempted: Vec::new(),
            starved: Vec::new(),
            new_jobs: Vec::new(),
            queues: vec![QueueDifference {
                name: "cq".into(),
                wait_p50: wait,
                wait_p90: (0.0, 0.0),
                waiting: (0, 0),
                preempted: (0, 0),
            }],
            flavors: vec![FlavorDifference {
                flavor: "spot".into(),
                resource: "cpu".into(),
                before: Some(used.0),
                after: Some(used.1),
            }],
        };
        let all = Viewer { all: true, queues: true, ..Viewer::default() };
        let words = |difference: &Difference, viewer: &Viewer| {
            super::words(difference, viewer, &SeenQueues::of(None, viewer))
        };
        let same = difference((600.0, 601.0), (50.1, 50.2), (10.0, 10.2));
        assert_eq!(words(&same, &all), ["Nothing changes."]);
        let other = difference((600.0, 660.0), (50.1, 51.2), (10.0, 11.0));
        assert_eq!(
            words(&other, &all),
            [
                "In the ClusterQueue cq, half of the jobs wait less than 11 min instead of 10 min.",
                "Of cpu in spot, 51 % is used instead of 50 %.",
                "a/j starts 1 s later.",
            ]
        );
        let team = Viewer { all: true, ..Viewer::default() };
        assert_eq!(words(&other, &team)[0], "Of cpu in spot, 51 % is used instead of 50 %.");
    }
}
