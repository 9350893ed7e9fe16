//! The engine: its state, its entry points, and the order in which it works through what changed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_core::{Name, Scheduler, WorkloadKey};

pub(crate) use crate::alarm::Alarm;
use crate::config::EngineConfig;
use crate::effect::Effect;
use crate::ingest;
use crate::ingest::workload::is;
use crate::input::{Input, Kind, ObjectRef, WaitingWrites};
use crate::outbox::Outbox;
use crate::topology::marks::Marks;
use crate::work::Work;
use crate::world::{JobKey, World, workload_ref};

/// How long an unanswered write that reserves quota counts as one that will soon be sent.
const LONGEST_RESERVATION: SignedDuration = SignedDuration::from_secs(5);

/// When the next cycle comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextCycle {
    /// Not requested since the last cycle.
    Unasked,
    /// At once: the last cycle requests it.
    Follows,
    /// From this time on, when more of the changes that caused it may have come.
    Gathers(Timestamp),
}

/// What needs a look, in a fixed order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    pub workloads: BTreeSet<WorkloadKey>,
    pub jobs: BTreeSet<JobKey>,
    /// Pods, and what was written for Workloads.
    pub others: BTreeSet<ObjectRef>,
    /// Queues, cohorts, flavors, topologies and checks: looked at once at the end of a cycle.
    pub statuses: BTreeSet<ObjectRef>,
    /// Workloads whose pods get places in the topology, by the first slice: looked at once in a cycle.
    pub placed: Marks,
}

impl Dirty {
    /// Marks an object that is neither a Workload nor a job.
    pub fn mark(&mut self, object: ObjectRef) {
        if matches!(object.kind, Kind::ProvisioningRequest | Kind::PodTemplate | Kind::Pod) {
            self.others.insert(object);
        } else {
            self.statuses.insert(object);
        }
    }

    /// Whether something needs a look before a cycle.
    fn is_urgent(&self) -> bool {
        !(self.workloads.is_empty() && self.jobs.is_empty() && self.others.is_empty())
    }
}

/// What is known of the status writes of one queue, cohort, flavor or check.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusEntry {
    /// The write that has not been answered.
    pub open: Option<crate::effect::EffectId>,
    /// When its status was last written.
    pub written_at: Option<Timestamp>,
    /// When figures that changed may be written: all statuses share a budget.
    pub slot: Option<Timestamp>,
    /// How its writes fare.
    pub retry: crate::retry::Retry,
    /// The users of the object that the last event named.
    pub reported_holders: Option<String>,
}

