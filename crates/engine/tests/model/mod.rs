//! A small API server in memory, with controllers that play jobs: the basis of the engine's tests.
//!
//! It keeps objects as JSON (jobs as views), applies the engine's writes like the real one as far as the engine can notice (optimistic locking, field
//! managers of Workload status, finalizers, owner garbage collection, generations), and returns answers and watch events.
#![expect(dead_code, reason = "each test binary uses a part")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue stops")]

pub mod api;
pub mod build;
pub mod played;
pub mod pods;
mod workloads;

pub use workloads::{condition, reported};
use workloads::{find, note};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sluice_api::job::{JobView, PodSetInfo};
use sluice_api::journal::Line;
use sluice_api::v1beta2;
use sluice_engine::{
    Effect, Engine, EngineConfig, Event, Input, Kind, Level, ObjectRef, Purpose, WaitingWrites, Write,
    WriteError, WriteRequest,
};

pub use api::Api;

/// Every kind that the manager lists before it says so.
pub const KINDS: [Kind; 27] = [
    Kind::ResourceFlavor,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::Cohort,
    Kind::AdmissionCheck,
    Kind::Topology,
    Kind::Workload,
    Kind::WorkloadPriorityClass,
    Kind::PriorityClass,
    Kind::Namespace,
    Kind::Node,
    Kind::Pod,
    Kind::JobPod,
    Kind::LimitRange,
    Kind::RuntimeClass,
    Kind::ProvisioningRequestConfig,
    Kind::ProvisioningRequest,
    Kind::Template(sluice_api::job::TemplateKind::TRAINING_RUNTIME),
    Kind::Job(sluice_api::job::JobKind::JOB),
    Kind::Job(sluice_api::job::JobKind::JOB_SET),
    Kind::Job(sluice_api::job::JobKind::MPI_JOB),
    Kind::Job(sluice_api::job::JobKind::TRAIN_JOB),
    Kind::Job(sluice_api::job::JobKind::APP_WRAPPER),
    Kind::Job(sluice_api::job::JobKind::POD),
    Kind::Job(sluice_api::job::JobKind::RAY_SERVICE),
    Kind::Job(sluice_api::job::JobKind::STATEFUL_SET),
    Kind::Job(sluice_api::job::JobKind::LEADER_WORKER_SET),
];

/// Cycles at one instant after which the cluster should have settled.
const MAX_CYCLES: u64 = 10_000;

/// A cluster with one engine.
pub struct Cluster {
    pub api: Api,
    pub engine: Engine,
    pub now: Timestamp,
    pub config: EngineConfig,
    /// Events in the order recorded.
    pub events: Vec<Event>,
    /// Writes in the order sent: what they acted on, and why.
    pub writes: Vec<(ObjectRef, Purpose)>,
    /// The stops in the order sent: how the jobs were, and what they were to get back.
    pub stops: Vec<(Arc<JobView>, Vec<PodSetInfo>)>,
    /// The field managers of applies, in the order sent, and the types of the conditions that each wrote.
    pub applied: Vec<(&'static str, Vec<String>)>,
    /// Observations in the order made.
    pub observed: Vec<(String, Vec<String>)>,
    /// Their values.
    pub values: Vec<f64>,
    /// Objects whose series went, in that order.
    pub series_gone: Vec<ObjectRef>,
    /// Lines of the journal in the order made.
    pub journal: Vec<Line>,
    /// The steps of attempts.
    pub attempts: Vec<sluice_engine::attempt::AttemptStep>,
    /// Whether pods vanish as soon as nothing else happens.
    pub pods_vanish: bool,
    /// Fail the next writes of these purposes so.
    pub fail: VecDeque<(Purpose, WriteError)>,
    /// Answer every write of this purpose so.
    pub refuse: Option<(Purpose, WriteError)>,
    /// How many were.
    pub refused: usize,
    /// What the log said at the level of a warning.
    pub warnings: Vec<String>,
    /// Carry out the next write of this purpose, and say that it failed.
    pub lost: Option<Purpose>,
    /// Hold back the writes of this purpose, as a slow API server does, until [`Cluster::release`].
    pub slow: Option<Purpose>,
    /// Hold back all writes.
    pub silent: bool,
    held: Vec<WriteRequest>,
    /// How many of them the engine took back.
    pub withdrawn: usize,
    /// Carry writes of this purpose out, but hold their answers back until [`Cluster::release`].
    pub late: Option<Purpose>,
    unanswered: Vec<Input>,
    /// The watch of this kind delivers nothing any more.
    pub blind: Option<Kind>,
    /// Stop after this many writes: the rest of the effects is lost.
    pub writes_left: Option<usize>,
    /// What the API server had before each write, if that is kept.
    pub before_writes: Option<Vec<Api>>,
    /// Cycles so far.
    pub cycles: u64,
    /// Stop after this many cycles without an error; a measurement may end before the cluster settles.
    pub cycles_left: Option<u64>,
    /// Steps of searches for room in one cycle, at most.
    pub most_steps: u64,
    /// Looks at all nodes and displaced work in one cycle, at most.
    pub most_looks: u64,
    /// Where time is measured: CPU time so far.
    pub clock: fn() -> Duration,
    /// The longest cycle by that clock, and all that looked at the nodes for Hotswap.
    pub longest: Duration,
    pub looking: Duration,
    /// Where what the engine does is measured: does it, and gives CPU time and allocations.
    pub meter: fn(&mut dyn FnMut()) -> (Duration, u64),
    /// What that measured, added up.
    pub spent: (Duration, u64),
    /// The time of it that it took to take things in.
    pub taking_in: Duration,
    /// The most allocations that it took to take one thing in.
    pub most_reported: u64,
    /// The most allocations of one cycle.
    pub most_allocations: u64,
    /// Whether the invariants are checked after every step.
    pub checked: bool,
    seen: u64,
}

impl Cluster {
    /// A cluster of that configuration whose engine leads and has seen the (empty) world.
    pub fn new(config: EngineConfig) -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Self::of(config, Api::at(now))
    }

