//! Which workloads a cycle is about: those whose second pass is due, and one head of each queue (reference 06, 6.4
//! "Heads").

use super::Entry;
use crate::flavor_assigner::Assignment;
use crate::intern::{LaneId, LocalId, QueueId};
use crate::queue::{OrderKey, Spot};
use crate::scheduler::Scheduler;
use crate::spec::QueueingStrategy;
use crate::view::Head;

impl Entry {
    /// An entry that holds quota already: what it was assigned is kept as it is, and takes nothing (reference 06, 6.15).
    pub(crate) fn of_second_pass(head: Head, key: OrderKey, iteration: u32) -> Self {
        Self {
            head,
            lane: LaneId::new(0),
            key,
            plan: None,
            assignment: Assignment::kept(),
            targets: Vec::new(),
            before: None,
            recomputed: false,
            preemptor: false,
            first: false,
            early: None,
            second_pass: Some(iteration),
        }
    }
}

impl Scheduler {
    /// The usage of each LocalQueue, if admission fair sharing orders any queue.
    pub(super) fn rank_locals(&self) -> Vec<f64> {
        if self.config.admission_fair_sharing.is_none() || !self.config.gates.admission_fair_sharing {
            return Vec::new();
        }
        (0..self.locals.len()).map(|at| self.fair_usage(LocalId::new(at))).collect()
    }

    /// Takes the head of a queue that has one, unless it is below a cycle of Cohorts (reference 06, 6.4 "Heads").
    pub(super) fn take_head(&mut self, id: QueueId, local_usage: &[f64]) -> Option<Entry> {
        let node = self.queues[id.at()].node;
        if self.tree.forest.node(node).in_cycle {
            return None;
        }
        let sticky = self.first_displaced(id).or_else(|| self.sticky(id));
        let rank = self.orders_by_usage(&self.queues[id.at()]).then_some(local_usage);
        let (lane, key) = self.queues[id.at()].pending.pop(sticky, rank)?;
        let workload = self.workloads.get(key.id);
        let preemptor = self.queues[id.at()].pending.preemptor() == Some((key.id, workload.generation));
        let root = self.tree.forest.node(node).root;
        Some(Entry {
            head: Head {
                workload: key.id,
                queue: id,
                node,
                priority: workload.priority,
                order: workload.order,
            },
            lane,
            preemptor,
            first: (preemptor && self.config.gates.prioritize_preemptor_workloads)
                || self.loops.goes_first(root, key.id)
                || self.is_displaced(key.id),
            key,
            plan: None,
            assignment: Assignment::default(),
            targets: Vec::new(),
            before: None,
            recomputed: false,
            early: None,
            second_pass: None,
        })
    }

    /// The remembered preemptor of a BestEffortFIFO queue, if it is unchanged since and waits in the heap.
    fn sticky(&self, id: QueueId) -> Option<(LaneId, OrderKey)> {
        let queue = &self.queues[id.at()];
        let (workload, generation) = queue.pending.preemptor()?;
        if queue.spec.as_ref()?.strategy != QueueingStrategy::BestEffortFIFO {
            return None;
        }
        let row = self.workloads.try_get(workload)?;
        let (at, lane) = row.waiting()?.at?;
        if row.generation != generation || at != id {
            return None;
        }
        let key = self.order_key(workload);
        (queue.pending.spot(lane, &key) == Some(Spot::Active)).then_some((lane, key))
    }
}
