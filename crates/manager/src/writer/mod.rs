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
mod pool;
pub mod request;
mod sending;
mod suspects;
mod template;
pub mod traffic;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_api::job::{JobKind, JobView};
use sluice_engine::effect::{EffectId, Write, WriteRequest};
use sluice_engine::input::{Kind, Object, ObjectRef, WaitingWrites, WriteError};
use sluice_jobs::Step;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use crate::api_call::Call;
use crate::intake::{Intake, Slot};
use crate::supervise::Supervisor;
use crate::watch::document::{self, Document};
use crate::watch::versions::Versions;
use pool::Sender;
use request::{Plan, answer, plan, step_call, view};
pub use sending::Server;
use sending::{Pace, Sending, persist};

/// The outcome of a write.
pub type Answer = Result<Option<Object>, WriteError>;

/// Takes answers to the engine: the generation, the write's name, the answer, the document of the object in it, and its place there.
pub type Answers = Arc<dyn Fn(u64, EffectId, Answer, Document, Slot) + Send + Sync>;

/// Takes objects to the engine that a write on panicked, to be set aside, and the panic's message.
pub type Poison = Arc<dyn Fn(ObjectRef, String) + Send + Sync>;

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
    /// Answered once `idle` tells of all orders before this one.
    Taken(oneshot::Sender<()>),
}

/// Takes writes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Bounded by the engine, which has one open write per object, may withdraw that once, and sends the next when it was answered
    /// (`crates/engine/tests/life/memory.rs` counts them while none is answered). A separate bound would have to stop the engine, or lose a write.
    queue: mpsc::UnboundedSender<Order>,
    /// Whether nothing was queued or being sent when the pool looked last.
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
        supervisor.spawn("writer", pool::run(orders, idle, sender, answering));
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
    pub async fn is_quiet(self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.rests()).await.is_ok()
    }

    /// Waits until nothing is queued or being sent, but not longer than `limit`; whether that came about.
    pub async fn drain(self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.rests()).await.unwrap_or(false)
    }

    /// Waits until nothing is queued or being sent; false if the pool is dead.
    async fn rests(mut self) -> bool {
        // What was queued a moment ago may not have been received yet: then the pool still seems to be idle.
        let (taken, is_taken) = oneshot::channel();
        self.queue.send(Order::Taken(taken)).is_ok()
            && is_taken.await.is_ok()
            && self.idle.wait_for(|idle| *idle).await.is_ok()
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
