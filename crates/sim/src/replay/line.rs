//! The lines of a decision log: writing and reading them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_engine::{Effect, EffectId, Input, Kind, Object, ObjectRef, WaitingWrites, WriteError};

use super::said::said;
use super::settings::EngineSettings;
use super::{FORMAT, ReplayError};
use crate::object::{decode, recorded_kind};
use crate::options::Options;

/// Names an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Name(String, String, String, String);

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
        recorded_kind(&self.0, &self.1)
            .ok_or_else(|| ReplayError::Unreadable(format!("kind {} {}", self.0, self.1)))
    }

    fn reference(&self) -> Result<ObjectRef, ReplayError> {
        Ok(ObjectRef { kind: self.kind()?, namespace: self.2.as_str().into(), name: self.3.as_str().into() })
    }
}

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "camelCase")]
pub(super) enum Line {
    Header {
        format: u32,
        version: String,
        start: Timestamp,
        configuration: String,
        /// The settings outside the configuration file; a simulation has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        engine: Option<EngineSettings>,
    },
    /// The engine was rebuilt, and has no state yet.
    Rebuilt {
        at: Timestamp,
    },
    /// The recording ends here.
    End {
        at: Timestamp,
        why: String,
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
        /// Not in logs of older versions, and no pause.
        #[serde(default)]
        version: Option<String>,
        why: String,
        #[serde(default)]
        pause: u32,
    },
    Backlog {
        at: Timestamp,
        writes: u32,
        /// Absent in logs of older versions, which decided only after all answers.
        #[serde(default)]
        ahead: Option<u32>,
        /// Not in logs of older versions, which knew nothing of it.
        #[serde(default)]
        busy: bool,
    },
    Tick {
        at: Timestamp,
    },
    Cycle {
        at: Timestamp,
        effects: Vec<String>,
    },
}

fn error_parts(error: &WriteError) -> (String, String) {
    let (kind, text) = match error {
        WriteError::Conflict(text) => ("Conflict", text),
        WriteError::AlreadyExists(text) => ("AlreadyExists", text),
        WriteError::NotFound(text) => ("NotFound", text),
        WriteError::Refused(text) => ("Refused", text),
        WriteError::Unstartable(text) => ("Unstartable", text),
        WriteError::Withdrawn => ("Withdrawn", &String::new()),
        WriteError::PodsLeft { going_on, leaving } => ("PodsLeft", &format!("{going_on} {leaving}")),
        WriteError::PodsRemain(workloads) => ("PodsRemain", &workloads.join(" ")),
        WriteError::Transient(text) => ("Transient", text),
        WriteError::Later { why, seconds } => ("Later", &format!("{seconds} {why}")),
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
        "Withdrawn" => WriteError::Withdrawn,
        "PodsLeft" => {
            let mut counts = text.split(' ').map(|count| count.parse().unwrap_or(0));
            let mut next = || counts.next().unwrap_or(0);
            WriteError::PodsLeft { going_on: next(), leaving: next() }
        }
        "PodsRemain" => WriteError::PodsRemain(text.split_whitespace().map(Into::into).collect()),
        "Later" => {
            let (seconds, why) = text.split_once(' ').unwrap_or_default();
            WriteError::Later { why: why.to_owned(), seconds: seconds.parse().unwrap_or_default() }
        }
        _ => WriteError::Transient(text),
    }
}

/// Effects as the log has them.
pub(super) fn printed(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(said).collect()
}

fn text(line: &Line) -> String {
    serde_json::to_string(line).expect("a line consists of plain data with string keys")
}

/// The first line of a simulation's log.
pub(crate) fn header(options: &Options) -> String {
    text(&Line::Header {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        start: options.start,
        configuration: options.configuration.effective_yaml(),
        engine: None,
    })
}

/// The line of an input. `document` is the object that the input carries.
pub(crate) fn input(at: Timestamp, input: &Input, document: Option<&Value>) -> String {
    text(&input_line(at, input, document.cloned()))
}

fn input_line(at: Timestamp, input: &Input, document: Option<Value>) -> Line {
    match input {
        Input::Applied(o) => {
            Line::Applied { at, name: (&o.object_ref()).into(), object: document.unwrap_or_default() }
        }
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
            object: matches!(result, Ok(Some(_))).then(|| document.unwrap_or_default()),
            error: result.as_ref().err().map(error_parts),
        },
        Input::SetAside { object, version, why, pause } => Line::SetAside {
            at,
            name: object.into(),
            version: version.clone(),
            why: why.clone(),
            pause: *pause,
        },
        Input::Backlog(WaitingWrites { all, ahead, busy }) => {
            Line::Backlog { at, writes: *all, ahead: Some(*ahead), busy: *busy }
        }
        Input::Tick => Line::Tick { at },
    }
}

/// The line of a cycle.
pub(crate) fn cycle(at: Timestamp, effects: &[Effect]) -> String {
    text(&Line::Cycle { at, effects: printed(effects) })
}

/// Something that a running manager records. Cheap to make; making text of it may take a while.
#[derive(Clone, Debug)]
pub struct Entry(EntryContent);

#[derive(Clone, Debug)]
enum EntryContent {
    Line(Box<Line>),
    Cycle(Timestamp, Vec<Effect>),
}

impl Entry {
    fn line(line: Line) -> Self {
        Self(EntryContent::Line(Box::new(line)))
    }

    /// The beginning: under which configuration, and what it does not say.
    pub fn header(start: Timestamp, configuration: &Configuration, engine: EngineSettings) -> Self {
        Self::line(Line::Header {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start,
            configuration: configuration.effective_yaml(),
            engine: Some(engine),
        })
    }

    /// An input, with the document of the object that it carries.
    pub fn input(at: Timestamp, input: &Input, document: Option<Value>) -> Self {
        Self::line(input_line(at, input, document))
    }

    /// A cycle, and what came of it.
    pub fn cycle(at: Timestamp, effects: Vec<Effect>) -> Self {
        Self(EntryContent::Cycle(at, effects))
    }

    /// The engine was rebuilt.
    pub fn rebuilt(at: Timestamp) -> Self {
        Self::line(Line::Rebuilt { at })
    }

    /// The recording ends here.
    pub fn end(at: Timestamp, why: impl Into<String>) -> Self {
        Self::line(Line::End { at, why: why.into() })
    }

    /// Its line.
    pub fn text(&self) -> String {
        match &self.0 {
            EntryContent::Line(line) => text(line),
            EntryContent::Cycle(at, effects) => cycle(*at, effects),
        }
    }
}

fn object_of(name: &Name, value: &Value) -> Result<Object, ReplayError> {
    decode(name.kind()?, value)
        .map_err(|wrong| ReplayError::Unreadable(format!("{}: {}", wrong.path, wrong.message)))
}

pub(super) fn input_of(line: Line) -> Result<(Timestamp, Input), ReplayError> {
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
        Line::SetAside { at, name, version, why, pause } => {
            (at, Input::SetAside { object: name.reference()?, version, why, pause })
        }
        Line::Backlog { at, writes: all, ahead, busy } => {
            (at, Input::Backlog(WaitingWrites { all, ahead: ahead.unwrap_or(all), busy }))
        }
        Line::Tick { at } => (at, Input::Tick),
        Line::Header { .. } | Line::Cycle { .. } | Line::Rebuilt { .. } | Line::End { .. } => {
            return Err(ReplayError::Unreadable("expected an input".to_owned()));
        }
    })
}
