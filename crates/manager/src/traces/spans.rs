//! An attempt as spans of OpenTelemetry, with the times that it had.

use jiff::Timestamp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags, Status};
use sluice_api::v1beta2::CheckState;
use sluice_engine::attempt::Ending;

use super::attempts::{Attempt, is_decided};
use super::ids::TraceId;

/// The span of the whole attempt.
pub const ROOT: &str = "admission";
/// A sampled trace.
const SAMPLED: u32 = 1;
/// The longest text of an attribute, in bytes.
const MOST_TEXT: usize = 1024;
/// Flavors that are named.
const MOST_FLAVORS: usize = 32;

/// A text attribute.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
    let mut end = value.len().min(MOST_TEXT);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    attribute(key, Value::StringValue(value[..end].to_owned()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}

/// Builds the spans of one trace.
struct Trace<'a> {
    id: TraceId,
    attempt: &'a Attempt,
    spans: Vec<Span>,
}

/// The spans of an attempt, the root first.
pub fn spans(id: TraceId, attempt: &Attempt) -> Vec<Span> {
    let mut trace = Trace { id, attempt, spans: Vec::new() };
    trace.all();
    trace.spans
}

impl Trace<'_> {
    fn all(&mut self) {
        let Attempt { queued, decided, written, admitted, end, .. } = self.attempt;
        let decided_at = decided.as_ref().map(|decided| decided.at);
        let start = queued.or(decided_at).or(*written).unwrap_or(end.at).min(end.at);
        self.root(start);
        // Each step begins at the end of the one before, at the earliest.
        let waited_until = decided_at.or(*written).unwrap_or(end.at).clamp(start, end.at);
        self.push("queued", "queued", (start, waited_until), Vec::new());
        let mut at = waited_until;
        if let Some(decided) = decided {
            let until = at.checked_add(decided.took).unwrap_or(at);
            let heads = i64::try_from(decided.heads).unwrap_or(i64::MAX);
            let mut attributes = vec![
                number("kueue.cycle.number", i64::try_from(decided.cycle).unwrap_or(i64::MAX)),
                number("kueue.cycle.heads", heads),
            ];
            if !decided.considered.is_empty() {
                attributes.push(text("kueue.cycle.considered", &decided.considered));
            }
            self.push("cycle", "cycle", (at, until), attributes);
            at = until;
        }
        let Some(written) = *written else { return };
        let written = written.max(at);
        let from = if decided.is_some() { at } else { written };
        self.push("reserved", "reserved", (from, written), Vec::new());
        self.checks(written);
        if let Some(admitted) = *admitted {
            let admitted = admitted.max(written);
            self.push("started", "started", (admitted, end.at.max(admitted)), Vec::new());
            self.note_start(admitted);
        }
    }

    fn root(&mut self, start: Timestamp) {
        let Attempt { workload, uid, number: attempt, progress, end, .. } = self.attempt;
        let mut attributes = vec![
            text("k8s.namespace.name", &workload.namespace),
            text("kueue.workload.name", &workload.name),
            text("kueue.workload.uid", uid),
            text("kueue.local_queue.name", &progress.local_queue),
            text("kueue.cluster_queue.name", &progress.cluster_queue),
            number("kueue.workload.priority", i64::from(progress.priority)),
            number("kueue.admission.attempt", i64::from(*attempt)),
            text("kueue.admission.outcome", end.how.as_str()),
        ];
        if !progress.flavors.is_empty() {
            let flavors = progress.flavors.iter().take(MOST_FLAVORS);
            let values = flavors.map(|f| AnyValue { value: Some(Value::StringValue(f.clone())) }).collect();
            attributes.push(attribute("kueue.flavors", Value::ArrayValue(ArrayValue { values })));
        }
        if !end.reason.is_empty() {
            attributes.push(text("kueue.admission.reason", &end.reason));
        }
        self.push(ROOT, ROOT, (start, end.at), attributes);
        if let Some(root) = self.spans.last_mut() {
            root.parent_span_id.clear();
            if end.how == Ending::Evicted {
                let (code, message) = (StatusCode::Error.into(), end.reason.clone());
                root.status = Some(Status { code, message });
            }
        }
    }

    /// A span for each check, until its final state.
    fn checks(&mut self, written: Timestamp) {
        for check in &self.attempt.checks {
            let until = if is_decided(check.state) { check.since } else { self.attempt.end.at };
            let state = format!("{:?}", check.state);
            let attributes = vec![
                text("kueue.admission_check.name", &check.name),
                text("kueue.admission_check.state", &state),
            ];
            let id = format!("check/{}", check.name);
            self.push("check", &id, (written, until.max(written)), attributes);
            if matches!(check.state, CheckState::Retry | CheckState::Rejected)
                && let Some(span) = self.spans.last_mut()
            {
                span.status = Some(Status { code: StatusCode::Error.into(), message: state });
            }
        }
    }

    /// Says in the last span when the write that starts the job was answered.
    fn note_start(&mut self, admitted: Timestamp) {
        let Some(at) = self.attempt.job_started else { return };
        let time_unix_nano = nanos(at.max(admitted));
        if let Some(span) = self.spans.last_mut() {
            span.events.push(Event { time_unix_nano, name: "job started".to_owned(), ..Event::default() });
        }
    }

    fn push(&mut self, name: &str, id: &str, times: (Timestamp, Timestamp), attributes: Vec<KeyValue>) {
        self.spans.push(Span {
            trace_id: self.id.to_vec(),
            span_id: self.id.span(id).to_vec(),
            parent_span_id: self.id.span(ROOT).to_vec(),
            flags: SAMPLED | flag(SpanFlags::ContextHasIsRemoteMask),
            name: name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanos(times.0),
            end_time_unix_nano: nanos(times.1.max(times.0)),
            attributes,
            ..Span::default()
        });
    }
}

fn flag(flag: SpanFlags) -> u32 {
    u32::try_from(i32::from(flag)).unwrap_or(0)
}
