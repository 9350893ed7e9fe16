//! The core and the oracle side by side: the same events, the same cycles, the same outcomes.

use crate::oracle::cycle::{Entry, Oracle, Outcome};
use crate::oracle::queues::Place;
use crate::oracle::quota::{Node, Tree};
use crate::oracle::snapshot::Snapshot;
use crate::oracle::world::{Admitted, Fr, Name, Queue, Target, Time, Workload, World};
use crate::{properties, translate};
use sluice_core::{Amount, Detail, Gates, Outcome as CoreOutcome, Scheduler, WorkloadState};
use std::collections::{BTreeMap, BTreeSet};

/// What both say about a head. Their reasons differ in detail where nothing follows from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Admitted(Admitted),
    /// Victims, sorted.
    Preempting(Vec<Target>),
    /// No fit, or no workload to preempt.
    Refused,
    Gated,
    Deferred,
    Overlaps,
    NoLongerFits,
}

impl Decision {
    /// The names of the kinds, in their order.
    pub const KINDS: [&str; 7] =
        ["admitted", "preempting", "refused", "gated", "deferred", "overlaps", "no longer fits"];

    fn kind(&self) -> usize {
        match self {
            Self::Admitted(_) => 0,
            Self::Preempting(_) => 1,
            Self::Refused => 2,
            Self::Gated => 3,
            Self::Deferred => 4,
            Self::Overlaps => 5,
            Self::NoLongerFits => 6,
        }
    }
}

/// How often both decided alike, by [`Decision::KINDS`].
pub type Decisions = [u64; Decision::KINDS.len()];

/// Each kind of decision was taken often enough in `worlds` worlds. Gates are closed, and victims shared, too seldom in these to ask for.
pub fn decided_enough(decisions: Decisions, worlds: u64) {
    let [admitted, preempting, refused, _, deferred, _, no_longer_fits] = decisions;
    let figures: Vec<_> = Decision::KINDS.iter().zip(decisions).collect();
    eprintln!("{worlds} worlds: {figures:?}");
    assert!(admitted >= worlds && refused >= worlds, "{figures:?} in {worlds} worlds");
    assert!(preempting >= worlds / 20 && no_longer_fits >= worlds / 20, "{figures:?} in {worlds} worlds");
    assert!(deferred >= worlds / 20_000, "{figures:?} in {worlds} worlds");
}

fn sorted(mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort();
    targets
}

fn of_oracle(entry: &Entry) -> Decision {
    match &entry.outcome {
        Outcome::Admitted(admitted) => Decision::Admitted(admitted.clone()),
        Outcome::Preempting(targets) => Decision::Preempting(sorted(targets.clone())),
        Outcome::NoFit | Outcome::NoCandidates => Decision::Refused,
        Outcome::Gated => Decision::Gated,
        Outcome::Deferred => Decision::Deferred,
        Outcome::Overlaps => Decision::Overlaps,
        Outcome::NoLongerFits => Decision::NoLongerFits,
    }
}

fn of_core(outcome: &CoreOutcome) -> Decision {
    match outcome {
        CoreOutcome::Admitted { admission, .. } => Decision::Admitted(translate::admitted(admission)),
        CoreOutcome::Preempting { victims, .. } => {
            let target = |victim: &sluice_core::Victim| {
                (Name::from(victim.key.to_string()), translate::cause(victim.reason))
            };
            Decision::Preempting(sorted(victims.iter().map(target).collect()))
        }
        CoreOutcome::PreemptionGated(_) => Decision::Gated,
        CoreOutcome::Unadmitted(why) => match why.detail {
            Detail::NoLongerFits => Decision::NoLongerFits,
            Detail::OverlappingTargets => Decision::Overlaps,
            Detail::DeferredFit => Decision::Deferred,
            _ => Decision::Refused,
        },
        CoreOutcome::SecondPass(_)
        | CoreOutcome::SlicesMoved(_)
        | CoreOutcome::SliceReclaims(_)
        | CoreOutcome::NodesNotReplaced(..) => {
            unreachable!("no second pass is asked for here")
        }
    }
}

