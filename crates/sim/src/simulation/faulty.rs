//! The connections from and to the engine with the feature `faults`: with faults they are slow and unreliable. `without_faults` is for programs
//! without the feature.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::{
    Effect, Engine, EngineConfig, Input, Kind, ObjectRef, Purpose, WriteError, WriteRequest,
};

use super::{SimError, Simulation};
use crate::agenda::after;
use crate::faults::{Check, Decided, FaultRun, InFlight, Manager, PerFault, Watches, WriteOutcome};
use crate::json::text;
use crate::object;

/// The limit of rounds at one instant in runs with faults, whose worlds are small.
const MOST_ROUNDS_OF_BAD_DAYS: usize = 20_000;

/// The engine's own configuration: on a bad day statuses and messages are written as often as on a cluster.
fn config(simulation: &Simulation) -> EngineConfig {
    EngineConfig { provisioning: true, ..EngineConfig::from(&simulation.options.configuration) }
}

/// Whether the replica that wins the lease lists a kind before it leads.
fn is_listed_first(kind: Kind) -> bool {
    let own = kind.group() == Kind::Workload.group() && kind != Kind::ProvisioningRequestConfig;
    own || matches!(kind, Kind::Job(_))
}

fn holds_quota(workload: &Value) -> bool {
    let conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|c| c["status"] == "True").any(|c| c["type"] == "QuotaReserved")
}

impl Simulation {
    /// Injects faults for a while from now on, drawn from a seed. `check` looks at the cluster after each step; the first
    /// that it names ends the run with [`SimError::Unsafe`].
    pub fn play_faults(&mut self, seed: u64, rates: PerFault, lasting: SignedDuration, check: Box<Check>) {
        let until = after(self.now, lasting);
        self.world.echo();
        self.world.take_changes();
        let standby = self.started(self.now);
        self.bad_day = Some(Box::new(FaultRun::new(seed, rates, until, standby, check)));
        self.engine = Engine::new(config(self));
        for input in self.everything() {
            self.feed(input);
        }
        self.feed(Input::Leader(true));
    }

    /// How often each fault has happened so far.
    pub fn faults(&self) -> PerFault {
        self.bad_day.as_ref().map(|day| day.counts).unwrap_or_default()
    }

    /// Since when a Workload holds quota or a job runs only because of a late write of a former leader; until the next leader has started the job or
    /// stopped it.
    pub fn late_since(&self, object: &ObjectRef) -> Option<Timestamp> {
        self.bad_day.as_ref()?.late.get(object).copied()
    }

    /// When a manager last decided to give a Workload quota: for it, that counts from then on, although the write may be slow or fail.
    pub fn decided(&self, workload: &ObjectRef) -> Option<&Decided> {
        self.bad_day.as_ref()?.decided.get(workload)
    }

    /// Whether it is still only a late write that gave a Workload quota, or started a job.
    fn is_still_late(&self, object: &ObjectRef) -> bool {
        let Some(value) = self.world.get(object) else { return false };
        if let Kind::Job(kind) = object.kind {
            let held = self.workloads_of(text(&value["metadata"]["uid"])).any(holds_quota);
            return !held && (!sluice_jobs::is_suspended(kind, value) || self.has_pods(object));
        }
        let owner = &value["metadata"]["ownerReferences"][0]["uid"];
        let job = JobKind::all().iter().copied().find_map(|kind| {
            let job = self.world.of_kind(Kind::Job(kind)).find(|(_, job)| *owner == job["metadata"]["uid"]);
            job.map(|(_, job)| sluice_jobs::is_suspended(kind, job))
        });
        holds_quota(value) && job.is_none_or(|suspended| suspended)
    }

    /// How many steps there were on a bad day: rounds of the engine.
    pub fn steps(&self) -> u64 {
        self.bad_day.as_ref().map_or(0, |day| day.step)
    }

    /// The time as the manager's clock has it.
    pub(super) fn manager_now(&self) -> Timestamp {
        self.bad_day.as_ref().map_or(self.now, |day| after(self.now, day.skews(self.now).0))
    }

    /// More rounds than this at one instant mean a bug.
    pub(super) fn most_rounds(&self) -> usize {
        if self.bad_day.is_some() { MOST_ROUNDS_OF_BAD_DAYS } else { super::MOST_ROUNDS }
    }

