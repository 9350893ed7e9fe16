//! The pending workloads of one ClusterQueue: order, heap, parked ones, equivalence classes, the sticky preemptor
//! (reference 06, 6.4).
//!
//! Pending workloads are kept in lanes, one per class (shape and priority; and LocalQueue, where admission fair
//! sharing orders the queue). All members of a lane share every answer of the scheduler, so parking all of them after
//! one failed, and flushing them back, exchanges two sets instead of moving members one by one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Name;
use crate::intern::{LaneId, LocalId, ShapeId, WorkloadId};
use crate::plan::Plan;
use crate::reason::{Reason, Unadmitted};
use crate::spec::Time;

/// The order of workloads of equal priority: the older queue-order timestamp first, then the UID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderKey {
    pub(crate) order: Time,
    pub(crate) uid: Name,
    pub(crate) id: WorkloadId,
}

/// What makes a class, and with admission fair sharing the LocalQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    pub(crate) shape: ShapeId,
    pub(crate) priority: i32,
    pub(crate) local: Option<LocalId>,
}

/// Where in a lane a workload is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
    /// The heap.
    Active,
    /// Parked until the next flush.
    Parked,
    /// Parked until its namespace matches, its backoff ends or its condition Requeued flips.
    Held,
}

/// The pending workloads of one class.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    active: BTreeSet<OrderKey>,
    parked: BTreeSet<OrderKey>,
    held: BTreeSet<OrderKey>,
    /// Why the class is parked as a whole: newcomers are parked without being tried.
    failed: Option<Arc<Unadmitted>>,
    /// Members that were not told the reason in `told` yet.
    untold: Vec<WorkloadId>,
    told: Option<Reason>,
    /// The compiled plan and the queue's version that it is for.
    plan: Option<(u64, Arc<Plan>)>,
}

impl Lane {
    fn new(key: LaneKey) -> Self {
        Self {
            key,
            active: BTreeSet::new(),
            parked: BTreeSet::new(),
            held: BTreeSet::new(),
            failed: None,
            untold: Vec::new(),
            told: None,
            plan: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.active.is_empty() && self.parked.is_empty() && self.held.is_empty()
    }

    fn set(&mut self, spot: Spot) -> &mut BTreeSet<OrderKey> {
        match spot {
            Spot::Active => &mut self.active,
            Spot::Parked => &mut self.parked,
            Spot::Held => &mut self.held,
        }
    }
}

type HeadKey = (Reverse<i32>, OrderKey, LaneId);

/// The pending workloads of a ClusterQueue.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingQueue {
    lanes: Vec<Option<Lane>>,
    free: Vec<LaneId>,
    index: BTreeMap<LaneKey, LaneId>,
    /// The first active member of each lane.
    heads: BTreeSet<HeadKey>,
    /// Lanes with something parked, or parked as a class.
    to_flush: BTreeSet<LaneId>,
    /// The workload that preempted and its generation then.
    preemptor: Option<(WorkloadId, i64)>,
    active: usize,
    inactive: usize,
}

impl PendingQueue {
    /// How many are in the heap.
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// How many are parked, for whatever reason.
    pub(crate) fn inadmissible(&self) -> usize {
        self.inactive
    }

    /// How many equivalence classes have a member in the heap, and how many a parked one.
    pub(crate) fn classes(&self) -> (usize, usize) {
        // A class has a lane for each LocalQueue where those count.
        let classes = |of: fn(&Lane) -> bool| {
            let lanes = self.index.iter().filter(|(_, id)| of(self.lane(**id)));
            lanes.map(|(key, _)| (key.shape, key.priority)).collect::<BTreeSet<_>>().len()
        };
        (
            classes(|lane| !lane.active.is_empty()),
            classes(|lane| !(lane.parked.is_empty() && lane.held.is_empty())),
        )
    }

    /// A flush would do something.
    pub(crate) fn has_parked(&self) -> bool {
        !self.to_flush.is_empty()
    }