/// A world in both.
pub struct Pair {
    pub oracle: Oracle,
    pub core: Scheduler,
    now: Time,
    /// Whether anything was admitted or preempted in the last cycle.
    pub progress: bool,
    /// What both decided so far.
    pub decisions: Decisions,
    /// Check promises and audit in every cycle, too.
    pub thorough: bool,
    /// Print what happens (`SLUICE_TRACE=1`).
    trace: bool,
}

/// What went wrong; the seed or index is added by the caller.
pub type Check = Result<(), String>;

/// What the queues of a subtree hold together, whatever reaches the level above.
fn held_below(tree: &Tree, snapshot: &Snapshot, node: &Node, fr: &Fr) -> Amount {
    match node {
        Node::Queue(_) => snapshot.usage(node, fr),
        Node::Cohort(_) => tree
            .children(node)
            .fold(Amount::ZERO, |sum, child| sum.add(held_below(tree, snapshot, child, fr))),
    }
}

impl Pair {
    pub fn new(world: World, gates: &Gates) -> Pair {
        let core = scheduler(&world, gates.clone());
        let trace = std::env::var_os("SLUICE_TRACE").is_some();
        if trace {
            eprintln!("{world:#?}");
        }
        let mut oracle = Oracle::new(world);
        oracle.only_free = gates.admit_only_free_quota;
        Pair {
            oracle,
            core,
            now: 2_000_000,
            progress: false,
            decisions: Decisions::default(),
            thorough: true,
            trace,
        }
    }

    pub fn submit(&mut self, workload: Workload) {
        if self.trace {
            eprintln!("arrives: {workload:?}");
        }
        let spec = translate::workload(&workload, WorkloadState::PENDING);
        self.core.set_workload(spec, translate::time(self.now));
        self.oracle.submit(workload);
    }

    /// What was evicted, and still holds quota.
    pub fn evicted(&self) -> Vec<Name> {
        self.oracle.held.values().filter(|held| held.evicted).map(|held| held.workload.key.clone()).collect()
    }

    /// A workload gives its quota back: gone, or pending again.
    pub fn release(&mut self, key: &Name, requeue: bool) {
        if self.trace {
            eprintln!("leaves: {key}, to come back: {requeue}");
        }
        let workload = self.oracle.release(key).expect("it holds quota");
        let queue = workload.queue.clone();
        if requeue {
            let spec = translate::workload(&workload, WorkloadState::PENDING);
            self.core.set_workload(spec, translate::time(self.now));
            self.oracle.submit(workload);
        } else {
            self.core.remove_workload(&translate::key(key), translate::time(self.now));
        }
        self.oracle.flush(&queue);
    }

    /// A pending workload is deleted.
    pub fn delete(&mut self, queue: &Name, key: &Name) {
        if self.trace {
            eprintln!("deleted: {key}");
        }
        self.core.remove_workload(&translate::key(key), translate::time(self.now));
        self.oracle.delete(queue, key);
    }

    /// A pending workload gets another priority.
    pub fn reprioritize(&mut self, queue: &Name, key: &Name, priority: i32) {
        let mut workload = self.oracle.queues[queue].pending[key].workload.clone();
        if workload.priority == priority {
            return;
        }
        if self.trace {
            eprintln!("priority of {key}: {priority}");
        }
        workload.priority = priority;
        let spec = translate::workload(&workload, WorkloadState::PENDING);
        self.core.set_workload(spec, translate::time(self.now));
        self.oracle.reprioritize(queue, key, priority);
    }

    /// Declares a queue again. The same declaration again is no event; the core flushes with the next event, and
    /// reading what changed is one.
    pub fn redeclare(&mut self, name: &Name, queue: Queue) {
        if self.oracle.world.queues.get(name) == Some(&queue) {
            return;
        }
        self.core.set_cluster_queue(translate::queue(name, &queue));
        let _ = self.core.take_changed();
        self.oracle.redeclare(name, queue);
    }

