//! The API server in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use json_patch::merge;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::gates::Gates;
use sluice_api::job::{JobKind, JobView, PodScheduling};
use sluice_api::status_apply::apply_status;
use sluice_engine::{Input, Kind, Object, ObjectRef, PodStep, Purpose, Write, WriteError, WriteRequest};
use sluice_jobs::pods::Member;

use super::build::{place, read_places};
use super::played::{Disobeys, start, stop};
use super::pods::is_pod;
use super::workloads::{check_status, keep_co_owned};

/// A job and its pods.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a job")]
pub struct JobState {
    pub view: JobView,
    /// Its pods are being stopped.
    pub stopping_pods: bool,
    /// Its controller removes no pods when it is stopped.
    pub disobeys: Disobeys,
    /// Whether it has pods that continue although it was stopped, whatever its status says.
    pub pods: bool,
    /// Its controller, for which no test speaks, has answered the stop.
    pub(super) answered: bool,
    /// The user unsuspended it; the engine has not yet had a chance.
    pub started_by_user: bool,
    /// The templates as the user wrote them, for comparison.
    pub original: Vec<PodScheduling>,
    finalizers: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Stored {
    Json(Value),
    Job(Box<JobState>),
}

/// The objects, and what happened to them.
#[derive(Clone, Default)]
pub struct Api {
    pub now: Timestamp,
    objects: BTreeMap<ObjectRef, Stored>,
    log: Vec<(u64, ObjectRef, Option<Arc<str>>)>,
    revision: u64,
    uids: u64,
    /// The UIDs of jobs that have pods which take their time to end.
    pub ending_pods: BTreeSet<Arc<str>>,
    /// How many pods there are with the label of a job, by its name, that no job here controls.
    pub labelled_pods: BTreeMap<Arc<str>, u32>,
    /// Those of which pods were given less time to end.
    pub hurried: BTreeSet<Arc<str>>,
    /// The garbage collector takes its time.
    pub collector_rests: bool,
    /// What another manager owns, too, in the statuses of Workloads: the types of conditions, and names of lists.
    pub co_owned: Vec<&'static str>,
    /// Writes that start or stop a job are accepted, and change nothing.
    pub keeps_no_starts_and_stops: bool,
}

pub(super) fn decode<T: DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).expect("the object decodes")
}

fn string(value: &Value) -> Arc<str> {
    value.as_str().unwrap_or_default().into()
}

