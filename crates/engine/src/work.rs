//! Counters of what the engine does.

/// Counters of the work done since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Statuses of queues, cohorts and checks that were worked out.
    pub statuses: u64,
    /// Workloads that were looked at.
    pub workloads: u64,
    /// Jobs that were looked at.
    pub jobs: u64,
    /// Nodes of cohort trees that were computed again.
    pub rebuilt_nodes: u64,
    /// Flavor assignments.
    pub evaluations: u64,
    /// Searches for the nodes of placements.
    pub placement_searches: u64,
    /// Lowest domains of topologies that were counted for those.
    pub counted_domains: u64,
    /// Domains that were put in order of their capacity for those.
    pub ordered_domains: u64,
    /// ClusterQueues that were notified of free capacity in one of their flavors.
    pub freed_queues: u64,
    /// Bound pods for which it was determined whether they count as usage of their node.
    pub counted_pods: u64,
    /// Steps of looks for displaced work: nodes and Workloads; several that are only passed over or compared count as one.
    pub hotswap_steps: u64,
    /// Looks at all nodes and displaced work.
    pub hotswap_looks: u64,
    /// Workloads that these looks visited.
    pub hotswap_workloads: u64,
    /// Looks that needed what is free on all nodes.
    pub hotswap_rooms: u64,
    /// Passes over all nodes to see whether most of a flavor look bad, so that no slice gets lent ones.
    pub brakes: u64,
    /// Workloads that were visited to find the one that pods with a topology assignment follow.
    pub followed_workloads: u64,
    /// Hosts with assigned pods for which it was determined, as their Workload was looked at, whether they have failed.
    pub asked_hosts: u64,
}
