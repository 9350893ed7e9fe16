//! What is kept of a job: only what decisions need, because its user may write any number of labels and templates of any size.

use std::sync::Arc;

use sluice_api::job::{JobKind, JobPodSet, JobView, PodScheduling};
use sluice_api::{labels, slim};

use crate::engine::{Alarm, Engine};
use crate::lifecycle::ancestor::Standing;
use crate::lifecycle::create::is_inherited;
use crate::world::JobKey;

/// Keeps of a template which annotations of the topology it has.
fn slim_gathered(set: &mut JobPodSet) {
    let annotations = std::mem::take(&mut set.scheduling).annotations;
    let asked = slim::TOPOLOGY_ANNOTATIONS.into_iter().filter(|key| annotations.contains_key(*key));
    set.scheduling.annotations = asked.map(|key| (key.to_owned(), String::new())).collect();
}

impl Engine {
    /// Drops the labels that no decision needs, of which an object may have any number; and the pod templates of a job that gets no Workload:
    /// templates are most of it. When it gets a queue name, it is seen again.
    pub(crate) fn slim_job(&self, view: &mut JobView) {
        let copied = &self.config.label_keys_to_copy;
        view.labels.retain(|key, _| key == labels::PREBUILT_WORKLOAD_NAME || copied.contains(key));
        // Nothing is written to templates whose pods wait together, so that nothing in them is compared. Each group of pods would have its own copy.
        if view.job.kind.gathers_pods() {
            view.pod_sets.iter_mut().for_each(slim_gathered);
        }
        if view.job.kind.has_groups() {
            let copied = &self.config.annotation_keys_to_copy;
            view.annotations.retain(|key, _| is_inherited(key, copied));
        }
        if view.queue_name.is_some() || self.config.manage_jobs_without_queue_name {
            return;
        }
        let owner = view.controller.as_ref();
        let may_be_part = owner.is_some_and(|owner| {
            JobKind::from_owner_or(&self.config.external, &owner.api_version, &owner.kind).is_some()
        });
        // Nothing is written to templates whose pods wait themselves, so that nothing in them is compared.
        let is_compared = may_be_part && !view.job.kind.integration().suspends_pods;
        for set in &mut view.pod_sets {
            set.template = None;
            if !is_compared {
                set.scheduling = PodScheduling::default();
            }
        }
    }

    /// Drops what only a part of a managed job needs of a job that nothing manages: any user can write that its controller is of an integrated kind.
    /// If it becomes a part, it is read again.
    pub(crate) fn slim_unmanaged(&mut self, key: &JobKey) {
        let Some(entry) = self.world.jobs.get(key) else { return };
        let view = &entry.view;
        let is_of_pods = key.group.is_some() || key.kind.gathers_pods() || key.kind.integration().of_pods;
        if is_of_pods
            || view.controller.is_none()
            || view.queue_name.is_some()
            || self.config.manage_jobs_without_queue_name
            || !self.config.frameworks.contains(&key.kind)
            || view.pod_sets.iter().all(|set| set.scheduling == PodScheduling::default())
        {
            return;
        }
        match self.standing(view) {
            Standing::Unmanaged if self.world.owned(&view.job.uid).is_empty() => {}
            Standing::Unverified(until) => return self.wake_at(until, Alarm::Job(key.clone())),
            _ => return,
        }
        if let Some(entry) = self.world.jobs.get_mut(key) {
            let view = Arc::make_mut(&mut entry.view);
            view.slim = true;
            for set in &mut view.pod_sets {
                set.scheduling = PodScheduling::default();
            }
        }
    }
}
