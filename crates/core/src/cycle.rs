//! One cycle: heads, nomination, order, processing, requeueing (reference 06, 6.5).

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::flavor_assigner::{Assignment, Mode, Request, assign};
use crate::intern::{LaneId, NodeId, SlotId, WorkloadId};
use crate::partial_admission;
use crate::plan::{Plan, PlanInput};
use crate::preemption::{self, Preemption, Target};
use crate::queue::{OrderKey, Spot};
use crate::reason::{Detail, Reason, Unadmitted};
use crate::report::{CycleReport, EntryReport, Outcome, Victim};
use crate::scheduler::Scheduler;
use crate::spec::{PreemptionPolicy, QueueingStrategy, Time};
use crate::tournament;
use crate::view::{Head, View};
use crate::workload::{Admission, PodSetAssignment};
use crate::workloads::{Held, Hold, Place};
use crate::{Amount, Name};

/// Why an entry goes back to its queue, which decides where it goes there (reference 06, 6.4 "Requeue after a cycle").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requeue {
    Generic,
    NoFit,
    NoCandidates,
    PendingPreemption,
    FailedAfterNomination,
    NamespaceMismatch,
}

/// One head on its way through the cycle.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    pub(crate) uid: Name,
    lane: LaneId,
    key: OrderKey,
    plan: Option<Arc<Plan>>,
    pub(crate) assignment: Assignment,
    targets: Vec<Target>,
    /// It preempted before and waits for that (gate PrioritizePreemptorWorkloads, and capacity reservation).
    pub(crate) preemptor: bool,
    /// Decided at nomination already.
    early: Option<(Arc<Unadmitted>, Requeue)>,
}

/// What became of an entry.
enum Decision {
    Admit,
    Preempt,
    Gated,
    Refuse(Detail, Reason, Requeue),
}

/// What the processing of a cycle collects.
#[derive(Default)]
struct Progress {
    report: CycleReport,
    victims: Vec<(WorkloadId, WorkloadId)>,
    /// Usage that only lasts for the cycle.
    transient: Vec<(SlotId, i128)>,
    /// Roots whose usage without the victims is kept.
    overlaid: Vec<NodeId>,
}

/// What a search sees; a macro, so that the borrow checker sees which fields it takes.
macro_rules! view {
    ($self:ident, $local_usage:expr) => {
        View {
            config: &$self.config,
            names: &$self.names,
            forest: &$self.tree.forest,
            usage: &mut $self.tree.usage,
            lendable: &$self.tree.lendable,
            queues: &$self.queues,
            workloads: &$self.workloads,
            local_usage: $local_usage,
            cycle: $self.cycle,
            stats: &mut $self.stats,
        }
    };
}

impl Scheduler {
    /// One cycle: takes one head per active ClusterQueue, decides, and assumes what it decided. Victims are marked
    /// evicted and keep their quota until they are set to another state or removed.
    pub fn cycle(&mut self, now: Time) -> CycleReport {
        self.wake(now);
        self.cycle += 1;
        let local_usage = self.rank_locals();
        let mut entries = self.take_heads(&local_usage);
        for entry in &mut entries {
            self.nominate(entry, &local_usage, now);
        }
        let mut progress = Progress::default();
        progress.report.cycle = self.cycle;
        progress.report.entries.reserve(entries.len());
        if self.config.fair_sharing.is_some() {
            let mut tournament = tournament::Tournament::new(self, entries);
            while let Some(entry) = tournament.pop(self) {
                self.process(entry, &local_usage, now, &mut progress);
            }
        } else {
            self.order(&mut entries);
            for entry in entries {
                self.process(entry, &local_usage, now, &mut progress);
            }
        }
        self.finish(progress)
    }

    /// There is something in the heap of an active ClusterQueue. After a change of specs it may also say so when only
    /// a cycle can tell.
    pub fn has_heads(&self) -> bool {
        let stale = self.tree.forest.is_stale() || !self.flush_later.is_empty();
        if stale && !self.parked.is_empty() {
            return true;
        }
        self.ready.iter().any(|id| stale || !self.tree.forest.node(self.queues[id.at()].node).in_cycle)
    }

