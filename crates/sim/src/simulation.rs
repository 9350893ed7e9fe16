//! The virtual cluster: objects, time, the real engine and the real job adapters.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_api::{conditions, labels, slim};
use sluice_engine::{Effect, Engine, Input, Kind, Object, ObjectRef, Write};
use sluice_jobs::Patch;
use sluice_jobs::webhook::{Context, Operation, mutate, validate};

use crate::agenda::{Action, Agenda, after};
use crate::json::{self, text};
use crate::manifest::Manifest;
use crate::object::{KINDS, Wrong};
use crate::options::Options;
use crate::play::Play;
use crate::pods::{self, Phase, Pods, SUBMIT_AFTER_SECONDS};
use crate::record::Record;
use crate::replay::{self, Sink};
use crate::world::{Change, World};

/// Rounds at one instant after which something is wrong with the engine or with us.
const MOST_ROUNDS: usize = 2_000_000;
/// How long the engine's own timers are followed when nothing else is left to happen.
const PATIENCE: SignedDuration = SignedDuration::from_hours(24);

/// Why a simulation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// An object was refused, as the API server would.
    #[error("{object}: {}{}{message}", path, if path.is_empty() { "" } else { ": " })]
    Refused {
        /// Which.
        object: String,
        /// The field, if it is known.
        path: String,
        /// Why.
        message: String,
    },
    /// The engine's incremental state is not what its objects say.
    #[error("at {at}: the engine's state differs from its objects: {}", differences.join("; "))]
    Audit {
        /// When.
        at: Timestamp,
        /// Where.
        differences: Vec<String>,
    },
    /// The engine does not come to rest.
    #[error("at {at}: the engine does not come to rest")]
    Restless {
        /// When.
        at: Timestamp,
    },
}

