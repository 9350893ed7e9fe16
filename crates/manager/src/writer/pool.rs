//! The pool of writes: it takes orders, sends what may be sent next, and hands the answers on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use sluice_engine::effect::EffectId;
use sluice_engine::input::{ObjectRef, WaitingWrites, WriteError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tracing::error;

use super::busy::Busy;
use super::class::Class;
use super::lanes::Lanes;
use super::limit;
use super::pending_writes::{FreePlaces, Next, PendingWrites};
use super::sending::{Pace, Sending, Server};
use super::suspects::Patience;
use super::traffic::{Numbers, Pausing, Traffic};
use super::{Answer, Answering, Job, Order, Then, carry_out};
use crate::intake::Slot;
use crate::supervise::text;
use crate::watch::document::Document;
use crate::watch::versions::Versions;

/// How many writes are sent or pause before a retry at most, beside those that hang and give their slots to others: a quarter more than the highest
/// limit, so that it can be found out whether all of them hang, and the places that are kept free.
const MOST: usize = limit::HIGHEST + limit::HIGHEST / 4 + KEPT;
/// Jobs and admissions alone get the last places: very many lesser writes that pause do not delay them.
const KEPT: usize = 16;
/// This number of writes that wait in turn for a large answer does not count, either: there are many when many jobs end at once.
const MOST_IN_TURN: usize = 1000;
/// The engine learns the number of waiting writes in steps of this size.
const BACKLOG_STEP: usize = 16;
/// How often to check whether the API server is still busy: no event says when that ends.
const BUSY_LOOK: Duration = Duration::from_millis(500);

/// The parts that sending needs.
pub(super) struct Sender {
    /// What requests go to.
    pub server: Server,
    /// The versions of the objects as they were last seen.
    pub versions: Versions,
    /// The rate at which writes may be sent.
    pub pace: Arc<Pace>,
}

/// A write that was carried out.
struct Done {
    object: ObjectRef,
    class: Class,
    generation: u64,
    id: EffectId,
    answer: Answer,
    document: Document,
    place: Slot,
    /// It had to wait for its place, and gave its slot to others.
    pausing: Option<Pausing>,
}

/// The last class of which one more may be sent, while this number of reports is in progress, alone or together with other writes that are in
/// progress or wait. Together with others, which each report delays, reports have an eighth of the slots. Alone they have half: then a new write
/// finds a slot, and the limit follows their number.
fn last_class(reports: usize, alone: bool, limit: usize) -> Class {
    let most = (limit / if alone { 2 } else { 8 }).max(1);
    if reports < most { Class::Reports } else { Class::Ends }
}

/// The last class of which one more may be sent, while there are places for so many more.
const fn last_with_room(room: usize) -> Option<Class> {
    match room {
        0 => None,
        1..=KEPT => Some(Class::Admissions),
        _ => Some(Class::Reports),
    }
}

/// What the engine learns of what waits, by lane: a decision starts or stops jobs, and gives or takes quota.
fn backlog_of(waiting: &[usize; Class::ALL.len()], busy: bool) -> WaitingWrites {
    let in_steps = |lanes: &[usize]| {
        let steps = lanes.iter().sum::<usize>() / BACKLOG_STEP;
        u32::try_from(steps * BACKLOG_STEP).unwrap_or(u32::MAX)
    };
    WaitingWrites { all: in_steps(waiting), ahead: in_steps(&waiting[..=Class::Admissions.index()]), busy }
}

/// Waits until then.
async fn until(then: Option<Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then.into()).await,
        None => std::future::pending().await,
    }
}

/// Carries out orders until no more can come and all is done; `idle` says whether nothing waits or is being sent.
pub(super) async fn run(
    mut orders: mpsc::UnboundedReceiver<Order>,
    idle: watch::Sender<bool>,
    sender: Sender,
    answering: Answering,
) {
    let mut pool = Pool::new(sender, answering);
    let mut pausing = pool.traffic.pausing();
    let mut open = true;
    loop {
        pool.follow();
        let paused = *pausing.borrow_and_update();
        let again = pool.send(paused);
        let resting = pool.lanes.is_idle() && pool.running.is_empty();
        if resting && !open {
            return;
        }
        idle.send_if_modified(|idle| std::mem::replace(idle, resting && orders.is_empty()) != *idle);
        for taken in pool.taken.drain(..) {
            // The caller may have timed out.
            let _ = taken.send(());
        }
        tokio::select! {
            order = orders.recv(), if open => match order {
                Some(order) => pool.take(order).await,
                None => open = false,
            },
            // The sender lives as long as `traffic`.
            _ = pausing.changed() => {}
            // Only time shows that the API server is no longer busy.
            () = tokio::time::sleep(BUSY_LOOK), if pool.reported.is_some_and(|reported| reported.busy) => {}
            () = until(again), if pool.lanes.has_waiting() => {}
            Some(done) = pool.running.join_next() => pool.ended(done),
        }
        // Everything that came meanwhile is taken first: a look at the writes costs more than each of these.
        while let Ok(order) = orders.try_recv() {
            pool.take(order).await;
        }
        while let Some(done) = pool.running.try_join_next() {
            pool.ended(done);
        }
    }
}

