//! Objects whose pods are in groups, each of which is a job with a Workload of its own (docs/reference/07-integrations.md 7.4).

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::{JobKind, JobRef, JobView};
use sluice_core::WorkloadKey;
use sluice_jobs::pods::{Composite as _, PlainPods, Whole};

use super::component::index;
use crate::engine::Engine;
use crate::ingest::workload::is;
use crate::input::ObjectRef;
use crate::version::{Seen, compare};
use crate::world::{JobKey, World, controller, job_key};

/// Whether two states of an object say the same of its groups: most changes are of its status alone.
fn says_the_same(before: &JobView, after: &JobView) -> bool {
    let mut before = before.clone();
    before.resource_version.clone_from(&after.resource_version);
    (before.suspended, before.active, before.pods_ready) = (after.suspended, after.active, after.pods_ready);
    before == *after
}

/// The job that a group of an object's pods is, as its object says it.
fn group_view(set: &JobView, group: u32) -> JobView {
    JobView { job: set.job.of_group(group), groups: None, prebuilt_workload: None, ..set.clone() }
}

impl World {
    /// The groups of an object that are known, those included that it has not.
    fn groups_of(&self, set: &JobKey) -> BTreeSet<JobKey> {
        let first = JobKey { group: Some(0), ..set.clone() };
        let own =
            |key: &&JobKey| (key.kind, &key.namespace, &key.name) == (set.kind, &set.namespace, &set.name);
        let jobs = self.jobs.range(first.clone()..).map(|(key, _)| key).take_while(own);
        let made_of_pods = self.pod_jobs.range(first..).map(|(key, _)| key).take_while(own);
        jobs.chain(made_of_pods).cloned().collect()
    }

    /// The objects whose pods are in groups that another object of the same namespace controls.
    pub fn sets_below<'a>(
        &'a self,
        above: &'a JobKey,
        uid: &'a str,
    ) -> impl Iterator<Item = &'a Arc<JobView>> {
        let near = self.sets.iter().filter(|(key, _)| key.namespace == above.namespace);
        let is_below = move |view: &&Arc<JobView>| {
            view.controller.as_ref().is_some_and(|controller| *controller.uid == *uid)
        };
        near.map(|(_, view)| view).filter(is_below)
    }

    /// Keeps pods that claim to belong to an object, or to a group of its pods, that does not exist: without it, no Workload lets them run.
    pub fn note_left_over(&mut self, key: &JobKey) {
        if !key.kind.gathers_pods() {
            return;
        }
        let Some(job) = self.pod_jobs.get_mut(key).filter(|job| job.parent.is_none()) else { return };
        // One of the pods stands for their object.
        let Some(said) = PlainPods.view(Whole::Pod, &job.pods) else { return };
        let (namespace, name) = (Arc::clone(&key.namespace), Arc::clone(&key.name));
        // No object has such a UID.
        let uid = Arc::from(format!("left-over/{}/{namespace}/{name}", key.kind.framework()));
        let object = JobRef { kind: key.kind, namespace, name, group: None, uid };
        let reference = key.group.map_or_else(|| object.clone(), |group| object.of_group(group));
        // Every version of the object itself is newer.
        let resource_version = String::new();
        job.parent = Some(Arc::new(JobView { job: reference, resource_version, finished: None, ..said }));
        job.left_over = true;
    }
}

impl Engine {
    /// Takes in an object whose groups of pods are jobs.
    pub(crate) fn observe_set(&mut self, view: JobView) {
        let key = JobKey::of(&view.job);
        if let Some(known) = self.world.sets.get(&key) {
            let same = known.job.uid == view.job.uid;
            match compare(Some(&known.resource_version), Some(&view.resource_version)) {
                Seen::Older => return,
                Seen::Same if same => return,
                _ if !same => self.drop_set(&key),
                _ => {}
            }
        }
        let view = Arc::new(view);
        let before = self.world.sets.insert(key.clone(), Arc::clone(&view));
        if before.is_some_and(|before| says_the_same(&before, &view)) {
            return;
        }
        // It may have more groups than the object that wraps it declares.
        self.dirty.jobs.extend(self.above(&view));
        let wanted = view.groups.unwrap_or(0);
        for group in 0..wanted {
            self.put_group(&view, group);
        }
        for left in self.world.groups_of(&key) {
            if left.group.is_none_or(|group| group < wanted) {
                continue;
            }
            if let Some(job) = self.world.pod_jobs.get_mut(&left) {
                job.left_over = true;
            }
            self.dirty.jobs.insert(left);
        }
    }

