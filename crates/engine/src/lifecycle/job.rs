//! What a job needs next (reference 07, 7.1, "Reconciler order"): the first thing that applies is done, and the rest
//! waits until that was answered.

use std::sync::Arc;

use serde_json::json;
use sluice_api::conditions::{WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::job::{JobKind, JobView};
use sluice_api::labels;
use sluice_core::WorkloadKey;

use super::body::strict_patch;
use super::create::owner_reference;
use super::infos::restore_infos;
use super::matching::matches;
use super::transition;
use crate::effect::{Effect, EventType, Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::scheduling::{self, selector};
use crate::ingest::workload::{is, reserved};
use crate::outbox::{event, log};
use crate::reporter;
use crate::world::JobKey;

/// How many owners are looked at (reference 07, 7.1).
const MAX_NESTING: usize = 10;

/// What stands above a job.
enum Ancestor {
    /// Nothing that is managed.
    None,
    /// A managed job.
    Managed(JobKey),
    /// An owner of an integrated kind that has not been seen.
    Unknown,
    /// More owners than are looked at.
    TooDeep,
}

impl Engine {
    /// Does the next thing that a job needs.
    pub(crate) fn reconcile_job(&mut self, key: &JobKey) {
        // Others are known only as parts of those above them.
        if !self.decides() || !self.config.frameworks.contains(&key.kind) {
            return;
        }
        let Some(entry) = self.world.jobs.get(key) else { return };
        if entry.open.is_some() {
            return;
        }
        if let Some(until) = entry.retry.until.filter(|until| *until > self.now) {
            self.wake_at(until, Alarm::Job(key.clone()));
            return;
        }
        if entry.uncertain {
            return self.read_job(key);
        }
        let view = Arc::clone(&entry.view);
        if view.deleting {
            self.let_go(&view);
            return;
        }
        if !self.manages_namespace(&view.job.namespace) {
            return;
        }
        match self.ancestor(&view) {
            Ancestor::None => {}
            Ancestor::Managed(ancestor) => return self.hold_child(key, &view, &ancestor),
            Ancestor::Unknown => return,
            Ancestor::TooDeep => {
                let note =
                    "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10";
                return self.tell_job(key, &view, EventType::Warning, "JobNestingTooDeep", note);
            }
        }
        if view.queue_name.is_none() && !self.config.manage_jobs_without_queue_name {
            return self.leave(&view);
        }
        if let Some(trouble) = &view.invalid {
            return self.tell_job(key, &view, EventType::Warning, "ErrWorkloadCompose", trouble);
        }
        let workload = match &view.prebuilt_workload {
            Some(name) => self.prebuilt(key, &view, name),
            None => self.own_workload(key, &view),
        };
        match workload {
            Own::One(workload) => self.proceed(key, &view, &workload),
            Own::None => self.without_workload(key, &view),
            Own::Wait => {}
        }
    }

    /// Whether jobs of a namespace are managed.
    fn manages_namespace(&self, namespace: &str) -> bool {
        let Some(wanted) = &self.config.managed_jobs_namespace_selector else { return true };
        let labels =
            self.world.namespaces.get(namespace).map(|n| n.metadata.labels.clone().unwrap_or_default());
        let (Some(labels), Some(wanted)) = (labels, selector(wanted)) else { return false };
        scheduling::matches(&wanted, &labels)
    }

    /// The managed job above a job, if there is one.
    fn ancestor(&self, view: &JobView) -> Ancestor {
        let mut controller = view.controller.clone();
        for _ in 0..MAX_NESTING {
            let Some(owner) = controller.take() else { return Ancestor::None };
            let Some(kind) = JobKind::from_owner(&owner.api_version, &owner.kind) else {
                return Ancestor::None;
            };
            if !self.config.frameworks.contains(&kind) {
                return Ancestor::None;
            }
            let Some(key) = self.world.job_by_uid.get(owner.uid.as_str()) else { return Ancestor::Unknown };
            let above = &self.world.jobs[key].view;
            if above.queue_name.is_some() || self.config.manage_jobs_without_queue_name {
                return Ancestor::Managed(key.clone());
            }
            controller.clone_from(&above.controller);
        }
        Ancestor::TooDeep
    }

    /// Keeps the child of a managed job suspended until that job's workload is admitted.
    fn hold_child(&mut self, key: &JobKey, view: &Arc<JobView>, ancestor: &JobKey) {
        let uid = &self.world.jobs[ancestor].view.job.uid;
        let admitted =
            self.world.owned(uid).iter().any(|w| is(self.world.workloads[w].status(), Type::Admitted));
        if admitted || view.suspended || view.finished.is_some() {
            return;
        }
        let note = "Kueue managed child job suspended";
        let told =
            event(&key.object(), &view.job.uid, EventType::Normal, "Suspended", note, reporter(key.kind));
        let write = Write::SuspendJob { view: Arc::clone(view) };
        self.write_job(key, Purpose::SuspendJob, write, vec![told]);
    }

    /// A job without a queue name is not ours; what it had before is removed, so that nothing holds quota for it.
    fn leave(&mut self, view: &JobView) {
        if view.suspended && view.prebuilt_workload.is_none() {
            for workload in self.world.owned(&view.job.uid) {
                self.delete_workload(&workload, Vec::new());
            }
        }
    }

    /// A job is being deleted: nothing of ours keeps its Workloads.
    fn let_go(&mut self, view: &JobView) {
        for workload in self.world.owned(&view.job.uid) {
            self.drop_finalizer(&workload);
        }
    }

    /// The Workload of a job among those that it controls; the others are removed.
    fn own_workload(&mut self, key: &JobKey, view: &Arc<JobView>) -> Own {
        let owned = self.world.owned(&view.job.uid);
        if owned.iter().any(|w| self.world.workloads[w].open.is_some()) {
            return Own::Wait;
        }
        let deleting =
            |w: &&WorkloadKey| self.world.workloads[*w].object.metadata.deletion_timestamp.is_some();
        if let Some(leaving) = owned.iter().find(deleting) {
            return Own::One(leaving.clone());
        }
        let partial = self.config.on(Gate::PartialAdmission);
        let own = owned.iter().find(|w| {
            let entry = &self.world.workloads[*w];
            matches(view, &entry.object, entry.status(), partial) || is(entry.status(), Type::Finished)
        });
        let own = own.cloned();
        let mut rest: Vec<_> = owned.into_iter().filter(|w| Some(w) != own.as_ref()).collect();
        if own.is_none()
            && let [only] = &rest[..]
        {
            let entry = &self.world.workloads[only];
            if view.suspended && !view.stopping && !reserved(entry.status()) {
                if !entry.retry.waits(self.now) {
                    let only = only.clone();
                    self.update_workload(key, view, &only);
                }
                return Own::Wait;
            }
            // The templates are restored from the Workload that no longer matches, before it goes.
            if !view.suspended && view.finished.is_none() {
                let note = "No matching Workload; restoring pod templates according to existent Workload";
                let infos = restore_infos(&entry.object);
                self.stop_job(key, view, infos, note, &[]);
                return Own::Wait;
            }
            if self.is_active(key) {
                return Own::Wait;
            }
        }
        let waits = own.is_none() && !rest.is_empty();
        for workload in rest.drain(..) {
            let note = format!("Deleted not matching Workload: {workload}");
            let told = event(
                &key.object(),
                &view.job.uid,
                EventType::Normal,
                "DeletedWorkload",
                note,
                reporter(key.kind),
            );
            self.delete_workload(&workload, vec![told]);
        }
        match own {
            Some(own) => {
                self.drop_templates(key);
                Own::One(own)
            }
            None if waits => Own::Wait,
            None => Own::None,
        }
    }

    /// The prebuilt Workload of a job: taken over, or out of sync with it (reference 03, `OutOfSync`).
    fn prebuilt(&mut self, key: &JobKey, view: &Arc<JobView>, name: &str) -> Own {
        let workload = WorkloadKey::new(Arc::clone(&view.job.namespace), name);
        let Some(entry) = self.world.workloads.get(&workload) else { return Own::None };
        if entry.open.is_some() {
            return Own::Wait;
        }
        let (status, now) = (entry.status(), self.now);
        if entry.controller_uid() == Some(&*view.job.uid) || is(status, Type::Finished) {
            let partial = self.config.on(Gate::PartialAdmission);
            if !is(status, Type::Finished) && !matches(view, &entry.object, status, partial) {
                let mut next = status.clone();
                let message = "The prebuilt workload is out of sync with its user job";
                transition::finish(&mut next, reason::OUT_OF_SYNC, message, self.at(&entry.object));
                let counted = self.count_finished(&workload, &next);
                self.write_status(&workload, Purpose::Finish, next, counted);
                return Own::Wait;
            }
            self.drop_templates(key);
            return Own::One(workload);
        }
        if entry.controller_uid().is_none() && !entry.retry.waits(now) {
            let mut owners = entry.object.metadata.owner_references.clone().unwrap_or_default();
            owners.push(owner_reference(view));
            let body = strict_patch(&entry.object, json!({"metadata": {"ownerReferences": owners}}));
            let told = event(
                &crate::world::workload_ref(&workload),
                &entry.uid(),
                EventType::Normal,
                "OwnerReferencesAdded",
                "Added 1 owner reference(s)",
                reporter(key.kind),
            );
            self.patch_workload(&workload, Purpose::UpdateWorkload, body, vec![told]);
        }
        Own::Wait
    }

    /// A job has no Workload: it must not run, and gets one.
    fn without_workload(&mut self, key: &JobKey, view: &Arc<JobView>) {
        if view.finished.is_some() {
            return;
        }
        if !view.suspended {
            let why = match view.prebuilt_workload {
                Some(_) => "missing workload",
                None => "Missing Workload; unable to restore pod templates",
            };
            return self.stop_job(key, view, Vec::new(), why, &[]);
        }
        if view.prebuilt_workload.is_some() || self.is_active(key) {
            return;
        }
        match self.priority_of(view) {
            Ok(priority) => self.create_workload(key, view, priority),
            Err(trouble) if view.workload_priority_class.is_some() => {
                self.tell_job(key, view, EventType::Warning, "WorkloadPriorityClassNotFound", &trouble);
            }
            Err(trouble) => self.tell_job(key, view, EventType::Warning, "ErrWorkloadCompose", &trouble),
        }
    }

    /// A job and its Workload: the rest of the reconciler's order.
    fn proceed(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        if entry.open.is_some() || entry.decision.is_some() || entry.retry.waits(self.now) {
            return;
        }
        let status = entry.status();
        let evicted = is(status, Type::Evicted);
        if is(status, Type::Finished) {
            return self.after_finish(key, view, workload);
        }
        if entry.object.metadata.deletion_timestamp.is_some() {
            return self.workload_leaves(key, view, workload);
        }
        if let Some(finished) = &view.finished {
            return self.job_finished(key, view, workload, finished);
        }
        if self.sync_reclaimable(view, workload) || self.sync_pods_ready(view, workload) {
            return;
        }
        let entry = &self.world.workloads[workload];
        if evicted && (reserved(entry.status()) || !view.suspended) {
            return self.end_eviction(key, view, workload);
        }
        if view.suspended {
            if self.take_back(workload) {
                return;
            }
            let entry = &self.world.workloads[workload];
            if is(entry.status(), Type::Admitted) {
                return self.start_job(key, view, workload);
            }
            if self.remove_deactivated(key, view, workload) {
                return;
            }
            if reserved(self.world.workloads[workload].status()) {
                self.tell_checks(key, view, workload);
            }
            self.sync_spec(key, view, workload);
            return;
        }
        if is(entry.status(), Type::Admitted) {
            self.sync_spec(key, view, workload);
            return;
        }
        let infos = restore_infos(&entry.object);
        self.stop_job(key, view, infos, "Not admitted by cluster queue", &[]);
    }

    /// Starts a job: the flavors' labels and tolerations, and `suspend: false`, in one patch.
    fn start_job(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        let status = entry.status();
        let queue = status.admission.as_ref().map(|a| a.cluster_queue.clone()).unwrap_or_default();
        let infos = self.start_infos(&entry.object, status, view);
        let note = format!("Admitted by clusterQueue {queue}");
        let then = vec![
            event(&key.object(), &view.job.uid, EventType::Normal, "Started", note, reporter(key.kind)),
            log(
                Level::Info,
                "job started",
                &[("job", &key.object()), ("workload", workload), ("queue", &queue)],
            ),
        ];
        let write = Write::StartJob { view: Arc::clone(view), infos };
        self.write_job(key, Purpose::StartJob, write, then);
    }

    /// Stops a job and restores its templates; what remains of a stop that was begun, once that can be done.
    pub(crate) fn stop_job(
        &mut self,
        key: &JobKey,
        view: &Arc<JobView>,
        infos: Vec<sluice_api::job::PodSetInfo>,
        why: &str,
        more: &[Effect],
    ) {
        if view.stop_waits {
            return;
        }
        let mut then = vec![
            event(&key.object(), &view.job.uid, EventType::Normal, "Stopped", why, reporter(key.kind)),
            log(Level::Info, "job stopped", &[("job", &key.object()), ("why", &why)]),
        ];
        then.extend(more.iter().cloned());
        let write = Write::StopJob { view: Arc::clone(view), infos };
        self.write_job(key, Purpose::StopJob, write, then);
    }

    /// Sends a write on a job.
    pub(crate) fn write_job(&mut self, key: &JobKey, purpose: Purpose, write: Write, then: Vec<Effect>) {
        let id = self.outbox.write(key.object(), purpose, write, then);
        if let Some(entry) = self.world.jobs.get_mut(key) {
            entry.open = Some(id);
        }
    }

    /// Tells something about a job, once.
    fn tell_job(&mut self, key: &JobKey, view: &JobView, type_: EventType, why: &str, note: &str) {
        let told = format!("{why}: {note}");
        let Some(entry) = self.world.jobs.get_mut(key) else { return };
        if entry.told.as_ref() == Some(&told) {
            return;
        }
        entry.told = Some(told);
        self.outbox.push(event(&key.object(), &view.job.uid, type_, why, note, reporter(key.kind)));
        self.outbox.push(log(Level::Warn, "job left alone", &[("job", &key.object()), ("why", &note)]));
    }

    /// Keeps queue, priority class and admission gates of a Workload as its job says.
    fn sync_spec(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        let (spec, status) = (&entry.object.spec, entry.status());
        let told = |note: String| {
            vec![event(
                &key.object(),
                &view.job.uid,
                EventType::Normal,
                "UpdatedWorkload",
                note,
                reporter(key.kind),
            )]
        };
        let queue = view.queue_name.as_deref().unwrap_or_default();
        if spec.queue_name != queue && !reserved(status) && view.suspended && !queue.is_empty() {
            let body = strict_patch(&entry.object, json!({"spec": {"queueName": queue}}));
            return self.patch_workload(workload, Purpose::UpdateWorkload, body, Vec::new());
        }
        let class =
            spec.priority_class_ref.as_ref().filter(|c| c.kind == super::priority::WORKLOAD_PRIORITY_CLASS);
        let wanted = view.workload_priority_class.as_deref();
        if wanted.is_some()
            && wanted != class.map(|c| c.name.as_str())
            && (class.is_some() || !reserved(status))
        {
            let priority = match self.priority_of(view) {
                Ok(priority) => priority,
                Err(trouble) => {
                    let why = "WorkloadPriorityClassNotFound";
                    return self.tell_job(key, view, EventType::Warning, why, &trouble);
                }
            };
            let patch = json!({"spec": {"priorityClassRef": priority.class, "priority": priority.value}});
            let body = strict_patch(&entry.object, patch);
            let then = told(format!("Updated workload priority class: {workload}"));
            return self.patch_workload(workload, Purpose::UpdateWorkload, body, then);
        }
        let annotations = entry.object.metadata.annotations.as_ref();
        let gates = annotations.and_then(|a| a.get(labels::ADMISSION_GATED_BY)).map_or("", String::as_str);
        let wanted = view.admission_gated_by.as_deref().unwrap_or_default();
        if self.config.on(Gate::AdmissionGatedBy) && gates != wanted && !reserved(status) {
            let value = (!wanted.is_empty()).then_some(wanted);
            let patch = json!({"metadata": {"annotations": {labels::ADMISSION_GATED_BY: value}}});
            let body = strict_patch(&entry.object, patch);
            let then = told(format!("Updated workload AdmissionGatedBy to {wanted:?}"));
            self.patch_workload(workload, Purpose::UpdateWorkload, body, then);
        }
    }
}

/// The Workload of a job.
pub(crate) enum Own {
    /// This one.
    One(WorkloadKey),
    /// None, and nothing is under way.
    None,
    /// Something is under way.
    Wait,
}
