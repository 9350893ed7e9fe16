//! The order of heads under fair sharing (docs/reference/06-algorithm.md 6.5 "Ordering with fair sharing"): a tournament over the tree; after each
//! round only the path of the winner is computed again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, Precedence};
use crate::Name;
use crate::fair_sharing::{Share, share};
use crate::intern::{NodeId, WorkloadId};
use crate::scheduler::Scheduler;
use crate::spec::Time;

/// The key by which a contender is compared with its siblings: the fields are in order of importance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ContenderKey {
    /// Remembered preemptors first (gate PrioritizePreemptorWorkloads, or the loop guard).
    precedence: Precedence,
    /// Heads that do not borrow what they request first (gate FairSharingPrioritizeNonBorrowing).
    borrowing: bool,
    share: ByShare,
    /// Higher first (gate PrioritySortingWithinCohort).
    priority: Reverse<i32>,
    order: Time,
    uid: Name,
    workload: WorkloadId,
}

/// Shares in their order.
#[derive(Debug, Clone, Copy)]
struct ByShare(Share);

impl Ord for ByShare {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.compare(other.0)
    }
}

impl PartialOrd for ByShare {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByShare {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ByShare {}

/// The contenders at one Cohort: the best of each child.
#[derive(Debug, Default)]
struct CohortRound {
    contenders: BTreeSet<(ContenderKey, NodeId)>,
    by_child: BTreeMap<NodeId, ContenderKey>,
}

/// All heads of a cycle that are not processed yet.
pub(super) struct Tournament {
    /// The position of each ClusterQueue's entry: of several, the last one, its head.
    entries: BTreeMap<NodeId, usize>,
    /// The others, which are second passes: they have their turn with it.
    second_passes: BTreeMap<NodeId, Vec<usize>>,
    rounds: BTreeMap<NodeId, CohortRound>,
    /// Roots with entries: first the one whose entry waited until all pods are ready.
    roots: BTreeSet<(Precedence, NodeId)>,
    /// The queue whose path changed since.
    last: Option<NodeId>,
}

impl Tournament {
    /// Plays the first round everywhere.
    pub(super) fn new(scheduler: &mut Scheduler, entries: &[Entry]) -> Self {
        let mut tournament = Self {
            entries: BTreeMap::new(),
            second_passes: BTreeMap::new(),
            rounds: BTreeMap::new(),
            roots: BTreeSet::new(),
            last: None,
        };
        let mut nodes = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            let node = entry.head.node;
            let root = scheduler.world.forest.node(node).root;
            let precedence = if entry.precedence == Precedence::Blocked {
                Precedence::Blocked
            } else {
                Precedence::InOrder
            };
            if precedence == Precedence::Blocked {
                tournament.roots.remove(&(Precedence::InOrder, root));
            }
            if !tournament.roots.contains(&(Precedence::Blocked, root)) {
                tournament.roots.insert((precedence, root));
            }
            nodes.push(node);
            if let Some(second_pass) = tournament.entries.insert(node, at) {
                tournament.second_passes.entry(node).or_default().push(second_pass);
            }
        }
        // A Cohort is played once all of its children are: the deepest first.
        let mut due: BTreeSet<(Reverse<u32>, NodeId)> = BTreeSet::new();
        for node in nodes {
            tournament.enter(scheduler, entries, node, node, &mut due);
        }
        while let Some((_, cohort)) = due.pop_first() {
            if let Some(winner) = tournament.winner(cohort) {
                tournament.enter(scheduler, entries, cohort, winner, &mut due);
            }
        }
        tournament
    }

    /// The places of the second passes that have their turn before an entry that is out. Not in Kueue (docs/reference/06-algorithm.md 6.5: a quirk): the
    /// reference leaves them out as long as their queue has a head, and that may wait for good.
    pub(super) fn second_passes_before(&mut self, entry: &Entry) -> Vec<usize> {
        self.second_passes.remove(&entry.head.node).unwrap_or_default()
    }

    /// Enters a child's best entry, that of `queue`, into the round of its parent.
    fn enter(
        &mut self,
        scheduler: &mut Scheduler,
        entries: &[Entry],
        child: NodeId,
        queue: NodeId,
        due: &mut BTreeSet<(Reverse<u32>, NodeId)>,
    ) {
        let Some(parent) = scheduler.world.forest.node(child).parent else { return };
        let Some(&at) = self.entries.get(&queue) else { return };
        let rank = rank(scheduler, &entries[at], child);
        let round = self.rounds.entry(parent).or_default();
        if let Some(old) = round.by_child.insert(child, rank.clone()) {
            round.contenders.remove(&(old, child));
        }
        round.contenders.insert((rank, child));
        due.insert((Reverse(scheduler.world.forest.node(parent).depth), parent));
    }

    /// The queue whose entry wins the round of a node.
    fn winner(&self, node: NodeId) -> Option<NodeId> {
        let mut at = node;
        loop {
            if self.entries.contains_key(&at) {
                return Some(at);
            }
            at = self.rounds.get(&at)?.contenders.first()?.1;
        }
    }

    /// The place of the next entry in `entries`.
    pub(super) fn pop(&mut self, scheduler: &mut Scheduler, entries: &[Entry]) -> Option<usize> {
        if let Some(last) = self.last.take() {
            self.replay(scheduler, entries, last);
        }
        let first = *self.roots.first()?;
        let Some(queue) = self.winner(first.1) else {
            self.roots.remove(&first);
            return self.pop(scheduler, entries);
        };
        self.last = Some(queue);
        self.entries.remove(&queue)
    }

    /// Plays the rounds on the way of a queue whose entry is out again: its usage changed, and only there shares do.
    fn replay(&mut self, scheduler: &mut Scheduler, entries: &[Entry], queue: NodeId) {
        let mut child = queue;
        while let Some(parent) = scheduler.world.forest.node(child).parent {
            if let Some(round) = self.rounds.get_mut(&parent)
                && let Some(old) = round.by_child.remove(&child)
            {
                round.contenders.remove(&(old, child));
            }
            if let Some(winner) = self.winner(child) {
                self.enter(scheduler, entries, child, winner, &mut BTreeSet::new());
            }
            child = parent;
        }
    }
}

/// How an entry compares at `child`, an ancestor of its queue or the queue itself, with its usage added.
fn rank(scheduler: &mut Scheduler, entry: &Entry, child: NodeId) -> ContenderKey {
    let (world, usage) = (&scheduler.world, &mut scheduler.books.usage);
    let (forest, gates) = (&world.forest, &world.config.gates);
    let mark = usage.mark();
    let replaced = entry.replaced.map_or(&[][..], |slice| world.workloads.usage_of(slice));
    for &(_, slot, amount) in replaced {
        usage.remove(&forest.quota, slot, amount);
    }
    for quantity in &entry.assignment.usage {
        usage.add(&forest.quota, quantity.slot, quantity.amount);
    }
    let node = forest.node(child);
    let borrowing =
        gates.fair_sharing_prioritize_non_borrowing
            && entry.assignment.usage.iter().filter(|quantity| quantity.amount > 0).any(|quantity| {
                node.slot(quantity.pair).is_some_and(|slot| forest.quota.borrowing(usage, slot))
            });
    let share = share(forest, &world.names, &world.lendable, usage, child);
    usage.rollback(&mark);
    ContenderKey {
        precedence: entry.precedence,
        borrowing,
        share: ByShare(share),
        priority: Reverse(if gates.priority_sorting_within_cohort { entry.head.priority } else { 0 }),
        order: entry.head.order,
        uid: entry.key.uid.clone(),
        workload: entry.head.workload,
    }
}
