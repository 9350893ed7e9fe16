//! Explanations, also the page `/debug/explain/NAMESPACE/NAME`: the engine's own last decision, and what would help, tried in a virtual cluster.
//!
//! The engine is asked for one account, page by page. The world in which remedies are tried is read from the API server, as far as it shares quota
//! with the job, and the virtual cluster runs on a thread of its own: some explanations at a time, each for a limited time and in limited memory. An
//! explanation of a large cohort reserves its memory and waits only for that of another large cohort; small ones do not wait for it. What was not
//! read or not tried is left out, and the answer says so.

mod reads;
mod refusal;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::names::{dns1123_label_error, dns1123_subdomain_error};
use sluice_client::bounded::weight;
use sluice_client::error_chain::Chain;
use sluice_engine::{Account, Accounting, Engine, Name, Whole};
use sluice_sim::explain::{self, Explained, MOST_LISTED, Patience, Question, Subject};
use sluice_sim::live::{self, Extent, Live};
use sluice_sim::resource::{explained, not_explained};
use sluice_sim::{Cancel, Kind, Manifest, Manifests, Options, PodMemory, bytes_to_make, queue_of};
use tracing::warn;

use self::reads::{MOST_BYTES, Reads, SMALL_BYTES};
use self::refusal::{busy, not_found, refused, unavailable};
use self::slots::{Slot, Slots, Turn, Users};
use crate::engine_thread::{Handle, PAGE};
use crate::memory::{Memory, Reservation};
use crate::supervise::blocking;
use crate::traces::{Sampling, TraceId};

/// Waiting for the explanation of another, and for the engine.
const TURN: Duration = Duration::from_secs(10);
/// Trying remedies and futures; and while another waits for its turn. Reading is cut to the same while another waits.
const TRYING: Duration = Duration::from_secs(20);
const SHARED: Duration = Duration::from_secs(5);
/// How many explanations of small cohorts are made at a time, how many of them for one namespace, and how many of large cohorts.
const SMALL_AT_ONCE: usize = 3;
const SMALL_OF_ONE: usize = 2;
const LARGE_AT_ONCE: usize = 1;
/// The memory that an explanation takes in all, as a multiple of the bytes of the documents that are read.
const PER_BYTE_READ: usize = 3;
/// Names of nodes that the engine gives at a time.
const NODES_OF_PAGE: usize = 2_000;
/// The answer of an engine that was just rebuilt.
const NOT_LISTED: &str = "not everything has been listed yet";
/// How much longer a trial in progress may take when the time is over.
const GRACE: Duration = Duration::from_secs(10);

/// The parameters of the page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// `text` or `json`.
    pub output: Format,
    /// Whether names of other namespaces are shown.
    pub all: bool,
    /// Whether nodes are named: only users with the right to list nodes see them.
    #[serde(skip)]
    pub nodes: bool,
    /// The user that asks: of each user, one explanation is made at a time. Empty if users are not distinguished.
    #[serde(skip)]
    pub user: String,
    /// The kind of the name: workload, or a kind of jobs, also a declared one. Without it, a Workload of that name comes first.
    pub kind: Option<String>,
    /// A merge patch of the job: what it would do is said instead of why the job waits.
    #[serde(skip)]
    pub change: Option<Value>,
    /// Also by a replica that does not lead: it tries what the engine would decide, instead of knowing what was decided last.
    #[serde(skip)]
    pub any_replica: bool,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// Both, as `text` and `explanation` of one document.
    #[serde(skip)]
    Both,
}

/// Why there is no explanation: the HTTP status, and what to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub StatusCode, pub String);

/// An explanation, or why there is none.
pub type Answer = Result<String, Refused>;

/// Makes explanations.
pub trait Explains: Send + Sync + 'static {
    /// Explains a Workload or job: namespace and name. A user who may see all namespaces gets the names of all ClusterQueues.
    fn explain(&self, namespace: String, name: String, asked: Asked) -> BoxFuture<'_, Answer> {
        let queues = asked.all;
        self.explain_to(namespace, name, asked, queues)
    }

    /// The same. `queues`: whether ClusterQueues may be named that no LocalQueue of the namespace uses, as for users who may list them.
    fn explain_to(
        &self,
        namespace: String,
        name: String,
        asked: Asked,
        queues: bool,
    ) -> BoxFuture<'_, Answer>;
}

impl Explains for Explainer {
    fn explain_to(
        &self,
        namespace: String,
        name: String,
        asked: Asked,
        queues: bool,
    ) -> BoxFuture<'_, Answer> {
        self.answer(namespace, name, asked, queues)
    }
}

