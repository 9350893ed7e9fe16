//! One cycle (6.5): heads, snapshot, nomination, order, processing, requeueing.

use super::amounts::{beyond, reserved, usage_of};
use super::assignment::{Assignment, Scan, Verdict, nominate};
use super::ordering;
pub use super::outcome::{Entry, Outcome};
use super::queues::{LastAssignment, Pending, PendingQueue, Place, Requeue};
use super::quota::{Node, Tree};
use super::snapshot::{Snapshot, queue};
use super::world::{Admitted, Name, Policy, Queue, Reservation, Target, Time, Usage, Workload, World};
use sluice_quantity::Amount;
use std::collections::{BTreeMap, BTreeSet};

/// A head with its assignment and preemption targets.
pub struct Nominee {
    pub workload: Workload,
    pub assignment: Assignment,
    pub targets: Vec<Target>,
    /// How often something had been released in its tree when its scan began.
    since: u64,
    /// Others are kept from what it did not get.
    keeps_capacity: bool,
    /// The heads that only reserved what it would have got, since its scan began.
    kept_out_by: BTreeSet<Name>,
}

/// So often those who were kept out of a tree are tried again before something is released there (ours).
const MOST_RETRIES: usize = 12;

/// A world with its state.
pub struct Oracle {
    pub world: World,
    tree: Tree,
    pub queues: BTreeMap<Name, PendingQueue>,
    pub held: BTreeMap<Name, Reservation>,
    cycle: u64,
    /// By queue: how often its own workloads, or quota in its tree, changed.
    generations: BTreeMap<Name, u64>,
    /// By root: how often something was released there.
    freed: BTreeMap<Node, u64>,
    /// What is inadmissible, and was kept out by what these only reserved.
    kept_out: BTreeMap<Name, BTreeSet<Name>>,
    /// By root: how often those were tried again since the release of this number.
    retries: BTreeMap<Node, (u64, usize)>,
    /// Our gate `AdmitOnlyFreeQuota`: what a victim holds is not free before it is gone.
    pub only_free: bool,
}

impl Oracle {
    pub fn new(world: World) -> Oracle {
        let queues = world
            .queues
            .iter()
            .map(|(name, spec)| (name.clone(), PendingQueue::new(spec.strategy)))
            .collect();
        let tree = Tree::of(&world);
        Oracle {
            world,
            tree,
            queues,
            held: BTreeMap::new(),
            cycle: 0,
            generations: BTreeMap::new(),
            freed: BTreeMap::new(),
            kept_out: BTreeMap::new(),
            retries: BTreeMap::new(),
            only_free: false,
        }
    }

    /// Replaces the declaration of a queue, which stays in its cohort. Its tree is tried again.
    pub fn redeclare(&mut self, name: &Name, spec: Queue) {
        let before = self.world.queues.insert(name.clone(), spec.clone());
        self.tree = Tree::of(&self.world);
        // A change of policies alone leaves flavor scans where they are.
        if before.is_none_or(|before| (before.groups, before.weight) != (spec.groups, spec.weight)) {
            let root = self.root(name);
            let members: Vec<Name> =
                self.world.queues.keys().filter(|other| self.root(other) == root).cloned().collect();
            for member in members {
                self.advance_generation(&member);
            }
            *self.freed.entry(root).or_default() += 1;
        }
        self.flush(name);
    }

    fn root(&self, of: &Name) -> Node {
        self.tree.root(&queue(of)).clone()
    }

    fn advance_generation(&mut self, of: &Name) {
        *self.generations.entry(of.clone()).or_default() += 1;
    }

    fn generation(&self, of: &Name) -> u64 {
        self.generations.get(of).copied().unwrap_or_default()
    }

    fn freed(&self, of: &Name) -> u64 {
        self.freed.get(&self.root(of)).copied().unwrap_or_default()
    }

    /// A workload becomes pending.
    pub fn submit(&mut self, workload: Workload) {
        self.queues.get_mut(&workload.queue).expect("the queue exists").push(workload);
    }

