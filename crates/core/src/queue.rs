//! The pending workloads of one ClusterQueue: order, heap, inadmissible ones, equivalence classes, the sticky preemptor
//! (docs/reference/06-algorithm.md 6.4).
//!
//! Pending workloads are kept by equivalence class (shape and priority; and LocalQueue, if admission fair sharing orders the queue). All members of a
//! class share every answer of the scheduler. Making all of them inadmissible after one did not fit, and flushing them back, exchanges two sets
//! instead of moving members one by one.

mod audit;
mod head;
mod shapes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Name;
use crate::intern::{ClassId, LocalId, ShapeId, WorkloadId};
use crate::plan::Plan;
use crate::reason::{Reason, Unadmitted};
use crate::report::PendingClasses;
use crate::spec::Time;

/// The order of workloads of equal priority: the older queue-order timestamp first, then the UID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey {
    pub(crate) order: Time,
    pub(crate) uid: Name,
    pub(crate) id: WorkloadId,
}

/// The common properties of a class's members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassKey {
    pub(crate) shape: ShapeId,
    pub(crate) priority: i32,
    /// The only member of its class: a slice of an elastic job needs less than others of its shape, and room is kept for a displaced workload. Such a
    /// class never fails as a whole.
    pub(crate) alone: Option<WorkloadId>,
    pub(crate) local: Option<LocalId>,
}

/// Where in its class a workload waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The heap.
    Active,
    /// Inadmissible until the next flush.
    Inadmissible,
    /// Inadmissible until its namespace matches, its backoff ends or its condition Requeued flips.
    OnHold,
    /// On hold, but in its place: in a StrictFIFO queue those behind it wait for it.
    Paused,
}

/// The pending workloads of one class.
#[derive(Debug, Clone)]
pub(crate) struct EquivalenceClass {
    pub(crate) key: ClassKey,
    active: BTreeSet<OrderKey>,
    inadmissible: BTreeSet<OrderKey>,
    on_hold: BTreeSet<OrderKey>,
    /// Why the class failed as a whole: newcomers are inadmissible without being tried.
    failed: Option<Arc<Unadmitted>>,
    /// Members that were not reported the reason in `reported` yet.
    unreported: Vec<WorkloadId>,
    reported: Option<Reason>,
    /// The compiled plan and the queue's version that it is for.
    plan: Option<(u64, Arc<Plan>)>,
    /// It is kept without a member, because its class failed; it counts as a user of its shape.
    remembered: bool,
}

impl EquivalenceClass {
    fn new(key: ClassKey) -> Self {
        Self {
            key,
            active: BTreeSet::new(),
            inadmissible: BTreeSet::new(),
            on_hold: BTreeSet::new(),
            failed: None,
            unreported: Vec::new(),
            reported: None,
            plan: None,
            remembered: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.active.is_empty() && self.inadmissible.is_empty() && self.on_hold.is_empty()
    }

    fn set(&mut self, placement: Placement) -> &mut BTreeSet<OrderKey> {
        match placement {
            Placement::Active => &mut self.active,
            Placement::Inadmissible => &mut self.inadmissible,
            Placement::OnHold | Placement::Paused => &mut self.on_hold,
        }
    }
}

/// How many failed classes without members are remembered.
const MAX_REMEMBERED_CLASSES: usize = 256;

type HeadKey = (Reverse<i32>, OrderKey, ClassId);

/// The pending workloads of a ClusterQueue.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingQueue {
    classes: Vec<Option<EquivalenceClass>>,
    free: Vec<ClassId>,
    index: BTreeMap<ClassKey, ClassId>,
    /// The first active member of each class.
    heads: BTreeSet<HeadKey>,
    /// Those on hold that keep their place.
    paused: BTreeSet<HeadKey>,
    /// Classes with inadmissible members, or that failed as a whole.
    to_flush: BTreeSet<ClassId>,
    /// The workload that preempted.
    preemptor: Option<WorkloadId>,
    /// How many classes are remembered without a member.
    remembered: usize,
    active: usize,
    inadmissible: usize,
}

