//! What has to be tried, and when.

use std::collections::BTreeSet;

use crate::intern::{FlavorId, FrId, LocalId, NodeId, QueueId, WorkloadId};
use crate::kept_out::KeptOut;
use crate::loop_guard::LoopGuard;
use crate::second_pass::SecondPassQueue;
use crate::spec::Time;

/// What has to be tried, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Agenda {
    /// Queues with something in the heap.
    pub(crate) ready: BTreeSet<QueueId>,
    /// Queues with inadmissible workloads, by the root of their tree.
    pub(crate) inadmissible: BTreeSet<(NodeId, QueueId)>,
    /// Queues to flush when the trees are up to date.
    pub(crate) flush_later: BTreeSet<QueueId>,
    /// Flavors whose queues have to be flushed: freed nodes cause many events, and a flavor has many queues.
    pub(crate) flush_flavors: BTreeSet<FlavorId>,
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
}

impl Agenda {
    /// Whether queues have to be flushed before the next cycle.
    pub(crate) fn flushes(&self) -> bool {
        !self.flush_later.is_empty() || !self.flush_flavors.is_empty()
    }
}
