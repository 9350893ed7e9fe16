//! Faults around an engine, drawn from a seed.
//!
//! Watches lag, break and deliver events twice. Writes fail, are slow, lose their answers, and conflict with writes of another client. The manager
//! crashes between two writes, or another replica takes over while the last writes of the former are in flight. Clocks jump. A second replica stands
//! by, with its own watches, and must not write.
//!
//! Writes of a manager that has ended may arrive after the next manager has given the same quota to another Workload: the writes concern two objects,
//! so no resource version prevents one of them. The effects of such late writes are noted ([`Simulation::late_since`]); some time later no effect may
//! remain.

mod watches;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use sluice_engine::{Engine, Input, ObjectRef, WriteRequest};

use crate::agenda::after;
use crate::random::Stream;
use crate::simulation::Simulation;

pub(crate) use watches::Watches;

/// A number for each thing that can go wrong: its rate, in times in a thousand chances, or how often it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerFault {
    /// Per event: the watch of its kind lags some seconds from here on.
    pub lag: u64,
    /// Per event: the watch of its kind breaks; some seconds later the kind is listed again.
    pub broken: u64,
    /// Per event: it comes twice.
    pub doubled: u64,
    /// Per write: the server is not reached.
    pub failed: u64,
    /// Per write: it is carried out, and the answer says that it failed.
    pub unanswered: u64,
    /// Per write: it arrives some seconds later, and so does its answer.
    pub slow: u64,
    /// Per write: another client changes the object just before.
    pub overtaken: u64,
    /// Per write: the manager crashes after it, and restarts.
    pub crash: u64,
    /// Per write: the other replica takes over after it. What was still to be written is lost, or comes late.
    pub takeover: u64,
    /// Per round of the engine: its clock jumps by up to two minutes, forth or back.
    pub jump: u64,
}

impl PerFault {
    /// The rates of a bad day.
    pub const BAD: Self = Self {
        lag: 40,
        broken: 10,
        doubled: 40,
        failed: 30,
        unanswered: 30,
        slow: 50,
        overtaken: 20,
        crash: 6,
        takeover: 6,
        jump: 8,
    };
    /// No faults.
    pub const NONE: Self = Self {
        lag: 0,
        broken: 0,
        doubled: 0,
        failed: 0,
        unanswered: 0,
        slow: 0,
        overtaken: 0,
        crash: 0,
        takeover: 0,
        jump: 0,
    };
}

/// Looks at a cluster after each step, and names what must not be.
pub type Check = dyn FnMut(&Simulation) -> Vec<String> + Send;

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Carried,
    Refused,
    Unanswered,
    Slow(SignedDuration),
    Overtaken,
}

/// What happens to the manager after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    Lives,
    Crashes,
    IsReplaced,
}

/// Something under way between the manager and the API server.
#[derive(Clone, Debug)]
pub(crate) enum InFlight {
    /// A write, and which manager sent it.
    Write(u64, Box<WriteRequest>),
    /// An answer, and the manager it is for.
    Answer(u64, Box<Input>),
}

/// How far a manager's time is off. It does not go back when the clock of the machine is set back; a manager that starts takes the machine's time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    machine: SignedDuration,
    manager: SignedDuration,
}

impl Clock {
    /// Sets the clock of the machine.
    fn set(&mut self, off: SignedDuration) {
        *self = Self { machine: off, manager: self.manager.max(off) };
    }

    fn put_right(mut self) -> Self {
        self.set(SignedDuration::ZERO);
        self
    }

    /// Another manager starts on the machine. Gives how far its time is off.
    pub fn restart(&mut self) -> SignedDuration {
        self.manager = self.machine;
        self.machine
    }
}

/// That a manager gave a Workload quota.
#[derive(Clone, Debug)]
pub struct Decided {
    /// When it decided so.
    pub at: Timestamp,
    /// Until when it counted on that, so far: by then it knew what had become of it, or did not lead any more.
    pub until: Timestamp,
    /// The Workloads to which it had given quota by then, as far as it knew.
    pub beside: BTreeSet<ObjectRef>,
}