    /// A pending workload is deleted; that flushes its tree.
    pub fn delete(&mut self, name: &Name, key: &Name) {
        self.queues.get_mut(name).expect("the queue exists").remove(key);
        self.kept_out.remove(key);
        self.flush(name);
    }

    /// A pending workload gets another priority; that flushes nothing, unless others were kept from quota by it.
    pub fn reprioritize(&mut self, name: &Name, key: &Name, priority: i32) {
        self.kept_out.remove(key);
        if self.queues.get_mut(name).expect("the queue exists").reprioritize(key, priority) {
            self.flush(name);
        }
    }

    /// A workload holds quota from now on.
    pub fn hold(&mut self, workload: Workload, admitted: Admitted, reserved_at: Time) {
        let usage = usage_of(&workload, &admitted, self.covers_pods(&workload.queue));
        let held = Reservation { workload, admitted, usage, reserved_at, evicted: false };
        self.held.insert(held.workload.key.clone(), held);
    }

    /// A slice got its quota: the one that it takes over from holds only what it has more of than that.
    fn take_over(&mut self, key: &Name, slice: &Name) {
        let taken = self.held[key].usage.clone();
        let queue = self.held[key].workload.queue.clone();
        if let Some(held) =
            self.held.get_mut(slice).filter(|held| held.workload.queue == queue && !held.evicted)
        {
            held.usage = beyond(&held.usage, &taken);
        }
    }

    fn covers_pods(&self, name: &Name) -> bool {
        self.world.queues[name]
            .groups
            .iter()
            .flat_map(|group| &group.covered)
            .any(|resource| &**resource == "pods")
    }

    /// A workload that held quota does no more. Does not flush.
    pub fn release(&mut self, key: &Name) -> Option<Workload> {
        let held = self.held.remove(key)?;
        self.advance_generation(&held.workload.queue);
        *self.freed.entry(self.root(&held.workload.queue)).or_default() += 1;
        Some(held.workload)
    }

    /// Everything inadmissible in the tree of this queue gets another chance.
    pub fn flush(&mut self, of: &Name) {
        let root = self.root(of);
        for (name, pending) in &mut self.queues {
            if *self.tree.root(&queue(name)) == root {
                pending.flush();
            }
        }
    }

    pub fn has_heads(&self) -> bool {
        self.queues
            .iter()
            .any(|(name, pending)| self.world.queues[name].active && pending.heap().next().is_some())
    }

    pub fn count(&self, place: Place) -> usize {
        let all = self.queues.values().flat_map(|queue| queue.pending.values());
        all.filter(|pending| pending.place == place).count()
    }

    /// The places of all pending workloads.
    pub fn places(&self) -> BTreeMap<Name, Place> {
        let all = self.queues.values().flat_map(|queue| &queue.pending);
        all.map(|(key, pending)| (key.clone(), pending.place)).collect()
    }

    fn heads(&mut self) -> Vec<Pending> {
        let mut heads = Vec::new();
        for (name, pending) in &mut self.queues {
            if self.world.queues[name].active
                && let Some(key) = pending.pop()
            {
                heads.push(pending.pending[&key].clone());
            }
        }
        heads
    }