/// Makes explanations.
pub struct Explainer {
    engine: Handle<Engine>,
    client: Client,
    configuration: Configuration,
    memory: Memory,
    users: Arc<Users>,
    small: Arc<Slots>,
    large: Arc<Slots>,
    /// How long a request waits for a slot.
    turn: Duration,
}

/// Whether an explanation has had its time: less, while others wait.
fn is_over(tried: Duration, others_wait: bool) -> bool {
    tried > if others_wait { SHARED } else { TRYING }
}

/// What an explanation holds until it is made.
struct Taken {
    slot: Slot,
    /// The memory of an explanation of a large cohort.
    _memory: Option<Reservation>,
    turn: Turn,
}

/// The engine's answer so far.
struct EngineAnswer {
    decides: bool,
    /// The engine's initial state is complete: before that, a missing Workload may exist.
    knows: bool,
    accounting: Accounting,
}

/// The objects that were read for an explanation.
struct Read {
    subject: Subject,
    live: Live,
    /// How many more bytes documents may take: those of pods that are made from other objects.
    left: usize,
    held: Taken,
}

/// The question, and the engine's answer.
struct Asking<'a> {
    namespace: &'a str,
    name: &'a str,
    kind: Option<Kind>,
    account: Option<&'a Account>,
    /// The LocalQueue that a change would have the job name.
    queue: Option<&'a str>,
}

impl Explainer {
    /// For an engine, and the cluster that it queues in.
    pub fn new(engine: Handle<Engine>, client: Client, configuration: Configuration) -> Self {
        let (small, large) = (Slots::new(SMALL_AT_ONCE, SMALL_OF_ONE), Slots::new(LARGE_AT_ONCE, 1));
        let memory = Memory::beside(SMALL_AT_ONCE * SMALL_BYTES * PER_BYTE_READ);
        let (users, turn) = (Arc::default(), TURN);
        Self { engine, client, configuration, memory, users, small, large, turn }
    }

    /// The engine that it asks.
    pub fn engine(&self) -> Handle<Engine> {
        self.engine.clone()
    }

