//! Events that wait to be sent: a bounded number. The least important ones and those that are too late to be of use are dropped first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_api::conditions::WorkloadCondition;
use sluice_engine::effect::{Event, EventType};
use tokio::sync::Notify;

/// After this time the reason why something waits is of no use: the status has the current one.
const STALE: Duration = Duration::from_mins(1);

/// How much is lost with an event, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Importance {
    /// Why something waits: its status says the same.
    Waits,
    /// A step of an ordinary life.
    Step,
    /// Something was taken away, or a person may have to act.
    Trouble,
}

impl Importance {
    const COUNT: usize = 3;

    /// Of an event.
    pub fn of(event: &Event) -> Self {
        let reason = event.reason.as_str();
        let evicted = reason.starts_with(WorkloadCondition::Evicted.as_str());
        let taken = evicted || ["Preempted", "Stopped"].contains(&reason);
        let by_scheduler = event.reporter == sluice_engine::REPORTER_ADMISSION;
        match event.type_ {
            EventType::Warning if by_scheduler => Self::Waits,
            EventType::Warning => Self::Trouble,
            EventType::Normal if taken => Self::Trouble,
            EventType::Normal => Self::Step,
        }
    }
}

/// An event, and when it happened.
pub type Happened = (Event, Instant);

#[derive(Debug, Default)]
struct Waiting {
    /// By importance, each with its place in the order of all.
    events: [VecDeque<(u64, Happened)>; Importance::COUNT],
    next: u64,
    closed: bool,
}

impl Waiting {
    fn len(&self) -> usize {
        self.events.iter().map(VecDeque::len).sum()
    }

    fn pop(&mut self) -> Option<Happened> {
        let first = |events: &VecDeque<(u64, Happened)>| events.front().map(|(place, _)| *place);
        let at = self.events.iter().enumerate().filter_map(|(at, e)| Some((first(e)?, at))).min()?.1;
        self.events[at].pop_front().map(|(_, event)| event)
    }

    /// Drops events that are of no use any more; returns how many.
    fn drop_stale(&mut self, now: Instant) -> usize {
        let waits = &mut self.events[Importance::Waits as usize];
        let stale = waits.partition_point(|(_, (_, at))| now.saturating_duration_since(*at) > STALE);
        waits.drain(..stale).count()
    }
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    news: Notify,
    capacity: usize,
    dropped: AtomicU64,
}

impl Queue {
    /// An empty queue for this number of events.
    pub fn new(capacity: usize) -> Self {
        Self { waiting: Mutex::default(), news: Notify::new(), capacity, dropped: AtomicU64::new(0) }
    }

    fn locked(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts events that are not sent; returns whether they are the first ones.
    pub fn count_dropped(&self, events: usize) -> bool {
        let events = u64::try_from(events).unwrap_or(u64::MAX);
        events > 0 && self.dropped.fetch_add(events, Ordering::Relaxed) == 0
    }

    /// Adds an event that happens now. If too many wait, the oldest of the least important ones is dropped, or this one if it is less important than
    /// all; returns whether one was.
    pub fn push(&self, event: Event, now: Instant) -> bool {
        let importance = Importance::of(&event) as usize;
        let mut waiting = self.locked();
        let full = waiting.len() >= self.capacity;
        if full {
            match waiting.events[..=importance].iter_mut().find(|events| !events.is_empty()) {
                Some(least) => drop(least.pop_front()),
                None => return true,
            }
        }
        let place = waiting.next;
        waiting.next += 1;
        waiting.events[importance].push_back((place, (event, now)));
        drop(waiting);
        self.news.notify_one();
        full
    }

    /// No more events come.
    pub fn close(&self) {
        self.locked().closed = true;
        self.news.notify_one();
    }

    /// The next event in the order of arrival, with its time; `None` once no more come. For one receiver.
    pub async fn next(&self) -> Option<Happened> {
        loop {
            {
                let mut waiting = self.locked();
                self.count_dropped(waiting.drop_stale(Instant::now()));
                if let Some(event) = waiting.pop() {
                    return Some(event);
                }
                if waiting.closed {
                    return None;
                }
            }
            self.news.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use sluice_engine::input::{Kind, ObjectRef};

    use super::*;

    fn event(reason: &str, type_: EventType) -> Event {
        Event {
            object: ObjectRef::namespaced(Kind::Workload, "ns", "w"),
            uid: "u".into(),
            type_,
            reason: reason.to_owned(),
            action: reason.to_owned(),
            note: String::new(),
            reporter: sluice_engine::REPORTER_ADMISSION,
            attempt: None,
        }
    }

    fn push(queue: &Queue, event: Event) -> bool {
        queue.push(event, Instant::now())
    }

    fn all(queue: &Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.next().now_or_never().flatten()).map(|(event, _)| event.reason).collect()
    }

    #[test]
    fn events_come_out_in_the_order_in_which_they_came() {
        let queue = Queue::new(8);
        let events = [
            event("WaitingForQuota", EventType::Warning),
            event("QuotaReserved", EventType::Normal),
            event("Preempted", EventType::Normal),
            event("Admitted", EventType::Normal),
        ];
        let order: Vec<_> = events.iter().map(|event| event.reason.clone()).collect();
        for event in events {
            assert!(!push(&queue, event));
        }
        assert_eq!(all(&queue), order);
        assert_eq!(queue.next().now_or_never(), None, "it waits for more");
        queue.close();
        assert_eq!(queue.next().now_or_never(), Some(None));
    }

    #[test]
    fn the_least_important_are_dropped_first_and_among_equals_the_oldest() {
        let queue = Queue::new(3);
        push(&queue, event("WaitingForQuota", EventType::Warning));
        push(&queue, event("QuotaReserved", EventType::Normal));
        push(&queue, event("Preempted", EventType::Normal));
        assert!(push(&queue, event("Admitted", EventType::Normal)), "the reason for waiting went");
        assert!(push(&queue, event("WaitingForQuota", EventType::Warning)), "it is less important than all");
        assert!(push(&queue, event("EvictedDueToPreempted", EventType::Normal)));
        assert_eq!(all(&queue), ["Preempted", "Admitted", "EvictedDueToPreempted"]);
        for number in 1..=4 {
            let full = push(&queue, event(&format!("EvictedDueTo{number}"), EventType::Normal));
            assert_eq!(full, number == 4);
        }
        assert_eq!(all(&queue), ["EvictedDueTo2", "EvictedDueTo3", "EvictedDueTo4"]);
    }

    #[test]
    fn events_keep_the_time_when_they_happened_and_old_reasons_for_waiting_are_dropped() {
        let (queue, now) = (Queue::new(8), Instant::now());
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        queue.push(event("WaitingForQuota", EventType::Warning), ago(400));
        queue.push(event("QuotaReserved", EventType::Normal), ago(399));
        queue.push(event("WaitingForQuota", EventType::Warning), ago(30));
        let next = || queue.next().now_or_never().flatten().map(|(event, at)| (event.reason, at));
        assert_eq!(next(), Some(("QuotaReserved".to_owned(), ago(399))));
        assert_eq!(next(), Some(("WaitingForQuota".to_owned(), ago(30))));
        assert_eq!((next(), queue.dropped()), (None, 1));
    }
}
