//! The shared state of writes in flight: the limit, and what waits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_engine::input::Kind;
use tokio::sync::watch;

use super::class::Class;
use super::limit::Limit;
use super::sending::LONG;

mod pausing;

pub use pausing::{InTurn, Pausing};

/// While writes wait, an event is sent this often at least.
const EVENTS_AFTER: Duration = Duration::from_millis(50);
/// A faster answer shows that the API server is not slow.
const SOON: Duration = Duration::from_millis(250);
/// Beside a mean latency, a request takes long from this many times that on.
const TIMES: u32 = 4;
/// But it takes long after this time at any rate.
const LONG_AT_ANY_RATE: Duration = Duration::from_secs(4);

/// Kinds of objects whose writes the same webhooks review, mostly. If one takes long, answers to the others say whether the API server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reviewed {
    /// Workloads: Sluice's own webhooks.
    Workloads,
    /// Jobs: those of Sluice, of their controllers, and policies.
    Jobs,
    /// Pods: some of those of jobs.
    Pods,
    /// All else: mostly none.
    Others,
}

impl Reviewed {
    const ALL: [Self; 4] = [Self::Workloads, Self::Jobs, Self::Pods, Self::Others];

    /// Of a kind. Operations on a namespace are those on its pods.
    pub const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Workload => Self::Workloads,
            Kind::Job(_) => Self::Jobs,
            Kind::Pod | Kind::JobPod | Kind::Namespace => Self::Pods,
            _ => Self::Others,
        }
    }

    /// Whether a soon answer to a write of `other` shows that neither the API server nor Sluice's own webhook is slow for writes of these: then a
    /// webhook of someone else's is. So Workloads show that jobs and pods hang, also if all jobs in use have the same dead webhook. What no webhook
    /// reviews shows nothing of what one does.
    pub fn is_shown_by(self, other: Self) -> bool {
        match self {
            Self::Workloads => other == Self::Workloads,
            Self::Jobs => matches!(other, Self::Workloads | Self::Jobs),
            Self::Pods => other != Self::Others,
            Self::Others => true,
        }
    }
}

/// The writes in flight. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Traffic(Arc<Shared>);

/// How many writes there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    /// Those that were begun and have not ended.
    pub begun: usize,
    /// Those of them that do not pause.
    pub in_flight: usize,
    /// Those of these that hang and give their slots to others.
    pub hanging: usize,
    /// Those that wait, by lane.
    pub waiting: [usize; Class::ALL.len()],
    /// Those of these that are held back because others hang, by lane.
    pub held: [usize; Class::ALL.len()],
}

impl Numbers {
    /// Those that wait for the API server, by lane.
    pub fn ready(&self) -> [usize; Class::ALL.len()] {
        std::array::from_fn(|lane| self.waiting[lane].saturating_sub(self.held[lane]))
    }
}

#[derive(Debug)]
struct Shared {
    limit: Mutex<Limit>,
    /// Writes that were begun and have not ended. It changes with each look at the writes.
    begun: watch::Sender<usize>,
    in_flight: AtomicUsize,
    /// Writes that hang and give their slots to others.
    hanging: AtomicUsize,
    /// Whether nothing new is sent.
    ending: AtomicBool,
    waiting: [AtomicUsize; Class::ALL.len()],
    /// How many writes pause before a retry, or wait in turn.
    pausing: watch::Sender<usize>,
    /// How many of them have paused for long enough, and wait for a slot: starts, stops and admissions alone.
    returning: AtomicUsize,
    /// All of these but the first wait here, in order.
    returns: tokio::sync::Mutex<()>,
    /// How many of them wait in turn for an answer that may be large.
    in_turn: AtomicUsize,
    /// How many writes are in flight or wait for the API server.
    busy: watch::Sender<usize>,
    /// When the last of the writes was sent that were answered soon, by kinds.
    soon: Mutex<[Option<Instant>; Reviewed::ALL.len()]>,
    /// How many writes of many requests are under way.
    many: watch::Sender<usize>,
    /// The next of these waits here, in order.
    queue: tokio::sync::Mutex<()>,
}

impl Default for Traffic {
    fn default() -> Self {
        let shared = Shared {
            limit: Mutex::default(),
            begun: watch::Sender::new(0),
            in_flight: AtomicUsize::default(),
            hanging: AtomicUsize::default(),
            ending: AtomicBool::default(),
            waiting: std::array::from_fn(|_| AtomicUsize::default()),
            pausing: watch::Sender::new(0),
            returning: AtomicUsize::default(),
            returns: tokio::sync::Mutex::default(),
            in_turn: AtomicUsize::default(),
            busy: watch::Sender::new(0),
            soon: Mutex::default(),
            many: watch::Sender::new(0),
            queue: tokio::sync::Mutex::default(),
        };
        Self(Arc::new(shared))
    }
}

/// The turn of a write of many requests, which uses a slot for as long as hundreds of other writes. Such writes have half of the slots together, and
/// leave one at any rate.
#[derive(Debug)]
pub struct Many {
    traffic: Traffic,
    has_turn: bool,
}

