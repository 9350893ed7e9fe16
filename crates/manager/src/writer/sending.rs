//! Sends the requests of one write: paced, each only while this process certainly leads and the engine that decided on it still exists, with retries
//! for a short while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::Method;
use kube::Client;
use sluice_client::error_chain::Chain;
use sluice_engine::input::{Kind, WriteError};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tracing::debug;

use super::class::Class;
use super::pace::{ATTEMPTS, Bucket, LONGEST, pause};
use super::request::failure;
use super::traffic::{Many, Pausing, Traffic};
use crate::api_call::{Call, CallError};
use crate::lease::deadline::Deadline;
use crate::watch::known::Known;

/// One request's timeout.
const TIMEOUT: Duration = Duration::from_secs(15);
/// A request that takes longer waits for something, such as a dead webhook; or the server is slow, see [`Traffic::long`].
pub const LONG: Duration = Duration::from_secs(1);
/// A wait that is longer than a duration can express.
const FOREVER: Duration = Duration::from_hours(24);
/// How many answers that may be large are in memory at once.
const LARGE_ANSWERS: usize = 4;

/// The API server, as long as this process may write. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    client: Client,
    deadline: Deadline,
    pub(super) traffic: Traffic,
    pub(super) timeout: Duration,
    large_answers: Arc<Semaphore>,
    known: Arc<Known>,
}

impl Server {
    /// Writes with `client`, each before the deadline.
    pub fn new(client: Client, deadline: Deadline, traffic: Traffic) -> Self {
        let large_answers = Arc::new(Semaphore::new(LARGE_ANSWERS));
        Self { client, deadline, traffic, timeout: TIMEOUT, large_answers, known: Arc::default() }
    }

    /// The same server, of whose objects a part may be known.
    #[must_use]
    pub fn knowing(mut self, known: Arc<Known>) -> Self {
        self.known = known;
        self
    }
}

/// How fast requests go out, all together.
pub struct Pace {
    bucket: Mutex<Bucket>,
    started: Instant,
}

impl Pace {
    /// A `qps` of 0 or less means no limit.
    pub fn new(qps: f64, burst: u32) -> Self {
        Self { bucket: Mutex::new(Bucket::new(qps, burst)), started: Instant::now() }
    }

    fn locked(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next request has to wait.
    #[cfg(test)]
    pub fn is_used_up(&self) -> bool {
        self.locked().is_used_up()
    }

    /// Takes a token for the next request; when that may go.
    pub fn reserve(&self, now: Instant) -> Instant {
        let wait = self.take(now);
        now.checked_add(wait).or(now.checked_add(FOREVER)).unwrap_or(now)
    }

    /// Takes a token for the next request; how long that has to wait.
    pub fn take(&self, now: Instant) -> Duration {
        self.locked().take(now.saturating_duration_since(self.started))
    }
}

/// What a request shows about the webhooks that it was sent through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// None of them is dead: there was an answer without a long wait, after they had been called.
    Soon,
    /// It was answered a little later than others: that is no loss for them.
    Late,
    /// It was answered, but took long while others did not.
    Slow,
    /// It failed, and took long while others did not.
    Hung,
}

impl Outcome {
    /// Of an answer after this time, if it shows anything. `alone`: requests take long from `long` on, and others did not.
    pub fn of_answer(took: Duration, long: Duration, alone: bool) -> Option<Self> {
        if took < long {
            return Some(Self::Soon);
        }
        alone.then_some(if took < long * 2 { Self::Late } else { Self::Slow })
    }

    /// Whether the webhooks that were called need no patience.
    pub const fn is_well(self) -> bool {
        matches!(self, Self::Soon | Self::Late)
    }
}

/// A completed request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When it was sent.
    pub sent: Instant,
    /// What it shows.
    pub outcome: Outcome,
    /// Whether it only reads. Then no webhooks are called except those that convert the object.
    pub reads: bool,
}

/// How far a write is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Since when a request is under way.
    pub since: Option<Instant>,
    /// Whether that request only reads.
    pub reads: bool,
    /// Whether the write pauses before its next request, or waits for the engine.
    pub pauses: bool,
    /// The last completed request with an outcome.
    pub last: Option<Request>,
}

/// A write in progress, for writes that wait for its slot.
#[derive(Debug)]
pub struct UnderWay {
    /// How far it is.
    pub progress: watch::Receiver<Progress>,
    /// The request that was sent then is given up.
    pub given_up: watch::Sender<Option<Instant>>,
}

/// Sends the requests of one write.
pub struct Sending {
    server: Server,
    pace: Arc<Pace>,
    /// Of the object.
    kind: Kind,
    /// How important it is.
    class: Class,
    /// The engine that decided on the write.
    generation: u64,
    /// The first engine whose writes count.
    first: watch::Receiver<u64>,
    progress: watch::Sender<Progress>,
    given_up: watch::Sender<Option<Instant>>,
    /// Its requests probably hang.
    suspect: bool,
    /// Whether its first request, for which a token was taken, was not sent yet.
    is_first: AtomicBool,
}

