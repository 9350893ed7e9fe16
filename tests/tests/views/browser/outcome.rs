//! The JSON output of a simulation in terms of its pictures. Times in seconds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A time during which a job held quota.
#[derive(Clone, Debug)]
pub struct Hold {
    pub from: f64,
    /// When it ended, or was evicted.
    pub to: f64,
    pub preempted: bool,
    pub queue: String,
    /// `(resource, flavor, amount, unit)`.
    pub got: Vec<(String, String, i64, String)>,
}

/// A job's life.
#[derive(Clone, Debug, Default)]
pub struct Job {
    pub submitted: f64,
    pub finished: Option<f64>,
    pub holds: Vec<Hold>,
    /// The reasons and messages of why it waited, and when.
    pub reasons: Vec<(f64, String, String)>,
}

/// The outcome.
pub struct Outcome {
    pub report: Value,
    pub end: f64,
    pub jobs: BTreeMap<String, Job>,
}

/// A number and its unit, as of `16Gi`.
pub fn amount(text: &str) -> (i64, String) {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (text[..digits].parse().unwrap(), text[digits..].to_owned())
}

/// As of `cpu=reserved (8), memory=reserved (16Gi)`.
fn got(flavors: &str) -> Vec<(String, String, i64, String)> {
    let one = |part: &str| {
        let (resource, rest) = part.split_once('=').unwrap();
        let (flavor, rest) = rest.split_once(" (").unwrap();
        let (number, unit) = amount(rest.trim_end_matches(')'));
        (resource.to_owned(), flavor.to_owned(), number, unit)
    };
    flavors.split(", ").map(one).collect()
}

impl Outcome {
    pub fn new(report: Value) -> Self {
        let end = report["seconds"].as_f64().unwrap();
        let mut jobs = BTreeMap::<String, Job>::new();
        for line in report["timeline"].as_array().unwrap() {
            let Some(name) = line["job"].as_str() else { continue };
            let (at, job) = (line["at"].as_f64().unwrap(), jobs.entry(name.to_owned()).or_default());
            let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
            match line["event"].as_str().unwrap() {
                "submitted" => job.submitted = at,
                "waiting" => job.reasons.push((at, text("reason"), text("message"))),
                "admitted" => {
                    let (queue, got) = (text("queue"), got(&text("flavors")));
                    job.holds.push(Hold { from: at, to: end, preempted: false, queue, got });
                }
                event => {
                    if let Some(hold) = job.holds.last_mut().filter(|hold| hold.to >= end) {
                        hold.to = at;
                        hold.preempted = event == "preempted";
                    }
                    if event == "finished" {
                        job.finished = Some(at);
                    }
                }
            }
        }
        Self { report, end, jobs }
    }

    /// What is held of a flavor's resource at a time, by each queue, and its unit.
    pub fn usage(&self, resource: &str, flavor: &str, at: f64) -> (BTreeMap<String, i64>, String) {
        let mut usage = BTreeMap::new();
        let mut unit = String::new();
        let holds = self.jobs.values().flat_map(|job| &job.holds);
        for hold in holds.filter(|hold| (hold.from..hold.to).contains(&at)) {
            for got in hold.got.iter().filter(|got| got.0 == resource && got.1 == flavor) {
                *usage.entry(hold.queue.clone()).or_default() += got.2;
                unit.clone_from(&got.3);
            }
        }
        (usage, unit)
    }

    /// The nominal quota of a queue.
    pub fn nominal(&self, queue: &str, resource: &str, flavor: &str) -> i64 {
        let queues = self.report["queues"].as_array().unwrap();
        let found = queues.iter().find(|one| one["name"] == queue).unwrap();
        let slots = found["usage"].as_array().unwrap();
        let slot =
            slots.iter().find(|slot| slot["resource"] == resource && slot["flavor"] == flavor).unwrap();
        amount(slot["nominal"].as_str().unwrap()).0
    }

    /// The names of all queues.
    pub fn queues(&self) -> Vec<&str> {
        self.report["queues"]
            .as_array()
            .unwrap()
            .iter()
            .map(|queue| queue["name"].as_str().unwrap())
            .collect()
    }

    /// The jobs that ever were a queue's, which is their namespace's here where they never got quota.
    pub fn jobs_of<'a>(&'a self, queue: &'a str) -> impl Iterator<Item = (&'a String, &'a Job)> {
        let only = self.queues().len() == 1;
        self.jobs.iter().filter(move |(name, job)| match job.holds.first() {
            Some(hold) => hold.queue == queue,
            None => only || name.starts_with(&format!("{queue}/")),
        })
    }

    /// How many of a queue's jobs wait at a time.
    pub fn depth(&self, queue: &str, at: f64) -> usize {
        let waits = |job: &Job| {
            job.submitted <= at
                && job.finished.is_none_or(|finished| at < finished)
                && !job.holds.iter().any(|hold| (hold.from..hold.to).contains(&at))
        };
        self.jobs_of(queue).filter(|(_, job)| waits(job)).count()
    }

    /// The middle of the longest time in which nothing happens and which is wanted.
    pub fn calm(&self, wanted: impl Fn(f64) -> bool) -> f64 {
        let times =
            self.report["timeline"].as_array().unwrap().iter().map(|line| line["at"].as_f64().unwrap());
        // In milliseconds, so that they can be ordered.
        #[expect(clippy::cast_possible_truncation, reason = "a few days at most")]
        let mut times: Vec<i64> = times.chain([self.end]).map(|at| (at * 1000.0) as i64).collect();
        times.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "a few days at most")]
        let middle = |pair: &[i64]| (pair[0] + pair[1]) as f64 / 2000.0;
        let pairs = times.windows(2).filter(|pair| wanted(middle(pair)));
        middle(pairs.max_by_key(|pair| pair[1] - pair[0]).expect("such a time"))
    }

    /// The flavors that any queue has quota of.
    pub fn flavors(&self) -> BTreeSet<&str> {
        self.report["flavors"].as_array().unwrap().iter().map(|one| one["flavor"].as_str().unwrap()).collect()
    }
}
