//! What a job needs next (docs/reference/07-integrations.md 7.1, "Reconciler order"): the first step that applies is taken, and the rest waits for
//! its answer.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use sluice_api::conditions::{WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::job::JobView;
use sluice_api::labels;
use sluice_core::WorkloadKey;

use super::ancestor::Standing;
use super::body::strict_patch;
use super::create::owner_reference;
use super::infos::{by_position, keep_counts, restore_infos};
use super::matching::{OwnWorkload, matches};
use super::slices::is_superseded;
use super::transition;
use super::unreadable::runs_as_it_says;
use crate::effect::{Effect, EventType, Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::{is, reserved};
use crate::outbox::{About, normal};
use crate::unstoppable::Restores;
use crate::world::JobKey;

impl Engine {
    /// Does the next thing that a job needs.
    pub(crate) fn reconcile_job(&mut self, key: &JobKey) {
        // Others are known only as parts of those above them.
        if !self.decides() || !self.config.frameworks.contains(&key.kind) {
            return self.slim_unmanaged(key);
        }
        let Some(entry) = self.world.jobs.get(key) else { return self.hold_aside(key) };
        if entry.open.is_some() || self.world.is_writing_pods(key) {
            return;
        }
        self.refresh_pod_job(key);
        self.hold_to_workload(key);
        let Some(entry) = self.world.jobs.get(key) else { return };
        let waits = entry.retry.until().filter(|until| *until > self.now);
        let (uncertain, stop_failed) = (entry.uncertain, entry.stop_failed);
        let view = Arc::clone(&entry.view);
        let view = self.sized(key, view);
        self.withdraw_reports_of_ended(&view);
        if let Some(until) = waits {
            self.wake_at(until, Alarm::Job(key.clone()));
            if stop_failed {
                return;
            }
        }
        if uncertain && waits.is_none() {
            return self.read_job(key);
        }
        if self.read_uncertain_pods(key) || self.tend_left_over(key, &view) {
            return;
        }
        if self.release_made_pod(key, &view) {
            return;
        }
        let standing = self.standing(&view);
        let managed = match &standing {
            Standing::Own => true,
            Standing::Unverified(_) | Standing::TooDeep => self.manages_itself(&view),
            Standing::Part { .. } | Standing::Unmanaged => false,
        };
        // A managed job that is not admitted does not run: this comes before all other problems.
        if managed && self.runs_unadmitted(&view) {
            return self.halt(key, &view);
        }
        if managed && self.runs_other_pods(key, &view) {
            return self.halt_other_pods(key, &view);
        }
        let above = match &standing {
            Standing::Part { of, .. } => Some(&**of),
            _ => None,
        };
        let enforced = managed || above.is_some() || !self.world.owned(&view.job.uid).is_empty();
        if enforced && self.enforce_stop(key, &view, above) {
            return;
        }
        if managed {
            self.tend_parts(key, &view);
            if self.tend_pods(key, &view) {
                return;
            }
        }
        if waits.is_some() {
            return;
        }
        if managed && view.end_blocked {
            return self.let_end(key, &view);
        }
        if view.deleting {
            self.release_workloads(key, &view);
            self.release_pods(key);
            return;
        }
        match standing {
            Standing::Own => {}
            Standing::Unmanaged => return self.leave_queue(key, &view),
            Standing::Part { of, until, claimed } => {
                self.remember_name(key, &view);
                if until < Timestamp::MAX {
                    self.wake_at(until, Alarm::Job(key.clone()));
                }
                return self.hold_child(key, &view, &of, claimed);
            }
            Standing::Unverified(until) => return self.wait_for_owner(key, until),
            Standing::TooDeep => {
                let note =
                    "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10";
                return self.report_job(key, &view, EventType::Warning, "JobNestingTooDeep", note);
            }
        }
        if !self.manages_namespace(&view.job.namespace) && self.world.owned(&view.job.uid).is_empty() {
            return self.report_unmanaged_namespace(key, &view);
        }
        if let Some(trouble) = view.invalid.as_ref().filter(|_| view.finished.is_none()) {
            self.ask_for_template(key, &view);
            self.report_job(key, &view, EventType::Warning, "ErrWorkloadCompose", trouble);
            if !runs_as_it_says(&view) {
                return self.unreadable(key, &view, trouble);
            }
        }
        let workload = match (&view.prebuilt_workload, self.group_of(key)) {
            (_, Some(group)) => self.group_workload(key, &view, &group),
            (Some(name), None) => self.prebuilt(key, &view, name),
            (None, None) if self.is_elastic(&view) => self.slice_workload(key, &view),
            (None, None) => self.own_workload(key, &view),
        };
        match workload {
            OwnWorkload::One(workload) => self.proceed(key, &view, &workload),
            OwnWorkload::None => self.without_workload(key, &view),
            OwnWorkload::Wait => {}
        }
    }

    /// The Workload of a job among those that it controls; the others are deleted.
    fn own_workload(&mut self, key: &JobKey, view: &Arc<JobView>) -> OwnWorkload {
        let owned = self.world.owned(&view.job.uid);
        if owned.iter().any(|w| self.world.workloads[w].open.is_some()) {
            return OwnWorkload::Wait;
        }
        let deleting =
            |w: &&WorkloadKey| self.world.workloads[*w].object.metadata.deletion_timestamp.is_some();
        if let Some(leaving) = owned.iter().find(deleting) {
            return OwnWorkload::One(leaving.clone());
        }
        let own = owned.iter().find(|w| {
            let entry = &self.world.workloads[*w];
            // An evicted Workload gives its quota back first: its `active` field and its requeue state stay.
            let evicted = || view.suspended && is(entry.status(), Type::Evicted) && reserved(entry.status());
            matches(view, &entry.object, entry.status(), &self.config)
                || is(entry.status(), Type::Finished) && !is_superseded(&entry.object)
                || evicted()
        });
        let own = own.cloned();
        let mut rest: Vec<_> = owned.into_iter().filter(|w| Some(w) != own.as_ref()).collect();
        if own.is_none()
            && let [only] = &rest[..]
            && let only = only.clone()
            && self.keeps_mismatched(key, view, &only)
        {
            return OwnWorkload::Wait;
        }
        let waits = own.is_none() && !rest.is_empty();
        for workload in rest.drain(..) {
            let note = format!("Deleted not matching Workload: {workload}");
            let reported = normal(self.about_job(key, view), "DeletedWorkload", note);
            self.delete_workload(&workload, vec![reported]);
        }
        match own {
            Some(own) if self.find_back(key, view, &own) => OwnWorkload::Wait,
            Some(own) => {
                self.drop_templates(key);
                OwnWorkload::One(own)
            }
            None if waits => OwnWorkload::Wait,
            None => OwnWorkload::None,
        }
    }

    /// The prebuilt Workload of a job: taken over, or out of sync with it (docs/reference/03-conditions-events.md, `OutOfSync`).
    fn prebuilt(&mut self, key: &JobKey, view: &Arc<JobView>, name: &str) -> OwnWorkload {
        let workload = WorkloadKey::new(Arc::clone(&view.job.namespace), name);
        let Some(entry) = self.world.workloads.get(&workload) else { return OwnWorkload::None };
        if entry.open.is_some() || entry.retry.waits(self.now) {
            return OwnWorkload::Wait;
        }
        if let Some(trouble) = self.prebuilt_trouble(view, name) {
            self.report_job(key, view, EventType::Warning, "ErrWorkloadCompose", &trouble);
            return OwnWorkload::Wait;
        }
        let status = entry.status();
        if entry.controller_uid() == Some(&*view.job.uid) {
            if !is(status, Type::Finished) && !matches(view, &entry.object, status, &self.config) {
                self.finish_out_of_sync(&workload);
                return OwnWorkload::Wait;
            }
            self.drop_templates(key);
            return OwnWorkload::One(workload);
        }
        self.adopt(key, view, &workload);
        OwnWorkload::Wait
    }

    /// Ends a prebuilt Workload that does not describe its job.
    pub(super) fn finish_out_of_sync(&mut self, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        let mut next = entry.status().clone();
        let message = "The prebuilt workload is out of sync with its user job";
        transition::finish(&mut next, reason::OUT_OF_SYNC, message, self.at(&entry.object));
        self.write_status(workload, Purpose::Finish, next, Vec::new());
    }

    /// Makes a job the controller of a Workload that has none.
    fn adopt(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        let mut owners = entry.object.metadata.owner_references.clone().unwrap_or_default();
        owners.push(owner_reference(view));
        let body = strict_patch(&entry.object, json!({"metadata": {"ownerReferences": owners}}));
        let reported = normal(
            About::new(&crate::world::workload_ref(workload), &entry.uid(), key.kind.integration().reporter),
            "OwnerReferencesAdded",
            "Added 1 owner reference(s)",
        );
        self.patch_workload(workload, Purpose::UpdateWorkload, body, vec![reported]);
    }

    /// Adopts a Workload that lost its owner reference; returns whether there is more to do first. A Workload that was marked finished while its job
    /// continues is replaced by another.
    pub(super) fn find_back(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[workload];
        if entry.controller_uid().is_some() {
            return false;
        }
        if is(entry.status(), Type::Finished) && view.finished.is_none() {
            self.delete_workload(workload, Vec::new());
        } else if !entry.retry.waits(self.now) {
            self.adopt(key, view, workload);
        }
        true
    }

    /// A job has no Workload: it must not run, and gets a Workload.
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
        // Without replicas an object that gathers pods asks for nothing.
        let asks_nothing = key.kind.gathers_pods() && view.on_hold == Some(true);
        if view.prebuilt_workload.is_some() || asks_nothing || self.is_active(key) {
            return;
        }
        if self.is_held_unqueued(key, view) {
            return;
        }
        match self.priority_of(view) {
            Ok(priority) => self.create_workload(key, view, priority, None),
            Err(trouble) => self.report_uncomposed(key, view, &trouble),
        }
    }

    /// A job and its Workload: the rest of the reconciler's order.
    fn proceed(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        if entry.open.is_some() || entry.decision.is_some() {
            return;
        }
        if let Some(until) = entry.retry.until().filter(|until| *until > self.now) {
            return self.wake_at(until, Alarm::Job(key.clone()));
        }
        let status = entry.status();
        let evicted = is(status, Type::Evicted);
        if is(status, Type::Finished) {
            return self.after_finish(key, view, workload);
        }
        if entry.object.metadata.deletion_timestamp.is_some() {
            return self.workload_leaves(key, view, workload);
        }
        if self.sync_hold(key, view, workload) || self.sync_replacement(key, workload) {
            return;
        }
        if let Some(finished) = &view.finished {
            return self.job_finished(key, view, workload, finished);
        }
        if self.evict_exceeding(key, view, workload) {
            return;
        }
        // What its status does not show stays unchanged.
        let has_status = !view.status_unread;
        if has_status && (self.sync_reclaimable(view, workload) || self.sync_pods_ready(view, workload)) {
            return;
        }
        let entry = &self.world.workloads[workload];
        if evicted && (reserved(entry.status()) || !view.suspended) {
            return self.end_eviction(key, view, workload);
        }
        if view.suspended {
            if self.revoke_reservation(workload) || self.give_back(key, view, workload) {
                return;
            }
            let entry = &self.world.workloads[workload];
            if is(entry.status(), Type::Admitted) {
                if !view.ending && !self.read_inherited(workload) {
                    self.start_job(key, view, workload);
                }
                return;
            }
            if self.remove_deactivated(key, view, workload) {
                return;
            }
            if reserved(self.world.workloads[workload].status()) {
                self.report_checks(key, view, workload);
            }
            self.sync_spec(key, view, workload);
            return;
        }
        let infos = restore_infos(&entry.object);
        if !is(entry.status(), Type::Admitted) {
            return self.stop_job(key, view, infos, "Not admitted by cluster queue", &[]);
        }
        // It was moved while it was stopped, and resumed by hand before its quota was given back.
        if self.is_moving(workload) {
            return self.stop_job(key, view, infos, "The job was moved to another LocalQueue", &[]);
        }
        if self.has_gated_pods(key) {
            if !self.read_inherited(workload) {
                self.start_job(key, view, workload);
            }
            return;
        }
        if self.is_elastic(view) {
            self.ungate_pods(key, view, workload);
            if self.world.workloads[workload].open.is_some() {
                return;
            }
        }
        if key.kind.integration().resumes_parts_as_made {
            let entry = &self.world.workloads[workload];
            let infos = self.start_infos(&entry.object, entry.status(), view);
            self.sweep_children(key, view, &infos);
        }
        self.sync_spec(key, view, workload);
    }

    /// Starts a job: the flavors' labels and tolerations, and `suspend: false`, in one patch.
    fn start_job(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        if let Some(until) = self.world.jobs.get(key).and_then(|entry| entry.held_until(self.now)) {
            return self.wake_at(until, Alarm::Job(key.clone()));
        }
        let entry = &self.world.workloads[workload];
        let status = entry.status();
        let queue = status.admission.as_ref().map(|a| a.cluster_queue.clone()).unwrap_or_default();
        let infos = self.start_infos(&entry.object, status, view);
        if self.sweep_children(key, view, &infos) {
            return;
        }
        let note = format!("Admitted by clusterQueue {queue}");
        if self.world.pod_jobs.contains_key(key) {
            return self.start_pods(key, workload, &infos, &note);
        }
        let then = vec![
            normal(self.about_job(key, view), "Started", note),
            self.log(
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
        if view.ending {
            return self.let_end(key, view);
        }
        if view.stop_waits {
            return;
        }
        if self.world.pod_jobs.contains_key(key) {
            self.stop_pods(key, view, why);
            return;
        }
        let mut then = Vec::new();
        // The event of a stop was sent when it began.
        if !view.stopping {
            then = vec![
                normal(self.about_job(key, view), "Stopped", why),
                self.log(Level::Info, "job stopped", &[("job", &key.object()), ("why", &why)]),
            ];
            then.extend(more.iter().cloned());
        }
        let restores = self.world.jobs.get(key).map(|entry| entry.restores).unwrap_or_default();
        if !view.suspended && restores == Restores::Nothing {
            let write = Write::SuspendJob { view: Arc::clone(view) };
            return self.write_job(key, Purpose::SuspendJob, write, then);
        }
        let view = self.as_started(key, view);
        let mut infos = by_position(infos, &view);
        if restores == Restores::Templates {
            keep_counts(&mut infos, &view);
        }
        let write = Write::StopJob { view, infos };
        self.write_job(key, Purpose::StopJob, write, then);
    }

    /// A job whose end is only to be declared is not stopped: clearing its start time would keep that from happening. What an earlier stop
    /// left is put right. If it waits for pods on lost nodes alone, it is suspended, so that it holds no quota.
    pub(super) fn let_end(&mut self, key: &JobKey, view: &Arc<JobView>) {
        if view.stopping || view.end_blocked {
            let write = Write::StopJob { view: Arc::clone(view), infos: Vec::new() };
            self.write_job(key, Purpose::StopJob, write, Vec::new());
        } else if !view.suspended && view.terminating > 0 && !self.is_active(key) {
            self.write_job(
                key,
                Purpose::SuspendJob,
                Write::SuspendJob { view: Arc::clone(view) },
                Vec::new(),
            );
        }
    }

    /// Sends a write on a job.
    pub(crate) fn write_job(&mut self, key: &JobKey, purpose: Purpose, write: Write, then: Vec<Effect>) {
        let id = self.outbox.write(key.object(), purpose, write, then);
        if let Some(entry) = self.world.jobs.get_mut(key) {
            entry.open = Some(id);
        }
    }

    /// Keeps queue, priority class and admission gates of a Workload as its job says.
    pub(super) fn sync_spec(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        let (spec, status) = (&entry.object.spec, entry.status());
        let reported = |note: String| vec![normal(self.about_job(key, view), "UpdatedWorkload", note)];
        let queue = view.queue_name.as_deref().unwrap_or_default();
        if spec.queue_name != queue && !reserved(status) && view.suspended && !queue.is_empty() {
            return self.move_to_queue(workload, queue);
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
                    return self.report_job(key, view, EventType::Warning, why, &trouble);
                }
            };
            let patch = json!({"spec": {"priorityClassRef": priority.class, "priority": priority.value}});
            let body = strict_patch(&entry.object, patch);
            let then = reported(format!("Updated workload priority class: {workload}"));
            return self.patch_workload(workload, Purpose::UpdateWorkload, body, then);
        }
        let annotations = entry.object.metadata.annotations.as_ref();
        let gates = annotations.and_then(|a| a.get(labels::ADMISSION_GATED_BY)).map_or("", String::as_str);
        let wanted = view.admission_gated_by.as_deref().unwrap_or_default();
        if self.config.on(Gate::AdmissionGatedBy) && gates != wanted && !reserved(status) {
            let value = (!wanted.is_empty()).then_some(wanted);
            let patch = json!({"metadata": {"annotations": {labels::ADMISSION_GATED_BY: value}}});
            let body = strict_patch(&entry.object, patch);
            let then = reported(format!("Updated workload AdmissionGatedBy to {wanted:?}"));
            self.patch_workload(workload, Purpose::UpdateWorkload, body, then);
        }
    }
}