/// A cluster that exists only here.
#[derive(Debug)]
pub struct Simulation {
    pub(crate) options: Options,
    pub(crate) engine: Engine,
    pub(crate) world: World,
    pub(crate) agenda: Agenda,
    pub(crate) pods: Pods,
    pub(crate) play: Play,
    record: Record,
    now: Timestamp,
    /// When something last happened that was not one of the engine's timers.
    last_event: Timestamp,
    /// Jobs that ended and are to be removed.
    ended: Vec<ObjectRef>,
    /// The engine's timer that brought nothing, to be passed over.
    idle_timer: Option<Timestamp>,
    /// Where the decision log goes, if anybody wants it.
    log: Option<Log>,
    /// Writes so far.
    writes: u64,
    /// How long an admission check takes.
    pub(crate) check_delay: SignedDuration,
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
            record: Record::new(start),
            now: start,
            last_event: start,
            ended: Vec::new(),
            idle_timer: None,
            log,
            writes: 0,
            check_delay: SignedDuration::ZERO,
            options,
        };
        for namespace in ["default", "kube-system"] {
            simulation.namespace(namespace);
        }
        simulation
    }

    /// Lets the engine see what there is, and lead. Objects applied before are there from the beginning.
    pub fn begin(&mut self) {
        self.deliver();
        for kind in KINDS {
            let present = self.world.of_kind(kind).map(|(reference, _)| reference.clone()).collect();
            self.tell(Input::Listed { kind, present });
        }
        self.tell(Input::Synced);
        self.tell(Input::Leader(true));
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What happened so far.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// How long it lasted, in milliseconds: what was asked for, else until the last thing happened.
    pub fn lasted(&self) -> i64 {
        let last = self.record.entries.last().map_or(0, |entry| entry.at);
        self.options.until.map_or(last, |_| self.record.millis(self.now).max(last))
    }

    /// Ends the decision log.
    pub fn close_log(&mut self) {
        self.log = None;
    }

    /// What happened, at the end.
    pub fn into_record(self) -> Record {
        self.record
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Writes of the engine so far.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// What is there and not yet over: scheduled actions and jobs with pods.
    pub fn open(&self) -> (usize, usize) {
        (self.agenda.len(), self.pods.len())
    }

    fn tell(&mut self, input: Input) {
        if let Some(log) = &mut self.log {
            let object = match &input {
                Input::Applied(object) | Input::Written { result: Ok(Some(object)), .. } => Some(object),
                _ => None,
            };
            let document = object.and_then(|o| self.world.get(&o.object_ref()));
            (log.0)(&replay::input(self.now, &input, document));
        }
        self.engine.apply(self.now, input);
    }

    /// Makes a namespace that nobody declared.
    fn namespace(&mut self, name: &str) {
        if name.is_empty() || self.world.get(&ObjectRef::cluster(Kind::Namespace, name)).is_some() {
            return;
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let gates = self.options.configuration.gates;
        self.world.put(Kind::Namespace, object, gates).expect("a namespace that has a name is taken");
    }

    /// Applies a manifest now, as `kubectl apply` would; one that says that it comes later is put on the agenda.
    pub fn apply(&mut self, manifest: &Manifest) -> Result<(), SimError> {
        let later = text(&manifest.object["metadata"]["annotations"][SUBMIT_AFTER_SECONDS]);
        if let Some(seconds) = later.parse::<i64>().ok().filter(|s| *s > 0) {
            let at = after(self.options.start, SignedDuration::from_secs(seconds));
            if at > self.now {
                self.agenda.put(at, Action::Submit(Box::new(manifest.clone())));
                return Ok(());
            }
        }
        self.put(manifest.kind, manifest.object.clone()).map(|_| ())
    }

    /// Creates or replaces an object now.
    pub(crate) fn put(&mut self, kind: Kind, mut value: Value) -> Result<ObjectRef, SimError> {
        let refused = |value: &Value, wrong: Wrong| SimError::Refused {
            object: format!("{} {}", kind.as_str(), text(&value["metadata"]["name"])),
            path: wrong.path,
            message: wrong.message,
        };
        if kind.namespaced() {
            let namespace = text(&value["metadata"]["namespace"]);
            let namespace = if namespace.is_empty() { "default" } else { namespace }.to_owned();
            value["metadata"]["namespace"] = json!(namespace);
            self.namespace(&namespace);
        }
        if let Kind::Job(job) = kind {
            self.admit_job(job, &mut value).map_err(|wrong| refused(&value, wrong))?;
        }
        if kind == Kind::AdmissionCheck {
            // Its controller is played here: it is there.
            value["status"]["conditions"] = json!([{
                "type": conditions::ACTIVE, "status": "True", "reason": "Active", "message": "",
                "lastTransitionTime": crate::world::seconds(self.now),
            }]);
        }
        let shown = value.clone();
        let gates = self.options.configuration.gates;
        let reference = self.world.put(kind, value, gates).map_err(|wrong| refused(&shown, wrong))?;
        self.last_event = self.now;
        Ok(reference)
    }

    /// What the webhooks of jobs do with a new one.
    fn admit_job(&self, kind: JobKind, value: &mut Value) -> Result<(), Wrong> {
        let namespace = text(&value["metadata"]["namespace"]).to_owned();
        let reference = crate::object::reference(Kind::Job(kind), value);
        let old = self.world.get(&reference);
        let labels_of = |v: &Value| -> BTreeMap<String, String> {
            let map = v["metadata"]["labels"].as_object();
            map.into_iter().flatten().map(|(k, v)| (k.clone(), text(v).to_owned())).collect()
        };
        let known = self.world.get(&ObjectRef::cluster(Kind::Namespace, namespace.as_str()));
        let namespace_labels = known.map(labels_of).unwrap_or_default();
        let default_queue =
            ObjectRef::namespaced(Kind::LocalQueue, namespace.as_str(), labels::DEFAULT_LOCAL_QUEUE);
        let default_class =
            ObjectRef::cluster(Kind::WorkloadPriorityClass, labels::DEFAULT_WORKLOAD_PRIORITY_CLASS);
        let configuration = &self.options.configuration;
        let context = Context {
            manage_jobs_without_queue_name: configuration.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: &configuration.managed_jobs_namespace_selector,
            namespace_labels: &namespace_labels,
            default_local_queue: self.world.get(&default_queue).is_some(),
            default_priority_class: self.world.get(&default_class).is_some(),
            managed_owner: false,
            gates: configuration.gates,
        };
        // One that was read from a cluster is as its webhooks left it.
        if old.is_none()
            && text(&value["metadata"]["uid"]).is_empty()
            && let Patch::Json(operations) = mutate(Operation::Create, value, &context)
        {
            json::apply(value, &operations).map_err(|why| Wrong::new("", why))?;
        }
        if old.is_some() && value["spec"].get("suspend").is_none() {
            value["spec"]["suspend"] = old.map(|o| o["spec"]["suspend"].clone()).unwrap_or_default();
        }
        validate(kind, value, old, &context).map_err(|denied| Wrong::new("", denied.to_string()))
    }

    /// Tells the engine what changed, and lets the job controllers see it.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        loop {
            let changes = self.world.take_changes();
            if changes.is_empty() {
                return any;
            }
            any = true;
            for change in changes {
                match change {
                    Change::Applied(reference) => self.deliver_applied(&reference),
                    Change::Deleted(object, uid) => {
                        self.record.gone(self.now, &object, &uid);
                        self.pods.end(&object);
                        self.play.placements_end(&object);
                        self.tell(Input::Deleted { object, uid: Some(uid) });
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
                    self.record.submitted(self.now, reference, value);
                }
                self.sync_job(reference, kind);
            }
            Kind::Workload if self.record.job(reference).is_none() => {
                let owners = value["metadata"]["ownerReferences"].as_array();
                if owners.is_none_or(Vec::is_empty) {
                    self.record.submitted(self.now, reference, value);
                }
            }
            Kind::ClusterQueue | Kind::Cohort | Kind::LocalQueue => {
                self.record.configured(self.now, reference, value);
            }
            Kind::Node => self.play.node_changed(reference, value),
            _ => {}
        }
        if let Some(object) = self.world.object(reference) {
            if let Object::Workload(workload) = &object {
                self.workload_changed(reference, workload);
            }
            self.tell(Input::Applied(object));
        }
    }

    /// What the job controller and the kubelets do about a job as it is now.
    fn sync_job(&mut self, reference: &ObjectRef, kind: JobKind) {
        let Some(value) = self.world.get(reference) else { return };
        if pods::has_ended(value) {
            return;
        }
        match (pods::wants_to_run(value), self.pods.run(reference).map(|r| r.phase)) {
            (true, None) => self.start_pods(reference, kind),
            (false, Some(Phase::Running { since })) => {
                let attempt = self.pods.run(reference).map_or(0, |r| r.attempt);
                self.pods.stop(reference);
                let ran = self.now.as_millisecond() - since.as_millisecond();
                self.record.lost(reference, ran);
                let at = after(self.now, self.pods.termination);
                self.agenda.put(at, Action::Gone(reference.clone(), attempt));
            }
            _ => {}
        }
    }

    fn start_pods(&mut self, reference: &ObjectRef, kind: JobKind) {
        let Some(value) = self.world.get(reference) else { return };
        if !self.play.place(reference, kind, value) {
            // Its pods wait for room on the nodes.
            return;
        }
        let (run, _) = self.pods.run_time(reference, value);
        // One that was read from a cluster has run for a while.
        let known = text(&value["status"]["startTime"]).parse::<Timestamp>().ok();
        let since = known.filter(|t| *t <= self.now && value["status"]["active"].as_i64() > Some(0));
        let since = since.unwrap_or(self.now);
        let attempt = self.pods.start(reference, since);
        let startup = self.pods.startup;
        let end = after(after(since, startup), run).max(after(self.now, SignedDuration::from_millis(1)));
        self.agenda.put(end, Action::Finish(reference.clone(), attempt));
        if !startup.is_zero() {
            self.agenda.put(after(self.now, startup), Action::Ready(reference.clone(), attempt));
        }
        let status = pods::running_status(kind, value, startup.is_zero(), since);
        self.world.set_status(reference, |old| *old = status);
    }

    /// Plays the controllers of admission checks, and the owner of a Workload that has no job.
    fn workload_changed(&mut self, reference: &ObjectRef, workload: &slim::Workload) {
        self.record.observe(self.now, workload);
        let status = &workload.status;
        let pending =
            status.admission_checks.iter().any(|c| c.state == sluice_api::v1beta2::CheckState::Pending);
        if pending && conditions::is_true(&status.conditions, "QuotaReserved") {
            self.agenda.put(after(self.now, self.check_delay), Action::Checks(reference.clone()));
        }
        let is = |type_: &str| conditions::is_true(&status.conditions, type_);
        if is("Finished") {
            let job =
                workload.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
            let ended = match job {
                Some(owner) => JobKind::from_owner(&owner.api_version, &owner.kind).map(|kind| {
                    ObjectRef::namespaced(Kind::Job(kind), reference.namespace.clone(), owner.name.as_str())
                }),
                None => Some(reference.clone()),
            };
            self.ended.extend(ended);
            return;
        }
        if self.record.job(reference).is_none() {
            return;
        }
        match (is("Admitted") && !is("Evicted"), self.pods.run(reference).map(|r| r.phase)) {
            (true, None) => {
                let Some(value) = self.world.get(reference) else { return };
                let (run, _) = self.pods.run_time(reference, value);
                let since = conditions::true_since(&status.conditions, "Admitted").unwrap_or(self.now);
                let attempt = self.pods.start(reference, since);
                let end = after(since, run).max(after(self.now, SignedDuration::from_millis(1)));
                self.agenda.put(end, Action::Finish(reference.clone(), attempt));
            }
            (false, Some(Phase::Running { since })) => {
                let attempt = self.pods.run(reference).map_or(0, |r| r.attempt);
                self.pods.stop(reference);
                self.record.lost(reference, self.now.as_millisecond() - since.as_millisecond());
                let at = after(self.now, self.pods.termination);
                self.agenda.put(at, Action::Gone(reference.clone(), attempt));
            }
            _ => {}
        }
    }

    /// Lets everything happen that happens at this instant.
    pub fn settle(&mut self) -> Result<(), SimError> {
        for _ in 0..MOST_ROUNDS {
            let mut busy = self.deliver();
            let effects = self.engine.cycle(self.now);
            if let Some(log) = &mut self.log {
                (log.0)(&replay::cycle(self.now, &effects));
            }
            busy |= !effects.is_empty();
            for effect in effects {
                self.carry_out(effect);
            }
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
                // As a time to live after the end would: what is over must not fill the memory.
                self.world.delete(&job);
            }
        }
        Err(SimError::Restless { at: self.now })
    }

    fn carry_out(&mut self, effect: Effect) {
        let Effect::Write(request) = effect else { return };
        self.writes += 1;
        let result = self.world.perform(&request);
        if result.is_ok() {
            if let Ok(Some(Object::Workload(workload))) = &result {
                self.workload_changed(&request.object, workload);
            }
            if matches!(
                request.write,
                Write::StartJob { .. } | Write::StopJob { .. } | Write::SuspendJob { .. }
            ) && let Kind::Job(kind) = request.object.kind
            {
                let answer = Input::Written { id: request.id, result };
                self.tell(answer);
                self.sync_job(&request.object, kind);
                return;
            }
        }
        self.tell(Input::Written { id: request.id, result });
    }

    /// When something will happen next, if anything will.
    pub fn next(&self) -> Option<Timestamp> {
        let planned = self.agenda.next();
        let timer = self.engine.next_timer().map(|t| match self.idle_timer {
            // A timer that is due again and again at the same time must not stop the clock.
            Some(idle) if t <= idle => after(idle, SignedDuration::from_secs(1)),
            _ => t,
        });
        match (planned, timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (Some(a), None) => Some(a),
            (None, Some(b)) => {
                // Nothing but the engine's timers is left: they may still bring something, but not for ever.
                let patience = after(self.last_event, PATIENCE);
                let unbounded = self.options.until.is_some();
                (unbounded || b <= patience).then_some(b)
            }
            (None, None) => None,
        }
    }

    /// The end, if one was asked for.
    fn end(&self) -> Option<Timestamp> {
        self.options.until.map(|until| after(self.options.start, until))
    }

    /// Goes to the next time at which something happens, and lets it happen. False at the end.
    pub fn step(&mut self) -> Result<bool, SimError> {
        let Some(next) = self.next() else { return Ok(false) };
        if self.end().is_some_and(|end| next > end) {
            self.set_now(self.end().unwrap_or(next));
            return Ok(false);
        }
        let planned = self.agenda.next().is_some_and(|at| at <= next);
        self.set_now(next);
        while let Some(action) = self.agenda.take_due(self.now) {
            self.act(action);
        }
        if planned {
            self.last_event = self.now;
        }
        self.settle()?;
        self.play_events()?;
        let due = self.engine.next_timer().is_some_and(|t| t <= self.now);
        self.idle_timer = due.then_some(self.now);
        Ok(true)
    }

    fn set_now(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.world.now = self.now;
    }

    /// Runs to the end.
    pub fn run(&mut self, mut progress: impl FnMut(&Self)) -> Result<(), SimError> {
        self.settle()?;
        self.play_events()?;
        while self.step()? {
            progress(self);
        }
        Ok(())
    }

    /// Lets a while pass.
    pub fn advance(&mut self, wait: SignedDuration) -> Result<(), SimError> {
        self.settle()?;
        let until = after(self.now, wait);
        while self.next().is_some_and(|next| next <= until) {
            if !self.step()? {
                break;
            }
        }
        self.set_now(until);
        self.settle()
    }

    /// Changes an object now, as `kubectl patch --type=merge` would.
    pub fn patch(
        &mut self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        merge: &Value,
    ) -> Result<(), SimError> {
        let refused = |wrong: Wrong| SimError::Refused {
            object: format!("{kind} {name}"),
            path: wrong.path,
            message: wrong.message,
        };
        let reference = crate::play::reference(kind, namespace, name)
            .ok_or_else(|| refused(Wrong::new("", "expected a simulated kind")))?;
        let gates = self.options.configuration.gates;
        self.last_event = self.now;
        self.world.patch(&reference, merge, gates).map_err(refused)
    }

    /// Runs until something is so. False if it never is.
    pub fn run_until(&mut self, so: impl Fn(&Self) -> bool) -> Result<bool, SimError> {
        self.settle()?;
        loop {
            if so(self) {
                return Ok(true);
            }
            if !self.step()? {
                return Ok(false);
            }
        }
    }

    /// Does what the agenda says.
    fn act(&mut self, action: Action) {
        match action {
            Action::Submit(manifest) => {
                if let Err(error) = self.put(manifest.kind, manifest.object) {
                    self.record.refused(self.now, &manifest.source.to_string(), &error.to_string());
                }
            }
            Action::Event(index) => self.happen(index),
            Action::Arrival(index) => self.arrive(index),
            Action::Ready(job, attempt) => {
                if let (Some(run), Kind::Job(kind)) = (self.pods.attempt(&job, attempt), job.kind)
                    && let Phase::Running { since } = run.phase
                    && let Some(value) = self.world.get(&job)
                {
                    let status = pods::running_status(kind, value, true, since);
                    self.world.set_status(&job, |old| *old = status);
                }
            }
            Action::Finish(job, attempt) => self.finish(&job, attempt),
            Action::Gone(job, attempt) => self.pods_gone(&job, attempt),
            Action::Checks(workload) => self.world.set_status(&workload, |status| {
                for check in status["admissionChecks"].as_array_mut().into_iter().flatten() {
                    if check["state"] == "Pending" {
                        check["state"] = json!("Ready");
                        check["message"] = json!("simulated");
                    }
                }
            }),
        }
    }

    fn finish(&mut self, job: &ObjectRef, attempt: u64) {
        let Some(run) = self.pods.attempt(job, attempt) else { return };
        if run.phase == Phase::Stopping {
            return;
        }
        self.pods.end(job);
        self.play.placements_end(job);
        let now = self.now;
        let Some(value) = self.world.get(job) else { return };
        let (_, success) = self.pods.run_time(job, value);
        self.pods.drawn.remove(job);
        match job.kind {
            Kind::Job(kind) => {
                let status = pods::ended_status(kind, value, success, now);
                self.world.set_status(job, |old| *old = status);
                self.record.ended(now, job, success);
                if self.record.job(job).is_some_and(|record| !record.managed) {
                    self.ended.push(job.clone());
                }
            }
            _ => self.world.set_status(job, |status| {
                set_condition(status, "Finished", true, "Succeeded", "Job finished successfully", now);
            }),
        }
        self.start_waiting();
    }

    fn pods_gone(&mut self, job: &ObjectRef, attempt: u64) {
        if self.pods.attempt(job, attempt).is_none() {
            return;
        }
        self.pods.end(job);
        self.play.placements_end(job);
        let now = self.now;
        let Some(value) = self.world.get(job) else { return };
        if let Kind::Job(kind) = job.kind {
            let status = pods::idle_status(kind, value);
            self.world.set_status(job, |old| *old = status);
        } else {
            self.world.set_status(job, |status| {
                set_condition(status, "QuotaReserved", false, "Pending", "The workload was evicted", now);
                set_condition(
                    status,
                    "Admitted",
                    false,
                    "NoReservation",
                    "The workload has no reservation",
                    now,
                );
                let why = status["conditions"].as_array().into_iter().flatten();
                let why = why.filter(|c| c["type"] == "Evicted").map(|c| c["reason"].clone()).next();
                let why = why.unwrap_or_default();
                let requeued = why == "Preempted";
                set_condition(status, "Requeued", requeued, text(&why), "", now);
                if let Some(status) = status.as_object_mut() {
                    status.remove("admission");
                }
            });
        }
        self.start_waiting();
    }

    /// Tries to place the pods of started jobs that found no room.
    fn start_waiting(&mut self) {
        for job in self.play.take_waiting() {
            if let Kind::Job(kind) = job.kind {
                self.sync_job(&job, kind);
            }
        }
    }

    /// Draws the run times of what runs anew, after the seed changed: another future from here on.
    ///
    /// A job that has already run for longer than what is drawn for it is drawn for again, as often as it takes: that it
    /// still runs is known.
    pub(crate) fn redraw(&mut self) {
        let (world, pods, now) = (&self.world, &mut self.pods, self.now);
        let seed = pods.seed;
        self.agenda.move_ends(|job| {
            let value = world.get(job)?;
            let Phase::Running { since } = pods.run(job)?.phase else { return None };
            for again in 0..64_u64 {
                pods.seed = seed.wrapping_add(again.wrapping_mul(1_000_003));
                let end = after(after(since, pods.startup), pods.run_time(job, value).0);
                if end > now {
                    pods.seed = seed;
                    return Some(end);
                }
            }
            pods.seed = seed;
            None
        });
    }

    /// Loses the pods of a job: it starts again from the beginning, elsewhere if there is room.
    pub(crate) fn lose_pods(&mut self, job: &ObjectRef) {
        let (Some(run), Kind::Job(kind)) = (self.pods.run(job), job.kind) else { return };
        let Phase::Running { since } = run.phase else { return };
        self.record.lost(job, self.now.as_millisecond() - since.as_millisecond());
        self.pods.end(job);
        self.play.placements_end(job);
        let Some(value) = self.world.get(job) else { return };
        let status = pods::idle_status(kind, value);
        self.world.set_status(job, |old| *old = status);
        self.sync_job(job, kind);
    }

    /// Notes something that the scenario did.
    pub(crate) fn note(&mut self, what: &str) {
        self.last_event = self.now;
        let now = self.now;
        self.record.scenario(now, what);
    }

    /// Notes something that was refused.
    pub(crate) fn note_refused(&mut self, who: &str, why: &str) {
        let now = self.now;
        self.record.refused(now, who, why);
    }
}

/// Sets a condition of a status document.
fn set_condition(status: &mut Value, type_: &str, yes: bool, reason: &str, message: &str, now: Timestamp) {
    let condition = json!({
        "type": type_, "status": if yes { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": crate::world::seconds(now),
    });
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == type_) {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}
