//! What is kept of a job: only what decisions need, because its user may write any number of labels and templates of any size.

use sluice_api::job::{JobKind, JobView, PodScheduling};
use sluice_api::labels;

use crate::engine::Engine;

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
        for set in &mut view.pod_sets {
            set.template = None;
            if !may_be_part {
                set.scheduling = PodScheduling::default();
            }
        }
    }
}
