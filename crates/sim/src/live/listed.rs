//! Processes the objects of a list, and notes what could not be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use sluice_engine::Kind;

use super::{is_over, maker};
use crate::Observed;

/// Most ended jobs whose run times are kept.
const MOST_OBSERVED: usize = 50_000;

/// The result of a list.
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

/// Ended objects that are left out of the lists, and their run times. Workloads are listed before jobs.
#[derive(Debug, Default)]
pub(super) struct Ended(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// How long jobs took that have ended. Their objects are not kept.
    observed: Vec<Observed>,
    /// The numbers of the Workloads that an object owns, by its UID.
    owned: BTreeMap<String, BTreeSet<usize>>,
    /// How many Workloads were seen.
    workloads: usize,
}

impl Seen {
    fn note_owners(&mut self, workload: &Value) {
        self.workloads += 1;
        for owner in workload["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            if let Some(uid) = owner["uid"].as_str() {
                self.owned.entry(uid.to_owned()).or_default().insert(self.workloads);
            }
        }
    }

    /// A job that another kind's controller made of a job is played together with its owner, unless it is queued by itself: then it has a Workload
    /// that the owner does not have.
    fn is_played_with_its_owner(&self, object: &Value) -> bool {
        let Some((above, uid)) = maker(object) else { return false };
        let of = |uid: &str| self.owned.get(uid);
        let own = object["metadata"]["uid"].as_str().and_then(of);
        let is_of_above = |number: &usize| of(uid).is_some_and(|all| all.contains(number));
        above.integration().suspends_pods || own.is_none_or(|own| own.iter().all(is_of_above))
    }
}

impl Ended {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, unless it has ended or is played with its owner.
    pub fn without(&self, kind: Kind, mut object: Value) -> Option<Value> {
        object["kind"] = Value::from(kind.as_str());
        object["apiVersion"] = Value::from(kind.api_version());
        let mut seen = self.seen();
        match kind {
            Kind::Workload => seen.note_owners(&object),
            Kind::Job(_) if seen.is_played_with_its_owner(&object) => return None,
            _ => {}
        }
        if !is_over(kind, &object) {
            return Some(object);
        }
        if seen.observed.len() < MOST_OBSERVED {
            seen.observed.extend(Observed::of(kind, &object));
        }
        None
    }

    /// The run times that were seen.
    pub fn take(&self) -> Vec<Observed> {
        std::mem::take(&mut self.seen().observed)
    }
}
