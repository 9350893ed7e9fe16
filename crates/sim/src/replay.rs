//! The decision log: everything that went into the engine and came out, one JSON document a line; and its replay.
//!
//! The first line says with which configuration; inputs carry the objects as documents, so that the engine of any version
//! can be given them again; effects are what the engine's types print.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_engine::{Effect, EffectId, Engine, Input, Kind, Object, ObjectRef, WriteError};

use crate::object::{decode, kind_of};
use crate::options::Options;

/// Takes the lines of a log.
pub type Sink = dyn FnMut(&str) + Send;

/// The version of the format.
const FORMAT: u32 = 1;

/// Names an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Name(String, String, String, String);

impl From<&ObjectRef> for Name {
    fn from(object: &ObjectRef) -> Self {
        let kind = object.kind;
        let version = if kind.group().is_empty() {
            kind.version().to_owned()
        } else {
            format!("{}/{}", kind.group(), kind.version())
        };
        Self(version, kind.as_str().to_owned(), object.namespace.to_string(), object.name.to_string())
    }
}

impl Name {
    fn kind(&self) -> Result<Kind, ReplayError> {
        kind_of(&self.0, &self.1)
            .ok_or_else(|| ReplayError::Unreadable(format!("kind {} {}", self.0, self.1)))
    }

    fn reference(&self) -> Result<ObjectRef, ReplayError> {
        Ok(ObjectRef { kind: self.kind()?, namespace: self.2.as_str().into(), name: self.3.as_str().into() })
    }
}

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "camelCase")]
enum Line {
    Header {
        format: u32,
        version: String,
        start: Timestamp,
        configuration: String,
    },
    Applied {
        at: Timestamp,
        name: Name,
        object: Value,
    },
    Deleted {
        at: Timestamp,
        name: Name,
        uid: Option<String>,
    },
    Listed {
        at: Timestamp,
        kind: Name,
        present: Vec<Name>,
        #[serde(default)]
        as_of: Option<u64>,
    },
    Synced {
        at: Timestamp,
    },
    Leader {
        at: Timestamp,
        leads: bool,
    },
    Written {
        at: Timestamp,
        id: u64,
        name: Option<Name>,
        object: Option<Value>,
        error: Option<(String, String)>,
    },
    SetAside {
        at: Timestamp,
        name: Name,
        why: String,
    },
    Tick {
        at: Timestamp,
    },
    Cycle {
        at: Timestamp,
        effects: Vec<String>,
    },
}

/// Why a log cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A line is not what it should be.
    #[error("line {line}: {message}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A part of a line is not.
    #[error("{0}")]
    Unreadable(String),
}

fn error_parts(error: &WriteError) -> (String, String) {
    let (kind, text) = match error {
        WriteError::Conflict(text) => ("Conflict", text),
        WriteError::AlreadyExists(text) => ("AlreadyExists", text),
        WriteError::NotFound(text) => ("NotFound", text),
        WriteError::Refused(text) => ("Refused", text),
        WriteError::Unstartable(text) => ("Unstartable", text),
        WriteError::Transient(text) => ("Transient", text),
    };
    (kind.to_owned(), text.clone())
}

fn error_from((kind, text): (String, String)) -> WriteError {
    match kind.as_str() {
        "Conflict" => WriteError::Conflict(text),
        "AlreadyExists" => WriteError::AlreadyExists(text),
        "NotFound" => WriteError::NotFound(text),
        "Refused" => WriteError::Refused(text),
        "Unstartable" => WriteError::Unstartable(text),
        _ => WriteError::Transient(text),
    }
}

/// Effects as the log has them.
fn printed(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(|effect| format!("{effect:?}")).collect()
}

fn text(line: &Line) -> String {
    serde_json::to_string(line).expect("a line consists of plain data with string keys")
}

/// The first line.
pub(crate) fn header(options: &Options) -> String {
    text(&Line::Header {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        start: options.start,
        configuration: options.configuration.effective_yaml(),
    })
}

/// The line of an input. `document` is the object that the input carries.
pub(crate) fn input(at: Timestamp, input: &Input, document: Option<&Value>) -> String {
    let object = || document.cloned().unwrap_or_default();
    text(&match input {
        Input::Applied(o) => Line::Applied { at, name: (&o.object_ref()).into(), object: object() },
        Input::Deleted { object, uid } => {
            Line::Deleted { at, name: object.into(), uid: uid.as_deref().map(str::to_owned) }
        }
        Input::Listed { kind, present, as_of } => {
            let kind = &ObjectRef { kind: *kind, namespace: "".into(), name: "".into() };
            let present = present.iter().map(Name::from).collect();
            Line::Listed { at, kind: kind.into(), present, as_of: *as_of }
        }
        Input::Synced => Line::Synced { at },
        Input::Leader(leads) => Line::Leader { at, leads: *leads },
        Input::Written { id, result } => Line::Written {
            at,
            id: id.0,
            name: result.as_ref().ok().and_then(Option::as_ref).map(|o| (&o.object_ref()).into()),
            object: matches!(result, Ok(Some(_))).then(object),
            error: result.as_ref().err().map(error_parts),
        },
        Input::SetAside { object, why } => Line::SetAside { at, name: object.into(), why: why.clone() },
        Input::Tick => Line::Tick { at },
    })
}

