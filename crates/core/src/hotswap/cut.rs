//! A search that takes more than one cycle. It continues where it was as long as nothing has changed, else it begins again. Each new beginning doubles
//! the length of its parts, up to a limit: even if something changes all the time, it then ends before the next change.

use crate::capacity_search::Answers;
use crate::workload::WorkloadKey;

/// A search that took this many cycles is given up.
const MOST_PARTS: u32 = 64;
/// How often the parts of a search are doubled at most.
const MOST_DOUBLINGS: u32 = 4;

/// A search to be continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CutSearch {
    /// The Workload.
    pub(super) key: WorkloadKey,
    /// In how many cycles it was searched.
    parts: u32,
    /// How often it began again.
    restarts: u32,
    /// How far it is.
    pub(super) progress: Progress,
}

impl CutSearch {
    /// A search that begins.
    pub(super) fn of(key: WorkloadKey) -> Self {
        Self { key, parts: 0, restarts: 0, progress: Progress::default() }
    }

    /// The search continues in one more cycle.
    pub(super) fn next_part(&mut self) {
        self.parts += 1;
        self.progress.went_on = false;
    }

    /// Whether it is given up: after as many cycles as it may take, or, where something changes all the time, after two of the longest parts.
    pub(super) fn is_given_up(&self) -> bool {
        self.parts >= MOST_PARTS || self.restarts > MOST_DOUBLINGS + 1
    }

    /// Something has changed.
    pub(super) fn restart(&mut self) {
        self.restarts += 1;
        self.progress = Progress::default();
    }

    /// How many steps its next part may make, if a cycle makes `steps`.
    pub(super) fn length(&self, steps: u64) -> u64 {
        steps.saturating_mul(1 << self.restarts.min(MOST_DOUBLINGS))
    }
}

/// How far a search is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// How many choices have no free nodes without victims.
    pub(super) spares: usize,
    /// How many choices have no free nodes with victims either.
    pub(super) ways: usize,
    /// What the search for victims keeps for the next part.
    pub(super) answers: Answers,
    /// In this cycle it has looked at something.
    pub(super) went_on: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_longer_each_time_it_begins_again_but_not_without_end() {
        let mut search = CutSearch::of(WorkloadKey::new("ns", "w"));
        let mut lengths = Vec::new();
        for _ in 0..7 {
            lengths.push(search.length(10));
            search.progress.spares = 1;
            search.restart();
            assert_eq!(search.progress, Progress::default());
        }
        assert_eq!(lengths, [10, 20, 40, 80, 160, 160, 160]);
        assert_eq!(search.length(u64::MAX), u64::MAX);
    }
}
