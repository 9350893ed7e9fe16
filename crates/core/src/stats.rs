//! Counters of the work done.

/// Counters since the scheduler was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Cycles run.
    pub cycles: u64,
    /// Flavor assignments computed, each probe of a partial admission included.
    pub evaluations: u64,
    /// Searches for victims, including those for a single resource.
    pub preemption_searches: u64,
    /// Placements of pods onto nodes, including those for preemption.
    pub placements: u64,
    /// Searches for the nodes of a placement: what is known from before is not searched for again.
    pub placement_searches: u64,
    /// Lowest domains that were counted for placements.
    pub counted_domains: u64,
    /// Domains that searches for placements compared, besides those that an order gave.
    pub compared_domains: u64,
    /// Domains that were visited to order a level of a topology by what fits: all of a level, for each of the first two searches of a shape there.
    pub ordered_domains: u64,
    /// Usages of LocalQueues that were computed for the order of ClusterQueues.
    pub local_usages: u64,
    /// Nodes of cohort trees that were computed anew because a spec in the tree changed.
    pub rebuilt_nodes: u64,
    /// ClusterQueues that were notified of free capacity in one of their flavors: nodes, or physical capacity.
    pub freed_queues: u64,
}
