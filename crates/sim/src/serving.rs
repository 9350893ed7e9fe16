//! Pods that controllers make of objects whose pods, not the objects, wait for admission.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef};

use crate::object::FieldError;

/// An object with more pods is refused: each is played by itself.
const MOST_PODS: i64 = 20_000;
/// Memory of a pod besides its template, in bytes: metadata and status.
const PER_POD: usize = 4 << 10;

/// The pods of one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// UID and generation of the object that they were made of last.
    pub of: (String, i64),
    /// By their numbers.
    pub pods: BTreeMap<usize, ObjectRef>,
    /// The pods that are ready.
    pub ready: BTreeSet<usize>,
    /// Since when some of them run.
    pub since: Option<Timestamp>,
}

/// The memory limit for all pods of objects whose pods wait for admission themselves: such an object can ask in a few bytes for any number of pods.
#[derive(Clone, Copy, Debug)]
pub struct PodMemory {
    /// In bytes.
    pub most: usize,
    /// About how many bytes a document takes.
    pub weight: fn(&Value) -> usize,
}

/// The pods that the controllers of such objects made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serving {
    /// By object.
    pub objects: BTreeMap<ObjectRef, Made>,
    /// How many bytes of [`PodMemory`] an object's pods take.
    bytes: BTreeMap<ObjectRef, usize>,
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

    /// The number of bytes for the pods of an object; an error if that much memory is not left, or there are too many pods.
    pub fn check(
        &self,
        object: (&ObjectRef, &Value),
        memory: Option<PodMemory>,
    ) -> Result<usize, FieldError> {
        let (reference, value) = object;
        let Kind::Job(kind) = reference.kind else { return Ok(0) };
        let pods = pods_to_make(kind, value);
        if pods > MOST_PODS {
            let why = format!("expected at most {MOST_PODS} pods to simulate, found {pods}");
            return Err(FieldError::new("spec.replicas", why));
        }
        let Some(PodMemory { most, weight }) = memory.filter(|_| pods > 0) else { return Ok(0) };
        let bytes = bytes_to_make(kind, value, weight);
        let others = self.bytes.iter().filter(|(other, _)| *other != reference).map(|(_, bytes)| bytes);
        let left = most.saturating_sub(others.sum());
        if bytes <= left {
            return Ok(bytes);
        }
        let why =
            format!("{pods} pods take {bytes} bytes of memory to simulate, and {left} are left for them");
        Err(FieldError::new("spec.replicas", why))
    }

    /// Reserves this many bytes for the pods of an object.
    pub fn take(&mut self, object: &ObjectRef, bytes: usize) {
        if bytes > 0 {
            self.bytes.insert(object.clone(), bytes);
        } else {
            self.bytes.remove(object);
        }
    }
}

/// How many groups of pods an object has; one if its groups are not jobs of their own.
fn groups(kind: JobKind, object: &Value) -> i64 {
    let groups = if kind.has_groups() { sluice_jobs::observe(kind, object).groups } else { None };
    groups.map_or(1, i64::from)
}

/// How many pods are made of an object; none if the object itself waits for admission.
pub(crate) fn pods_to_make(kind: JobKind, object: &Value) -> i64 {
    if !kind.integration().suspends_pods {
        return 0;
    }
    let sets = sluice_jobs::pod_groups(kind, object);
    let pods: i64 = sets.iter().map(|set| i64::from(set.count()).max(0)).sum();
    pods.saturating_mul(groups(kind, object))
}

/// How many bytes of memory the pods take that a simulation makes of an object. `weight`: about how many a document takes.
pub fn bytes_to_make(kind: JobKind, object: &Value, weight: fn(&Value) -> usize) -> usize {
    if !kind.integration().suspends_pods {
        return 0;
    }
    let number = |count: i64| usize::try_from(count.max(0)).unwrap_or(0);
    let sets = sluice_jobs::pod_groups(kind, object);
    let each = sets.iter().map(|set| {
        number(i64::from(set.count())).saturating_mul(weight(&set.template).saturating_add(PER_POD))
    });
    each.fold(0, usize::saturating_add).saturating_mul(number(groups(kind, object)))
}