    /// A lane.
    pub(crate) fn lane(&self, id: LaneId) -> &Lane {
        self.lanes[id.at()].as_ref().expect("a lane is used only while a workload is in it")
    }

    fn lane_mut(&mut self, id: LaneId) -> &mut Lane {
        self.lanes[id.at()].as_mut().expect("a lane is used only while a workload is in it")
    }

    /// The lane of a class, made if there is none.
    pub(crate) fn ensure_lane(&mut self, key: LaneKey) -> LaneId {
        if let Some(&id) = self.index.get(&key) {
            return id;
        }
        // With one lane per LocalQueue, a class may be parked already through another of its lanes.
        let failed = self.class(key).find_map(|id| self.lane(id).failed.clone());
        let mut lane = Lane::new(key);
        let is_failed = failed.is_some();
        lane.failed = failed;
        let id = if let Some(id) = self.free.pop() {
            self.lanes[id.at()] = Some(lane);
            id
        } else {
            self.lanes.push(Some(lane));
            LaneId::new(self.lanes.len() - 1)
        };
        if is_failed {
            self.to_flush.insert(id);
        }
        self.index.insert(key, id);
        id
    }

    fn class(&self, key: LaneKey) -> impl Iterator<Item = LaneId> + '_ {
        let from = LaneKey { local: None, ..key };
        let to = LaneKey { local: Some(LocalId(u32::MAX)), ..key };
        self.index.range(from..=to).map(|(_, &id)| id)
    }

    /// Puts a workload into a lane. One whose class is parked as a whole is parked instead of made active, unless
    /// `even_if_failed`. Returns where it went.
    pub(crate) fn push(&mut self, id: LaneId, key: OrderKey, spot: Spot, even_if_failed: bool) -> Spot {
        let lane = self.lane_mut(id);
        let spot = if spot == Spot::Active && !even_if_failed && lane.failed.is_some() {
            Spot::Parked
        } else {
            spot
        };
        lane.untold.push(key.id);
        if lane.untold.len() > 64
            && lane.untold.len() > 4 * (lane.active.len() + lane.parked.len() + lane.held.len())
        {
            lane.untold.sort_unstable();
            lane.untold.dedup();
        }
        match spot {
            Spot::Active => self.insert_active(id, key),
            Spot::Parked | Spot::Held => {
                if self.lane_mut(id).set(spot).insert(key) {
                    self.inactive += 1;
                }
                if spot == Spot::Parked {
                    self.to_flush.insert(id);
                }
            }
        }
        spot
    }

    /// Why the class of a lane is parked as a whole, if it is.
    pub(crate) fn failed(&self, id: LaneId) -> Option<Arc<Unadmitted>> {
        self.lane(id).failed.clone()
    }

    fn insert_active(&mut self, id: LaneId, key: OrderKey) {
        let lane = self.lanes[id.at()].as_mut().expect("a lane is used only while a workload is in it");
        let priority = Reverse(lane.key.priority);
        let first = lane.active.first();
        if first.is_none_or(|first| key < *first) {
            if let Some(first) = first {
                self.heads.remove(&(priority, first.clone(), id));
            }
            self.heads.insert((priority, key.clone(), id));
        }
        if lane.active.insert(key) {
            self.active += 1;
        }
    }

    fn remove_active(&mut self, id: LaneId, key: &OrderKey) -> bool {
        let lane = self.lanes[id.at()].as_mut().expect("a lane is used only while a workload is in it");
        let priority = Reverse(lane.key.priority);
        let was_first = lane.active.first() == Some(key);
        if !lane.active.remove(key) {
            return false;
        }
        self.active -= 1;
        if was_first {
            self.heads.remove(&(priority, key.clone(), id));
            if let Some(next) = lane.active.first() {
                self.heads.insert((priority, next.clone(), id));
            }
        }
        true
    }

    /// Takes a workload out; says where it was.
    pub(crate) fn remove(&mut self, id: LaneId, key: &OrderKey) -> Option<Spot> {
        if self.remove_active(id, key) {
            return Some(Spot::Active);
        }
        let lane = self.lane_mut(id);
        let spot = [Spot::Parked, Spot::Held].into_iter().find(|&spot| lane.set(spot).remove(key))?;
        self.inactive -= 1;
        Some(spot)
    }

    /// Where a workload is.
    pub(crate) fn spot(&self, id: LaneId, key: &OrderKey) -> Option<Spot> {
        let lane = self.lane(id);
        if lane.active.contains(key) {
            Some(Spot::Active)
        } else if lane.parked.contains(key) {
            Some(Spot::Parked)
        } else if lane.held.contains(key) {
            Some(Spot::Held)
        } else {
            None
        }
    }

    /// Forgets a lane that nothing is in. Called when no head of it is under way.
    pub(crate) fn drop_if_empty(&mut self, id: LaneId) {
        if self.lanes.get(id.at()).and_then(Option::as_ref).is_some_and(Lane::is_empty) {
            let key = self.lane(id).key;
            self.index.remove(&key);
            self.lanes[id.at()] = None;
            self.to_flush.remove(&id);
            self.free.push(id);
        }
    }

    /// Takes the head out: the sticky preemptor if it is in the heap, otherwise the first by priority, timestamp and
    /// UID. With `rank`, the LocalQueue's rank comes before all of that.
    pub(crate) fn pop(
        &mut self,
        sticky: Option<(LaneId, OrderKey)>,
        rank: Option<&[f64]>,
    ) -> Option<(LaneId, OrderKey)> {
        let head = match rank {
            None if sticky.is_none() => return self.pop_first(),
            None => sticky,
            Some(rank) => {
                let rank_of = |lane: LaneId| {
                    self.lane(lane).key.local.and_then(|local| rank.get(local.at())).copied().unwrap_or(0.0)
                };
                let first = self.heads.iter().min_by(|a, b| rank_of(a.2).total_cmp(&rank_of(b.2)));
                let first = first.map(|(_, key, lane)| (*lane, key.clone()));
                match (sticky, first) {
                    (Some(sticky), Some(first)) => {
                        Some(if rank_of(first.0) < rank_of(sticky.0) { first } else { sticky })
                    }
                    (sticky, first) => sticky.or(first),
                }
            }
        }?;
        self.remove_active(head.0, &head.1);
        Some(head)
    }

    /// Takes out the first by priority, timestamp and UID.
    fn pop_first(&mut self) -> Option<(LaneId, OrderKey)> {
        let (priority, key, id) = self.heads.pop_first()?;
        let lane = self.lanes[id.at()].as_mut().expect("a lane with a head is in use");
        lane.active.pop_first();
        self.active -= 1;
        if let Some(next) = lane.active.first() {
            self.heads.insert((priority, next.clone(), id));
        }
        Some((id, key))
    }

    /// Parks the whole class of a lane: what is in the heap, and newcomers until the next flush. Returns the members
    /// that were not told this reason before.
    pub(crate) fn park_class(&mut self, id: LaneId, why: &Arc<Unadmitted>) -> Vec<WorkloadId> {
        let lanes: Vec<LaneId> = self.class(self.lane(id).key).collect();
        let mut untold = Vec::new();
        for id in lanes {
            let lane = self.lanes[id.at()].as_mut().expect("the index lists only lanes in use");
            if let Some(first) = lane.active.first() {
                self.heads.remove(&(Reverse(lane.key.priority), first.clone(), id));
            }
            if lane.told == Some(why.reason) {
                untold.append(&mut lane.untold);
            } else {
                untold.extend(lane.active.iter().map(|key| key.id));
                lane.untold.clear();
                lane.told = Some(why.reason);
            }
            self.active -= lane.active.len();
            self.inactive += lane.active.len();
            merge(&mut lane.parked, &mut lane.active);
            lane.failed = Some(why.clone());
            self.to_flush.insert(id);
        }
        untold.sort_unstable();
        untold.dedup();
        untold
    }

    /// Puts everything that is parked until a flush back into the heap, and forgets which classes failed.
    pub(crate) fn flush(&mut self) {
        while let Some(id) = self.to_flush.pop_first() {
            let lane = self.lanes[id.at()].as_mut().expect("a lane leaves this set before it is dropped");
            lane.failed = None;
            if lane.parked.is_empty() {
                continue;
            }
            let priority = Reverse(lane.key.priority);
            if let Some(first) = lane.active.first() {
                self.heads.remove(&(priority, first.clone(), id));
            }
            self.active += lane.parked.len();
            self.inactive -= lane.parked.len();
            merge(&mut lane.active, &mut lane.parked);
            if let Some(first) = lane.active.first() {
                self.heads.insert((priority, first.clone(), id));
            }
        }
    }

    /// The plan of a lane, if it is for this version of the queue.
    pub(crate) fn plan(&self, id: LaneId, version: u64) -> Option<&Arc<Plan>> {
        self.lane(id).plan.as_ref().filter(|plan| plan.0 == version).map(|plan| &plan.1)
    }

    /// Keeps a plan.
    pub(crate) fn set_plan(&mut self, id: LaneId, version: u64, plan: Arc<Plan>) {
        self.lane_mut(id).plan = Some((version, plan));
    }

    /// Remembers who preempted.
    pub(crate) fn remember_preemptor(&mut self, id: WorkloadId, generation: i64) {
        self.preemptor = Some((id, generation));
    }

    /// Forgets a workload that leaves the queue as the preemptor.
    pub(crate) fn forget_preemptor(&mut self, id: WorkloadId) {
        self.preemptor.take_if(|preemptor| preemptor.0 == id);
    }

    /// Who preempted, and its generation then.
    pub(crate) fn preemptor(&self) -> Option<(WorkloadId, i64)> {
        self.preemptor
    }

    /// All members with their lane's key and whether they are in the heap, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LaneId, &OrderKey, Spot)> {
        self.index.values().flat_map(|&id| {
            let lane = self.lane(id);
            let active = lane.active.iter().map(move |key| (id, key, Spot::Active));
            let parked = lane.parked.iter().map(move |key| (id, key, Spot::Parked));
            active.chain(parked).chain(lane.held.iter().map(move |key| (id, key, Spot::Held)))
        })
    }

    /// Consistency of counters and heads; for the audit.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut active, mut inactive, mut heads) = (0, 0, BTreeSet::new());
        for (key, &id) in &self.index {
            let lane = self.lane(id);
            if lane.key != *key {
                return Err(format!("lane {id:?} has the key {:?}, the index says {key:?}", lane.key));
            }
            active += lane.active.len();
            inactive += lane.parked.len() + lane.held.len();
            if let Some(first) = lane.active.first() {
                heads.insert((Reverse(key.priority), first.clone(), id));
            }
            if (!lane.parked.is_empty() || lane.failed.is_some()) && !self.to_flush.contains(&id) {
                return Err(format!("lane {id:?} is parked but would not be flushed"));
            }
        }
        if (active, inactive) != (self.active, self.inactive) {
            return Err(format!(
                "counts {:?}, members {:?}",
                (self.active, self.inactive),
                (active, inactive)
            ));
        }
        if heads != self.heads {
            return Err("the heads of the lanes are wrong".to_owned());
        }
        Ok(())
    }
}

/// Moves everything from one set to the other, moving the smaller one.
fn merge(into: &mut BTreeSet<OrderKey>, from: &mut BTreeSet<OrderKey>) {
    if into.len() < from.len() {
        std::mem::swap(into, from);
    }
    into.extend(std::mem::take(from));
}
