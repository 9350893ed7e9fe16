//! The HTTP client of OpenTelemetry's exporter. It tries a request again as long as that may help and the process does not end, which the exporter
//! does not know about, and it keeps the outcome, of which the exporter passes on only whether there was an error.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use sluice_client::error_chain::Chain;
use sluice_engine::Backoff;

use super::collector::{Collector, SendError};
use super::tally::Tally;
use crate::shutdown::Stop;

/// The pauses after failures.
const PAUSES: Backoff = Backoff::seconds(1, 30);
/// How often one request is tried.
const TRIES: u32 = 5;

/// What the collector rejected of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// How many spans.
    pub spans: u64,
    /// Why, as it says.
    pub why: String,
}

/// What a collector rejected of a request, or why it took none of it.
pub type Acceptance = Result<Rejected, SendError>;

/// Delivers requests to a collector, one at a time.
#[derive(Debug)]
pub struct Delivery {
    collector: tokio::sync::Mutex<Collector>,
    tally: Tally,
    stop: Stop,
    outcome: Mutex<Option<Acceptance>>,
}

impl Delivery {
    /// To this collector, until the signal.
    pub fn new(collector: Collector, tally: Tally, stop: Stop) -> Self {
        Self { collector: tokio::sync::Mutex::new(collector), tally, stop, outcome: Mutex::default() }
    }

    /// Takes the outcome of the last request; `None` if there was none since.
    pub fn take_outcome(&self) -> Option<Acceptance> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn deliver(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.try_all(request).await;
        let (outcome, answer) = match answer {
            Ok(answer) => (Ok(rejected(answer.body())), Ok(answer)),
            Err(error) => {
                let why = error.to_string();
                (Err(error), Err(why.into()))
            }
        };
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        answer
    }

    /// Tries a request until it is answered, or no further try is worth it. After the signal nothing is waited for, but each request has its try.
    async fn try_all(&self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        let mut collector = self.collector.lock().await;
        let mut stop = self.stop.clone();
        let mut failures = 0;
        loop {
            let answer = collector.send(request.clone()).await;
            let Err(error) = &answer else { return answer };
            failures += 1;
            if failures >= TRIES || !error.is_transient() || stop.is_stopped() {
                return answer;
            }
            self.tally.say(&Chain(error));
            stop.sleep(error.retry_after().unwrap_or(PAUSES.pause(failures - 1))).await;
        }
    }
}

impl HttpClient for Delivery {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.deliver(request))
    }
}

/// What was rejected according to an answer; nothing if it cannot be read.
fn rejected(answer: &[u8]) -> Rejected {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    let mut why = partial.error_message;
    why.truncate(why.floor_char_boundary(256));
    Rejected { spans: u64::try_from(partial.rejected_spans).unwrap_or(0), why }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn what_was_not_taken_is_reported() {
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".repeat(1_000) };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let rejected_of = rejected(&answer);
        assert_eq!((rejected_of.spans, rejected_of.why.len()), (3, 256));
        // An answer that is no protobuf says nothing.
        assert_eq!(rejected(b"{}"), Rejected::default());
    }
}
