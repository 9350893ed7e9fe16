//! Explanations, also the page `/debug/explain/NAMESPACE/NAME`: the engine's own last decision, and what would help, tried elsewhere.
//!
//! The engine is asked for one account, page by page. The world in which remedies are tried is read from
//! the API server, as far as it shares quota with the job, and the virtual cluster runs on a thread of its own: one
//! explanation at a time, each for a limited time. What was not tried in time is left out, and the answer says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_client::error_chain::Chain;
use sluice_client::list;
use sluice_engine::{Account, Accounting, Engine};
use sluice_sim::explain::{Explained, MOST_LISTED, Patience, Question, Subject};
use sluice_sim::live::{self, Extent, Keep, Live};
use sluice_sim::resource::{explained, not_explained};
use sluice_sim::{Kind, Manifests, Options, queue_of};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::engine_thread::{Handle, PAGE};
use crate::traces::{Sampling, TraceId};

/// Waiting for the explanation of another, and for the engine.
const TURN: Duration = Duration::from_secs(10);
/// Reading the world.
const READING: Duration = Duration::from_secs(20);
/// Trying remedies and futures.
const TRYING: Duration = Duration::from_secs(20);
/// What is being tried when time is over may take this much longer.
const GRACE: Duration = Duration::from_secs(10);

/// What the page is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// `text` or `json`.
    pub output: Format,
    /// Whether names of other namespaces are shown.
    pub all: bool,
    /// What the name is one of: workload, or a kind of jobs, also one that the configuration declares. Without it, a Workload of that name comes first.
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

/// Who makes explanations.
pub trait Explains: Send + Sync + 'static {
    /// Explains a Workload or job: namespace and name.
    fn explain(&self, namespace: String, name: String, asked: Asked) -> BoxFuture<'_, Answer>;
}

impl Explains for Explainer {
    fn explain(&self, namespace: String, name: String, asked: Asked) -> BoxFuture<'_, Answer> {
        self.answer(namespace, name, asked)
    }
}

/// Makes explanations.
pub struct Explainer {
    engine: Handle<Engine>,
    client: Client,
    configuration: Configuration,
    turn: Arc<Semaphore>,
}

impl Explainer {
    /// For an engine, and the cluster that it queues in.
    pub fn new(engine: Handle<Engine>, client: Client, configuration: Configuration) -> Self {
        Self { engine, client, configuration, turn: Arc::new(Semaphore::new(1)) }
    }

    /// The engine that it asks.
    pub fn engine(&self) -> Handle<Engine> {
        self.engine.clone()
    }

