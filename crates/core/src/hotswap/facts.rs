//! What a search asks that follows from objects outside of the core.

use crate::Name;
use crate::capacity_search::Candidate;

/// What a search for displaced workloads asks about nodes, flavors and other workloads. Workloads and nodes have the numbers of the
/// [`FreeCapacity`](crate::FreeCapacity).
pub trait HotswapFacts<'a> {
    /// Whether so many nodes of a flavor look bad that nothing is evicted from it.
    fn brake_holds(&self, flavor: &Name) -> bool;

    /// Whether Hotswap acts for a flavor.
    fn acts_for(&self, flavor: &str) -> bool;

    /// The workloads that may be preempted: those with a priority below this one that hold such flavors, have pods on nodes, and stay otherwise.
    fn candidates(&self, below: i32) -> Vec<Candidate<'a>>;

    /// Whether pods of a workload are on any node for which `is_one` is true.
    fn is_on(&self, workload: usize, is_one: impl Fn(usize) -> bool) -> bool;

    /// Whether a workload that leaves its nodes gives its quota back for good: it does not come back to other nodes.
    fn leaves_for_good(&self, workload: usize) -> bool;
}