    /// The scan continues where it stopped, unless capacity came back more than one cycle ago.
    fn resume<'p>(&self, head: &'p Pending) -> Option<&'p LastAssignment> {
        let valid = |last: &&LastAssignment| {
            let old = self.cycle - last.cycle > 1;
            !(old && self.generation(&head.workload.queue) > last.generation)
        };
        head.last.as_ref().filter(valid)
    }

    /// One cycle: what became of each head, in the order of processing.
    pub fn cycle(&mut self, now: Time) -> Vec<Entry> {
        self.cycle += 1;
        let heads = self.heads();
        let mut results = Vec::new();
        let reserving: BTreeSet<Name>;
        {
            let mut snapshot = Snapshot::new(&self.world, &self.tree, self.held.values());
            let mut nominees: Vec<Nominee> = heads
                .iter()
                .map(|head| {
                    let last = self.resume(head);
                    let scan = Scan { tried: last.map(|last| &last.tried), nominated: None };
                    let since = last.map_or_else(|| self.freed(&head.workload.queue), |last| last.since);
                    let (assignment, targets) = nominate(&mut snapshot, &head.workload, scan);
                    Nominee {
                        workload: head.workload.clone(),
                        assignment,
                        targets,
                        since,
                        keeps_capacity: false,
                        kept_out_by: last.map(|last| last.kept_out_by.clone()).unwrap_or_default(),
                    }
                })
                .collect();
            let mut processing = Processing {
                held: &self.held,
                victims: Vec::new(),
                admitted: Vec::new(),
                reserved: Vec::new(),
                replaced: Vec::new(),
                only_free: self.only_free,
            };
            if self.world.fair.is_some() {
                while let Some(nominee) = ordering::pop_fair(&mut snapshot, &mut nominees) {
                    results.push(processing.process(&mut snapshot, nominee));
                }
            } else {
                ordering::sort(&mut nominees);
                for nominee in nominees {
                    results.push(processing.process(&mut snapshot, nominee));
                }
            }
            reserving = processing.reserved.into_iter().map(|(key, ..)| key).collect();
        }
        let entries =
            results.into_iter().map(|(nominee, outcome)| self.conclude(nominee, outcome, now)).collect();
        self.retry_kept_out(&reserving);
        entries
    }

    /// Tries again what was kept out by heads that reserved nothing in this cycle, or are not heads of the next one.
    fn retry_kept_out(&mut self, reserving: &BTreeSet<Name>) {
        let places = self.places();
        let stays = |key: &Name| reserving.contains(key) && places.get(key) == Some(&Place::Heap);
        let ended = self.kept_out.iter().filter(|(_, by)| !by.iter().all(stays));
        let ended: Vec<Name> = ended.map(|(key, _)| key.clone()).collect();
        let mut trees: BTreeMap<Node, Vec<(Name, Name)>> = BTreeMap::new();
        for key in ended {
            self.kept_out.remove(&key);
            let of = self.queues.iter().find(|(_, queue)| queue.pending.contains_key(&key));
            if let Some((name, _)) = of.filter(|_| places.get(&key) == Some(&Place::Inadmissible)) {
                trees.entry(self.root(name)).or_default().push((name.clone(), key));
            }
        }
        for (root, concerned) in trees {
            let freed = self.freed.get(&root).copied().unwrap_or_default();
            let retries = self.retries.entry(root).or_default();
            *retries = (freed, if retries.0 == freed { retries.1 + 1 } else { 1 });
            if retries.1 <= MOST_RETRIES {
                for (name, key) in concerned {
                    self.queues.get_mut(&name).expect("the queue exists").retry(&key);
                }
            }
        }
    }

    /// Assumes an admission, marks victims, or requeues.
    fn conclude(&mut self, nominee: Nominee, outcome: Outcome, now: Time) -> Entry {
        let Nominee { workload, assignment, since, keeps_capacity, kept_out_by, .. } = nominee;
        let (key, name) = (workload.key.clone(), workload.queue.clone());
        self.kept_out.remove(&key);
        let last = LastAssignment {
            tried: assignment.tried(),
            cycle: self.cycle,
            generation: self.generation(&name),
            since,
            kept_out_by: kept_out_by.clone(),
        };
        // What waits for victims starts over with the first flavor.
        let (reason, last) = match &outcome {
            Outcome::Admitted(admitted) => {
                self.queues.get_mut(&name).expect("the queue exists").remove(&key);
                let slice = workload.replaces.as_ref().map(|slice| slice.key.clone());
                self.hold(workload, admitted.clone(), now);
                if let Some(slice) = slice.filter(|slice| *slice != key) {
                    self.take_over(&key, &slice);
                }
                return Entry { key, queue: name, outcome };
            }
            Outcome::Preempting(targets) => {
                for (victim, _) in targets {
                    let held = self.held.get_mut(victim).expect("victims hold quota");
                    if !std::mem::replace(&mut held.evicted, true) {
                        let queue = held.workload.queue.clone();
                        self.advance_generation(&queue);
                    }
                }
                (Requeue::PendingPreemption, None)
            }
            Outcome::Deferred => (Requeue::PendingPreemption, None),
            Outcome::NoFit => (Requeue::NoFit, Some(last)),
            Outcome::NoCandidates => (Requeue::PreemptionNoCandidates, Some(last)),
            Outcome::Gated => (Requeue::PreemptionGated, Some(last)),
            Outcome::Overlaps | Outcome::NoLongerFits => (Requeue::FailedAfterNomination, Some(last)),
        };
        let missed = self.freed(&name) > since;
        let pending = self.queues.get_mut(&name).expect("the queue exists");
        pending.requeue(&key, reason, last, missed);
        pending.note_capacity(&key, keeps_capacity);
        if pending.pending[&key].place == Place::Inadmissible && !kept_out_by.is_empty() {
            self.kept_out.insert(key.clone(), kept_out_by);
        }
        Entry { key, queue: name, outcome }
    }
}