    /// The usage of each LocalQueue, if admission fair sharing orders any queue.
    fn rank_locals(&self) -> Vec<f64> {
        if self.config.admission_fair_sharing.is_none() || !self.config.gates.admission_fair_sharing {
            return Vec::new();
        }
        (0..self.locals.len()).map(|at| self.fair_usage(crate::intern::LocalId::new(at))).collect()
    }

    /// Takes one head from each active queue (reference 06, 6.4 "Heads").
    fn take_heads(&mut self, local_usage: &[f64]) -> Vec<Entry> {
        let ready: Vec<_> = self.ready.iter().copied().collect();
        let mut entries = Vec::with_capacity(ready.len());
        for id in ready {
            let node = self.queues[id.at()].node;
            if self.tree.forest.node(node).in_cycle {
                continue;
            }
            let sticky = self.sticky(id);
            let rank = self.orders_by_usage(&self.queues[id.at()]).then_some(local_usage);
            let Some((lane, key)) = self.queues[id.at()].pending.pop(sticky, rank) else { continue };
            let workload = self.workloads.get(key.id);
            entries.push(Entry {
                head: Head {
                    workload: key.id,
                    queue: id,
                    node,
                    priority: workload.priority,
                    order: workload.order,
                },
                uid: workload.uid.clone(),
                lane,
                preemptor: self.queues[id.at()].pending.preemptor() == Some((key.id, workload.generation)),
                key,
                plan: None,
                assignment: Assignment::default(),
                targets: Vec::new(),
                early: None,
            });
        }
        entries
    }

