//! Plays the controllers of objects whose pods wait for admission themselves (docs/reference/07-integrations.md 7.4): they make as many pods as the
//! object asks for, and replace each pod that ends.

use std::sync::Arc;

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef};
use sluice_jobs::State;
use sluice_jobs::pods::{Member, Parent};
use sluice_jobs::webhook::suspending_parent;

use super::Simulation;
use crate::agenda::Action;
use crate::json::text;
use crate::pods::Phase;
use crate::serving::pods_to_make;

/// The kind of the pods.
const PODS: Kind = Kind::Job(JobKind::of_pods());

/// The number of the group that a pod of an object of this kind is in, as its label says.
fn number_of_group(kind: JobKind, pod: &Value) -> Option<u32> {
    pod["metadata"]["labels"][kind.integration().group_index?].as_str()?.parse().ok()
}

impl Simulation {
    /// An object is new or different: it has the pods that it asks for.
    pub(super) fn make_pods(&mut self, object: &ObjectRef, kind: JobKind) {
        let Some(value) = self.world.get(object) else { return };
        let metadata = &value["metadata"];
        let of = (text(&metadata["uid"]).to_owned(), metadata["generation"].as_i64().unwrap_or(0));
        let known = self.serving.objects.get(object);
        if !metadata["deletionTimestamp"].is_null() || known.is_some_and(|made| made.of == of) {
            return;
        }
        let value = value.clone();
        if known.is_none() {
            self.adopt_made(object, kind, &value);
        }
        self.serving.objects.entry(object.clone()).or_default().of = of;
        // No more pods than the reserved memory covers.
        let most = usize::try_from(pods_to_make(kind, &value)).unwrap_or(0);
        let mut number = 0;
        while number < most
            && let Some(pod) = sluice_jobs::made_pod(kind, &value, number)
        {
            // When it has to give up, the next step says so.
            if self.options.cancel.is_cancelled() || !self.make_pod(object, number, pod) {
                return;
            }
            number += 1;
        }
        let pods = self.serving.objects.get(object).map(|made| made.pods.range(number..));
        let more: Vec<_> = pods.into_iter().flatten().map(|(_, pod)| pod.clone()).collect();
        for pod in more {
            self.world.delete(&pod);
        }
        if kind.has_groups() {
            let groups = number.checked_sub(1).and_then(|last| sluice_jobs::made_pod(kind, &value, last));
            let groups = groups.and_then(|pod| number_of_group(kind, &pod)).map_or(0, |last| last + 1);
            self.record.components_gone(self.now, object, text(&value["metadata"]["uid"]), groups);
        }
        self.show_serving(object);
    }

    /// Makes a pod, unless it exists; returns whether it exists now.
    fn make_pod(&mut self, object: &ObjectRef, number: usize, pod: Value) -> bool {
        if self.serving.objects.get(object).is_some_and(|made| made.pods.contains_key(&number)) {
            return true;
        }
        let reference = crate::object::reference(PODS, &pod);
        if self.world.get(&reference).is_some() {
            self.note_refused(&object.to_string(), &format!("there is another {reference}"));
            return true;
        }
        match self.put(PODS, pod) {
            Ok(reference) => {
                self.serving.put(object, number, reference);
                true
            }
            Err(error) => {
                self.note_refused(&object.to_string(), &error.to_string());
                false
            }
        }
    }

    /// Pods that were read from a cluster stay with their object: the one whose selector matches.
    fn adopt_made(&mut self, object: &ObjectRef, kind: JobKind, value: &Value) {
        let Some(wanted) = value["spec"]["selector"]["matchLabels"].as_object().filter(|all| !all.is_empty())
        else {
            return;
        };
        let is_own = |(reference, pod): &(&ObjectRef, &Value)| {
            let labels = &pod["metadata"]["labels"];
            reference.namespace == object.namespace
                && suspending_parent(pod) == Some(kind.framework())
                && wanted.iter().all(|(key, value)| labels[key] == *value)
                && !self.serving.homes.contains_key(*reference)
        };
        let own: Vec<_> = self.world.of_kind(PODS).filter(is_own).map(|(pod, _)| pod.clone()).collect();
        for (number, pod) in own.into_iter().enumerate() {
            self.serving.put(object, number, pod);
        }
    }

    /// A pod is gone: its object makes another.
    pub(super) fn made_pod_gone(&mut self, pod: &ObjectRef) {
        let Some((object, number)) = self.serving.homes.remove(pod) else { return };
        if let Some(made) = self.serving.objects.get_mut(&object) {
            made.pods.remove(&number);
            made.ready.remove(&number);
        }
        if let (Kind::Job(kind), Some(value)) = (object.kind, self.world.get(&object))
            && value["metadata"]["deletionTimestamp"].is_null()
            && sluice_jobs::finished(kind, value).is_none()
            && let Some(next) = sluice_jobs::made_pod(kind, value, number)
        {
            self.make_pod(&object, number, next);
        }
        self.lose_whole(&object);
        self.show_serving(&object);
    }