impl PendingQueue {
    /// The LocalQueues that have classes of their own.
    pub(crate) fn locals(&self) -> impl Iterator<Item = LocalId> + '_ {
        self.index.keys().filter_map(|key| key.local)
    }

    /// How many are in the heap.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// How many are inadmissible, for any reason.
    pub(crate) fn inadmissible(&self) -> usize {
        self.inadmissible
    }

    /// How many equivalence classes have members.
    pub(crate) fn scheduling_hashes(&self) -> PendingClasses {
        let mut counted = PendingClasses::default();
        // With admission fair sharing a shape and priority have a class for each LocalQueue, which are adjacent.
        let mut last = None;
        let (mut has_active, mut has_inadmissible) = (false, false);
        for (key, &id) in &self.index {
            let shape = Some((key.shape, key.priority));
            if shape != last {
                (last, has_active, has_inadmissible) = (shape, false, false);
            }
            let class = self.class(id);
            let active = !class.active.is_empty();
            let inadmissible = !class.inadmissible.is_empty() || !class.on_hold.is_empty();
            let known = has_active || has_inadmissible;
            counted.all += usize::from(!known && (active || inadmissible));
            counted.active += usize::from(!has_active && active);
            counted.inadmissible += usize::from(!has_inadmissible && inadmissible);
            (has_active, has_inadmissible) = (has_active || active, has_inadmissible || inadmissible);
        }
        counted
    }

    /// How many equivalence classes there are.
    pub(crate) fn classes(&self) -> usize {
        self.index.len()
    }

    /// A flush would do something.
    pub(crate) fn has_inadmissible(&self) -> bool {
        !self.to_flush.is_empty()
    }

    /// A class.
    pub(crate) fn class(&self, id: ClassId) -> &EquivalenceClass {
        self.classes[id.at()].as_ref().expect("a class is used only while a workload is in it")
    }

    fn class_mut(&mut self, id: ClassId) -> &mut EquivalenceClass {
        self.classes[id.at()].as_mut().expect("a class is used only while a workload is in it")
    }

    /// The class with this key, made if there is none.
    pub(crate) fn ensure_class(&mut self, key: ClassKey) -> ClassId {
        if let Some(&id) = self.index.get(&key) {
            return id;
        }
        // With admission fair sharing, the class of another LocalQueue may have failed already.
        let failed = self.of_all_local_queues(key).find_map(|id| self.class(id).failed.clone());
        let mut class = EquivalenceClass::new(key);
        let is_failed = failed.is_some();
        class.failed = failed;
        let id = if let Some(id) = self.free.pop() {
            self.classes[id.at()] = Some(class);
            id
        } else {
            self.classes.push(Some(class));
            ClassId::new(self.classes.len() - 1)
        };
        if is_failed {
            self.to_flush.insert(id);
        }
        self.index.insert(key, id);
        id
    }

    fn of_all_local_queues(&self, key: ClassKey) -> impl Iterator<Item = ClassId> + '_ {
        let from = ClassKey { local: None, ..key };
        let to = ClassKey { local: Some(LocalId(u32::MAX)), ..key };
        self.index.range(from..=to).map(|(_, &id)| id)
    }

    /// Adds a workload to a class. If the class failed the workload becomes inadmissible instead of active, unless `even_if_failed`. Returns where it
    /// is.
    pub(crate) fn push(
        &mut self,
        id: ClassId,
        key: OrderKey,
        placement: Placement,
        even_if_failed: bool,
    ) -> Placement {
        let class = self.class_mut(id);
        let placement = if placement == Placement::Active && !even_if_failed && class.failed.is_some() {
            Placement::Inadmissible
        } else {
            placement
        };
        class.unreported.push(key.id);
        if class.unreported.len() > 64
            && class.unreported.len()
                > 4 * (class.active.len() + class.inadmissible.len() + class.on_hold.len())
        {
            class.unreported.sort_unstable();
            class.unreported.dedup();
        }
        match placement {
            Placement::Active => self.insert_active(id, key),
            Placement::Inadmissible | Placement::OnHold | Placement::Paused => {
                if placement == Placement::Paused {
                    self.paused.insert((Reverse(self.class(id).key.priority), key.clone(), id));
                }
                if self.class_mut(id).set(placement).insert(key) {
                    self.inadmissible += 1;
                }
                if placement == Placement::Inadmissible {
                    self.to_flush.insert(id);
                }
            }
        }
        placement
    }

    /// Why the class failed as a whole, if it did.
    pub(crate) fn failed(&self, id: ClassId) -> Option<Arc<Unadmitted>> {
        self.class(id).failed.clone()
    }

    fn insert_active(&mut self, id: ClassId, key: OrderKey) {
        let class = self.classes[id.at()].as_mut().expect("a class is used only while a workload is in it");
        let priority = Reverse(class.key.priority);
        let first = class.active.first();
        if first.is_none_or(|first| key < *first) {
            if let Some(first) = first {
                self.heads.remove(&(priority, first.clone(), id));
            }
            self.heads.insert((priority, key.clone(), id));
        }
        if class.active.insert(key) {
            self.active += 1;
        }
    }

    fn remove_active(&mut self, id: ClassId, key: &OrderKey) -> bool {
        let class = self.classes[id.at()].as_mut().expect("a class is used only while a workload is in it");
        let priority = Reverse(class.key.priority);
        let was_first = class.active.first() == Some(key);
        if !class.active.remove(key) {
            return false;
        }
        self.active -= 1;
        if was_first {
            self.heads.remove(&(priority, key.clone(), id));
            if let Some(next) = class.active.first() {
                self.heads.insert((priority, next.clone(), id));
            }
        }
        true
    }

    /// Takes a workload out; says where it was.
    pub(crate) fn remove(&mut self, id: ClassId, key: &OrderKey) -> Option<Placement> {
        if self.remove_active(id, key) {
            return Some(Placement::Active);
        }
        let class = self.class_mut(id);
        let placement = [Placement::Inadmissible, Placement::OnHold]
            .into_iter()
            .find(|&placement| class.set(placement).remove(key))?;
        let priority = Reverse(class.key.priority);
        self.inadmissible -= 1;
        if !self.paused.is_empty() {
            self.paused.remove(&(priority, key.clone(), id));
        }
        Some(placement)
    }

    /// Where a workload is.
    pub(crate) fn placement(&self, id: ClassId, key: &OrderKey) -> Option<Placement> {
        let class = self.class(id);
        if class.active.contains(key) {
            Some(Placement::Active)
        } else if class.inadmissible.contains(key) {
            Some(Placement::Inadmissible)
        } else if class.on_hold.contains(key) {
            Some(Placement::OnHold)
        } else {
            None
        }
    }

    /// Removes a class without members. Called while none of its heads is in a cycle. A failed class is remembered until the next flush, so that new
    /// workloads are not tried in vain: the first time, its shape gets one more user, which is returned.
    pub(crate) fn drop_if_empty(&mut self, id: ClassId) -> Option<ShapeId> {
        let class =
            self.classes.get_mut(id.at()).and_then(Option::as_mut).filter(|class| class.is_empty())?;
        if class.failed.is_none() {
            self.drop_class(id);
            return None;
        }
        if class.remembered {
            return None;
        }
        if self.remembered >= MAX_REMEMBERED_CLASSES {
            self.drop_class(id);
            return None;
        }
        class.remembered = true;
        class.unreported = Vec::new();
        self.remembered += 1;
        Some(class.key.shape)
    }

    fn drop_class(&mut self, id: ClassId) {
        let key = self.class(id).key;
        self.index.remove(&key);
        self.classes[id.at()] = None;
        self.to_flush.remove(&id);
        self.free.push(id);
    }

    /// Makes a whole class inadmissible: what is in the heap, and newcomers until the next flush. Returns the members to
    /// which this reason was not reported before.
    pub(crate) fn mark_inadmissible(&mut self, id: ClassId, why: &Arc<Unadmitted>) -> Vec<WorkloadId> {
        let classes: Vec<ClassId> = self.of_all_local_queues(self.class(id).key).collect();
        let mut unreported = Vec::new();
        for id in classes {
            let class = self.classes[id.at()].as_mut().expect("the index lists only classes in use");
            if let Some(first) = class.active.first() {
                self.heads.remove(&(Reverse(class.key.priority), first.clone(), id));
            }
            if class.reported == Some(why.reason) {
                unreported.append(&mut class.unreported);
            } else {
                unreported.extend(class.active.iter().map(|key| key.id));
                class.unreported.clear();
                class.reported = Some(why.reason);
            }
            self.active -= class.active.len();
            self.inadmissible += class.active.len();
            merge(&mut class.inadmissible, &mut class.active);
            class.failed = Some(why.clone());
            self.to_flush.insert(id);
        }
        unreported.sort_unstable();
        unreported.dedup();
        unreported
    }

    /// Puts everything that is inadmissible until a flush back into the heap, and forgets which classes failed. Not called while a head is in a
    /// cycle. Returns the shapes that have one user less.
    #[must_use]
    pub(crate) fn flush(&mut self) -> Vec<ShapeId> {
        let mut released = Vec::new();
        while let Some(id) = self.to_flush.pop_first() {
            released.extend(self.retry(id));
        }
        released
    }

    /// The same for one class, in all LocalQueues.
    #[must_use]
    pub(crate) fn flush_class(&mut self, id: ClassId) -> Vec<ShapeId> {
        let classes: Vec<ClassId> = self.of_all_local_queues(self.class(id).key).collect();
        let to_flush = classes.into_iter().filter(|id| self.to_flush.remove(id)).collect::<Vec<_>>();
        to_flush.into_iter().filter_map(|id| self.retry(id)).collect()
    }

    fn retry(&mut self, id: ClassId) -> Option<ShapeId> {
        let class = self.classes[id.at()].as_mut().expect("a class leaves this set before it is dropped");
        class.failed = None;
        let released = std::mem::take(&mut class.remembered).then_some(class.key.shape);
        self.remembered -= usize::from(released.is_some());
        if class.is_empty() {
            self.drop_class(id);
            return released;
        }
        if class.inadmissible.is_empty() {
            return released;
        }
        let priority = Reverse(class.key.priority);
        if let Some(first) = class.active.first() {
            self.heads.remove(&(priority, first.clone(), id));
        }
        self.active += class.inadmissible.len();
        self.inadmissible -= class.inadmissible.len();
        merge(&mut class.active, &mut class.inadmissible);
        if let Some(first) = class.active.first() {
            self.heads.insert((priority, first.clone(), id));
        }
        released
    }

    /// The plan of a class, if it is for this version of the queue.
    pub(crate) fn plan(&self, id: ClassId, version: u64) -> Option<&Arc<Plan>> {
        self.class(id).plan.as_ref().filter(|plan| plan.0 == version).map(|plan| &plan.1)
    }

    /// Keeps a plan.
    pub(crate) fn set_plan(&mut self, id: ClassId, version: u64, plan: Arc<Plan>) {
        self.class_mut(id).plan = Some((version, plan));
    }

    /// Remembers the workload that preempted.
    pub(crate) fn remember_preemptor(&mut self, id: WorkloadId) {
        self.preemptor = Some(id);
    }

    /// Forgets a workload that leaves the queue as the preemptor.
    pub(crate) fn forget_preemptor(&mut self, id: WorkloadId) {
        self.preemptor.take_if(|preemptor| *preemptor == id);
    }

    /// The workload that preempted.
    pub(crate) fn preemptor(&self) -> Option<WorkloadId> {
        self.preemptor
    }

    /// All members with their class's key and whether they are in the heap, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClassId, &OrderKey, Placement)> {
        self.index.values().flat_map(|&id| {
            let class = self.class(id);
            let active = class.active.iter().map(move |key| (id, key, Placement::Active));
            let inadmissible = class.inadmissible.iter().map(move |key| (id, key, Placement::Inadmissible));
            active
                .chain(inadmissible)
                .chain(class.on_hold.iter().map(move |key| (id, key, Placement::OnHold)))
        })
    }
}

/// Moves all members from one set to the other, by moving the smaller set.
fn merge(into: &mut BTreeSet<OrderKey>, from: &mut BTreeSet<OrderKey>) {
    if into.len() < from.len() {
        std::mem::swap(into, from);
    }
    into.extend(std::mem::take(from));
}