impl Sending {
    /// For a write of an engine on an object of this kind, of this importance, with a token for its first request; the writes of engines before `first`
    /// do not count any more. The requests of a `suspect` are given up after [`Traffic::short`].
    pub fn new(
        server: Server,
        pace: Arc<Pace>,
        kind: Kind,
        class: Class,
        generation: u64,
        first: watch::Receiver<u64>,
        suspect: bool,
    ) -> Self {
        let progress = watch::Sender::new(Progress::default());
        let (given_up, is_first) = (watch::Sender::new(None), AtomicBool::new(true));
        Self { server, pace, kind, class, generation, first, progress, given_up, suspect, is_first }
    }

    /// Of a write beside no others.
    #[cfg(test)]
    pub fn alone(server: Server) -> Self {
        Self::of_class(server, Class::Jobs)
    }

    /// Of a write of this importance beside no others.
    #[cfg(test)]
    pub fn of_class(server: Server, class: Class) -> Self {
        let pace = Arc::new(Pace::new(0.0, 0));
        Self::new(server, pace, Kind::Workload, class, 0, watch::channel(0).1, false)
    }

    /// For writes that wait for its slot.
    pub fn under_way(&self) -> UnderWay {
        UnderWay { progress: self.progress.subscribe(), given_up: self.given_up.clone() }
    }

