//! The connections from and to the engine without the feature `faults`: nothing is late, and clocks are right.

use jiff::Timestamp;
use sluice_engine::{Effect, Input};

use super::{SimError, Simulation};

impl Simulation {
    /// The time as the manager's clock has it.
    pub(super) fn manager_now(&self) -> Timestamp {
        self.now
    }

    /// More rounds than this at one instant mean a bug.
    #[expect(clippy::unused_self, reason = "with faults it depends on them")]
    pub(super) fn most_rounds(&self) -> usize {
        super::MOST_ROUNDS
    }

    /// When the engine wants to be woken.
    pub(super) fn engine_timer(&self) -> Option<Timestamp> {
        self.engine.next_timer()
    }

    /// When something comes late.
    #[expect(clippy::unused_self, reason = "with faults it depends on them")]
    pub(super) fn next_late(&self) -> Option<Timestamp> {
        None
    }

    /// An event on its way to the engine.
    pub(super) fn feed_event(&mut self, event: Input) {
        self.feed(event);
    }

    /// Whether anything late was delivered.
    #[expect(clippy::unused_self, reason = "with faults it depends on them")]
    pub(super) fn deliver_late(&mut self) -> bool {
        false
    }

    /// Carries out what the engine wants done.
    pub(super) fn carry_out_all(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Write(request) = effect {
                self.carry_out(&request);
            }
        }
    }

    /// Whether everything holds that must.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with faults it depends on them")]
    pub(super) fn check(&mut self, _changed: bool) -> Result<(), SimError> {
        Ok(())
    }
}
