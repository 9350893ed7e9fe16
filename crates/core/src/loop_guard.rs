//! The preemption-loop guard, ours: A evicts B evicts A, and nothing changed outside (reference 09, 8). Some rules of
//! the reference allow such a loop; the guard stops it where the victim would evict its own evictor.

use crate::WorkloadKey;
use crate::intern::WorkloadId;

/// That a workload was evicted, by whom, and when in terms of outside changes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Eviction {
    pub(crate) evictor: WorkloadId,
    pub(crate) evictor_key: WorkloadKey,
    /// The count of outside changes at that time.
    pub(crate) epoch: u64,
}