    /// The same of a world that is there already.
    pub fn of(config: EngineConfig, api: Api) -> Self {
        let mut cluster = Self {
            now: api.now,
            api,
            engine: Engine::new(config.clone()),
            config,
            events: Vec::new(),
            writes: Vec::new(),
            stops: Vec::new(),
            applied: Vec::new(),
            observed: Vec::new(),
            values: Vec::new(),
            series_gone: Vec::new(),
            journal: Vec::new(),
            attempts: Vec::new(),
            pods_vanish: true,
            fail: VecDeque::new(),
            refuse: None,
            refused: 0,
            warnings: Vec::new(),
            lost: None,
            slow: None,
            silent: false,
            held: Vec::new(),
            withdrawn: 0,
            late: None,
            unanswered: Vec::new(),
            blind: None,
            writes_left: None,
            before_writes: None,
            cycles: 0,
            cycles_left: None,
            most_steps: 0,
            most_looks: 0,
            clock: || Duration::ZERO,
            longest: Duration::ZERO,
            looking: Duration::ZERO,
            meter: |work| {
                work();
                (Duration::ZERO, 0)
            },
            spent: (Duration::ZERO, 0),
            taking_in: Duration::ZERO,
            most_reported: 0,
            most_allocations: 0,
            checked: true,
            seen: 0,
        };
        cluster.restart();
        cluster
    }

    /// With the default configuration, but without waiting for anything, and with two namespaces.
    pub fn plain() -> Self {
        let mut cluster = Self::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
        cluster.api.namespace("team-a", &[("team", "a")]);
        cluster.api.namespace("team-b", &[("team", "b")]);
        cluster
    }

    /// Drops the engine and makes a new one from what the API server has.
    pub fn restart(&mut self) {
        self.restart_without(&[]);
    }

    /// The same, but these kinds are not listed yet.
    pub fn restart_without(&mut self, unseen: &[Kind]) {
        self.engine = Engine::new(self.config.clone());
        self.seen = self.api.revision();
        let all = self.api.everything();
        for object in all.into_iter().filter(|o| !unseen.contains(&o.object_ref().kind)) {
            self.engine.apply(self.now, Input::Applied(object));
        }
        for kind in KINDS.into_iter().filter(|kind| !unseen.contains(kind)) {
            let present = self.api.names(kind);
            self.list(kind, present, self.seen);
        }
        self.engine.apply(self.now, Input::Synced);
        self.engine.apply(self.now, Input::Leader(true));
    }

    /// Delivers a complete list, as the API server had it at a revision.
    pub fn list(&mut self, kind: Kind, present: Vec<ObjectRef>, revision: u64) {
        self.engine.apply(self.now, Input::Listed { kind, present, as_of: Some(revision) });
    }

    /// Delivers what the watches have seen since.
    fn watch(&mut self) -> bool {
        let mut events = self.api.events_since(self.seen);
        events.retain(|event| {
            let kind = match event {
                Input::Applied(object) => Some(object.object_ref().kind),
                Input::Deleted { object, .. } => Some(object.kind),
                _ => None,
            };
            kind.is_none() || kind != self.blind
        });
        self.seen = self.api.revision();
        let any = !events.is_empty();
        for input in events {
            self.give(input);
        }
        any
    }

