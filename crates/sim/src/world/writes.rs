//! The effects of the engine's writes on the objects.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_api::status_apply::apply_status;
use sluice_engine::{
    EndPods, Kind, LeftPods, Name, Object, ObjectRef, PodStep, Write, WriteError, WriteRequest,
};
use sluice_jobs::{Patch, Step};

use super::{Change, World, has_finalizers, owner_uids};
use crate::agenda::after;
use crate::json;
use crate::object::decode;

impl World {
    /// Does what the engine asks for, and answers as the API server would.
    pub fn perform(&mut self, request: &WriteRequest) -> Result<Option<Object>, WriteError> {
        let reference = &request.object;
        match &request.write {
            Write::CreateWorkload(workload) => {
                if self.objects.contains_key(reference) {
                    return Err(WriteError::AlreadyExists(reference.to_string()));
                }
                let value = serde_json::to_value(workload).map_err(|e| WriteError::Refused(e.to_string()))?;
                self.insert_new(reference, value);
            }
            Write::UpdateWorkload(update) => {
                let body = serde_json::to_value(update).map_err(|e| WriteError::Refused(e.to_string()))?;
                let write = Write::MergePatch { subresource: None, body };
                return self.perform(&WriteRequest { write, ..request.clone() });
            }
            Write::MergePatch { subresource: Some(_), body } => {
                self.locked(reference, body)?;
                if let Some(patch) = body.get("status")
                    && self.change_status(reference, |status| json_patch::merge(status, patch))
                {
                    self.echo_of(reference);
                }
            }
            Write::MergePatch { subresource: None, body } => {
                let mut value = self.locked(reference, body)?.clone();
                let mut patch = body.clone();
                if let Some(patch) = patch.as_object_mut() {
                    patch.remove("status");
                }
                json_patch::merge(&mut value, &patch);
                if !value["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(&value) {
                    self.remove(reference);
                    self.revision += 1;
                    value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
                    let object = decode(reference.kind, &value).ok();
                    self.last_removed = Some((reference.clone(), value));
                    return Ok(object);
                }
                self.update(reference, value);
            }
            Write::Apply { field_manager, body, .. } => {
                let body = body.value().map_err(|error| WriteError::Refused(error.to_string()))?;
                self.locked(reference, &body)?;
                let applied = |status: &mut Value| apply_status(status, &body["status"], field_manager);
                if self.change_status(reference, applied) {
                    self.echo_of(reference);
                }
            }
            Write::Delete { .. } => {
                if !self.delete(reference) {
                    return Err(WriteError::NotFound(reference.to_string()));
                }
                return Ok(None);
            }
            Write::StartJob { view, infos } => {
                let unstartable = |error: sluice_jobs::StartError| WriteError::Unstartable(error.to_string());
                let first = sluice_jobs::prepare(view, infos).map_err(unstartable)?;
                let patch = sluice_jobs::start(view, infos).map_err(unstartable)?;
                let steps: Vec<_> = first.into_iter().chain([Step { subresource: None, patch }]).collect();
                self.steps(reference, &view.resource_version, &steps)?;
            }
            Write::StopJob { view, infos } => {
                self.steps(reference, &view.resource_version, &sluice_jobs::stop(view, infos))?;
            }
            Write::SuspendJob { view } => {
                self.steps(reference, &view.resource_version, &[sluice_jobs::suspend(view)])?;
            }
            Write::AskController { view, at } => {
                let step = sluice_jobs::ask_controller(view, *at);
                self.steps(reference, &view.resource_version, &[step])?;
            }
            Write::EndPods { then: EndPods::LookForLeft { left, .. }, .. } => {
                return self.pods_of_deleted(&reference.name, left);
            }
            Write::EndPods { .. } => return self.pods_left(reference),
            Write::Patch(patch) => {
                let version = patch.version().unwrap_or_default();
                self.steps(reference, &version, &[Step { subresource: None, patch: patch.clone() }])?;
            }
            Write::Pod(steps) => {
                for step in steps {
                    if self.objects.contains_key(reference) {
                        self.pod_step(reference, step)?;
                    }
                }
                return Ok(self.object(reference));
            }
            Write::Create(document) => self.create_document(reference, document)?,
            Write::CreatePodTemplate(source) => self.create_template(reference, source)?,
            Write::Read => {}
        }
        if reference.kind == Kind::PodTemplate {
            return Ok(None);
        }
        self.object(reference).map(Some).ok_or_else(|| WriteError::NotFound(reference.to_string()))
    }