    /// When the engine wants to be woken, in our time.
    pub(super) fn engine_timer(&self) -> Option<Timestamp> {
        let at = self.engine.next_timer()?;
        Some(self.bad_day.as_ref().map_or(at, |day| after(at, -day.skews(self.now).0)))
    }

    /// When the next late event or write arrives.
    pub(super) fn next_late(&self) -> Option<Timestamp> {
        self.bad_day.as_ref().and_then(|day| day.next())
    }

    /// An event on its way to the engine.
    pub(super) fn feed_event(&mut self, event: Input) {
        match &mut self.bad_day {
            None => self.feed(event),
            Some(day) => day.event(self.now, &event),
        }
    }

    /// A complete list of a kind.
    fn list(&mut self, kind: Kind) -> Vec<Input> {
        let present: Vec<_> = self.world.of_kind(kind).map(|(reference, _)| reference.clone()).collect();
        let objects = present.iter().filter_map(|reference| self.world.object(reference));
        let mut inputs: Vec<_> = objects.map(Input::Applied).collect();
        inputs.push(Input::Listed { kind, present, as_of: Some(self.world.revision()) });
        inputs
    }

    /// All objects, as a manager sees them when it starts.
    fn everything(&mut self) -> Vec<Input> {
        let kinds = object::kinds().chain([Kind::Pod, Kind::JobPod]);
        let mut inputs: Vec<_> = kinds.flat_map(|kind| self.list(kind)).collect();
        inputs.push(Input::Synced);
        inputs
    }

    /// A manager that has just started, at that time by its clock.
    fn started(&mut self, at: Timestamp) -> Engine {
        let mut engine = Engine::new(config(self));
        for input in self.everything() {
            engine.apply(at, input);
        }
        engine
    }

    /// Delivers the late events and writes that are due; returns whether there were any.
    pub(super) fn deliver_late(&mut self) -> bool {
        let mut any = false;
        let now = self.now;
        while let Some(day) = &mut self.bad_day {
            if let Some(in_flight) = day.arrived(now) {
                self.arrive_late(in_flight);
            } else if let Some(kind) = day.watches.take_reopened(now) {
                for input in self.list(kind) {
                    self.feed(input);
                }
            } else if let Some(event) = day.watches.take(now) {
                self.feed(event);
            } else if day.leads_at.is_some_and(|at| at <= now) {
                day.leads_at = None;
                self.lead();
            } else {
                return self.deliver_to_standby() | any;
            }
            any = true;
        }
        any
    }

    /// A manager leads from now on. The former leader may have written, or read, what its watches have not shown yet: it lists our own
    /// kinds and jobs first.
    fn lead(&mut self) {
        for kind in object::kinds().filter(|kind| is_listed_first(*kind)) {
            if let Some(day) = &mut self.bad_day {
                day.watches.reopen(kind);
            }
            for input in self.list(kind) {
                self.feed(input);
            }
        }
        self.feed(Input::Leader(true));
    }

    fn deliver_to_standby(&mut self) -> bool {
        let mut any = false;
        let now = self.now;
        while let Some(day) = &mut self.bad_day {
            let at = after(now, day.skews(now).1);
            if let Some(kind) = day.standby.watches.take_reopened(now) {
                let inputs = self.list(kind);
                let Some(day) = &mut self.bad_day else { return any };
                for input in inputs {
                    day.standby.engine.apply(at, input);
                }
            } else if let Some(event) = day.standby.watches.take(now) {
                day.standby.engine.apply(at, event);
            } else {
                return any;
            }
            any = true;
        }
        any
    }

    fn arrive_late(&mut self, in_flight: InFlight) {
        let term = self.bad_day.as_ref().map(|day| day.term);
        match in_flight {
            InFlight::Answer(of, answer) => {
                if term == Some(of) {
                    self.feed(*answer);
                }
            }
            InFlight::Write(of, request) => {
                let result = self.perform(&request);
                let now = self.now;
                if result.is_ok()
                    && matches!(request.purpose, Purpose::ReserveQuota | Purpose::StartJob)
                    && let Some(day) = self.bad_day.as_mut().filter(|_| term != Some(of))
                {
                    day.late.insert(request.object.clone(), now);
                }
                let answer = Input::Written { id: request.id, result };
                if let Some(day) = self.bad_day.as_mut().filter(|_| term == Some(of)) {
                    // The way back may be as long.
                    let at = after(self.now, day.pause_or_none());
                    day.send(at, InFlight::Answer(of, Box::new(answer)));
                }
                self.sync_written(&request);
            }
        }
    }

