//! The head of a queue, and what in a StrictFIFO queue it waits for.

use std::collections::BTreeSet;

use super::{HeadKey, PendingQueue};
use crate::intern::{ClassId, WorkloadId};
use crate::queue::OrderKey;

impl PendingQueue {
    /// Takes the head out: the sticky preemptor if it is in the heap, otherwise the first by priority, timestamp and
    /// UID. With `rank`, the LocalQueue's rank comes before all of that.
    pub(crate) fn pop(
        &mut self,
        sticky: Option<(ClassId, OrderKey)>,
        rank: Option<&[f64]>,
    ) -> Option<(ClassId, OrderKey)> {
        let head = match rank {
            None if sticky.is_none() => return self.pop_first(),
            None => sticky,
            Some(rank) => {
                let rank_of = |class| self.rank_of(class, rank);
                let first = self.heads.iter().min_by(|a, b| rank_of(a.2).total_cmp(&rank_of(b.2)));
                let first = first.map(|(_, key, class)| (*class, key.clone()));
                match (sticky, first) {
                    (Some(sticky), Some(first)) => {
                        Some(if rank_of(first.0) < rank_of(sticky.0) { first } else { sticky })
                    }
                    (sticky, first) => sticky.or(first),
                }
            }
        }?;
        self.remove_active(head.0, &head.1);
        Some(head)
    }

    /// The rank of the LocalQueue of a class.
    fn rank_of(&self, class: ClassId, rank: &[f64]) -> f64 {
        self.class(class).key.local.and_then(|local| rank.get(local.at())).copied().unwrap_or(0.0)
    }

    /// Takes out the first by priority, timestamp and UID.
    fn pop_first(&mut self) -> Option<(ClassId, OrderKey)> {
        let &(priority, _, id) = self.heads.first()?;
        let class = self.classes[id.at()].as_mut().expect("a class with a head is in use");
        class.active.pop_first();
        self.active -= 1;
        // The next one goes in before the first one leaves: a set that never gets empty keeps its memory.
        if let Some(next) = class.active.first() {
            self.heads.insert((priority, next.clone(), id));
        }
        self.heads.pop_first().map(|(_, key, id)| (id, key))
    }

    /// Those that wait in their place.
    pub(crate) fn paused(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.paused.iter().map(|(_, key, _)| key.id)
    }

    /// Whether one that waits in its place is before all that are in the heap; `rank` as for [`Self::pop`].
    pub(crate) fn is_held_up(&self, rank: Option<&[f64]>) -> bool {
        let order = |a: &&HeadKey, b: &&HeadKey| {
            let of = |key: &HeadKey| rank.map_or(0.0, |rank| self.rank_of(key.2, rank));
            of(a).total_cmp(&of(b)).then_with(|| a.cmp(b))
        };
        let first = |of: &BTreeSet<HeadKey>| match rank {
            None => of.first().cloned(),
            Some(_) => of.iter().min_by(order).cloned(),
        };
        let Some(paused) = first(&self.paused) else { return false };
        first(&self.heads).is_none_or(|head| order(&&paused, &&head).is_lt())
    }
}