struct Pool {
    sender: Sender,
    answering: Answering,
    traffic: Traffic,
    lanes: Lanes<ObjectRef, Job>,
    running: JoinSet<Done>,
    pending: PendingWrites,
    busy: Busy,
    /// What was reported to the engine last, if anything was.
    reported: Option<WaitingWrites>,
    /// How many reports are in progress.
    reports: usize,
    /// The current engine.
    current: u64,
    /// The first one whose writes count.
    first: watch::Sender<u64>,
    /// What to do once the earlier ones have no request in progress.
    then: Option<Then>,
    /// Those that wait until `idle` tells of what was taken.
    taken: Vec<oneshot::Sender<()>>,
    /// When the token may be used that was taken for the next write.
    reserved: Option<Instant>,
    started: Instant,
}

impl Pool {
    fn new(sender: Sender, answering: Answering) -> Self {
        Self {
            traffic: sender.server.traffic.clone(),
            sender,
            answering,
            lanes: Lanes::default(),
            running: JoinSet::new(),
            pending: PendingWrites::default(),
            busy: Busy::default(),
            reported: Some(WaitingWrites::default()),
            reports: 0,
            current: 0,
            first: watch::Sender::new(0),
            then: None,
            taken: Vec::new(),
            reserved: None,
            started: Instant::now(),
        }
    }

    /// Does what waits for the end of all requests.
    fn follow(&mut self) {
        if self.running.is_empty()
            && let Some(then) = self.then.take()
        {
            then();
        }
    }

    /// Sends the writes that may be sent now, while `paused` of those in progress pause, and reports how many wait; when to look again.
    fn send(&mut self, paused: usize) -> Option<Instant> {
        let now = Instant::now();
        let (mut token_at, mut look_again) = (None, None);
        let mut free = self.pending.free_places(now, paused, &self.traffic);
        let beside = free.hanging + self.traffic.in_turn().min(MOST_IN_TURN);
        let places = if self.lanes.has_waiting() { free.places } else { 0 };
        for _ in 0..places {
            let room = MOST.saturating_sub(self.running.len().saturating_sub(beside));
            let Some(last) = last_with_room(room) else { break };
            // A token is taken before it is known for what: what waits for it keeps its place among all that waits, and may still be withdrawn.
            let at = *self.reserved.get_or_insert_with(|| self.sender.pace.reserve(now));
            token_at = Some(at).filter(|at| *at > now);
            if token_at.is_some() {
                break;
            }
            let alone = free.at_work == 0 && !self.waits_beside_reports(&free);
            let reports = self.reports.saturating_sub(free.idle_reports);
            let last = last.min(last_class(reports, alone, self.traffic.limit()));
            let at = (now, now.saturating_duration_since(self.started));
            let Some(next) = self.pending.next(&mut free, &mut self.lanes, at, last) else { break };
            self.reserved = None;
            // Nothing else may happen before it turns out that this one hangs.
            look_again = Some(now + self.traffic.long());
            self.begin(next);
        }
        self.report(now, paused, &free);
        free.again.into_iter().chain(look_again).chain(token_at).min()
    }

    /// Whether anything but reports waits for the API server.
    fn waits_beside_reports(&self, free: &FreePlaces) -> bool {
        self.lanes.has_waiting_beside(Class::Ends, |group| self.pending.holds(free, group))
    }