    /// Carries out what the engine wants done. On a bad day the manager may not live to the end of it.
    pub(super) fn carry_out_all(&mut self, effects: Vec<Effect>) {
        let writes = effects.into_iter().filter_map(|effect| match effect {
            Effect::Write(request) => Some(request),
            _ => None,
        });
        let mut writes = writes.collect::<Vec<_>>().into_iter();
        let now = self.now;
        if let Some(day) = &mut self.bad_day {
            day.note_decisions(now, self.engine.reserving().collect());
        }
        while let Some(request) = writes.next() {
            let Some(day) = &mut self.bad_day else {
                self.carry_out(&request);
                continue;
            };
            match day.write_outcome(now) {
                WriteOutcome::Slow(wait) => {
                    let term = day.term;
                    day.send(after(now, wait), InFlight::Write(term, Box::new(request)));
                }
                outcome => self.carry_out_with_fault(&request, outcome),
            }
            let outcome = self.bad_day.as_mut().map_or(Manager::Lives, |day| day.manager(now));
            if outcome != Manager::Lives {
                let left = writes.collect();
                return self.replace_manager(outcome, left);
            }
        }
    }

    fn carry_out_with_fault(&mut self, request: &WriteRequest, outcome: WriteOutcome) {
        let failed = |why: &str| Err(WriteError::Transient(why.to_owned()));
        match outcome {
            WriteOutcome::Refused => {
                self.feed(Input::Written { id: request.id, result: failed("the server was not reached") });
            }
            WriteOutcome::Unanswered => {
                // The watch shows what was done.
                let _ = self.perform(request);
                self.feed(Input::Written { id: request.id, result: failed("no answer came") });
                self.sync_written(request);
            }
            WriteOutcome::Overtaken => {
                let step = self.steps();
                let gates = self.options.configuration.gates;
                let note = json!({"metadata": {"annotations": {"example.com/touched": step.to_string()}}});
                // An object that must be created does not exist yet.
                let _ = self.world.patch(&request.object, &note, gates);
                self.carry_out(request);
            }
            WriteOutcome::Carried | WriteOutcome::Slow(_) => self.carry_out(request),
        }
    }

    /// The leading manager ends. A restarted one has only the objects; the standby has watched all the time.
    fn replace_manager(&mut self, how: Manager, left: Vec<WriteRequest>) {
        let now = self.now;
        // The new manager starts with the clock of the old one.
        let Some(day) = &mut self.bad_day else { return };
        let at = after(now, day.clock.restart());
        let fresh = self.started(at);
        let Some(day) = &mut self.bad_day else { return };
        if how == Manager::IsReplaced {
            day.leave_behind(now, left);
            std::mem::swap(&mut self.engine, &mut day.standby.engine);
            std::mem::swap(&mut day.watches, &mut day.standby.watches);
            std::mem::swap(&mut day.clock, &mut day.standby.clock);
            (day.standby.engine, day.standby.watches) = (fresh, Watches::default());
        } else {
            (self.engine, day.watches) = (fresh, Watches::default());
        }
        day.next_term(now);
        self.idle_timer = None;
    }

    /// Whether everything holds that must, on a bad day.
    pub(super) fn check(&mut self, changed: bool) -> Result<(), SimError> {
        let now = self.now;
        let Some(day) = &mut self.bad_day else { return Ok(()) };
        day.step += 1;
        day.move_clock(now);
        let mut wrong = Vec::new();
        let standby_now = after(now, day.skews(now).1);
        let effects = day.standby.engine.cycle(standby_now);
        if effects.iter().any(|effect| matches!(effect, Effect::Write(_))) {
            wrong.push("a replica writes that does not lead".to_owned());
        }
        if self.options.audit {
            wrong.extend(day.standby.engine.audit().err().unwrap_or_default());
        }
        let late: Vec<_> = day.late.keys().cloned().collect();
        let over: Vec<_> = late.into_iter().filter(|object| !self.is_still_late(object)).collect();
        let Some(day) = &mut self.bad_day else { return Ok(()) };
        day.late.retain(|object, _| !over.contains(object));
        if changed && let Some(mut check) = day.check.take() {
            wrong.extend(check(self));
            if let Some(day) = &mut self.bad_day {
                day.check = Some(check);
            }
        }
        let step = self.steps();
        if wrong.is_empty() { Ok(()) } else { Err(SimError::Unsafe { step, at: now, wrong }) }
    }
}
