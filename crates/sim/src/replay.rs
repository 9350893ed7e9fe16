//! The decision log: all inputs and outputs of the engine, one JSON document per line; and its replay.
//!
//! The first line has the configuration. Inputs contain the objects as documents, so that any version of the engine can read them; effects are lines
//! of text that stay the same as long as the behaviour does.
//!
//! Simulations and running managers write decision logs. Where a manager rebuilt its engine (after a panic, or because another replica may lead), the
//! log says so, and the replay rebuilds it, too.

mod line;
mod said;
mod settings;

use std::panic::{AssertUnwindSafe, catch_unwind};

use jiff::Timestamp;
use serde::Serialize;
use sluice_api::config::Configuration;
use sluice_engine::{Engine, EngineConfig};

use crate::options::Options;
use line::{Line, input_of, printed};
use said::difference;

pub use line::Entry;
pub(crate) use line::{cycle, header, input};
pub use settings::EngineSettings;

/// Takes the lines of a log.
pub type Sink = dyn FnMut(&str) + Send;

/// The version of the format.
const FORMAT: u32 = 2;

/// Why a log cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A line is not what it should be.
    #[error("line {line}: {message}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// The problem.
        message: String,
    },
    /// A part of a line is not.
    #[error("{0}")]
    Unreadable(String),
}

/// A cycle that came out differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The line of the log, from 1.
    pub line: usize,
    /// When.
    pub at: Timestamp,
    /// The effects that the log has and the engine did not give.
    pub recorded: Vec<String>,
    /// The effects that the engine gave instead. Both are empty where only the order differs.
    pub replayed: Vec<String>,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The version that wrote the log.
    pub version: String,
    /// Inputs that were given.
    pub inputs: usize,
    /// Cycles that were run.
    pub cycles: usize,
    /// Effects that were compared.
    pub effects: usize,
    /// Cycles that came out differently. After the first, others may follow from it.
    pub mismatches: Vec<Mismatch>,
    /// How often the engine was rebuilt.
    pub rebuilt: usize,
    /// Why the recording ended, if it says so.
    pub ended: Option<String>,
}

/// An engine that is fed from a log.
#[derive(Debug, Default)]
pub struct Replay {
    config: Option<EngineConfig>,
    /// Absent between a panic and the line that says that the engine was rebuilt.
    engine: Option<Engine>,
    outcome: Outcome,
    line: usize,
}

impl Replay {
    /// Replays one line.
    ///
    /// # Errors
    ///
    /// If the line is not from a decision log, has an object or a configuration that cannot be read, or is a header of another format; or if it comes
    /// before the header, or after a panic of the engine that was not recorded.
    pub fn line(&mut self, line: &str) -> Result<(), ReplayError> {
        self.line += 1;
        if line.trim().is_empty() {
            return Ok(());
        }
        let number = self.line;
        let wrong = |message: String| ReplayError::Line { line: number, message };
        let parsed: Line =
            serde_json::from_str(line).map_err(|e| wrong(format!("not a line of a decision log: {e}")))?;
        self.take(parsed).map_err(|error| match error {
            ReplayError::Unreadable(message) => wrong(message),
            other @ ReplayError::Line { .. } => other,
        })
    }

    /// The result.
    pub fn finish(self) -> Outcome {
        self.outcome
    }

    fn take(&mut self, line: Line) -> Result<(), ReplayError> {
        match line {
            Line::Header { format, version, start, configuration, engine } => {
                if format != FORMAT {
                    return Err(ReplayError::Unreadable(format!("format {format}, expected {FORMAT}")));
                }
                let (configuration, _) = Configuration::parse(&configuration)
                    .map_err(|e| ReplayError::Unreadable(e.to_string()))?;
                sluice_jobs::declare(&configuration).map_err(|e| ReplayError::Unreadable(e.to_string()))?;
                let config = match engine {
                    Some(settings) => settings.config(&configuration),
                    None => Options { start, ..Options::new(configuration) }.engine(),
                };
                self.engine = Some(Engine::new(config.clone()));
                self.config = Some(config);
                self.outcome.version = version;
                Ok(())
            }
            Line::Rebuilt { .. } => {
                self.engine = self.config.clone().map(Engine::new);
                self.outcome.rebuilt += 1;
                Ok(())
            }
            Line::End { why, .. } => {
                self.outcome.ended = Some(why);
                Ok(())
            }
            line => self.give(line),
        }
    }

    /// Gives the engine an input, or lets it do a cycle.
    fn give(&mut self, line: Line) -> Result<(), ReplayError> {
        let number = self.line;
        let Some(engine) = &mut self.engine else {
            let expected = if self.config.is_some() {
                "the engine panics here, and the log does not say that it was rebuilt"
            } else {
                "expected the header of a decision log"
            };
            return Err(ReplayError::Unreadable(expected.to_owned()));
        };
        if let Line::Cycle { at, effects } = line {
            let Ok(replayed) = catch_unwind(AssertUnwindSafe(|| engine.cycle(at))) else {
                self.engine = None;
                return Ok(());
            };
            let replayed = printed(&replayed);
            self.outcome.cycles += 1;
            self.outcome.effects += effects.len();
            if replayed != effects {
                let (recorded, replayed) = difference(&effects, &replayed);
                self.outcome.mismatches.push(Mismatch { line: number, at, recorded, replayed });
            }
            return Ok(());
        }
        let (at, input) = input_of(line)?;
        self.outcome.inputs += 1;
        if catch_unwind(AssertUnwindSafe(|| engine.apply(at, input))).is_err() {
            self.engine = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::Input;

    #[test]
    fn what_is_no_log_is_reported_with_its_line() {
        let mut replay = Replay::default();
        assert!(replay.line("").is_ok());
        let error = replay.line("nonsense").unwrap_err().to_string();
        assert!(error.starts_with("line 2: not a line"), "{error}");
        let synced = Entry::input(Timestamp::UNIX_EPOCH, &Input::Synced, None).text();
        let error = Replay::default().line(&synced).unwrap_err();
        assert!(error.to_string().contains("header"), "{error}");
    }
}
