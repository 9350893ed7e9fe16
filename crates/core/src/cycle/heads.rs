//! The workloads of a cycle: those whose second pass is due, and one head of each queue (docs/reference/06-algorithm.md 6.4 "Heads").

use std::collections::BTreeMap;

use super::entry::{Entry, Precedence};
use crate::flavor_assigner::Assignment;
use crate::intern::{ClassId, QueueId, WorkloadId};
use crate::last_assignment::Scan;
use crate::queue::{OrderKey, Placement};
use crate::scheduler::Scheduler;
use crate::spec::QueueingStrategy;
use crate::view::Head;

impl Scheduler {
    /// Takes the usage of each LocalQueue out for a cycle, if admission fair sharing orders any queue. What the cycle changes counts in the next.
    pub(super) fn rank_locals(&mut self) -> Vec<f64> {
        if self.keeps_ledgers().is_none() {
            return Vec::new();
        }
        let mut usages = std::mem::take(&mut self.usages.known);
        usages.resize(self.world.locals.len(), 0.0);
        for id in std::mem::take(&mut self.usages.stale) {
            usages[id.at()] = self.fair_usage(id);
            self.stats.local_usages += 1;
        }
        usages
    }

    /// Takes the head of a queue, if there is one, unless it is below a cycle of Cohorts (docs/reference/06-algorithm.md 6.4 "Heads"). `displaced`:
    /// by queue, the displaced workload that has precedence there.
    pub(super) fn take_head(
        &mut self,
        id: QueueId,
        local_usage: &[f64],
        displaced: &BTreeMap<QueueId, (ClassId, OrderKey)>,
    ) -> Option<Entry> {
        let node = self.world.queues[id.at()].node;
        if self.world.forest.node(node).in_cycle {
            return None;
        }
        let displaced = displaced.get(&id).cloned();
        let sticky = displaced.or_else(|| self.blocked(id)).or_else(|| self.sticky(id));
        let rank = self.orders_by_usage(&self.world.queues[id.at()]).then_some(local_usage);
        if sticky.is_none() && self.is_held_up(id, rank) {
            return None;
        }
        let (class, key) = self.world.queues[id.at()].pending.pop(sticky, rank)?;
        let workload = self.world.workloads.get(key.id);
        let preemptor = self.world.queues[id.at()].pending.preemptor() == Some(key.id);
        let root = self.world.forest.node(node).root;
        Some(Entry {
            head: Head {
                workload: key.id,
                queue: id,
                node,
                priority: workload.priority,
                order: workload.order,
            },
            class,
            preemptor,
            precedence: if self.agenda.blocked == Some(key.id) {
                Precedence::Blocked
            } else if (preemptor && self.world.config.gates.prioritize_preemptor_workloads)
                || self.agenda.loops.goes_first(root, key.id)
                || self.is_displaced(key.id)
            {
                Precedence::First
            } else {
                Precedence::InOrder
            },
            key,
            plan: None,
            assignment: Assignment::default(),
            targets: Vec::new(),
            replaced: None,
            scan: Scan::NONE,
            before: None,
            kept_out_by: Vec::new(),
            recomputed: false,
            early: None,
            second_pass: None,
            lent: None,
        })
    }

    /// The remembered preemptor of a BestEffortFIFO queue, if it waits in the heap; its object may have changed since.
    fn sticky(&self, id: QueueId) -> Option<(ClassId, OrderKey)> {
        let queue = &self.world.queues[id.at()];
        let workload = queue.pending.preemptor()?;
        if queue.spec.as_ref()?.strategy != QueueingStrategy::BestEffortFIFO {
            return None;
        }
        self.in_heap(id, workload)
    }

    /// Whether all in the heap of a StrictFIFO queue wait for one before them that is paused. A displaced one goes before all others.
    fn is_held_up(&self, id: QueueId, rank: Option<&[f64]>) -> bool {
        let queue = &self.world.queues[id.at()];
        let strict = queue.spec.as_ref().is_some_and(|spec| spec.strategy == QueueingStrategy::StrictFIFO);
        strict && (queue.pending.is_held_up(rank) || queue.pending.paused().any(|id| self.is_displaced(id)))
    }

    /// The head of this queue that waits until all pods are ready.
    fn blocked(&self, id: QueueId) -> Option<(ClassId, OrderKey)> {
        self.in_heap(id, self.agenda.blocked?)
    }

    /// The place of a workload in the heap of a queue.
    fn in_heap(&self, id: QueueId, workload: WorkloadId) -> Option<(ClassId, OrderKey)> {
        let queue = &self.world.queues[id.at()];
        let row = self.world.workloads.try_get(workload)?;
        let (at, class) = row.waiting()?.at?;
        if at != id {
            return None;
        }
        let key = self.world.workloads.order_key(workload);
        (queue.pending.placement(class, &key) == Some(Placement::Active)).then_some((class, key))
    }
}