impl Many {
    /// Before each of the requests: waits until it is the write's turn. It gives its turn back if too many have one, because the limit went down.
    pub async fn turn(&mut self) {
        let (shared, most) = (&self.traffic.0, self.traffic.most_of_many());
        if self.has_turn {
            // The next one looks at the limit again, too: that may have risen.
            shared.many.send_modify(|many| {
                self.has_turn = *many <= most;
                *many -= usize::from(!self.has_turn);
            });
        }
        if !self.has_turn {
            let _in_turn = self.traffic.wait_in_turn();
            let _first = shared.queue.lock().await;
            let mut many = shared.many.subscribe();
            // The sender lives as long as `self`.
            let _ = many.wait_for(|many| *many < self.traffic.most_of_many()).await;
            shared.many.send_modify(|many| *many += 1);
            self.has_turn = true;
        }
    }
}

impl Drop for Many {
    fn drop(&mut self) {
        if self.has_turn {
            self.traffic.0.many.send_modify(|many| *many -= 1);
        }
    }
}

impl Traffic {
    /// For a write of many requests.
    pub fn many(&self) -> Many {
        Many { traffic: self.clone(), has_turn: false }
    }

    fn most_of_many(&self) -> usize {
        (self.limit() / 2).max(1)
    }

    /// A write waits until it is its turn to have a large answer, or what is given is dropped.
    pub fn wait_in_turn(&self) -> InTurn {
        self.0.in_turn.fetch_add(1, Ordering::Relaxed);
        InTurn::new(self.pause())
    }

    /// How many writes wait in turn.
    pub fn in_turn(&self) -> usize {
        self.0.in_turn.load(Ordering::Relaxed)
    }

    /// A write pauses until what is given is dropped.
    pub fn pause(&self) -> Pausing {
        Pausing::begin(self.clone())
    }

    /// How many writes pause.
    pub fn pausing(&self) -> watch::Receiver<usize> {
        self.0.pausing.subscribe()
    }