    /// Reports to the engine that `all` writes wait to be sent, `ahead` of them before those of a new decision.
    pub fn backlog(&mut self, all: u32, ahead: u32) {
        self.give(Input::Backlog(WaitingWrites { all, ahead, busy: false }));
    }

    /// Reports to the engine whether the API server has more important writes to carry out than reports.
    pub fn busy(&mut self, busy: bool) {
        self.give(Input::Backlog(WaitingWrites { busy, ..WaitingWrites::default() }));
    }

    /// Gives the engine an input.
    fn give(&mut self, input: Input) {
        let mut input = Some(input);
        let (engine, now) = (&mut self.engine, self.now);
        let (time, allocations) = (self.meter)(&mut || {
            if let Some(input) = input.take() {
                engine.apply(now, input);
            }
        });
        self.spent.0 += time;
        self.spent.1 += allocations;
        self.taking_in += time;
        self.most_reported = self.most_reported.max(allocations);
    }

    /// Lets the engine decide.
    fn cycle(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let (engine, now) = (&mut self.engine, self.now);
        let (time, allocations) = (self.meter)(&mut || effects = engine.cycle(now));
        self.spent.0 += time;
        self.spent.1 += allocations;
        self.most_allocations = self.most_allocations.max(allocations);
        effects
    }

