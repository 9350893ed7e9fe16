//! The plan of a race: queues, classes, kinds of objects and their number.

use std::time::Duration;

/// Where the Workloads are.
pub(super) const NAMESPACE: &str = "default";

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
    /// The run time of one.
    pub(super) run: Duration,
    /// One is created in each queue per interval.
    pub(super) interval: Duration,
}

/// The classes of Kueue's harness.
pub const CLASSES: [Class; 3] = [
    Class { name: "small", share: 350, cpu: 1, priority: 50, run: millis(200), interval: millis(100) },
    Class { name: "medium", share: 100, cpu: 5, priority: 100, run: millis(500), interval: millis(500) },
    Class { name: "large", share: 50, cpu: 20, priority: 200, run: millis(1_000), interval: millis(1_200) },
];

/// Small jobs fill a queue as long as there are any, and the others preempt them.
pub const PREEMPTING: [Class; 3] = [
    Class { name: "small", share: 200, cpu: 4, priority: 50, run: millis(3_000), interval: millis(100) },
    Class { name: "medium", share: 150, cpu: 10, priority: 100, run: millis(500), interval: millis(1_500) },
    Class { name: "large", share: 150, cpu: 20, priority: 200, run: millis(300), interval: millis(2_000) },
];

/// A hundred per second in thirty queues, which always have room.
pub const STEADY: [Class; 1] =
    [Class { name: "steady", share: 500, cpu: 1, priority: 50, run: millis(500), interval: millis(300) }];

/// Eight a second end in a queue with room for four, and a few more come: some always wait.
pub const FREED: [Class; 1] =
    [Class { name: "freed", share: 500, cpu: 1, priority: 50, run: millis(500), interval: millis(100) }];

const fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// The kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Workloads without jobs, as Kueue's harness makes them.
    Workloads,
    /// Jobs; the race plays their controller, so there are no pods.
    Jobs,
}

/// Which race.
#[derive(Clone, Debug)]
pub struct Race {
    /// How many cohorts there are.
    pub cohorts: usize,
    /// ClusterQueues in each, with a LocalQueue each.
    pub queues_per_cohort: usize,
    /// Processors of each ClusterQueue; it may borrow five times as much.
    pub quota: u32,
    /// The classes in each queue.
    pub classes: &'static [Class],
    /// The number per queue; of each class as many as its share, at least one.
    pub per_queue: usize,
    /// The kind of objects.
    pub work: Work,
    /// A command that starts the manager, for `sh -c`, with `KUBECONFIG` and `RACE_CONFIG` in its environment; the built Sluice if there is none.
    pub manager: Option<String>,
    /// How long the race may take.
    pub limit: Duration,
}

impl Default for Race {
    /// 300 Workloads in thirty queues, as in Kueue's harness.
    fn default() -> Self {
        Self {
            cohorts: 5,
            queues_per_cohort: 6,
            quota: 20,
            classes: &CLASSES,
            per_queue: 10,
            work: Work::Workloads,
            manager: None,
            limit: Duration::from_mins(5),
        }
    }
}

impl Race {
    /// The names of all queues, with the number of their cohort.
    pub(super) fn queues(&self) -> impl Iterator<Item = (usize, String)> {
        let (cohorts, queues) = (self.cohorts, self.queues_per_cohort);
        (0..cohorts).flat_map(move |cohort| {
            (0..queues).map(move |queue| (cohort, format!("cohort-{cohort}-queue-{queue}")))
        })
    }

    /// How many are made in all.
    pub fn total(&self) -> usize {
        let in_queue: usize = self.classes.iter().map(|class| class.count(self.per_queue)).sum();
        in_queue * self.cohorts * self.queues_per_cohort
    }

    /// Work in processors x time by the quota: less time is impossible. All queues have the same work.
    pub(super) fn bound(&self) -> Duration {
        let work = |class: &Class| {
            let count = u32::try_from(class.count(self.per_queue)).unwrap_or(u32::MAX);
            class.run * count * class.cpu
        };
        self.classes.iter().map(work).sum::<Duration>() / self.quota
    }
}

impl Class {
    /// How many of the class are made in a queue.
    pub(super) fn count(&self, per_queue: usize) -> usize {
        (self.share * per_queue / 500).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_race_makes_its_share_of_each_class_in_each_queue() {
        let race = Race { per_queue: 500, ..Race::default() };
        assert_eq!((race.total(), race.queues().count()), (15_000, 30));
        // (350 x 0.2 + 100 x 5 x 0.5 + 50 x 20) / 20.
        assert_eq!(race.bound(), Duration::from_secs(66));
        assert_eq!(Race::default().total(), 30 * (7 + 2 + 1));
    }
}
