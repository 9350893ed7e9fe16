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

/// How many pods of a shape that waits fit into one domain of a level now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeFit {
    /// The label of the level.
    pub level: Name,
    /// What each pod takes of its node: `cpu=4,memory=16Gi`.
    pub shape: String,
    /// How many such pods fit into the domain with most room.
    pub pods: i64,
}

/// The largest jobs that fit onto the nodes of a flavor with a topology now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LargestFits {
    /// Of pods that use so much of an extended resource, and nothing else.
    pub sizes: Vec<LargestFit>,
    /// Of the shapes of which most pods wait.
    pub shapes: Vec<ShapeFit>,
}

impl Engine {
    /// How many pods of each size, and of each shape that waits, fit into one domain of each level of a flavor's topology now. Visits each of its hosts for
    /// the sizes, and for each shape.
    pub fn largest_fits(&self, flavor: &Name) -> LargestFits {
        self.largest(flavor).0
    }

    /// The same, and the work that it took: see [`Page::looked_at`].
    fn largest(&self, flavor: &Name) -> (LargestFits, usize) {
        let (sizes, hosts) = self.scheduler.largest_fits(flavor);
        let (waiting, classes) = self.scheduler.asked_shapes(flavor, MOST_SHAPES);
        let mut work = hosts.div_ceil(LIGHT) + classes.div_ceil(LIGHT);
        let mut shapes = Vec::new();
        for shape in waiting {
            let levels = self.scheduler.shape_fits(flavor, &shape, 1);
            work += levels.last().map_or(0, |lowest| lowest.domains.div_ceil(LIGHT));
            let text = shape_text(&shape.per_pod);
            shapes.extend(levels.into_iter().map(|fits| {
                let pods = fits.largest();
                ShapeFit { level: fits.level, shape: text.clone(), pods }
            }));
        }
        (LargestFits { sizes, shapes }, work)
    }

    /// How many pods of each size, and of each shape that waits, fit into one domain of each level now.
    pub(super) fn topology_gauges(&self, flavor: &Name, topology: &str, out: &mut Page<'_>) {
        let (LargestFits { sizes, shapes }, work) = self.largest(flavor);
        out.looked_at(work);
        for fit in sizes {
            let labels = [topology, flavor, &*fit.level, &*fit.resource, &fit.per_pod.to_string()];
            #[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
            let pods = fit.pods as f64;
            out.add(TOPOLOGY_LARGEST_FIT, &labels, pods);
        }
        for fit in shapes {
            #[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
            let pods = fit.pods as f64;
            out.add(TOPOLOGY_LARGEST_FIT_OF_SHAPE, &[topology, flavor, &*fit.level, &*fit.shape], pods);
        }
    }
}