/// The state machine.
///
/// Feed it with [`Engine::apply`], let it decide with [`Engine::cycle`], carry out the effects, and feed the answers of
/// the writes back. It decides nothing before [`Input::Synced`] and nothing unless it leads.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) scheduler: Scheduler,
    pub(crate) world: World,
    pub(crate) outbox: Outbox,
    /// What waits for the API server.
    pub(crate) outage: crate::outage::Outage,
    /// How queues, Cohorts and flavors changed lately.
    pub(crate) changes: crate::changes::Changes,
    pub(crate) dirty: Dirty,
    pub(crate) timers: BTreeSet<(Timestamp, Alarm)>,
    pub(crate) statuses: BTreeMap<ObjectRef, StatusEntry>,
    /// Whether each ClusterQueue was active when it was last looked at.
    pub(crate) active: BTreeMap<Name, bool>,
    /// By ClusterQueue: heads of the last cycle that preempted no Workload, as other heads took their victims or the room beside them.
    pub(crate) preemption_skips: BTreeMap<Name, usize>,
    /// The objects that were made for Workloads that wait for nodes.
    pub(crate) made: crate::provisioning::Made,
    /// Pods that may be removed by force.
    pub(crate) terminating: crate::failure_recovery::state::TerminatingPods,
    /// Cohorts whose object was deleted while queues name them: they have no series until a queue names them or they are created again.
    pub(crate) deleted_cohorts: BTreeSet<Name>,
    /// Custom labels of metrics.
    pub(crate) custom: crate::metrics::custom::Custom,
    /// What is kept about failing nodes.
    pub(crate) hotswap: crate::hotswap::state::HotswapState,
    /// The nodes as the core has them.
    pub(crate) topology: crate::topology::state::TopologyNodes,
    /// Which Workloads have pods assigned to which nodes.
    pub(crate) assigned: crate::topology::assigned::Assigned,
    /// Objects that made the engine panic.
    pub(crate) aside: BTreeMap<ObjectRef, crate::aside::state::Aside>,
    /// Finished Workloads whose finalizer is still to be taken away.
    pub(crate) unreleased: BTreeSet<WorkloadKey>,
    /// How many of these writes have not been answered.
    pub(crate) releasing: usize,
    /// Workloads whose reason for waiting will be written once fewer reasons are being written, by the time since when they wait.
    pub(crate) unreported: BTreeSet<(Timestamp, WorkloadKey)>,
    /// How many of these writes have not been answered.
    pub(crate) reporting: usize,
    /// How many writes wait to be sent.
    pub(crate) backlog: WaitingWrites,
    /// When figures of queues may be written.
    pub(crate) status_budget: crate::status::budget::Budget,
    /// The same for reasons for waiting, and when the next one has its turn.
    pub(crate) reason_budget: crate::status::budget::Budget,
    pub(crate) reasons_at: Option<Timestamp>,
    /// The same for troubles.
    pub(crate) trouble_budget: crate::status::budget::Budget,
    /// Waiting Workloads whose checks are to be listed once nothing else is decided.
    pub(crate) unlisted: BTreeSet<WorkloadKey>,
    /// The kinds whose list is complete.
    pub(crate) listed: BTreeSet<crate::input::Kind>,
    /// Pods that may still use the quota of jobs that are gone.
    pub(crate) left: crate::left_behind::AllLeft,
    /// Managed jobs that are gone, below which jobs may still be made.
    pub(crate) gone: crate::gone::GoneJobs,
    /// Changes that were not yet handed to the part that keeps a copy of all places.
    pub(crate) followed: Option<crate::followed::Followed>,
    /// Ends of Workloads that were over when they were first seen.
    pub(crate) missed: crate::journal::Missed,
    /// The current object, for the code that catches a panic.
    pub(crate) working_on: Option<ObjectRef>,
    pub(crate) leader: bool,
    pub(crate) synced: bool,
    pub(crate) now: Timestamp,
    /// Whether the next cycle may decide something that the last one did not.
    pub(crate) cycle_needed: bool,
    /// When that comes.
    pub(crate) next_cycle: NextCycle,
    pub(crate) work: Work,
    /// Cycles in a row that had no other reason than a search through flavors that continues.
    pub(crate) scans: u32,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: EngineConfig) -> Self {
        let scheduler = Scheduler::new(config.core());
        let custom = crate::metrics::custom::Custom::new(&config.custom_labels);
        Self {
            config,
            scheduler,
            world: World::default(),
            outbox: Outbox::default(),
            outage: crate::outage::Outage::default(),
            changes: crate::changes::Changes::default(),
            dirty: Dirty::default(),
            timers: BTreeSet::new(),
            statuses: BTreeMap::new(),
            active: BTreeMap::new(),
            preemption_skips: BTreeMap::new(),
            made: crate::provisioning::Made::default(),
            terminating: crate::failure_recovery::state::TerminatingPods::default(),
            deleted_cohorts: BTreeSet::new(),
            custom,
            hotswap: crate::hotswap::state::HotswapState::default(),
            topology: crate::topology::state::TopologyNodes::default(),
            assigned: crate::topology::assigned::Assigned::default(),
            aside: BTreeMap::new(),
            unreleased: BTreeSet::new(),
            releasing: 0,
            unreported: BTreeSet::new(),
            reporting: 0,
            backlog: WaitingWrites::default(),
            status_budget: crate::status::budget::Budget::default(),
            reason_budget: crate::status::budget::Budget::default(),
            reasons_at: None,
            trouble_budget: crate::status::budget::Budget::default(),
            unlisted: BTreeSet::new(),
            work: Work::default(),
            listed: BTreeSet::new(),
            left: crate::left_behind::AllLeft::default(),
            gone: crate::gone::GoneJobs::default(),
            followed: None,
            missed: crate::journal::Missed::default(),
            working_on: None,
            leader: false,
            synced: false,
            now: Timestamp::UNIX_EPOCH,
            cycle_needed: false,
            next_cycle: NextCycle::Unasked,
            scans: 0,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Whether it decides: it leads, and has seen everything once.
    pub fn decides(&self) -> bool {
        self.leader && self.synced
    }

    /// Whether it has seen everything once.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Takes one input. [`Engine::cycle`] or [`Engine::take_effects`] returns effects; statuses of queues come from the former only. Until the
    /// initial state is complete nothing is computed.
    pub fn apply(&mut self, now: Timestamp, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Applied(object) => self.observe_object(object),
            Input::Deleted { object, uid } => self.forget_object(&object, uid.as_deref()),
            Input::Listed { kind, present, as_of } => self.reconcile_list(kind, present, as_of),
            Input::Synced => {
                self.synced = true;
                self.begin_pauses();
                self.journal_missed();
                // All Workloads are looked at: which queues are active since then is no reason to do it twice.
                self.collect_queue_changes();
                self.note_strays();
                self.look_at_everything();
            }
            Input::Leader(leads) => {
                let starts = leads && !self.leader;
                self.leader = leads;
                if starts {
                    self.look_at_everything();
                }
            }
            Input::Written { id, result } => self.answered(id, result),
            Input::SetAside { object, version, why, pause } => self.set_aside(&object, version, why, pause),
            Input::Backlog(writes) => self.backlog_changed(writes),
            Input::Tick => {}
        }
        if self.synced {
            self.settle();
        }
    }

    /// Runs one scheduling cycle if it may change something, and returns all effects since the last call.
    ///
    /// Call it again while [`Engine::has_work`] is true; then wait for inputs or [`Engine::next_timer`].
    pub fn cycle(&mut self, now: Timestamp) -> Vec<Effect> {
        self.cycle_around(now, |schedule| schedule())
    }

    /// The same for a caller that measures how long scheduling takes, as the engine has no clock. `around` receives a function that does the
    /// scheduling, and must call it once. `around` is called only if there is something to schedule.
    pub fn cycle_around(&mut self, now: Timestamp, around: impl FnOnce(&mut dyn FnMut())) -> Vec<Effect> {
        self.now = self.now.max(now);
        self.fire_timers();
        if self.synced {
            self.hotswap_goes_on();
            self.report_taken();
            self.settle_and_look();
            if self.may_schedule() {
                around(&mut || self.schedule());
                self.settle_and_look();
            }
            self.place_pods();
            self.write_statuses();
        }
        if !self.wants_to_schedule() {
            self.next_cycle = NextCycle::Unasked;
        }
        if !self.has_work() {
            self.list_checks_of_waiting();
        }
        self.hand_out()
    }

    /// Something changed that the next cycle may decide on.
    pub(crate) fn request_cycle(&mut self) {
        if self.next_cycle == NextCycle::Unasked {
            self.next_cycle = NextCycle::Gathers(self.now);
        }
        self.cycle_needed = true;
        self.scans = 0;
    }

    /// Whether another cycle may decide something now.
    pub fn has_work(&self) -> bool {
        self.may_schedule() || (self.decides() && (self.hotswap_resumes() || self.places_more()))
    }

    fn may_schedule(&self) -> bool {
        self.wants_to_schedule() && self.held_back_until().is_none_or(|at| at <= self.now)
    }

    fn wants_to_schedule(&self) -> bool {
        self.config.scheduling && self.decides() && self.cycle_needed && self.scheduler.has_heads()
    }

    /// Until when there is no cycle although one is needed: more of the changes that caused it may come, or the last decisions are still to be
    /// written. Writes that stay unanswered for long do not count: an API server that is slow for one tenant does not delay the others.
    fn held_back_until(&self) -> Option<Timestamp> {
        let gathered = match self.next_cycle {
            NextCycle::Gathers(since) => {
                since.checked_add(self.config.gather.while_waiting(self.backlog.ahead)).ok()
            }
            NextCycle::Unasked | NextCycle::Follows => None,
        };
        let reserving = self.outbox.reserving_since(self.config.most_reservations);
        gathered.max(reserving.and_then(|since| since.checked_add(LONGEST_RESERVATION).ok()))
    }

    /// Hands out all effects since the last call, without a cycle.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.hand_out()
    }

    /// When [`Engine::cycle`] should be called again although nothing happens.
    pub fn next_timer(&self) -> Option<Timestamp> {
        let own = self.timers.first().map(|(at, _)| *at);
        let by_scheduler = self.scheduler.next_wakeup().map(ingest::timestamp);
        let held_back = self.held_back_until().filter(|at| *at > self.now && self.wants_to_schedule());
        [own, by_scheduler, held_back].into_iter().flatten().min()
    }

    /// The current object of the engine: after a panic, the one that caused it.
    pub fn working_on(&self) -> Option<&ObjectRef> {
        self.working_on.as_ref()
    }

    /// Writes that have not been answered.
    pub fn open_writes(&self) -> usize {
        self.outbox.open().count()
    }

    /// Fires `alarm` at `at`.
    pub(crate) fn wake_at(&mut self, at: Timestamp, alarm: Alarm) {
        self.timers.insert((at, alarm));
    }

    /// Marks what is to be looked at.
    pub(crate) fn wake(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Workload(key) => {
                self.dirty.workloads.insert(key);
            }
            Alarm::Job(key) => {
                self.dirty.jobs.insert(key);
            }
            Alarm::Object(object) => self.dirty.mark(object),
            Alarm::Reasons => self.next_turn(),
            Alarm::Aside(object) => self.end_pause(&object),
            Alarm::Hotswap => self.hotswap_stale(),
            // The cycle that it wakes sets them.
            Alarm::Capacity => {}
            Alarm::Place(key) => {
                self.dirty.placed.insert(key);
            }
        }
    }

    /// Marks what is due by now.
    fn fire_timers(&mut self) {
        while let Some((at, _)) = self.timers.first()
            && *at <= self.now
            && let Some((_, alarm)) = self.timers.pop_first()
        {
            self.wake(alarm);
        }
        let now = ingest::time(self.now);
        if self.scheduler.next_wakeup().is_some_and(|at| at <= now) {
            self.scheduler.wake(now);
            self.request_cycle();
        }
    }

    /// Looks at what changed until nothing is left to do without an answer from outside; but at statuses.
    pub(crate) fn settle(&mut self) {
        loop {
            if let Some(key) = self.dirty.workloads.pop_first() {
                self.work.workloads += 1;
                self.working_on = Some(workload_ref(&key));
                self.reconcile_workload(&key);
                self.mark_places_of(&key);
            } else if let Some(key) = self.dirty.jobs.pop_first() {
                self.work.jobs += 1;
                self.working_on = Some(key.object());
                self.reconcile_job(&key);
            } else if let Some(object) = self.dirty.others.pop_first() {
                self.working_on = Some(object.clone());
                self.reconcile_other(&object);
            } else {
                return;
            }
            self.working_on = None;
        }
    }

    /// The same, together with what depends on queues, and with nodes: once for all inputs since the last cycle.
    fn settle_and_look(&mut self) {
        loop {
            self.settle();
            self.collect_queue_changes();
            if !self.dirty.is_urgent() && !self.hotswap() {
                return;
            }
        }
    }

    /// Counters of the work done.
    pub fn work(&self) -> Work {
        let core = self.scheduler.stats();
        Work {
            rebuilt_nodes: core.rebuilt_nodes,
            evaluations: core.evaluations,
            placement_searches: core.placement_searches,
            counted_domains: core.counted_domains,
            ordered_domains: core.ordered_domains,
            freed_queues: core.freed_queues,
            ..self.work
        }
    }

    /// Marks everything: after the first sync, and when leadership begins.
    fn look_at_everything(&mut self) {
        if !self.decides() {
            return;
        }
        for (key, entry) in self.world.workloads.iter_mut() {
            entry.inherited = is(&entry.object.status, Type::Admitted);
            if !is(&entry.object.status, Type::Admitted) && !is(&entry.object.status, Type::Finished) {
                entry.reason_mut().message_at = Some(self.now);
            }
            self.dirty.workloads.insert(key.clone());
        }
        self.mark_all_jobs();
        self.mark_all_statuses();
        self.mark_terminating();
        self.mark_places();
        self.hotswap_stale();
        self.request_cycle();
    }
}
