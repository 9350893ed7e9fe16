//! The job that pods make, as the rest of the engine sees it.

use std::sync::Arc;

use sluice_api::gates::Gate;
use sluice_api::job::{JobPodSet, JobRef, JobView};
use sluice_api::slim;
use sluice_core::WorkloadKey;
use sluice_jobs::pods::{Composition, Group, Member, Whole};

use super::index::{PODS, PodJob, group_uid};
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::outbox::About;
use crate::world::{JobKey, WorkloadEntry};

/// The pod set of a role in a Workload, which has its template already.
fn known_pod_set(group: &Group, set: &slim::PodSet) -> JobPodSet {
    JobPodSet {
        name: set.name.clone(),
        written_name: None,
        count: set.count,
        parts: 1,
        min_count: set.min_count,
        template: None,
        containers_hash: set.template.containers_hash,
        requests_hash: set.template.requests_hash,
        scheduling: group.pod_set(&set.name).map(|pod_set| pod_set.scheduling.clone()).unwrap_or_default(),
        has_template_metadata: true,
        unwritten: None,
        exclusive_topology: None,
        topology_request: None,
        part_hash: None,
        kueues_hash: None,
        wrapped: None,
    }
}

/// The pod sets of a group's Workload.
fn composed_pod_sets(group: &Group, composition: &Composition) -> Vec<JobPodSet> {
    let pod_set = |role: &str, count| {
        let pod_set = group.pod_set(role)?.clone();
        Some(JobPodSet { name: role.to_owned(), count, ..pod_set })
    };
    composition.pod_sets.iter().filter_map(|set| pod_set(&set.role, set.count)).collect()
}

impl Engine {
    /// The Workload of a group, if it exists and may belong to it.
    pub(super) fn workload_of_group(
        &self,
        key: &JobKey,
        group: &str,
    ) -> Option<(WorkloadKey, &WorkloadEntry)> {
        let workload = WorkloadKey::new(Arc::clone(&key.namespace), group);
        let entry = self.world.workloads.get(&workload)?;
        let uid = group_uid(&key.namespace, group);
        (entry.owner.as_deref() == Some(&*uid)).then_some((workload, entry))
    }

    /// Works the view of a job out of its pods.
    fn pod_job_view(&self, key: &JobKey) -> Option<JobView> {
        let job = self.world.pod_jobs.get(key)?;
        let fast = self.config.on(Gate::FastQuotaReleaseInPodIntegration);
        let mut view = match (&job.parent, &job.group) {
            (Some(parent), _) => job.shape.view(Whole::Object(parent), &job.pods)?,
            // Its object has not been seen, or is gone: so are its pods soon.
            (None, None) if !job.shape.is_of_members_alone() => return None,
            (None, None) => job.shape.view(Whole::Pod, &job.pods)?,
            (None, Some(group)) => self.group_view(key, job, group)?,
        };
        view.active = job.pods.active_until(self.now, fast).is_some();
        // The end counts once no pod runs, or may begin to.
        if job.has_roles() && (view.active || !view.suspended) {
            view.finished = None;
        }
        Some(view)
    }

    fn group_view(&self, key: &JobKey, job: &PodJob, group: &str) -> Option<JobView> {
        let reference = JobRef {
            kind: key.kind,
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.name),
            group: None,
            uid: group_uid(&key.namespace, group).into(),
        };
        let of_group = |pod_sets| job.shape.view(Whole::Group(reference.clone(), pod_sets), &job.pods);
        if let Some((_, entry)) = self.workload_of_group(key, group) {
            let spec = &entry.object.spec;
            let pod_sets = spec.pod_sets.iter().map(|set| known_pod_set(&job.pods, set)).collect();
            let mut view = of_group(pod_sets)?;
            if job.pods.is_serving() {
                view.queue_name = Some(spec.queue_name.clone()).filter(|queue| !queue.is_empty());
            }
            return Some(view);
        }
        match job.pods.compose(group) {
            Ok(composition) => {
                let pod_sets = composed_pod_sets(&job.pods, &composition);
                let mut view = of_group(pod_sets)?;
                view.queue_name = composition.queue_name.as_deref().map(str::to_owned);
                view.labels = composition.labels;
                Some(view)
            }
            Err(why) => {
                let mut view = of_group(Vec::new())?;
                view.invalid = Some(why.to_string());
                Some(view)
            }
        }
    }

    /// Brings the view of a job up to date with its pods.
    pub(crate) fn refresh_pod_job(&mut self, key: &JobKey) {
        let Some(view) = self.pod_job_view(key) else { return };
        if view.active && view.suspended {
            // It may be over once the grace period of terminating pods is.
            self.is_active(key);
        }
        let known = self.world.jobs.get(key);
        let is_new = known.is_none();
        if known.is_none_or(|entry| *entry.view != view) {
            self.world.put_job(Arc::new(view));
        }
        if is_new {
            self.hotswap_job_came(key);
        }
    }

    /// The object that receives the events of a job, and its UID: the job's own object, or the pod that represents it.
    pub(crate) fn speaker(&self, key: &JobKey, view: &JobView) -> (ObjectRef, Arc<str>) {
        let without_object = self.world.pod_jobs.get(key).filter(|job| job.parent.is_none());
        match without_object.and_then(|job| job.pods.representative()) {
            Some(pod) => (pod_ref(key, &pod.name), Arc::clone(&pod.uid)),
            None => (key.object(), Arc::from(view.job.object_uid())),
        }
    }

    /// The object of an event about a job.
    pub(crate) fn about_job(&self, key: &JobKey, view: &JobView) -> About {
        let (object, uid) = self.speaker(key, view);
        About::new(&object, &uid, key.kind.integration().reporter)
    }
}

/// The reference to a pod of a job.
pub(super) fn pod_ref(key: &JobKey, name: &Arc<str>) -> ObjectRef {
    ObjectRef::namespaced(Kind::Job(PODS), Arc::clone(&key.namespace), Arc::clone(name))
}

/// The object of an event about a pod.
pub(super) fn about_pod(key: &JobKey, pod: &Member) -> About {
    About::new(&pod_ref(key, &pod.name), &pod.uid, key.kind.integration().reporter)
}
