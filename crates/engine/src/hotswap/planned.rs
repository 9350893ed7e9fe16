//! Moves that a look has found and that later cycles carry out: each eviction is written, and its job stopped, so that a cycle makes only some.
//!
//! One look decides for all displaced Workloads. What it found holds for as long as nothing changes that it depends on: nodes, queues, flavors
//! and the Workloads of moves that are still to be made are looked at anew at once, and the others as often as without a plan
//! ([`super::SWARM_INTERVAL`]); a look makes another plan. Until then no other Workload takes the room: what those that are still to move hold
//! counts as used, and their lost nodes do not count for the limits of their flavors.

use std::collections::{BTreeSet, VecDeque};

use sluice_core::WorkloadKey;

/// Once so many Workloads are evicted in one cycle, the other moves wait for the next.
const MOST_EVICTIONS: usize = 64;

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
    /// How many this cycle has evicted.
    evictions: usize,
    /// Something came of what was done: there is a look after the last move.
    look_after: bool,
}

impl Planned {
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

    /// One more move. It is given back if this cycle may make it.
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

    /// Whether there is to be a look, as all moves are made and something came of them.
    pub fn ends(&self) -> bool {
        !self.is_pending() && self.look_after
    }
}
