//! Queues (6.4): active heap, inadmissible map, requeueing, flush, equivalence hashing, sticky preemptor.

use super::assignment::Tried;
use super::world::{Name, PodSet, Strategy, Workload};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Heap,
    Inadmissible,
    InFlight,
}

/// Why a head goes back to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    NoFit,
    PreemptionNoCandidates,
    PreemptionGated,
    PendingPreemption,
    FailedAfterNomination,
}

/// How far the scan over flavors went, and when.
#[derive(Clone, Debug)]
pub struct LastAssignment {
    pub tried: Tried,
    pub cycle: u64,
    pub generation: u64,
    /// How often something had been released in the tree when the scan began.
    pub since: u64,
    /// The heads that only reserved what it would have got, since the scan began.
    pub kept_out_by: BTreeSet<Name>,
}

impl LastAssignment {
    fn has_pending_flavors(&self) -> bool {
        self.tried.values().flat_map(BTreeMap::values).any(|index| *index != -1)
    }
}

/// How many cycles in a row a scan may leave unfinished (ours). No group of the worlds that are compared has more flavors.
const MOST_SCANS: usize = 12;

#[derive(Clone, Debug)]
pub struct Pending {
    pub workload: Workload,
    pub place: Place,
    pub last: Option<LastAssignment>,
    /// Cycles in a row that left its scan unfinished.
    scans: usize,
    /// In its last cycle it kept others from what it did not get.
    keeps_capacity: bool,
}

/// What makes two workloads equal to the scheduler.
type Shape = (i32, Vec<PodSet>);

fn shape(workload: &Workload) -> Shape {
    (workload.priority, workload.pod_sets.clone())
}

#[derive(Clone, Debug)]
pub struct PendingQueue {
    strategy: Strategy,
    pub pending: BTreeMap<Name, Pending>,
    preemptor: Option<Name>,
    failed_shapes: BTreeSet<Shape>,
    pops: u64,
    /// The value of `pops` at the last flush.
    flushed: Option<u64>,
}

impl PendingQueue {
    pub fn new(strategy: Strategy) -> PendingQueue {
        PendingQueue {
            strategy,
            pending: BTreeMap::new(),
            preemptor: None,
            failed_shapes: BTreeSet::new(),
            pops: 0,
            flushed: None,
        }
    }

    /// Whether its class has failed. One that takes over from another has no equals.
    fn has_failed(&self, workload: &Workload) -> bool {
        let shared = self.best_effort() && workload.replaces.is_none();
        shared && self.failed_shapes.contains(&shape(workload))
    }

    /// Equivalence hashing and the sticky preemptor are for BestEffortFIFO only.
    fn best_effort(&self) -> bool {
        self.strategy == Strategy::BestEffortFifo
    }

