//! Carries out the engine's writes: as many at once as the API server takes without getting slower, in order per object, the most important
//! first, paced, retried for a short while, and never when another replica may lead; the answer of each goes back to the engine.

mod end_pods;
pub mod lanes;
pub mod limit;
pub mod pace;
pub mod request;
mod template;
pub mod traffic;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use kube::Client;
use sluice_api::job::{JobKind, JobView};
use sluice_client::error_chain::Chain;
use sluice_engine::effect::{EffectId, Write, WriteRequest};
use sluice_engine::input::{Kind, Object, ObjectRef, WriteError};
use sluice_jobs::Step;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, warn};

use crate::api_call::Call;
use crate::intake::{Intake, Slot};
use crate::lease::deadline::Deadline;
use crate::supervise::{Supervisor, text};
use crate::watch::document::{self, Document};
use crate::watch::versions::Versions;
use lanes::{Class, Lanes};
use pace::{ATTEMPTS, Bucket, pause};
use request::{Plan, answer, failure, plan, step_call, view};
use traffic::Traffic;

/// How many writes are sent or pause before they are sent again, at most.
const MOST: usize = 64;
/// One request's timeout.
const TIMEOUT: Duration = Duration::from_secs(15);

/// What came of a write.
pub type Answer = Result<Option<Object>, WriteError>;

/// Takes answers to the engine: the generation, the write's name, the answer, the document of the object in it, and its place there.
pub type Answers = Arc<dyn Fn(u64, EffectId, Answer, Document, Slot) + Send + Sync>;

/// Takes objects to the engine that a write on panicked, to be set aside, and the panic's message.
pub type Poison = Arc<dyn Fn(ObjectRef, String) + Send + Sync>;

/// The engine learns how many writes wait in steps of so many.
const BACKLOG_STEP: usize = 16;

/// Tells the engine how many writes wait to be sent.
pub type Backlog = Arc<dyn Fn(u32) + Send + Sync>;

/// Learns of a write that was carried out, or was not: how long it took, and what came of it.
pub type Meter = Arc<dyn Fn(&WriteRequest, Duration, &Answer) + Send + Sync>;

/// Where what came of writes goes.
#[derive(Clone)]
pub struct Answering {
    /// How many writes wait.
    pub backlog: Backlog,
    /// What is measured.
    pub meter: Meter,
    /// Answers.
    pub answers: Answers,
    /// Objects to be set aside.
    pub poison: Poison,
    /// What waits for the engine.
    pub intake: Intake,
}

/// A write and the generation of the engine that wants it.
type Job = (u64, WriteRequest);

/// The pool's inputs.
#[derive(Debug)]
enum Order {
    Write(Job),
    Withdraw(u64, EffectId),
    Abandon,
}

/// Takes writes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Bounded by the engine, which has one write per object open, may withdraw that once, and sends the next when it was answered
    /// (`crates/engine/tests/life/memory.rs` counts them while none is answered). A bound of its own would have to stop the engine, or lose a write.
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
        let sender = Sender { server, versions, bucket: Bucket::new(qps, burst), started: Instant::now() };
        supervisor.spawn("writer", pool(orders, idle, sender, answering));
        Self { queue, idle: is_idle }
    }

    /// Queues a write.
    pub fn write(&self, generation: u64, request: WriteRequest) {
        // The pool lives as long as any writer does.
        let _ = self.queue.send(Order::Write((generation, request)));
    }

    /// Drops a write if it is not being sent yet; it is answered then.
    pub fn withdraw(&self, generation: u64, id: EffectId) {
        // As above.
        let _ = self.queue.send(Order::Withdraw(generation, id));
    }

    /// Drops everything that is queued or being sent: another replica may write from now on. No answers come.
    pub fn abandon(&self) {
        let _ = self.queue.send(Order::Abandon);
    }

    /// Waits until nothing is queued or being sent, also because the pool is dead, but not longer than `limit`; whether that came about.
    pub async fn is_quiet(mut self, limit: Duration) -> bool {
        tokio::task::yield_now().await;
        tokio::time::timeout(limit, self.idle.wait_for(|idle| *idle)).await.is_ok()
    }

    /// Waits until nothing is queued or being sent, but not longer than `limit`; whether that came about.
    pub async fn drain(mut self, limit: Duration) -> bool {
        // What was queued a moment ago must have been seen.
        tokio::task::yield_now().await;
        tokio::time::timeout(limit, self.idle.wait_for(|idle| *idle))
            .await
            .is_ok_and(|outcome| outcome.is_ok())
    }
}

