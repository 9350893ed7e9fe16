//! Template objects: jobs of some kinds name one, which says what pods they have (docs/reference/07-integrations.md 7.2).
//!
//! A job that waits follows its template: when that comes, changes or goes, its Workload does. A job that runs keeps the pods that its Workload
//! was admitted with.

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::gates::Gate;
use sluice_api::job::{JobPodSet, JobView, Template, TemplateRef};
use sluice_api::slim;

use crate::effect::{Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::input::WriteError;
use crate::lifecycle::infos::restore_infos;
use crate::lifecycle::matching::matches;
use crate::world::JobKey;

const OTHER_PODS: &str = "It runs other pods than were admitted";

impl Engine {
    /// Takes a template in.
    pub(crate) fn observe_template(&mut self, template: Template) {
        let object = template.object.clone();
        let known = self.world.templates.get(&object);
        let changed = known.is_none_or(|known| known.content != template.content);
        self.world.templates.insert(object.clone(), template);
        if changed {
            self.template_changed(&object);
        }
    }

    /// Takes in that a template is gone.
    pub(crate) fn forget_template(&mut self, object: &TemplateRef) {
        if self.world.templates.remove(object).is_some() {
            self.template_changed(object);
        }
    }

    /// The job with what its template says, or lacks.
    pub(crate) fn with_template(&self, view: JobView) -> JobView {
        match &view.template {
            None => view,
            Some(used) => sluice_jobs::filled(&view, self.world.templates.get(&used.object)),
        }
    }

    fn template_changed(&mut self, object: &TemplateRef) {
        let users: Vec<_> = self.world.by_template.get(object).into_iter().flatten().cloned().collect();
        for key in users {
            let Some(entry) = self.world.jobs.get(&key) else { continue };
            let mut view = self.with_template(JobView::clone(&entry.view));
            self.slim_job(&mut view);
            if let Some(entry) = self.world.jobs.get_mut(&key) {
                entry.view = Arc::new(view);
            }
            self.dirty.jobs.insert(key);
        }
    }

    /// The pods of a job whose template is gone are not known any more: the Workload that it had goes.
    pub(crate) fn lost_template(&mut self, key: &JobKey, view: &JobView) {
        if view.template.is_some() {
            self.remove_former_workloads(key, view);
        }
    }

    /// A job that runs, or ended, has the pods of its Workload, whatever its template says by now.
    pub(crate) fn hold_to_workload(&mut self, key: &JobKey) {
        let Some(view) = self.world.jobs.get(key).map(|entry| Arc::clone(&entry.view)) else { return };
        let ended = view.finished.is_some();
        if view.template.is_none() || (view.suspended && !ended) {
            return;
        }
        let owned = self.world.owned(&view.job.uid);
        let runs = |object: &slim::Workload| {
            is(&object.status, Type::Admitted) && !is(&object.status, Type::Finished)
        };
        let object =
            owned.iter().map(|w| &self.world.workloads[w].object).find(|object| ended || runs(object));
        let Some(object) = object else { return };
        let partial = self.config.on(Gate::PartialAdmission);
        if view.invalid.is_none() && matches(&view, object, &object.status, partial) {
            return;
        }
        let mut next = JobView::clone(&view);
        next.invalid = None;
        next.pod_sets = pod_sets_of(object);
        let below = self.children(key, &view.job.uid);
        let played = below.map(|entry| &entry.view).find(|part| view.job.kind.is_played_by(part.job.kind));
        if let Some(part) = played {
            next.pods_ready = part.pods_ready;
            next.reclaimable.clone_from(&part.reclaimable);
        }
        if let Some(entry) = self.world.jobs.get_mut(key) {
            entry.view = Arc::new(next);
        }
    }

    /// Whether a part that plays all pod sets of a job has other pods than a Workload of that job lets run.
    pub(crate) fn exceeds_admitted(&self, above: &JobView, part: &JobView) -> bool {
        if !above.job.kind.is_played_by(part.job.kind) || self.made(above, part).is_none() {
            return false;
        }
        let admits = |object: &slim::Workload| {
            is(&object.status, Type::Admitted) && !is(&object.status, Type::Finished) && admits(object, part)
        };
        let owned = self.world.owned(&above.job.uid);
        !owned.iter().any(|workload| admits(&self.world.workloads[workload].object))
    }

    /// Whether a job runs by a part that has other pods than were admitted: its template changed between the admission and the start, or its
    /// user made the part.
    pub(crate) fn runs_other_pods(&self, key: &JobKey, view: &JobView) -> bool {
        if view.template.is_none() || view.suspended || view.finished.is_some() {
            return false;
        }
        let parts = self.children(key, &view.job.uid).map(|entry| &entry.view);
        parts.into_iter().any(|part| {
            !part.suspended && !part.deleting && part.finished.is_none() && self.exceeds_admitted(view, part)
        })
    }

    /// Deletes such a part, once it is suspended, before the job starts: its controller makes it anew. If that makes the same again, it is deleted
    /// ever more seldom. The start waits until it is another.
    pub(crate) fn replace_part(&mut self, key: &JobKey, part: &JobKey) -> bool {
        let now = self.now;
        let suspended = self.world.jobs.get(part).filter(|entry| entry.view.suspended);
        let Some(uid) = suspended.map(|entry| Arc::clone(&entry.view.job.uid)) else { return true };
        let Some(entry) = self.world.jobs.get_mut(key) else { return true };
        let until = if entry.retry.waits(now) {
            entry.retry.until.unwrap_or(now)
        } else {
            let write = Write::Delete { uid: Some(uid), grace_period_seconds: None, foreground: true };
            let until =
                entry.retry.failed(Purpose::UpdateChild, &WriteError::Transient(OTHER_PODS.to_owned()), now);
            let then = vec![self.log(
                Level::Warn,
                "job with other pods than were admitted deleted",
                &[("job", &part.object()), ("owner", &key.object())],
            )];
            self.write_job(part, Purpose::DeleteChild, write, then);
            until
        };
        self.wake_at(until, Alarm::Job(key.clone()));
        true
    }

    /// Stops a job that runs by such a part. It is still admitted, and its controller may let the part go on as it is with each start: the job is
    /// started again ever more seldom.
    pub(crate) fn halt_other_pods(&mut self, key: &JobKey, view: &Arc<JobView>) {
        let now = self.now;
        if let Some(entry) = self.world.jobs.get_mut(key)
            && !entry.retry.waits(now)
        {
            // No write on the job has this purpose: that it was started or stopped does not end the row.
            let trouble = WriteError::Transient(OTHER_PODS.to_owned());
            entry.retry.failed(Purpose::UpdateChild, &trouble, now);
            entry.stop_failed = false;
        }
        let owned = self.world.owned(&view.job.uid);
        let infos = owned.last().map(|w| restore_infos(&self.world.workloads[w].object)).unwrap_or_default();
        self.stop_job(key, view, infos, OTHER_PODS, &[]);
    }
}

/// Whether a Workload has at least the pods of a job, and each asks for the same.
fn admits(object: &slim::Workload, part: &JobView) -> bool {
    let admits = |theirs: &JobPodSet| {
        let own = object.spec.pod_sets.iter().find(|own| own.name == theirs.name);
        own.is_some_and(|own| theirs.count <= own.count && theirs.requests_hash == own.template.requests_hash)
    };
    part.invalid.is_none() && part.pod_sets.iter().all(admits)
}

/// The pod sets of a job as its Workload has them.
fn pod_sets_of(object: &slim::Workload) -> Vec<JobPodSet> {
    let infos = restore_infos(object).into_iter().zip(&object.spec.pod_sets);
    let of = |(info, set): (sluice_api::job::PodSetInfo, &slim::PodSet)| JobPodSet {
        name: info.name,
        count: info.count,
        min_count: None,
        template: None,
        containers_hash: set.template.containers_hash,
        requests_hash: set.template.requests_hash,
        part_hash: None,
        scheduling: info.scheduling,
        has_template_metadata: true,
        unwritten: None,
        exclusive_topology: None,
        topology_request: None,
        wrapped: None,
    };
    infos.map(of).collect()
}
