//! The pods that controllers made of objects whose pods wait for admission in their place.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::ObjectRef;

use crate::object::FieldError;

/// An object with more pods is refused: each is played by itself.
const MOST_PODS: i64 = 20_000;

/// The pods of one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// UID and generation of the object that they were made of last.
    pub of: (String, i64),
    /// By their numbers.
    pub pods: BTreeMap<usize, ObjectRef>,
    /// Those that are ready.
    pub ready: BTreeSet<usize>,
    /// Since when some of them run.
    pub since: Option<Timestamp>,
}

/// The pods that controllers of such objects made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serving {
    /// By object.
    pub objects: BTreeMap<ObjectRef, Made>,
    /// The object that has a pod, and the pod's number there.
    pub homes: BTreeMap<ObjectRef, (ObjectRef, usize)>,
}

impl Serving {
    /// The object that has a pod.
    pub fn object_of(&self, pod: &ObjectRef) -> Option<&ObjectRef> {
        self.homes.get(pod).map(|(object, _)| object)
    }

    /// A pod is that of this number of an object.
    pub fn put(&mut self, object: &ObjectRef, number: usize, pod: ObjectRef) {
        self.homes.insert(pod.clone(), (object.clone(), number));
        self.objects.entry(object.clone()).or_default().pods.insert(number, pod);
    }
}

/// Says no to an object with more pods than are played.
pub(crate) fn check_number(kind: JobKind, object: &Value) -> Result<(), FieldError> {
    let groups = sluice_jobs::pod_groups(kind, object);
    let pods: i64 = groups.iter().map(|group| i64::from(group.count())).sum();
    if !kind.integration().suspends_pods || pods <= MOST_PODS {
        return Ok(());
    }
    Err(FieldError::new(
        "spec.replicas",
        format!("expected at most {MOST_PODS} pods to simulate, found {pods}"),
    ))
}
