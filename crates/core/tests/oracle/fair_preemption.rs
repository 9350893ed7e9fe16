//! Preemption under fair sharing (6.8).

use super::preemption::{Preemptor, held_in, restore};
use super::quota::Node;
use super::share::{Share, share};
use super::snapshot::{Snapshot, queue};
use super::world::{Cause, FairStrategy, Name, Policy, Reservation, Target};
use std::collections::{BTreeMap, BTreeSet};

/// Candidates by queue, each list in candidate order; the state of one walk over target queues.
struct Targets<'s, 'p> {
    preemptor: &'p Preemptor<'p>,
    candidates: BTreeMap<Name, Vec<&'s Reservation>>,
    pruned: BTreeSet<Node>,
}

impl<'s, 'p> Targets<'s, 'p> {
    fn new(preemptor: &'p Preemptor<'p>, candidates: Vec<&'s Reservation>) -> Self {
        let mut by_queue: BTreeMap<Name, Vec<&'s Reservation>> = BTreeMap::new();
        for held in candidates {
            by_queue.entry(held.workload.queue.clone()).or_default().push(held);
        }
        Targets { preemptor, candidates: by_queue, pruned: BTreeSet::new() }
    }

    fn first(&self, queue: &Name) -> Option<&'s Reservation> {
        self.candidates.get(queue).and_then(|list| list.first()).copied()
    }

    fn take_first(&mut self, queue: &Name) -> Option<&'s Reservation> {
        let list = self.candidates.get_mut(queue)?;
        if list.is_empty() { None } else { Some(list.remove(0)) }
    }

    /// The queue to take a victim from.
    fn next(&mut self, snapshot: &Snapshot<'_>) -> Option<Name> {
        let own = queue(&self.preemptor.workload.queue);
        let root = snapshot.tree.root(&own).clone();
        if root == own {
            return self.first(&self.preemptor.workload.queue).map(|held| held.workload.queue.clone());
        }
        while !self.pruned.contains(&root) {
            if let Some(queue) = self.descend(snapshot, &root) {
                return Some(queue);
            }
        }
        None
    }

    /// Goes down to the child with the highest share; prunes what can give nothing, and then finds nothing.
    fn descend(&mut self, snapshot: &Snapshot<'_>, cohort: &Node) -> Option<Name> {
        let own = queue(&self.preemptor.workload.queue);
        let mut best_queue: Option<(Share, Name)> = None;
        let mut best_cohort: Option<(Share, Node)> = None;
        for child in snapshot.tree.children(cohort) {
            if self.pruned.contains(child) {
                continue;
            }
            let share = share(snapshot, child);
            let on_own_path = *child == own || snapshot.tree.ancestors(&own).any(|node| node == child);
            if !share.borrowing && !on_own_path {
                self.pruned.insert(child.clone());
                continue;
            }
            match child {
                Node::Cohort(_) => {
                    if best_cohort.as_ref().is_none_or(|(best, _)| share.compare(*best).is_gt()) {
                        best_cohort = Some((share, child.clone()));
                    }
                }
                Node::Queue(name) => {
                    let Some(first) = self.first(name) else {
                        self.pruned.insert(child.clone());
                        continue;
                    };
                    let better = best_queue.as_ref().is_none_or(|(best, other)| {
                        let tie = || {
                            let other = self.first(other).expect("only queues with candidates are kept");
                            self.preemptor.order(other).cmp(&self.preemptor.order(first))
                        };
                        share.compare(*best).then_with(tie).is_gt()
                    });
                    if better {
                        best_queue = Some((share, name.clone()));
                    }
                }
            }
        }
        match (best_cohort, best_queue) {
            (None, None) => {
                self.pruned.insert(cohort.clone());
                None
            }
            (Some((of_cohort, node)), best_queue)
                if best_queue.as_ref().is_none_or(|(of_queue, _)| of_cohort.compare(*of_queue).is_ge()) =>
            {
                self.descend(snapshot, &node)
            }
            (_, best_queue) => best_queue.map(|(_, name)| name),
        }
    }
}

/// The children of the lowest common ancestor on the paths from both queues.
fn almost_common(snapshot: &Snapshot<'_>, own: &Name, other: &Name) -> (Node, Node) {
    let path = |name: &Name| -> Vec<Node> {
        let node = queue(name);
        let ancestors: Vec<Node> = snapshot.tree.ancestors(&node).cloned().collect();
        std::iter::once(node).chain(ancestors).collect()
    };
    let (own, other) = (path(own), path(other));
    let below = |path: &[Node], against: &[Node]| {
        path.iter().take_while(|node| !against.contains(node)).last().cloned().expect("the queues differ")
    };
    (below(&own, &other), below(&other, &own))
}

