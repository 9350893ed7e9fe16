//! The virtual cluster: objects, time, the real engine and the real job adapters.

mod adopting;
mod applying;
mod clock;
mod controllers;
mod ends;
mod error;
#[cfg(feature = "faults")]
mod faulty;
mod machines;
mod pod_updates;
mod provisioning;
mod serving;
#[cfg(not(feature = "faults"))]
mod without_faults;
mod writes;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_engine::{Engine, Input, Kind, Object, ObjectRef};

use crate::agenda::{Action, Agenda};
use crate::autoscaler::Autoscaler;
#[cfg(feature = "faults")]
use crate::faults::FaultRun;
use crate::left_out::LeftOut;
use crate::machines::Machines;
use crate::object::{kinds, looks_at_nodes};
use crate::options::Options;
use crate::play::Play;
use crate::pods::Pods;
use crate::record::Record;
use crate::replay::{self, Sink};
use crate::serving::Serving;
use crate::world::{Change, World};

pub use error::SimError;

/// More rounds than this at one instant mean a bug in the engine or in the simulation.
const MOST_ROUNDS: usize = 2_000_000;

/// A cluster that exists only here.
#[derive(Debug)]
pub struct Simulation {
    pub(crate) options: Options,
    pub(crate) engine: Engine,
    pub(crate) world: World,
    pub(crate) agenda: Agenda,
    pub(crate) pods: Pods,
    pub(crate) play: Play,
    pub(crate) machines: Machines,
    pub(crate) autoscaler: Autoscaler,
    pub(crate) serving: Serving,
    record: Record,
    now: Timestamp,
    /// The time of the last event that was not one of the engine's timers.
    last_event: Timestamp,
    /// Ended jobs that must be removed.
    ended: Vec<ObjectRef>,
    /// The engine's timer that brought nothing, to be passed over.
    idle_timer: Option<Timestamp>,
    /// The destination of the decision log, if there is one.
    log: Option<Log>,
    /// Writes so far.
    writes: u64,
    /// How long an admission check takes.
    pub(crate) check_delay: SignedDuration,
    /// Whether nodes were read from a cluster.
    read_nodes: bool,
    /// Objects that were read from a cluster and cannot be simulated.
    pub(crate) left_out: LeftOut,
    /// The faults, if there are any.
    #[cfg(feature = "faults")]
    bad_day: Option<Box<FaultRun>>,
}

/// Where the decision log goes.
struct Log(Box<Sink>);

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

impl Simulation {
    /// An empty cluster, in which the engine leads.
    pub fn new(options: Options) -> Self {
        Self::with_log(options, None)
    }

    /// An empty cluster whose decision log goes to `log`, line by line (see [`crate::replay`]).
    pub fn with_log(options: Options, log: Option<Box<Sink>>) -> Self {
        let mut log = log.map(Log);
        if let Some(log) = &mut log {
            (log.0)(&replay::header(&options));
        }
        let engine = Engine::new(options.engine());
        let start = options.start;
        let mut pods = Pods::new(options.seed);
        if let Some(run_time) = options.run_time {
            pods.default = run_time;
        }
        let mut simulation = Self {
            engine,
            world: World::new(start),
            agenda: Agenda::default(),
            pods,
            play: Play::default(),
            machines: Machines::default(),
            autoscaler: Autoscaler::default(),
            serving: Serving::default(),
            record: Record::new(start),
            now: start,
            last_event: start,
            ended: Vec::new(),
            idle_timer: None,
            log,
            writes: 0,
            check_delay: SignedDuration::ZERO,
            read_nodes: false,
            left_out: LeftOut::default(),
            #[cfg(feature = "faults")]
            bad_day: None,
            options,
        };
        for namespace in ["default", "kube-system"] {
            simulation.namespace(namespace);
        }
        simulation
    }

