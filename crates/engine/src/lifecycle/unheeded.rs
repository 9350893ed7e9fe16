//! A stop that a job's controller does not carry out.
//!
//! A stop sets a field, and the controller of the job's kind removes the pods. Some do not: a controller that validates an object before it looks at
//! that field ignores an invalid one, and a controller that does not retry after a conflict waits for the next event. A stopped job is therefore
//! looked at after a while if nothing shows that its pods are gone. If it has pods, it is touched, which is an event for its controller; if it still
//! has some later, they are deleted here, together with jobs that it made and that still run.
//!
//! Everything follows from the objects and from when a job was first seen stopped: after a restart the time begins again. A controller that reports
//! the stop costs no request; one that reports nothing costs one look.
//!
//! Jobs whose controller is known to retry until they are stopped are left to it, see [`super::answered`].

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_api::job::{JobKind, JobView};
use sluice_api::labels;

use super::ancestor::Standing;
use super::unadmitted::named;
use super::workload::later;
use crate::effect::{EffectId, EndPods, Level, PodsOf, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::input::{Object, WriteError};
use crate::outbox::{Open, warning};
use crate::retry::Retry;
use crate::unheeded::{PATIENCE_SECONDS, Unheeded};
use crate::world::{JobEntry, JobKey, job_key};

/// How long the controller has after the job was touched: a controller with a work queue handles an event well within that.
const ONCE_MORE_SECONDS: i64 = 60;
/// Objects with longer names cannot be in a pod's label.
const MAX_LABEL: usize = 63;
/// The reason of the events; Kueue has none.
pub(super) const STOP_ENFORCED: &str = "StopEnforced";

/// Whether all pods of a kind belong to its jobs themselves, or to known jobs: that is not known of wrapped or declared objects.
fn shows_all_pods(kind: JobKind) -> bool {
    !kind.integration().wraps_objects && !kind.is_declared()
}

impl JobEntry {
    /// Whether its status shows pods. The status of an ended job is no longer updated, nor that of a job that shows pods and was found to have none.
    /// A job that cannot be read shows nothing: then the result of the look counts for every kind.
    pub(super) fn says_active(&self) -> bool {
        let shows_all = self.view.activity_unknown || shows_all_pods(self.view.job.kind);
        let has_none = self.seen.heeded && shows_all;
        self.view.active && self.view.finished.is_none() && !has_none
    }

    /// Whether pods of it were seen that continue although it was stopped.
    pub(super) fn has_pods_left(&self) -> bool {
        self.unheeded.as_ref().is_some_and(|known| known.left)
    }

    /// Whether it may have pods that its controller does not remove, whatever its status shows.
    fn may_go_on(&self) -> bool {
        let over = self.view.finished.is_some() || self.view.deleting || self.seen.heeded;
        let left_to_it = self.is_enforced() && self.view.suspended;
        self.view.active && !over && !left_to_it
    }

    /// Whether it was not changed since it was made, suspended: its controller has never made pods for it.
    fn never_ran(&self) -> bool {
        self.waits() && self.view.generation <= 1
    }

    /// Whether it must not have any pods.
    fn waits(&self) -> bool {
        self.view.suspended && self.view.finished.is_none()
    }

    /// Whether it waits, and a pod that was made meanwhile names it as its controller all the same.
    fn has_stray(&self) -> bool {
        self.waits() && self.trouble.as_ref().is_some_and(|trouble| trouble.stray)
    }

    /// Whether its controller does not say that it has seen the stop. A job that was resumed by hand has no time of decision: what its
    /// controller said while the job ran, if that was seen, is no answer.
    fn says_nothing_of_stop(&self, decided: Option<Timestamp>) -> bool {
        let seen = &self.seen;
        let answered = match self.view.suspended_condition {
            Some((false, _)) => false,
            Some((true, since)) => {
                let is_later = || decided.is_some_and(|decided| since >= decided);
                seen.runs || seen.stale.map_or_else(is_later, |stale| stale != since)
            }
            None => seen.runs || self.saw_generation(),
        };
        !(seen.heeded || answered)
    }

    /// Whether a job that another job made continues although that job was stopped.
    fn runs_on(&self) -> bool {
        !self.view.suspended && self.view.finished.is_none() && !self.view.deleting
    }
}

impl Engine {
    /// Makes sure that a stopped job has no pods; returns whether a request was sent for that. A part runs on the quota of the job `above`, which is
    /// checked with all its parts, so that only pods that were created meanwhile are looked for here.
    pub(super) fn enforce_stop(&mut self, key: &JobKey, view: &Arc<JobView>, above: Option<&str>) -> bool {
        let is_over = view.finished.is_some() || view.deleting || self.is_to_run(view, above);
        if is_over || view.suspended && !self.may_be_unheeded(key, view, above.is_some()) {
            if let Some(entry) = self.world.jobs.get_mut(key) {
                entry.unheeded = None;
                if let Some(trouble) = entry.trouble.as_mut().filter(|_| is_over) {
                    trouble.stray = false;
                }
            }
            return false;
        }
        // If a job is resumed by hand repeatedly, the time does not begin again each time.
        if !view.suspended || view.stopping {
            return false;
        }
        let now = self.now;
        let Some(entry) = self.world.jobs.get_mut(key) else { return false };
        let known = entry.unheeded.get_or_insert_with(|| Box::new(Unheeded::since(now)));
        let (next, touched) = (known.next, known.touched);
        if next > now {
            self.wake_at(next, Alarm::Job(key.clone()));
            return false;
        }
        let runs_on: Vec<_> = self.children(key, &view.job.uid).filter(|child| child.runs_on()).collect();
        let runs_on: Vec<_> = runs_on.into_iter().map(|child| Arc::clone(&child.view)).collect();
        if touched {
            self.delete_parts(key, view, &runs_on);
        }
        let touch = || {
            let at = json!({labels::STOP_REPEATED: now.to_string()});
            json!({"metadata": {"uid": &*view.job.uid, "annotations": at}})
        };
        let write = match touched {
            // No look is needed for that.
            false if !runs_on.is_empty() => Write::MergePatch { subresource: None, body: touch() },
            false => Write::EndPods { of: self.marks_of_pods(key, view), then: EndPods::Touch(touch()) },
            true => Write::EndPods { of: self.marks_of_pods(key, view), then: EndPods::Delete },
        };
        self.write_job(key, Purpose::EndPods, write, Vec::new());
        true
    }

    /// Whether a job has a Workload that lets it run, now or once that was written: its own, or, if it is a part, that of the job above. A job that
    /// cannot be read is not started.
    fn is_to_run(&self, view: &JobView, above: Option<&str>) -> bool {
        if view.suspended && view.invalid.is_some() {
            return false;
        }
        let owned = self.world.owned(above.unwrap_or(&view.job.uid));
        let near = owned.iter().filter(|w| w.namespace == view.job.namespace);
        near.filter(|w| above.is_some() || named(view, w)).any(|w| {
            let entry = &self.world.workloads[w];
            let status = entry.status();
            let ends = entry.object.metadata.deletion_timestamp.is_some();
            is(status, Type::Admitted) && !is(status, Type::Finished) && !is(status, Type::Evicted) && !ends
        })
    }

    /// Whether nothing shows that the pods of a stopped job are gone. A job that was not changed since its creation has never had any, except for
    /// pods that only claim to be its.
    fn may_be_unheeded(&self, key: &JobKey, view: &JobView, is_part: bool) -> bool {
        if self.world.pod_jobs.contains_key(key) || view.ending {
            return false;
        }
        let Some(entry) = self.world.jobs.get(key) else { return false };
        if entry.has_stray() {
            return true;
        }
        if is_part || view.generation <= 1 || entry.is_enforced() {
            return false;
        }
        let mut parts = self.children(key, &view.job.uid);
        entry.may_go_on()
            || entry.says_nothing_of_stop(self.last_decision(&view.job.uid))
            || parts.any(|part| part.may_go_on() || part.runs_on())
    }

    /// Records that a pod that continues, and was created at that time, names a job as its controller. Users write owner references, too: a job that
    /// never ran has no such pod, and a pod that was created long after the stop of its job has no quota.
    pub(crate) fn note_stray(&mut self, namespace: &str, controller: &str, created: Option<Timestamp>) {
        let Some(key) = self.world.job_by_uid.get(controller).filter(|key| *key.namespace == *namespace)
        else {
            return;
        };
        let Some(entry) = self.world.jobs.get(key).filter(|entry| entry.waits()) else { return };
        let is_stray = entry.never_ran() || {
            let above = match self.standing(&entry.view) {
                Standing::Part { of, .. } => Some(of),
                _ => None,
            };
            let decided = self.last_decision(above.as_deref().unwrap_or(&entry.view.job.uid));
            let since = decided.map(|decided| later(decided, PATIENCE_SECONDS));
            let is_later = since.is_none_or(|since| created.is_none_or(|created| created > since));
            is_later && !self.is_to_run(&entry.view, above.as_deref())
        };
        let key = key.clone();
        if let Some(entry) = self.world.jobs.get_mut(&key).filter(|_| is_stray) {
            entry.trouble.get_or_insert_default().stray = true;
            self.dirty.jobs.insert(key);
        }
    }

    /// The same for all pods, once jobs and pods are known.
    pub(crate) fn note_strays(&mut self) {
        // The newest pod of each job decides.
        let mut of = BTreeMap::<_, Option<Timestamp>>::new();
        for ((namespace, _), pod) in self.world.pods.iter().filter(|(_, pod)| !pod.leaving) {
            let Some(controller) = pod.controller.clone() else { continue };
            let last = of.entry((Arc::clone(namespace), controller)).or_insert(pod.created);
            *last = pod.created.max(*last);
        }
        for ((namespace, controller), created) in of {
            self.note_stray(&namespace, &controller, created);
        }
    }

    /// When quota was last given to a job, or the decision made to take it.
    fn last_decision(&self, uid: &str) -> Option<Timestamp> {
        let of = |workload: &_| {
            let conditions = &self.world.workloads.get(workload)?.status().conditions;
            let since = |kind: Type| conditions::true_since(conditions, kind.as_str());
            since(Type::Admitted).max(since(Type::Evicted))
        };
        self.world.owned(uid).iter().filter_map(of).max()
    }

    /// By what the pods of a job are known. What wraps objects may wrap some of kinds that are not watched, such as what makes a ReplicaSet: its
    /// controller gives a label with its name to the pods of all of them. Of one that never ran there are none.
    pub(super) fn marks_of_pods(&self, key: &JobKey, view: &JobView) -> PodsOf {
        let wraps = view.job.kind.integration().wraps_objects && view.generation > 1;
        let label = view.job.kind.label_of_pods().filter(|_| wraps && key.name.len() <= MAX_LABEL);
        let label = label.map(|label| (label, Arc::clone(&key.name)));
        let parts = self.children(key, &view.job.uid).map(|part| &*part.view);
        let make_pods = std::iter::once(view).chain(parts);
        let make_pods = make_pods.filter(|view| view.job.kind.integration().maker_pods.is_some());
        let makers = make_pods.flat_map(|view| &view.part_names).map(|name| Arc::from(name.as_str()));
        PodsOf { uids: self.owners_of_pods(key, view), label, makers: makers.collect() }
    }

    /// The UIDs of a job and of those that it controls; without those that are left to their own controller.
    pub(super) fn owners_of_pods(&self, key: &JobKey, view: &JobView) -> Vec<Arc<str>> {
        let parts = self.children(key, &view.job.uid).filter(|part| !part.is_enforced());
        let parts = parts.map(|part| Arc::clone(&part.view.job.uid));
        std::iter::once(Arc::clone(&view.job.uid)).chain(parts).collect()
    }

    /// Deletes jobs that a stopped job made and that continue: their pods are deleted with them, and would be made again if they were deleted alone.
    fn delete_parts(&mut self, key: &JobKey, view: &JobView, runs_on: &[Arc<JobView>]) {
        for part in runs_on {
            let child = JobKey::of(&part.job);
            let waits = |entry: &JobEntry| entry.open.is_some() || entry.retry.waits(self.now);
            if self.world.jobs.get(&child).is_none_or(waits) {
                continue;
            }
            let note = format!(
                "{} {:?} kept running after its job was stopped, so it was deleted",
                child.kind.kind(),
                child.name
            );
            let then = vec![
                warning(self.about_job(key, view), STOP_ENFORCED, note),
                self.log(
                    Level::Warn,
                    "job of a stopped one deleted",
                    &[("job", &child.object()), ("owner", &key.object())],
                ),
            ];
            let uid = Some(Arc::clone(&part.job.uid));
            let write = Write::Delete { uid, grace_period_seconds: None, foreground: false };
            self.write_job(&child, Purpose::DeleteChild, write, then);
        }
    }

    /// A look for the pods of a stopped job was answered.
    pub(crate) fn looked_for_pods(
        &mut self,
        id: EffectId,
        open: &Open,
        result: Result<Option<Object>, WriteError>,
    ) {
        let Some(key) = job_key(&open.object) else { return };
        let now = self.now;
        let Some(entry) = self.world.jobs.get_mut(&key).filter(|entry| entry.open == Some(id)) else {
            return;
        };
        entry.open = None;
        self.dirty.jobs.insert(key.clone());
        let view = Arc::clone(&entry.view);
        if view.finished.is_some() && entry.may_be_outlived() {
            return self.looked_for_outliving(&key, &view, open, result);
        }
        let Some(known) = &mut entry.unheeded else { return };
        let deletes = known.touched;
        if matches!(result, Ok(_) | Err(WriteError::PodsLeft { .. })) {
            known.retry = Retry::default();
        }
        match result {
            Ok(None) => {
                known.left = false;
                known.again(now);
                self.has_no_pods(&key, &view);
            }
            Ok(Some(object)) => {
                known.touched = true;
                known.next = later(now, ONCE_MORE_SECONDS);
                self.observe_object(object);
            }
            Err(WriteError::PodsLeft { going_on, .. }) => {
                known.left = going_on > 0;
                if known.left && !deletes {
                    known.touched = true;
                    known.next = later(now, ONCE_MORE_SECONDS);
                } else {
                    known.again(now);
                }
                if known.left && deletes {
                    self.report_ended(&key, &view, going_on);
                }
            }
            Err(WriteError::Withdrawn) => {}
            Err(WriteError::NotFound(_)) => self.forget_object(&open.object, None),
            Err(error) => {
                known.next = known.retry.failed(open.purpose, &error, now);
                let note = format!("Error deleting the pods of the stopped job: {error}");
                let reported = known.retry.should_report(&error, &note);
                self.note_outage(&error, || Alarm::Job(key.clone()));
                if reported {
                    self.outbox.push(warning(self.about_job(&key, &view), "FailedDelete", note));
                }
            }
        }
    }

    /// No pods of a stopped job were found.
    fn has_no_pods(&mut self, key: &JobKey, view: &JobView) {
        let parts = self.children(key, &view.job.uid).filter(|part| !part.is_enforced());
        let parts: Vec<_> = parts.map(|part| JobKey::of(&part.view.job)).collect();
        for job in parts.iter().chain([key]) {
            if let Some(entry) = self.world.jobs.get_mut(job) {
                entry.seen.heeded = entry.view.suspended;
                if let Some(trouble) = &mut entry.trouble {
                    trouble.stray = false;
                }
            }
        }
    }

    fn report_ended(&mut self, key: &JobKey, view: &JobView, pods: u32) {
        let note = if view.generation <= 1 {
            format!("The job was never started, and pods named it as their controller: {pods} were deleted")
        } else {
            format!(
                "The job was stopped, and its controller has not removed its pods within {} s: {pods} were deleted",
                PATIENCE_SECONDS + ONCE_MORE_SECONDS
            )
        };
        self.outbox.push(warning(self.about_job(key, view), STOP_ENFORCED, note));
        let about: [(&'static str, &dyn ToString); 2] = [("job", &key.object()), ("pods", &pods)];
        self.outbox.push(self.log(Level::Warn, "pods of a stopped job deleted", &about));
    }
}
