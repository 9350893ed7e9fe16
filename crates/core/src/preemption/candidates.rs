//! Candidates for preemption, found lazily in candidate order (reference 06, 6.7 "Candidate classes", "Ordering").

use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap, btree_set};

use super::{CandidateKey, Preemption};
use crate::intern::{NodeId, QueueId, WorkloadId};
use crate::spec::PreemptionPolicy;
use crate::view::View;

/// Whom a preemption may take from one kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filter {
    policy: PreemptionPolicy,
    /// The highest priority that may be taken.
    at_most: i32,
}

impl Filter {
    /// What a policy allows.
    pub(super) const fn new(policy: PreemptionPolicy) -> Self {
        Self { policy, at_most: i32::MAX }
    }

    /// The same, and no workload of a priority above `most`.
    pub(super) const fn at_most(self, most: i32) -> Self {
        Self { at_most: most, ..self }
    }

    /// No candidate of this or a higher priority can pass.
    const fn ends_at(self, preemption: &Preemption<'_>, priority: i32) -> bool {
        priority > self.at_most
            || match self.policy {
                PreemptionPolicy::Never => true,
                PreemptionPolicy::LowerPriority => priority >= preemption.head.priority,
                PreemptionPolicy::LowerOrNewerEqualPriority => priority > preemption.head.priority,
                PreemptionPolicy::Any => false,
            }
    }

    /// Whether a workload may be taken: the policy allows it, it uses a needed (flavor, resource), and this cycle
    /// has neither taken nor admitted it: what is admitted in a cycle is only usage to the rest of it.
    fn passes(self, view: &View<'_>, preemption: &Preemption<'_>, id: WorkloadId) -> bool {
        let workload = view.workload(id);
        let newer = self.policy != PreemptionPolicy::LowerOrNewerEqualPriority
            || workload.priority < preemption.head.priority
            || preemption.head.order < workload.order;
        newer
            && workload.settled != view.cycle
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
        Self { keys: btree_set::Iter::default(), filter: Filter::new(PreemptionPolicy::Never) }
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

    /// The next candidate whose queue may still be taken from. A queue that may not is left out with all that is
    /// behind it: while victims are only added, it does not come back.
    pub(super) fn next(
        &mut self,
        view: &View<'_>,
        preemption: &Preemption<'_>,
        may_take: impl Fn(&View<'_>, Source) -> bool,
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

/// Whether any of these queues has a candidate, looked for only until one is found.
pub(super) fn any(view: &View<'_>, preemption: &Preemption<'_>, sources: &[Source], filter: Filter) -> bool {
    let queues = view.queues;
    sources.iter().any(|source| {
        let holders = &queues[source.queue.at()].holders;
        [&holders.evicted, &holders.running]
            .into_iter()
            .any(|holders| InQueue::new(holders, filter).next(view, preemption).is_some())
    })
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
    let mut candidates = InQueue::new(holders, Filter::new(queue.within_policy()));
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
