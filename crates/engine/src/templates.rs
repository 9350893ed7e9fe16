//! Template objects: jobs of some kinds name one, which describes their pods (docs/reference/07-integrations.md 7.2).
//!
//! A waiting job follows its template: when the template is created, changed or deleted, its Workload is updated. A running job keeps the pods that
//! its Workload was admitted with.
//!
//! A limited number of templates is [kept]: those that managed jobs name come first. A job that names another one gets a message; its template is
//! read, and kept once there is room.

pub(crate) mod kept;

use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::{JobPodSet, JobView, Template, TemplateRef};
use sluice_api::slim;

use crate::effect::{Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::input::{ObjectRef, WriteError};
use crate::lifecycle::infos::restore_infos;
use crate::lifecycle::matching::matches;
use crate::lifecycle::workload::later;
use crate::outbox::warning;
use crate::version::{Seen, compare};
use crate::world::{JobEntry, JobKey};

const OTHER_PODS: &str = "It runs pods that differ from the admitted ones";
/// For how many seconds a template that is not kept is not read again.
const ASK_SECONDS: i64 = 60;

impl Engine {
    /// Takes a template in.
    pub(crate) fn observe_template(&mut self, template: Template) {
        let object = template.object.clone();
        let known = self.world.templates.get(&object);
        let versions = known.map(|known| known.resource_version.as_str());
        if versions.is_some() && compare(versions, Some(&template.resource_version)) == Seen::Older {
            // It was read before the watch has shown the newer version.
            return;
        }
        let changed = known.is_none_or(|known| known.content != template.content);
        let kept = self.make_room(&template);
        if kept {
            self.world.templates.put(template);
        } else {
            self.world.templates.leave_out(&object);
        }
        // Jobs that name a template that is not kept get a message.
        if changed || !kept {
            self.template_changed(&object);
        }
    }

    /// Takes in that a template is gone.
    pub(crate) fn forget_template(&mut self, object: &TemplateRef) {
        if self.world.templates.remove(object).is_some() {
            self.template_changed(object);
            self.fill_room();
        }
    }

    /// Whether a managed job names a template.
    fn is_named(&self, object: &TemplateRef) -> bool {
        let users = self.world.by_template.get(object).into_iter().flatten();
        let views = users.filter_map(|key| self.world.jobs.get(key)).map(|entry| &entry.view);
        views.into_iter().any(|view| view.finished.is_none() && self.manages_itself(view))
    }

    /// Makes room for a template, if a managed job names it, by dropping templates that no job names; returns whether there is room.
    fn make_room(&mut self, template: &Template) -> bool {
        let object = &template.object;
        while !self.world.templates.has_room(template) {
            if !self.is_named(object) {
                return false;
            }
            let is_unused = |other: &&TemplateRef| *other != object && !self.is_named(other);
            let unused = self.world.templates.names().rev().find(is_unused).cloned();
            let Some(unused) = unused else { return false };
            self.world.templates.leave_out(&unused);
        }
        true
    }

    /// There is room again: jobs that name a template that is not kept request it.
    fn fill_room(&mut self) {
        let templates = &self.world.templates;
        let lacking = self.world.by_template.iter().filter(|(object, _)| templates.may_lack(object));
        let jobs: Vec<_> = lacking.flat_map(|(_, jobs)| jobs).cloned().collect();
        if !jobs.is_empty() {
            self.world.templates.ask_again();
            self.dirty.jobs.extend(jobs);
        }
    }

    /// Reads the template of a managed job that may exist and is not kept: now a job names it.
    pub(crate) fn ask_for_template(&mut self, key: &JobKey, view: &JobView) {
        let Some(object) = view.template.as_ref().map(|used| &used.object) else { return };
        if !self.world.templates.may_lack(object) {
            return;
        }
        let next = self.world.templates.asked(object).map(|asked| later(asked, ASK_SECONDS));
        if let Some(next) = next.filter(|next| *next > self.now) {
            return self.wake_at(next, Alarm::Job(key.clone()));
        }
        let by_template = &self.world.by_template;
        self.world.templates.ask(object, self.now, |object| by_template.contains_key(object));
        self.read_again(&ObjectRef::of_template(object));
        self.wake_at(later(self.now, ASK_SECONDS), Alarm::Job(key.clone()));
    }

    /// The job with what its template says, or lacks.
    pub(crate) fn with_template(&self, view: JobView) -> JobView {
        let Some(object) = view.template.as_ref().map(|used| &used.object) else { return view };
        let templates = &self.world.templates;
        let mut filled = sluice_jobs::filled(&view, templates.get(object));
        if filled.invalid.is_some() && templates.may_lack(object) {
            filled.invalid = Some(format!(
                "{object} is not known: it does not exist, or the limit of {} template objects ({} bytes) is reached",
                kept::MOST,
                kept::MOST_BYTES
            ));
        }
        filled
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

    /// The pods of a job that cannot be read, or whose template was deleted, are not known any more: its Workload is deleted, so that no quota is
    /// held for a job that cannot start. For a job that is made of pods alone, its Workload describes them.
    pub(crate) fn lost_pods(&mut self, key: &JobKey, view: &Arc<JobView>) {
        let of_pods_alone = self.world.pod_jobs.get(key).is_some_and(|job| job.shape.is_of_members_alone());
        if view.template.is_some() || !of_pods_alone {
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
        if view.invalid.is_none() && matches(&view, object, &object.status, &self.config) {
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
            next.running.clone_from(&part.running);
        }
        if let Some(entry) = self.world.jobs.get_mut(key) {
            entry.view = Arc::new(next);
        }
    }

    /// Whether a part that runs all pod sets of a job has other pods than that job's Workload allows. A job that is a part itself has no Workload:
    /// then its own spec counts.
    pub(crate) fn exceeds_admitted(&self, above: &JobView, part: &JobView) -> bool {
        if !above.job.kind.is_played_by(part.job.kind) || self.made(above, part).is_none() {
            return false;
        }
        let admits = |object: &slim::Workload| {
            is(&object.status, Type::Admitted) && !is(&object.status, Type::Finished) && admits(object, part)
        };
        if self.is_part(above) {
            return above.invalid.is_some() || !plays(&above.pod_sets, part);
        }
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

    /// Deletes such a part, once it is suspended, before the job starts: its controller makes it again. If the controller makes the same again, it is
    /// deleted with a growing delay. Only the start waits for another part.
    pub(crate) fn replace_part(&mut self, key: &JobKey, part: &JobKey) -> bool {
        let now = self.now;
        let suspended = self.world.jobs.get(part).filter(|entry| entry.view.suspended);
        let Some(made) = suspended else { return true };
        if let Some(until) = made.retry.until().filter(|until| *until > now) {
            self.wake_at(until, Alarm::Job(key.clone()));
            return true;
        }
        let uid = Arc::clone(&made.view.job.uid);
        let Some(entry) = self.world.jobs.get_mut(key) else { return true };
        let until = if let Some(until) = entry.held_until(now) {
            until
        } else {
            let write = Write::Delete { uid: Some(uid), grace_period_seconds: None, foreground: true };
            let until = entry.hold_back(now);
            let then = vec![self.log(
                Level::Warn,
                "job with other pods than were admitted deleted",
                &[("job", &part.object()), ("owner", &key.object())],
            )];
            self.write_job(part, Purpose::ReplacePart, write, then);
            until
        };
        self.wake_at(until, Alarm::Job(key.clone()));
        true
    }

    /// Whether a job plays one pod set of the job above it: that job's controller resumes such a part, and makes it again if it is deleted.
    pub(crate) fn is_of_one_pod_set(&self, view: &JobView) -> bool {
        let above = self.parent(view).and_then(|above| above.kind.parts_of(view.job.kind));
        above.is_some_and(|parts| parts.names.is_of_one())
    }

    /// Deletes a part of one pod set that runs with more than that: its controller makes it again as it should be, and would resume a part that is
    /// merely suspended. If that does not help, it is deleted with a growing delay; returns whether it is deleted now.
    pub(crate) fn replace_exceeding(&mut self, key: &JobKey, view: &JobView) -> bool {
        let now = self.now;
        let Some(above) = self.parent(view).cloned() else { return false };
        if !self.is_of_one_pod_set(view) || view.deleting || view.finished.is_some() {
            return false;
        }
        let Some(entry) = self.world.jobs.get_mut(&above) else { return false };
        if let Some(until) = entry.held_until(now) {
            self.wake_at(until, Alarm::Job(key.clone()));
            return false;
        }
        let until = entry.hold_back(now);
        let uid = Some(Arc::clone(&view.job.uid));
        let write = Write::Delete { uid, grace_period_seconds: None, foreground: true };
        let then = vec![
            warning(self.about_job(key, view), "Stopped", OTHER_PODS),
            self.log(
                Level::Warn,
                "job with other pods than were admitted deleted",
                &[("job", &key.object()), ("owner", &above.object())],
            ),
        ];
        self.write_job(key, Purpose::ReplacePart, write, then);
        self.wake_at(until, Alarm::Job(key.clone()));
        true
    }

    /// Stops a job that runs such a part. It is still admitted, and its controller may resume the same part at each start: the job is started again
    /// with a growing delay.
    pub(crate) fn halt_other_pods(&mut self, key: &JobKey, view: &Arc<JobView>) {
        let now = self.now;
        if let Some(entry) = self.world.jobs.get_mut(key)
            && entry.held_until(now).is_none()
        {
            entry.hold_back(now);
        }
        let owned = self.world.owned(&view.job.uid);
        let infos = owned.last().map(|w| restore_infos(&self.world.workloads[w].object)).unwrap_or_default();
        self.stop_job(key, view, infos, OTHER_PODS, &[]);
    }
}

impl JobEntry {
    /// Until when the job is not started because of other pods than were admitted.
    pub(crate) fn held_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.trouble.as_ref()?.other_pods.as_ref()?.until().filter(|until| *until > now)
    }

    /// Holds it back for a while, each time for longer.
    fn hold_back(&mut self, now: Timestamp) -> Timestamp {
        let retry = self.trouble.get_or_insert_default().other_pods.get_or_insert_default();
        retry.failed(Purpose::ReplacePart, &WriteError::Transient(OTHER_PODS.to_owned()), now)
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

/// The same for the pod sets of the job above it.
fn plays(above: &[JobPodSet], part: &JobView) -> bool {
    let plays = |theirs: &JobPodSet| {
        let own = above.iter().find(|own| own.name == theirs.name);
        own.is_some_and(|own| theirs.count <= own.count && theirs.requests_hash == own.requests_hash)
    };
    part.invalid.is_none() && part.pod_sets.iter().all(plays)
}

/// The pod sets of a job as its Workload has them.
pub(crate) fn pod_sets_of(object: &slim::Workload) -> Vec<JobPodSet> {
    let infos = restore_infos(object).into_iter().zip(&object.spec.pod_sets);
    let of = |(info, set): (sluice_api::job::PodSetInfo, &slim::PodSet)| JobPodSet {
        name: info.name,
        written_name: None,
        count: info.count,
        parts: 1,
        min_count: None,
        template: None,
        containers_hash: set.template.containers_hash,
        requests_hash: set.template.requests_hash,
        part_hash: None,
        kueues_hash: None,
        scheduling: info.scheduling,
        has_template_metadata: true,
        unwritten: None,
        exclusive_topology: None,
        topology_request: None,
        wrapped: None,
    };
    infos.map(of).collect()
}