/// The replica that does not lead.
#[derive(Clone, Debug)]
pub(crate) struct Standby {
    pub engine: Engine,
    pub watches: Watches,
    pub clock: Clock,
}

/// A run with faults.
pub(crate) struct FaultRun {
    stream: Stream,
    rates: PerFault,
    /// No faults happen from then on.
    until: Timestamp,
    /// The clock of the manager that leads ([`FaultRun::skews`]).
    pub clock: Clock,
    /// The watches of the manager that leads.
    pub watches: Watches,
    pub standby: Standby,
    /// Names the manager that leads: answers for its predecessors are lost.
    pub term: u64,
    /// When it will lead, if it does not yet.
    pub leads_at: Option<Timestamp>,
    under_way: BTreeMap<(Timestamp, u64), InFlight>,
    sent: u64,
    /// Rounds of the engine.
    pub step: u64,
    pub counts: PerFault,
    /// Workloads that got quota and jobs that were started by a write of a former leader, with the time; until the next leader has started the job or
    /// stopped it.
    pub late: BTreeMap<ObjectRef, Timestamp>,
    /// When a manager last decided to give a Workload quota, whatever became of that.
    pub decided: BTreeMap<ObjectRef, Decided>,
    /// The Workloads for which the manager that leads has decided so, while it does not know what became of that.
    reserving: BTreeSet<ObjectRef>,
    pub check: Option<Box<Check>>,
}

