//! The gauges of flavors with a topology.

use sluice_core::{Amount, LargestFit, Name};
use sluice_quantity::quantity_of;

use super::scrape::{LIGHT, Page};
use super::{TOPOLOGY_LARGEST_FIT, TOPOLOGY_LARGEST_FIT_OF_SHAPE};
use crate::engine::Engine;

/// For how many shapes of waiting pods it is reported how many fit.
const MOST_SHAPES: usize = 8;

/// `cpu=4,memory=16Gi`.
fn shape_text(shape: &[(Name, i64)]) -> String {
    let each = shape.iter().map(|(name, amount)| format!("{name}={}", quantity_of(name, Amount(*amount))));
    each.collect::<Vec<_>>().join(",")
}

impl Engine {
    /// How many pods of each size fit into one domain of each level of a flavor's topology now. Visits each of its hosts.
    pub fn largest_fits(&self, flavor: &Name) -> Vec<LargestFit> {
        self.scheduler.largest_fits(flavor).0
    }

    /// How many pods of each size, and of each shape that waits, fit into one domain of each level now.
    pub(super) fn topology_gauges(&self, flavor: &Name, topology: &str, out: &mut Page<'_>) {
        let (fits, looked_at) = self.scheduler.largest_fits(flavor);
        out.looked_at(looked_at.div_ceil(LIGHT));
        for fit in fits {
            let labels = [topology, flavor, &*fit.level, &*fit.resource, &fit.per_pod.to_string()];
            #[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
            let pods = fit.pods as f64;
            out.add(TOPOLOGY_LARGEST_FIT, &labels, pods);
        }
        let (shapes, looked_at) = self.scheduler.asked_shapes(flavor, MOST_SHAPES);
        out.looked_at(looked_at.div_ceil(LIGHT));
        for shape in shapes {
            let levels = self.scheduler.domain_fits(flavor, &shape, 1);
            out.looked_at(levels.last().map_or(0, |lowest| lowest.domains.div_ceil(LIGHT)));
            let text = shape_text(&shape);
            for fits in levels {
                #[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
                let pods = fits.largest() as f64;
                out.add(TOPOLOGY_LARGEST_FIT_OF_SHAPE, &[topology, flavor, &*fits.level, &*text], pods);
            }
        }
    }
}
