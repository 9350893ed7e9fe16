//! Events that wait to be sent: a bounded number, of which the least important ones are dropped first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_api::conditions::WorkloadCondition;
use sluice_engine::effect::{Event, EventType};
use tokio::sync::Notify;

/// How much is lost with an event, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Importance {
    /// Why something waits: its status says the same.
    Waits,
    /// A step of an ordinary life.
    Step,
    /// Something was taken away, or a person may have to act.
    Trouble,
}

impl Importance {
    const COUNT: usize = 3;

    fn of(event: &Event) -> Self {
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

#[derive(Debug, Default)]
struct Waiting {
    /// By importance, each with its place in the order of all.
    events: [VecDeque<(u64, Event)>; Importance::COUNT],
    next: u64,
    closed: bool,
}

impl Waiting {
    fn len(&self) -> usize {
        self.events.iter().map(VecDeque::len).sum()
    }

    fn pop(&mut self) -> Option<Event> {
        let first = |events: &VecDeque<(u64, Event)>| events.front().map(|(place, _)| *place);
        let at = self.events.iter().enumerate().filter_map(|(at, e)| Some((first(e)?, at))).min()?.1;
        self.events[at].pop_front().map(|(_, event)| event)
    }
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    news: Notify,
    capacity: usize,
}

impl Queue {
    /// An empty queue for so many events.
    pub fn new(capacity: usize) -> Self {
        Self { waiting: Mutex::default(), news: Notify::new(), capacity }
    }

    fn locked(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. If too many wait, the oldest of the least important ones goes, or this one if it is less important than all; says
    /// whether one did.
    pub fn push(&self, event: Event) -> bool {
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
        waiting.events[importance].push_back((place, event));
        drop(waiting);
        self.news.notify_one();
        full
    }

    /// No more events come.
    pub fn close(&self) {
        self.locked().closed = true;
        self.news.notify_one();
    }

    /// The next event in the order in which they came; nothing once no more come. For one receiver.
    pub async fn next(&self) -> Option<Event> {
        loop {
            {
                let mut waiting = self.locked();
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

    fn all(queue: &Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.next().now_or_never().flatten()).map(|event| event.reason).collect()
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
            assert!(!queue.push(event));
        }
        assert_eq!(all(&queue), order);
        assert_eq!(queue.next().now_or_never(), None, "it waits for more");
        queue.close();
        assert_eq!(queue.next().now_or_never(), Some(None));
    }

    #[test]
    fn the_least_important_are_dropped_first_and_among_equals_the_oldest() {
        let queue = Queue::new(3);
        queue.push(event("WaitingForQuota", EventType::Warning));
        queue.push(event("QuotaReserved", EventType::Normal));
        queue.push(event("Preempted", EventType::Normal));
        assert!(queue.push(event("Admitted", EventType::Normal)), "the reason for waiting went");
        assert!(queue.push(event("WaitingForQuota", EventType::Warning)), "it is less important than all");
        assert!(queue.push(event("EvictedDueToPreempted", EventType::Normal)));
        assert_eq!(all(&queue), ["Preempted", "Admitted", "EvictedDueToPreempted"]);
        for number in 1..=4 {
            let full = queue.push(event(&format!("EvictedDueTo{number}"), EventType::Normal));
            assert_eq!(full, number == 4);
        }
        assert_eq!(all(&queue), ["EvictedDueTo2", "EvictedDueTo3", "EvictedDueTo4"]);
    }
}
