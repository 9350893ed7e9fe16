//! Classical preemption (6.7).

use super::preemption::{Preemptor, held_in, restore};
use super::quota::Node;
use super::snapshot::{Snapshot, queue};
use super::world::{Cause, Fr, Policy, Reservation, Target, Usage};
use sluice_quantity::Amount;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    WithinQueue,
    Hierarchical,
    ReclaimWithoutBorrowing,
    ReclaimWhileBorrowing,
}

impl Variant {
    fn cause(self) -> Cause {
        match self {
            Variant::WithinQueue => Cause::InClusterQueue,
            Variant::Hierarchical | Variant::ReclaimWithoutBorrowing => Cause::InCohortReclamation,
            Variant::ReclaimWhileBorrowing => Cause::InCohortReclaimWhileBorrowing,
        }
    }
}

#[derive(Clone)]
struct Candidate<'s> {
    held: &'s Reservation,
    variant: Variant,
    /// The lowest common ancestor with the preemptor's queue.
    common: Option<Node>,
}

/// Whether requests fit in the node's quota without borrowing, and what of them is left for its parent.
fn fit_in_quota(snapshot: &Snapshot<'_>, node: &Node, requests: &Usage) -> (bool, Usage) {
    let fits = requests.iter().all(|(fr, amount)| !snapshot.borrowing_with(node, fr, *amount));
    let rest = |(fr, amount): (&Fr, &Amount)| {
        (fr.clone(), amount.sub(snapshot.local_available(node, fr)).max(Amount::ZERO))
    };
    (fits, requests.iter().map(rest).collect())
}

fn variant(
    snapshot: &Snapshot<'_>,
    preemptor: &Preemptor<'_>,
    held: &Reservation,
    advantage: bool,
) -> Variant {
    if advantage {
        return Variant::Hierarchical;
    }
    match preemptor.queue(snapshot).preemption.borrow_within_cohort {
        None => Variant::ReclaimWithoutBorrowing,
        Some(borrow) => {
            let priority = held.workload.priority;
            let protected = priority >= preemptor.workload.priority
                || borrow.threshold.is_some_and(|most| priority > most);
            if protected { Variant::ReclaimWithoutBorrowing } else { Variant::ReclaimWhileBorrowing }
        }
    }
}

/// Collects below `node`, but not below `skip`, and not where nothing needed is borrowed.
fn collect<'s>(
    snapshot: &Snapshot<'s>,
    preemptor: &Preemptor<'_>,
    (node, common, skip): (&Node, &Node, &Node),
    advantage: bool,
    into: &mut Vec<Candidate<'s>>,
) {
    let policy = preemptor.queue(snapshot).preemption.reclaim_within_cohort;
    for child in snapshot.tree.children(node) {
        if child == skip || snapshot.is_within_nominal(child, &preemptor.needed) {
            continue;
        }
        match child {
            Node::Cohort(_) => collect(snapshot, preemptor, (child, common, skip), advantage, into),
            Node::Queue(name) => {
                if !snapshot.world.queues[name].active {
                    continue;
                }
                for held in held_in(snapshot, name) {
                    if preemptor.uses_needed(held) && preemptor.satisfies(policy, &held.workload) {
                        let variant = variant(snapshot, preemptor, held, advantage);
                        into.push(Candidate { held, variant, common: Some(common.clone()) });
                    }
                }
            }
        }
    }
}

/// Candidates of other queues: those over which the preemptor has a hierarchical advantage, and the others.
fn from_other_queues<'s>(
    snapshot: &Snapshot<'s>,
    preemptor: &Preemptor<'_>,
) -> (Vec<Candidate<'s>>, Vec<Candidate<'s>>) {
    let (mut hierarchical, mut priority) = (Vec::new(), Vec::new());
    let own = queue(&preemptor.workload.queue);
    if preemptor.queue(snapshot).preemption.reclaim_within_cohort == Policy::Never {
        return (hierarchical, priority);
    }
    let (mut advantage, mut remaining) = fit_in_quota(snapshot, &own, &preemptor.requests);
    let mut skip = &own;
    for ancestor in snapshot.tree.ancestors(&own) {
        let list = if advantage { &mut hierarchical } else { &mut priority };
        collect(snapshot, preemptor, (ancestor, ancestor, skip), advantage, list);
        let (fits, rest) = fit_in_quota(snapshot, ancestor, &remaining);
        advantage |= fits;
        remaining = rest;
        skip = ancestor;
    }
    (hierarchical, priority)
}

/// Whether the candidate may be taken now: its queue, and each cohort below the common one, must still borrow.
fn is_valid(
    snapshot: &Snapshot<'_>,
    preemptor: &Preemptor<'_>,
    candidate: &Candidate<'_>,
    allow_borrowing: bool,
) -> bool {
    let Some(common) = &candidate.common else {
        return true;
    };
    if allow_borrowing && candidate.variant == Variant::ReclaimWithoutBorrowing {
        return false;
    }
    let node = queue(&candidate.held.workload.queue);
    std::iter::once(&node)
        .chain(snapshot.tree.ancestors(&node).take_while(|ancestor| *ancestor != common))
        .all(|node| !snapshot.is_within_nominal(node, &preemptor.needed))
}

pub fn targets(snapshot: &mut Snapshot<'_>, preemptor: &Preemptor<'_>) -> Vec<Target> {
    let (hierarchical, priority) = from_other_queues(snapshot, preemptor);
    let own = preemptor.candidates_in_own_queue(snapshot).into_iter();
    let own: Vec<_> =
        own.map(|held| Candidate { held, variant: Variant::WithinQueue, common: None }).collect();

    let node = queue(&preemptor.workload.queue);
    let borrowing_forbidden = preemptor.queue(snapshot).preemption.borrow_within_cohort.is_none();
    let under_nominal =
        preemptor.needed.iter().all(|fr| snapshot.usage(&node, fr) < snapshot.tree.quota(&node, fr).nominal);
    let none_from_others = hierarchical.is_empty() && priority.is_empty();
    let attempts: &[bool] = if none_from_others || (borrowing_forbidden && !under_nominal) {
        &[true]
    } else if borrowing_forbidden && hierarchical.is_empty() {
        &[false, true]
    } else {
        &[true, false]
    };

    let mut lists = [hierarchical, priority, own];
    for list in &mut lists {
        list.sort_by(|a, b| preemptor.order(a.held).cmp(&preemptor.order(b.held)));
    }
    let of =
        |evicted: bool| lists.iter().flatten().filter(move |candidate| candidate.held.evicted == evicted);
    let candidates: Vec<&Candidate<'_>> = of(true).chain(of(false)).collect();

    for allow_borrowing in attempts {
        let mut victims = Vec::new();
        for candidate in &candidates {
            if !is_valid(snapshot, preemptor, candidate, *allow_borrowing) {
                continue;
            }
            snapshot.remove_workload(candidate.held);
            victims.push((candidate.held, candidate.variant.cause()));
            if preemptor.fits(snapshot, *allow_borrowing) {
                return preemptor.fill_back(snapshot, victims, *allow_borrowing);
            }
        }
        restore(snapshot, &victims);
    }
    Vec::new()
}
