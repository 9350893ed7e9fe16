//! Effects that are still to be handed out, and writes without an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use sluice_core::{Name, WorkloadKey};

use crate::effect::{Effect, EffectId, Event, EventType, Observation, Purpose, Write, WriteRequest};
use crate::input::ObjectRef;
use crate::metrics::RemovedGate;
use crate::metrics::definitions::Moved;
use crate::wanted::Wanted;
use crate::world::{Decision, JobKey, workload_ref};
use crate::{REPORTER_ADMISSION, REPORTER_WORKLOAD};

/// A write that has not been answered.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The object that it changes.
    pub object: ObjectRef,
    /// The UID of that when the write was handed out, if it was known.
    pub uid: Option<Name>,
    /// Whether its answer may show an object that is not known yet: it creates the object, or reads it because it exists already.
    pub finds: bool,
    /// Why it was made.
    pub purpose: Purpose,
    /// Whether it deletes what it acts on.
    pub deletes: bool,
    /// What to report when it succeeded.
    pub then: Vec<Effect>,
    /// The gate that it takes off a pod.
    pub gate: Option<RemovedGate>,
    /// The job whose Workload it creates.
    pub job: Option<JobKey>,
    /// The decision that it carries out, to come back to if it fails.
    pub decision: Option<Box<Decision>>,
    /// The state in which the job should be afterwards.
    pub wanted: Option<Wanted>,
    /// Whether it was taken back.
    pub withdrawn: bool,
}

/// Effects on their way out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    last_id: u64,
    effects: Vec<Effect>,
    open: BTreeMap<EffectId, Open>,
    /// The open writes that reserve quota, and since when each is.
    reservations: BTreeMap<EffectId, Timestamp>,
    /// Objects that the answers of open writes may show first.
    unseen: BTreeSet<ObjectRef>,
}

impl Outbox {
    /// Sends a write; `then` is handed out when it succeeded.
    pub fn write(
        &mut self,
        object: ObjectRef,
        purpose: Purpose,
        write: Write,
        then: Vec<Effect>,
    ) -> EffectId {
        self.last_id += 1;
        let id = EffectId(self.last_id);
        let wanted = Wanted::of(purpose, &write);
        let deletes = matches!(write, Write::Delete { .. });
        self.effects.push(Effect::Write(WriteRequest { id, object: object.clone(), purpose, write }));
        self.open.insert(
            id,
            Open {
                object,
                uid: None,
                finds: false,
                purpose,
                deletes,
                then,
                gate: None,
                job: None,
                decision: None,
                wanted,
                withdrawn: false,
            },
        );
        id
    }

    /// The last write so far.
    pub fn last(&self) -> EffectId {
        EffectId(self.last_id)
    }

    /// Remembers that a write that was just sent reserves quota.
    pub fn reserves(&mut self, id: EffectId, now: Timestamp) {
        self.reservations.insert(id, now);
    }

    /// Remembers more of a write that was just sent.
    pub fn amend(&mut self, id: EffectId, change: impl FnOnce(&mut Open)) {
        if let Some(open) = self.open.get_mut(&id) {
            change(open);
        }
    }

    /// The answer of a write that was just sent may show an object that is not known yet.
    pub fn finds(&mut self, id: EffectId) {
        if let Some(open) = self.open.get_mut(&id) {
            open.finds = true;
            self.unseen.insert(open.object.clone());
        }
    }

    /// An object was seen to be deleted: an answer that shows it is older than that.
    pub fn gone(&mut self, object: &ObjectRef) {
        self.unseen.remove(object);
    }

    /// Emits an effect that is not a write.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Reports several things.
    pub fn extend(&mut self, effects: Vec<Effect>) {
        self.effects.extend(effects);
    }

    /// The write that an answer belongs to; an answer comes once.
    pub fn close(&mut self, id: EffectId) -> Option<Open> {
        self.reservations.remove(&id);
        let mut open = self.open.remove(&id)?;
        open.finds = open.finds && self.unseen.remove(&open.object);
        Some(open)
    }

    /// Withdraws a write if it only reports the state of a Workload: neither a decision nor an end has to wait for it.
    pub fn withdraw_report(&mut self, id: EffectId) {
        if self
            .open
            .get_mut(&id)
            .is_some_and(|open| open.purpose.is_report() && !std::mem::replace(&mut open.withdrawn, true))
        {
            self.effects.push(Effect::Withdraw(id));
        }
    }

    /// Since when the `most`-th youngest write that reserves quota is open, if there are as many.
    pub fn reserving_since(&self, most: usize) -> Option<Timestamp> {
        let at = self.reservations.len().checked_sub(most)?;
        self.reservations.values().nth(at).copied()
    }

    /// The purpose of an unanswered write.
    pub fn purpose(&self, id: EffectId) -> Option<Purpose> {
        self.open.get(&id).map(|open| open.purpose)
    }

    /// Writes that have not been answered.
    pub fn open(&self) -> impl Iterator<Item = (EffectId, &Open)> {
        self.open.iter().map(|(id, open)| (*id, open))
    }

    /// The same, one after another.
    pub fn open_after(&self, id: Option<EffectId>) -> Option<(EffectId, &Open)> {
        crate::world::after(&self.open, id.as_ref()).next().map(|(id, open)| (*id, open))
    }

    /// Hands everything out.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}

/// The object of an event, and the component that reports it.
pub(crate) struct About {
    object: ObjectRef,
    uid: Arc<str>,
    reporter: &'static str,
}

impl About {
    /// Any object.
    pub fn new(object: &ObjectRef, uid: &Arc<str>, reporter: &'static str) -> Self {
        Self { object: object.clone(), uid: Arc::clone(uid), reporter }
    }

    /// A Workload, reported by its controller.
    pub fn workload(key: &WorkloadKey, uid: &Arc<str>) -> Self {
        Self::new(&workload_ref(key), uid, REPORTER_WORKLOAD)
    }

    /// A Workload, reported by the scheduler.
    pub fn admission(key: &WorkloadKey, uid: &Arc<str>) -> Self {
        Self::new(&workload_ref(key), uid, REPORTER_ADMISSION)
    }
}

/// Makes an event of type Normal.
pub(crate) fn normal(about: About, reason: impl Into<String>, note: impl Into<String>) -> Effect {
    event(about, EventType::Normal, reason, note)
}

/// Makes an event of type Warning.
pub(crate) fn warning(about: About, reason: impl Into<String>, note: impl Into<String>) -> Effect {
    event(about, EventType::Warning, reason, note)
}

/// Makes an event whose action equals its reason.
pub(crate) fn event(
    about: About,
    type_: EventType,
    reason: impl Into<String>,
    note: impl Into<String>,
) -> Effect {
    let About { object, uid, reporter } = about;
    let reason = reason.into();
    Effect::Event(Event {
        object,
        uid,
        type_,
        action: reason.clone(),
        reason,
        note: note.into(),
        reporter,
        attempt: None,
    })
}

/// Makes an observation.
pub(crate) fn observe<const N: usize>(metric: Moved<N>, labels: &[&str; N], value: f64) -> Effect {
    observe_with(metric, labels, value, Vec::new())
}

/// Makes an observation with the values of custom labels that do not follow from its labels.
pub(crate) fn observe_with<const N: usize>(
    metric: Moved<N>,
    labels: &[&str; N],
    value: f64,
    custom: Vec<Arc<str>>,
) -> Effect {
    let labels = labels.iter().map(|l| Arc::from(*l)).collect();
    Effect::Observe(Observation { metric: metric.name, labels, value, custom })
}
