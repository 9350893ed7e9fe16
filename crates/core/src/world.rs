//! What is configured: queues, Cohorts, flavors, nodes and workloads. What they use is in [`crate::books`].

use std::collections::BTreeMap;

use crate::Name;
use crate::capacity::Capacity;
use crate::cluster_queue::ClusterQueue;
use crate::config::Config;
use crate::fair_sharing::Lendable;
use crate::forest::Forest;
use crate::index_map::IndexMap;
use crate::intern::{LocalId, Names, NodeId, QueueId, ResourceId};
use crate::local_queue::LocalQueue;
use crate::referring_queues::ReferringQueues;
use crate::shape::Shapes;
use crate::spec::{CheckSpec, FlavorSpec};
use crate::topology::Topologies;
use crate::usage::Usage;
use crate::workloads::Workloads;

/// The configuration. A search reads it and changes nothing in it.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) names: Names,
    /// By [`crate::intern::FlavorId`].
    pub(crate) flavors: Vec<Option<FlavorSpec>>,
    pub(crate) checks: BTreeMap<Name, CheckSpec>,
    pub(crate) namespaces: IndexMap<Name, Vec<(Name, Name)>>,
    /// Topologies and nodes.
    pub(crate) topology: Topologies,
    /// Cohorts and ClusterQueues with their quotas.
    pub(crate) forest: Forest,
    /// How much the trees can lend.
    pub(crate) lendable: Lendable,
    /// Limits across all queues.
    pub(crate) capacity: Capacity,
    pub(crate) queues: Vec<ClusterQueue>,
    pub(crate) free_queues: Vec<QueueId>,
    pub(crate) queue_index: IndexMap<Name, QueueId>,
    pub(crate) locals: Vec<LocalQueue>,
    pub(crate) free_locals: Vec<LocalId>,
    pub(crate) local_index: IndexMap<(Name, Name), LocalId>,
    pub(crate) namespace_locals: IndexMap<Name, Vec<LocalId>>,
    /// Which queues name a flavor or a check.
    pub(crate) referring_queues: ReferringQueues,
    pub(crate) shapes: Shapes,
    pub(crate) workloads: Workloads,
    /// The resource `pods`, once some queue covers it.
    pub(crate) pods: Option<ResourceId>,
}

impl World {
    /// Only a configuration.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            topology: Topologies::new(config.gates.tas_handle_overlapping_flavors),
            config,
            names: Names::default(),
            flavors: Vec::new(),
            checks: BTreeMap::new(),
            namespaces: IndexMap::default(),
            forest: Forest::default(),
            lendable: Lendable::default(),
            capacity: Capacity::default(),
            queues: Vec::new(),
            free_queues: Vec::new(),
            queue_index: IndexMap::default(),
            locals: Vec::new(),
            free_locals: Vec::new(),
            local_index: IndexMap::default(),
            namespace_locals: IndexMap::default(),
            referring_queues: ReferringQueues::default(),
            shapes: Shapes::default(),
            workloads: Workloads::default(),
            pods: None,
        }
    }

    /// Updates the numbers of the trees; returns the roots of those that changed.
    pub(crate) fn refresh(&mut self, usage: &mut Usage) -> Vec<NodeId> {
        refresh(&mut self.forest, &mut self.lendable, usage, &self.names)
    }
}

/// The same for parts of a world.
pub(crate) fn refresh(
    forest: &mut Forest,
    lendable: &mut Lendable,
    usage: &mut Usage,
    names: &Names,
) -> Vec<NodeId> {
    let roots = forest.refresh(usage);
    for &root in &roots {
        lendable.rebuild(forest, names, root);
    }
    roots
}
