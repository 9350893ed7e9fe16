//! What must hold after the faults: every Workload that can be admitted is, and the messages of the others say why not.
//!
//! The oracle gets the same objects. Each admission that it would still make is one that the manager has missed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::Kind;
use sluice_quantity::Amount;
use sluice_sim::Simulation;

use super::objects::{self, Seen};
use super::oracle::assignment::{Scan, Verdict, nominate};
use super::oracle::cycle::{Oracle, Outcome};
use super::oracle::quota::Tree;
use super::oracle::snapshot::Snapshot;
use super::oracle::world::{FairStrategy, Fr, Name, Strategy, Workload, World};

/// Cycles of the oracle after which it has looked at every Workload, and more than once.
const CYCLES: i64 = 60;

/// What is left undone or unreported.
pub fn check(simulation: &Simulation, fair: Option<Vec<FairStrategy>>) -> Result<(), String> {
    let world = objects::world(simulation, fair);
    let seen = objects::workloads(simulation);
    statuses(simulation, &seen)?;
    for (key, waiting) in seen.iter().filter(|(_, seen)| seen.held.is_none() && !seen.finished) {
        if !is_behind_another(waiting, &seen) {
            reported(&world, waiting).map_err(|why| format!("{key}: {why}"))?;
        }
    }
    let mut stuck = stuck(&world, &seen);
    while let Some(undone) = undone(&world, &seen, &stuck) {
        if several_searches(&world, &seen[&undone.key]) && is_made_possible(&world, &seen, &stuck, &undone) {
            stuck.insert(undone.key);
            continue;
        }
        if undone.victims.is_empty() {
            return Err(format!("{} waits, and could be admitted", undone.key));
        }
        return Err(format!(
            "{} waits, and could preempt {}",
            undone.key,
            objects::names(undone.victims.iter())
        ));
    }
    Ok(())
}

/// A Workload that waits, and would get quota, perhaps that of others.
struct Undone {
    key: Name,
    victims: Vec<Name>,
}

/// Whether its victims are what lets it preempt them: without them it would not be admitted, so that nothing was left undone until they were.
/// One pod set takes what the next one needs, unless others hold that: then it takes another flavor, and preempts for the next.
fn is_made_possible(
    world: &World,
    seen: &BTreeMap<Name, Seen>,
    stuck: &BTreeSet<Name>,
    undone: &Undone,
) -> bool {
    let alone = |(key, seen): (&Name, &Seen)| {
        let there = seen.held.is_some() && !undone.victims.contains(key) || *key == undone.key;
        there.then(|| (key.clone(), seen.clone()))
    };
    let before: BTreeMap<_, _> = seen.iter().filter_map(alone).collect();
    let mut oracle = oracle(world, &before, stuck);
    for now in 0..CYCLES {
        if !oracle.has_heads() {
            break;
        }
        let admitted = |outcome: &Outcome| matches!(outcome, Outcome::Admitted(_));
        if oracle.cycle(now).iter().any(|entry| entry.key == undone.key && admitted(&entry.outcome)) {
            return false;
        }
    }
    !undone.victims.is_empty()
}

/// An oracle that knows what there is.
fn oracle(world: &World, seen: &BTreeMap<Name, Seen>, stuck: &BTreeSet<Name>) -> Oracle {
    let mut oracle = Oracle::new(world.clone());
    oracle.only_free = true;
    for seen in seen.values() {
        let exists = oracle.world.queues.contains_key(&seen.plain.queue);
        match &seen.held {
            Some(held) if oracle.world.queues.contains_key(&held.workload.queue) => {
                oracle.held.insert(seen.plain.key.clone(), held.clone());
            }
            None if exists && seen.may_run && !seen.finished && !stuck.contains(&seen.plain.key) => {
                oracle.submit(seen.plain.clone());
            }
            _ => {}
        }
    }
    oracle
}

/// What the oracle would do first.
fn undone(world: &World, seen: &BTreeMap<Name, Seen>, stuck: &BTreeSet<Name>) -> Option<Undone> {
    let mut oracle = oracle(world, seen, stuck);
    let evicted: Vec<Name> =
        oracle.held.values().filter(|h| h.evicted).map(|h| h.workload.key.clone()).collect();
    for now in 0..CYCLES {
        if !oracle.has_heads() {
            break;
        }
        for entry in oracle.cycle(now) {
            let victims = match entry.outcome {
                Outcome::Admitted(_) => Vec::new(),
                Outcome::Preempting(targets) if targets.iter().any(|(key, _)| !evicted.contains(key)) => {
                    targets.into_iter().map(|(key, _)| key).collect()
                }
                _ => continue,
            };
            return Some(Undone { key: entry.key, victims });
        }
    }
    None
}