    /// The remembered preemptor of a BestEffortFIFO queue, if it is unchanged since and waits in the heap.
    fn sticky(&self, id: crate::intern::QueueId) -> Option<(LaneId, OrderKey)> {
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

    /// Finds out what can be done for a head (reference 06, 6.5 "Nominate").
    fn nominate(&mut self, entry: &mut Entry, local_usage: &[f64], _now: Time) {
        let id = entry.head.workload;
        let refuse = |detail, reason| Arc::new(Unadmitted { reason, detail, requests: Arc::from([]) });
        if let Some(waiting) = self.workloads.get(id).waiting() {
            if waiting.failed_checks {
                let why = refuse(Detail::FailedChecks, Reason::PendingEvaluation);
                entry.early = Some((why, Requeue::Generic));
                return;
            }
            if !self.namespace_matches(id, entry.head.queue) {
                let why = refuse(Detail::NamespaceMismatch, Reason::Misconfigured);
                entry.early = Some((why, Requeue::NamespaceMismatch));
                return;
            }
            if let Some(message) = &waiting.invalid {
                let why = refuse(Detail::Invalid(message.clone()), Reason::Misconfigured);
                entry.early = Some((why, Requeue::Generic));
                return;
            }
        }
        let plan = self.plan(entry);
        let generation = self.tree.forest.generation(entry.head.node);
        let cycle = self.cycle;
        let workload = self.workloads.get(id);
        let shape = workload.shape;
        let from = workload
            .progress
            .as_deref()
            .filter(|progress| !progress.is_outdated(&self.config, shape, cycle, generation));
        let mut view = view!(self, ordered_usage(&self.queues, &self.config, &entry.head, local_usage));
        let request = Request { head: &entry.head, plan: &plan, counts: &plan.counts, from, only: None };
        let found = search(&mut view, &request, self.shapes.get(shape));
        (entry.assignment, entry.targets) = found;
        let progress = entry.assignment.progress(shape, cycle, generation);
        self.workloads.get_mut(id).progress = progress;
        entry.plan = Some(plan);
    }

    /// The plan for an entry's class in its queue.
    fn plan(&mut self, entry: &Entry) -> Arc<Plan> {
        let queue = &self.queues[entry.head.queue.at()];
        if let Some(plan) = queue.pending.plan(entry.lane, queue.version) {
            return plan.clone();
        }
        let shape = self.workloads.get(entry.head.workload).shape;
        let plan = Plan::new(&PlanInput {
            queue,
            forest: &self.tree.forest,
            names: &self.names,
            flavors: &self.flavors,
            shape: self.shapes.get(shape),
            pod_sets: self.shapes.pod_sets(shape),
            ignore_uncovered: self.config.ignore_undeclared && self.config.gates.quota_check_strategy,
            pods: self.pods,
        });
        let queue = &mut self.queues[entry.head.queue.at()];
        queue.pending.set_plan(entry.lane, queue.version, plan.clone());
        plan
    }

    /// The order without fair sharing: remembered preemptors (gate), lower borrowing, higher priority (gate), older
    /// timestamp, UID.
    fn order(&self, entries: &mut [Entry]) {
        let gates = &self.config.gates;
        entries.sort_by_cached_key(|entry| {
            (
                !(gates.prioritize_preemptor_workloads && entry.preemptor),
                entry.assignment.borrow,
                Reverse(if gates.priority_sorting_within_cohort { entry.head.priority } else { 0 }),
                entry.head.order,
                entry.uid.clone(),
                entry.head.workload,
            )
        });
    }

    /// Decides about one entry with what earlier ones left (reference 06, 6.5 "processEntry").
    fn process(&mut self, mut entry: Entry, local_usage: &[f64], now: Time, progress: &mut Progress) {
        if let Some((why, requeue)) = entry.early.take() {
            self.refused(entry, why, requeue, progress);
            return;
        }
        if self.overlaps(&entry) && self.config.gates.recompute_assignment_upon_preemption_targets_overlap {
            self.recompute(&mut entry, local_usage);
        }
        match self.decide(&entry, progress) {
            Decision::Admit => self.admit(entry, now, progress),
            Decision::Preempt => self.preempt(entry, progress),
            Decision::Gated => {
                let why = self.why(&entry, flavors(&entry, 0), entry.assignment.reason());
                progress.report.entries.push(self.report(&entry, Outcome::PreemptionGated(why.clone())));
                self.requeue(&entry, why, Requeue::Generic, progress);
            }
            Decision::Refuse(detail, reason, requeue) => {
                if matches!(detail, Detail::NoLongerFits | Detail::OverlappingTargets | Detail::DeferredFit) {
                    self.workloads.get_mut(entry.head.workload).progress = None;
                }
                let why = self.why(&entry, detail, reason);
                self.refused(entry, why, requeue, progress);
            }
        }
    }

    /// A target of the entry was taken by an earlier one in this cycle.
    fn overlaps(&self, entry: &Entry) -> bool {
        entry.targets.iter().any(|target| self.workloads.get(target.workload).chosen == self.cycle)
    }

    /// Searches again with the victims of earlier entries gone, among the flavors nominated before. What fits then has
    /// to wait for those victims.
    fn recompute(&mut self, entry: &mut Entry, local_usage: &[f64]) {
        let Some(plan) = entry.plan.clone() else { return };
        self.tree.usage.swap_views();
        let mut view = view!(self, ordered_usage(&self.queues, &self.config, &entry.head, local_usage));
        let request = Request {
            head: &entry.head,
            plan: &plan,
            counts: &plan.counts,
            from: None,
            only: Some(&entry.assignment),
        };
        let shape = self.workloads.get(entry.head.workload).shape;
        let (mut again, targets) = search(&mut view, &request, self.shapes.get(shape));
        self.tree.usage.swap_views();
        let generation = self.tree.forest.generation(entry.head.node);
        self.workloads.get_mut(entry.head.workload).progress = again.progress(shape, self.cycle, generation);
        if again.mode == Mode::Fit {
            again.mode = Mode::DeferredFit;
        }
        (entry.assignment, entry.targets) = (again, targets);
    }

    fn decide(&mut self, entry: &Entry, progress: &mut Progress) -> Decision {
        let reason = entry.assignment.reason();
        match entry.assignment.mode {
            Mode::NoFit => return Decision::Refuse(flavors(entry, 0), reason, Requeue::NoFit),
            Mode::Preempt if entry.targets.is_empty() => {
                self.reserve(entry, progress);
                return Decision::Refuse(flavors(entry, 0), reason, Requeue::NoCandidates);
            }
            Mode::Preempt if self.workloads.get(entry.head.workload).gated => return Decision::Gated,
            Mode::DeferredFit => {
                self.occupy(entry, progress);
                let reason = Reason::WaitingForPreemptedWorkloads;
                return Decision::Refuse(Detail::DeferredFit, reason, Requeue::PendingPreemption);
            }
            Mode::Preempt | Mode::Fit => {}
        }
        if self.overlaps(entry) {
            let reason = Reason::WaitingForPreemptedWorkloads;
            return Decision::Refuse(Detail::OverlappingTargets, reason, Requeue::FailedAfterNomination);
        }
        if let Some(detail) = self.would_loop(entry) {
            return Decision::Refuse(detail, Reason::WaitingForQuota, Requeue::Generic);
        }
        if !self.fits_still(entry, progress) {
            return Decision::Refuse(
                Detail::NoLongerFits,
                Reason::WaitingForQuota,
                Requeue::FailedAfterNomination,
            );
        }
        if entry.assignment.mode == Mode::Preempt {
            self.occupy(entry, progress);
            return Decision::Preempt;
        }
        if self.config.block_admission && self.unready > 0 {
            let reason = Reason::WaitingForPodsReady;
            return Decision::Refuse(Detail::WaitingForPodsReady, reason, Requeue::FailedAfterNomination);
        }
        Decision::Admit
    }

    /// Whether the entry fits with all victims of the cycle, and its own, gone. Its own stay gone if it does.
    fn fits_still(&mut self, entry: &Entry, progress: &mut Progress) -> bool {
        let root = self.tree.forest.node(entry.head.node).root;
        if !entry.targets.is_empty() && !progress.overlaid.contains(&root) {
            self.tree.usage.overlay(self.tree.forest.slots_of_tree(root));
            progress.overlaid.push(root);
        }
        let overlaid = progress.overlaid.contains(&root);
        if overlaid {
            self.tree.usage.swap_views();
        }
        let mark = self.tree.usage.mark();
        let mut view = view!(self, &[]);
        for target in &entry.targets {
            view.remove(target.workload);
        }
        let fits = view.fits(&entry.assignment.demands, true);
        if fits {
            self.tree.usage.keep(&mark);
        } else {
            self.tree.usage.rollback(&mark);
        }
        if overlaid {
            self.tree.usage.swap_views();
        }
        fits
    }

    /// Adds usage for the rest of the cycle.
    fn add_transient(&mut self, entry: &Entry, slot: SlotId, amount: i128, progress: &mut Progress) {
        self.tree.usage.add(&self.tree.forest.quota, slot, amount);
        progress.transient.push((slot, amount));
        self.add_to_overlay(entry, slot, amount, progress);
    }

    fn add_to_overlay(&mut self, entry: &Entry, slot: SlotId, amount: i128, progress: &Progress) {
        let root = self.tree.forest.node(entry.head.node).root;
        if progress.overlaid.contains(&root) {
            self.tree.usage.swap_views();
            self.tree.usage.add(&self.tree.forest.quota, slot, amount);
            self.tree.usage.swap_views();
        }
    }

    /// Takes what the entry will use, so that later ones do not.
    fn occupy(&mut self, entry: &Entry, progress: &mut Progress) {
        for demand in &entry.assignment.demands {
            self.add_transient(entry, demand.slot, demand.amount, progress);
        }
    }

    /// Reserves capacity for an entry that waits for workloads which it may not preempt: later ones must not take it.
    /// A queue that may reclaim anything gets it back anyway (reference 06, 6.5 step 6).
    fn reserve(&mut self, entry: &Entry, progress: &mut Progress) {
        let remembered = entry.preemptor && self.config.gates.prioritize_preemptor_workloads;
        if self.queues[entry.head.queue.at()].reclaim_policy() == PreemptionPolicy::Any && !remembered {
            return;
        }
        for demand in &entry.assignment.demands {
            let quota = &self.tree.forest.quota;
            let used = self.tree.usage.get(demand.slot);
            let nominal = quota.nominal(demand.slot);
            let limit = if entry.assignment.borrow > 0 {
                nominal.add(quota.borrowing_limit(demand.slot))
            } else {
                nominal
            };
            let amount = demand.amount.min(crate::quota::exact(limit) - used).max(0);
            self.add_transient(entry, demand.slot, amount, progress);
        }
    }

    /// The preemption-loop guard: the victims include the workload that evicted this one, and nothing happened since.
    fn would_loop(&self, entry: &Entry) -> Option<Detail> {
        if !self.config.gates.preemption_loop_guard {
            return None;
        }
        let eviction = self.workloads.get(entry.head.workload).evictor.as_deref()?;
        let loops = eviction.epoch == self.epoch
            && entry.targets.iter().any(|target| {
                target.workload == eviction.evictor
                    && self.workloads.get(target.workload).key == eviction.evictor_key
            });
        let plan = entry.plan.as_ref()?;
        loops.then(|| Detail::PreemptionLoop {
            evictor: eviction.evictor_key.clone(),
            pod_sets: entry.assignment.refusals(plan),
        })
    }

    /// Lets the entry hold what it was assigned.
    fn admit(&mut self, entry: Entry, now: Time, progress: &mut Progress) {
        let id = entry.head.workload;
        let plan = entry.plan.as_deref().expect("only an entry with a plan is admitted");
        let admission = self.admission(&entry, plan);
        let required_checks = self.required_checks(&entry);
        let considered = entry.assignment.considered(&self.names, plan);
        let usage: Held =
            entry.assignment.demands.iter().map(|demand| (demand.pair, demand.slot, demand.amount)).collect();
        for &(_, slot, amount) in &usage {
            self.add_to_overlay(&entry, slot, amount, progress);
        }
        let queue = &mut self.queues[entry.head.queue.at()];
        queue.pending.forget_preemptor(id);
        queue.pending.drop_if_empty(entry.lane);
        self.sync_ready(entry.head.queue);
        let workload = self.workloads.get_mut(id);
        workload.progress = None;
        workload.decision = None;
        workload.evictor = None;
        let local = workload.local;
        self.locals[local.at()].pending.remove(&id);
        self.charge(&entry);
        let admitted = required_checks.is_empty();
        let hold = Hold {
            queue: entry.head.queue,
            usage,
            reserved_at: now,
            admitted,
            evicted: false,
            pods_ready: false,
        };
        self.hold(id, hold);
        progress.report.progress = true;
        let outcome = Outcome::Admitted { admission, required_checks, considered };
        progress.report.entries.push(self.report(&entry, outcome));
    }

    /// Charges the LocalQueue for what was let in until it counts as usage (reference 06, 6.9).
    fn charge(&mut self, entry: &Entry) {
        if !self.orders_by_usage(&self.queues[entry.head.queue.at()]) {
            return;
        }
        let Some(config) = &self.config.admission_fair_sharing else { return };
        let names = &self.names;
        let requests = entry.assignment.picks.iter().map(|pick| {
            (
                pick.resource,
                crate::admission_fair_sharing::in_units(names, pick.resource, i128::from(pick.amount)),
            )
        });
        let local = self.workloads.get(entry.head.workload).local;
        self.locals[local.at()].ledger.charge(config, entry.head.workload, requests);
    }

    fn admission(&self, entry: &Entry, plan: &Plan) -> Admission {
        let assignment = &entry.assignment;
        let pod_sets = plan
            .requests
            .iter()
            .zip(&assignment.counts)
            .enumerate()
            .map(|(at, ((name, _), &count))| {
                let picks = || assignment.picks.iter().filter(move |pick| pick.pod_set == at);
                let resource = |id| self.names.resource_name(id).clone();
                PodSetAssignment {
                    name: name.clone(),
                    flavors: picks()
                        .map(|pick| (resource(pick.resource), self.names.flavor_name(pick.flavor).clone()))
                        .collect(),
                    usage: picks().map(|pick| (resource(pick.resource), Amount(pick.amount))).collect(),
                    count,
                }
            })
            .collect();
        Admission { cluster_queue: self.queues[entry.head.queue.at()].name.clone(), pod_sets }
    }

    /// The checks that apply to the assigned flavors (reference 06, 6.10).
    fn required_checks(&self, entry: &Entry) -> Vec<Name> {
        let Some(spec) = &self.queues[entry.head.queue.at()].spec else { return Vec::new() };
        let mut checks: Vec<Name> = spec
            .admission_checks
            .iter()
            .filter(|rule| {
                entry.assignment.picks.iter().any(|pick| {
                    rule.on_flavors.is_empty()
                        || rule.on_flavors.contains(self.names.flavor_name(pick.flavor))
                })
            })
            .map(|rule| rule.name.clone())
            .collect();
        checks.sort();
        checks.dedup();
        checks
    }

    /// Records the victims; the entry waits for them in its heap.
    fn preempt(&mut self, entry: Entry, progress: &mut Progress) {
        let id = entry.head.workload;
        let mut victims = Vec::with_capacity(entry.targets.len());
        let preemptor_path = self.tree.forest.node(entry.head.node).path.clone();
        for target in &entry.targets {
            let workload = self.workloads.get_mut(target.workload);
            workload.chosen = self.cycle;
            let Some(hold) = workload.hold() else { continue };
            let queue = &self.queues[hold.queue.at()];
            progress.report.progress |= !hold.evicted;
            victims.push(Victim {
                key: workload.key.clone(),
                uid: workload.uid.clone(),
                cluster_queue: queue.name.clone(),
                reason: target.reason,
                preemptor_path: preemptor_path.clone(),
                preemptee_path: self.tree.forest.node(queue.node).path.clone(),
                already_evicted: hold.evicted,
            });
            progress.victims.push((target.workload, id));
        }
        // The next attempt looks at all flavors again.
        self.workloads.get_mut(id).progress = None;
        let reason = Reason::WaitingForPreemptedWorkloads;
        let why = self.why(&entry, flavors(&entry, victims.len()), reason);
        let outcome = Outcome::Preempting { victims, why: why.clone() };
        progress.report.entries.push(self.report(&entry, outcome));
        self.requeue(&entry, why, Requeue::PendingPreemption, progress);
    }

    fn why(&self, entry: &Entry, detail: Detail, reason: Reason) -> Arc<Unadmitted> {
        let requests = entry.plan.as_ref().map_or_else(|| Arc::from([]), |plan| plan.requests.clone());
        Arc::new(Unadmitted { reason, detail, requests })
    }

    fn report(&self, entry: &Entry, outcome: Outcome) -> EntryReport {
        EntryReport {
            key: self.workloads.get(entry.head.workload).key.clone(),
            uid: entry.uid.clone(),
            cluster_queue: self.queues[entry.head.queue.at()].name.clone(),
            outcome,
        }
    }

    fn refused(&mut self, entry: Entry, why: Arc<Unadmitted>, requeue: Requeue, progress: &mut Progress) {
        progress.report.entries.push(self.report(&entry, Outcome::Unadmitted(why.clone())));
        self.requeue(&entry, why, requeue, progress);
    }

    /// Puts an entry back into its queue: into the heap or among the parked (reference 06, 6.4).
    fn requeue(&mut self, entry: &Entry, why: Arc<Unadmitted>, requeue: Requeue, progress: &mut Progress) {
        let id = entry.head.workload;
        let workload = self.workloads.get_mut(id);
        workload.decision = Some(why.clone());
        let generation = workload.generation;
        let scanning = workload.progress.as_ref().is_some_and(|progress| progress.is_pending());
        let queue = &mut self.queues[entry.head.queue.at()];
        let strict = queue.spec.as_ref().is_some_and(|spec| spec.strategy == QueueingStrategy::StrictFIFO);
        let immediate = match requeue {
            Requeue::NamespaceMismatch => false,
            Requeue::PendingPreemption | Requeue::FailedAfterNomination => true,
            Requeue::Generic | Requeue::NoFit | Requeue::NoCandidates => strict,
        };
        if requeue == Requeue::PendingPreemption {
            queue.pending.remember_preemptor(id, generation);
        }
        let spot = match requeue {
            Requeue::NamespaceMismatch => Spot::Held,
            _ if immediate || scanning => Spot::Active,
            _ => Spot::Parked,
        };
        progress.report.scanning |= scanning && spot == Spot::Active;
        queue.pending.push(entry.lane, entry.key.clone(), spot, true);
        let shared = matches!(requeue, Requeue::NoFit | Requeue::NoCandidates)
            && self.config.gates.scheduling_equivalence_hashing
            && !strict
            && spot == Spot::Parked;
        if shared {
            self.bypass(entry, &why, progress);
        }
        self.sync_ready(entry.head.queue);
    }

    /// Parks all workloads of the class that just failed.
    fn bypass(&mut self, entry: &Entry, why: &Arc<Unadmitted>, progress: &mut Progress) {
        let told = Arc::new(Unadmitted {
            reason: why.reason,
            detail: Detail::Bypassed,
            requests: why.requests.clone(),
        });
        let queue = entry.head.queue;
        let untold = self.queues[queue.at()].pending.park_class(entry.lane, &told);
        for id in untold {
            if id == entry.head.workload {
                continue;
            }
            let Some(workload) = self.workloads.try_get(id) else { continue };
            let here = workload.waiting().and_then(|waiting| waiting.at).is_some_and(|at| at.0 == queue);
            if here && workload.decision.as_ref().map(|decision| decision.reason) != Some(why.reason) {
                progress.report.bypassed.push((workload.key.clone(), told.clone()));
                self.workloads.get_mut(id).decision = Some(told.clone());
            }
        }
    }

    /// Takes back what only lasted for the cycle, and marks the victims.
    fn finish(&mut self, progress: Progress) -> CycleReport {
        for (slot, amount) in progress.transient {
            self.tree.usage.remove(&self.tree.forest.quota, slot, amount);
        }
        for (victim, by) in progress.victims {
            let evictor_key = self.workloads.get(by).key.clone();
            let Some(hold) = self.workloads.get(victim).hold() else { continue };
            let (queue, reserved_at, evicted) = (hold.queue, hold.reserved_at, hold.evicted);
            if !evicted {
                let key = self.candidate_key(victim, reserved_at);
                let holders = &mut self.queues[queue.at()].holders;
                holders.running.remove(&key);
                holders.evicted.insert(key);
            }
            let epoch = self.epoch;
            let workload = self.workloads.get_mut(victim);
            if let Place::Holding(hold) = &mut workload.place {
                hold.evicted = true;
            }
            workload.evictor =
                Some(Box::new(crate::loop_guard::Eviction { evictor: by, evictor_key, epoch }));
        }
        progress.report
    }
}

/// The usage of LocalQueues, where it orders the head's queue.
fn ordered_usage<'a>(
    queues: &[crate::cluster_queue::ClusterQueue],
    config: &crate::Config,
    head: &Head,
    local_usage: &'a [f64],
) -> &'a [f64] {
    let by_usage = queues[head.queue.at()].spec.as_ref().is_some_and(|spec| spec.usage_based_fair_sharing);
    if by_usage && config.admission_fair_sharing.is_some() { local_usage } else { &[] }
}