/// Entries of one cycle, one after the other, against a snapshot that changes.
struct Processing<'a> {
    held: &'a BTreeMap<Name, Reservation>,
    /// All victims so far.
    victims: Vec<Name>,
    /// What was admitted so far, by queue.
    admitted: Vec<(Name, Usage)>,
    /// What heads reserved for which there are no victims: by which workload, and in which queue.
    reserved: Vec<(Name, Name, Usage)>,
    /// Slices that others take over from, or will.
    replaced: Vec<Name>,
    only_free: bool,
}

impl<'a> Processing<'a> {
    fn overlaps(&self, targets: &[Target]) -> bool {
        targets.iter().any(|(key, _)| self.is_taken(key))
    }

    fn is_taken(&self, key: &Name) -> bool {
        self.victims.contains(key) || self.replaced.contains(key)
    }

    /// Whether the nominee fits with all victims so far, its targets, and the slice that it takes over from, gone.
    fn fits(&self, snapshot: &mut Snapshot<'a>, nominee: &Nominee) -> bool {
        let Nominee { workload, assignment, targets, .. } = nominee;
        let (name, usage) = (&workload.queue, &assignment.usage);
        let slice = snapshot.replaced(workload).map(|slice| &slice.workload.key);
        let targets = targets.iter().map(|(key, _)| key);
        let mut gone: Vec<&Name> = self.victims.iter().chain(targets).chain(slice).collect();
        gone.sort();
        gone.dedup();
        for key in &gone {
            snapshot.remove_workload(&self.held[*key]);
        }
        let fits = snapshot.fits(name, usage);
        for key in &gone {
            snapshot.add_workload(&self.held[*key]);
        }
        fits
    }

    /// What reserved something in this tree, if the usage would fit but for that.
    fn would_fit_without(&self, snapshot: &mut Snapshot<'a>, nominee: &Nominee) -> BTreeSet<Name> {
        let name = &nominee.workload.queue;
        let root = snapshot.tree.root(&queue(name)).clone();
        let here = |(_, of, _): &&(Name, Name, Usage)| *snapshot.tree.root(&queue(of)) == root;
        let reserved: Vec<&(Name, Name, Usage)> = self.reserved.iter().filter(here).collect();
        for (_, of, usage) in &reserved {
            snapshot.remove(of, usage);
        }
        let fits = self.fits(snapshot, nominee);
        for (_, of, usage) in &reserved {
            snapshot.add(of, usage);
        }
        if fits { reserved.iter().map(|(key, ..)| key.clone()).collect() } else { BTreeSet::new() }
    }

