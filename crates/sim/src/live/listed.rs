//! What a list gave, and what of it could not be read.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use sluice_engine::Kind;

use super::{is_child, is_over};
use crate::Observed;

/// Jobs that have ended of which it is kept how long they took.
const MOST_OBSERVED: usize = 50_000;

/// What a list gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The objects that were kept.
    pub found: Vec<Value>,
    /// Whether there are more than were asked for.
    pub more: bool,
    /// Why not everything was read, if so.
    pub unread: Option<String>,
}

impl From<Vec<Value>> for Listed {
    fn from(found: Vec<Value>) -> Self {
        Self { found, ..Self::default() }
    }
}

/// How long jobs took that have ended. Their objects are not kept.
#[derive(Debug, Default)]
pub(super) struct Ended(Mutex<Vec<Observed>>);

impl Ended {
    /// The object, unless it is over, or is played with its owner.
    pub fn without(&self, kind: Kind, mut object: Value) -> Option<Value> {
        object["kind"] = Value::from(kind.as_str());
        object["apiVersion"] = Value::from(kind.api_version());
        if matches!(kind, Kind::Job(_)) && is_child(&object) {
            return None;
        }
        if !is_over(kind, &object) {
            return Some(object);
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST_OBSERVED {
            all.extend(Observed::of(kind, &object));
        }
        None
    }

    /// Those that were seen.
    pub fn take(&self) -> Vec<Observed> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
