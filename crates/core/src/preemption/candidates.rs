//! Candidates for preemption, found lazily in candidate order (docs/reference/06-algorithm.md 6.7 "Candidate classes", "Ordering").

use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap, btree_set};

use super::request::PreemptionRequest;
use crate::cluster_queue::CandidateKey;
use crate::intern::{NodeId, QueueId, WorkloadId};
use crate::spec::PreemptionPolicy;
use crate::view::View;

/// Which workloads of a queue a preemption may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CandidateFilter {
    policy: PreemptionPolicy,
    /// The highest priority that may be taken.
    max_priority: i32,
}

impl CandidateFilter {
    /// The candidates that a policy allows.
    pub(super) const fn new(policy: PreemptionPolicy) -> Self {
        Self { policy, max_priority: i32::MAX }
    }

    /// The same, without workloads of a higher priority.
    pub(super) const fn max_priority(self, max_priority: i32) -> Self {
        Self { max_priority, ..self }
    }

    /// No candidate of this or a higher priority can pass.
    const fn ends_at(self, preemption: &PreemptionRequest<'_>, priority: i32) -> bool {
        priority > self.max_priority
            || match self.policy {
                PreemptionPolicy::Never => true,
                PreemptionPolicy::LowerPriority => priority >= preemption.head.priority,
                PreemptionPolicy::LowerOrNewerEqualPriority => priority > preemption.head.priority,
                PreemptionPolicy::Any => false,
            }
    }

    /// Whether a workload may be taken: the policy allows it, it uses a needed (flavor, resource), and this cycle
    /// has neither taken nor admitted it: what is admitted in a cycle is only usage to the rest of it. The slice that the
    /// head takes over from is gone already.
    fn passes(self, view: &View<'_>, preemption: &PreemptionRequest<'_>, id: WorkloadId) -> bool {
        let workload = view.workload(id);
        let newer = self.policy != PreemptionPolicy::LowerOrNewerEqualPriority
            || workload.priority < preemption.head.priority
            || preemption.head.order < workload.order;
        newer
            && workload.taken_in_cycle != view.cycle
            && id != preemption.head.workload
            && Some(id) != view.replaced
            && workload.reservation().is_some_and(|reservation| {
                reservation.usage.iter().any(|(pair, _, _)| preemption.needed.contains(pair))
            })
    }
}

/// The evicted or the running candidates of one queue, in order.
#[derive(Clone)]
pub(super) struct QueueCandidates<'a> {
    keys: btree_set::Iter<'a, CandidateKey>,
    filter: CandidateFilter,
    /// Where admission fair sharing orders the queue: the candidates, sorted for the occasion.
    by_usage: std::vec::IntoIter<&'a CandidateKey>,
}

impl<'a> QueueCandidates<'a> {
    /// The candidates among these holders.
    pub(super) fn new(reservations: &'a BTreeSet<CandidateKey>, filter: CandidateFilter) -> Self {
        Self { keys: reservations.iter(), filter, by_usage: Vec::new().into_iter() }
    }

    /// The candidates of a queue. Under admission fair sharing, those of the LocalQueue with higher usage come first ([quirk] higher, not lower),
    /// whatever their priority is.
    pub(super) fn of(
        view: &View<'a>,
        preemption: &PreemptionRequest<'_>,
        queue: QueueId,
        evicted: bool,
        filter: CandidateFilter,
    ) -> Self {
        let queues = &view.world.queues;
        let reservations = &queues[queue.at()].reservations;
        let reservations = if evicted { &reservations.evicted } else { &reservations.running };
        let mut found = Self::new(reservations, filter);
        if !view.is_ordered_by_usage(queue) {
            return found;
        }
        let mut sorted: Vec<&CandidateKey> = Vec::new();
        while let Some(key) = found.next(view, preemption) {
            sorted.push(key);
        }
        let usage = |key: &CandidateKey| {
            view.local_usage.get(view.workload(key.id).local.at()).copied().unwrap_or(0.0)
        };
        sorted.sort_by(|a, b| usage(b).total_cmp(&usage(a)));
        Self { by_usage: sorted.into_iter(), ..Self::empty() }
    }

