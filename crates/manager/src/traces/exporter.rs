//! Sends traces in batches, with bounded memory and time, whatever the collector does.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use sluice_client::error_chain::Chain;
use sluice_client::version;
use sluice_engine::Backoff;
use tokio::sync::mpsc::Receiver;
use tracing::{info, warn};

use super::collector::{Collector, Rejected, SendError};
use super::spans::text;
use crate::metrics::TRACES;
use crate::metrics::registry::Registry;
use crate::shutdown::Stop;

/// The number of traces in one request.
const BATCH: usize = 128;
/// How long a trace waits for others to be sent with it.
const LINGER: Duration = Duration::from_secs(1);
/// The pauses after failures.
const PAUSES: Backoff = Backoff::seconds(1, 30);
/// How often one batch is tried.
const TRIES: u32 = 5;

/// The outcomes of traces, as labels of the metric.
pub(super) const SENT: &str = "sent";
/// Too many waited, or the collector could not be reached.
pub(super) const LOST: &str = "lost";
/// The collector did not want them.
pub(super) const REJECTED: &str = "rejected";

/// The spans of one trace.
pub type Spans = Vec<Span>;

/// Counts the outcomes of traces, and logs once when some are lost, and when no more are lost.
#[derive(Clone)]
pub struct Tally {
    registry: Arc<Registry>,
    losing: Arc<std::sync::atomic::AtomicBool>,
}

impl Tally {
    /// Counts in this registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, losing: Arc::default() }
    }

    pub(super) fn count(&self, result: &'static str, traces: usize) {
        let value = f64::from(u32::try_from(traces).unwrap_or(u32::MAX));
        self.registry.record(TRACES.sample([result], value));
    }

    /// Some traces are lost: that is logged if none was lost before.
    pub(super) fn lost(&self, traces: usize, why: &dyn std::fmt::Display) {
        self.count(LOST, traces);
        self.say(why);
    }

    fn say(&self, why: &dyn std::fmt::Display) {
        if !self.losing.swap(true, std::sync::atomic::Ordering::Relaxed) {
            warn!(%why, "traces are lost; sluice_traces_total counts them");
        }
    }

    fn sent(&self, traces: usize) {
        self.count(SENT, traces);
        if self.losing.swap(false, std::sync::atomic::Ordering::Relaxed) {
            info!("traces are sent again");
        }
    }
}

/// Sends traces until the sender is dropped.
pub struct Exporter {
    /// The collector to send to.
    pub collector: Collector,
    /// The name of this replica: its pod's.
    pub instance: String,
    /// Counts.
    pub tally: Tally,
    /// When the process ends.
    pub stop: Stop,
}

impl Exporter {
    /// Runs until the channel is closed and what was in it is sent, or lost.
    pub async fn run(mut self, mut traces: Receiver<Spans>) {
        let mut batch = Vec::new();
        loop {
            if traces.recv_many(&mut batch, BATCH).await == 0 {
                return;
            }
            self.gather(&mut batch, &mut traces).await;
            let count = batch.len();
            let request = self.request(std::mem::take(&mut batch));
            self.deliver(&request, count).await;
        }
    }

    /// Waits a little for others to be sent together with the present ones.
    async fn gather(&mut self, batch: &mut Vec<Spans>, traces: &mut Receiver<Spans>) {
        let linger = tokio::time::sleep(LINGER);
        tokio::pin!(linger);
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            tokio::select! {
                () = &mut linger => return,
                () = self.stop.stopped() => return,
                more = traces.recv_many(batch, room) => if more == 0 { return },
            }
        }
    }

    async fn deliver(&mut self, request: &ExportTraceServiceRequest, count: usize) {
        for attempt in 1.. {
            let error = match self.collector.send(request).await {
                Ok(rejected) => return self.taken(count, &rejected),
                Err(error) => error,
            };
            let last = attempt >= TRIES || !error.is_transient() || self.stop.is_stopped();
            if last {
                return self.failed(count, &error);
            }
            self.tally.say(&Chain(&error));
            let wait = error.retry_after().unwrap_or(PAUSES.pause(attempt - 1));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stop.stopped() => {}
            }
        }
    }

    fn taken(&self, count: usize, rejected: &Rejected) {
        // The answer does not say which traces the rejected spans belong to: to at most that many.
        let refused = usize::try_from(rejected.spans).unwrap_or(count).min(count);
        if refused == 0 {
            return self.tally.sent(count);
        }
        self.tally.count(SENT, count - refused);
        self.tally.count(REJECTED, refused);
        let why = format!("{} rejected {} spans: {}", self.collector.place(), rejected.spans, rejected.why);
        self.tally.say(&why);
    }

    fn failed(&self, count: usize, error: &SendError) {
        self.tally.count(if error.is_transient() { LOST } else { REJECTED }, count);
        self.tally.say(&Chain(error));
    }

    fn request(&self, batch: Vec<Spans>) -> ExportTraceServiceRequest {
        let attributes = vec![
            text("service.name", "sluice"),
            text("service.version", version::VERSION),
            text("service.instance.id", &self.instance),
        ];
        let scope = InstrumentationScope {
            name: "sluice.dev/admission".to_owned(),
            version: version::VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let spans = batch.into_iter().flatten().collect();
        let of_scope = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
        let resource = Some(Resource { attributes, ..Resource::default() });
        let of_resource = ResourceSpans { resource, scope_spans: vec![of_scope], ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![of_resource] }
    }
}