impl std::fmt::Debug for FaultRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultRun")
            .field("step", &self.step)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl FaultRun {
    pub fn new(seed: u64, rates: PerFault, until: Timestamp, standby: Engine, check: Box<Check>) -> Self {
        let standby = Standby { engine: standby, watches: Watches::default(), clock: Clock::default() };
        Self {
            stream: Stream::new(seed, "faults"),
            rates,
            until,
            clock: Clock::default(),
            watches: Watches::default(),
            standby,
            term: 0,
            leads_at: None,
            under_way: BTreeMap::new(),
            sent: 0,
            step: 0,
            counts: PerFault::default(),
            late: BTreeMap::new(),
            decided: BTreeMap::new(),
            reserving: BTreeSet::new(),
            check: Some(check),
        }
    }

    /// Whether something that happens so often happens now; counts it.
    fn draws(&mut self, now: Timestamp, of: fn(&mut PerFault) -> &mut u64) -> bool {
        let rate = *of(&mut self.rates);
        let yes = rate > 0 && now < self.until && self.stream.next() % 1000 < rate;
        *of(&mut self.counts) += u64::from(yes);
        yes
    }

    /// Up to eight seconds, with a long tail: one pause of sixteen is up to forty.
    fn pause(&mut self) -> SignedDuration {
        let most = if self.stream.next().is_multiple_of(16) { 40_000 } else { 8_000 };
        SignedDuration::from_millis(i64::try_from(self.stream.next() % most).unwrap_or(0) + 1)
    }

    /// An event of a watch is on its way to both replicas.
    pub fn event(&mut self, now: Timestamp, event: &Input) {
        for leader in [true, false] {
            let lag = self.draws(now, |of| &mut of.lag).then(|| self.pause());
            let broken = self.draws(now, |of| &mut of.broken).then(|| self.pause());
            let doubled = self.draws(now, |of| &mut of.doubled);
            let watches = if leader { &mut self.watches } else { &mut self.standby.watches };
            if let Some(pause) = broken {
                watches.break_until(event, after(now, pause));
            }
            watches.push(event, after(now, lag.unwrap_or_default()), 1 + usize::from(doubled));
        }
    }

    /// The outcome of the next write.
    pub fn write_outcome(&mut self, now: Timestamp) -> WriteOutcome {
        if self.draws(now, |of| &mut of.failed) {
            return WriteOutcome::Refused;
        }
        if self.draws(now, |of| &mut of.unanswered) {
            return WriteOutcome::Unanswered;
        }
        if self.draws(now, |of| &mut of.slow) {
            return WriteOutcome::Slow(self.pause());
        }
        if self.draws(now, |of| &mut of.overtaken) {
            return WriteOutcome::Overtaken;
        }
        WriteOutcome::Carried
    }

    /// What happens to the manager after a write.
    pub fn manager(&mut self, now: Timestamp) -> Manager {
        if self.draws(now, |of| &mut of.crash) {
            return Manager::Crashes;
        }
        if self.draws(now, |of| &mut of.takeover) {
            return Manager::IsReplaced;
        }
        Manager::Lives
    }

    /// The clock errors of the leading manager and of the other one. The clocks are right at the end of the run.
    pub fn skews(&self, now: Timestamp) -> (SignedDuration, SignedDuration) {
        let off = |clock: Clock| if now < self.until { clock } else { clock.put_right() }.manager;
        (off(self.clock), off(self.standby.clock))
    }

    /// Moves the clock now and then.
    pub fn move_clock(&mut self, now: Timestamp) {
        if self.draws(now, |of| &mut of.jump) {
            let millis = i64::try_from(self.stream.next() % 240_000).unwrap_or(0);
            self.clock.set(SignedDuration::from_millis(millis - 120_000));
        }
    }

    /// Notes what the manager that leads has decided: these Workloads have quota as far as it knows.
    pub fn note_decisions(&mut self, now: Timestamp, reserving: BTreeSet<ObjectRef>) {
        for workload in reserving.union(&self.reserving) {
            if self.reserving.contains(workload) {
                self.decided.entry(workload.clone()).and_modify(|decided| decided.until = now);
            } else {
                let decided = Decided { at: now, until: now, beside: reserving.clone() };
                self.decided.insert(workload.clone(), decided);
            }
        }
        self.reserving = reserving;
    }

    /// The next manager leads after a while. What the last one has under way may arrive before or after that.
    pub fn next_term(&mut self, now: Timestamp) {
        self.note_decisions(now, BTreeSet::new());
        self.term += 1;
        self.leads_at = Some(after(now, self.pause_or_none()));
    }

    /// How long an answer takes that may be slow, or how long there is no leader.
    pub fn pause_or_none(&mut self) -> SignedDuration {
        if self.stream.next() & 1 == 0 { SignedDuration::ZERO } else { self.pause() }
    }

    /// Puts something under way that arrives some while from now.
    pub fn send(&mut self, at: Timestamp, in_flight: InFlight) {
        self.sent += 1;
        self.under_way.insert((at, self.sent), in_flight);
    }

    /// The unfinished writes of a manager that ended: half of them are lost, the others arrive later.
    pub fn leave_behind(&mut self, now: Timestamp, writes: Vec<WriteRequest>) {
        for write in writes {
            if self.stream.next() & 1 == 0 {
                let at = after(now, self.pause());
                let term = self.term;
                self.send(at, InFlight::Write(term, Box::new(write)));
            }
        }
    }

    /// Takes the next thing that has arrived.
    pub fn arrived(&mut self, now: Timestamp) -> Option<InFlight> {
        let (at, _) = self.under_way.first_key_value()?.0;
        if *at > now {
            return None;
        }
        self.under_way.pop_first().map(|(_, in_flight)| in_flight)
    }

    /// When something next arrives, or a watch delivers something, or a leader leads.
    pub fn next(&self) -> Option<Timestamp> {
        let in_flight = self.under_way.first_key_value().map(|((at, _), _)| *at);
        let watches = [self.watches.next(), self.standby.watches.next()];
        [in_flight, self.leads_at].into_iter().chain(watches).flatten().min()
    }
}
