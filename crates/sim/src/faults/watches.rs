//! The watches of one replica, one per kind. Their events come in order, late, twice, or after a new list.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use sluice_engine::{Input, Kind};

/// The watch of one kind.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// Events that are still to be delivered, in order, with their times.
    pending: VecDeque<(Timestamp, Input)>,
    /// The watch delivers nothing until it is opened again, with a list.
    broken_until: Option<Timestamp>,
}

/// The watches of one replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches(BTreeMap<Kind, Watch>);

/// The kind that an event is about.
fn kind(event: &Input) -> Option<Kind> {
    match event {
        Input::Applied(object) => Some(object.object_ref().kind),
        Input::Deleted { object, .. } => Some(object.kind),
        _ => None,
    }
}

impl Watches {
    /// The watch of an event's kind breaks.
    pub fn break_until(&mut self, event: &Input, at: Timestamp) {
        let Some(kind) = kind(event) else { return };
        let watch = self.0.entry(kind).or_default();
        watch.broken_until.get_or_insert(at);
    }

    /// An event comes, not before a time and not before those before it.
    pub fn push(&mut self, event: &Input, at: Timestamp, times: usize) {
        let Some(kind) = kind(event) else { return };
        let watch = self.0.entry(kind).or_default();
        if watch.broken_until.is_some() {
            return;
        }
        let at = watch.pending.back().map_or(at, |(last, _)| at.max(*last));
        watch.pending.extend((0..times).map(|_| (at, event.clone())));
    }

    /// Takes the next event that has come.
    pub fn take(&mut self, now: Timestamp) -> Option<Input> {
        let due = |watch: &Watch| watch.pending.front().is_some_and(|(at, _)| *at <= now);
        let watch = self.0.values_mut().find(|watch| due(watch))?;
        watch.pending.pop_front().map(|(_, event)| event)
    }

    /// Takes a kind that must be listed again.
    pub fn take_reopened(&mut self, now: Timestamp) -> Option<Kind> {
        let due = |watch: &Watch| watch.broken_until.is_some_and(|at| at <= now);
        let kind = *self.0.iter().find(|(_, watch)| due(watch))?.0;
        self.reopen(kind);
        Some(kind)
    }

    /// Restarts the watch of a kind: undelivered events are covered by the list that comes first.
    pub fn reopen(&mut self, kind: Kind) {
        self.0.remove(&kind);
    }

    /// When the next event comes, or a watch is opened again.
    pub fn next(&self) -> Option<Timestamp> {
        let of = |watch: &Watch| {
            let event = watch.pending.front().map(|(at, _)| *at);
            [event, watch.broken_until].into_iter().flatten().min()
        };
        self.0.values().filter_map(of).min()
    }
}