    /// Explains a Workload or job.
    pub fn answer(&self, namespace: String, name: String, asked: Asked) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let kind = match asked.kind.as_deref() {
                None => None,
                Some(word) => Some(
                    explained(word).ok_or_else(|| Refused(StatusCode::BAD_REQUEST, not_explained(word)))?,
                ),
            };
            let turn = tokio::time::timeout(TURN, Arc::clone(&self.turn).acquire_owned()).await;
            let Ok(Ok(turn)) = turn else {
                let why = "another explanation is being made: try again".to_owned();
                return Err(Refused(StatusCode::TOO_MANY_REQUESTS, why));
            };
            let open = (false, Accounting::new(kind, &namespace, &name));
            let any_replica = asked.any_replica;
            let asking = self.engine.pages(open, move |(decides, accounting), engine: &mut Engine| {
                *decides = engine.decides();
                let knows = *decides || (any_replica && engine.is_synced());
                !knows || engine.account_page(accounting, PAGE)
            });
            let Ok(Some((decides, accounting))) = tokio::time::timeout(TURN, asking).await else {
                return Err(unavailable("the engine does not answer"));
            };
            if !decides && !asked.any_replica {
                return Err(unavailable("this replica does not lead: ask the one that does"));
            }
            let account = accounting.into_account(MOST_LISTED);
            let subject = self.subject(&namespace, &name, kind, account.as_ref()).await?;
            if account.is_none() && subject.job.is_none() {
                return Err(not_found(&namespace, &name));
            }
            let trace = account.as_ref().and_then(|account| self.trace(account));
            let named = || subject.job.as_ref().map(|job| queue_of(job).to_owned()).unwrap_or_default();
            let local_queue = account.as_ref().map_or_else(named, |account| account.local_queue.clone());
            // Most questions are about quota: nodes are read where the Workload's own state says that room on them is short.
            let room = live::asks_for_room(subject.workload.as_ref(), account.as_ref());
            let extent = Extent::Around { namespace: &namespace, local_queue: &local_queue, room };
            let live = self.read(extent).await?;
            let work = Work {
                configuration: self.configuration.clone(),
                live,
                decides,
                account,
                subject,
                namespace,
                name,
                asked,
                trace,
            };
            // The thread keeps its turn until it is done, also when no caller waits for it any more.
            let trying = tokio::task::spawn_blocking(move || {
                let answer = work.explain();
                drop(turn);
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
                    let why = "the explanation takes too long: the world is too large for it".to_owned();
                    Err(Refused(StatusCode::GATEWAY_TIMEOUT, why))
                }
            }
        })
    }

    /// The id of the trace of its attempt, if it is made.
    fn trace(&self, account: &Account) -> Option<TraceId> {
        Sampling::new(self.configuration.tracing.sample_ratio).trace(&account.uid, account.attempt?)
    }

    /// What is asked about, as the API server has it.
    async fn subject(
        &self,
        namespace: &str,
        name: &str,
        kind: Option<Kind>,
        account: Option<&Account>,
    ) -> Result<Subject, Refused> {
        let client = self.client.clone();
        let list = move |place: String, query: String, most: usize| {
            let client = client.clone();
            async move { list::first(&client, &place, &query, most).await }
        };
        let workload = account.map(|account| &*account.workload.name);
        let job = match kind {
            Some(Kind::Job(kind)) if account.is_none() => Some((kind, name)),
            _ => None,
        };
        let reading = live::subject(namespace, workload, job, list);
        match tokio::time::timeout(READING, reading).await {
            Ok(Ok(subject)) => Ok(subject),
            Ok(Err(error)) => Err(unavailable(&Chain(&error).to_string())),
            Err(_) => Err(unavailable(&format!("the job could not be read within {READING:?}"))),
        }
    }

    async fn read(&self, extent: Extent<'_>) -> Result<Live, Refused> {
        let client = self.client.clone();
        let list = move |place: String, query, keep: Keep| {
            let client = client.clone();
            async move { list::objects(&client, &place, query, |object| keep(object)).await }
        };
        let kinds = self.configuration.job_kinds();
        let reading = live::read(extent, &kinds, list);
        match tokio::time::timeout(READING, reading).await {
            Ok(Ok(live)) => Ok(live),
            Ok(Err(error)) => Err(unavailable(&Chain(&error).to_string())),
            Err(_) => Err(unavailable(&format!("the objects could not be read within {READING:?}"))),
        }
    }
}

fn unavailable(why: &str) -> Refused {
    Refused(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
}

fn not_found(namespace: &str, name: &str) -> Refused {
    Refused(StatusCode::NOT_FOUND, format!("there is no Workload or job {namespace}/{name}"))
}

/// Everything that an explanation is made from.
struct Work {
    configuration: Configuration,
    live: Live,
    /// The account is that of a replica that leads.
    decides: bool,
    account: Option<Account>,
    subject: Subject,
    namespace: String,
    name: String,
    asked: Asked,
    trace: Option<TraceId>,
}

impl Work {
    fn explain(self) -> Answer {
        let manifests = Manifests {
            objects: self.live.objects,
            observed: self.live.observed,
            // A Workload that the API server does not have any more is looked for in the world.
            subject: Some(self.subject).filter(|s| s.workload.is_some() || self.account.is_none()),
            ..Manifests::default()
        };
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        let began = Instant::now();
        let over = || began.elapsed() > TRYING;
        let question = Question {
            manifests: &manifests,
            files: &BTreeMap::new(),
            options: Options { start: now, ..Options::new(self.configuration) },
            at: SignedDuration::ZERO,
            namespace: &self.namespace,
            kind: None,
            name: &self.name,
            all_namespaces: self.asked.all,
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
        answer.map_err(|error| Refused(StatusCode::CONFLICT, error.to_string()))
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
