//! Carries out the engine's writes: as many at once as the API server handles without slowing down, in order per object, the most important first,
//! paced, retried for a short while, and never when another replica may lead; each answer goes back to the engine. Writes that hang give their slots
//! to others.

mod busy;
pub mod class;
mod end_pods;
pub mod lanes;
pub mod limit;
pub mod pace;
mod pending_writes;
mod pods_below;
pub mod request;
mod sending;
mod suspects;
mod template;
pub mod traffic;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use sluice_api::job::{JobKind, JobView};
use sluice_engine::effect::{EffectId, Write, WriteRequest};
use sluice_engine::input::{Kind, Object, ObjectRef, WaitingWrites, WriteError};
use sluice_jobs::Step;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, warn};

use crate::api_call::Call;
use crate::intake::{Intake, Slot};
use crate::supervise::{Supervisor, text};
use crate::watch::document::{self, Document};
use crate::watch::versions::Versions;
use busy::Busy;
use class::Class;
use lanes::Lanes;
use pending_writes::{Next, PendingWrites};
use request::{Plan, answer, plan, step_call, view};
pub use sending::Server;
use sending::{Pace, Sending, persist};
use suspects::Patience;
use traffic::Pausing;

/// How many writes are sent or pause before a retry at most, beside those that hang and give their slots to others: a quarter more than the highest
/// limit, so that it can be found out whether all of them hang.
const MOST: usize = limit::HIGHEST + limit::HIGHEST / 4;
/// This number of writes that wait in turn for a large answer does not count, either: there are many when many jobs end at once.
const MOST_IN_TURN: usize = 1000;

/// The outcome of a write.
pub type Answer = Result<Option<Object>, WriteError>;

/// Takes answers to the engine: the generation, the write's name, the answer, the document of the object in it, and its place there.
pub type Answers = Arc<dyn Fn(u64, EffectId, Answer, Document, Slot) + Send + Sync>;

/// Takes objects to the engine that a write on panicked, to be set aside, and the panic's message.
pub type Poison = Arc<dyn Fn(ObjectRef, String) + Send + Sync>;

/// The engine learns the number of waiting writes in steps of this size.
const BACKLOG_STEP: usize = 16;

/// Reports to the engine how many writes wait to be sent.
pub type Backlog = Arc<dyn Fn(WaitingWrites) + Send + Sync>;

/// Learns of a write that was carried out, or was not: how long it took, and what came of it.
pub type Meter = Arc<dyn Fn(&WriteRequest, Duration, &Answer) + Send + Sync>;

/// Where what came of writes goes.
#[derive(Clone)]
pub struct Answering {
    /// How many writes wait.
    pub backlog: Backlog,
    /// The metrics.
    pub meter: Meter,
    /// Answers.
    pub answers: Answers,
    /// Objects to be set aside.
    pub poison: Poison,
    /// The inputs that wait for the engine.
    pub intake: Intake,
}

/// A write and the generation of the engine that wants it.
type Job = (u64, WriteRequest);

/// A function that is called once no request of the previous engine is in progress.
type Then = Box<dyn FnOnce() + Send>;

/// The pool's inputs.
enum Order {
    Write(Job),
    Withdraw(u64, EffectId),
    Forget,
    Abandon,
    Rebuilt(u64, Then),
}

/// Takes writes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Bounded by the engine, which has one open write per object, may withdraw that once, and sends the next when it was answered
    /// (`crates/engine/tests/life/memory.rs` counts them while none is answered). A separate bound would have to stop the engine, or lose a write.
    queue: mpsc::UnboundedSender<Order>,
    /// How many writes were taken; what became of how many is in `finished`.
    idle: watch::Receiver<bool>,
}

impl Writer {
    /// Starts the pool. A `qps` of 0 or less means no limit.
    pub fn start(
        supervisor: &Supervisor,
        server: Server,
        versions: Versions,
        qps: f64,
        burst: u32,
        answering: Answering,
    ) -> Self {
        let (queue, orders) = mpsc::unbounded_channel();
        let (idle, is_idle) = watch::channel(true);
        let sender = Sender { server, versions, pace: Arc::new(Pace::new(qps, burst)) };
        supervisor.spawn("writer", pool(orders, idle, sender, answering));
        Self { queue, idle: is_idle }
    }

