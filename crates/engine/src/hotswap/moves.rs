//! Carries out what looks have decided: see [`super::planned`].

use sluice_core::WorkloadKey;

use super::decide::Action;
use super::planned::Move;
use super::snapshot::{holds, leaves};
use crate::engine::Engine;

impl Engine {
    /// Carries out the result of a look that took `steps`: all lists, and as many moves as a cycle makes. The other moves wait.
    pub(super) fn begin_moves(&mut self, actions: Vec<Action>, steps: u64) {
        let planned = &mut self.hotswap.planned;
        planned.begin(steps);
        let now = actions.into_iter().filter_map(|action| match action {
            Action::Move(one) => planned.add(one).map(Action::Move),
            list @ Action::List { .. } => Some(list),
        });
        let now: Vec<_> = now.collect();
        for action in now {
            self.act(action);
        }
    }

    /// Makes some of the planned moves, unless this cycle did. Returns whether it made any, or a new look is needed.
    pub(super) fn go_on_moving(&mut self) -> bool {
        let planned = &mut self.hotswap.planned;
        if planned.has_moved() || !planned.is_pending() {
            return false;
        }
        let some: Vec<Move> = std::iter::from_fn(|| planned.pop()).collect();
        if !some.iter().all(|one| self.is_due(one)) {
            // A write about one of the Workloads has not been seen yet.
            self.hotswap_again();
            return true;
        }
        if self.hotswap.planned.ends() {
            self.hotswap.resumes = true;
            self.hotswap.again |= self.hotswap.results.has_tried();
        }
        for one in some {
            self.act(Action::Move(one));
        }
        true
    }

    /// Whether the Workloads of a move hold, or wait for, what they did when it was found.
    fn is_due(&self, one: &Move) -> bool {
        let stays = |key: &WorkloadKey, held: bool| {
            self.world.workloads.get(key).is_some_and(|entry| holds(entry) == held && !leaves(entry))
        };
        stays(&one.key, !one.nodes.is_empty()) && one.victims.iter().all(|victim| stays(victim, true))
    }
}
