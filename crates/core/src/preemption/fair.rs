//! Preemption by fair sharing (docs/reference/06-algorithm.md 6.8 "Preemption").

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::candidates::{CandidateFilter, QueueCandidates};
use super::request::{self, PreemptionRequest, fill_back};
use crate::cluster_queue::CandidateKey;
use crate::config::FairStrategy;
use crate::fair_sharing::{Share, share};
use crate::intern::{NodeId, QueueId, WorkloadId};
use crate::report::PreemptionReason;
use crate::spec::PreemptionPolicy;
use crate::view::{Target, View};

/// The candidates of one queue, in order; evaluated only as far as needed.
struct QueueLine<'a> {
    /// Candidates put back or found ahead.
    ready: VecDeque<WorkloadId>,
    evicted: QueueCandidates<'a>,
    running: QueueCandidates<'a>,
}

impl<'a> QueueLine<'a> {
    fn new(
        view: &View<'a>,
        preemption: &PreemptionRequest<'_>,
        queue: QueueId,
        policy: PreemptionPolicy,
    ) -> Self {
        let filter = CandidateFilter::new(policy);
        QueueLine {
            ready: VecDeque::new(),
            evicted: QueueCandidates::of(view, preemption, queue, true, filter),
            running: QueueCandidates::of(view, preemption, queue, false, filter),
        }
    }

    /// The first candidate, without taking it.
    fn first(&mut self, view: &View<'_>, preemption: &PreemptionRequest<'_>) -> Option<WorkloadId> {
        if self.ready.is_empty() {
            let next = self
                .evicted
                .next(view, preemption)
                .or_else(|| self.running.next(view, preemption))
                .map(|key| key.id);
            self.ready.extend(next);
        }
        self.ready.front().copied()
    }

    /// Takes the first candidate.
    fn pop(&mut self, view: &View<'_>, preemption: &PreemptionRequest<'_>) -> Option<WorkloadId> {
        self.first(view, preemption)?;
        self.ready.pop_front()
    }
}

/// The search for one head.
struct FairSearch<'s, 'a, 'p> {
    view: &'s mut View<'a>,
    preemption: &'p PreemptionRequest<'p>,
    lines: BTreeMap<QueueId, QueueLine<'a>>,
    /// Nodes that can give nothing more.
    pruned: BTreeSet<NodeId>,
    /// Shares computed with the current usage.
    shares: BTreeMap<NodeId, Share>,
    found: Vec<Target>,
}

/// The victims, or none. The usage is as before.
pub(super) fn targets(view: &mut View<'_>, preemption: &PreemptionRequest<'_>) -> Vec<Target> {
    let lines = lines(view, preemption);
    if lines.is_empty() {
        return Vec::new();
    }
    let strategies = match &view.world.config.fair_sharing {
        Some(fair) if !fair.strategies.is_empty() => fair.strategies.clone(),
        _ => crate::config::FairSharing::default().strategies,
    };
    let mark = view.mark();
    let mut search = FairSearch {
        view,
        preemption,
        lines,
        pruned: BTreeSet::new(),
        shares: BTreeMap::new(),
        found: Vec::new(),
    };
    search.add_incoming();
    let (mut fits, retry) = search.first_strategy(strategies[0]);
    if !fits && strategies.len() > 1 {
        fits = search.second_strategy(retry);
    }
    let mut found = std::mem::take(&mut search.found);
    if fits {
        search.remove_incoming();
        fill_back(search.view, preemption, true, &mut found);
    } else {
        found.clear();
    }
    view.rollback(&mark);
    found
}

/// The queues with candidates: the head's own, by its policy, and all in the tree that borrow a needed pair.
fn lines<'a>(view: &View<'a>, preemption: &PreemptionRequest<'_>) -> BTreeMap<QueueId, QueueLine<'a>> {
    let head = preemption.head;
    let own = view.queue(head.queue);
    let mut lines = BTreeMap::new();
    let mut add = |queue, policy| {
        let mut line = QueueLine::new(view, preemption, queue, policy);
        if line.first(view, preemption).is_some() {
            lines.insert(queue, line);
        }
    };
    if own.within_policy() != PreemptionPolicy::Never {
        add(head.queue, own.within_policy());
    }
    if own.reclaim_policy() != PreemptionPolicy::Never {
        for queue in view.world.forest.queues_of_tree(head.node) {
            let other = view.queue(queue);
            if queue != head.queue
                && view.is_active(queue)
                && other.reservations.len() > 0
                && !view.world.forest.within_nominal(view.usage, other.node, preemption.needed)
            {
                add(queue, own.reclaim_policy());
            }
        }
    }
    lines
}