    /// Waits until there is room for an answer that may be large; the permit keeps it.
    ///
    /// # Errors
    ///
    /// If the engine was rebuilt, or what waits is forgotten.
    pub async fn large_answer(&self) -> Result<SemaphorePermit<'_>, WriteError> {
        let _in_turn = self.server.traffic.wait_in_turn();
        tokio::select! {
            biased;
            () = self.over() => Err(WriteError::Withdrawn),
            permit = self.server.large_answers.acquire() => {
                permit.map_err(|closed| WriteError::Transient(closed.to_string()))
            }
        }
    }

    /// The write pauses until what is given is dropped, or its next request goes.
    pub fn pause(&self) -> Pausing {
        self.progress.send_modify(|progress| progress.pauses = true);
        self.server.traffic.pause()
    }

    /// For a write of many requests.
    pub fn many(&self) -> Many {
        self.server.traffic.many()
    }

    /// Waits until such a write may send its next request.
    ///
    /// # Errors
    ///
    /// If the engine was rebuilt, or what waits is forgotten.
    pub async fn turn_of(&self, many: &mut Many) -> Result<(), WriteError> {
        tokio::select! {
            biased;
            () = self.over() => Err(WriteError::Withdrawn),
            () = many.turn() => Ok(()),
        }
    }

    /// Sends a request once; whether it hung, and others did not.
    async fn send(&self, call: &Call) -> (Result<Vec<u8>, CallError>, Duration, bool) {
        let (server, sent) = (&self.server, Instant::now());
        let reads = call.method == Method::GET;
        self.progress.send_modify(|progress| {
            (progress.since, progress.reads, progress.pauses) = (Some(sent), reads, false);
        });
        let short = server.traffic.short();
        let timeout = if self.suspect { short.min(server.timeout) } else { server.timeout };
        let mut given_up = self.given_up.subscribe();
        let outcome = tokio::select! {
            outcome = call.send(&server.client, timeout) => outcome,
            // The sender lives as long as `self`.
            _ = given_up.wait_for(|request| *request == Some(sent)) => {
                Err(CallError::Timeout { method: call.method.clone(), uri: call.uri.clone(), timeout: sent.elapsed() })
            }
        };
        let took = sent.elapsed();
        let is_given_up = self.suspect || *given_up.borrow() == Some(sent);
        let alone = is_given_up || server.traffic.is_overtaken(self.kind, sent);
        let long = server.traffic.long();
        let said = match &outcome {
            // A missing or changed object is refused before any webhook is called.
            Err(error) if took < long => {
                let shows = reads && error.code().is_some() || error.is_of_admission();
                shows.then_some(Outcome::Soon)
            }
            Err(error) if error.is_transient() => alone.then_some(Outcome::Hung),
            _ => Outcome::of_answer(took, long, alone),
        };
        // Before others see what it overtook.
        self.progress.send_modify(|progress| {
            progress.since = None;
            // A fast read shows less than the outcome of a write.
            if let Some(outcome) = said.filter(|said| !reads || !said.is_well() || progress.last.is_none()) {
                progress.last = Some(Request { sent, outcome, reads });
            }
        });
        match &outcome {
            // What takes longer than others shows no latency that they have.
            Ok(_) if !matches!(said, Some(Outcome::Late | Outcome::Slow)) => {
                server.traffic.answered(self.kind, reads, sent, took);
            }
            Err(error) if error.is_transient() => {}
            _ => server.traffic.heard(sent + took),
        }
        // A server that answers others soon has not too much to do.
        let excused = is_given_up || server.traffic.answers_others(sent);
        let hung = excused && matches!(outcome, Err(CallError::Timeout { .. }));
        (outcome, took, hung)
    }

    /// What is known of objects in answers.
    pub fn known(&self) -> &Known {
        &self.server.known
    }

    /// Pauses before an attempt, for as long as the server `asked`. While no slot is free, a start, a stop or an admission waits for the next one, no
    /// longer than the pauses before all further attempts. A lesser write, whose slot would keep these waiting, pauses again, as before the attempt
    /// after it. False if none was free until then: other writes need the slots, and the engine requests this one again later.
    async fn comes_back(
        &self,
        attempt: &mut u32,
        mut asked: Option<Duration>,
        settles: impl Fn() -> bool,
    ) -> bool {
        let mut pausing = self.pause();
        let pause = |attempt, asked| pause(attempt, asked, crate::random::bits());
        let is_lesser = self.class > Class::Admissions;
        loop {
            tokio::select! {
                () = self.over(), if !settles() => return true,
                () = tokio::time::sleep(pause(*attempt, asked.take())) => {}
            }
            let has_slot = if is_lesser { pausing.ends_beside_others() } else { pausing.ends() };
            if has_slot || settles() {
                return true;
            }
            if !is_lesser {
                break;
            }
            *attempt += 1;
            if *attempt > ATTEMPTS {
                return false;
            }
        }
        let longest: Duration = (*attempt + 1..=ATTEMPTS).map(|attempt| pause(attempt, None)).sum();
        tokio::select! {
            biased;
            () = self.over(), if !settles() => true,
            () = pausing.finds_slot() => true,
            () = tokio::time::sleep(longest) => settles(),
        }
    }

    /// Waits until the engine that decided on the write is no more, or what waits is forgotten.
    async fn over(&self) {
        let mut first = self.first.clone();
        let over = first.wait_for(|first| *first > self.generation).await.is_ok();
        if !over {
            // The pool is gone, and its tasks with it.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the next request may go.
    async fn turn(&self) {
        // The pool took the first token before it chose this write: what waits for a token there waits for what is more important, too.
        if !self.is_first.swap(false, Ordering::Relaxed) {
            let wait = self.pace.take(Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        self.server.deadline.ahead().await;
    }
}

/// Sends a request until the outcome is final, with a few retries; each time only while this process certainly leads. A request that waits for that
/// is dropped when the lease is lost, or the engine was rebuilt. One that takes long, or that a webhook keeps from being carried out, is sent once:
/// other writes need its slot, and the engine requests it again later.
///
/// An attempt without an answer may have been carried out nevertheless. If a later one is refused, for instance by an API server that has just
/// started and knows no rights yet, the first one may still have succeeded, and it may have caused a conflict: then the outcome of the write is not
/// certain.
pub async fn persist(sending: &Sending, call: &Call) -> Result<Vec<u8>, WriteError> {
    let server = &sending.server;
    let mut attempt = 1;
    let mut may_be_done = false;
    // With a write that may come late the lease is kept, at the end of the process.
    let settles = |may_be_done: bool| may_be_done && call.method != Method::GET && server.traffic.is_ending();
    loop {
        tokio::select! {
            biased;
            () = sending.over(), if !settles(may_be_done) => {
                if !settles(may_be_done) {
                    return Err(WriteError::Withdrawn);
                }
                sending.turn().await;
            }
            () = sending.turn() => {}
        }
        let (outcome, took, hung) = sending.send(call).await;
        let error = match outcome {
            Ok(body) => return Ok(body),
            Err(error) => error,
        };
        // A refusal by a webhook, or a webhook that cannot be called, does not mean that the API server is busy. The engine sends the write again
        // later: a pause here would take a place from other writes.
        let denied = error.is_of_admission();
        if error.is_overload() && !hung && !denied {
            server.traffic.refused(Instant::now());
        }
        attempt += 1;
        // Only the server knows how long to wait, if it says so. If that is long, the engine waits.
        let long = match error.retry_after() {
            Some(after) => after > LONGEST,
            None => took > LONG,
        };
        if error.is_transient() && !hung && !long && !denied && attempt <= ATTEMPTS {
            // Only a refusal for too many requests is certainly not carried out.
            may_be_done |= error.code() != Some(429);
            debug!(attempt, error = %Chain(&error), "a write is tried again");
            if sending.comes_back(&mut attempt, error.retry_after(), || settles(may_be_done)).await {
                continue;
            }
        }
        return Err(match failure(&error) {
            WriteError::Refused(why) | WriteError::Conflict(why) | WriteError::AlreadyExists(why)
                if may_be_done =>
            {
                WriteError::Transient(why)
            }
            other => other,
        });
    }
}