fn flavors(entry: &Entry, pending_preemptions: usize) -> Detail {
    let pod_sets = entry.plan.as_ref().map_or_else(Vec::new, |plan| entry.assignment.refusals(plan));
    Detail::Flavors { pod_sets, pending_preemptions }
}

/// The assignment of a head and its victims: in full if that is possible, otherwise with fewer pods.
fn search(
    view: &mut View<'_>,
    request: &Request<'_>,
    shape: &crate::shape::Shape,
) -> (Assignment, Vec<Target>) {
    let gate = view.config.gates.partial_admission;
    let mut attempt = |counts: &[i64]| {
        let assignment = assign(view, &Request { counts, ..*request });
        let targets = find_targets(view, request.head, &assignment);
        (assignment, targets)
    };
    let full = attempt(request.counts);
    let works = |found: &(Assignment, Vec<Target>)| {
        found.0.mode == Mode::Fit || (found.0.mode == Mode::Preempt && !found.1.is_empty())
    };
    if works(&full) || !shape.reducible() || !gate {
        return full;
    }
    partial_admission::search(shape, |counts| Some(attempt(counts)).filter(works)).unwrap_or(full)
}

/// The victims that an assignment needs; none if it needs none or there are none.
fn find_targets(view: &mut View<'_>, head: &Head, assignment: &Assignment) -> Vec<Target> {
    if assignment.mode != Mode::Preempt {
        return Vec::new();
    }
    let needed: SmallVec<[_; 2]> = assignment.needing_preemption();
    preemption::targets(view, &Preemption { head, demands: &assignment.demands, needed: &needed })
}