    /// Queues a write.
    pub fn write(&self, generation: u64, request: WriteRequest) {
        // The pool lives as long as any writer.
        let _ = self.queue.send(Order::Write((generation, request)));
    }

    /// Drops a write if it is not being sent yet; it is answered then.
    pub fn withdraw(&self, generation: u64, id: EffectId) {
        // As above.
        let _ = self.queue.send(Order::Withdraw(generation, id));
    }

    /// Drops everything that is queued. What is being sent is answered.
    pub fn forget_waiting(&self) {
        // As above.
        let _ = self.queue.send(Order::Forget);
    }

    /// Drops everything that is queued or being sent, and what the current engine still decides: another replica may write from now on. No answers
    /// are sent.
    pub fn abandon(&self) {
        let _ = self.queue.send(Order::Abandon);
    }

    /// The engine was rebuilt: writes of the previous one are not sent any more. Requests in progress are waited for, because the new engine does
    /// not know them; then `then` is called.
    pub fn rebuilt(&self, generation: u64, then: impl FnOnce() + Send + 'static) {
        let _ = self.queue.send(Order::Rebuilt(generation, Box::new(then)));
    }

    /// Waits until nothing is queued or being sent, also because the pool is dead, but not longer than `limit`; whether that came about.
    pub async fn is_quiet(mut self, limit: Duration) -> bool {
        tokio::task::yield_now().await;
        tokio::time::timeout(limit, self.idle.wait_for(|idle| *idle)).await.is_ok()
    }

    /// Waits until nothing is queued or being sent, but not longer than `limit`; whether that came about.
    pub async fn drain(mut self, limit: Duration) -> bool {
        // Requests that were queued a moment ago must have been received.
        tokio::task::yield_now().await;
        tokio::time::timeout(limit, self.idle.wait_for(|idle| *idle))
            .await
            .is_ok_and(|outcome| outcome.is_ok())
    }
}

/// So often it is looked whether the API server is still busy.
const BUSY_LOOK: Duration = Duration::from_millis(500);