    /// Its share of the process's memory, and what is left for others.
    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Explains a Workload or job.
    fn answer(&self, namespace: String, name: String, asked: Asked, queues: bool) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            // The names are put into paths and selectors.
            if dns1123_label_error(&namespace).or_else(|| dns1123_subdomain_error(&name)).is_some() {
                return Err(not_found(&namespace, &name));
            }
            let kind = match asked.kind.as_deref() {
                None => None,
                Some(word) => Some(
                    explained(word).ok_or_else(|| Refused(StatusCode::BAD_REQUEST, not_explained(word)))?,
                ),
            };
            let turn = self.users.enter(&asked.user);
            let turn = turn.ok_or_else(|| busy("another explanation is being made for you: wait for it"))?;
            let slot = self.small.take(&namespace, self.turn).await;
            let slot = slot.ok_or_else(|| busy("other explanations are being made: try again"))?;
            let (decides, mut account, whole) =
                self.account(kind, &namespace, &name, asked.any_replica).await?;
            let held = Taken { slot, _memory: None, turn };
            let queue = asked.change.as_ref().map(queue_of).filter(|queue| !queue.is_empty());
            let asking =
                Asking { namespace: &namespace, name: &name, kind, account: account.as_ref(), queue };
            let Read { mut subject, mut live, left, held } = self.read(&asking, held).await?;
            if account.is_none() && subject.job.is_none() {
                return Err(not_found(&namespace, &name));
            }
            subject.whole = whole;
            if !asked.nodes {
                let nodes = self.nodes().await?;
                let is_node = |name: &str| nodes.contains(name);
                subject.hide_nodes(&is_node);
                hide_nodes(&mut live, &namespace, &is_node);
                if let Some(account) = &mut account {
                    explain::hide_nodes_of(account, &is_node);
                }
            }
            let trace = account.as_ref().and_then(|account| self.trace(account));
            let configuration = self.configuration.clone();
            let slots = Arc::clone(held.slot.slots());
            let work = Work {
                configuration,
                live,
                left,
                decides,
                account,
                subject,
                namespace,
                name,
                asked,
                queues,
                trace,
                slots,
            };
            // The thread keeps its slot until it is done, even if no caller waits for it any more.
            let trying = blocking("an explanation", move || {
                let answer = work.explain();
                drop(held);
                answer
            });
            match tokio::time::timeout(TRYING + GRACE, trying).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => {
                    warn!(error = %Chain(&error), "an explanation ended abnormally");
                    Err(Refused(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "the explanation ended abnormally".to_owned(),
                    ))
                }
                Err(_) => {
                    let why = "the explanation takes too long: there are too many objects".to_owned();
                    Err(Refused(StatusCode::GATEWAY_TIMEOUT, why))
                }
            }
        })
    }

    /// The engine's account, and whether it leads; for a job without a Workload, the job that it is a part of.
    async fn account(
        &self,
        kind: Option<Kind>,
        namespace: &str,
        name: &str,
        any_replica: bool,
    ) -> Result<(bool, Option<Account>, Option<Whole>), Refused> {
        let open =
            EngineAnswer { decides: false, knows: false, accounting: Accounting::new(kind, namespace, name) };
        let asking = self.engine.pages(open, move |reported: &mut EngineAnswer, engine: &mut Engine| {
            reported.decides = engine.decides();
            reported.knows = engine.is_synced();
            let answers = reported.knows && (reported.decides || any_replica);
            !answers || engine.account_page(&mut reported.accounting, PAGE)
        });
        let Ok(Some(reported)) = tokio::time::timeout(TURN, asking).await else {
            return Err(unavailable("the engine does not answer"));
        };
        if !reported.decides && !any_replica {
            return Err(unavailable("this replica does not lead: ask the replica that leads"));
        }
        if !reported.knows {
            return Err(unavailable(NOT_LISTED));
        }
        let whole = reported.accounting.whole().cloned();
        Ok((reported.decides, reported.accounting.into_account(MOST_LISTED), whole))
    }

    /// The names of all nodes.
    async fn nodes(&self) -> Result<BTreeSet<Name>, Refused> {
        let open = Some(BTreeSet::new());
        let asking = self.engine.pages(open, |all: &mut Option<BTreeSet<Name>>, engine: &mut Engine| {
            // An engine that was just rebuilt knows only some.
            *all = all.take().filter(|_| engine.is_synced());
            let Some(names) = all else { return true };
            let known = names.len();
            let next = engine.node_names(names.last(), NODES_OF_PAGE);
            names.extend(next);
            names.len() == known
        });
        let names = tokio::time::timeout(TURN, asking).await.ok().flatten();
        names.ok_or_else(|| unavailable("the engine does not answer"))?.ok_or_else(|| unavailable(NOT_LISTED))
    }

    /// Reads what is asked about and the world around it; once more with more memory, if it is large.
    async fn read(&self, asking: &Asking<'_>, held: Taken) -> Result<Read, Refused> {
        let reads = self.reads(SMALL_BYTES, &held.slot);
        let (subject, live) = self.read_with(&reads, asking).await?;
        let reserve = || self.memory.reserve(2 * SMALL_BYTES * PER_BYTE_READ, MOST_BYTES * PER_BYTE_READ);
        // With too little memory for more, what was read is explained.
        let is_small = !reads.is_spent() && to_make(&live) <= reads.left();
        if is_small || reserve().is_none() {
            let left = reads.left();
            return Ok(Read { subject, live, left, held });
        }
        drop((subject, live, reads));
        let Taken { slot, turn, .. } = held;
        drop(slot);
        let slot = self.large.take(asking.namespace, self.turn).await;
        let slot =
            slot.ok_or_else(|| busy("the explanation of another large cohort is being made: try again"))?;
        let memory = reserve().ok_or_else(|| busy("too little memory is free for now: try again"))?;
        let reads = self.reads(memory.bytes() / PER_BYTE_READ, &slot);
        let (subject, live) = self.read_with(&reads, asking).await?;
        let left = reads.left();
        Ok(Read { subject, live, left, held: Taken { slot, _memory: Some(memory), turn } })
    }

    fn reads(&self, bytes: usize, slot: &Slot) -> Reads {
        Reads::new(self.client.clone(), bytes, Arc::clone(slot.slots()))
    }

    async fn read_with(&self, reads: &Reads, asking: &Asking<'_>) -> Result<(Subject, Live), Refused> {
        let Asking { namespace, name, kind, account, queue } = *asking;
        let subject = subject(reads, namespace, name, kind, account).await?;
        if account.is_none() && subject.job.is_none() {
            return Ok((subject, Live::default()));
        }
        let named = || subject.job.as_ref().map(|job| queue_of(job).to_owned()).unwrap_or_default();
        let local_queue = account.map_or_else(named, |account| account.local_queue.clone());
        // Most questions are about quota: nodes are read where the Workload's own state says that room on them is short.
        let room = live::asks_for_room(subject.workload.as_ref(), account);
        let local_queue = local_queue.as_str();
        let extent = match queue.filter(|queue| *queue != local_queue) {
            Some(other) => Extent::Between { namespace, local_queues: [local_queue, other], room },
            None => Extent::Around { namespace, local_queue, room },
        };
        let live = reads.world(extent, &self.configuration.job_kinds()).await;
        Ok((subject, live))
    }

    /// The id of the trace of its attempt, if it is made.
    fn trace(&self, account: &Account) -> Option<TraceId> {
        Sampling::new(self.configuration.tracing.sample_ratio).trace(&account.uid, account.attempt?)
    }
}

