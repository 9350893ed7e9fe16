//! Candidates for preemption, found lazily in candidate order (reference 06, 6.7 "Candidate classes", "Ordering").

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap, btree_set};

use super::{CandidateKey, Preemption};
use crate::intern::{NodeId, QueueId, WorkloadId};
use crate::spec::PreemptionPolicy;
use crate::view::View;

/// Whom a preemption may take from one kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) policy: PreemptionPolicy,
}

impl Filter {
    /// No candidate of this or a higher priority can pass.
    fn ends_at(self, preemption: &Preemption<'_>, priority: i32) -> bool {
        match self.policy {
            PreemptionPolicy::Never => true,
            PreemptionPolicy::LowerPriority => priority >= preemption.head.priority,
            PreemptionPolicy::LowerOrNewerEqualPriority => priority > preemption.head.priority,
            PreemptionPolicy::Any => false,
        }
    }

    /// Whether a workload may be taken: the policy allows it, it uses a needed (flavor, resource), and no head of this
    /// cycle has taken it before.
    fn passes(self, view: &View<'_>, preemption: &Preemption<'_>, id: WorkloadId) -> bool {
        let workload = view.workload(id);
        let newer = self.policy != PreemptionPolicy::LowerOrNewerEqualPriority
            || workload.priority < preemption.head.priority
            || preemption.head.order < workload.order;
        newer
            && workload.chosen != view.cycle
            && id != preemption.head.workload
            && workload
                .hold()
                .is_some_and(|hold| hold.usage.iter().any(|(pair, _, _)| preemption.needed.contains(pair)))
    }
}

/// The candidates of one queue among its evicted or its running holders, in order.
#[derive(Clone)]
pub(super) struct InQueue<'a> {
    keys: btree_set::Iter<'a, CandidateKey>,
    filter: Filter,
}

impl<'a> InQueue<'a> {
    /// The candidates among these holders.
    pub(super) fn new(holders: &'a BTreeSet<CandidateKey>, filter: Filter) -> Self {
        Self { keys: holders.iter(), filter }
    }

    /// No candidates.
    pub(super) fn empty() -> Self {
        Self { keys: btree_set::Iter::default(), filter: Filter { policy: PreemptionPolicy::Never } }
    }

    /// The next candidate.
    pub(super) fn next(&mut self, view: &View<'_>, preemption: &Preemption<'_>) -> Option<&'a CandidateKey> {
        for key in self.keys.by_ref() {
            if self.filter.ends_at(preemption, key.priority) {
                break;
            }
            if self.filter.passes(view, preemption, key.id) {
                return Some(key);
            }
        }
        self.keys = btree_set::Iter::default();
        None
    }
}

/// A queue whose workloads may be taken, and the lowest common ancestor with the preemptor's queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) queue: QueueId,
    pub(super) ancestor: NodeId,
}

/// The candidates of several queues, merged in candidate order; a queue is looked into only as far as needed.
pub(super) struct Merged<'a> {
    heads: BinaryHeap<MergedHead<'a>>,
}

struct MergedHead<'a> {
    key: &'a CandidateKey,
    rest: InQueue<'a>,
    source: Source,
}

impl<'a> Merged<'a> {
    /// The candidates of these queues among their evicted, or their running, holders.
    pub(super) fn new(
        view: &View<'a>,
        preemption: &Preemption<'_>,
        sources: &[Source],
        filter: Filter,
        evicted: bool,
    ) -> Self {
        let queues = view.queues;
        let mut heads = Vec::new();
        for &source in sources {
            let holders = &queues[source.queue.at()].holders;
            let holders = if evicted { &holders.evicted } else { &holders.running };
            if holders.is_empty() {
                continue;
            }
            let mut rest = InQueue::new(holders, filter);
            if let Some(key) = rest.next(view, preemption) {
                heads.push(MergedHead { key, rest, source });
            }
        }
        Self { heads: BinaryHeap::from(heads) }
    }

    /// There is no candidate.
    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The next candidate and where it comes from.
    pub(super) fn next(
        &mut self,
        view: &View<'_>,
        preemption: &Preemption<'_>,
    ) -> Option<(WorkloadId, Source)> {
        let mut head = self.heads.peek_mut()?;
        let found = (head.key.id, head.source);
        match head.rest.next(view, preemption) {
            Some(key) => head.key = key,
            None => {
                std::collections::binary_heap::PeekMut::pop(head);
            }
        }
        Some(found)
    }
}

impl Ord for MergedHead<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(self.key)
    }
}

impl PartialOrd for MergedHead<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MergedHead<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for MergedHead<'_> {}

/// The own queue's candidates in order. Admission fair sharing puts another LocalQueue's workloads of higher usage
/// first ([quirk] higher, not lower), so there they are sorted for the occasion.
pub(super) fn own_candidates(view: &View<'_>, preemption: &Preemption<'_>, evicted: bool) -> Vec<WorkloadId> {
    let queue = view.queue(preemption.head.queue);
    let holders = if evicted { &queue.holders.evicted } else { &queue.holders.running };
    let mut candidates = InQueue::new(holders, Filter { policy: queue.within_policy() });
    let mut found = Vec::new();
    while let Some(key) = candidates.next(view, preemption) {
        found.push(key.id);
    }
    let usage = |id: &WorkloadId| view.local_usage.get(view.workload(*id).local.at()).copied();
    found.sort_by(|a, b| {
        let (left, right) = (usage(a).unwrap_or(0.0), usage(b).unwrap_or(0.0));
        right.total_cmp(&left)
    });
    found
}
