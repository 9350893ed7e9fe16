//! The effects of a change, in sentences.

use super::{Difference, FlavorDifference, Moved, QueueDifference};
use crate::duration::show;

/// Names that a sentence lists.
const MOST_NAMES: usize = 5;
/// Queues, and flavors, that have a sentence.
const MOST_SENTENCES: usize = 10;

impl Difference {
    /// Sentences for people, the most important first; at least one.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        self.moves(&mut words);
        let lists = [
            ("no longer start", "no longer starts", &self.starved),
            (
                "are preempted only with the change",
                "is preempted only with the change",
                &self.newly_preempted,
            ),
            ("are no longer preempted", "is no longer preempted", &self.no_longer_preempted),
        ];
        for (many, one, jobs) in lists {
            words.extend(listed(jobs.iter().map(String::as_str), many, one));
        }
        let starting = self.new_jobs.iter().filter(|job| job.starts.is_some());
        words.extend(listed(starting.map(|job| job.job.as_str()), "are new and start", "is new and starts"));
        let waiting = self.new_jobs.iter().filter(|job| job.starts.is_none());
        words.extend(listed(
            waiting.map(|job| job.job.as_str()),
            "are new and do not start",
            "is new and does not start",
        ));
        let totals = [
            ("jobs finish", self.before.finished, self.after.finished),
            ("jobs wait at the end", self.before.waiting, self.after.waiting),
        ];
        for (what, before, after) in totals {
            if before != after {
                words.push(format!("{after} {what} instead of {before}."));
            }
        }
        if self.before.preemptions != self.after.preemptions {
            words.push(format!(
                "There are {} preemptions instead of {}.",
                self.after.preemptions, self.before.preemptions
            ));
        }
        words.extend(self.queue_words());
        words.extend(self.flavors.iter().take(MOST_SENTENCES).map(flavor));
        words.extend(more(self.flavors.len(), "resources are used differently"));
        if words.is_empty() {
            words.push("The change makes no difference.".to_owned());
        }
        words
    }

    fn moves(&self, words: &mut Vec<String>) {
        let gain = |m: &Moved| Some(m.before? - m.after?);
        let of = |sign: f64| {
            let mut gains: Vec<f64> = self
                .moved
                .iter()
                .filter_map(gain)
                .map(|gain| gain * sign)
                .filter(|gain| *gain > 0.0)
                .collect();
            gains.sort_by(f64::total_cmp);
            gains
        };
        for (gains, how) in [(of(1.0), "sooner"), (of(-1.0), "later")] {
            match gains[..] {
                [] => {}
                [only] => words.push(format!("1 job starts {} {how}.", time(only))),
                [.., most] => words.push(format!(
                    "{} jobs start {how}: half of them by at most {}, the last by {}.",
                    gains.len(),
                    time(gains[(gains.len() - 1) / 2]),
                    time(most)
                )),
            }
        }
        let fresh = self.moved.iter().filter(|m| m.before.is_none()).map(|m| m.job.as_str());
        words.extend(listed(fresh, "start only with the change", "starts only with the change"));
    }

    fn queue_words(&self) -> Vec<String> {
        let mut queues: Vec<_> = self.queues.iter().collect();
        let gain = |q: &QueueDifference| (q.wait_p50.0 - q.wait_p50.1).abs();
        queues.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then_with(|| a.name.cmp(&b.name)));
        let mut words: Vec<_> = queues.iter().take(MOST_SENTENCES).map(|q| queue(q)).collect();
        words.extend(more(queues.len(), "queues differ"));
        words
    }
}

fn time(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "made from milliseconds in 64 bits")]
    let millis = (seconds * 1000.0).round() as i64;
    show(millis)
}

fn more(all: usize, what: &str) -> Option<String> {
    let more = all.saturating_sub(MOST_SENTENCES);
    (more > 0).then(|| format!("{more} more {what}."))
}

