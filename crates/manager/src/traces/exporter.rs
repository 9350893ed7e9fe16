//! Sends traces in batches, with bounded memory and time, whatever the collector does. OpenTelemetry's exporter makes a request of each batch.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{Protocol, RetryPolicy, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use sluice_client::error_chain::Chain;
use sluice_client::version;
use tokio::sync::mpsc::Receiver;

use super::collector::{Collector, SendError, SettingsError};
use super::delivery::{Delivery, Rejected};
use super::tally::Tally;
use crate::shutdown::Stop;

/// The number of traces in one request.
const BATCH: usize = 128;
/// How long a trace waits for others to be sent with it.
const LINGER: Duration = Duration::from_secs(1);

/// The spans of one trace.
pub type Spans = Vec<SpanData>;

/// Sends traces until the sender is dropped.
#[derive(Debug)]
pub struct Exporter {
    otlp: opentelemetry_otlp::SpanExporter,
    delivery: Arc<Delivery>,
    /// The collector, for people.
    place: String,
    tally: Tally,
    stop: Stop,
}

impl Exporter {
    /// To this collector, from the replica of this name, until the signal.
    ///
    /// # Errors
    /// If OpenTelemetry's exporter does not accept its settings.
    pub fn new(
        collector: Collector,
        instance: String,
        tally: Tally,
        stop: Stop,
    ) -> Result<Self, SettingsError> {
        let (place, endpoint) = (collector.place().to_owned(), collector.endpoint());
        let delivery = Arc::new(Delivery::new(collector, tally.clone(), stop.clone()));
        let client = Arc::clone(&delivery);
        let mut otlp = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_shared_http_client(client)
            .with_endpoint(endpoint)
            .with_protocol(Protocol::HttpBinary)
            // The delivery tries again: it knows when the process ends.
            .with_retry_policy(RetryPolicy::disabled())
            .build()?;
        let attributes = [
            KeyValue::new("service.name", "sluice"),
            KeyValue::new("service.version", version::VERSION),
            KeyValue::new("service.instance.id", instance),
        ];
        otlp.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
        Ok(Self { otlp, delivery, place, tally, stop })
    }

    /// Runs until the channel is closed and what was in it is sent, or lost.
    pub async fn run(mut self, mut traces: Receiver<Spans>) {
        let mut batch = Vec::new();
        loop {
            if traces.recv_many(&mut batch, BATCH).await == 0 {
                return;
            }
            self.gather(&mut batch, &mut traces).await;
            self.deliver(std::mem::take(&mut batch)).await;
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

    /// Delivers a batch and counts what became of it.
    pub(super) async fn deliver(&self, batch: Vec<Spans>) {
        let count = batch.len();
        let exported = self.otlp.export(batch.into_iter().flatten().collect()).await;
        match (self.delivery.take_outcome(), exported) {
            (Some(Ok(rejected)), _) => self.taken(count, &rejected),
            (Some(Err(error)), _) => self.failed(count, &error),
            (None, Err(error)) => self.tally.lost(count, &error),
            // The collector received no request, and so no trace.
            (None, Ok(())) => self.tally.lost(count, &"the exporter sent no request"),
        }
    }

    fn taken(&self, count: usize, rejected: &Rejected) {
        // The answer does not say which traces the rejected spans belong to: to at most that many.
        let refused = usize::try_from(rejected.spans).unwrap_or(count).min(count);
        if refused == 0 {
            return self.tally.sent(count);
        }
        let why = format!("{} rejected {} spans: {}", self.place, rejected.spans, rejected.why);
        self.tally.partly_sent(count, refused, &why);
    }

    fn failed(&self, count: usize, error: &SendError) {
        if error.is_transient() {
            self.tally.lost(count, &Chain(error));
        } else {
            self.tally.rejected(count, &Chain(error));
        }
    }
}
