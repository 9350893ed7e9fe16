//! Objects that made the engine panic: they are left out until they change, and nothing is done for them. One exception: a job that is managed,
//! and runs without being admitted or beyond the quota of the job above it, is suspended, or made again. That needs nothing but its view.

pub(crate) mod state;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::{JobKind, JobView};
use sluice_core::WorkloadKey;

use self::state::{Aside, AsideJob, Version};
use crate::effect::{EffectId, Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::input::{Kind, Object, ObjectRef, WriteError};
use crate::lifecycle::ancestor::Standing;
use crate::lifecycle::unadmitted::named;
use crate::outbox::{About, Open, normal, warning};
use crate::retry::Retry;
use crate::world::{JobKey, job_key};

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
        if !matches!(kind, Kind::Job(kind) if !is_suspended_by_field(kind)) {
            self.aside.retain(|object, _| object.kind != kind || present.contains(object));
        }
    }

    /// Leaves an object out until it changes.
    pub(crate) fn set_aside(&mut self, object: &ObjectRef, why: String) {
        let version = match object.kind {
            Kind::Workload => {
                let key = WorkloadKey::new(Arc::clone(&object.namespace), Arc::clone(&object.name));
                self.world.workloads.get(&key).and_then(|e| e.object.metadata.resource_version.clone())
            }
            Kind::Job(kind) if kind.integration().of_pods => {
                self.world.member(object).map(|(_, member)| member.resource_version.clone())
            }
            Kind::Job(_) => job_key(object).and_then(|key| {
                let set = || self.world.sets.get(&key);
                let view = self.world.jobs.get(&key).map(|entry| &entry.view).or_else(set)?;
                Some(view.resource_version.clone())
            }),
            _ => None,
        };
        let version = version.map(Version::Of);
        self.forget_object(object, None);
        let note = format!("Set aside until it changes, because it could not be handled: {why}");
        let uid: Arc<str> = "".into();
        self.outbox.push(warning(About::new(object, &uid, crate::REPORTER_WORKLOAD), "SetAside", note));
        self.outbox.push(self.log(Level::Error, "object set aside", &[("object", object), ("why", &why)]));
        self.aside.insert(object.clone(), Aside { version, why, job: None });
    }

    /// Gives an object back unless it is left out. A job that is left out is looked at only to see whether it runs.
    pub(crate) fn unless_aside(&mut self, reference: &ObjectRef, object: Object) -> Option<Object> {
        let Some(aside) = self.aside.get_mut(reference) else { return Some(object) };
        let seen = Version::of(&object);
        if aside.version.is_some() && aside.version != seen {
            self.aside.remove(reference);
            return Some(object);
        }
        aside.version = seen;
        if let Object::Job(view) = object
            && is_suspended_by_field(view.job.kind)
        {
            let key = JobKey::of(&view.job);
            match &mut aside.job {
                Some(job) => job.view = kept(*view),
                job => *job = Some(AsideJob { view: kept(*view), open: None, retry: Retry::default() }),
            }
            self.dirty.jobs.insert(key);
        }
        None
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
        let is_admitted = || {
            self.world.owned(&view.job.uid).iter().filter(|workload| is_its_own(workload)).any(|workload| {
                let status = &self.world.workloads[workload].object.status;
                let is_over = is(status, Type::Finished) || is(status, Type::Evicted);
                is(status, Type::Admitted) && !is_over
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
                if let Some(Object::Job(view)) = object {
                    // It was changed by this write alone.
                    aside.version = Some(Version::Of(view.resource_version.clone()));
                    job.view = kept((**view).clone());
                }
                self.outbox.extend(open.then.clone());
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

/// A job without its templates, which are most of it.
fn kept(mut view: JobView) -> Arc<JobView> {
    for set in &mut view.pod_sets {
        (set.template, set.unwritten) = (None, None);
    }
    Arc::new(view)
}
