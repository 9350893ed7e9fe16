//! Objects that made the engine panic: they are left out until they change, and nothing is done for them. One exception: a job that is managed,
//! and runs without being admitted or beyond the quota of the job above it, is suspended, or made again. That needs nothing but its view. Its Workload
//! gets no quota, and gives back what it has when the job is evicted, or over, and no pods are left.
//!
//! An object that makes the engine panic again and again is left out for a while whatever its version is: each panic costs a list of everything, and
//! nothing is decided meanwhile.

pub(crate) mod state;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::{JobKind, JobView};
use sluice_api::slim;
use sluice_core::WorkloadKey;

use self::state::{Aside, AsideJob, Next, Version};
use crate::effect::{EffectId, Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::input::{Kind, Object, ObjectRef, WriteError};
use crate::lifecycle::ancestor::Standing;
use crate::lifecycle::unadmitted::named;
use crate::lifecycle::workload::later;
use crate::outbox::{About, Open, normal, warning};
use crate::world::{JobKey, WorkloadEntry, controller, is_of_group, job_key};

/// How a job that is left out runs, if it does.
enum Runs {
    /// On quota, or it needs none.
    OnQuota,
    /// It is managed, and was not admitted, or was evicted.
    Unadmitted,
    /// The job above it is admitted with fewer pods, or elsewhere.
    BeyondQuota,
}

impl Engine {
    /// Whether an object is left out, because it made an earlier engine panic and has not changed since.
    pub fn leaves_out(&self, object: &ObjectRef) -> bool {
        self.aside.contains_key(object)
    }

    /// Forgets the objects of a kind that a complete list lacks.
    pub(crate) fn keep_aside(&mut self, kind: Kind, present: &BTreeSet<ObjectRef>) {
        // A group of pods has no object of its own, and a job that suspends its pods may be gone while some of them still wait.
        if matches!(kind, Kind::Job(kind) if !is_suspended_by_field(kind)) {
            return;
        }
        let left_out = self.aside.keys().filter(|object| object.kind == kind);
        let gone: Vec<_> = left_out.filter(|object| !present.contains(*object)).cloned().collect();
        for object in gone {
            self.aside_gone(&object);
        }
    }

    /// Takes in that an object is gone. What comes in its place is left out, too, as long as its pause lasts.
    pub(crate) fn aside_gone(&mut self, object: &ObjectRef) {
        let Some(aside) = self.aside.get_mut(object) else { return };
        if aside.pause > 0 {
            (aside.next, aside.job) = (Next::Gone, None);
        } else {
            self.aside.remove(object);
        }
        self.mark_workloads_of(object);
    }

    /// Leaves an object out until it changes, and as long as its pause lasts.
    pub(crate) fn set_aside(&mut self, object: &ObjectRef, version: Option<String>, why: String, pause: u32) {
        // Heartbeats of a Node do not count as changes: what it says has to be seen.
        let version = version.filter(|version| object.kind != Kind::Node || version.is_empty());
        let known = match object.kind {
            Kind::Job(kind) if is_suspended_by_field(kind) => job_key(object),
            _ => None,
        };
        let known = known.and_then(|key| self.world.jobs.get(&key));
        let before = self.aside.get(object);
        // Its own stop may be what panicked: the answer comes still, and it is tried again later.
        let kept = || before?.job.clone();
        let job = known.map(|entry| AsideJob::new(&entry.view)).or_else(kept);
        let pause = before.map_or(pause, |before| pause.max(before.pause));
        self.forget_object(object, None);
        let note = format!("Set aside until it changes, because it could not be handled: {why}");
        let uid: Arc<str> = "".into();
        self.outbox.push(warning(About::new(object, &uid, crate::REPORTER_WORKLOAD), "SetAside", note));
        self.outbox.push(self.log(Level::Error, "object set aside", &[("object", object), ("why", &why)]));
        let version = version.map(Version::Of);
        self.aside.insert(object.clone(), Aside { version, why, pause, next: Next::Same, job });
        self.mark_workloads_of(object);
        self.aside_job_seen(object);
    }

    /// Gives an object back unless it is left out. A job that is left out is looked at only to see whether it runs.
    pub(crate) fn unless_aside(&mut self, reference: &ObjectRef, object: Object) -> Option<Object> {
        let Some(aside) = self.aside.get_mut(reference) else { return Some(object) };
        let seen = Version::of(&object);
        let changed = aside.version.is_some() && aside.version != seen;
        if changed && aside.pause == 0 {
            self.let_in(reference);
            return Some(object);
        }
        if let Object::Job(view) = &object
            && is_suspended_by_field(view.job.kind)
        {
            match &mut aside.job {
                Some(job) => job.seen(view),
                job => *job = Some(AsideJob::new(view)),
            }
        }
        if changed || !matches!(aside.next, Next::Same) {
            aside.next = Next::Changed(Box::new(object));
        } else {
            aside.version = seen;
        }
        self.aside_job_seen(reference);
        None
    }

    /// Everything is listed: from now on the pauses of objects that are left out count.
    pub(crate) fn begin_pauses(&mut self) {
        for (object, aside) in self.aside.iter().filter(|(_, aside)| aside.pause > 0) {
            self.timers.insert((later(self.now, i64::from(aside.pause)), Alarm::Aside(object.clone())));
        }
    }

    /// The pause of an object is over: if it changed meanwhile, it is looked at again.
    pub(crate) fn end_pause(&mut self, object: &ObjectRef) {
        let Some(aside) = self.aside.get_mut(object).filter(|aside| aside.pause > 0) else { return };
        aside.pause = 0;
        match std::mem::take(&mut aside.next) {
            Next::Same => {}
            Next::Gone => self.let_in(object),
            Next::Changed(next) => {
                self.let_in(object);
                self.observe_object(*next);
            }
        }
    }

    /// An object is not left out any more.
    fn let_in(&mut self, object: &ObjectRef) {
        self.aside.remove(object);
        self.mark_workloads_of(object);
    }

    /// A job that is left out was seen: it may have to stop, and its Workloads may end. What was known of its pods is out of date.
    fn aside_job_seen(&mut self, object: &ObjectRef) {
        let Some(job) = self.aside.get(object).and_then(|aside| aside.job.as_ref()) else { return };
        let key = JobKey::of(&job.view.job);
        let mut owned = self.world.owned(&job.view.job.uid);
        owned.retain(|workload| workload.namespace == key.namespace);
        for workload in &owned {
            self.left.forget(workload);
        }
        self.dirty.workloads.extend(owned);
        self.dirty.jobs.insert(key);
    }

    /// Marks the Workloads of a job that is left out now, or was.
    fn mark_workloads_of(&mut self, job: &ObjectRef) {
        let own = self
            .world
            .workloads
            .iter()
            .filter(|(key, entry)| key.namespace == job.namespace && is_owned_by(&entry.object, job));
        self.dirty.workloads.extend(own.map(|(key, _)| key.clone()));
    }

    /// The job of a Workload, if it is left out.
    pub(crate) fn left_out(&self, entry: &WorkloadEntry) -> Option<&Aside> {
        if self.aside.is_empty() || self.world.job_of(entry).is_some() {
            return None;
        }
        let namespace = entry.object.metadata.namespace.as_deref().unwrap_or_default();
        let is_its = |aside: &Aside| match &aside.job {
            Some(job) => entry.owner.as_deref() == Some(&*job.view.job.uid),
            None => !matches!(aside.next, Next::Gone),
        };
        let mut all = self.aside.iter().filter(|(object, _)| *object.namespace == *namespace);
        all.find(|(object, aside)| is_owned_by(&entry.object, object) && is_its(aside))
            .map(|(_, aside)| aside)
    }

    /// Marks all jobs, also those that are left out.
    pub(crate) fn mark_all_jobs(&mut self) {
        self.dirty.jobs.extend(self.world.jobs.keys().cloned());
        let left_out = self.aside.values().filter_map(|aside| aside.job.as_ref());
        self.dirty.jobs.extend(left_out.map(|job| JobKey::of(&job.view.job)));
    }

    /// Marks the job of a Workload, and those that it made, if they are left out: they may not be admitted any more.
    pub(crate) fn mark_aside(&mut self, workload: &WorkloadKey) {
        if self.aside.is_empty() {
            return;
        }
        let Some(owner) = self.world.workloads.get(workload).and_then(|entry| entry.owner.as_ref()) else {
            return;
        };
        let left_out = self.aside.values().filter_map(|aside| aside.job.as_ref());
        let concerned = left_out.filter(|job| {
            let above = job.view.controller.as_ref().map(|above| above.uid.as_str());
            job.view.job.uid == *owner || above == Some(&**owner)
        });
        self.dirty.jobs.extend(concerned.map(|job| JobKey::of(&job.view.job)));
    }

    /// Stops a job that is left out, and runs although it is managed and not admitted, or beyond the quota of the job above it; or has it made
    /// again. Nothing else is done for it.
    pub(crate) fn hold_aside(&mut self, key: &JobKey) {
        if self.aside.is_empty() {
            return;
        }
        let object = key.object();
        let Some(job) = self.aside.get(&object).and_then(|aside| aside.job.as_ref()) else { return };
        if job.open.is_some() {
            return;
        }
        if let Some(until) = job.retry.until().filter(|until| *until > self.now) {
            return self.wake_at(until, Alarm::Job(key.clone()));
        }
        let view = Arc::clone(&job.view);
        // What made the engine panic may do so here, too. Nothing is changed by looking.
        let runs = catch_unwind(AssertUnwindSafe(|| self.runs_aside(&view))).unwrap_or(Runs::OnQuota);
        let why = match runs {
            Runs::OnQuota => return,
            Runs::Unadmitted => "Set aside, and not admitted",
            Runs::BeyondQuota if self.is_of_one_pod_set(&view) => {
                self.replace_exceeding(key, &view);
                return;
            }
            Runs::BeyondQuota => "Set aside, and not covered by the quota of the job above it",
        };
        let about = About::new(&object, &view.job.uid, key.kind.integration().reporter);
        let then = vec![
            normal(about, "Stopped", why),
            self.log(Level::Info, "job stopped", &[("job", &object), ("why", &why)]),
        ];
        let write = Write::SuspendJob { view };
        let id = self.outbox.write(object.clone(), Purpose::SuspendJob, write, then);
        if let Some(job) = self.aside.get_mut(&object).and_then(|aside| aside.job.as_mut()) {
            job.open = Some(id);
        }
    }

    /// On what a job that is left out runs.
    fn runs_aside(&self, view: &JobView) -> Runs {
        // One that is being stopped is suspended already. This write would end its stop, and its templates would not be restored.
        if view.suspended || view.stopping || view.finished.is_some() || view.ending {
            return Runs::OnQuota;
        }
        // Workloads in other namespaces only claim to be its own.
        let is_its_own =
            |workload: &WorkloadKey| workload.namespace == view.job.namespace && named(view, workload);
        // One that is deleted goes once its job has stopped, or is gone.
        let leaves = |workload: &WorkloadKey| {
            !view.deleting && self.world.workloads[workload].object.metadata.deletion_timestamp.is_some()
        };
        let is_admitted = || {
            self.world.owned(&view.job.uid).iter().filter(|workload| is_its_own(workload)).any(|workload| {
                let status = &self.world.workloads[workload].object.status;
                let is_over = is(status, Type::Finished) || is(status, Type::Evicted);
                is(status, Type::Admitted) && !is_over && !leaves(workload)
            })
        };
        let is_unadmitted = match self.standing(view) {
            Standing::Own => !is_admitted(),
            Standing::Unverified(_) | Standing::TooDeep => self.manages_itself(view) && !is_admitted(),
            Standing::Part { .. } if view.deleting || self.cleans_up(view) => false,
            Standing::Part { of, claimed, .. } => {
                let admitted = self.is_admitted_above(&view.job.namespace, &of, claimed);
                if admitted && (self.exceeds_its_job(view, &of) || self.waits_for(view).is_some()) {
                    return Runs::BeyondQuota;
                }
                !admitted
            }
            Standing::Unmanaged => false,
        };
        if is_unadmitted { Runs::Unadmitted } else { Runs::OnQuota }
    }

    /// Takes the answer of a write that stops a job that is left out; returns whether it is one.
    pub(crate) fn aside_answered(
        &mut self,
        id: EffectId,
        open: &Open,
        result: &Result<Option<Object>, WriteError>,
    ) -> bool {
        let now = self.now;
        let Some(aside) = self.aside.get_mut(&open.object) else { return false };
        let Some(job) = aside.job.as_mut().filter(|job| job.open == Some(id)) else { return false };
        job.open = None;
        match result {
            Ok(object) => {
                job.retry.succeeded(open.purpose);
                let mut stopped = false;
                if let Some(Object::Job(view)) = object {
                    // It was changed by this write alone.
                    aside.version = Some(Version::Of(view.resource_version.clone()));
                    job.seen(view);
                    stopped = view.suspended;
                }
                self.outbox.extend(open.then.clone());
                if stopped {
                    self.aside_job_seen(&open.object);
                }
            }
            Err(error) => {
                let key = JobKey::of(&job.view.job);
                let until = job.retry.failed(open.purpose, error, now);
                let note =
                    format!("Error updating {} {:?}: {error}", open.object.kind.as_str(), open.object.name);
                if job.retry.should_report(error, &note) {
                    let about = About::new(&open.object, &job.view.job.uid, key.kind.integration().reporter);
                    self.outbox.push(warning(about, "FailedUpdate", note));
                }
                self.outbox.push(self.log(
                    Level::Warn,
                    "write failed",
                    &[("object", &open.object), ("purpose", &open.purpose), ("error", error)],
                ));
                self.wake_at(until, Alarm::Job(key));
            }
        }
        true
    }
}

/// Whether a field of the job itself suspends it, and not gates of its pods.
fn is_suspended_by_field(kind: JobKind) -> bool {
    !kind.integration().of_pods && !kind.integration().suspends_pods
}

/// Whether a Workload names a job as its owner, or belongs to a group of pods, of which that may be one.
fn is_owned_by(workload: &slim::Workload, job: &ObjectRef) -> bool {
    let Kind::Job(kind) = job.kind else { return false };
    if is_of_group(workload) {
        return kind.integration().of_pods;
    }
    controller(workload).is_some_and(|owner| {
        *owner.name == *job.name && JobKind::from_owner(&owner.api_version, &owner.kind) == Some(kind)
    })
}
