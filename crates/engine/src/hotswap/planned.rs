//! Moves that a look has decided and that later cycles carry out: each needs writes for its eviction and the stop of its job, so that a cycle makes
//! only some.
//!
//! One look decides for all displaced Workloads. Its plan holds as long as nothing changes that it depends on: after a change of nodes, queues,
//! flavors or a Workload that is still to move there is a new look at once, after other changes as often as without a plan
//! ([`super::SWARM_INTERVAL`]). A look makes a new plan. Until then no other Workload takes the room: the usage of the Workloads that are still to
//! move counts, and their lost nodes do not count for the limits of their flavors.

use std::collections::{BTreeSet, VecDeque};

use sluice_core::WorkloadKey;

/// Once this many Workloads are evicted in one cycle, the other moves wait for the next. A move is not divided, however many victims it has: its
/// Workload is not evicted before there is room for it.
const MOST_EVICTIONS: usize = 64;
/// This many steps of a look take as long as one eviction: after a long look its cycle evicts less, or nothing.
const STEPS_PER_EVICTION: u64 = 100;
/// The number of evictions that a cycle may make after any look that takes the place of a plan of which nothing was carried out: otherwise nothing
/// would ever be where each cycle has a new look.
const LEAST_EVICTIONS: usize = MOST_EVICTIONS / 4;

/// A Workload that moves to other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// The Workload.
    pub key: WorkloadKey,
    /// The nodes that it lost; none if it was evicted already.
    pub nodes: Vec<String>,
    /// The Workloads that are evicted before.
    pub victims: Vec<WorkloadKey>,
}

/// The moves that are still to be made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Planned {
    moves: VecDeque<Move>,
    /// The Workloads that were evicted so far: what follows for them was part of the plan.
    evicted: BTreeSet<WorkloadKey>,
    /// How many evictions this cycle has made, including those whose time the look took.
    evictions: usize,
    /// Something came of what was done: there is a look after the last move.
    look_after: bool,
    /// The plan before this one was dropped before anything of it was carried out.
    overdue: bool,
}

impl Planned {
    /// There is a new look: the moves that are left are dropped.
    pub fn drop_moves(&mut self) {
        let overdue = self.is_pending() && self.evicted.is_empty();
        *self = Self { overdue, ..Self::default() };
    }

    /// The look took this many steps.
    pub fn begin(&mut self, steps: u64) {
        let most = if self.overdue { MOST_EVICTIONS - LEAST_EVICTIONS } else { MOST_EVICTIONS };
        self.evictions = usize::try_from(steps / STEPS_PER_EVICTION).unwrap_or(most).min(most);
    }

    /// Whether moves are still to be made.
    pub fn is_pending(&self) -> bool {
        !self.moves.is_empty()
    }

    /// A cycle begins.
    pub fn begin_cycle(&mut self) {
        self.evictions = 0;
    }

    /// A Workload changed. Whether that follows from the moves that were made.
    pub fn expects(&mut self, key: &WorkloadKey) -> bool {
        let expected = self.is_pending() && self.evicted.contains(key);
        self.look_after |= expected;
        expected
    }

    /// Adds a move. It is returned if this cycle may make it.
    pub fn add(&mut self, one: Move) -> Option<Move> {
        self.moves.push_back(one);
        self.pop()
    }

    /// The next move, if this cycle may make one more.
    pub fn pop(&mut self) -> Option<Move> {
        if self.evictions >= MOST_EVICTIONS {
            return None;
        }
        let one = self.moves.pop_front()?;
        self.evictions += one.victims.len() + 1;
        self.evicted.extend(one.victims.iter().chain([&one.key]).cloned());
        Some(one)
    }

    /// Whether this cycle has made some.
    pub fn has_moved(&self) -> bool {
        self.evictions > 0
    }

    /// Whether a new look is due, as all moves are made and some were carried out.
    pub fn ends(&self) -> bool {
        !self.is_pending() && self.look_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of many moves without victims the cycle of a look with this many steps makes.
    fn made_after(steps: u64, planned: &mut Planned) -> usize {
        planned.drop_moves();
        planned.begin(steps);
        let one =
            |n| Move { key: WorkloadKey::new("ns", format!("w{n}")), nodes: Vec::new(), victims: Vec::new() };
        (0..2 * MOST_EVICTIONS).filter(|n| planned.add(one(*n)).is_some()).count()
    }

    #[test]
    fn the_cycle_of_a_long_look_evicts_less_and_the_next_cycle_evicts_the_rest() {
        let mut planned = Planned::default();
        assert_eq!(made_after(0, &mut planned), MOST_EVICTIONS);
        assert_eq!(made_after(10 * STEPS_PER_EVICTION, &mut planned), MOST_EVICTIONS - 10);
        assert_eq!(made_after(u64::MAX, &mut planned), 0);
        planned.begin_cycle();
        assert_eq!(std::iter::from_fn(|| planned.pop()).count(), MOST_EVICTIONS);
    }

    #[test]
    fn where_each_cycle_has_a_long_look_every_second_one_evicts_some() {
        let mut planned = Planned::default();
        for _ in 0..3 {
            assert_eq!(made_after(u64::MAX, &mut planned), 0);
            assert_eq!(made_after(u64::MAX, &mut planned), LEAST_EVICTIONS);
        }
    }
}