fn candidates<'s>(snapshot: &Snapshot<'s>, preemptor: &Preemptor<'_>) -> Vec<&'s Reservation> {
    let mut found = preemptor.candidates_in_own_queue(snapshot);
    let own = queue(&preemptor.workload.queue);
    let policy = preemptor.queue(snapshot).preemption.reclaim_within_cohort;
    if policy != Policy::Never && snapshot.tree.parent(&own).is_some() {
        for (name, other) in &snapshot.world.queues {
            let node = queue(name);
            let elsewhere = snapshot.tree.root(&node) != snapshot.tree.root(&own);
            if node == own
                || elsewhere
                || !other.active
                || snapshot.is_within_nominal(&node, &preemptor.needed)
            {
                continue;
            }
            found.extend(
                held_in(snapshot, name).filter(|held| {
                    preemptor.uses_needed(held) && preemptor.satisfies(policy, &held.workload)
                }),
            );
        }
    }
    found.sort_by(|a, b| preemptor.order(a).cmp(&preemptor.order(b)));
    found
}

/// One search: victims so far, and those left for the second strategy.
struct Search<'s, 'p> {
    preemptor: &'p Preemptor<'p>,
    victims: Vec<(&'s Reservation, Cause)>,
    retry: Vec<&'s Reservation>,
}

impl<'s> Search<'s, '_> {
    /// Removes a victim; true if the workload fits now.
    fn take(&mut self, snapshot: &mut Snapshot<'s>, held: &'s Reservation, cause: Cause) -> bool {
        snapshot.remove_workload(held);
        self.victims.push((held, cause));
        snapshot.remove(&self.preemptor.workload.queue, &self.preemptor.requests);
        let fits = self.preemptor.fits(snapshot, true);
        snapshot.add(&self.preemptor.workload.queue, &self.preemptor.requests);
        fits
    }

    /// Whether the preemptor's queue, the incoming workload included, borrows nothing that is needed.
    fn within_nominal(&self, snapshot: &Snapshot<'_>) -> bool {
        snapshot.is_within_nominal(&queue(&self.preemptor.workload.queue), &self.preemptor.needed)
    }

    fn first_strategy(
        &mut self,
        snapshot: &mut Snapshot<'s>,
        candidates: Vec<&'s Reservation>,
        strategy: FairStrategy,
    ) -> bool {
        let own = self.preemptor.workload.queue.clone();
        let mut targets = Targets::new(self.preemptor, candidates);
        let within_nominal = self.within_nominal(snapshot);
        while let Some(from) = targets.next(snapshot) {
            let unconditional = if from == own {
                Some(Cause::InClusterQueue)
            } else if within_nominal {
                Some(Cause::InCohortReclamation)
            } else {
                None
            };
            if let Some(cause) = unconditional {
                let held = targets.take_first(&from).expect("the walk yields queues with candidates");
                if self.take(snapshot, held, cause) {
                    return true;
                }
                continue;
            }
            let (own_node, other_node) = almost_common(snapshot, &own, &from);
            let new = share(snapshot, &own_node);
            let old = share(snapshot, &other_node);
            while let Some(held) = targets.take_first(&from) {
                snapshot.remove_workload(held);
                let after = share(snapshot, &other_node);
                snapshot.add_workload(held);
                if passes(strategy, new, old, after) {
                    if self.take(snapshot, held, Cause::InCohortFairSharing) {
                        return true;
                    }
                    break;
                }
                self.retry.push(held);
            }
        }
        false
    }

    fn second_strategy(&mut self, snapshot: &mut Snapshot<'s>) -> bool {
        let own = self.preemptor.workload.queue.clone();
        let mut targets = Targets::new(self.preemptor, std::mem::take(&mut self.retry));
        while let Some(from) = targets.next(snapshot) {
            let (own_node, other_node) = almost_common(snapshot, &own, &from);
            let (new, old) = (share(snapshot, &own_node), share(snapshot, &other_node));
            if passes(FairStrategy::LessThanInitialShare, new, old, old) {
                let held = targets.take_first(&from).expect("the walk yields queues with candidates");
                if self.take(snapshot, held, Cause::InCohortFairSharing) {
                    return true;
                }
            }
            targets.candidates.remove(&from);
        }
        false
    }
}

fn passes(strategy: FairStrategy, new: Share, old: Share, after: Share) -> bool {
    if new.is_infinite() && !old.is_infinite() {
        return false;
    }
    match strategy {
        FairStrategy::LessThanOrEqualToFinalShare => new.compare(after).is_le(),
        FairStrategy::LessThanInitialShare => new.compare(old).is_lt(),
    }
}

pub fn targets(
    snapshot: &mut Snapshot<'_>,
    preemptor: &Preemptor<'_>,
    strategies: &[FairStrategy],
) -> Vec<Target> {
    let candidates = candidates(snapshot, preemptor);
    if candidates.is_empty() {
        return Vec::new();
    }
    snapshot.add(&preemptor.workload.queue, &preemptor.requests);
    let mut search = Search { preemptor, victims: Vec::new(), retry: Vec::new() };
    let fits = search.first_strategy(snapshot, candidates, strategies[0])
        || (strategies.len() > 1 && search.second_strategy(snapshot));
    snapshot.remove(&preemptor.workload.queue, &preemptor.requests);
    if fits {
        return preemptor.fill_back(snapshot, search.victims, true);
    }
    restore(snapshot, &search.victims);
    Vec::new()
}
