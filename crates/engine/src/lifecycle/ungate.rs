//! Pods of elastic jobs wait behind a gate until a slice has room for them (docs/reference/06-algorithm.md 6.26 "the ungater"): as many are ungated
//! as the running slice was granted, lowest names first.
//!
//! A pod that terminates still uses its part of the slice; one that ended does not. Each pod is ungated by one write. If the outcome of that write is
//! not known, the pod counts as ungated, and its write is repeated before others. The pods of a job's parts are its pods, too.

use std::sync::Arc;

use serde_json::json;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::gates::Gate;
use sluice_api::job::JobView;
use sluice_api::{labels, slim};
use sluice_core::{Name, WorkloadKey};
use sluice_jobs::Patch;

use crate::effect::{EffectId, Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::hotswap::pod::PodKey;
use crate::ingest::workload::is;
use crate::input::{Kind, Object, ObjectRef, WriteError};
use crate::job_pod::{JobPod, Stage};
use crate::metrics::RemovedGate;
use crate::outbox::Open;
use crate::retry::Retry;
use crate::version::{Seen, compare};
use crate::world::JobKey;

/// The key of a pod of an elastic job.
fn pod_key(object: &ObjectRef) -> PodKey {
    (Arc::clone(&object.namespace), Arc::clone(&object.name))
}

impl Engine {
    /// Takes a pod in that may be of an elastic job.
    pub(crate) fn observe_job_pod(&mut self, object: &ObjectRef, pod: &slim::JobPod) {
        let key = pod_key(object);
        let mut next = JobPod::new(pod, &mut self.world.names);
        // An ungated pod still belongs to its job, whatever its labels are.
        let was_elastic = self.world.job_pods.get(&key).is_some_and(|known| known.elastic);
        next.elastic = next.controller.is_some() && (next.elastic || was_elastic);
        if next.ended || !self.config.on(Gate::TopologyAwareScheduling) {
            next.place = None;
        }
        if !next.elastic && next.place.is_none() {
            return self.drop_job_pod(&key);
        }
        if let Some(known) = self.world.job_pods.get(&key).filter(|known| known.uid == next.uid) {
            if compare(Some(&*known.version), Some(&*next.version)) != Seen::Newer {
                return;
            }
            (next.open, next.retry) = (known.open, known.retry.clone());
            next.retry.seen_newer();
        }
        self.drop_job_pod(&key);
        self.mark_place(&key.0, &next);
        let job = next.controller.clone().filter(|_| next.elastic);
        self.world.job_pods.insert(key.clone(), next);
        self.world.put_placed(&key);
        self.placed_pod_changed(&key);
        if let Some(job) = job {
            self.world.job_pods_of.entry(Name::clone(&job)).or_default().insert(key);
            self.mark_elastic(&job);
        }
    }

    /// Marks a job with such pods, and the job that it may be a part of.
    fn mark_elastic(&mut self, uid: &str) {
        let Some(key) = self.world.job_by_uid.get(uid).cloned() else { return };
        let above = self.world.jobs.get(&key).and_then(|entry| self.parent(&entry.view)).cloned();
        self.dirty.jobs.extend(std::iter::once(key).chain(above));
    }

    /// A pod is gone.
    pub(crate) fn forget_job_pod(&mut self, object: &ObjectRef, uid: Option<&str>) {
        let key = pod_key(object);
        let known = self.world.job_pods.get(&key);
        if known.is_some_and(|known| uid.is_none_or(|uid| *known.uid == *uid)) {
            self.drop_job_pod(&key);
        }
    }

    /// Marks the jobs with such pods: the pods are all known now.
    pub(crate) fn mark_jobs_of_pods(&mut self) {
        for job in self.world.job_pods_of.keys().cloned().collect::<Vec<_>>() {
            self.mark_elastic(&job);
        }
    }

    fn drop_job_pod(&mut self, key: &PodKey) {
        let Some(known) = self.world.job_pods.remove(key) else { return };
        self.world.take_placed(key, &known);
        self.mark_place(&key.0, &known);
        self.placed_pod_gone(key, &known);
        let Some(job) = known.controller.as_deref().filter(|_| known.elastic) else { return };
        if let Some(pods) = self.world.job_pods_of.get_mut(job) {
            pods.remove(key);
            if pods.is_empty() {
                self.world.job_pods_of.remove(job);
            }
        }
        self.mark_elastic(job);
    }

    /// Ungates pods of an elastic job, as many as its slice was granted.
    pub(super) fn ungate_pods(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        let status = entry.status();
        let usable = self.listed.contains(&Kind::JobPod)
            && is(status, Type::Admitted)
            && !is(status, Type::Evicted)
            && !is(status, Type::Finished)
            && !entry.unchecked
            && !entry.uncertain
            && entry.object.metadata.deletion_timestamp.is_none();
        let pods = if usable { self.pods_of_elastic(key, view) } else { Vec::new() };
        if !pods.iter().any(|one| one.pod.is_waiting()) {
            return;
        }
        let assignments = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        let mut chosen = Vec::new();
        let mut wake = None;
        for (set, assignment) in entry.object.spec.pod_sets.iter().zip(assignments) {
            let granted = assignment.count.unwrap_or(set.count).min(set.count);
            let own = || pods.iter().filter(|one| one.is_of(view, &set.name));
            let (again, waiting): (Vec<_>, Vec<_>) =
                own().filter(|one| one.pod.is_waiting()).partition(|one| one.pod.uncertain);
            // Pods that are written again have their room already.
            let free = own().filter(|one| one.pod.is_free()).count() - again.len();
            let room = usize::try_from(granted).unwrap_or(0).saturating_sub(free);
            for one in again.into_iter().chain(waiting).take(room) {
                match one.pod.retry.until().filter(|until| *until > self.now) {
                    Some(until) => wake = wake.into_iter().chain([until]).min(),
                    None => chosen.push((one.key.clone(), one.pod)),
                }
            }
        }
        let writes: Vec<_> = chosen.into_iter().map(|(pod, known)| (pod, ungated(known))).collect();
        if let Some(until) = wake {
            self.wake_at(until, Alarm::Job(key.clone()));
        }
        if !writes.is_empty() && self.read_inherited(workload) {
            return;
        }
        let status = self.world.workloads[workload].status();
        let gate = RemovedGate::of(status, labels::ELASTIC_JOB_SCHEDULING_GATE, false);
        for (pod, patch) in writes {
            let object = ObjectRef::namespaced(Kind::JobPod, Arc::clone(&pod.0), Arc::clone(&pod.1));
            let id = self.outbox.write(object, Purpose::UngatePod, Write::Patch(patch), Vec::new());
            self.outbox.amend(id, |open| open.gate.clone_from(&gate));
            if let Some(known) = self.world.job_pods.get_mut(&pod) {
                known.open = Some(id);
            }
        }
    }

    /// A write on a pod of an elastic job was answered.
    pub(crate) fn job_pod_answered(
        &mut self,
        id: EffectId,
        open: &Open,
        result: Result<Option<Object>, WriteError>,
    ) {
        let key = pod_key(&open.object);
        let now = self.now;
        let Some(known) = self.world.job_pods.get_mut(&key).filter(|known| known.open == Some(id)) else {
            return;
        };
        known.open = None;
        let job = known.controller.clone().filter(|_| known.elastic);
        // A write that may have been carried out counts until a newer version is seen: that version may have caused the conflict.
        known.uncertain |=
            open.purpose == Purpose::UngatePod && result.as_ref().err().is_none_or(WriteError::is_transient);
        if let Some(place) = known.place.as_mut().filter(|_| !known.uncertain) {
            place.target = None;
        }
        if let Some(place) = &known.place {
            self.dirty.placed.insert(WorkloadKey::new(Arc::clone(&key.0), Arc::clone(&place.workload)));
        }
        match result {
            Ok(object) => {
                known.retry.succeeded(open.purpose);
                // A deletion is answered without an object: until its watch reports it.
                known.leaves |= open.purpose == Purpose::MovePod && object.is_none();
                if let Some(object @ Object::JobPod(_)) = object {
                    self.observe_object(object);
                }
            }
            Err(WriteError::NotFound(_)) => self.drop_job_pod(&key),
            Err(error) => {
                known.retry.failed(open.purpose, &error, now);
                let refused = open.purpose == Purpose::UngatePod && known.retry.is_refused();
                let level = if matches!(error, WriteError::Conflict(_)) { Level::Debug } else { Level::Warn };
                self.outbox.push(self.log(
                    level,
                    "write failed",
                    &[("object", &open.object), ("purpose", &open.purpose), ("error", &error)],
                ));
                self.note_outage(&error, || Alarm::Object(open.object.clone()));
                self.report_failure(open, &error);
                if let (true, WriteError::Refused(why)) = (refused, &error) {
                    match &job {
                        Some(job) => self.ungating_refused(job, why),
                        None => self.placing_refused(&key, why),
                    }
                }
            }
        }
        if let Some(job) = job {
            self.mark_elastic(&job);
        }
    }

    /// The pause after a failed write on a pod ends early; whether there was one.
    pub(crate) fn ends_pause_of_job_pod(&mut self, pod: &ObjectRef) -> bool {
        let (key, now) = (pod_key(pod), self.now);
        let Some(known) = self.world.job_pods.get_mut(&key) else { return false };
        if !known.retry.ends_pause(now) {
            return false;
        }
        if let Some(place) = &known.place {
            self.dirty.placed.insert(WorkloadKey::new(Arc::clone(&key.0), Arc::clone(&place.workload)));
        }
        if let Some(job) = known.controller.clone().filter(|_| known.elastic) {
            self.mark_elastic(&job);
        }
        true
    }

    /// The API server refuses to ungate a pod of an elastic job: if none of its pods runs, it must not hold its quota for good.
    fn ungating_refused(&mut self, uid: &str, why: &str) {
        let Some(own) = self.world.job_by_uid.get(uid).cloned() else { return };
        let above = self.world.jobs.get(&own).and_then(|entry| self.parent(&entry.view)).cloned();
        let key = above.unwrap_or(own);
        let Some(view) = self.world.jobs.get(&key).map(|entry| Arc::clone(&entry.view)) else { return };
        let waits_for_its_place =
            |pod: &JobPod| pod.open.is_none() && !pod.uncertain && pod.stage() == Some(Stage::Gated);
        let goes = |pod: &JobPod| pod.is_free() && !waits_for_its_place(pod);
        if !self.pods_of_elastic(&key, &view).iter().any(|one| goes(one.pod)) {
            self.evict_unstarted(&key, why);
        }
    }

    /// The same of a pod that waits for its place alone: also if others run, as a part of them is of no use.
    fn placing_refused(&mut self, pod: &PodKey, why: &str) {
        let place = self.world.job_pods.get(pod).and_then(|known| known.place.as_ref());
        let Some(named) = place.map(|place| Arc::clone(&place.workload)) else { return };
        let first = WorkloadKey::new(Arc::clone(&pod.0), named);
        if let Some(workload) = self.placed_workload(&first) {
            self.evict_refused(&workload, why);
        }
    }

    /// How writes on such a pod fare.
    pub(crate) fn retry_of_job_pod(&mut self, open: &Open) -> Option<&mut Retry> {
        Some(&mut self.world.job_pods.get_mut(&pod_key(&open.object))?.retry)
    }
}

/// The patch that takes the gate off a pod. Others stay.
fn ungated(pod: &JobPod) -> Patch {
    let gates = pod.gates.iter().filter(|gate| ***gate != *labels::ELASTIC_JOB_SCHEDULING_GATE);
    let gates: Vec<_> = gates.map(|gate| json!({"name": &**gate})).collect();
    let operation = if gates.is_empty() {
        json!({"op": "remove", "path": "/spec/schedulingGates"})
    } else {
        json!({"op": "replace", "path": "/spec/schedulingGates", "value": gates})
    };
    Patch::Json(vec![operation]).pinned(&pod.version)
}