    /// Controllers obey here: what a stopped job has is being deleted.
    fn pods_left(&mut self, reference: &ObjectRef) -> Result<Option<Object>, WriteError> {
        match self.object(reference) {
            Some(Object::Job(job)) if job.active => Err(WriteError::PodsLeft { going_on: 0, leaving: 1 }),
            _ => Ok(None),
        }
    }

    /// Pods of deleted jobs end at once, unless their Workload was read while it was being deleted: then they have their grace period.
    fn pods_of_deleted(&mut self, namespace: &Name, left: &[LeftPods]) -> Result<Option<Object>, WriteError> {
        let now = self.now;
        let mut remain = Vec::new();
        for LeftPods { workload, ends_within, .. } in left {
            let reference =
                ObjectRef::namespaced(Kind::Workload, Arc::clone(namespace), Arc::clone(workload));
            let Some(until) = self.leaving.get_mut(&reference) else { continue };
            if let Some(seconds) = ends_within {
                *until = after(now, SignedDuration::from_secs(i64::from(*seconds))).min(*until);
            }
            if *until > now {
                remain.push(Arc::clone(workload));
            }
        }
        if remain.is_empty() { Ok(None) } else { Err(WriteError::PodsRemain(remain)) }
    }

    /// Stores the result of a write, if it changes the object.
    fn update(&mut self, reference: &ObjectRef, value: Value) {
        let Some(old) = self.get(reference) else { return };
        if *old != value {
            let changed = old["spec"] != value["spec"];
            if old["metadata"]["ownerReferences"] != value["metadata"]["ownerReferences"] {
                let old = old.clone();
                self.disown(reference, &old);
                for uid in owner_uids(&value) {
                    self.owned.entry(uid).or_default().insert(reference.clone());
                }
            }
            self.store(reference, value, changed);
            self.echo_of(reference);
        }
    }

    /// Delivers a write of the engine to watches that echo.
    fn echo_of(&mut self, reference: &ObjectRef) {
        if self.echoes {
            self.changes.push(Change::Applied(reference.clone()));
        }
    }

    /// The patches of a job's adapter, all or none.
    fn steps(&mut self, reference: &ObjectRef, seen: &str, steps: &[Step]) -> Result<(), WriteError> {
        let not_found = || WriteError::NotFound(reference.to_string());
        let mut value = self.get(reference).ok_or_else(not_found)?.clone();
        if value["metadata"]["resourceVersion"] != seen {
            return Err(WriteError::Conflict(reference.to_string()));
        }
        for step in steps {
            match &step.patch {
                Patch::Merge(body) => json_patch::merge(&mut value, body),
                Patch::Strategic(body) | Patch::Apply(_, body) => json::merge_strategically(&mut value, body),
                Patch::Json(operations) => {
                    json::apply(&mut value, operations).map_err(WriteError::Refused)?;
                }
            }
        }
        self.store(reference, value, true);
        self.echo_of(reference);
        Ok(())
    }

    /// Carries out one request on a pod.
    fn pod_step(&mut self, reference: &ObjectRef, step: &PodStep) -> Result<(), WriteError> {
        match step {
            PodStep::Patch(patch) => {
                let seen = patch.version().unwrap_or_default();
                self.steps(reference, &seen, &[Step { subresource: None, patch: patch.clone() }])?;
                let leaves = self.get(reference).is_some_and(|pod| {
                    !pod["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(pod)
                });
                if leaves {
                    self.remove(reference);
                }
            }
            PodStep::ApplyStatus { field_manager, body } => {
                self.locked(reference, body)?;
                let applied = |status: &mut Value| apply_status(status, &body["status"], field_manager);
                if self.change_status(reference, applied) {
                    self.echo_of(reference);
                }
            }
            PodStep::Delete { uid } => {
                self.locked(reference, &json!({"metadata": {"uid": uid}}))?;
                self.delete(reference);
            }
        }
        Ok(())
    }

    /// The object, if it is the version that the write is about.
    fn locked(&self, reference: &ObjectRef, body: &Value) -> Result<&Value, WriteError> {
        let value = self.get(reference).ok_or_else(|| WriteError::NotFound(reference.to_string()))?;
        for field in ["resourceVersion", "uid"] {
            let wanted = &body["metadata"][field];
            if !wanted.is_null() && *wanted != value["metadata"][field] {
                return Err(WriteError::Conflict(format!("{reference}: {field}")));
            }
        }
        Ok(value)
    }
}