    /// A copy of the cluster that continues separately. The decision log and the faults stay with the original.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            options: self.options.clone(),
            engine: self.engine.clone(),
            world: self.world.clone(),
            agenda: self.agenda.clone(),
            pods: self.pods.clone(),
            play: self.play.clone(),
            machines: self.machines.clone(),
            autoscaler: self.autoscaler.clone(),
            serving: self.serving.clone(),
            record: self.record.clone(),
            now: self.now,
            last_event: self.last_event,
            ended: self.ended.clone(),
            idle_timer: self.idle_timer,
            log: None,
            writes: self.writes,
            check_delay: self.check_delay,
            read_nodes: self.read_nodes,
            left_out: self.left_out.clone(),
            #[cfg(feature = "faults")]
            bad_day: None,
        }
    }

    /// Gives the engine the existing objects, and lets it lead. Objects that were applied before exist from the beginning.
    pub fn begin(&mut self) {
        self.adopt_pods();
        self.deliver();
        // Workloads of a cluster come before their jobs, and nothing may happen to them for long.
        for (_, workload) in self.engine.workloads() {
            self.record.observe(self.now, workload);
        }
        for kind in kinds().chain([Kind::Pod, Kind::JobPod]) {
            let present = self.world.of_kind(kind).map(|(reference, _)| reference.clone()).collect();
            self.feed(Input::Listed { kind, present, as_of: None });
        }
        self.feed(Input::Synced);
        self.feed(Input::Leader(true));
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What happened so far.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The simulated time in milliseconds: up to `until` if the run reached it, else up to the last event.
    pub fn lasted(&self) -> i64 {
        let last = self.record.entries.last().map_or(0, |entry| entry.at);
        self.options.until.map_or(last, |_| self.record.millis(self.now).max(last))
    }

    /// Ends the decision log.
    pub fn close_log(&mut self) {
        let now = self.now;
        if let Some(mut log) = self.log.take() {
            (log.0)(&replay::Entry::end(now, "the simulation ended").text());
        }
    }

    /// What happened, at the end.
    pub fn into_record(self) -> Record {
        self.record
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Objects that were read from a cluster and cannot be simulated.
    pub fn left_out(&self) -> &LeftOut {
        &self.left_out
    }

    /// Writes of the engine so far.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Every object of a kind, by name.
    pub fn objects(&self, kind: Kind) -> impl Iterator<Item = (&ObjectRef, &Value)> {
        self.world.of_kind(kind)
    }

    /// An object.
    pub fn object(&self, reference: &ObjectRef) -> Option<&Value> {
        self.world.get(reference)
    }

    /// The Workloads that a job owns, by its UID.
    pub fn workloads_of(&self, uid: &str) -> impl Iterator<Item = &Value> {
        self.world.owned(uid).into_iter().filter_map(|workload| self.world.get(&workload))
    }

    /// Whether a job has pods, running or terminating ones.
    pub fn has_pods(&self, job: &ObjectRef) -> bool {
        self.pods.run(job).is_some()
    }

    /// What has not ended: the numbers of scheduled actions and of jobs with pods.
    pub fn open(&self) -> (usize, usize) {
        (self.agenda.len(), self.pods.len())
    }

    fn feed(&mut self, input: Input) {
        let now = self.manager_now();
        if let Some(log) = &mut self.log {
            let object = match &input {
                Input::Applied(object) | Input::Written { result: Ok(Some(object)), .. } => Some(object),
                _ => None,
            };
            let document = object.and_then(|o| self.world.get_or_removed(&o.object_ref()));
            (log.0)(&replay::input(now, &input, document));
        }
        self.engine.apply(now, input);
    }

    /// Gives the engine what changed, and lets the job controllers see it.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        loop {
            let changes = self.world.take_changes();
            if changes.is_empty() {
                return any;
            }
            any = true;
            for change in changes {
                if self.options.cancel.is_cancelled() {
                    // The next step says so.
                    return any;
                }
                match change {
                    Change::Applied(reference) => self.deliver_applied(&reference),
                    Change::Deleted(object, uid) => {
                        self.lost_with(&object);
                        self.record.gone(self.now, &object, &uid);
                        match object.kind {
                            Kind::Node => {
                                self.record.node_gone(self.record.millis(self.now), &object.name);
                                self.nodes_gone(&[Arc::clone(&object.name)]);
                            }
                            Kind::Job(_) | Kind::Workload => self.end_pods(&object),
                            _ => {}
                        }
                        self.feed_event(Input::Deleted { object: object.clone(), uid: Some(uid) });
                        self.made_pod_gone(&object);
                        self.serving_gone(&object);
                    }
                }
            }
        }
    }

    fn deliver_applied(&mut self, reference: &ObjectRef) {
        let Some(value) = self.world.get(reference) else { return };
        match reference.kind {
            Kind::Job(kind) => {
                if self.record.job(reference).is_none() {
                    self.note_submitted(reference, kind);
                }
                if kind.integration().suspends_pods {
                    self.make_pods(reference, kind);
                } else {
                    self.sync_job(reference, kind);
                }
            }
            Kind::Workload
                if self.record.job(reference).is_none() && !self.world.had_owner_of(reference, value) =>
            {
                self.record.submitted(self.now, reference, value);
            }
            Kind::ClusterQueue => {
                self.record.configured(self.now, reference, value);
                let queue = looks_at_nodes(value);
                self.show_pods_if_asked_for(queue);
            }
            Kind::Cohort | Kind::LocalQueue | Kind::Topology | Kind::ResourceFlavor => {
                self.record.configured(self.now, reference, value);
            }
            Kind::Node => {
                let at = self.record.millis(self.now);
                self.record.node(at, &reference.name, value);
                self.node_changed(reference);
            }
            Kind::ProvisioningRequest => self.request_changed(reference),
            _ => {}
        }
        if let Some(object) = self.world.object(reference) {
            if let Object::Workload(workload) = &object {
                self.workload_changed(reference, workload);
            }
            self.feed_event(Input::Applied(object));
        }
    }

    /// Runs everything that happens at this instant.
    ///
    /// # Errors
    ///
    /// If it is cancelled, does not settle, or an audit or safety check fails. Every function that advances the time fails in these cases.
    pub fn settle(&mut self) -> Result<(), SimError> {
        for _ in 0..self.most_rounds() {
            self.check_cancelled()?;
            let mut busy = self.deliver() | self.deliver_late();
            let now = self.manager_now();
            let effects = self.engine.cycle(now);
            if let Some(log) = &mut self.log {
                (log.0)(&replay::cycle(now, &effects));
            }
            busy |= !effects.is_empty();
            self.carry_out_all(effects);
            self.check(busy)?;
            if self.options.audit {
                self.engine.audit().map_err(|differences| SimError::Audit { at: self.now, differences })?;
            }
            if busy || self.engine.has_work() {
                continue;
            }
            if self.ended.is_empty() {
                return Ok(());
            }
            for job in std::mem::take(&mut self.ended) {
                // Ended jobs are removed, as with a TTL, so that they do not fill the memory.
                self.world.delete(&job);
            }
        }
        Err(SimError::Restless { at: self.now })
    }

    /// Does what the agenda says.
    fn act(&mut self, action: Action) {
        match action {
            Action::Submit(manifest) => {
                if let Err(error) = self.put(manifest.kind, manifest.object) {
                    self.record.refused(self.now, &manifest.source.to_string(), &error.to_string());
                }
            }
            Action::Event(index) => self.apply_event(index),
            Action::Arrival(index) => self.arrive(index),
            Action::Ready(job, attempt) => self.pods_ready(&job, attempt),
            Action::Finish(job, attempt) => self.finish(&job, attempt),
            Action::Gone(job, attempt) => self.pods_gone(&job, attempt),
            Action::PodsLeave(node, since) => self.pods_leave(&node, since),
            Action::PodsCollected(node) => self.collect_pods(&node),
            Action::Checks(workload, since) => self.answer_checks(&workload, since),
            Action::Answer(request, uid, number) => self.answer_request(&request, uid, number),
        }
    }

    /// Notes something that the scenario did.
    pub(crate) fn note(&mut self, what: &str) {
        self.last_event = self.now;
        let now = self.now;
        self.record.scenario(now, what);
    }
}
