//! The pods with a topology assignment, by their Workload, pod set and stage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sluice_core::{Name, WorkloadKey};

use crate::hotswap::pod::PodKey;
use crate::job_pod::{JobPod, Stage};
use crate::world::World;

/// A Workload with more pods is large.
const MANY: usize = 100;
/// The time between two looks at the pods of a large Workload.
const PERIOD: SignedDuration = SignedDuration::from_secs(1);

/// The pods of a Workload, or of the slices of an elastic job: their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlacedPods {
    sets: BTreeMap<Name, BTreeMap<Stage, BTreeSet<Name>>>,
    len: usize,
    /// When they were last looked at.
    pub looked_at: Option<Timestamp>,
}

impl PartialEq for PlacedPods {
    fn eq(&self, other: &Self) -> bool {
        (&self.sets, self.len) == (&other.sets, other.len)
    }
}

impl PlacedPods {
    /// The pods of a pod set at a stage.
    pub fn at(&self, pod_set: &str, stage: Stage) -> impl Iterator<Item = &Name> {
        self.sets.get(pod_set).and_then(|stages| stages.get(&stage)).into_iter().flatten()
    }

    /// All pods at these stages.
    pub fn all<const N: usize>(&self, stages: [Stage; N]) -> impl Iterator<Item = &Name> {
        self.sets
            .values()
            .flat_map(move |of_set| stages.into_iter().filter_map(|stage| of_set.get(&stage)).flatten())
    }

    /// How many wait for a domain, or for a node.
    pub fn waiting(&self) -> usize {
        self.all([Stage::Gated, Stage::Unbound]).count()
    }

    /// Until when the pods of a large Workload are not looked at again: every look visits all of them.
    pub fn waits(&self, now: Timestamp) -> Option<Timestamp> {
        let last = self.looked_at.filter(|_| self.len > MANY)?;
        last.checked_add(PERIOD).ok().filter(|until| *until > now)
    }
}

/// Where a pod is kept.
fn home(namespace: &Name, pod: &JobPod) -> Option<(WorkloadKey, Name, Stage)> {
    let (place, stage) = (pod.place.as_ref()?, pod.stage()?);
    let set = Arc::clone(pod.pod_set.as_ref()?);
    Some((WorkloadKey::new(Arc::clone(namespace), Arc::clone(&place.workload)), set, stage))
}

/// Puts a pod in.
fn put(all: &mut BTreeMap<WorkloadKey, PlacedPods>, (namespace, name): &PodKey, pod: &JobPod) {
    let Some((workload, set, stage)) = home(namespace, pod) else { return };
    let pods = all.entry(workload).or_default();
    let stages = pods.sets.entry(set).or_default();
    pods.len += usize::from(stages.entry(stage).or_default().insert(Arc::clone(name)));
}

impl World {
    /// Puts a pod in that has a place.
    pub fn put_placed(&mut self, key: &PodKey) {
        if let Some(pod) = self.job_pods.get(key) {
            put(&mut self.placed, key, pod);
        }
    }

    /// Removes a pod in its stored version. The data of the Workload's pods is removed with the last one.
    pub fn take_placed(&mut self, (namespace, name): &PodKey, pod: &JobPod) {
        let Some((workload, set, stage)) = home(namespace, pod) else { return };
        let Some(pods) = self.placed.get_mut(&workload) else { return };
        if let Some(stages) = pods.sets.get_mut(&set) {
            if let Some(names) = stages.get_mut(&stage) {
                pods.len -= usize::from(names.remove(name));
                if names.is_empty() {
                    stages.remove(&stage);
                }
            }
            if stages.is_empty() {
                pods.sets.remove(&set);
            }
        }
        if pods.sets.is_empty() {
            self.placed.remove(&workload);
        }
    }

    /// The pods with a topology assignment, computed again.
    pub fn placed_again(&self) -> BTreeMap<WorkloadKey, PlacedPods> {
        let mut all = BTreeMap::new();
        for (key, pod) in self.job_pods.iter() {
            put(&mut all, key, pod);
        }
        all
    }
}
