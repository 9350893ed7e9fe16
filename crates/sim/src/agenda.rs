//! The actions of a simulation, by the time at which they are due.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sluice_engine::ObjectRef;

/// An action that is due at a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// An event of the scenario.
    Event(usize),
    /// The next job of a stream of arrivals.
    Arrival(usize),
    /// The pods of a started job are ready.
    Ready(ObjectRef, u64),
    /// A job has reached the end of its run time.
    Finish(ObjectRef, u64),
    /// The pods of a stopped job are gone.
    Gone(ObjectRef, u64),
    /// The admission checks of a Workload that has had its quota since then are ready.
    Checks(ObjectRef, Timestamp),
    /// The next state of a request for nodes, by its UID, comes.
    Answer(ObjectRef, Arc<str>, usize),
    /// Pods leave a node that has not answered since then.
    PodsLeave(Arc<str>, Timestamp),
    /// The pods of a removed node are garbage-collected.
    PodsCollected(Arc<str>),
    /// A job that the scenario or a manifest submits later.
    Submit(Box<crate::manifest::Manifest>),
}

/// Actions in the order in which they are due; actions of the same time in the order of insertion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    entries: BTreeMap<(Timestamp, u64), Action>,
    last: u64,
}

impl Agenda {
    /// Puts an action in.
    pub fn put(&mut self, at: Timestamp, action: Action) {
        self.last += 1;
        self.entries.insert((at, self.last), action);
    }

    /// When the next is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next action that is due by `now`.
    pub fn take_due(&mut self, now: Timestamp) -> Option<Action> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop_first().map(|(_, action)| action)
    }

    /// How many streams of arrivals continue.
    pub fn arrivals(&self) -> usize {
        self.entries.values().filter(|a| matches!(a, Action::Arrival(_))).count()
    }

    /// Moves the ends of running jobs: `to` returns the new end.
    pub fn move_ends(&mut self, mut to: impl FnMut(&ObjectRef) -> Option<Timestamp>) {
        let ends: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, a)| matches!(a, Action::Finish(..)))
            .map(|(key, _)| *key)
            .collect();
        for key in ends {
            let Some(action) = self.entries.remove(&key) else { continue };
            let end = match &action {
                Action::Finish(job, _) => to(job),
                _ => None,
            };
            self.entries.insert((end.unwrap_or(key.0), key.1), action);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

/// A time some while after another.
pub(crate) fn after(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_at_one_time_keeps_its_order() {
        let mut agenda = Agenda::default();
        let at = |s| Timestamp::from_second(s).unwrap();
        agenda.put(at(2), Action::Event(0));
        agenda.put(at(1), Action::Event(1));
        agenda.put(at(1), Action::Event(2));
        assert_eq!(agenda.take_due(at(0)), None);
        assert_eq!(agenda.take_due(at(1)), Some(Action::Event(1)));
        assert_eq!(agenda.take_due(at(1)), Some(Action::Event(2)));
        assert_eq!(agenda.take_due(at(1)), None);
        assert_eq!(agenda.len(), 1);
    }
}