/// The API server, as long as this process may write. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    client: Client,
    deadline: Deadline,
    traffic: Traffic,
}

impl Server {
    /// Writes with `client`, each before the deadline.
    pub fn new(client: Client, deadline: Deadline, traffic: Traffic) -> Self {
        Self { client, deadline, traffic }
    }
}

/// What is needed to send.
struct Sender {
    server: Server,
    versions: Versions,
    bucket: Bucket,
    started: Instant,
}

impl Sender {
    /// The moment at which the next request may go.
    fn slot(&mut self) -> Duration {
        self.bucket.take(self.started.elapsed())
    }
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
}

/// The last class of which one more may be sent: reports have an eighth of the places. On a busy API server each of them makes the writes that
/// matter later, and on an idle one an eighth is plenty.
fn last_class(reports: usize, limit: usize) -> Class {
    if reports < (limit / 8).max(1) { Class::Reports } else { Class::Ends }
}

async fn pool(
    mut orders: mpsc::UnboundedReceiver<Order>,
    idle: watch::Sender<bool>,
    mut sender: Sender,
    answering: Answering,
) {
    let mut lanes: Lanes<ObjectRef, Job> = Lanes::default();
    let mut running: JoinSet<Done> = JoinSet::new();
    let mut open = true;
    let (mut backlog, mut reports) = (0, 0_usize);
    let traffic = sender.server.traffic.clone();
    let mut pausing = traffic.pausing();
    loop {
        let paused = *pausing.borrow();
        let sent = |running: &JoinSet<Done>| running.len().saturating_sub(paused);
        while running.len() < MOST && sent(&running) < traffic.limit() {
            let now = sender.started.elapsed();
            let last = last_class(reports.saturating_sub(paused), traffic.limit());
            let Some((object, class, (generation, request))) = lanes.pop(now, last) else { break };
            reports += usize::from(class == Class::Reports);
            let (server, versions, wait) = (sender.server.clone(), sender.versions.clone(), sender.slot());
            let (poison, intake) = (Arc::clone(&answering.poison), answering.intake.clone());
            let meter = Arc::clone(&answering.meter);
            #[expect(
                clippy::disallowed_methods,
                reason = "it is joined below, and a panic of it goes on there"
            )]
            running.spawn(async move {
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                let began = Instant::now();
                let carrying_out = AssertUnwindSafe(carry_out(&server, &versions, &request)).catch_unwind();
                let (answer, document, bytes) = carrying_out.await.unwrap_or_else(|panic| {
                    let why = text(&*panic);
                    error!(object = %request.object, purpose = ?request.purpose, why, "a write panicked");
                    poison(request.object.clone(), why.clone());
                    (Err(WriteError::Refused(format!("the write panicked: {why}"))), None, 0)
                });
                meter(&request, began.elapsed(), &answer);
                // While too much waits for the engine, no more than these is sent.
                let place = intake.place(bytes).await;
                Done { object, class, generation, id: request.id, answer, document, place }
            });
        }
        let waiting = lanes.waiting();
        traffic.set(sent(&running), &waiting);
        let steps = waiting.iter().sum::<usize>() / BACKLOG_STEP;
        if std::mem::replace(&mut backlog, steps) != steps {
            (answering.backlog)(u32::try_from(steps * BACKLOG_STEP).unwrap_or(u32::MAX));
        }
        let resting = lanes.is_idle() && running.is_empty();
        if resting && !open {
            return;
        }
        idle.send_if_modified(|idle| std::mem::replace(idle, resting && orders.is_empty()) != *idle);
        tokio::select! {
            order = orders.recv(), if open => match order {
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
                Some(Order::Abandon) => {
                    lanes = Lanes::default();
                    running.shutdown().await;
                    reports = 0;
                }
                None => open = false,
            },
            // The sender lives as long as `traffic` does.
            _ = pausing.changed() => {}
            Some(done) = running.join_next() => {
                let Done { object, class, generation, id, answer, document, place } = match done {
                    Ok(done) => done,
                    // Its lane would stay shut: that ends the process.
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                };
                reports -= usize::from(class == Class::Reports);
                lanes.done(&object);
                (answering.answers)(generation, id, answer, document, place);
            }
        }
    }
}

