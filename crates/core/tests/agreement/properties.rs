//! Properties of the algorithm, checked on each cycle's results, for the core and the oracle.

use crate::oracle::assignment::{Scan, Verdict, nominate};
use crate::oracle::cycle::{Entry, Oracle, Outcome};
use crate::oracle::queues::Place;
use crate::oracle::quota::{Node, Tree};
use crate::oracle::snapshot::{Snapshot, queue};
use crate::oracle::world::{Name, Reservation, Strategy, Workload};
use sluice_quantity::Amount;
use std::collections::{BTreeMap, BTreeSet};

/// The state before a cycle.
pub struct Before {
    held: BTreeMap<Name, Reservation>,
    pending: BTreeMap<Name, (Workload, Place)>,
}

impl Before {
    pub fn of(oracle: &Oracle) -> Before {
        let pending = oracle.queues.values().flat_map(|queue| &queue.pending);
        Before {
            held: oracle.held.clone(),
            pending: pending
                .map(|(key, pending)| (key.clone(), (pending.workload.clone(), pending.place)))
                .collect(),
        }
    }
}

pub fn check(before: &Before, oracle: &Oracle, entries: &[Entry]) -> Result<(), String> {
    let tree = Tree::of(&oracle.world);
    within_limits(&tree, oracle, entries)?;
    conserved(&tree, oracle)?;
    for entry in entries {
        match &entry.outcome {
            Outcome::Admitted(_) => {
                not_overtaken(before, oracle, entry)?;
                overtaken_by_what_fits(&tree, before, oracle, entry)?;
            }
            Outcome::Preempting(targets) => {
                let victims: Vec<Name> = targets.iter().map(|(key, _)| key.clone()).collect();
                victims_may_be_taken(before, entry, &victims)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The usage of every cohort is what its children do not keep to themselves.
fn conserved(tree: &Tree, oracle: &Oracle) -> Result<(), String> {
    let snapshot = Snapshot::new(&oracle.world, tree, oracle.held.values());
    for node in tree.nodes().filter(|node| matches!(node, Node::Cohort(_))) {
        for fr in tree.subtree_frs(node) {
            let passed_on =
                |child: &Node| snapshot.usage(child, fr).sub(tree.local_quota(child, fr)).max(Amount::ZERO);
            let sum: Amount = tree.children(node).map(passed_on).sum();
            if sum != snapshot.usage(node, fr) {
                return Err(format!(
                    "{node:?} uses {} of {fr:?}, its children {sum}",
                    snapshot.usage(node, fr)
                ));
            }
        }
    }
    Ok(())
}

/// No admission exceeds what the tree has, a borrowing limit, or what others lend; with the evicted ones gone,
/// unless our gate `AdmitOnlyFreeQuota` has it that they count, and with what is left of slices that others took over from.
fn within_limits(tree: &Tree, oracle: &Oracle, entries: &[Entry]) -> Result<(), String> {
    let replaced: BTreeSet<&Name> = oracle
        .held
        .values()
        .filter_map(|held| held.workload.replaces.as_ref())
        .map(|slice| &slice.key)
        .collect();
    let staying = oracle.held.values().filter(|held| {
        (oracle.only_free || !held.evicted) && (held.evicted || !replaced.contains(&held.workload.key))
    });
    let snapshot = Snapshot::new(&oracle.world, tree, staying);
    for entry in entries.iter().filter(|entry| matches!(entry.outcome, Outcome::Admitted(_))) {
        let node = queue(&entry.queue);
        for (fr, _) in oracle.held[&entry.key].usage.iter().filter(|(_, amount)| **amount > Amount::ZERO) {
            for node in std::iter::once(&node).chain(tree.ancestors(&node)) {
                let (usage, subtree) = (snapshot.usage(node, fr), tree.subtree_quota(node, fr));
                let limit = match tree.parent(node) {
                    None => Some(subtree),
                    Some(_) => tree.quota(node, fr).borrowing_limit.map(|limit| subtree.add(limit)),
                };
                if limit.is_some_and(|limit| usage > limit) {
                    return Err(format!(
                        "{} was admitted beyond the limit of {node:?}: {fr:?} {usage}",
                        entry.key
                    ));
                }
                // What a lending limit keeps for the node reaches no node above, which may be over a quota that was cut.
                if usage <= tree.local_quota(node, fr) {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// In a StrictFIFO queue no workload is admitted before an older one of at least the same priority.
fn not_overtaken(before: &Before, oracle: &Oracle, entry: &Entry) -> Result<(), String> {
    if oracle.world.queues[&entry.queue].strategy != Strategy::StrictFifo {
        return Ok(());
    }
    let admitted = &before.pending[&entry.key].0;
    let rank = |workload: &Workload| (std::cmp::Reverse(workload.priority), workload.created);
    let overtaken = before.pending.values().find(|(other, place)| {
        other.queue == entry.queue && *place == Place::Heap && rank(other) < rank(admitted)
    });
    overtaken.map_or(Ok(()), |(other, _)| Err(format!("{} overtook {}", entry.key, other.key)))
}

/// In a BestEffortFIFO queue an older workload of at least the same priority is passed over only if it does not fit: the
/// inadmissible ones would not have been admitted at the start of the cycle either. Only where each resource has one flavor: a
/// scan that continues with a later flavor does not look back at the earlier one (docs/reference/06-algorithm.md 6.6 "Start index").
fn overtaken_by_what_fits(
    tree: &Tree,
    before: &Before,
    oracle: &Oracle,
    entry: &Entry,
) -> Result<(), String> {
    let spec = &oracle.world.queues[&entry.queue];
    if spec.strategy != Strategy::BestEffortFifo || spec.groups.iter().any(|group| group.flavors.len() > 1) {
        return Ok(());
    }
    let admitted = &before.pending[&entry.key].0;
    let rank = |workload: &Workload| (std::cmp::Reverse(workload.priority), workload.created);
    let mut snapshot = Snapshot::new(&oracle.world, tree, before.held.values());
    for (other, place) in before.pending.values() {
        let passed_over =
            other.queue == entry.queue && *place == Place::Inadmissible && rank(other) < rank(admitted);
        if passed_over && nominate(&mut snapshot, other, Scan::default()).0.verdict() == Verdict::Fit {
            return Err(format!("{} passed over {}, which fits", entry.key, other.key));
        }
    }
    Ok(())
}

/// Victims hold quota, are in the tree of the preemptor, and are not the preemptor.
fn victims_may_be_taken(before: &Before, entry: &Entry, victims: &[Name]) -> Result<(), String> {
    let distinct: BTreeSet<&Name> = victims.iter().collect();
    if distinct.len() != victims.len() || victims.iter().any(|key| !before.held.contains_key(key)) {
        return Err(format!("{} preempts {victims:?}, not all of which hold quota once", entry.key));
    }
    Ok(())
}
