//! The workloads that lost nodes, and the flavors that they could have.

use crate::capacity_search::SetNeeds;
use crate::workload::WorkloadKey;
use crate::{Amount, Name};

/// A workload that lost nodes, and whose other nodes cannot hold its pods.
#[derive(Debug, Clone)]
pub struct DisplacedWorkload<'a> {
    /// Its number in the [`FreeCapacity`](crate::FreeCapacity).
    pub at: usize,
    /// Its name.
    pub key: &'a WorkloadKey,
    /// Its effective priority: only workloads of a lower one are preempted for it.
    pub priority: i32,
    /// Its ClusterQueue.
    pub queue: Name,
    /// Whether other ClusterQueues may lose workloads for it even if its own is not within its nominal quota.
    pub beyond_nominal: bool,
    /// Whether it was evicted and has not run again; otherwise it still runs.
    pub is_evicted: bool,
    /// The flavors that it could have, in the order in which they are tried; first those that it holds, if it runs. Never empty.
    pub choices: Vec<FlavorChoice<'a>>,
    /// Why its queue could not admit it again, if it runs.
    pub barred: Option<String>,
}

/// One way to give a workload flavors.
#[derive(Debug, Clone)]
pub struct FlavorChoice<'a> {
    /// By pod set: its flavor, if Hotswap acts for that.
    pub flavors: Vec<Option<Name>>,
    /// What its pods need of the nodes of these flavors.
    pub needs: Vec<SetNeeds<'a>>,
    /// What it uses of their quota and capacity: flavor, resource, amount; cpu in milli-CPU, everything else in whole units.
    pub claim: Vec<(Name, Name, Amount)>,
}