    fn put_group(&mut self, set: &JobView, group: u32) {
        let view = group_view(set, group);
        let key = JobKey::of(&view.job);
        self.look_at_leaving(&key);
        self.mark_parent(&key, Some(&view));
        self.world.put_parent(&key, Arc::new(view));
        self.refresh_pod_job(&key);
        if let Some(entry) = self.world.jobs.get_mut(&key) {
            entry.retry.seen_newer();
        }
        self.dirty.jobs.insert(key);
    }

    /// Gives a group the templates of its object again.
    pub(crate) fn renew_group(&mut self, key: &JobKey) {
        let set = JobKey { group: None, ..key.clone() };
        let set = self.world.sets.get(&set).filter(|set| set.pod_sets.iter().all(|p| p.template.is_some()));
        if let Some((set, group)) = set.cloned().zip(key.group) {
            self.put_group(&set, group);
        }
    }

    /// Records that such an object was deleted.
    pub(crate) fn forget_set(&mut self, object: &ObjectRef, uid: Option<&str>) {
        let Some(key) = job_key(object) else { return };
        if self.world.sets.get(&key).is_some_and(|set| uid.is_none_or(|uid| *set.job.uid == *uid)) {
            self.drop_set(&key);
        }
    }

    /// The Workload of the first group of an object that waits, or, where none does, of the first.
    pub(crate) fn workload_of_set(&self, set: &JobKey) -> Option<WorkloadKey> {
        let own = |key: &JobKey| self.world.owned(&self.world.jobs.get(key)?.view.job.uid).pop();
        let all: Vec<_> = self.world.groups_of(set).iter().filter_map(own).collect();
        let waits = |key: &&WorkloadKey| !is(self.world.workloads[*key].status(), Type::Admitted);
        all.iter().find(waits).or(all.first()).cloned()
    }

    fn drop_set(&mut self, set: &JobKey) {
        self.world.sets.remove(set);
        for key in self.world.groups_of(set) {
            self.drop_job(&key);
            self.object_gone(&key);
        }
    }

    /// Takes in that the object is gone whose pods make this job: pods that it leaves behind are kept in sight.
    pub(crate) fn object_gone(&mut self, key: &JobKey) {
        self.world.note_left_over(key);
        if self.world.pod_jobs.contains_key(key) {
            self.refresh_pod_job(key);
            self.dirty.jobs.insert(key.clone());
        }
    }

    /// Whether pods that an object left behind may still use the quota of its Workload, which is deleted once they do not.
    pub(crate) fn leftovers_are_active(&mut self, workload: &WorkloadKey) -> bool {
        let object = &self.world.workloads[workload].object;
        let Some(owner) = controller(object) else { return false };
        let kind = JobKind::from_owner(&owner.api_version, &owner.kind).filter(|kind| kind.gathers_pods());
        let Some(kind) = kind else { return false };
        let (namespace, name) = (Arc::clone(&workload.namespace), Arc::from(owner.name.as_str()));
        let key = JobKey { kind, namespace, name, group: index(object, Some(owner)) };
        let Some(job) = self.world.pod_jobs.get(&key).filter(|job| job.left_over) else { return false };
        if job.pods.free().next().is_none() && !self.is_active(&key) {
            return false;
        }
        if let Some(job) = self.world.pod_jobs.get_mut(&key) {
            job.leaving.insert(workload.clone());
        }
        true
    }

    /// Reconciles the Workloads that wait for pods of this job to end.
    pub(crate) fn look_at_leaving(&mut self, key: &JobKey) {
        let job = self.world.pod_jobs.get_mut(key);
        self.dirty.workloads.extend(job.map(|job| std::mem::take(&mut job.leaving)).into_iter().flatten());
    }

    /// Handles the pods and the Workload of an object, or of a group of its pods, that does not exist any more, or never did; returns whether it is
    /// one. Its controller deletes the pods; the quota is kept until they are gone.
    pub(crate) fn tend_left_over(&mut self, key: &JobKey, view: &Arc<JobView>) -> bool {
        if !self.world.pod_jobs.get(key).is_some_and(|job| job.left_over) {
            return false;
        }
        self.look_at_leaving(key);
        // An object that could not be handled only seems to be missing.
        if self.aside.contains_key(&key.object()) {
            return true;
        }
        let owned = self.world.owned(&view.job.uid);
        if owned.iter().any(|workload| self.world.workloads[workload].open.is_some()) {
            return true;
        }
        let evicted = |workload: &WorkloadKey| is(self.world.workloads[workload].status(), Type::Evicted);
        if self.runs_unadmitted(view) || !view.suspended && owned.iter().any(evicted) {
            self.halt(key, view);
            return true;
        }
        self.remove_former_workloads(key, view);
        let is_empty = self.world.pod_jobs.get(key).is_some_and(|job| job.pods.is_empty());
        if owned.is_empty() && is_empty {
            self.drop_job(key);
        }
        true
    }
}