    /// Carries one effect out. False once the number of writes is used up.
    fn carry_out(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Write(request) => {
                if let Some(left) = &mut self.writes_left {
                    if *left == 0 {
                        return false;
                    }
                    *left -= 1;
                }
                if !matches!(request.write, Write::Read) {
                    if let Some(before) = &mut self.before_writes {
                        before.push(self.api.clone());
                    }
                    self.writes.push((request.object.clone(), request.purpose));
                }
                if let Write::StopJob { view, infos } = &request.write {
                    self.stops.push((Arc::clone(view), infos.clone()));
                }
                if let Write::Apply { field_manager, body, .. } = &request.write {
                    let body = body.value().unwrap();
                    let conditions = body["status"]["conditions"].as_array().into_iter().flatten();
                    let types = conditions.map(|c| c["type"].as_str().unwrap().to_owned());
                    self.applied.push((field_manager, types.collect()));
                }
                if self.silent || self.slow == Some(request.purpose) {
                    self.held.push(request);
                    return true;
                }
                let injected = self.fail.iter().position(|(p, _)| *p == request.purpose);
                let refused = self.refuse.as_ref().filter(|(purpose, _)| *purpose == request.purpose);
                let result = match (refused, injected.and_then(|at| self.fail.remove(at))) {
                    (Some((_, error)), _) => {
                        self.refused += 1;
                        Err(error.clone())
                    }
                    (None, Some((_, error))) => Err(error),
                    (None, None) => self.api.perform(&request),
                };
                let lost = self.lost.take_if(|purpose| *purpose == request.purpose).is_some();
                let result =
                    if lost { Err(WriteError::Transient("no answer came".to_owned())) } else { result };
                let answer = Input::Written { id: request.id, result };
                if self.late == Some(request.purpose) {
                    self.unanswered.push(answer);
                } else {
                    self.give(answer);
                }
            }
            Effect::Event(event) => self.events.push(event),
            Effect::Observe(o) => {
                self.values.push(o.value);
                self.observed.push((o.metric.to_owned(), o.labels.iter().map(ToString::to_string).collect()));
            }
            Effect::SeriesGone(object) => self.series_gone.push(object),
            Effect::Log(line) if line.level >= Level::Warn => self.warnings.push(format!("{line:?}")),
            Effect::Withdraw(id) => {
                if let Some(at) = self.held.iter().position(|request| request.id == id) {
                    self.held.remove(at);
                    self.withdrawn += 1;
                    self.give(Input::Written { id, result: Err(WriteError::Withdrawn) });
                }
            }
            Effect::Log(_) => {}
            Effect::Journal(line) => self.journal.push(*line),
            Effect::Attempt(step) => self.attempts.push(*step),
        }
        true
    }

    /// Carries out and answers what was held back.
    pub fn release(&mut self) {
        (self.slow, self.late, self.silent) = (None, None, false);
        for answer in std::mem::take(&mut self.unanswered) {
            self.engine.apply(self.now, answer);
        }
        for request in std::mem::take(&mut self.held) {
            let result = self.api.perform(&request);
            self.engine.apply(self.now, Input::Written { id: request.id, result });
        }
        self.settle();
    }

    /// Says of what was held back that no answer came, although it may still arrive.
    pub fn time_out(&mut self) {
        self.slow = None;
        for request in &self.held {
            let answer = Err(WriteError::Transient("no answer came".to_owned()));
            self.engine.apply(self.now, Input::Written { id: request.id, result: answer });
        }
        self.settle();
    }

    /// Carries out what a former engine had under way; the answers are lost.
    pub fn arrive(&mut self) {
        self.slow = None;
        for request in std::mem::take(&mut self.held) {
            self.api.perform(&request).expect("nothing has changed since");
        }
    }

    /// Runs until nothing happens any more at this instant, and checks the invariants after every step.
    pub fn settle(&mut self) {
        let end = self.cycles + MAX_CYCLES;
        while self.cycles < end || self.cycles_left.is_some() {
            if self.cycles_left == Some(0) {
                return;
            }
            self.cycles_left = self.cycles_left.map(|left| left - 1);
            self.cycles += 1;
            let mut busy = self.watch();
            let (before, began) = (self.engine.work(), (self.clock)());
            let effects = self.cycle();
            let took = (self.clock)().saturating_sub(began);
            self.longest = self.longest.max(took);
            let after = self.engine.work();
            self.looking += if after.hotswap_looks > before.hotswap_looks { took } else { Duration::ZERO };
            self.most_steps = self.most_steps.max(after.hotswap_steps - before.hotswap_steps);
            self.most_looks = self.most_looks.max(after.hotswap_looks - before.hotswap_looks);
            busy |= !effects.is_empty();
            for effect in effects {
                if !self.carry_out(effect) {
                    return;
                }
            }
            if self.checked {
                self.check();
            }
            busy |= self.engine.has_work();
            if !busy {
                if self.pods_vanish && self.api.pods_vanish() {
                    continue;
                }
                return;
            }
        }
        let state: String = format!("{:#}", self.engine.state()).chars().take(4_000).collect();
        panic!("the cluster does not settle within {MAX_CYCLES} cycles; the state begins with {state}");
    }

    /// Lets time pass, stopping at each of the engine's timers.
    pub fn advance(&mut self, seconds: i64) {
        let end = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        self.settle();
        // Without cycles left no timer is ever done with.
        while self.cycles_left != Some(0)
            && let Some(next) = self.engine.next_timer().filter(|t| *t <= end)
        {
            self.now = self.now.max(next);
            self.api.now = self.now;
            self.engine.apply(self.now, Input::Tick);
            self.settle();
            if next == self.now && self.engine.next_timer() == Some(next) {
                break;
            }
        }
        self.now = end;
        self.api.now = end;
        self.settle();
    }

    /// What must hold at any time.
    pub fn check(&self) {
        if let Err(differences) = self.engine.audit() {
            panic!("audit: {differences:#?}");
        }
        let workloads = self.api.workloads_by_controller();
        for (key, job) in self.api.jobs() {
            let goes = job.view.deleting;
            if job.view.suspended || goes || job.view.queue_name.is_none() || job.started_by_user {
                continue;
            }
            // A job that ran when its queue began to ask for another check is stopped only after the check is in its Workload.
            let starts = |w: &v1beta2::Workload| {
                let is_true = |type_| find(w, type_).is_some_and(|c| c.status == "True");
                let taken_back = find(w, "Admitted").is_some_and(|c| c.reason.starts_with("Unsatisfied"));
                is_true("Admitted") || (taken_back && is_true("QuotaReserved"))
            };
            let of_job = workloads.get(&*job.view.job.uid).into_iter().flatten();
            let admitted = of_job.map(|workload| api::decode(workload)).any(|workload| starts(&workload));
            assert!(admitted || job.view.finished.is_some(), "job {key} runs without an admitted Workload");
        }
        self.api.check_pods();
    }

    /// The only Workload of a job.
    pub fn workload(&self, job: &str) -> v1beta2::Workload {
        let state = self.api.job(job);
        let owned = self.api.workloads_of(&state.view.job.uid);
        assert_eq!(owned.len(), 1, "{job} has {} Workloads", owned.len());
        owned[0].clone()
    }

    /// The events with that reason, as `<kind>/<name>: <note>`. Of the names of Workloads the hash is left out.
    pub fn notes(&self, reason: &str) -> Vec<String> {
        self.events.iter().filter(|e| e.reason == reason).map(note).collect()
    }

    /// The number of writes for that purpose.
    pub fn written(&self, purpose: Purpose) -> usize {
        self.writes.iter().filter(|(_, p)| *p == purpose).count()
    }
}
