//! A copy of all queues, each sorted when it is requested. Pure: the caller passes the time.
//!
//! An update from the engine costs as much as what changed. A queue is sorted at most once in [`STALE`], however many requests there are, and only if
//! it changed; all readers share the result.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sluice_engine::{Moves, Name, WaitingWorkload, WorkloadKey};

/// An order may be as old as this.
pub const STALE: Duration = Duration::from_millis(100);

/// Namespace and name of a LocalQueue.
pub type LocalQueue = (Name, Name);

/// The Workloads that wait in one ClusterQueue, in its order.
#[derive(Debug, Default)]
pub struct Order {
    /// The head first.
    rows: Vec<Row>,
    /// The rows of each LocalQueue, in order.
    by_local_queue: BTreeMap<LocalQueue, Vec<u32>>,
    /// The rows by key, made when the first is looked for.
    by_key: OnceLock<Vec<u32>>,
}

#[derive(Debug)]
struct Row {
    waiting: Arc<WaitingWorkload>,
    in_local_queue: u32,
}

/// A Workload that waits, and its places, from 0.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The Workload.
    pub waiting: &'a WaitingWorkload,
    /// In the ClusterQueue.
    pub in_cluster_queue: u32,
    /// In the LocalQueue.
    pub in_local_queue: u32,
}

impl Order {
    fn of(members: &BTreeMap<WorkloadKey, Arc<WaitingWorkload>>, usages: &BTreeMap<LocalQueue, f64>) -> Self {
        let usage =
            |waiting: &WaitingWorkload| usages.get(&local_queue(waiting)).copied().unwrap_or_default();
        let mut sorted: Vec<_> = members.values().map(|waiting| (usage(waiting.as_ref()), waiting)).collect();
        sorted
            .sort_unstable_by(|(a_usage, a), (b_usage, b)| a.standing.order(*a_usage, &b.standing, *b_usage));
        let mut order = Self { rows: Vec::with_capacity(sorted.len()), ..Self::default() };
        // A queue of more than four thousand million Workloads does not fit into any API server.
        for (at, (_, waiting)) in (0..u32::MAX).zip(sorted) {
            let of_local = order.by_local_queue.entry(local_queue(waiting)).or_default();
            let in_local_queue = u32::try_from(of_local.len()).unwrap_or(u32::MAX);
            of_local.push(at);
            order.rows.push(Row { waiting: Arc::clone(waiting), in_local_queue });
        }
        order
    }

    fn place(&self, at: u32) -> Option<Place<'_>> {
        let row = self.rows.get(usize::try_from(at).ok()?)?;
        Some(Place { waiting: &row.waiting, in_cluster_queue: at, in_local_queue: row.in_local_queue })
    }

    fn key(&self, at: u32) -> Option<&WorkloadKey> {
        Some(self.rows.get(usize::try_from(at).ok()?)?.waiting.standing.key())
    }

    /// The place of one Workload in the ClusterQueue, if it waits there.
    pub fn place_of(&self, key: &WorkloadKey) -> Option<u32> {
        let by_key = self.by_key.get_or_init(|| {
            let mut rows: Vec<u32> = (0..u32::MAX).zip(&self.rows).map(|(at, _)| at).collect();
            rows.sort_unstable_by_key(|at| self.key(*at));
            rows
        });
        let found = by_key.binary_search_by_key(&Some(key), |at| self.key(*at)).ok()?;
        by_key.get(found).copied()
    }

    /// A page of the ClusterQueue.
    pub fn page(&self, page: Page) -> impl Iterator<Item = Place<'_>> {
        let all = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        (0..all).skip(page.offset).take(page.limit).filter_map(|at| self.place(at))
    }

    /// A page of one of its LocalQueues.
    pub fn page_of(&self, local_queue: &LocalQueue, page: Page) -> impl Iterator<Item = Place<'_>> {
        let rows = self.by_local_queue.get(local_queue).into_iter().flatten();
        rows.skip(page.offset).take(page.limit).filter_map(|at| self.place(*at))
    }
}

/// Which part of a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many to skip.
    pub offset: usize,
    /// How many to return at most.
    pub limit: usize,
}

fn local_queue(waiting: &WaitingWorkload) -> LocalQueue {
    let standing = &waiting.standing;
    (Name::clone(&standing.key().namespace), Name::clone(standing.local_queue()))
}

