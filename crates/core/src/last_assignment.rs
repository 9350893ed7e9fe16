//! Where a flavor scan stopped, so that the next attempt continues there (docs/reference/06-algorithm.md 6.6 "Start index").

use std::sync::Arc;

use crate::config::Config;
use crate::intern::{ResourceId, ShapeId, WorkloadId};
use crate::reason::Unadmitted;

/// Where a flavor scan stopped. It exists only while some resource group has flavors left to try.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LastAssignment {
    /// (pod set, resource, place of the flavor tried last or −1).
    pub(crate) tried: Vec<(usize, ResourceId, i32)>,
    pub(crate) shape: ShapeId,
    pub(crate) cycle: u64,
    pub(crate) generation: u64,
    /// When capacity had last become free in the tree as the scan began.
    pub(crate) since: u64,
    /// Heads whose reservation alone kept the workload from a flavor in which it would fit.
    pub(crate) kept_out_by: Vec<WorkloadId>,
    /// The reasons so far, if the last decision about the workload does not contain them.
    pub(crate) before: Option<Arc<Unadmitted>>,
}

impl LastAssignment {
    /// The resources that were tried.
    pub(crate) fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.tried.iter().map(|(_, id, _)| *id)
    }
}

/// Of what a scan is, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan {
    pub(crate) shape: ShapeId,
    pub(crate) cycle: u64,
    pub(crate) generation: u64,
    pub(crate) since: u64,
}

impl Scan {
    /// The scan of a head that was not searched for yet.
    pub(crate) const NONE: Scan = Scan { shape: ShapeId(0), cycle: 0, generation: 0, since: u64::MAX };
}

impl LastAssignment {
    /// It is out of date: the shape or the capacity has changed meanwhile. With the gate, changes of capacity since the last cycle alone do not
    /// count.
    pub(crate) fn is_outdated(&self, config: &Config, shape: ShapeId, cycle: u64, generation: u64) -> bool {
        let advanced = generation > self.generation;
        let old = cycle > self.cycle + 1;
        self.shape != shape || (advanced && (old || !config.gates.flavor_fungibility_preserve_scan_progress))
    }

    /// The flavor to continue with.
    pub(crate) fn start(&self, pod_set: usize, resource: ResourceId) -> usize {
        self.tried
            .iter()
            .find(|&&(set, res, _)| set == pod_set && res == resource)
            .map_or(0, |&(_, _, tried)| usize::try_from(tried.saturating_add(1)).unwrap_or(0))
    }
}
