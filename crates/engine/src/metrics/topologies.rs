//! The gauges of flavors with a topology.

use sluice_core::{LargestFit, Name};

use super::TOPOLOGY_LARGEST_FIT;
use super::scrape::{LIGHT, Page};
use crate::engine::Engine;

impl Engine {
    /// How many pods of each size fit into one domain of each level of a flavor's topology now. Looks at each host of it.
    pub fn largest_fits(&self, flavor: &Name) -> Vec<LargestFit> {
        self.scheduler.largest_fits(flavor).0
    }

    /// How many pods of each size fit into one domain of each level now.
    pub(super) fn topology_gauges(&self, flavor: &Name, topology: &str, out: &mut Page<'_>) {
        let (fits, looked_at) = self.scheduler.largest_fits(flavor);
        out.looked_at(looked_at.div_ceil(LIGHT));
        for fit in fits {
            let labels = [topology, flavor, &*fit.level, &*fit.resource, &fit.per_pod.to_string()];
            #[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
            let pods = fit.pods as f64;
            out.add(TOPOLOGY_LARGEST_FIT, &labels, pods);
        }
    }
}