    /// No candidates.
    pub(super) fn empty() -> Self {
        let filter = CandidateFilter::new(PreemptionPolicy::Never);
        Self { keys: btree_set::Iter::default(), filter, by_usage: Vec::new().into_iter() }
    }

    /// The next candidate.
    pub(super) fn next(
        &mut self,
        view: &View<'_>,
        preemption: &PreemptionRequest<'_>,
    ) -> Option<&'a CandidateKey> {
        for key in self.keys.by_ref() {
            if self.filter.ends_at(preemption, key.priority) {
                break;
            }
            if self.filter.passes(view, preemption, key.id) {
                return Some(key);
            }
        }
        self.keys = btree_set::Iter::default();
        self.by_usage.next()
    }
}

/// A queue whose workloads may be taken, and the lowest common ancestor with the preemptor's queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidateQueue {
    pub(super) queue: QueueId,
    pub(super) ancestor: NodeId,
}

/// The candidates of several queues, merged in candidate order; a queue is looked into only as far as needed.
pub(super) struct CohortCandidates<'a> {
    heads: BinaryHeap<NextCandidate<'a>>,
}

struct NextCandidate<'a> {
    key: &'a CandidateKey,
    rest: QueueCandidates<'a>,
    source: CandidateQueue,
}

impl<'a> CohortCandidates<'a> {
    /// The candidates of these queues among their evicted, or their running, holders.
    pub(super) fn new(
        view: &View<'a>,
        preemption: &PreemptionRequest<'_>,
        sources: &[CandidateQueue],
        filter: CandidateFilter,
        evicted: bool,
    ) -> Self {
        let queues = &view.world.queues;
        let mut heads = Vec::new();
        for &source in sources {
            let reservations = &queues[source.queue.at()].reservations;
            if if evicted { &reservations.evicted } else { &reservations.running }.is_empty() {
                continue;
            }
            let mut rest = QueueCandidates::of(view, preemption, source.queue, evicted, filter);
            if let Some(key) = rest.next(view, preemption) {
                heads.push(NextCandidate { key, rest, source });
            }
        }
        Self { heads: BinaryHeap::from(heads) }
    }

    /// The next candidate whose queue may still be preempted from. Another queue is dropped with all its further candidates: while victims are only
    /// added, it does not become eligible again.
    pub(super) fn next(
        &mut self,
        view: &View<'_>,
        preemption: &PreemptionRequest<'_>,
        may_take: impl Fn(&View<'_>, CandidateQueue) -> bool,
    ) -> Option<WorkloadId> {
        loop {
            let mut head = self.heads.peek_mut()?;
            if !may_take(view, head.source) {
                PeekMut::pop(head);
                continue;
            }
            let found = head.key.id;
            match head.rest.next(view, preemption) {
                Some(key) => head.key = key,
                None => {
                    PeekMut::pop(head);
                }
            }
            return Some(found);
        }
    }
}

/// Whether any of these queues has a candidate; the search stops at the first.
pub(super) fn any(
    view: &View<'_>,
    preemption: &PreemptionRequest<'_>,
    sources: &[CandidateQueue],
    filter: CandidateFilter,
) -> bool {
    let queues = &view.world.queues;
    sources.iter().any(|source| {
        let reservations = &queues[source.queue.at()].reservations;
        [&reservations.evicted, &reservations.running]
            .into_iter()
            .any(|reservations| QueueCandidates::new(reservations, filter).next(view, preemption).is_some())
    })
}

impl Ord for NextCandidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(self.key)
    }
}

impl PartialOrd for NextCandidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NextCandidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for NextCandidate<'_> {}
