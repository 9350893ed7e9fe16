//! A deleted job gives its quota back when its pods are gone, not before: the pods have a grace period, which their user sets. Pods of a part that is
//! deleted and made again count beside those of its replacement.
//!
//! A deleted job has no status, and the status of a job that is being deleted is out of date. So its pods are looked for in its namespace: by the
//! UIDs of the deleted job and of the objects that it controlled. If the whole job is to end, also by the name of the Workload that they carry: after
//! a restart it is not known what it controlled. Pods of a job that continues carry that name, too, and are left alone.
//!
//! The same holds for a stopped job whose controller says so as soon as it has asked for the deletion of the pods: of that, no status says when they
//! are gone.
//!
//! Pods that should end and take longer than `scheduler.maxTerminationGracePeriod` are given 30 s. Pods of a job that only a finalizer of its user
//! holds need not end before the job does. One look serves all such jobs of a namespace. A job that held no quota, or had no pods, costs none.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_api::job::{JobKind, JobView};
use sluice_api::labels;
use sluice_core::{Name, WorkloadKey};

use super::unheeded::STOP_ENFORCED;
use crate::effect::{EffectId, EndPods, LeftPods, Level, PodsOf, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::hotswap::health;
use crate::ingest::workload::{is, reserved};
use crate::input::{Kind, Object, ObjectRef, WriteError};
use crate::left_behind::{LeftBehind, PodSearches};
use crate::outbox::{About, Open, warning};
use crate::retry::Retry;
use crate::world::{JobEntry, JobKey, WorkloadEntry, controller, is_of_group};

/// How long pods have to end after their time is over.
const LAST_GRACE_SECONDS: u32 = 30;

/// Whether a Workload holds quota that its pods may use.
pub(super) fn holds_quota(entry: &WorkloadEntry) -> bool {
    reserved(&entry.object.status) && !is(entry.status(), Type::Finished)
}

/// Since when the pods of a Workload should end, whatever happens to its job: it is evicted, or deleted.
fn to_end_since(entry: &WorkloadEntry) -> Option<Timestamp> {
    let evicted = conditions::true_since(&entry.status().conditions, Type::Evicted.as_str());
    let deleted = entry.object.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    evicted.into_iter().chain(deleted).min()
}

impl Engine {
    /// The UID of the job of a Workload that may leave pods behind: not of a job that is made of pods, which shows which are left, nor of a job of a
    /// kind that is no longer managed.
    fn leaver(&self, workload: &WorkloadKey) -> Option<Name> {
        let entry = self.world.workloads.get(workload).filter(|entry| holds_quota(entry))?;
        let object = &entry.object;
        if is_of_group(object) {
            return None;
        }
        if let Some(owner) = controller(object) {
            let kind = JobKind::from_owner(&owner.api_version, &owner.kind)?;
            let by_itself = kind.integration().of_pods || kind.gathers_pods();
            let managed = self.config.frameworks.contains(&kind);
            return (managed && !by_itself).then(|| Name::from(owner.uid.as_str()));
        }
        let uid = object.metadata.labels.as_ref()?.get(labels::JOB_UID)?;
        Some(Name::from(uid.as_str()))
    }

    /// A job is being deleted: its Workloads lose our finalizer, unless its parts clean up after it, and as soon as its pods are gone. They go before the
    /// job does: a finalizer of its user may hold that for good, and no pods use their quota.
    pub(super) fn release_workloads(&mut self, key: &JobKey, view: &Arc<JobView>) {
        if self.parts_clean_up(view.job.kind, &view.job.uid) {
            return;
        }
        for workload in self.world.owned(&view.job.uid) {
            // A slice that was replaced holds nothing: it would be noted again each time.
            let holds = self.leaver(&workload).is_some();
            let known = |left: &LeftBehind| left.of.contains(&view.job.uid);
            if holds && !self.left.pods.get(&workload).is_some_and(known) {
                self.note_leaver(key);
            }
            if !self.keeps_for_left(&workload) {
                self.end_workload_of_leaver(key, view, &workload);
            }
        }
    }

    /// A Workload of a job that is being deleted and has no pods any more.
    fn end_workload_of_leaver(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        let kind = view.job.kind;
        let goes_with_pods = kind.integration().of_pods || kind.gathers_pods();
        let entry = &self.world.workloads[workload];
        let (holds, over) = (holds_quota(entry), is(entry.status(), Type::Finished));
        let at_rest = entry.open.is_none() && entry.decision.is_none() && !entry.retry.waits(self.now);
        if let Some(finished) = view.finished.as_ref().filter(|_| holds && at_rest && !goes_with_pods) {
            return self.job_finished(key, view, workload, finished);
        }
        if goes_with_pods || over || !self.config.frameworks.contains(&kind) || self.is_active(key) {
            self.drop_finalizer(workload);
        } else if view.prebuilt_workload.is_none() {
            self.delete_workload(workload, Vec::new());
        } else if holds {
            self.end_prebuilt(key, view, workload);
        } else {
            self.drop_finalizer(workload);
        }
    }

    /// Removes a deleted job.
    pub(crate) fn drop_job(&mut self, key: &JobKey) {
        self.note_leaver(key);
        self.note_gone(key);
        self.mark_parent(key, None);
        self.world.take_parent(key);
        let Some(entry) = self.world.take_job(key) else { return };
        let uid = &entry.view.job.uid;
        self.dirty.workloads.extend(self.world.owned(uid));
        self.dirty.jobs.extend(self.world.children.get(uid).into_iter().flatten().cloned());
        self.mark_cleaned_up(&entry.view);
    }

    /// Takes in that a job goes, or is gone: its pods are looked for if it holds quota, by itself or as a part of another, and may have some.
    pub(crate) fn note_leaver(&mut self, key: &JobKey) {
        let Some(view) = self.world.jobs.get(key).map(|entry| Arc::clone(&entry.view)) else { return };
        let mut holds = self.world.owned(&view.job.uid);
        let by_itself = !holds.is_empty();
        for above in self.above(&view) {
            let above = self.world.jobs.get(&above).filter(|above| above.view.job.namespace == key.namespace);
            holds.extend(above.into_iter().flat_map(|above| self.world.owned(&above.view.job.uid)));
        }
        holds.retain(|workload| self.leaver(workload).is_some());
        if holds.is_empty() {
            return;
        }
        // A job that was just started has pods that its status does not show yet, and an ended one may leave some that it does not show.
        let started = by_itself && !view.suspended && view.finished.is_none();
        let hides_pods = self.world.jobs.get(key).is_some_and(JobEntry::hides_pods_at_end);
        let runs = started || hides_pods && view.finished.is_some();
        let gone = !runs && !self.is_active(key);
        if gone && !by_itself {
            return;
        }
        let of = self.with_children(&key.namespace, [Arc::clone(&view.job.uid)].into());
        for workload in holds {
            let waits = self.left.waits(&workload);
            let known = self.left.pods.remove(&workload);
            let stopped = known.as_ref().and_then(|known| known.stopped);
            let mut left = known.filter(|_| waits).unwrap_or_default();
            left.stopped = stopped;
            left.of.extend(of.iter().cloned());
            left.gone = gone && !waits;
            self.left.pods.insert(workload.clone(), left);
            self.wait_for_look(&workload);
        }
    }

    /// These UIDs, and those of the jobs below, if they exist.
    fn with_children(&self, namespace: &Name, mut of: BTreeSet<Name>) -> BTreeSet<Name> {
        let mut level: Vec<_> = of.iter().cloned().collect();
        while let Some(uid) = level.pop() {
            let children = self.children_of(namespace, &uid).map(|child| Arc::clone(&child.view.job.uid));
            let new: Vec<_> = children.filter(|child| !of.contains(child)).collect();
            of.extend(new.iter().cloned());
            level.extend(new);
        }
        of
    }

    /// There is more to be looked for than was: what is asked now does not answer that.
    fn wait_for_look(&mut self, workload: &WorkloadKey) {
        let now = self.now;
        if self.left.waits(workload) {
            let namespace = Arc::clone(&workload.namespace);
            let looks = self.left.looks.entry(namespace).or_insert_with(|| PodSearches::new(now));
            looks.asked.remove(workload);
            if looks.waiting.insert(workload.clone()) && looks.open.is_none() {
                looks.joined(now);
            }
        }
        self.dirty.workloads.insert(workload.clone());
    }

    /// Whether the quota of a Workload, whose job is deleted or being deleted, is kept for pods that it may still have.
    pub(super) fn keeps_for_left(&mut self, workload: &WorkloadKey) -> bool {
        let Some(uid) = self.leaver(workload) else {
            self.left.forget(workload);
            return false;
        };
        if !self.left.pods.get(workload).is_some_and(|left| left.of.contains(&uid)) {
            // The job was deleted before it was seen.
            let left = self.left.pods.entry(workload.clone()).or_default();
            left.of.insert(uid);
            left.gone = false;
            self.wait_for_look(workload);
        }
        self.look_for_left(workload);
        self.left.waits(workload)
    }

    /// Whether pods of a stopped job may still run whose controller says that it has stopped before they are gone. Each stop costs one look, and more
    /// while there are some.
    pub(super) fn has_pods_after_stop(&mut self, key: &JobKey) -> bool {
        let Some(entry) = self.world.jobs.get(key) else { return false };
        let Some(stopped) = entry.seen.suspended_from else { return false };
        let uid = Arc::clone(&entry.view.job.uid);
        let hides_pods = |job: &JobEntry| {
            let view = &job.view;
            // What was not changed since its creation has never been started, and of what was looked at after the stop it is known.
            let may_have_some = view.suspended && view.generation > 1 && !job.seen.heeded;
            view.job.kind.integration().leaves_terminating && view.finished.is_none() && may_have_some
        };
        if !std::iter::once(entry).chain(self.children(key, &uid)).any(hides_pods) {
            return false;
        }
        let mut holds = self.world.owned(&uid);
        holds.retain(|workload| self.leaver(workload).is_some());
        for workload in &holds {
            let left = self.left.pods.entry(workload.clone()).or_default();
            if left.stopped != Some(stopped) {
                (left.stopped, left.gone) = (Some(stopped), false);
                self.wait_for_look(workload);
            }
            self.look_for_left(workload);
        }
        holds.iter().any(|workload| self.left.waits(workload))
    }

    /// Whether deleted jobs that this one controlled may have left pods behind.
    pub(super) fn parts_left_pods(&mut self, uid: &str) -> bool {
        if self.left.looks.is_empty() {
            return false;
        }
        let mut owned = self.world.owned(uid);
        owned.retain(|workload| self.left.waits(workload));
        for workload in &owned {
            self.look_for_left(workload);
        }
        owned.iter().any(|workload| self.left.waits(workload))
    }

    /// Looks for the pods of a Workload if it is time, together with those of all others of its namespace that wait for a look.
    fn look_for_left(&mut self, workload: &WorkloadKey) {
        let namespace = &workload.namespace;
        let Some(looks) = self.left.looks.get(namespace) else { return };
        if looks.open.is_some() || !looks.waiting.contains(workload) {
            return;
        }
        if looks.next > self.now {
            return self.wake_at(looks.next, Alarm::Workload(workload.clone()));
        }
        let waiting: Vec<_> = looks.waiting.iter().cloned().collect();
        let left: Vec<_> = waiting.into_iter().filter_map(|key| self.left_pods(&key)).collect();
        if left.is_empty() {
            return;
        }
        let then = EndPods::LookForLeft { left, lost: self.nodes_lost() };
        let write = Write::EndPods { of: PodsOf::default(), then };
        let object = ObjectRef::cluster(Kind::Namespace, Arc::clone(namespace));
        let id = self.outbox.write(object, Purpose::EndPods, write, Vec::new());
        if let Some(looks) = self.left.looks.get_mut(namespace) {
            looks.sent(id, self.now);
        }
    }

    /// Which pods of a Workload are looked for now. If it gave its quota back meanwhile, none.
    fn left_pods(&mut self, key: &WorkloadKey) -> Option<LeftPods> {
        let Some(entry) = self.world.workloads.get(key).filter(|entry| holds_quota(entry)) else {
            self.left.forget(key);
            return None;
        };
        let (to_end, is_gone) = (to_end_since(entry), self.job_is_gone(entry));
        let job = self.world.job_of(entry).and_then(|job| self.world.jobs.get(&job));
        let goes = is_gone || job.is_some_and(|job| job.view.deleting);
        let is_over = is_gone || job.is_some_and(|job| job.view.finished.is_some());
        // It may run again meanwhile.
        let suspended = job.filter(|job| job.view.suspended).map(|job| Arc::clone(&job.view.job.uid));
        let known = self.left.pods.get_mut(key)?;
        known.stopped = known.stopped.filter(|_| suspended.is_some());
        let own = suspended.filter(|_| known.stopped.is_some());
        let of = known.of.clone();
        if of.is_empty() && own.is_none() {
            self.left.forget(key);
            return None;
        }
        let of = self.with_children(&key.namespace, of);
        let own = self.with_children(&key.namespace, own.into_iter().collect());
        let (now, longest) = (self.now, self.config.longest_termination);
        let known = self.left.pods.get_mut(key)?;
        // Pods that an ended job leaves behind have to end, too.
        known.job_over = is_over.then(|| known.job_over.unwrap_or(now));
        let since = to_end.into_iter().chain(known.job_over).chain(known.stopped).min();
        let until = since.zip(longest).and_then(|(since, longest)| since.checked_add(longest).ok());
        let is_overdue = until.is_some_and(|until| until <= now);
        let pods = LeftPods {
            workload: Arc::clone(&key.name),
            of: of.union(&own).cloned().collect(),
            by_name: goes || [to_end, known.stopped, known.overdue].iter().any(Option::is_some),
            ends_within: is_overdue.then_some(LAST_GRACE_SECONDS),
        };
        known.of = of;
        if is_overdue && !std::mem::replace(&mut known.reported, true) {
            self.report_last_grace(key);
        }
        Some(pods)
    }

    /// Whether the quota of a job with pods is kept. Pods of an evicted or deleted Workload, and of an ended job, that take longer to end than they
    /// may are given less time; then a look finds out whether any are left that can use something, whatever the status of the job shows.
    pub(super) fn keeps_until_overdue(&mut self, key: &JobKey, uid: &Name, workload: &WorkloadKey) -> bool {
        let (Some(longest), Some(entry)) =
            (self.config.longest_termination, self.world.workloads.get(workload))
        else {
            return true;
        };
        let ended = self.world.jobs.get(key).and_then(JobEntry::outlived_until);
        let Some(since) = to_end_since(entry).or(ended) else { return true };
        let until = since.checked_add(longest).unwrap_or(Timestamp::MAX);
        if until > self.now {
            self.wake_at(until, Alarm::Job(key.clone()));
            return true;
        }
        if self.left.pods.get(workload).is_none_or(|left| left.overdue != Some(since)) {
            let mut of = self.with_children(&key.namespace, [Arc::clone(uid)].into());
            // A pod that waits uses nothing, and is its user's.
            let made_of = self.world.pod_jobs.get(key).into_iter().flat_map(|job| job.pods.members());
            of.extend(made_of.filter(|pod| !pod.gated).map(|pod| Arc::clone(&pod.uid)));
            let left = self.left.pods.entry(workload.clone()).or_default();
            left.of.extend(of);
            (left.overdue, left.gone) = (Some(since), false);
            left.job_over = left.job_over.or(ended);
            self.wait_for_look(workload);
        }
        self.look_for_left(workload);
        self.left.waits(workload)
    }

    fn report_last_grace(&mut self, workload: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get(workload) else { return };
        let note =
            format!("Pods that hold quota did not end in time; they get {LAST_GRACE_SECONDS} s to end");
        let about = About::workload(workload, &entry.uid());
        let line =
            self.log(Level::Warn, "pods that hold quota are given less time", &[("workload", workload)]);
        self.outbox.extend(vec![warning(about, STOP_ENFORCED, note), line]);
    }

    /// Says why the quota of Workloads is kept: it cannot be known that their pods are gone.
    fn report_no_look(&mut self, namespace: &Name, workloads: &BTreeSet<WorkloadKey>, note: &str) {
        let about = |key: &WorkloadKey| Some(About::workload(key, &self.world.workloads.get(key)?.uid()));
        let events =
            workloads.iter().filter_map(about).map(|about| warning(about, "FailedDelete", note.to_owned()));
        let line =
            self.log(Level::Warn, "pods cannot be looked for", &[("namespace", namespace), ("why", &note)]);
        let all = events.chain([line]).collect();
        self.outbox.extend(all);
    }

    /// The nodes on which no pod ends any more.
    pub(super) fn nodes_lost(&self) -> Vec<Arc<str>> {
        let is_lost = |node: &&Name| {
            let node = self.world.nodes.get(*node);
            let from = node.and_then(|node| health::lost_from(node, &self.config.hotswap));
            from.is_some_and(|from| from <= self.now)
        };
        self.world.nodes.keys().filter(is_lost).cloned().collect()
    }

    /// A look for what jobs left behind was answered.
    pub(crate) fn looked_for_left(
        &mut self,
        id: EffectId,
        open: &Open,
        result: Result<Option<Object>, WriteError>,
    ) {
        let (now, namespace) = (self.now, &open.object.name);
        let Some(looks) = self.left.looks.get_mut(namespace).filter(|looks| looks.open == Some(id)) else {
            return;
        };
        looks.open = None;
        let (mut failure, mut away) = (None, None);
        let remaining: Option<BTreeSet<Name>> = match result {
            Ok(_) => Some(BTreeSet::new()),
            Err(WriteError::PodsRemain(workloads)) => Some(workloads.into_iter().collect()),
            Err(error) => {
                looks.next = looks.retry.failed(open.purpose, &error, now);
                let note = format!(
                    "The quota of a deleted or stopped job is kept, because its pods cannot be listed: {error}"
                );
                failure = looks.retry.should_report(&error, &note).then_some(note);
                away = Some(error);
                None
            }
        };
        if let Some(remaining) = remaining {
            looks.retry = Retry::default();
            for key in looks.asked.iter().filter(|key| !remaining.contains(&key.name)) {
                looks.waiting.remove(key);
                if let Some(left) = self.left.pods.get_mut(key) {
                    left.gone = true;
                }
            }
            looks.again(now);
        }
        let concerned: BTreeSet<_> = looks.asked.union(&looks.waiting).cloned().collect();
        looks.asked.clear();
        if looks.waiting.is_empty() {
            self.left.looks.remove(namespace);
        }
        if let Some(note) = failure {
            self.report_no_look(namespace, &concerned, &note);
        }
        if let Some(error) = away {
            self.note_outage(&error, || Alarm::Object(open.object.clone()));
        }
        let jobs = concerned.iter().filter_map(|key| self.world.job_of(self.world.workloads.get(key)?));
        self.dirty.jobs.extend(jobs);
        self.dirty.workloads.extend(concerned);
    }
}