/// The parts that sending needs.
struct Sender {
    server: Server,
    versions: Versions,
    pace: Arc<Pace>,
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

async fn pool(
    mut orders: mpsc::UnboundedReceiver<Order>,
    idle: watch::Sender<bool>,
    sender: Sender,
    answering: Answering,
) {
    let mut lanes: Lanes<ObjectRef, Job> = Lanes::default();
    let mut running: JoinSet<Done> = JoinSet::new();
    let mut pending = PendingWrites::default();
    let mut busy = Busy::default();
    let mut open = true;
    // What was reported to the engine last, if anything was.
    let (mut reported, mut reports) = (Some(WaitingWrites::default()), 0_usize);
    // The current engine, the first one whose writes count, and what to do once the earlier ones have no request in progress.
    let (mut current, first) = (0, watch::Sender::new(0));
    let mut then: Option<Then> = None;
    // When the token may be used that was taken for the next write.
    let mut reserved: Option<Instant> = None;
    let started = Instant::now();
    let traffic = sender.server.traffic.clone();
    let mut pausing = traffic.pausing();
    loop {
        if running.is_empty()
            && let Some(then) = then.take()
        {
            then();
        }
        let paused = *pausing.borrow();
        let now = Instant::now();
        let mut token_at = None;
        let mut free = pending.free_places(now, paused, &traffic);
        let beside = free.hanging + traffic.in_turn().min(MOST_IN_TURN);
        let most = MOST.saturating_sub(running.len().saturating_sub(beside));
        let places = if lanes.has_waiting() { free.places.min(most) } else { 0 };
        for _ in 0..places {
            // A token is taken before it is known for what: what waits for it keeps its place among all that waits, and may still be withdrawn.
            let at = *reserved.get_or_insert_with(|| sender.pace.reserve(now));
            token_at = Some(at).filter(|at| *at > now);
            if token_at.is_some() {
                break;
            }
            let alone = running.len() == reports && !lanes.has_waiting_up_to(Class::Ends);
            let last = last_class(reports.saturating_sub(free.idle_reports), alone, traffic.limit());
            let next = pending.next(&mut free, &mut lanes, (now, started.elapsed()), last);
            let Some(Next { object, class, item: (generation, request), patience }) = next else { break };
            reserved = None;
            reports += usize::from(class == Class::Reports);
            let versions = sender.versions.clone();
            let (server, rate) = (sender.server.clone(), Arc::clone(&sender.pace));
            let suspect = patience == Patience::Little;
            let sending = Sending::new(server, rate, object.kind, generation, first.subscribe(), suspect);
            pending.insert(object.clone(), class, patience, sending.under_way());
            let (poison, intake) = (Arc::clone(&answering.poison), answering.intake.clone());
            let meter = Arc::clone(&answering.meter);
            #[expect(
                clippy::disallowed_methods,
                reason = "it is joined below, and a panic of it continues there"
            )]
            running.spawn(async move {
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
        let waiting = lanes.waiting();
        traffic.set(free.sent, free.hanging, &waiting);
        let others = running.len().saturating_sub(paused + free.hanging) > reports;
        let is_busy = busy.note(now, others || lanes.has_waiting_up_to(Class::Ends));
        let known = backlog_of(&waiting, is_busy);
        if reported.replace(known) != Some(known) {
            (answering.backlog)(known);
        }
        let resting = lanes.is_idle() && running.is_empty();
        if resting && !open {
            return;
        }
        idle.send_if_modified(|idle| std::mem::replace(idle, resting && orders.is_empty()) != *idle);
        tokio::select! {
            order = orders.recv(), if open => match order {
                Some(Order::Write((generation, _))) if generation < *first.borrow() => {}
                Some(Order::Write((generation, request))) => {
                    lanes.push(request.object.clone(), Class::of(request.purpose), (generation, request));
                }
                Some(Order::Withdraw(generation, id)) => {
                    let meant = |job: &Job| job.0 == generation && job.1.id == id;
                    if lanes.withdraw(Class::Reports, meant).is_some() {
                        let withdrawn = Err(WriteError::Withdrawn);
                        (answering.answers)(generation, id, withdrawn, None, Slot::default());
                    }
                }
                Some(Order::Forget) => {
                    // Writes in progress send no further request, and what the engine still emits is not sent. Only one without an answer is sent again: it
                    // may be carried out late.
                    traffic.end();
                    first.send_replace(current + 1);
                    lanes.forget_waiting();
                }
                Some(Order::Abandon) => {
                    first.send_replace(current + 1);
                    lanes = Lanes::default();
                    running.shutdown().await;
                    pending.clear();
                    traffic.forget();
                    reports = 0;
                }
                Some(Order::Rebuilt(generation, follows)) => {
                    current = generation;
                    first.send_replace(generation);
                    lanes.forget_waiting();
                    // The new one is to learn what waits, also that nothing does: what was reported to the one before may reach it.
                    reported = None;
                    then = Some(follows);
                }
                None => open = false,
            },
            // The sender lives as long as `traffic`.
            _ = pausing.changed() => {}
            // That it is not busy any more is known by time alone.
            () = tokio::time::sleep(BUSY_LOOK), if reported.is_some_and(|reported| reported.busy) => {}
            () = until(free.again.into_iter().chain(token_at).min()), if !lanes.is_idle() && waiting.iter().any(|keys| *keys > 0) => {}
            Some(done) = running.join_next() => {
                let Done { object, class, generation, id, answer, document, place, pausing } = match done {
                    Ok(done) => done,
                    // Its lane would stay shut: that ends the process.
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                };
                drop(pausing);
                reports -= usize::from(class == Class::Reports);
                pending.remove(&object, Instant::now());
                lanes.done(&object);
                (answering.answers)(generation, id, answer, document, place);
            }
        }
    }
}

/// Sends one write, with its retries, and reads the answer; returns it with the length of its text.
async fn carry_out(
    sending: &Sending,
    versions: &Versions,
    request: &WriteRequest,
) -> (Answer, Document, usize) {
    let object = &request.object;
    let began = Instant::now();
    let mut answered = Answered::default();
    let outcome = match plan(object, versions.of(object.kind), &request.write) {
        Err(error) => Err(error),
        Ok(Plan::One(call)) => match persist(sending, &call).await {
            Ok(body) => {
                answered = Answered::with(&body);
                answer(object.kind, &body, sending.known())
            }
            Err(error) if is_done(&request.write, &error) => Ok(None),
            Err(error) => Err(error),
        },
        Ok(Plan::Template(source)) => template::create(sending, object, &source).await.map(|()| None),
        Ok(Plan::EndPods(of, then)) => {
            let version = versions.of(object.kind);
            end_pods::end(sending, object, version, &of, &then).await.map(|()| None)
        }
        Ok(Plan::Pod(calls)) => on_pod(sending, object.kind, &calls, &mut answered).await,
        Ok(Plan::Steps(kind, steps)) => in_steps(sending, object, kind, steps, &mut answered).await,
    };
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match &outcome {
        Ok(_) => debug!(object = %object, purpose = ?request.purpose, ms, "written"),
        Err(WriteError::Conflict(why) | WriteError::NotFound(why)) => {
            debug!(object = %object, purpose = ?request.purpose, ms, %why, "not written");
        }
        Err(WriteError::Withdrawn) => {
            debug!(object = %object, "the engine was rebuilt, or this process ends");
        }
        Err(why @ (WriteError::PodsLeft { .. } | WriteError::PodsRemain(_))) => {
            debug!(object = %object, %why, "looked for pods");
        }
        Err(error) => warn!(object = %object, purpose = ?request.purpose, ms, %error, "not written"),
    }
    (outcome, answered.document, answered.bytes)
}

/// The data of an answer beside the decoded object.
#[derive(Default)]
struct Answered {
    document: Document,
    bytes: usize,
}

impl Answered {
    fn with(body: &[u8]) -> Self {
        Self { document: document::of(body), bytes: body.len() }
    }
}

/// Sends requests on a pod, one after the other. If it is gone after the first, no more of them are needed.
async fn on_pod(sending: &Sending, kind: Kind, calls: &[Call], answered: &mut Answered) -> Answer {
    let mut last = Ok(None);
    for (at, call) in calls.iter().enumerate() {
        match persist(sending, call).await {
            Ok(body) => {
                *answered = Answered::with(&body);
                last = answer(kind, &body, sending.known());
            }
            Err(WriteError::NotFound(_)) if at > 0 => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    last
}

/// Sends the steps of starting or stopping a job, each pinned to the version in the answer to the one before.
async fn in_steps(
    sending: &Sending,
    object: &ObjectRef,
    kind: JobKind,
    steps: Vec<Step>,
    answered: &mut Answered,
) -> Answer {
    let mut last: Option<JobView> = None;
    for step in steps {
        let step = match &last {
            Some(view) => step.pinned(&view.resource_version),
            None => step,
        };
        match persist(sending, &step_call(object, &step)).await {
            Ok(body) => {
                *answered = Answered::with(&body);
                last = Some(view(kind, &body)?);
            }
            Err(error) => {
                return Err(match error {
                    // Kubernetes ≥ 1.36 refuses changes of a Job's template while `status.active` is not 0.
                    // That passes: the engine tries again as soon as it sees the Job change.
                    WriteError::Refused(why) if last.is_some() => WriteError::Conflict(why),
                    other => other,
                });
            }
        }
    }
    Ok(last.map(|view| Object::Job(Box::new(view))))
}

/// A deleted object needs no deletion.
fn is_done(write: &Write, error: &WriteError) -> bool {
    matches!((write, error), (Write::Delete { .. }, WriteError::NotFound(_)))
}

#[cfg(test)]
mod tests;