    fn begin(&mut self, next: Next<Job>) {
        let Next { object, class, item: (generation, request), patience } = next;
        self.reports += usize::from(class == Class::Reports);
        let Sender { server, versions, .. } = &self.sender;
        let (versions, rate, first) =
            (versions.clone(), Arc::clone(&self.sender.pace), self.first.subscribe());
        let suspect = patience == Patience::Little;
        let sending = Sending::new(server.clone(), rate, object.kind, class, generation, first, suspect);
        self.pending.insert(object.clone(), class, patience, sending.under_way());
        let (poison, intake) = (Arc::clone(&self.answering.poison), self.answering.intake.clone());
        let meter = Arc::clone(&self.answering.meter);
        #[expect(
            clippy::disallowed_methods,
            reason = "it is joined by the pool, and a panic of it continues there"
        )]
        self.running.spawn(async move {
            let began = Instant::now();
            let carrying_out = AssertUnwindSafe(carry_out(&sending, &versions, &request)).catch_unwind();
            let (answer, document, bytes) = carrying_out.await.unwrap_or_else(|panic| {
                let why = text(&*panic);
                error!(object = %request.object, purpose = ?request.purpose, why, "a write panicked");
                poison(request.object.clone(), why.clone());
                (Err(WriteError::Refused(format!("the write panicked: {why}"))), None, 0)
            });
            meter(&request, began.elapsed(), &answer);
            // The API server is done with this one and has time for others; but while too much waits for the engine, MOST bounds them.
            let mut place = std::pin::pin!(intake.place(bytes));
            let (place, pausing) = if let Some(place) = place.as_mut().now_or_never() {
                (place, None)
            } else {
                let pausing = sending.pause();
                (place.await, Some(pausing))
            };
            Done { object, class, generation, id: request.id, answer, document, place, pausing }
        });
    }

    /// Reports how many writes there are. What is held back because others hang waits for a webhook: for that the API server is not busy, and neither
    /// reports nor events are to come later.
    fn report(&mut self, now: Instant, paused: usize, free: &FreePlaces) {
        let numbers = Numbers {
            begun: free.sent + paused,
            in_flight: free.sent,
            hanging: free.hanging,
            waiting: self.lanes.waiting(),
            held: self.lanes.skipped(|group| self.pending.holds(free, group)),
        };
        self.traffic.set(&numbers);
        let ready = numbers.ready();
        let is_at_work = free.at_work > 0 || ready[..=Class::Ends.index()].iter().any(|lane| *lane > 0);
        let known = backlog_of(&ready, self.busy.note(now, is_at_work));
        if self.reported.replace(known) != Some(known) {
            (self.answering.backlog)(known);
        }
    }

    async fn take(&mut self, order: Order) {
        self.follow();
        match order {
            Order::Write((generation, _)) if generation < *self.first.borrow() => {}
            Order::Write((generation, request)) => {
                self.lanes.push(request.object.clone(), Class::of(request.purpose), (generation, request));
            }
            Order::Withdraw(generation, id) => {
                let meant = |job: &Job| job.0 == generation && job.1.id == id;
                // Readiness that admissions wait for is among these.
                let mut lanes = [Class::Reports, Class::Admissions].into_iter();
                if lanes.any(|lane| self.lanes.withdraw(lane, meant).is_some()) {
                    let withdrawn = Err(WriteError::Withdrawn);
                    (self.answering.answers)(generation, id, withdrawn, None, Slot::default());
                }
            }
            Order::Forget => {
                // Writes in progress send no further request, and what the engine still emits is not sent. Only one without an answer is sent again: it
                // may be carried out late.
                self.traffic.end();
                self.first.send_replace(self.current + 1);
                self.lanes.forget_waiting();
            }
            Order::Abandon => {
                self.first.send_replace(self.current + 1);
                self.lanes = Lanes::default();
                self.running.shutdown().await;
                self.pending.clear();
                self.traffic.forget();
                self.reports = 0;
            }
            Order::Rebuilt(generation, follows) => {
                self.current = generation;
                self.first.send_replace(generation);
                self.lanes.forget_waiting();
                // The new one is to learn what waits, also that nothing does: what was reported to the one before may reach it.
                self.reported = None;
                self.then = Some(follows);
            }
            Order::Taken(taken) => self.taken.push(taken),
        }
    }

    fn ended(&mut self, done: Result<Done, JoinError>) {
        let Done { object, class, generation, id, answer, document, place, pausing } = match done {
            Ok(done) => done,
            // Its lane would stay shut: that ends the process.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        drop(pausing);
        self.reports -= usize::from(class == Class::Reports);
        self.pending.remove(&object, Instant::now());
        self.lanes.done(&object);
        (self.answering.answers)(generation, id, answer, document, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_places_are_for_jobs_and_admissions() {
        let last = [0, 1, KEPT, KEPT + 1, MOST].map(last_with_room);
        let (admissions, all) = (Some(Class::Admissions), Some(Class::Reports));
        assert_eq!(last, [None, admissions, admissions, all, all]);
    }
}
