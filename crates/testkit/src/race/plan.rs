//! What a race is about: queues, classes, and how many Workloads.

use std::time::Duration;

/// Where the Workloads are.
pub(super) const NAMESPACE: &str = "default";
pub(super) const COHORTS: usize = 5;
pub(super) const QUEUES_PER_COHORT: usize = 6;
/// Processors of each queue.
pub(super) const QUOTA: u32 = 20;
/// How much more it may borrow.
pub(super) const BORROWING: u32 = 100;
/// Workloads of one class in every queue.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// How many of each five hundred in a queue.
    pub(super) share: usize,
    /// Processors.
    pub(super) cpu: u32,
    pub(super) priority: i32,
    /// How long one runs.
    pub(super) run: Duration,
    /// One is made in each queue in this interval.
    pub(super) interval: Duration,
}

/// The classes of Kueue's harness.
pub const CLASSES: [Class; 3] = [
    Class {
        name: "small",
        share: 350,
        cpu: 1,
        priority: 50,
        run: Duration::from_millis(200),
        interval: Duration::from_millis(100),
    },
    Class {
        name: "medium",
        share: 100,
        cpu: 5,
        priority: 100,
        run: Duration::from_millis(500),
        interval: Duration::from_millis(500),
    },
    Class {
        name: "large",
        share: 50,
        cpu: 20,
        priority: 200,
        run: Duration::from_secs(1),
        interval: Duration::from_millis(1_200),
    },
];

/// Which race.
#[derive(Clone, Debug)]
pub struct Race {
    /// Workloads in each of the thirty queues; of each class as many as its share, at least one.
    pub per_queue: usize,
    /// A command that starts the manager, for `sh -c`, with `KUBECONFIG` and `RACE_CONFIG` in its environment; the built Sluice if there is none.
    pub manager: Option<String>,
    /// How long the race may take.
    pub limit: Duration,
}

impl Class {
    /// How many of the class are made in a queue.
    pub(super) fn count(&self, per_queue: usize) -> usize {
        (self.share * per_queue / 500).max(1)
    }
}

/// Cohort and queue, by their numbers.
pub(super) fn queues() -> impl Iterator<Item = (usize, usize)> {
    (0..COHORTS).flat_map(|cohort| (0..QUEUES_PER_COHORT).map(move |queue| (cohort, queue)))
}

/// The name of both queues.
pub(super) fn queue_name((cohort, queue): (usize, usize)) -> String {
    format!("cohort-{cohort}-queue-{queue}")
}