fn listed<'a>(jobs: impl Iterator<Item = &'a str>, many: &str, one: &str) -> Option<String> {
    let jobs: Vec<_> = jobs.collect();
    let more = jobs.len().saturating_sub(MOST_NAMES);
    let shown = jobs[..jobs.len() - more].join(", ");
    match jobs.len() {
        0 => None,
        1 => Some(format!("1 job {one}: {shown}.")),
        count if more > 0 => Some(format!("{count} jobs {many}: {shown} and {more} more.")),
        count => Some(format!("{count} jobs {many}: {shown}.")),
    }
}

fn queue(queue: &QueueDifference) -> String {
    let mut parts = Vec::new();
    let waits = [("half of the jobs wait", queue.wait_p50), ("nine of ten wait", queue.wait_p90)];
    for (what, (before, after)) in waits {
        if before.total_cmp(&after).is_ne() {
            parts.push(format!("{what} at most {} instead of {}", time(after), time(before)));
        }
    }
    if queue.waiting.0 != queue.waiting.1 {
        parts.push(format!("{} wait at the end instead of {}", queue.waiting.1, queue.waiting.0));
    }
    if queue.preempted.0 != queue.preempted.1 {
        parts.push(format!("{} are preempted instead of {}", queue.preempted.1, queue.preempted.0));
    }
    format!("In {}: {}.", queue.name, parts.join("; "))
}

fn flavor(flavor: &FlavorDifference) -> String {
    let percent = |p: Option<f64>| p.map_or("without quota".to_owned(), |p| format!("{p:.1} %"));
    format!(
        "Use of {} of {}: {} instead of {}.",
        flavor.resource,
        flavor.flavor,
        percent(flavor.after),
        percent(flavor.before)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Totals;
    use crate::whatif::Started;

    fn nothing() -> Difference {
        Difference {
            before: Totals::default(),
            after: Totals::default(),
            moved: Vec::new(),
            newly_preempted: Vec::new(),
            no_longer_preempted: Vec::new(),
            starved: Vec::new(),
            new_jobs: Vec::new(),
            queues: Vec::new(),
            flavors: Vec::new(),
        }
    }

    #[test]
    fn no_difference_is_a_sentence_too() {
        assert_eq!(nothing().words(), ["The change makes no difference."]);
    }

    #[test]
    fn jobs_that_move_are_counted_and_measured() {
        let moved = |job: &str, before, after| Moved { job: job.to_owned(), before, after };
        let difference = Difference {
            moved: vec![
                moved("t/a", Some(600.0), Some(0.0)),
                moved("t/b", Some(60.0), Some(0.0)),
                moved("t/c", Some(0.0), Some(30.0)),
                moved("t/d", None, Some(5.0)),
                moved("t/e", Some(5.0), None),
            ],
            starved: vec!["t/e".to_owned()],
            new_jobs: vec![Started { job: "t/n".to_owned(), starts: None }],
            ..nothing()
        };
        assert_eq!(
            difference.words(),
            [
                "2 jobs start sooner: half of them by at most 1m, the last by 10m.",
                "1 job starts 30s later.",
                "1 job starts only with the change: t/d.",
                "1 job no longer starts: t/e.",
                "1 job is new and does not start: t/n.",
            ]
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let queue = |n: usize| QueueDifference {
            name: format!("q{n:02}").into(),
            wait_p50: (60.0, 0.0),
            wait_p90: (0.0, 0.0),
            waiting: (0, 0),
            preempted: (0, 1),
        };
        let starved = (0..7).map(|n| format!("t/{n}")).collect();
        let words = Difference { starved, queues: (0..12).map(queue).collect(), ..nothing() }.words();
        assert_eq!(words[0], "7 jobs no longer start: t/0, t/1, t/2, t/3, t/4 and 2 more.");
        assert_eq!(
            words[1],
            "In q00: half of the jobs wait at most 0s instead of 1m; 1 are preempted instead of 0."
        );
        assert_eq!((words.len(), words[11].as_str()), (12, "2 more queues differ."));
    }
}