    /// The sticky preemptor first; higher priority; older; UID.
    fn order<'w>(&self, workload: &'w Workload) -> impl Ord + use<'w> {
        let sticky = self.best_effort() && self.preemptor.as_ref() == Some(&workload.key);
        (!sticky, Reverse(workload.priority), workload.created, &workload.uid)
    }

    /// Adds a workload that just became pending.
    pub fn push(&mut self, workload: Workload) {
        let failed = self.has_failed(&workload);
        let place = if failed { Place::Inadmissible } else { Place::Heap };
        let pending = Pending { workload, place, last: None, scans: 0, keeps_capacity: false };
        self.pending.insert(pending.workload.key.clone(), pending);
    }

    /// Another priority for a pending workload: its scan starts again. It stays in the heap if it is there; otherwise it goes there,
    /// unless its new class has failed. Says whether it kept others from anything.
    pub fn reprioritize(&mut self, key: &Name, priority: i32) -> bool {
        let mut workload = self.pending[key].workload.clone();
        workload.priority = priority;
        let failed = self.has_failed(&workload);
        let pending = self.pending.get_mut(key).expect("it is pending");
        (pending.workload, pending.last, pending.scans) = (workload, None, 0);
        if pending.place == Place::Inadmissible && !failed {
            pending.place = Place::Heap;
        }
        std::mem::take(&mut pending.keeps_capacity)
    }

    /// Notes whether a head kept others from what it did not get.
    pub fn note_capacity(&mut self, key: &Name, keeps_capacity: bool) {
        self.pending.get_mut(key).expect("heads stay known to their queue").keeps_capacity = keeps_capacity;
    }

    pub fn heap(&self) -> impl Iterator<Item = &Pending> {
        self.pending.values().filter(|pending| pending.place == Place::Heap)
    }

    pub fn pop(&mut self) -> Option<Name> {
        self.pops += 1;
        let head = self.heap().min_by(|a, b| self.order(&a.workload).cmp(&self.order(&b.workload)))?;
        let key = head.workload.key.clone();
        self.place(&key, Place::InFlight);
        Some(key)
    }

    fn place(&mut self, key: &Name, place: Place) {
        if let Some(pending) = self.pending.get_mut(key) {
            pending.place = place;
        }
    }

    /// Removes a workload from the queue; only that makes the queue forget its preemptor.
    pub fn remove(&mut self, key: &Name) -> Option<Workload> {
        if self.preemptor.as_ref() == Some(key) {
            self.preemptor = None;
        }
        self.pending.remove(key).map(|pending| pending.workload)
    }

    /// With `missed`, something was released in the tree since the scan began, maybe in a flavor that was tried before.
    pub fn requeue(&mut self, key: &Name, reason: Requeue, last: Option<LastAssignment>, missed: bool) {
        if reason == Requeue::PendingPreemption {
            self.preemptor = Some(key.clone());
        }
        let immediate = match self.strategy {
            Strategy::StrictFifo => true,
            Strategy::BestEffortFifo => {
                matches!(reason, Requeue::PendingPreemption | Requeue::FailedAfterNomination)
            }
        };
        let flushed = self.flushed.is_some_and(|at| at >= self.pops);
        let pending = self.pending.get_mut(key).expect("heads stay known to their queue");
        let unfinished = last.as_ref().is_some_and(LastAssignment::has_pending_flavors);
        let pending_flavors = unfinished && pending.scans < MOST_SCANS;
        pending.scans = if pending_flavors { pending.scans + 1 } else { 0 };
        pending.last = last.filter(|_| pending_flavors);
        let searched = matches!(reason, Requeue::NoFit | Requeue::PreemptionNoCandidates);
        if immediate || flushed || pending_flavors || (searched && missed) {
            pending.place = Place::Heap;
            return;
        }
        pending.place = Place::Inadmissible;
        let shape = shape(&pending.workload);
        let alone = pending.workload.replaces.is_some();
        if self.best_effort() && searched && !alone {
            let equal = |pending: &&mut Pending| {
                pending.place == Place::Heap
                    && pending.workload.replaces.is_none()
                    && pending.workload.priority == shape.0
                    && pending.workload.pod_sets == shape.1
            };
            for pending in self.pending.values_mut().filter(equal) {
                pending.place = Place::Inadmissible;
            }
            self.failed_shapes.insert(shape);
        }
    }

    /// A workload gets another chance, and all that are equal.
    pub fn retry(&mut self, key: &Name) {
        if self.pending[key].workload.replaces.is_some() {
            return self.place(key, Place::Heap);
        }
        let equal = shape(&self.pending[key].workload);
        for pending in self.pending.values_mut().filter(|pending| pending.workload.replaces.is_none()) {
            if pending.place == Place::Inadmissible && shape(&pending.workload) == equal {
                pending.place = Place::Heap;
            }
        }
        self.failed_shapes.remove(&equal);
    }

    /// Everything inadmissible gets another chance.
    pub fn flush(&mut self) {
        for pending in self.pending.values_mut().filter(|pending| pending.place == Place::Inadmissible) {
            pending.place = Place::Heap;
        }
        self.failed_shapes.clear();
        self.flushed = Some(self.pops);
    }
}
