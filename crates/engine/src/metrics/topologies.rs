//! The gauges of flavors with a topology.

use sluice_core::{Amount, LargestFit, Name, WaitingShape};
use sluice_quantity::quantity_of;

use super::scrape::{LIGHT, Page, ScrapePosition};
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

/// A search for the largest jobs that fit onto the nodes of a flavor, step by step: the engine goes on in between.
#[derive(Debug, Clone)]
pub struct FitSearch {
    flavor: Name,
    next: FitStep,
    found: LargestFits,
    largest: usize,
}

/// What is looked for next.
#[derive(Debug, Clone)]
enum FitStep {
    Sizes,
    /// Which shapes wait.
    Waiting,
    /// How many pods of each of them fit.
    Shapes(std::vec::IntoIter<WaitingShape>),
    End,
}

impl FitSearch {
    /// The search on the nodes of this flavor, of which nothing is known yet.
    pub fn new(flavor: Name) -> Self {
        Self { flavor, next: FitStep::Sizes, found: LargestFits::default(), largest: 0 }
    }

    /// The largest number of hosts, or of classes of Workloads, that one step visited: 32 count as one.
    pub fn largest_step(&self) -> usize {
        self.largest
    }

    /// The flavor, and what was found.
    pub fn into_found(self) -> (Name, LargestFits) {
        (self.flavor, self.found)
    }

    /// Adds the gauges of what was found since the last call.
    fn report(&mut self, topology: &str, out: &mut Page<'_>) {
        let LargestFits { sizes, shapes } = std::mem::take(&mut self.found);
        for fit in sizes {
            let labels = [topology, &self.flavor, &*fit.level, &*fit.resource, &fit.per_pod.to_string()];
            #[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
            let pods = fit.pods as f64;
            out.add(TOPOLOGY_LARGEST_FIT, &labels, pods);
        }
        for fit in shapes {
            let labels = [topology, &self.flavor, &*fit.level, &*fit.shape];
            #[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
            let pods = fit.pods as f64;
            out.add(TOPOLOGY_LARGEST_FIT_OF_SHAPE, &labels, pods);
        }
    }
}

impl Engine {
    /// The next step of a search: each host of the flavor is visited at most once. Returns whether the search is complete.
    pub fn search_fits(&self, search: &mut FitSearch) -> bool {
        self.fit_step(search).is_none()
    }

    /// The same; the work that the step took (see [`Page::looked_at`]), or nothing if the search was complete before.
    fn fit_step(&self, search: &mut FitSearch) -> Option<usize> {
        let flavor = &search.flavor;
        let (visited, next) = match std::mem::replace(&mut search.next, FitStep::End) {
            FitStep::Sizes => {
                let (sizes, hosts) = self.scheduler.largest_fits(flavor);
                search.found.sizes = sizes;
                (hosts, FitStep::Waiting)
            }
            FitStep::Waiting => {
                let (waiting, classes) = self.scheduler.asked_shapes(flavor, MOST_SHAPES);
                (classes, FitStep::Shapes(waiting.into_iter()))
            }
            FitStep::Shapes(mut waiting) => {
                let shape = waiting.next()?;
                let levels = self.scheduler.shape_fits(flavor, &shape, 1);
                let hosts = levels.last().map_or(0, |lowest| lowest.domains);
                let text = shape_text(&shape.per_pod);
                search.found.shapes.extend(levels.into_iter().map(|fits| {
                    let pods = fits.largest();
                    ShapeFit { level: fits.level, shape: text.clone(), pods }
                }));
                (hosts, FitStep::Shapes(waiting))
            }
            FitStep::End => return None,
        };
        search.next = next;
        let looks = visited.div_ceil(LIGHT);
        search.largest = search.largest.max(looks);
        Some(looks)
    }

    /// The next step of the gauges of a flavor with a topology: how many pods of each size, and of each shape that waits, fit into one domain of each
    /// level now.
    pub(super) fn scrape_fits(
        &self,
        topology: String,
        mut search: FitSearch,
        page: &mut Page<'_>,
    ) -> ScrapePosition {
        let Some(looks) = self.fit_step(&mut search) else {
            return ScrapePosition::Flavor(Some(search.flavor));
        };
        page.looked_at(looks);
        search.report(&topology, page);
        ScrapePosition::Fits { topology, search }
    }
}