/// One ClusterQueue.
#[derive(Debug, Default)]
struct Queue {
    /// Its object exists.
    exists: bool,
    members: BTreeMap<WorkloadKey, Arc<WaitingWorkload>>,
    /// Since the order was made.
    changed: bool,
    order: Option<(Instant, Arc<Order>)>,
}

/// All queues.
#[derive(Debug, Default)]
pub struct Board {
    cluster_queues: BTreeMap<Name, Queue>,
    /// The ClusterQueue of each LocalQueue.
    local_queues: BTreeMap<LocalQueue, Name>,
    /// Orders the members of a LocalQueue under admission fair sharing.
    usages: BTreeMap<LocalQueue, f64>,
    /// The ClusterQueue that each Workload waits in.
    homes: BTreeMap<WorkloadKey, Name>,
}

impl Board {
    /// Takes in what changed.
    pub fn apply(&mut self, moves: Moves) {
        for (name, exists) in moves.cluster_queues {
            self.queue(&name).exists = exists;
            self.drop_if_gone(&name);
        }
        for (local, target) in moves.local_queues {
            if let Some(target) = target {
                // Its usage may have been reported before it.
                if self.usages.contains_key(&local) {
                    self.note_change(&target);
                }
                self.local_queues.insert(local, target);
            } else {
                self.local_queues.remove(&local);
                self.usages.remove(&local);
            }
        }
        for (local, usage) in moves.usages {
            self.use_up(local, usage);
        }
        for (key, waiting) in moves.workloads {
            self.put(key, waiting);
        }
    }

    fn put(&mut self, key: WorkloadKey, waiting: Option<WaitingWorkload>) {
        let home = waiting.as_ref().map(|waiting| Name::clone(waiting.standing.cluster_queue()));
        let left = match &home {
            Some(home) => self.homes.insert(key.clone(), Name::clone(home)).filter(|old| old != home),
            None => self.homes.remove(&key),
        };
        if let Some(left) = left {
            let queue = self.queue(&left);
            queue.members.remove(&key);
            queue.changed = true;
            self.drop_if_gone(&left);
        }
        if let (Some(home), Some(waiting)) = (home, waiting) {
            let (local, usage) = (local_queue(&waiting), waiting.standing.usage());
            let queue = self.queue(&home);
            queue.members.insert(key, Arc::new(waiting));
            queue.changed = true;
            self.use_up(local, usage);
        }
    }

    /// The latest reported usage of a LocalQueue orders all of its Workloads.
    fn use_up(&mut self, local: LocalQueue, usage: f64) {
        let home = self.local_queues.get(&local).cloned();
        let old = if usage == 0.0 { self.usages.remove(&local) } else { self.usages.insert(local, usage) };
        if let Some(home) = home.filter(|_| old.unwrap_or_default().total_cmp(&usage).is_ne()) {
            self.note_change(&home);
        }
    }

    /// The order of a ClusterQueue is another, if it was made.
    fn note_change(&mut self, name: &Name) {
        if let Some(queue) = self.cluster_queues.get_mut(name) {
            queue.changed = true;
        }
    }

    fn queue(&mut self, name: &Name) -> &mut Queue {
        self.cluster_queues.entry(Name::clone(name)).or_default()
    }

    fn drop_if_gone(&mut self, name: &Name) {
        if self.cluster_queues.get(name).is_some_and(|queue| !queue.exists && queue.members.is_empty()) {
            self.cluster_queues.remove(name);
        }
    }

    /// The order of a ClusterQueue, if there is one of this name.
    pub fn order(&mut self, name: &str, now: Instant) -> Option<Arc<Order>> {
        let queue = self.cluster_queues.get_mut(name).filter(|queue| queue.exists)?;
        if let Some((made, order)) = &queue.order
            && (!queue.changed || now.saturating_duration_since(*made) < STALE)
        {
            return Some(Arc::clone(order));
        }
        let order = Arc::new(Order::of(&queue.members, &self.usages));
        queue.order = Some((now, Arc::clone(&order)));
        queue.changed = false;
        Some(order)
    }

    /// The order of the ClusterQueue of a LocalQueue, if the LocalQueue exists: an empty one if its ClusterQueue does not.
    pub fn order_of(&mut self, local_queue: &LocalQueue, now: Instant) -> Option<Arc<Order>> {
        let target = self.local_queues.get(local_queue)?.clone();
        Some(self.order(&target, now).unwrap_or_default())
    }
}

#[cfg(test)]
pub(crate) mod tests;
