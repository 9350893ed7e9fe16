//! What is kept of a job: only what decisions need, because its user may write any number of labels and templates of any size.

use std::sync::Arc;

use sluice_api::job::{JobKind, JobView, PodScheduling};
use sluice_api::labels;

use crate::engine::{Alarm, Engine};
use crate::lifecycle::ancestor::Standing;
use crate::world::JobKey;

impl Engine {
    /// Drops the labels that no decision needs, of which an object may have any number; and the pod templates of a job that gets no Workload:
    /// templates are most of it. When it gets a queue name, it is seen again.
    pub(crate) fn slim_job(&self, view: &mut JobView) {
        let copied = &self.config.label_keys_to_copy;
        view.labels.retain(|key, _| key == labels::PREBUILT_WORKLOAD_NAME || copied.contains(key));
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
