//! The scheduler: everything that the core knows. Each module below changes or reads it in one respect.

mod activity;
mod audit;
mod capacity;
mod flush;
mod ingest;
mod moves;
pub(crate) mod node_trial;
mod objects;
mod queues;
mod reclaimers;
mod reservation;
mod samples;
pub(crate) mod snapshot;
pub(crate) mod standing;
mod status;
mod sweep;
mod topology;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use crate::Name;
use crate::capacity::Capacity;
use crate::changed::ChangedSet;
use crate::cluster_queue::ClusterQueue;
use crate::config::Config;
use crate::intern::{FrId, LocalId, Names, NodeId, QueueId, ResourceId, WorkloadId};
use crate::kept_out::KeptOut;
use crate::local_queue::LocalQueue;
use crate::loop_guard::LoopGuard;
use crate::moves::Moves;
use crate::referring_queues::ReferringQueues;
use crate::second_pass::SecondPassQueue;
use crate::shape::Shapes;
use crate::spec::{CheckSpec, FlavorSpec, Time};
use crate::stats::Stats;
use crate::tables::Sweeps;
use crate::topology::Topologies;
use crate::tree::Tree;
use crate::workloads::Workloads;

/// The state of the world and the algorithm over it.
#[derive(Debug, Clone)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) cycle: u64,
    pub(crate) names: Names,
    /// By [`crate::intern::FlavorId`].
    pub(crate) flavors: Vec<Option<FlavorSpec>>,
    pub(crate) checks: BTreeMap<Name, CheckSpec>,
    /// Topologies, nodes, and what is used of them.
    pub(crate) topology: Topologies,
    pub(crate) namespaces: IndexMap<Name, Vec<(Name, Name)>>,
    pub(crate) tree: Tree,
    /// Limits across all queues.
    pub(crate) capacity: Capacity,
    pub(crate) queues: Vec<ClusterQueue>,
    pub(crate) free_queues: Vec<QueueId>,
    pub(crate) queue_index: IndexMap<Name, QueueId>,
    pub(crate) locals: Vec<LocalQueue>,
    pub(crate) free_locals: Vec<LocalId>,
    pub(crate) local_index: IndexMap<(Name, Name), LocalId>,
    /// Which queues name a flavor or a check.
    pub(crate) referring_queues: ReferringQueues,
    pub(crate) namespace_locals: IndexMap<Name, Vec<LocalId>>,
    pub(crate) shapes: Shapes,
    pub(crate) workloads: Workloads,
    /// The resource `pods`, once some queue covers it.
    pub(crate) pods: Option<ResourceId>,
    /// Queues with something in the heap.
    pub(crate) ready: BTreeSet<QueueId>,
    /// Queues with inadmissible workloads, by the root of their tree.
    pub(crate) inadmissible: BTreeSet<(NodeId, QueueId)>,
    /// Queues to flush when the trees are up to date.
    pub(crate) flush_later: BTreeSet<QueueId>,
    /// Pairs that a queue or Cohort of a tree began to borrow, until the queues that may reclaim them were flushed.
    pub(crate) began_to_borrow: BTreeSet<(NodeId, FrId)>,
    /// Inadmissible workloads that others keep from quota.
    pub(crate) kept_out: KeptOut,
    /// Backoffs.
    pub(crate) wakeups: BTreeSet<(Time, WorkloadId)>,
    pub(crate) second_passes: SecondPassQueue,
    /// When the usage of each LocalQueue is sampled next.
    pub(crate) samples: BTreeSet<(Time, LocalId)>,
    /// The head that waits until all pods are ready (`blockAdmission`): it goes before all others then.
    pub(crate) blocked: Option<WorkloadId>,
    /// Workloads that hold quota and whose pods are not ready.
    pub(crate) unready: usize,
    /// Which workload evicted which since the last change from outside.
    pub(crate) loops: LoopGuard,
    pub(crate) stats: Stats,
    pub(crate) changed_queues: ChangedSet,
    pub(crate) changed_locals: ChangedSet,
    pub(crate) changed_nodes: ChangedSet,
    /// Who moved in a queue.
    pub(crate) moves: Moves,
    /// When dead rows are looked for.
    pub(crate) sweeps: Sweeps,
}

impl Scheduler {
    /// An empty world.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            cycle: 0,
            names: Names::default(),
            flavors: Vec::new(),
            checks: BTreeMap::new(),
            topology: Topologies::default(),
            namespaces: IndexMap::new(),
            tree: Tree::default(),
            capacity: Capacity::default(),
            queues: Vec::new(),
            free_queues: Vec::new(),
            queue_index: IndexMap::new(),
            locals: Vec::new(),
            free_locals: Vec::new(),
            local_index: IndexMap::new(),
            referring_queues: ReferringQueues::default(),
            namespace_locals: IndexMap::new(),
            shapes: Shapes::default(),
            workloads: Workloads::default(),
            pods: None,
            ready: BTreeSet::new(),
            inadmissible: BTreeSet::new(),
            flush_later: BTreeSet::new(),
            began_to_borrow: BTreeSet::new(),
            kept_out: KeptOut::default(),
            wakeups: BTreeSet::new(),
            second_passes: SecondPassQueue::default(),
            samples: BTreeSet::new(),
            blocked: None,
            unready: 0,
            loops: LoopGuard::default(),
            stats: Stats::default(),
            changed_queues: ChangedSet::default(),
            changed_locals: ChangedSet::default(),
            changed_nodes: ChangedSet::default(),
            moves: Moves::default(),
            sweeps: Sweeps::default(),
        }
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters of the work done.
    pub fn stats(&self) -> Stats {
        Stats { cycles: self.cycle, ..self.stats }
    }
}