    /// One cycle in both; they must decide alike, and the core must keep its promises.
    pub fn cycle(&mut self) -> Check {
        self.now += 1;
        let before = self.thorough.then(|| properties::Before::of(&self.oracle));
        let expected = self.oracle.cycle(self.now);
        let report = self.core.cycle(translate::time(self.now));
        self.progress = expected
            .iter()
            .any(|entry| matches!(entry.outcome, Outcome::Admitted(_) | Outcome::Preempting(_)));

        let entries: BTreeMap<Name, Decision> = report
            .entries
            .iter()
            .map(|entry| (Name::from(entry.key.to_string()), of_core(&entry.outcome)))
            .collect();
        let all: BTreeMap<Name, Decision> =
            expected.iter().map(|entry| (entry.key.clone(), of_oracle(entry))).collect();
        if self.trace {
            eprintln!("cycle {}: {all:?}\n  then {:?}", self.now, self.oracle.places());
        }
        if entries != all {
            return Err(format!("the core decided {entries:#?},\nthe oracle {all:#?}"));
        }
        for decision in all.values() {
            self.decisions[decision.kind()] += 1;
        }
        self.same_places()?;
        let Some(before) = before else { return Ok(()) };
        self.same_usage()?;
        self.core.audit().map_err(|differences| format!("audit: {differences:?}"))?;
        properties::check(&before, &self.oracle, &expected)
    }

    /// Every pending workload is in the same place.
    pub fn same_places(&self) -> Check {
        let mut places = BTreeMap::new();
        for queue in self.oracle.world.queues.keys() {
            for position in self.core.positions(queue) {
                let place = if position.active { Place::Heap } else { Place::Inadmissible };
                places.insert(Name::from(position.key.to_string()), place);
            }
        }
        let expected = self.oracle.places();
        if places == expected {
            Ok(())
        } else {
            Err(format!("places in the core {places:?},\nin the oracle {expected:?}"))
        }
    }

    /// Every queue holds the same, and every cohort sums it up in the same way.
    fn same_usage(&self) -> Check {
        let tree = Tree::of(&self.oracle.world);
        let snapshot = Snapshot::new(&self.oracle.world, &tree, self.oracle.held.values());
        for node in tree.nodes() {
            let frs = tree.subtree_frs(node);
            match node {
                Node::Queue(name) => {
                    let status = self.core.cluster_queue_status(name).ok_or("a queue is missing")?;
                    let reserving =
                        self.oracle.held.values().filter(|held| held.workload.queue == *name).count();
                    if status.reserving != reserving {
                        return Err(format!(
                            "{name}: {} hold quota in the core, not {reserving}",
                            status.reserving
                        ));
                    }
                }
                Node::Cohort(name) => {
                    let status = self.core.cohort_status(name).ok_or("a cohort is missing")?;
                    let line = |fr: &Fr| {
                        let quota = tree.subtree_quota(node, fr);
                        (fr.flavor.clone(), fr.resource.clone(), quota, snapshot.usage(node, fr))
                    };
                    let expected: BTreeSet<_> = frs.map(line).collect();
                    let found: BTreeSet<_> = status.subtree.iter().cloned().collect();
                    if found != expected {
                        return Err(format!("{name}: {found:?} in the core, not {expected:?}"));
                    }
                    let held = |fr: &Fr| {
                        let held = held_below(&tree, &snapshot, node, fr);
                        (fr.flavor.clone(), fr.resource.clone(), held)
                    };
                    let expected: Vec<_> = tree.subtree_frs(node).map(held).collect();
                    let (mut found, _) = self.core.cohort_reservations(name);
                    found.sort_unstable();
                    if found != expected {
                        return Err(format!("{name}: {found:?} held below in the core, not {expected:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Cycles until nothing moves, everything evicted leaves at once and comes back. False if that takes too long.
    pub fn settle(&mut self, most: usize) -> Result<bool, String> {
        let mut quiet = 0;
        for _ in 0..most {
            self.cycle()?;
            for key in self.evicted() {
                self.release(&key, true);
            }
            quiet = if self.progress { 0 } else { quiet + 1 };
            // A flavor scan continues for some cycles before anything moves again.
            if quiet > 3 || !self.oracle.has_heads() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A core with this world declared.
pub fn scheduler(world: &World, gates: Gates) -> Scheduler {
    let mut core = Scheduler::new(translate::config(world, gates));
    for (name, flavor) in &world.flavors {
        core.set_flavor(translate::flavor(name, flavor));
    }
    for (name, cohort) in &world.cohorts {
        core.set_cohort(translate::cohort(name, cohort));
    }
    for (name, queue) in &world.queues {
        core.set_namespace(name, Vec::new());
        core.set_cluster_queue(translate::queue(name, queue));
        core.set_local_queue(translate::local_queue(name));
    }
    core
}
