//! Which writes are under way, and which of them hang: those of a kind or namespace whose webhook is dead must not take the places of all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use sluice_engine::input::{Kind, ObjectRef};
use tokio::sync::watch;

use super::lanes::Class;
use super::sending::LONG;
use super::traffic::Traffic;

/// A write that is under way.
#[derive(Debug)]
struct PendingWrite {
    class: Class,
    /// Since when its request is.
    since: watch::Receiver<Option<Instant>>,
}

/// All of them, by object.
#[derive(Debug, Default)]
pub struct PendingWrites(BTreeMap<ObjectRef, PendingWrite>);

/// How many more may go, and which.
#[derive(Debug, Default)]
pub struct FreePlaces {
    /// So many more.
    pub places: usize,
    /// How many are under way and do not pause.
    pub sent: usize,
    /// How many of them hang and leave their places to others.
    pub hanging: usize,
    /// How many reports hang.
    pub hanging_reports: usize,
    /// When to look again.
    pub again: Option<Instant>,
    passed_over: Groups,
}

impl FreePlaces {
    /// Whether an object's writes wait, because others like them hang.
    pub fn passes_over(&self, object: &ObjectRef) -> bool {
        self.passed_over.contains(object)
    }
}

/// Namespaces of kinds of which writes hang.
#[derive(Debug, Default)]
struct Groups(BTreeSet<(Kind, Arc<str>)>);

impl Groups {
    fn of<'a>(objects: impl IntoIterator<Item = &'a ObjectRef>) -> Self {
        Self(objects.into_iter().map(|object| (object.kind, Arc::clone(&object.namespace))).collect())
    }

    /// A kind of jobs that hangs in several namespaces hangs in all: its own webhook is dead.
    fn contains(&self, object: &ObjectRef) -> bool {
        let of_kind = || self.0.iter().filter(|(kind, _)| *kind == object.kind);
        match object.kind {
            Kind::Job(_) if of_kind().nth(1).is_some() => true,
            _ => of_kind().any(|(_, namespace)| *namespace == object.namespace),
        }
    }
}

impl PendingWrites {
    /// A write is under way.
    pub fn insert(&mut self, object: ObjectRef, class: Class, since: watch::Receiver<Option<Instant>>) {
        self.0.insert(object, PendingWrite { class, since });
    }

    /// It is no more.
    pub fn remove(&mut self, object: &ObjectRef) {
        self.0.remove(object);
    }

    /// How many more may go now, while `paused` of those under way pause.
    ///
    /// A request hangs if it is under way for long and one that was sent later was answered soon. All of these together take a quarter of the
    /// places, and while they do, no more of their kind and namespace goes. If all are under way for long, it is not known whether they hang or the
    /// server is slow: a few others may go to find that out.
    pub fn free_places(&self, now: Instant, paused: usize, traffic: &Traffic) -> FreePlaces {
        let limit = traffic.limit();
        let share = (limit / 4).max(1);
        let sent = self.0.len().saturating_sub(paused);
        let since = |write: &PendingWrite| *write.since.borrow();
        let is_long = |began: Instant| now.saturating_duration_since(began) >= LONG;
        let (mut long, mut hanging, mut hanging_reports, mut again) = (Vec::new(), Vec::new(), 0, None);
        for (object, write) in &self.0 {
            match since(write) {
                Some(began) if is_long(began) => {
                    long.push(object);
                    if traffic.is_overtaken(began) {
                        hanging.push(object);
                        hanging_reports += usize::from(write.class == Class::Reports);
                    }
                }
                began => again = again.into_iter().chain([began.unwrap_or(now) + LONG]).min(),
            }
        }
        let surplus = hanging.len().saturating_sub(share).min(sent);
        let counted = sent - surplus;
        let (places, passed_over) = if counted < limit {
            let many = hanging.len() >= share;
            (limit - counted, if many { Groups::of(hanging) } else { Groups::default() })
        } else if long.len() >= sent && sent < limit + share {
            (1, Groups::of(long))
        } else {
            (0, Groups::default())
        };
        FreePlaces { places, sent, hanging: surplus, hanging_reports, again, passed_over }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_api::job::JobKind;

    use super::*;

    const JOB_SETS: Kind = Kind::Job(JobKind::JOB_SET);

    fn object(kind: Kind, namespace: &str, at: usize) -> ObjectRef {
        ObjectRef::namespaced(kind, namespace, format!("o{at}").as_str())
    }

    /// So many writes that are under way, by kind and namespace; and the moment after which they were sent.
    fn pending(of: &[(Kind, &str, usize)]) -> (PendingWrites, Instant) {
        let (mut writes, began) = (PendingWrites::default(), Instant::now());
        for (kind, namespace, count) in of {
            for at in 0..*count {
                let since = watch::channel(Some(began)).1;
                writes.insert(object(*kind, namespace, at), Class::Jobs, since);
            }
        }
        (writes, began)
    }

    #[test]
    fn a_server_that_is_slow_for_all_gets_no_more_than_a_quarter_beyond_the_limit() {
        let traffic = Traffic::default();
        for (count, places) in [(7, 1), (8, 1), (9, 1), (10, 0)] {
            let (writes, began) = pending(&[(Kind::Workload, "a", count)]);
            let free = writes.free_places(began + LONG, 0, &traffic);
            assert_eq!((free.places, free.sent, free.hanging), (places, count, 0));
            let probes = (8..10).contains(&count);
            assert_eq!(free.passes_over(&object(Kind::Workload, "a", 9)), probes, "others show more");
            assert!(!free.passes_over(&object(Kind::Workload, "b", 9)));
        }
        let (writes, began) = pending(&[(Kind::Workload, "a", 8)]);
        let free = writes.free_places(began, 0, &traffic);
        assert_eq!((free.places, free.again), (0, Some(began + LONG)));
    }

    #[test]
    fn what_hangs_shares_a_quarter_of_the_places_and_gets_no_more() {
        let traffic = Traffic::default();
        let (writes, began) = pending(&[(Kind::Workload, "dead", 6), (JOB_SETS, "a", 1), (JOB_SETS, "b", 1)]);
        while Instant::now() == began {}
        traffic.answered(Duration::ZERO);
        let free = writes.free_places(began + LONG, 0, &traffic);
        assert_eq!((free.places, free.sent, free.hanging), (6, 8, 6), "2 of 8 are left to them");
        assert!(free.passes_over(&object(Kind::Workload, "dead", 9)));
        assert!(!free.passes_over(&object(Kind::Workload, "a", 9)), "their tenant's webhook hangs");
        assert!(free.passes_over(&object(JOB_SETS, "c", 9)), "that of their kind hangs");
        assert!(!free.passes_over(&object(Kind::Job(JobKind::JOB), "a", 9)));
    }

    #[test]
    fn one_that_hangs_keeps_no_others_of_its_kind_waiting() {
        let traffic = Traffic::default();
        let (writes, began) = pending(&[(Kind::Workload, "dead", 1)]);
        while Instant::now() == began {}
        traffic.answered(Duration::ZERO);
        let free = writes.free_places(began + LONG, 0, &traffic);
        assert_eq!((free.places, free.hanging), (7, 0));
        assert!(!free.passes_over(&object(Kind::Workload, "dead", 9)));
    }
}