/// How many bytes the pods take that are made of what was read.
fn to_make(live: &Live) -> usize {
    let of = |manifest: &Manifest| match manifest.kind {
        Kind::Job(kind) => bytes_to_make(kind, &manifest.object, weight),
        _ => 0,
    };
    live.objects.iter().map(of).fold(0, usize::saturating_add)
}

/// Takes the names of nodes out of what the Workloads of a namespace say.
fn hide_nodes(live: &mut Live, namespace: &str, is_node: &dyn Fn(&str) -> bool) {
    let own = |manifest: &&mut Manifest| {
        manifest.kind == Kind::Workload && manifest.object["metadata"]["namespace"] == namespace
    };
    for manifest in live.objects.iter_mut().filter(own) {
        if let Some(status) = manifest.object.get_mut("status") {
            explain::hide_nodes(status, is_node);
        }
    }
}

/// The object of the question, from the API server.
async fn subject(
    reads: &Reads,
    namespace: &str,
    name: &str,
    kind: Option<Kind>,
    account: Option<&Account>,
) -> Result<Subject, Refused> {
    let workload = account.map(|account| &*account.workload.name);
    let job = match kind {
        Some(Kind::Job(kind)) if account.is_none() => Some((kind, name)),
        _ => None,
    };
    reads.subject(namespace, workload, job).await.map_err(|why| unavailable(&why))
}

/// Everything that an explanation is made from.
struct Work {
    configuration: Configuration,
    live: Live,
    /// How many bytes the pods may take that are made of objects.
    left: usize,
    /// The account is that of a replica that leads.
    decides: bool,
    account: Option<Account>,
    subject: Subject,
    namespace: String,
    name: String,
    asked: Asked,
    queues: bool,
    trace: Option<TraceId>,
    /// Where others may wait.
    slots: Arc<Slots>,
}

impl Work {
    fn explain(self) -> Answer {
        let manifests = Manifests {
            objects: self.live.objects,
            observed: self.live.observed,
            unread: self.live.unread,
            // If the API server does not have the Workload any more, it is looked for in the world.
            subject: Some(self.subject).filter(|s| s.workload.is_some() || self.account.is_none()),
            ..Manifests::default()
        };
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        let began = Instant::now();
        let over = || is_over(began.elapsed(), self.slots.others_wait());
        let options = Options {
            start: now,
            // By then the caller has the answer that it takes too long.
            cancel: Cancel::when(move || began.elapsed() > TRYING + GRACE),
            pod_memory: Some(PodMemory { most: self.left, weight }),
            ..Options::new(self.configuration)
        };
        let question = Question {
            manifests: &manifests,
            files: &BTreeMap::new(),
            options,
            at: SignedDuration::ZERO,
            namespace: &self.namespace,
            kind: None,
            name: &self.name,
            all_namespaces: self.asked.all,
            names_nodes: self.asked.nodes,
            names_queues: self.queues,
            live: self.account.as_ref(),
            decides: self.decides,
            patience: Patience::until(&over),
        };
        let answer = match &self.asked.change {
            None => question.answer().map(|explained| {
                let trace = self.trace.map(|id| id.to_string());
                let explained = Explained { trace, ..explained };
                written(self.asked.output, || explained.text(), || explained.json())
            }),
            Some(change) => question
                .what_if(change)
                .map(|found| written(self.asked.output, || found.text(), || found.json())),
        };
        answer.map_err(|error| refused(&error, (&self.namespace, &self.name), self.asked.all))
    }
}

fn written(format: Format, text: impl FnOnce() -> String, json: impl FnOnce() -> String) -> String {
    match format {
        Format::Text => text(),
        Format::Json => json(),
        Format::Both => {
            let explanation: Value = serde_json::from_str(&json()).unwrap_or_default();
            json!({"text": text(), "explanation": explanation}).to_string()
        }
    }
}

#[cfg(test)]
mod tests;
