//! The shared state of writes in flight: the limit, and what waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::class::Class;
use super::limit::Limit;

/// While writes wait, an event is sent this often at least.
const EVENTS_AFTER: Duration = Duration::from_millis(50);
/// A faster answer shows that the API server is not slow.
const SOON: Duration = Duration::from_millis(250);

/// The writes in flight. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Traffic(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: Mutex<Limit>,
    in_flight: AtomicUsize,
    /// Writes that hang and give their slots to others.
    hanging: AtomicUsize,
    waiting: [AtomicUsize; Class::ALL.len()],
    /// How many writes pause before a retry, or wait in turn.
    pausing: watch::Sender<usize>,
    /// How many of them wait in turn for an answer that may be large.
    in_turn: AtomicUsize,
    /// How many writes are in flight or wait.
    busy: watch::Sender<usize>,
    /// When the last of the requests was sent that were answered soon.
    soon: watch::Sender<Option<Instant>>,
}

impl Default for Traffic {
    fn default() -> Self {
        let shared = Shared {
            limit: Mutex::default(),
            in_flight: AtomicUsize::default(),
            hanging: AtomicUsize::default(),
            waiting: std::array::from_fn(|_| AtomicUsize::default()),
            pausing: watch::Sender::new(0),
            in_turn: AtomicUsize::default(),
            busy: watch::Sender::new(0),
            soon: watch::Sender::new(None),
        };
        Self(Arc::new(shared))
    }
}

/// A pausing write gives its slot to another one.
#[derive(Debug)]
pub struct Pausing(Traffic);

impl Drop for Pausing {
    fn drop(&mut self) {
        self.0.0.pausing.send_modify(|pausing| *pausing -= 1);
    }
}

/// A write that waits in turn gives its slot to another one, too.
#[derive(Debug)]
pub struct InTurn(Pausing);

impl Drop for InTurn {
    fn drop(&mut self) {
        self.0.0.0.in_turn.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Traffic {
    /// A write waits until it is its turn to have a large answer, or what is given is dropped.
    pub fn wait_in_turn(&self) -> InTurn {
        self.0.in_turn.fetch_add(1, Ordering::Relaxed);
        InTurn(self.pause())
    }

    /// How many writes wait in turn.
    pub fn in_turn(&self) -> usize {
        self.0.in_turn.load(Ordering::Relaxed)
    }

    /// A write pauses until what is given is dropped.
    pub fn pause(&self) -> Pausing {
        self.0.pausing.send_modify(|pausing| *pausing += 1);
        Pausing(self.clone())
    }

    /// How many writes pause.
    pub fn pausing(&self) -> watch::Receiver<usize> {
        self.0.pausing.subscribe()
    }

    fn locked(&self) -> MutexGuard<'_, Limit> {
        self.0.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many may be in flight.
    pub fn limit(&self) -> usize {
        self.locked().get()
    }

    /// How many are in flight.
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    /// How many wait in a lane.
    pub fn waiting(&self, lane: Class) -> usize {
        self.0.waiting[lane.index()].load(Ordering::Relaxed)
    }

    /// A request that was sent then was answered.
    pub fn answered(&self, sent: Instant, latency: Duration) {
        let hanging = self.0.hanging.load(Ordering::Relaxed);
        let in_flight = self.in_flight().saturating_sub(hanging);
        self.locked().answered(latency, in_flight);
        if latency < SOON {
            self.0.soon.send_if_modified(|last| {
                let later = last.is_none_or(|last| sent > last);
                if later {
                    *last = Some(sent);
                }
                later
            });
        }
    }

    /// Whether a request that was sent after this time was answered soon.
    pub fn is_overtaken(&self, sent: Instant) -> bool {
        self.0.soon.borrow().is_some_and(|later| later > sent)
    }

    /// The API server refused a request because it has too many.
    pub fn refused(&self) {
        self.locked().refused(Instant::now());
    }

    /// The numbers of writes in flight, of those that hang and give their slots to others, and of those that wait, by lane.
    pub fn set(&self, in_flight: usize, hanging: usize, waiting: &[usize; Class::ALL.len()]) {
        self.0.in_flight.store(in_flight, Ordering::Relaxed);
        self.0.hanging.store(hanging, Ordering::Relaxed);
        for (known, now) in self.0.waiting.iter().zip(waiting) {
            known.store(*now, Ordering::Relaxed);
        }
        let busy = in_flight.saturating_sub(hanging) + waiting.iter().sum::<usize>();
        self.0.busy.send_if_modified(|known| std::mem::replace(known, busy) != busy);
    }

    /// Waits until an event may be sent beside `others`: when no write waits for its turn, or after a moment, so that events are sent at all.
    pub async fn room_for_event(&self, others: usize) {
        let mut busy = self.0.busy.subscribe();
        let room = busy.wait_for(|busy| *busy + others < self.limit());
        // The sender lives as long as `self`; after the moment the event is sent.
        let _ = tokio::time::timeout(EVENTS_AFTER, room).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn events_go_when_there_is_room_or_after_a_moment() {
        let traffic = Traffic::default();
        traffic.set(4, 0, &[0; Class::ALL.len()]);
        assert_eq!(traffic.room_for_event(3).now_or_never(), Some(()), "8 may be in flight");
        traffic.set(4, 0, &[1, 0, 0, 0, 0]);
        assert_eq!((traffic.in_flight(), traffic.waiting(Class::Jobs)), (4, 1));
        let began = Instant::now();
        let event = traffic.room_for_event(3);
        event.await;
        assert!(began.elapsed() >= EVENTS_AFTER, "writes wait");
    }
}
