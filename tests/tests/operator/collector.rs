//! A stand-in for an OpenTelemetry collector: a server that accepts OTLP over HTTP, decodes it with OpenTelemetry's own protobuf, and keeps the
//! spans.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

type Kept = Arc<Mutex<Vec<Span>>>;

/// A collector.
pub struct Collector {
    /// What the manager sends to.
    pub url: String,
    kept: Kept,
}

impl Collector {
    /// Starts it on a free port.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let kept = Kept::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&kept));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, kept }
    }

    /// The names of the spans of each trace that came, the root first, by the trace's id in hexadecimal digits and the root's outcome.
    pub fn traces(&self) -> Vec<(String, String, Vec<String>)> {
        let spans = self.kept.lock().expect("no panic");
        let of = |root: &Span| {
            let own = spans.iter().filter(|span| span.trace_id == root.trace_id);
            let names = own.map(|span| span.name.clone()).collect();
            (hexadecimal(&root.trace_id), text(root, "kueue.admission.outcome"), names)
        };
        spans.iter().filter(|span| span.parent_span_id.is_empty()).map(of).collect()
    }
}

async fn take(State(kept): State<Kept>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else { return StatusCode::BAD_REQUEST };
    let spans = request.resource_spans.into_iter().flat_map(|of| of.scope_spans).flat_map(|of| of.spans);
    kept.lock().expect("no panic").extend(spans);
    StatusCode::OK
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn text(span: &Span, key: &str) -> String {
    let value = span.attributes.iter().find(|a| a.key == key).and_then(|a| a.value.clone()?.value);
    let Some(Value::StringValue(text)) = value else { return String::new() };
    text
}
