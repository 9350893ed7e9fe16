//! Which LocalQueues have metrics of their own (`metrics.localQueueMetrics`, docs/reference/01-api.md 1.12).

use sluice_api::config::selector_matches;
use sluice_api::v1beta2;
use sluice_core::Name;

use crate::engine::Engine;

impl Engine {
    /// Whether this LocalQueue has metrics. Under a selector, a LocalQueue that does not exist has none.
    pub(crate) fn measures(&self, namespace: &Name, name: &str) -> bool {
        let section = &self.config.local_queue_metrics;
        let selected = || {
            let key = (Name::clone(namespace), Name::from(name));
            self.world.local_queues.get(&key).is_some_and(|queue| self.is_measured(queue))
        };
        section.enable && (section.local_queue_selector.is_none() || selected())
    }

    /// Whether the selector, if there is one, matches this LocalQueue.
    pub(crate) fn is_measured(&self, queue: &v1beta2::LocalQueue) -> bool {
        let selector = self.config.local_queue_metrics.local_queue_selector.as_ref();
        let labels = queue.metadata.labels.clone().unwrap_or_default();
        selector.is_none_or(|selector| selector_matches(selector, &labels))
    }
}
