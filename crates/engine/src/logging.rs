//! Lines of the log: effects like others, formatted only when their level is on.

use crate::effect::{Effect, Level, LogLine};
use crate::engine::Engine;

impl Engine {
    /// Makes a log line. If its level is off, it has no fields: nothing is formatted, and the effect is dropped where lines are written.
    pub(crate) fn log(
        &self,
        level: Level,
        message: &'static str,
        fields: &[(&'static str, &dyn ToString)],
    ) -> Effect {
        let wanted = level >= self.config.log_level;
        let fields = fields.iter().filter(|_| wanted).map(|(name, value)| (*name, value.to_string()));
        Effect::Log(LogLine { level, message, fields: fields.collect() })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::EngineConfig;

    /// Counts how often it is formatted.
    struct Counted<'a>(&'a Cell<u32>);

    impl std::fmt::Display for Counted<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.set(self.0.get() + 1);
            f.write_str("x")
        }
    }

    #[test]
    fn a_line_that_is_not_wanted_is_not_formatted() {
        let formatted = Cell::new(0);
        let line = |wanted: Level| {
            let engine = Engine::new(EngineConfig { log_level: wanted, ..EngineConfig::default() });
            let Effect::Log(line) = engine.log(Level::Info, "done", &[("what", &Counted(&formatted))]) else {
                unreachable!("a log line")
            };
            line.fields.len()
        };
        assert_eq!((line(Level::Warn), formatted.get()), (0, 0));
        assert_eq!((line(Level::Info), formatted.get()), (1, 1));
    }
}