    /// Whether the nominee fits beside everything that holds quota now, victims included.
    fn is_free(&self, snapshot: &Snapshot<'a>, nominee: &Nominee) -> bool {
        let (name, usage) = (&nominee.workload.queue, &nominee.assignment.usage);
        let mut now = Snapshot::new(snapshot.world, snapshot.tree, self.held.values());
        for (queue, usage) in &self.admitted {
            now.add(queue, usage);
        }
        if let Some(slice) = now.replaced(&nominee.workload) {
            now.remove_workload(slice);
        }
        now.fits(name, usage)
    }

    /// With all earlier victims gone, and only the flavors nominated before.
    fn recompute(&self, snapshot: &mut Snapshot<'a>, nominee: &mut Nominee) {
        let nominated = nominee.assignment.nominated();
        for key in &self.victims {
            snapshot.remove_workload(&self.held[key]);
        }
        for key in &self.replaced {
            snapshot.hide(&self.held[key]);
        }
        let scan = Scan { tried: None, nominated: Some(&nominated) };
        (nominee.assignment, nominee.targets) = nominate(snapshot, &nominee.workload, scan);
        for key in &self.replaced {
            snapshot.show(&self.held[key]);
        }
        for key in &self.victims {
            snapshot.add_workload(&self.held[key]);
        }
    }

    fn process(&mut self, snapshot: &mut Snapshot<'a>, mut nominee: Nominee) -> (Nominee, Outcome) {
        let outcome = self.outcome(snapshot, &mut nominee);
        (nominee, outcome)
    }

    fn outcome(&mut self, snapshot: &mut Snapshot<'a>, nominee: &mut Nominee) -> Outcome {
        let slice = snapshot.replaced(&nominee.workload);
        if slice.is_some_and(|slice| self.is_taken(&slice.workload.key)) {
            return Outcome::Overlaps;
        }
        let mut deferred = false;
        if self.overlaps(&nominee.targets) {
            self.recompute(snapshot, nominee);
            deferred = nominee.assignment.verdict() == Verdict::Fit;
        }
        let name = &nominee.workload.queue;
        let held = slice.map(|slice| slice.usage.clone()).unwrap_or_default();
        let usage = &beyond(&nominee.assignment.usage, &held);
        match nominee.assignment.verdict() {
            Verdict::NoFit => return Outcome::NoFit,
            Verdict::Preempt if nominee.targets.is_empty() => {
                let spec = &snapshot.world.queues[name];
                if spec.preemption.reclaim_within_cohort != Policy::Any {
                    let reserved = reserved(snapshot, name, usage, nominee.assignment.borrowing_height() > 0);
                    nominee.keeps_capacity = reserved.values().any(|amount| *amount > Amount::ZERO);
                    snapshot.add(name, &reserved);
                    if nominee.keeps_capacity {
                        self.reserved.push((nominee.workload.key.clone(), name.clone(), reserved));
                    }
                }
                return Outcome::NoCandidates;
            }
            Verdict::Preempt if nominee.workload.gated => return Outcome::Gated,
            Verdict::Preempt | Verdict::Fit => {}
        }
        let takes_capacity = usage.values().any(|amount| *amount > Amount::ZERO);
        if deferred {
            nominee.keeps_capacity = takes_capacity;
            snapshot.add(name, usage);
            return Outcome::Deferred;
        }
        if self.overlaps(&nominee.targets) {
            return Outcome::Overlaps;
        }
        let admits = nominee.targets.is_empty();
        if admits && self.only_free && !self.is_free(snapshot, nominee) {
            return Outcome::NoLongerFits;
        }
        if !self.fits(snapshot, nominee) {
            let by = self.would_fit_without(snapshot, nominee);
            nominee.kept_out_by.extend(by);
            return Outcome::NoLongerFits;
        }
        self.victims.extend(nominee.targets.iter().map(|(key, _)| key.clone()));
        self.replaced.extend(slice.map(|slice| slice.workload.key.clone()));
        snapshot.add(name, usage);
        if admits {
            self.admitted.push((name.clone(), usage.clone()));
            Outcome::Admitted(nominee.assignment.admitted())
        } else {
            nominee.keeps_capacity = takes_capacity;
            Outcome::Preempting(nominee.targets.clone())
        }
    }
}
