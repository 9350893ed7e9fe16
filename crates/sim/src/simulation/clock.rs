//! How time passes: from one event to the next.

use jiff::{SignedDuration, Timestamp};

use super::{SimError, Simulation};
use crate::agenda::after;

/// How long the simulation follows the engine's own timers when nothing else is left to happen.
const PATIENCE: SignedDuration = SignedDuration::from_hours(24);

impl Simulation {
    /// When something will happen next, if anything will.
    pub fn next(&self) -> Option<Timestamp> {
        let planned = [self.agenda.next(), self.next_late()].into_iter().flatten().min();
        let timer = self.engine_timer().map(|t| match self.idle_timer {
            // A timer that is due repeatedly at the same time must not stop the clock.
            Some(idle) if t <= idle => after(idle, SignedDuration::from_secs(1)),
            _ => t,
        });
        match (planned, timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (Some(a), None) => Some(a),
            (None, Some(b)) => {
                // Only the engine's timers are left: they may still have an effect, but are not followed for ever.
                let patience = after(self.last_event, PATIENCE);
                let unbounded = self.options.until.is_some();
                (unbounded || b <= patience).then_some(b)
            }
            (None, None) => None,
        }
    }

    /// The time of the next step: the next event, or the requested end if that is sooner.
    pub fn next_step(&self) -> Option<Timestamp> {
        let next = self.next()?;
        Some(self.end().map_or(next, |end| next.min(end)))
    }

    /// The requested end.
    fn end(&self) -> Option<Timestamp> {
        self.options.until.map(|until| after(self.options.start, until))
    }

    /// Goes to the next time at which something happens, and lets it happen. False at the end.
    ///
    /// # Errors
    ///
    /// As [`Self::settle`].
    pub fn step(&mut self) -> Result<bool, SimError> {
        let next = match (self.next(), self.end()) {
            (Some(next), None) => next,
            (Some(next), Some(end)) if next <= end => next,
            // Nothing more happens up to the end: waiting jobs wait until then, and free quota stays free.
            (_, Some(end)) => {
                self.set_now(end);
                return Ok(false);
            }
            (None, None) => return Ok(false),
        };
        let planned = self.agenda.next().is_some_and(|at| at <= next);
        self.set_now(next);
        while let Some(action) = self.agenda.take_due(self.now) {
            self.act(action);
        }
        if planned {
            self.last_event = self.now;
        }
        self.settle()?;
        self.play_events();
        let due = self.engine_timer().is_some_and(|t| t <= self.now);
        self.idle_timer = due.then_some(self.now);
        Ok(true)
    }

    fn set_now(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.world.now = self.now;
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// As [`Self::settle`].
    pub fn run(&mut self, mut progress: impl FnMut(&Self)) -> Result<(), SimError> {
        self.settle()?;
        self.play_events();
        while self.step()? {
            progress(self);
        }
        Ok(())
    }

    /// Lets a while pass.
    ///
    /// # Errors
    ///
    /// As [`Self::settle`].
    pub fn advance(&mut self, wait: SignedDuration) -> Result<(), SimError> {
        self.advance_while(wait, || true)
    }

    /// Lets this much time pass, as long as `go_on` returns true before each step.
    ///
    /// # Errors
    ///
    /// As [`Self::settle`].
    pub fn advance_while(&mut self, wait: SignedDuration, go_on: impl Fn() -> bool) -> Result<(), SimError> {
        self.settle()?;
        let until = after(self.now, wait);
        while self.next().is_some_and(|next| next <= until) {
            if !go_on() || !self.step()? {
                break;
            }
        }
        self.set_now(until);
        self.settle()
    }

    /// Runs until the condition holds. False if it never does.
    ///
    /// # Errors
    ///
    /// As [`Self::settle`].
    pub fn run_until(&mut self, so: impl Fn(&Self) -> bool) -> Result<bool, SimError> {
        self.settle()?;
        loop {
            if so(self) {
                return Ok(true);
            }
            if !self.step()? {
                return Ok(false);
            }
        }
    }
}