    /// An object is gone, and its pods with it.
    pub(super) fn serving_gone(&mut self, object: &ObjectRef) {
        self.serving.take(object, 0);
        let Some(made) = self.serving.objects.remove(object) else { return };
        self.record.components_gone(self.now, object, &made.of.0, 0);
        for pod in made.pods.into_values() {
            // A pod that was read from a cluster has an owner that is not simulated.
            self.serving.homes.remove(&pod);
            self.world.delete(&pod);
        }
    }

    /// A pod began to run, and may be ready.
    pub(super) fn made_pod_runs(&mut self, pod: &ObjectRef, ready: bool) {
        let Some((object, number)) = self.serving.homes.get(pod).cloned() else { return };
        let now = self.now;
        if let Some(made) = self.serving.objects.get_mut(&object) {
            made.since.get_or_insert(now);
            if ready {
                made.ready.insert(number);
            }
        }
        self.show_serving(&object);
        self.run_whole(&object);
    }

    /// An object that ends by itself does so when its run time has passed since all its pods were ready.
    fn run_whole(&mut self, object: &ObjectRef) {
        let (Kind::Job(kind), Some(made), Some(value)) =
            (object.kind, self.serving.objects.get(object), self.world.get(object))
        else {
            return;
        };
        let whole = !made.pods.is_empty() && made.ready.len() == made.pods.len();
        if !whole || !sluice_jobs::ends(kind, value) || self.pods.run(object).is_some() {
            return;
        }
        let end = self.end_of(object, self.now);
        let attempt = self.pods.start(object, self.now);
        self.agenda.put(end, Action::Finish(object.clone(), attempt));
    }

    /// Such an object restarts when it loses one of its pods.
    fn lose_whole(&mut self, object: &ObjectRef) {
        if let Some(Phase::Running { since }) = self.pods.run(object).map(|run| run.phase) {
            self.record.lost(object, self.now.as_millisecond() - since.as_millisecond());
            self.pods.end(object);
        }
    }

    /// Such an object has ended, and all its pods with it.
    pub(super) fn made_pods_end(&mut self, object: &ObjectRef, success: bool) {
        let pods =
            self.serving.objects.get(object).map(|made| made.pods.values().cloned().collect::<Vec<_>>());
        for pod in pods.into_iter().flatten() {
            self.end_pods(&pod);
            if let Some(value) = self.world.get(&pod) {
                let status =
                    sluice_jobs::status(JobKind::of_pods(), value, State::Ended { at: self.now, success });
                self.set_job_status(&pod, status);
            }
        }
    }

    /// The status of an object follows its pods.
    fn show_serving(&mut self, object: &ObjectRef) {
        let (Kind::Job(kind), Some(made), Some(value)) =
            (object.kind, self.serving.objects.get(object), self.world.get(object))
        else {
            return;
        };
        if sluice_jobs::finished(kind, value).is_some() {
            return;
        }
        let state = match made.since {
            Some(since) if !made.pods.is_empty() => {
                State::Running { since, ready: made.ready.len() == made.pods.len() }
            }
            _ => State::Idle,
        };
        let status = sluice_jobs::status(kind, value, state);
        self.set_job_status(object, status);
    }

    /// The object of whose pod groups this pod is in one, and the number of the group.
    fn group_of(&self, reference: &ObjectRef, pod: &Value) -> Option<(ObjectRef, u32)> {
        let said = Parent::of(&pod["metadata"]).and_then(|parent| {
            let object =
                ObjectRef::namespaced(Kind::Job(parent.kind), Arc::clone(&reference.namespace), parent.name);
            Some((object, parent.group?))
        });
        // Pods that are not queued do not say it so.
        said.or_else(|| {
            let object = self.serving.object_of(reference)?;
            let Kind::Job(kind) = object.kind else { return None };
            let number = number_of_group(kind, pod)?;
            Some((object.clone(), number))
        })
    }

    /// Notes a new job. The pods of one object, or of one group, are one job; an object that only makes jobs is none.
    pub(super) fn note_submitted(&mut self, reference: &ObjectRef, kind: JobKind) {
        let Some(value) = self.world.get(reference) else { return };
        if kind.integration().pods_are_jobs || kind.has_groups() {
            return;
        }
        if kind.integration().of_pods {
            if let Some((object, number)) = self.group_of(reference, value)
                && let Some(owner) = self.world.get(&object)
            {
                let owner = (&object, text(&owner["metadata"]["uid"]));
                return self.record.joined_component(self.now, (reference, value), owner, number);
            }
            let whole = self.serving.object_of(reference).filter(|object| self.record.job(object).is_some());
            if let Some(whole) = whole.cloned() {
                return self.record.joined(reference, value, &whole);
            }
            let member = Member::observe(value, &self.options.configuration.gates);
            if let Some(group) = member.group.filter(|_| member.managed) {
                return self.record.joined_group(self.now, reference, value, &group);
            }
        }
        self.record.submitted(self.now, reference, value);
    }
}
