//! The engine: its state, its doors, and the order in which it works things off.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sluice_core::{Name, Scheduler, WorkloadKey};

use crate::config::EngineConfig;
use crate::effect::Effect;
use crate::ingest;
use crate::input::{Input, ObjectRef};
use crate::outbox::Outbox;
use crate::world::{JobKey, World, workload_ref};

/// What a timer wakes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// A Workload is to be looked at.
    Workload(WorkloadKey),
    /// A job is to be looked at.
    Job(JobKey),
    /// The status of a queue, cohort, flavor or check is to be looked at.
    Object(ObjectRef),
    /// Nodes are to be looked at.
    Hotswap,
}

/// What is to be looked at, in a fixed order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    pub workloads: BTreeSet<WorkloadKey>,
    pub jobs: BTreeSet<JobKey>,
    pub objects: BTreeSet<ObjectRef>,
}

impl Dirty {
    fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.jobs.is_empty() && self.objects.is_empty()
    }
}

/// What is known of the status writes of one queue, cohort, flavor or check.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusEntry {
    /// The write that has not been answered.
    pub open: Option<crate::effect::EffectId>,
    /// When its status was last written.
    pub written_at: Option<Timestamp>,
    /// How its writes fare.
    pub retry: crate::world::Retry,
    /// What an event said holds it.
    pub told_holders: Option<String>,
}