    /// How many starts, stops and admissions wait for a slot after their pauses.
    pub fn returning(&self) -> usize {
        self.0.returning.load(Ordering::Relaxed)
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

    fn soon(&self) -> MutexGuard<'_, [Option<Instant>; Reviewed::ALL.len()]> {
        self.0.soon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request on an object of this kind that was sent then was answered. `reads`: it only reads, so webhooks were not called.
    pub fn answered(&self, kind: Kind, reads: bool, sent: Instant, latency: Duration) {
        let hanging = self.0.hanging.load(Ordering::Relaxed);
        let in_flight = self.in_flight().saturating_sub(hanging);
        self.locked().answered(sent + latency, latency, in_flight);
        if latency < SOON && !reads {
            let mut soon = self.soon();
            let last = &mut soon[Reviewed::of(kind) as usize];
            *last = (*last).max(Some(sent));
        }
    }

    /// The API server answered a request at this time, whatever came of it. That says nothing of how long one takes.
    pub fn heard(&self, now: Instant) {
        self.locked().heard(now);
    }

    /// Whether a write that was sent after this time was answered soon, of those that show something about this kind.
    pub fn is_overtaken(&self, kind: Kind, sent: Instant) -> bool {
        let of = Reviewed::of(kind);
        let soon = self.soon();
        Reviewed::ALL.into_iter().any(|other| of.is_shown_by(other) && soon[other as usize] > Some(sent))
    }

    /// Whether any write that was sent after this time was answered soon: then the API server has not too much to do.
    pub fn answers_others(&self, sent: Instant) -> bool {
        self.soon().iter().any(|later| *later > Some(sent))
    }

    /// From this time on a request takes long: it waits for something, such as a dead webhook. A server that is slow for all is given more.
    pub fn long(&self) -> Duration {
        self.locked().mean().saturating_mul(TIMES).clamp(LONG, LONG_AT_ANY_RATE)
    }

    /// After this time a request that probably hangs is given up.
    pub fn short(&self) -> Duration {
        self.long() * 2
    }

    /// The API server refused a request at this time because it has too many.
    pub fn refused(&self, now: Instant) {
        self.locked().refused(now);
    }

    /// Forgets what was known of the API server: that may be over when this process leads again.
    pub fn forget(&self) {
        *self.locked() = Limit::default();
        *self.soon() = [None; Reviewed::ALL.len()];
    }

    /// From now on nothing new is sent; only what may have been carried out already is asked for again.
    pub fn end(&self) {
        self.0.ending.store(true, Ordering::Relaxed);
    }

    /// Whether nothing new is sent.
    pub fn is_ending(&self) -> bool {
        self.0.ending.load(Ordering::Relaxed)
    }

    /// Takes over how many writes there are.
    pub fn set(&self, now: &Numbers) {
        self.0.in_flight.store(now.in_flight, Ordering::Relaxed);
        self.0.hanging.store(now.hanging, Ordering::Relaxed);
        for (known, now) in self.0.waiting.iter().zip(now.waiting) {
            known.store(now, Ordering::Relaxed);
        }
        // After the others: what waits for a slot looks at them then.
        self.0.begun.send_replace(now.begun);
        let busy = now.in_flight.saturating_sub(now.hanging) + now.ready().iter().sum::<usize>();
        // It changes with each write. While there is no room for an event, none that waits for room has to look.
        let has_room = busy < self.limit();
        self.0.busy.send_if_modified(|known| std::mem::replace(known, busy) != busy && has_room);
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

    #[test]
    fn only_writes_that_show_that_sluices_webhook_is_well_overtake_one_that_it_reviews() {
        use sluice_api::job::JobKind;

        let (job, other) = (Kind::Job(JobKind::JOB), Kind::Job(JobKind::JOB_SET));
        let all = [Kind::Workload, job, Kind::Namespace, Kind::ProvisioningRequest];
        for (kind, overtaken) in [
            (Kind::LocalQueue, [false, false, false, true]),
            (other, [false, true, true, true]),
            (Kind::JobPod, [false, false, true, true]),
            (Kind::Workload, [true, true, true, true]),
        ] {
            let (traffic, sent) = (Traffic::default(), Instant::now());
            let later = sent + Duration::from_millis(1);
            traffic.answered(kind, true, later, Duration::ZERO);
            traffic.answered(kind, false, later, SOON);
            traffic.answered(kind, false, sent, Duration::ZERO);
            assert!(!traffic.answers_others(sent), "it reads, was not soon, was not later");
            traffic.answered(kind, false, later, Duration::ZERO);
            assert_eq!(all.map(|kind| traffic.is_overtaken(kind, sent)), overtaken, "{kind:?}");
            assert!(traffic.answers_others(sent));
            traffic.forget();
            assert!(!traffic.answers_others(sent));
        }
    }

    #[test]
    fn a_request_takes_long_compared_with_the_others() {
        for (mean, long) in [(50, 1_000), (250, 1_000), (500, 2_000), (1_200, 4_000), (20_000, 4_000)] {
            let (traffic, now) = (Traffic::default(), Instant::now());
            assert_eq!((traffic.long(), traffic.short()), (LONG, LONG * 2));
            for _ in 0..16 {
                traffic.answered(Kind::Workload, false, now, Duration::from_millis(mean));
            }
            assert_eq!(traffic.long(), Duration::from_millis(long), "{mean} ms");
            assert_eq!(traffic.short(), traffic.long() * 2);
        }
    }

    #[test]
    fn writes_of_many_requests_have_half_of_the_slots_and_leave_one() {
        let (traffic, now) = (Traffic::default(), Instant::now());
        let mut writes: Vec<_> = (0..6).map(|_| traffic.many()).collect();
        let mut turns =
            || writes.iter_mut().map(|write| write.turn().now_or_never().is_some()).collect::<Vec<_>>();
        let first = [true, true, true, true, false, false];
        assert_eq!([turns(), turns()], [first, first], "8 may be in flight");
        for second in 0..5 {
            traffic.refused(now + Duration::from_secs(second));
        }
        // The first three give their turn back for their next request.
        let last = [false, false, false, true, false, false];
        assert_eq!([turns(), turns()], [last, last], "2 may be in flight");
        writes.remove(3);
        let mut next = writes.pop().unwrap();
        assert!(next.turn().now_or_never().is_some(), "the turn of one that is over");
        assert_eq!((traffic.in_turn(), *traffic.pausing().borrow()), (0, 0));
    }

    #[test]
    fn an_event_that_waits_is_woken_only_once_there_is_room() {
        let traffic = Traffic::default();
        let set = |in_flight| traffic.set(&Numbers { in_flight, ..Numbers::default() });
        set(9);
        let mut looks = traffic.0.busy.subscribe();
        for in_flight in [12, 8] {
            set(in_flight);
            assert!(!looks.has_changed().unwrap(), "8 may be in flight: {in_flight}");
        }
        assert_eq!(*looks.borrow(), 8, "what comes later sees it");
        set(7);
        assert!(looks.has_changed().unwrap());
        looks.mark_unchanged();
        set(7);
        assert!(!looks.has_changed().unwrap(), "nothing changed");
    }

    #[tokio::test]
    async fn events_go_when_there_is_room_or_after_a_moment() {
        let traffic = Traffic::default();
        let mut numbers = Numbers { in_flight: 4, ..Numbers::default() };
        traffic.set(&numbers);
        assert_eq!(traffic.room_for_event(3).now_or_never(), Some(()), "8 may be in flight");
        (numbers.waiting, numbers.held) = ([300, 0, 0, 0, 1], [300, 0, 0, 0, 1]);
        traffic.set(&numbers);
        assert_eq!(traffic.room_for_event(3).now_or_never(), Some(()), "these wait for a webhook");
        (numbers.waiting, numbers.held) = ([1, 0, 0, 0, 0], [0; 5]);
        traffic.set(&numbers);
        assert_eq!((traffic.in_flight(), traffic.waiting(Class::Jobs)), (4, 1));
        let began = Instant::now();
        let event = traffic.room_for_event(3);
        event.await;
        assert!(began.elapsed() >= EVENTS_AFTER, "writes wait");
    }
}