/// Sends one write, with its retries, and reads the answer; with the length of its text.
async fn carry_out(
    server: &Server,
    versions: &Versions,
    request: &WriteRequest,
) -> (Answer, Document, usize) {
    let object = &request.object;
    let began = Instant::now();
    let mut answered = Answered::default();
    let outcome = match plan(object, versions.of(object.kind), &request.write) {
        Err(error) => Err(error),
        Ok(Plan::One(call)) => match persist(server, &call).await {
            Ok(body) => {
                answered = Answered::with(&body);
                answer(object.kind, &body)
            }
            Err(error) if is_done(&request.write, &error) => Ok(None),
            Err(error) => Err(error),
        },
        Ok(Plan::Template(source)) => template::create(server, object, &source).await.map(|()| None),
        Ok(Plan::EndPods(of, then)) => {
            let version = versions.of(object.kind);
            end_pods::end(server, object, version, &of, &then).await.map(|()| None)
        }
        Ok(Plan::Pod(calls)) => on_pod(server, object.kind, &calls, &mut answered).await,
        Ok(Plan::Steps(kind, steps)) => in_steps(server, object, kind, steps, &mut answered).await,
    };
    let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match &outcome {
        Ok(_) => debug!(object = %object, purpose = ?request.purpose, ms, "written"),
        Err(WriteError::Conflict(why) | WriteError::NotFound(why)) => {
            debug!(object = %object, purpose = ?request.purpose, ms, %why, "not written");
        }
        Err(why @ WriteError::PodsLeft { .. }) => debug!(object = %object, %why, "looked for pods"),
        Err(error) => warn!(object = %object, purpose = ?request.purpose, ms, %error, "not written"),
    }
    (outcome, answered.document, answered.bytes)
}

/// What is kept of an answer beside what was decoded from it.
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

/// Sends requests on a pod, one after the other. One that is gone after the first needs no more of them.
async fn on_pod(server: &Server, kind: Kind, calls: &[Call], answered: &mut Answered) -> Answer {
    let mut last = Ok(None);
    for (at, call) in calls.iter().enumerate() {
        match persist(server, call).await {
            Ok(body) => {
                *answered = Answered::with(&body);
                last = answer(kind, &body);
            }
            Err(WriteError::NotFound(_)) if at > 0 => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    last
}

/// Sends the steps of starting or stopping a job, each pinned to the answer of the one before.
async fn in_steps(
    server: &Server,
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
        match persist(server, &step_call(object, &step)).await {
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

/// What is gone needs no deletion.
fn is_done(write: &Write, error: &WriteError) -> bool {
    matches!((write, error), (Write::Delete { .. }, WriteError::NotFound(_)))
}

/// Sends a request until it is answered for good, or a few times; each time only while this process leads for certain. One that waits for
/// that is dropped when the lease is lost.
///
/// An attempt without an answer may have been carried out all the same. A refusal of a later one, for instance by an API server that has just
/// started and knows no rights yet, says nothing about that, and a conflict may be one with that very attempt: then it is not certain what became
/// of the write.
async fn persist(server: &Server, call: &Call) -> Result<Vec<u8>, WriteError> {
    let mut attempt = 1;
    let mut may_be_done = false;
    loop {
        server.deadline.ahead().await;
        let began = Instant::now();
        let error = match call.send(&server.client, TIMEOUT).await {
            Ok(body) => {
                server.traffic.answered(began.elapsed());
                return Ok(body);
            }
            Err(error) => error,
        };
        if error.is_overload() {
            server.traffic.refused();
        }
        attempt += 1;
        if !error.is_transient() || attempt > ATTEMPTS {
            return Err(match failure(&error) {
                WriteError::Refused(why) | WriteError::Conflict(why) if may_be_done => {
                    WriteError::Transient(why)
                }
                other => other,
            });
        }
        // Too many requests are the only ones that are certainly not carried out.
        may_be_done |= error.code() != Some(429);
        debug!(attempt, error = %Chain(&error), "a write is tried again");
        let _pausing = server.traffic.pause();
        tokio::time::sleep(pause(attempt, error.retry_after(), crate::random::bits())).await;
    }
}

#[cfg(test)]
mod tests;