impl Api {
    /// Without objects, at that time.
    pub fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }
    fn next(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn fresh_uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{:04}", self.uids)
    }

    /// The object as the engine receives it.
    pub fn seen(&self, reference: &ObjectRef) -> Object {
        self.object(reference).expect("the object exists")
    }

    fn object(&self, reference: &ObjectRef) -> Option<Object> {
        Some(match self.objects.get(reference)? {
            Stored::Job(job) => Object::Job(Box::new(job.view.clone())),
            Stored::Json(value) => match reference.kind {
                Kind::ResourceFlavor => Object::ResourceFlavor(Box::new(decode(value))),
                Kind::ClusterQueue => Object::ClusterQueue(Box::new(decode(value))),
                Kind::LocalQueue => Object::LocalQueue(Box::new(decode(value))),
                Kind::Cohort => Object::Cohort(Box::new(decode(value))),
                Kind::AdmissionCheck => Object::AdmissionCheck(Box::new(decode(value))),
                Kind::Topology => Object::Topology(Box::new(decode(value))),
                Kind::Workload => Object::Workload(Box::new(decode(value))),
                Kind::WorkloadPriorityClass => Object::WorkloadPriorityClass(Box::new(decode(value))),
                Kind::PriorityClass => Object::PriorityClass(Box::new(decode(value))),
                Kind::Namespace => Object::Namespace(Box::new(decode(value))),
                Kind::Node => Object::Node(Box::new(decode(value))),
                Kind::Pod => Object::Pod(Box::new(decode(value))),
                Kind::JobPod => Object::JobPod(Box::new(decode(value))),
                Kind::LimitRange => Object::LimitRange(Box::new(decode(value))),
                Kind::RuntimeClass => Object::RuntimeClass(Box::new(decode(value))),
                Kind::ProvisioningRequestConfig => Object::ProvisioningRequestConfig(Box::new(decode(value))),
                Kind::ProvisioningRequest => Object::ProvisioningRequest(Box::new(decode(value))),
                Kind::PodTemplate => return None,
                Kind::Template(kind) => Object::Template(Box::new(sluice_jobs::template(kind, value))),
                Kind::Job(kind) if kind.integration().of_pods => {
                    Object::QueuedPod(Box::new(Member::observe(value, &Gates::default())))
                }
                Kind::Job(_) => unreachable!("jobs are kept as views"),
            },
        })
    }

    pub fn everything(&self) -> Vec<Object> {
        self.objects.keys().filter_map(|r| self.object(r)).collect()
    }

    pub fn names(&self, kind: Kind) -> Vec<ObjectRef> {
        self.of_kind(kind).map(|(reference, _)| reference.clone()).collect()
    }

    pub(super) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&ObjectRef, &Stored)> {
        let first = ObjectRef::cluster(kind, "");
        self.objects.range(first..).take_while(move |(reference, _)| reference.kind == kind)
    }

    /// What watches deliver: the newest state of each object that changed, once.
    pub fn events_since(&self, revision: u64) -> Vec<Input> {
        let watched = |r: &ObjectRef| r.kind != Kind::PodTemplate;
        // Revisions grow.
        let seen = self.log.partition_point(|(at, ..)| *at <= revision);
        let recent = self.log[seen..].iter().filter(|(_, r, _)| watched(r));
        recent
            .map(|(_, reference, deleted)| match (deleted, self.object(reference)) {
                (Some(uid), _) => Input::Deleted { object: reference.clone(), uid: Some(Arc::clone(uid)) },
                (None, Some(object)) => Input::Applied(object),
                (None, None) => Input::Tick,
            })
            .collect()
    }

    /// Creates or replaces an object as a user would; the status is kept.
    pub fn put(&mut self, kind: Kind, mut value: Value) -> ObjectRef {
        let namespace = string(&value["metadata"]["namespace"]);
        let name = string(&value["metadata"]["name"]);
        let reference = ObjectRef { kind, namespace, name };
        if let Some(Stored::Json(old)) = self.objects.get(&reference) {
            let mut merged = old.clone();
            merged["spec"] = value["spec"].clone();
            if let Some(priority) = value.get("value") {
                merged["value"] = priority.clone();
            }
            value = merged;
        } else {
            value["metadata"]["uid"] = json!(self.fresh_uid());
            value["metadata"]["creationTimestamp"] = json!(self.now.to_string());
        }
        self.store(&reference, value, true);
        reference
    }

    pub(super) fn store(&mut self, reference: &ObjectRef, mut value: Value, new_generation: bool) {
        let revision = self.next();
        value["metadata"]["resourceVersion"] = json!(revision.to_string());
        if new_generation {
            let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
            value["metadata"]["generation"] = json!(generation + 1);
        }
        self.objects.insert(reference.clone(), Stored::Json(value));
        self.log.push((revision, reference.clone(), None));
    }

    pub fn json(&self, reference: &ObjectRef) -> Option<&Value> {
        match self.objects.get(reference)? {
            Stored::Json(value) => Some(value),
            Stored::Job(_) => None,
        }
    }

    /// Changes an object as a user would.
    pub fn edit(&mut self, reference: &ObjectRef, patch: &Value) {
        let mut value = self.json(reference).expect("the object exists").clone();
        merge(&mut value, patch);
        self.store(reference, value, true);
    }

    /// Changes the status of an object, as another controller would.
    pub fn edit_status(&mut self, reference: &ObjectRef, change: impl FnOnce(&mut Value)) {
        let mut value = self.json(reference).expect("the object exists").clone();
        change(&mut value["status"]);
        self.store(reference, value, false);
    }

    /// Deletes an object: at once, or when its finalizers are gone.
    pub fn delete(&mut self, reference: &ObjectRef) {
        match self.objects.get(reference).cloned() {
            Some(Stored::Json(value)) if is_pod(reference) => self.delete_pod(reference, value),
            Some(Stored::Json(mut value)) => {
                if value["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) {
                    if value["metadata"]["deletionTimestamp"].is_null() {
                        value["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
                        self.store(reference, value, true);
                    }
                    return;
                }
                self.remove(reference, &string(&value["metadata"]["uid"]));
            }
            Some(Stored::Job(job)) => {
                let uid = Arc::clone(&job.view.job.uid);
                self.remove(reference, &uid);
                for workload in self.names(Kind::Workload) {
                    let owned = self.json(&workload).is_some_and(|w| {
                        w["metadata"]["ownerReferences"]
                            .as_array()
                            .is_some_and(|o| o.iter().any(|o| string(&o["uid"]) == uid))
                    });
                    if owned {
                        self.delete(&workload);
                    }
                }
            }
            None => {}
        }
    }

    /// Removes an object while no watch is open.
    pub fn vanish(&mut self, reference: &ObjectRef) {
        self.objects.remove(reference);
    }

    pub(super) fn remove(&mut self, reference: &ObjectRef, uid: &Arc<str>) {
        self.objects.remove(reference);
        let revision = self.next();
        self.log.push((revision, reference.clone(), Some(Arc::clone(uid))));
        if is_pod(reference) {
            self.collect_workloads(uid);
        }
        for kind in [Kind::ProvisioningRequest, Kind::PodTemplate] {
            if kind == Kind::PodTemplate && self.collector_rests {
                continue;
            }
            for owned in self.names(kind) {
                let owners = self.json(&owned).and_then(|o| o["metadata"]["ownerReferences"].as_array());
                if owners.is_some_and(|o| o.iter().all(|o| string(&o["uid"]) == *uid)) {
                    self.delete(&owned);
                }
            }
        }
    }

    // Jobs.

    pub fn add_job(&mut self, mut view: JobView) {
        let uid = self.fresh_uid();
        view.job.uid = uid.as_str().into();
        view.created = self.now;
        let reference = ObjectRef {
            kind: Kind::Job(view.job.kind),
            namespace: view.job.namespace.clone(),
            name: view.job.name.clone(),
        };
        view.pod_sets.iter_mut().for_each(read_places);
        let original = view.pod_sets.iter().map(|p| p.scheduling.clone()).collect();
        let state = JobState {
            view,
            stopping_pods: false,
            disobeys: Disobeys::No,
            pods: false,
            answered: false,
            started_by_user: false,
            original,
            finalizers: Vec::new(),
        };
        self.store_job(&reference, state);
    }

    fn store_job(&mut self, reference: &ObjectRef, mut job: JobState) {
        // As the adapters read it.
        for set in &mut job.view.pod_sets {
            place(set);
            if let Some(spec) = set.template.as_ref().and_then(|template| template.spec.as_ref()) {
                set.requests_hash = sluice_api::names::requests_hash(spec);
            }
        }
        if !job.view.suspended {
            self.place_part(&mut job.view);
        }
        let revision = self.next();
        job.view.resource_version = revision.to_string();
        self.objects.insert(reference.clone(), Stored::Job(Box::new(job)));
        self.log.push((revision, reference.clone(), None));
    }

    pub fn job_ref(&self, name: &str) -> ObjectRef {
        let found = self.objects.keys().find(|r| matches!(r.kind, Kind::Job(_)) && &*r.name == name);
        found.unwrap_or_else(|| panic!("there is no job {name}")).clone()
    }

    pub fn job(&self, name: &str) -> &JobState {
        match &self.objects[&self.job_ref(name)] {
            Stored::Job(job) => job,
            Stored::Json(_) => unreachable!("jobs are kept as views"),
        }
    }

    pub fn jobs(&self) -> impl Iterator<Item = (&ObjectRef, &JobState)> {
        self.objects.iter().filter_map(|(r, o)| match o {
            Stored::Job(job) => Some((r, &**job)),
            Stored::Json(_) => None,
        })
    }

    /// Changes a job, of several of that name this one.
    pub fn edit_job_at(&mut self, reference: &ObjectRef, change: impl FnOnce(&mut JobState)) {
        let Some(Stored::Job(job)) = self.objects.get(reference) else {
            unreachable!("jobs are kept as views")
        };
        let mut job = (**job).clone();
        change(&mut job);
        self.store_job(reference, job);
    }

    // Writes.

    /// Does what a write asks for.
    pub fn perform(&mut self, request: &WriteRequest) -> Result<Option<Object>, WriteError> {
        let reference = &request.object;
        let starts_or_stops =
            matches!(request.purpose, Purpose::StartJob | Purpose::StopJob | Purpose::SuspendJob);
        match &request.write {
            _ if starts_or_stops && self.keeps_no_starts_and_stops => {}
            Write::CreateWorkload(workload) => {
                if self.objects.contains_key(reference) {
                    return Err(WriteError::AlreadyExists(reference.to_string()));
                }
                let mut value = serde_json::to_value(workload).unwrap();
                value["metadata"]["uid"] = json!(self.fresh_uid());
                value["metadata"]["creationTimestamp"] = json!(self.now.to_string());
                self.store(reference, value, true);
            }
            Write::UpdateWorkload(update) => {
                let write =
                    Write::MergePatch { subresource: None, body: serde_json::to_value(update).unwrap() };
                return self.perform(&WriteRequest { write, ..request.clone() });
            }
            Write::Create(object) => {
                if self.objects.contains_key(reference) {
                    return Err(WriteError::AlreadyExists(reference.to_string()));
                }
                let mut value = (**object).clone();
                value["metadata"]["uid"] = json!(self.fresh_uid());
                self.store(reference, value, true);
            }
            Write::CreatePodTemplate(source) => {
                let workload = self.json(&source.workload);
                let workload = workload.ok_or_else(|| WriteError::NotFound(source.workload.to_string()))?;
                let template = source.build(&decode(workload)).map_err(WriteError::Refused)?;
                if let Some(known) = self.json(reference) {
                    let ours = known["metadata"]["ownerReferences"][0]["uid"] == source.uid.as_str();
                    if ours {
                        let template = serde_json::to_value(&template.template).unwrap();
                        if known["template"] != template {
                            self.edit(reference, &json!({"template": template}));
                        }
                        return Ok(None);
                    }
                    if !source.replaces(&decode(&known["metadata"])) {
                        return Err(WriteError::Conflict(reference.to_string()));
                    }
                    self.delete(reference);
                }
                let mut value = serde_json::to_value(template).unwrap();
                value["metadata"]["uid"] = json!(self.fresh_uid());
                self.store(reference, value, true);
                return Ok(None);
            }
            Write::MergePatch { body, .. } if matches!(self.objects.get(reference), Some(Stored::Job(_))) => {
                self.touch_job(&body["metadata"]["uid"]);
            }
            Write::MergePatch { subresource, body } => {
                let mut value = self.locked(reference, body)?;
                let before = value.clone();
                let mut patch = body.clone();
                let part = if subresource.is_some() { "spec" } else { "status" };
                patch.as_object_mut().unwrap().remove(part);
                merge(&mut value, &patch);
                let leaves = !value["metadata"]["deletionTimestamp"].is_null()
                    && value["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
                if leaves {
                    let uid = string(&value["metadata"]["uid"]);
                    self.remove(reference, &uid);
                    return Ok(None);
                }
                if value != before {
                    let changed = value["spec"] != before["spec"];
                    self.store(reference, value, changed);
                }
            }
            Write::Apply { field_manager, body, .. } => {
                let body = body.value().unwrap();
                let mut value = self.locked(reference, &body)?;
                check_status(&body["status"])?;
                let before = value.clone();
                apply_status(&mut value["status"], &body["status"], field_manager);
                keep_co_owned(&mut value["status"], &before["status"], &self.co_owned);
                if value != before {
                    self.store(reference, value, false);
                }
            }
            Write::Delete { grace_period_seconds, .. } => {
                if !self.objects.contains_key(reference) {
                    return Err(WriteError::NotFound(reference.to_string()));
                }
                self.delete(reference);
                if let Some(seconds) = grace_period_seconds.filter(|_| self.objects.contains_key(reference)) {
                    self.edit(reference, &json!({"metadata": {"deletionGracePeriodSeconds": seconds}}));
                }
                return Ok(None);
            }
            Write::StartJob { view, infos } => self.patch_job(reference, view, |job| start(job, infos))?,
            Write::StopJob { view, infos } => self.patch_job(reference, view, |job| stop(job, infos))?,
            Write::SuspendJob { view } => self.patch_job(reference, view, |job| stop(job, &[]))?,
            Write::AskController { view, at } => self.patch_job(reference, view, |job| {
                // Where the test does not speak for its controller, that answers at once.
                job.answered |= job.view.suspended_condition.is_none();
                job.view.suspended_condition = Some((job.answered, *at));
            })?,
            Write::EndPods { of, then } => return self.look_for_pods(of, then),
            Write::Patch(patch) => {
                self.step(reference, &PodStep::Patch(patch.clone()))?;
                return Ok(self.object(reference));
            }
            Write::Pod(steps) => {
                for step in steps {
                    self.step(reference, step)?;
                }
                return Ok(self.object(reference));
            }
            Write::Read => {}
        }
        if reference.kind == Kind::PodTemplate {
            return Ok(None);
        }
        self.object(reference).map(Some).ok_or_else(|| WriteError::NotFound(reference.to_string()))
    }

    /// The object, if it is the version that the write is about.
    fn locked(&self, reference: &ObjectRef, body: &Value) -> Result<Value, WriteError> {
        let value = self.json(reference).ok_or_else(|| WriteError::NotFound(reference.to_string()))?;
        for field in ["resourceVersion", "uid"] {
            let wanted = &body["metadata"][field];
            if !wanted.is_null() && *wanted != value["metadata"][field] {
                return Err(WriteError::Conflict(format!("{reference}: {field}")));
            }
        }
        Ok(value.clone())
    }

    fn patch_job(
        &mut self,
        reference: &ObjectRef,
        seen: &JobView,
        change: impl FnOnce(&mut JobState),
    ) -> Result<(), WriteError> {
        let Some(Stored::Job(job)) = self.objects.get(reference) else {
            return Err(WriteError::NotFound(reference.to_string()));
        };
        if job.view.resource_version != seen.resource_version {
            return Err(WriteError::Conflict(reference.to_string()));
        }
        let mut job = (**job).clone();
        change(&mut job);
        self.store_job(reference, job);
        Ok(())
    }
}

/// Only batch Jobs and JobSets are played.
pub fn kind(jobset: bool) -> JobKind {
    if jobset { JobKind::JOB_SET } else { JobKind::JOB }
}
