//! A LocalQueue at run time.

use std::collections::{BTreeMap, BTreeSet};

use crate::Name;
use crate::admission_fair_sharing::Ledger;
use crate::intern::{FrId, QueueId, WorkloadId};
use crate::spec::{LocalQueueSpec, StopPolicy};

/// A LocalQueue; without a spec while only workloads refer to it.
#[derive(Debug, Clone)]
pub(crate) struct LocalQueue {
    pub(crate) namespace: Name,
    pub(crate) name: Name,
    pub(crate) spec: Option<LocalQueueSpec>,
    /// The ClusterQueue that it points to.
    pub(crate) queue: Option<QueueId>,
    /// The workloads that wait.
    pub(crate) pending: BTreeSet<WorkloadId>,
    /// Usage per flavor and resource: of all that reserve quota, and of admitted workloads.
    pub(crate) usage: BTreeMap<FrId, (i128, i128)>,
    pub(crate) reserving: usize,
    pub(crate) admitted: usize,
    pub(crate) ledger: Ledger,
}

impl LocalQueue {
    /// A LocalQueue without an object.
    pub(crate) fn new(namespace: Name, name: Name) -> Self {
        Self {
            namespace,
            name,
            spec: None,
            queue: None,
            pending: BTreeSet::new(),
            usage: BTreeMap::new(),
            reserving: 0,
            admitted: 0,
            ledger: Ledger::default(),
        }
    }

    /// The ClusterQueue in which its workloads are queued: `None` while it is missing, stopped or being deleted (docs/reference/06-algorithm.md 6.18:
    /// a stopped LocalQueue is removed from the queues altogether).
    pub(crate) fn target(&self) -> Option<QueueId> {
        let spec = self.spec.as_ref()?;
        let open = spec.stop_policy == StopPolicy::None && !spec.terminating;
        self.queue.filter(|_| open)
    }
}