/// The line of a cycle.
pub(crate) fn cycle(at: Timestamp, effects: &[Effect]) -> String {
    text(&Line::Cycle { at, effects: printed(effects) })
}

/// A cycle that came out differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The line of the log, from 1.
    pub line: usize,
    /// When.
    pub at: Timestamp,
    /// The first effect that the log has and the engine did not give, if there is one.
    pub recorded: Option<String>,
    /// The first effect that the engine gave instead, if there is one.
    pub replayed: Option<String>,
}

/// What a replay came to.
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
}

/// An engine that is given a log.
#[derive(Debug, Default)]
pub struct Replay {
    engine: Option<Engine>,
    outcome: Outcome,
    line: usize,
}

impl Replay {
    /// Takes one line.
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

    /// What came of it.
    pub fn finish(self) -> Outcome {
        self.outcome
    }

    fn take(&mut self, line: Line) -> Result<(), ReplayError> {
        if let Line::Header { format, version, start, configuration } = line {
            if format != FORMAT {
                return Err(ReplayError::Unreadable(format!("format {format}, expected {FORMAT}")));
            }
            let (configuration, _) =
                Configuration::parse(&configuration).map_err(|e| ReplayError::Unreadable(e.to_string()))?;
            let options = Options { start, ..Options::new(configuration) };
            self.engine = Some(Engine::new(options.engine()));
            self.outcome.version = version;
            return Ok(());
        }
        let number = self.line;
        let Some(engine) = &mut self.engine else {
            return Err(ReplayError::Unreadable("expected the header of a decision log".to_owned()));
        };
        if let Line::Cycle { at, effects } = line {
            let replayed = printed(&engine.cycle(at));
            self.outcome.cycles += 1;
            self.outcome.effects += effects.len();
            if replayed != effects {
                let differs = |i: &usize| effects.get(*i) != replayed.get(*i);
                let first = (0..effects.len().max(replayed.len())).find(differs).unwrap_or(0);
                self.outcome.mismatches.push(Mismatch {
                    line: number,
                    at,
                    recorded: effects.get(first).cloned(),
                    replayed: replayed.get(first).cloned(),
                });
            }
            return Ok(());
        }
        let (at, input) = input_of(line)?;
        self.outcome.inputs += 1;
        engine.apply(at, input);
        Ok(())
    }
}

fn object_of(name: &Name, value: &Value) -> Result<Object, ReplayError> {
    decode(name.kind()?, value)
        .map_err(|wrong| ReplayError::Unreadable(format!("{}: {}", wrong.path, wrong.message)))
}

fn input_of(line: Line) -> Result<(Timestamp, Input), ReplayError> {
    Ok(match line {
        Line::Applied { at, name, object } => (at, Input::Applied(object_of(&name, &object)?)),
        Line::Deleted { at, name, uid } => {
            (at, Input::Deleted { object: name.reference()?, uid: uid.map(Into::into) })
        }
        Line::Listed { at, kind, present, as_of } => {
            let present = present.iter().map(Name::reference).collect::<Result<_, _>>()?;
            (at, Input::Listed { kind: kind.kind()?, present, as_of })
        }
        Line::Synced { at } => (at, Input::Synced),
        Line::Leader { at, leads } => (at, Input::Leader(leads)),
        Line::Written { at, id, name, object, error } => {
            let result = match (error, name, object) {
                (Some(error), ..) => Err(error_from(error)),
                (None, Some(name), Some(object)) => Ok(Some(object_of(&name, &object)?)),
                _ => Ok(None),
            };
            (at, Input::Written { id: EffectId(id), result })
        }
        Line::SetAside { at, name, why } => (at, Input::SetAside { object: name.reference()?, why }),
        Line::Tick { at } => (at, Input::Tick),
        Line::Header { .. } | Line::Cycle { .. } => {
            return Err(ReplayError::Unreadable("a header in the middle".to_owned()));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_log_is_told_with_its_line() {
        let mut replay = Replay::default();
        assert!(replay.line("").is_ok());
        let error = replay.line("nonsense").unwrap_err().to_string();
        assert!(error.starts_with("line 2: not a line"), "{error}");
        let error = Replay::default().line(&text(&Line::Synced { at: Timestamp::UNIX_EPOCH })).unwrap_err();
        assert!(error.to_string().contains("header"), "{error}");
    }
}
