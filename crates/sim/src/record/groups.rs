//! Jobs of several pods: a pod group, all pods of an object, or one group of an object's pods.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::{labels, slim};
use sluice_engine::ObjectRef;

use super::Record;

/// The name of one group of an object's pods, as a job: `<object>-<number>`.
pub(crate) fn component(object: &ObjectRef, number: u32) -> ObjectRef {
    ObjectRef { name: format!("{}-{number}", object.name).into(), ..object.clone() }
}

/// Which group of its object's pods a Workload is for.
pub(crate) fn component_index(workload: &slim::Workload) -> Option<u32> {
    workload.metadata.annotations.as_ref()?.get(labels::COMPONENT_WORKLOAD_INDEX)?.parse().ok()
}

impl Record {
    /// A pod of the job that another object is.
    pub(crate) fn joined(&mut self, reference: &ObjectRef, value: &Value, whole: &ObjectRef) {
        let Some(&index) = self.by_ref.get(whole) else { return };
        self.known_as(reference, value, index);
        self.members.insert(reference.clone(), None);
    }

    /// A pod joined a pod group, which is one job.
    pub(crate) fn joined_group(&mut self, now: Timestamp, reference: &ObjectRef, value: &Value, group: &str) {
        let name = self.text(group);
        let key = (Arc::clone(&reference.namespace), Arc::clone(&name));
        let (index, pods) = match self.groups.get(&key) {
            Some(known) => *known,
            None => (self.added(now, &ObjectRef { name: Arc::clone(&name), ..reference.clone() }, value), 0),
        };
        self.groups.insert(key, (index, pods + 1));
        self.known_as(reference, value, index);
        self.members.insert(reference.clone(), Some(name));
    }

    /// A pod joined a group of an object's pods, which is one job; `owner` is the object with this UID.
    pub(crate) fn joined_component(
        &mut self,
        now: Timestamp,
        (reference, value): (&ObjectRef, &Value),
        (owner, uid): (&ObjectRef, &str),
        number: u32,
    ) {
        let key = (self.text(uid), number);
        let whole = component(owner, number);
        if !self.components.contains_key(&key) {
            let index = self.added(now, &whole, value);
            self.by_ref.insert(whole.clone(), index);
            self.components.insert(key, index);
        }
        self.joined(reference, value, &whole);
    }

    /// The job of a Workload that the object with this UID owns, if the job is one group of its pods.
    pub(super) fn component_of(&self, uid: &str, workload: &slim::Workload) -> Option<usize> {
        self.components.get(&(uid.into(), component_index(workload)?)).copied()
    }

    /// An object no longer has groups of pods from this number on.
    pub(crate) fn components_gone(&mut self, now: Timestamp, owner: &ObjectRef, uid: &str, from: u32) {
        let uid: Arc<str> = uid.into();
        let range = (Arc::clone(&uid), from)..=(uid, u32::MAX);
        let gone: Vec<_> = self.components.range(range).map(|(key, index)| (key.clone(), *index)).collect();
        for (key, index) in gone {
            self.by_ref.remove(&component(owner, key.1));
            self.components.remove(&key);
            self.deleted(now, index);
        }
    }

    /// A pod of a group is gone; says whether it was the last.
    pub(super) fn left_group(&mut self, namespace: &Arc<str>, group: Arc<str>) -> bool {
        let key = (Arc::clone(namespace), group);
        let Some((_, pods)) = self.groups.get_mut(&key) else { return false };
        *pods -= 1;
        let last = *pods == 0;
        if last {
            self.groups.remove(&key);
        }
        last
    }
}