/// The state machine.
///
/// Feed it with [`Engine::apply`], let it decide with [`Engine::cycle`], carry out the effects, and feed the answers of
/// the writes back. It decides nothing before [`Input::Synced`] and nothing unless it leads.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not one state")]
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) scheduler: Scheduler,
    pub(crate) world: World,
    pub(crate) outbox: Outbox,
    /// How queues, Cohorts and flavors changed lately.
    pub(crate) changes: crate::changes::Changes,
    pub(crate) dirty: Dirty,
    pub(crate) timers: BTreeSet<(Timestamp, Alarm)>,
    pub(crate) statuses: BTreeMap<ObjectRef, StatusEntry>,
    /// Whether each ClusterQueue was active when it was last looked at.
    pub(crate) active: BTreeMap<Name, bool>,
    /// By ClusterQueue: heads of the last cycle that preempted nobody, as others took their victims or the room beside them.
    pub(crate) preemption_skips: BTreeMap<Name, usize>,
    /// What was made for Workloads that wait for nodes.
    pub(crate) made: crate::provisioning::Made,
    /// Pods that may be removed by force.
    pub(crate) terminating: crate::failure_recovery::State,
    /// What is kept about failing nodes.
    pub(crate) hotswap: crate::hotswap::State,
    /// Objects that made the engine panic, with the version that did, and why.
    pub(crate) aside: BTreeMap<ObjectRef, (Option<String>, String)>,
    /// Whether it is to be looked up again which ClusterQueues are active.
    pub(crate) activity_stale: bool,
    /// The kinds whose list is complete.
    pub(crate) listed: BTreeSet<crate::input::Kind>,
    /// What is being looked at, for whoever catches a panic.
    pub(crate) working_on: Option<ObjectRef>,
    pub(crate) leader: bool,
    pub(crate) synced: bool,
    pub(crate) now: Timestamp,
    /// Whether the next cycle may decide something that the last one did not.
    pub(crate) restless: bool,
    /// Cycles in a row that had no other reason than a search through flavors that goes on.
    pub(crate) scans: u32,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(config: EngineConfig) -> Self {
        let scheduler = Scheduler::new(config.core());
        Self {
            config,
            scheduler,
            world: World::default(),
            outbox: Outbox::default(),
            changes: crate::changes::Changes::default(),
            dirty: Dirty::default(),
            timers: BTreeSet::new(),
            statuses: BTreeMap::new(),
            active: BTreeMap::new(),
            preemption_skips: BTreeMap::new(),
            made: crate::provisioning::Made::default(),
            terminating: crate::failure_recovery::State::default(),
            hotswap: crate::hotswap::State::default(),
            aside: BTreeMap::new(),
            activity_stale: false,
            listed: BTreeSet::new(),
            working_on: None,
            leader: false,
            synced: false,
            now: Timestamp::UNIX_EPOCH,
            restless: false,
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

    /// Takes in one thing that happened. Effects come out of [`Engine::cycle`] or [`Engine::take_effects`].
    pub fn apply(&mut self, now: Timestamp, input: Input) {
        self.now = self.now.max(now);
        match input {
            Input::Applied(object) => self.observe_object(object),
            Input::Deleted { object, uid } => self.forget_object(&object, uid.as_deref()),
            Input::Listed { kind, present, as_of } => self.reconcile_list(kind, present, as_of),
            Input::Synced => {
                self.synced = true;
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
            Input::SetAside { object, why } => self.set_aside(&object, why),
            Input::Tick => {}
        }
        self.settle();
    }

    /// Runs one scheduling cycle if one may bring something new, and hands out all effects since the last call.
    ///
    /// Call it again while [`Engine::has_work`] says so; then wait for inputs or [`Engine::next_timer`].
    pub fn cycle(&mut self, now: Timestamp) -> Vec<Effect> {
        self.cycle_around(now, |schedule| schedule())
    }

    /// The same for who measures how long scheduling takes, as the engine has no clock: `around` is handed the scheduling alone, and not
    /// called when there is nothing to schedule. It must call what it is handed once.
    pub fn cycle_around(&mut self, now: Timestamp, around: impl FnOnce(&mut dyn FnMut())) -> Vec<Effect> {
        self.now = self.now.max(now);
        self.ring();
        self.settle_and_look();
        if self.has_work() {
            around(&mut || self.schedule());
            self.settle_and_look();
        }
        self.outbox.take()
    }

    /// Something changed that the next cycle may decide on.
    pub(crate) fn stir(&mut self) {
        self.restless = true;
        self.scans = 0;
    }

    /// Whether another cycle may decide something now.
    pub fn has_work(&self) -> bool {
        self.config.scheduling && self.decides() && self.restless && self.scheduler.has_heads()
    }

    /// Hands out all effects since the last call, without a cycle.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.outbox.take()
    }

    /// When [`Engine::cycle`] should be called again although nothing happens.
    pub fn next_timer(&self) -> Option<Timestamp> {
        let own = self.timers.first().map(|(at, _)| *at);
        let parked = self.scheduler.next_wakeup().map(ingest::timestamp);
        match (own, parked) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The object that the engine is looking at: after a panic, the one that caused it.
    pub fn working_on(&self) -> Option<&ObjectRef> {
        self.working_on.as_ref()
    }

    /// Writes that have not been answered.
    pub fn open_writes(&self) -> usize {
        self.outbox.open().count()
    }

    /// Lets `alarm` ring at `at`.
    pub(crate) fn wake_at(&mut self, at: Timestamp, alarm: Alarm) {
        self.timers.insert((at, alarm));
    }

    /// Marks what is due by now.
    fn ring(&mut self) {
        while let Some((at, _)) = self.timers.first()
            && *at <= self.now
            && let Some((_, alarm)) = self.timers.pop_first()
        {
            match alarm {
                Alarm::Workload(key) => {
                    self.dirty.workloads.insert(key);
                }
                Alarm::Job(key) => {
                    self.dirty.jobs.insert(key);
                }
                Alarm::Object(object) => {
                    self.dirty.objects.insert(object);
                }
                Alarm::Hotswap => self.hotswap_stale(),
            }
        }
        let now = ingest::time(self.now);
        if self.scheduler.next_wakeup().is_some_and(|at| at <= now) {
            self.scheduler.wake(now);
            self.stir();
        }
    }

    /// Looks at everything that changed until nothing is left to do without an answer from outside.
    pub(crate) fn settle(&mut self) {
        loop {
            self.collect_queue_changes();
            if self.dirty.is_empty() {
                return;
            }
            if let Some(key) = self.dirty.workloads.pop_first() {
                self.working_on = Some(workload_ref(&key));
                self.reconcile_workload(&key);
            } else if let Some(key) = self.dirty.jobs.pop_first() {
                self.working_on = Some(key.object());
                self.reconcile_job(&key);
            } else if let Some(object) = self.dirty.objects.pop_first() {
                self.working_on = Some(object.clone());
                self.reconcile_status(&object);
            }
            self.working_on = None;
        }
    }

    /// The same, with the nodes: once for all that was taken in since the last cycle.
    fn settle_and_look(&mut self) {
        self.settle();
        while self.hotswap() {
            self.settle();
        }
    }

    /// Marks everything: after the first sync, and when leadership begins.
    fn look_at_everything(&mut self) {
        if !self.decides() {
            return;
        }
        self.dirty.workloads.extend(self.world.workloads.keys().cloned());
        self.dirty.jobs.extend(self.world.jobs.keys().cloned());
        self.mark_all_statuses();
        self.mark_terminating();
        self.hotswap_stale();
        self.stir();
    }
}