impl FairSearch<'_, '_, '_> {
    fn add_incoming(&mut self) {
        for quantity in self.preemption.workload_usage {
            self.view.usage.add(&self.view.world.forest.quota, quantity.slot, quantity.amount);
        }
        self.shares.clear();
    }

    fn remove_incoming(&mut self) {
        for quantity in self.preemption.workload_usage {
            self.view.usage.remove(&self.view.world.forest.quota, quantity.slot, quantity.amount);
        }
    }

    /// Whether the head fits with the victims so far.
    fn fits(&mut self) -> bool {
        let mark = self.view.mark();
        self.remove_incoming();
        let fits = request::fits(self.view, self.preemption, true);
        self.view.rollback(&mark);
        fits
    }

    fn share(&mut self, node: NodeId) -> Share {
        if let Some(&known) = self.shares.get(&node) {
            return known;
        }
        let computed = self.view.share(node);
        self.shares.insert(node, computed);
        computed
    }

    /// Takes a victim; true if the head fits then.
    fn take(&mut self, queue: QueueId, workload: WorkloadId, reason: PreemptionReason) -> bool {
        self.view.remove(workload);
        let node = self.view.queue(queue).node;
        self.shares.remove(&node);
        for ancestor in self.view.world.forest.ancestors(node) {
            self.shares.remove(&ancestor);
        }
        self.found.push(Target { workload, reason });
        self.fits()
    }

    fn pop(&mut self, queue: QueueId) -> Option<WorkloadId> {
        self.lines.get_mut(&queue)?.pop(self.view, self.preemption)
    }

    fn first(&mut self, queue: QueueId) -> Option<WorkloadId> {
        self.lines.get_mut(&queue)?.first(self.view, self.preemption)
    }

    /// Takes candidates while the first strategy allows it. Returns whether the head fits, and which candidates were not taken.
    fn first_strategy(&mut self, strategy: FairStrategy) -> (bool, Vec<(QueueId, WorkloadId)>) {
        let mut retry = Vec::new();
        // Asked once, with no victim gone yet: the own queue's victims do not make the others' free to take.
        let within = self.view.world.config.gates.fair_sharing_preempt_within_nominal
            && self.preemptor_within_nominal();
        while let Some(queue) = self.next_queue() {
            if queue == self.preemption.head.queue {
                let Some(workload) = self.pop(queue) else { continue };
                if self.take(queue, workload, PreemptionReason::InClusterQueue) {
                    return (true, retry);
                }
            } else if within {
                let Some(workload) = self.pop(queue) else { continue };
                if self.take(queue, workload, PreemptionReason::InCohortReclamation) {
                    return (true, retry);
                }
            } else {
                let (own_node, target_node) = self.almost_common_ancestors(queue);
                let own_share = self.share(own_node);
                let before = self.share(target_node);
                while let Some(workload) = self.pop(queue) {
                    let after = self.share_without(target_node, workload);
                    let bound = match strategy {
                        FairStrategy::LessThanOrEqualToFinalShare => own_share.compare(after).is_le(),
                        FairStrategy::LessThanInitialShare => own_share.compare(before).is_lt(),
                    };
                    if !bound {
                        retry.push((queue, workload));
                        continue;
                    }
                    if self.take(queue, workload, PreemptionReason::InCohortFairSharing) {
                        return (true, retry);
                    }
                    break;
                }
            }
        }
        (false, retry)
    }

    /// Offers each queue once more: its first candidate is taken if the head's share is below that of the queue.
    fn second_strategy(&mut self, retry: Vec<(QueueId, WorkloadId)>) -> bool {
        for line in self.lines.values_mut() {
            line.ready.clear();
            line.evicted = QueueCandidates::empty();
            line.running = QueueCandidates::empty();
        }
        for (queue, workload) in retry {
            if let Some(line) = self.lines.get_mut(&queue) {
                line.ready.push_back(workload);
            }
        }
        self.pruned.clear();
        while let Some(queue) = self.next_queue() {
            let (own_node, target_node) = self.almost_common_ancestors(queue);
            let (own_share, before) = (self.share(own_node), self.share(target_node));
            let first = self.pop(queue);
            if let Some(line) = self.lines.get_mut(&queue) {
                line.ready.clear();
            }
            let Some(workload) = first else { continue };
            if own_share.compare(before).is_lt()
                && self.take(queue, workload, PreemptionReason::InCohortFairSharing)
            {
                return true;
            }
        }
        false
    }

    /// The preemptor's queue, with the head's usage, does not borrow a needed pair.
    fn preemptor_within_nominal(&self) -> bool {
        let node = self.preemption.head.node;
        self.view.world.forest.within_nominal(self.view.usage, node, self.preemption.needed)
    }

    fn share_without(&mut self, node: NodeId, workload: WorkloadId) -> Share {
        let mark = self.view.mark();
        self.view.remove(workload);
        let share = self.view.share(node);
        self.view.rollback(&mark);
        share
    }

    /// The children of the lowest common ancestor on the way to the preemptor's and to the target's queue.
    fn almost_common_ancestors(&self, target: QueueId) -> (NodeId, NodeId) {
        let forest = &self.view.world.forest;
        let own: Vec<NodeId> = path(self.view, self.preemption.head.node);
        let other: Vec<NodeId> = path(self.view, self.view.queue(target).node);
        let common = own.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
        let below = |path: &[NodeId]| path[path.len().saturating_sub(common + 1)];
        debug_assert!(forest.node(below(&own)).parent.is_some() || own.len() == 1);
        (below(&own), below(&other))
    }

    /// The queue to take from next: from the root to the child with the highest share each time.
    fn next_queue(&mut self) -> Option<QueueId> {
        let head = self.preemption.head;
        let forest = &self.view.world.forest;
        let root = forest.node(head.node).root;
        if root == head.node {
            return self.first(head.queue).map(|_| head.queue);
        }
        let own_path: BTreeSet<NodeId> = forest.ancestors(head.node).collect();
        while !self.pruned.contains(&root) {
            let mut cohort = root;
            loop {
                let queue = self.highest_queue(cohort);
                let child = self.highest_cohort(cohort, &own_path);
                match (queue, child) {
                    (Some((queue, queue_share)), Some((_, share))) if share.compare(queue_share).is_lt() => {
                        return Some(queue);
                    }
                    (_, Some((child, _))) => cohort = child,
                    (Some((queue, _)), None) => return Some(queue),
                    (None, None) => {
                        self.pruned.insert(cohort);
                        break;
                    }
                }
            }
        }
        None
    }

    fn highest_queue(&mut self, cohort: NodeId) -> Option<(QueueId, Share)> {
        let forest = &self.view.world.forest;
        let mut best: Option<(QueueId, Share, WorkloadId)> = None;
        for child in forest.node(cohort).children() {
            let Some(queue) = forest.node(child).queue.filter(|_| !self.pruned.contains(&child)) else {
                continue;
            };
            let share = self.share(child);
            let first = self.first(queue);
            let Some(first) = first.filter(|_| share.is_borrowing() || queue == self.preemption.head.queue)
            else {
                self.pruned.insert(child);
                continue;
            };
            let better = match &best {
                None => true,
                Some((_, other, workload)) => match share.compare(*other) {
                    Ordering::Greater => true,
                    Ordering::Equal => self.comes_before(first, *workload),
                    Ordering::Less => false,
                },
            };
            if better {
                best = Some((queue, share, first));
            }
        }
        best.map(|(queue, share, _)| (queue, share))
    }

    fn highest_cohort(&mut self, cohort: NodeId, own_path: &BTreeSet<NodeId>) -> Option<(NodeId, Share)> {
        let forest = &self.view.world.forest;
        let mut best: Option<(NodeId, Share)> = None;
        for child in forest.node(cohort).children() {
            if forest.node(child).queue.is_some() || self.pruned.contains(&child) {
                continue;
            }
            let share = self.share(child);
            if !share.is_borrowing() && !own_path.contains(&child) {
                self.pruned.insert(child);
            } else if best.is_none_or(|(_, other)| share.compare(other).is_gt()) {
                best = Some((child, share));
            }
        }
        best
    }

    /// The order of candidates of different queues: evicted first, other queues before the head's own, then as within a queue.
    fn comes_before(&self, a: WorkloadId, b: WorkloadId) -> bool {
        let key = |id: WorkloadId| {
            let workload = self.view.workload(id);
            let reservation = workload.reservation();
            (
                !reservation.is_some_and(|reservation| reservation.evicted),
                reservation.is_some_and(|reservation| reservation.queue == self.preemption.head.queue),
                CandidateKey {
                    priority: workload.priority,
                    reserved_at: std::cmp::Reverse(
                        reservation.map(|reservation| reservation.reserved_at).unwrap_or_default(),
                    ),
                    uid: workload.uid.clone(),
                    id,
                },
            )
        };
        key(a) < key(b)
    }
}

impl View<'_> {
    /// The dominant resource share of a node with the current usage.
    pub(crate) fn share(&self, node: NodeId) -> Share {
        share(&self.world.forest, &self.world.names, &self.world.lendable, self.usage, node)
    }
}

/// A node and its ancestors.
fn path(view: &View<'_>, node: NodeId) -> Vec<NodeId> {
    std::iter::once(node).chain(view.world.forest.ancestors(node)).collect()
}