/// Our guard against preemption in circles holds some back for a time that nothing but a change from outside ends, and with them those who
/// are behind them in a StrictFIFO queue.
fn stuck(world: &World, seen: &BTreeMap<Name, Seen>) -> BTreeSet<Name> {
    let is_held_back =
        |seen: &Seen| seen.waits_for.as_ref().is_some_and(|(_, why)| why.contains("Preemption is held back"));
    let waiting: Vec<_> = seen.values().filter(|seen| seen.held.is_none() && !seen.finished).collect();
    let first: Vec<_> = waiting.iter().filter(|seen| is_held_back(seen)).collect();
    let strict =
        |queue: &Name| world.queues.get(queue).is_some_and(|queue| queue.strategy == Strategy::StrictFifo);
    let stuck = waiting.iter().filter(|seen| {
        let behind = |first: &Workload| {
            first.queue == seen.plain.queue && rank(first) <= rank(&seen.plain) && strict(&first.queue)
        };
        is_held_back(seen) || first.iter().any(|first| behind(&first.plain))
    });
    stuck.map(|seen| seen.plain.key.clone()).collect()
}

/// The place in a queue.
fn rank(workload: &Workload) -> (Reverse<i32>, i64) {
    (Reverse(workload.priority), workload.created)
}

/// Whether a Workload before it in its queue would fit, if others did not take its room in each cycle again: it is tried again and again,
/// and no Workload behind it is looked at (docs/reference/06-algorithm.md 6.4 "Requeue after a cycle").
fn is_behind_another(of: &Seen, seen: &BTreeMap<Name, Seen>) -> bool {
    let again = ["Workload no longer fits", "Workload has overlapping preemption targets"];
    let own = &of.plain;
    let before = |plain: &Workload| plain.key != own.key && rank(plain) <= rank(own);
    let waits = |other: &Seen| other.held.is_none() && other.plain.queue == own.queue && before(&other.plain);
    let tried = |(_, message): &(String, String)| again.iter().any(|text| message.starts_with(text));
    seen.values().any(|other| waits(other) && other.waits_for.as_ref().is_some_and(tried))
}

/// Whether the reason in a Workload's status for waiting holds.
fn reported(world: &World, seen: &Seen) -> Result<(), String> {
    // No cycle looks at those behind the head of a StrictFIFO queue, or does again.
    if world.queues.get(&seen.plain.queue).is_some_and(|queue| queue.strategy == Strategy::StrictFifo) {
        return Ok(());
    }
    let Some((reason, message)) = &seen.waits_for else {
        return Err("waits, and no reason is reported".to_owned());
    };
    let holds = match reason.as_str() {
        // It would not fit alone. (Where several searches through flavors continue side by side, what is reported
        // is of where they were last.)
        "ExceedsMaxQuota" | "NoMatchingFlavor" => several_searches(world, seen) || !fits_alone(world, seen),
        "Suspended" => !seen.may_run || world.queues.get(&seen.plain.queue).is_none_or(|queue| !queue.active),
        "Misconfigured" => !world.queues.contains_key(&seen.plain.queue),
        _ => !message.is_empty(),
    };
    if holds { Ok(()) } else { Err(format!("waits, and the reason does not hold: {reason}: {message}")) }
}

fn several_searches(world: &World, seen: &Seen) -> bool {
    let groups = world.queues.get(&seen.plain.queue).map_or(0, |queue| queue.groups.len());
    seen.plain.pod_sets.len() * groups > 1
}

/// With all its pods: the message of a workload that may run with fewer says why all do not fit.
fn fits_alone(world: &World, seen: &Seen) -> bool {
    let Some(queue) = world.queues.get(&seen.plain.queue) else { return false };
    let tree = Tree::of(world);
    let mut empty = Snapshot::new(world, &tree, std::iter::empty());
    let mut whole = seen.plain.clone();
    whole.pod_sets.iter_mut().for_each(|set| set.min_count = None);
    queue.active && nominate(&mut empty, &whole, Scan::default()).0.verdict() == Verdict::Fit
}

/// What the statuses of the ClusterQueues say is what their Workloads hold.
fn statuses(simulation: &Simulation, seen: &BTreeMap<Name, Seen>) -> Result<(), String> {
    let mut held: BTreeMap<(Name, Fr), Amount> = BTreeMap::new();
    for one in seen.values().filter_map(|seen| seen.held.as_ref()) {
        for (fr, amount) in &one.usage {
            let sum = held.entry((one.workload.queue.clone(), fr.clone())).or_default();
            *sum = sum.add(*amount);
        }
    }
    for (reference, queue) in simulation.objects(Kind::ClusterQueue) {
        for (fr, reported) in objects::reservation(queue) {
            let sum = held.get(&(reference.name.clone(), fr.clone())).copied().unwrap_or_default();
            if reported != sum {
                let own =
                    |seen: &&Seen| seen.held.as_ref().is_some_and(|h| h.workload.queue == reference.name);
                let holders = objects::names(seen.values().filter(own).map(|seen| &seen.plain.key));
                return Err(format!(
                    "the status of {reference} says {reported} of {fr:?} are reserved, it is {sum} ({holders})"
                ));
            }
        }
    }
    Ok(())
}
