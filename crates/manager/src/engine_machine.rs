//! The engine, behind the interface that the engine's thread drives.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_engine::Engine;
use sluice_engine::effect::Effect;
use sluice_engine::input::{Input, ObjectRef};

use crate::engine_thread::Machine;

impl Machine for Engine {
    fn apply(&mut self, now: Timestamp, input: Input) {
        Engine::apply(self, now, input);
    }

    fn cycle(&mut self, now: Timestamp) -> (Vec<Effect>, Duration) {
        let mut took = Duration::ZERO;
        let effects = self.cycle_around(now, |schedule| {
            let began = Instant::now();
            schedule();
            took = began.elapsed();
        });
        (effects, took)
    }

    fn has_work(&self) -> bool {
        Engine::has_work(self)
    }

    fn next_timer(&self) -> Option<Timestamp> {
        Engine::next_timer(self)
    }

    fn suspect(&self) -> Option<ObjectRef> {
        self.working_on().cloned()
    }

    fn is_aside(&self, object: &ObjectRef) -> bool {
        self.leaves_out(object)
    }

    fn has_moves(&self) -> bool {
        Engine::has_moves(self)
    }

    fn version_of(&self, object: &ObjectRef) -> Option<(&str, &str)> {
        Engine::version_of(self, object)
    }
}
