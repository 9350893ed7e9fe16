//! The marks of Workloads whose pods get places in the topology.

use std::collections::BTreeSet;
use std::ops::Bound;

use sluice_core::WorkloadKey;

/// Workloads whose pods need a look, by the first slice. They take turns: one that is marked again and again delays no other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    marked: BTreeSet<WorkloadKey>,
    /// The one that had the last turn.
    last: Option<WorkloadKey>,
}

impl Marks {
    /// Marks one.
    pub fn insert(&mut self, first: WorkloadKey) {
        self.marked.insert(first);
    }

    /// How many are marked.
    pub fn len(&self) -> usize {
        self.marked.len()
    }

    /// Whether none is marked.
    pub fn is_empty(&self) -> bool {
        self.marked.is_empty()
    }

    /// Takes all marks away.
    pub fn clear(&mut self) {
        self.marked.clear();
    }

    /// Takes the mark of the next one away: the one after the last one, by name.
    pub fn pop(&mut self) -> Option<WorkloadKey> {
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.marked.range::<WorkloadKey, _>((after, Bound::Unbounded));
        let next = rest.next().or_else(|| self.marked.first())?.clone();
        self.marked.remove(&next);
        self.last = Some(next.clone());
        Some(next)
    }
}

impl Extend<WorkloadKey> for Marks {
    fn extend<I: IntoIterator<Item = WorkloadKey>>(&mut self, all: I) {
        self.marked.extend(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_their_turn_although_the_first_is_marked_again_each_time() {
        let key = |name: &str| WorkloadKey::new("ns", name);
        let mut marks = Marks::default();
        marks.extend(["a", "b", "c"].map(key));
        let mut turns = Vec::new();
        for _ in 0..4 {
            turns.extend(marks.pop());
            marks.insert(key("a"));
        }
        assert_eq!(turns, ["a", "b", "c", "a"].map(key));
        assert_eq!((marks.len(), marks.pop(), marks.pop()), (1, Some(key("a")), None));
        assert!(marks.is_empty());
    }
}
