//! An attempt as spans of OpenTelemetry, with the times that it had.

use jiff::Timestamp;
use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use sluice_api::v1beta2::CheckState;
use sluice_client::version;
use sluice_engine::attempt::Ending;

use super::attempts::{Attempt, is_decided};
use super::ids::span_id;

/// The span of the whole attempt.
pub const ROOT: &str = "admission";
/// The longest text of an attribute, in bytes.
const MOST_TEXT: usize = 1024;
/// Flavors that are named.
const MOST_FLAVORS: usize = 32;

/// A text attribute.
fn text(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, value[..value.floor_char_boundary(MOST_TEXT)].to_owned())
}

/// Builds the spans of one trace.
struct Trace<'a> {
    id: TraceId,
    attempt: &'a Attempt,
    scope: InstrumentationScope,
    spans: Vec<SpanData>,
}

/// The spans of an attempt, the root first.
pub fn spans(id: TraceId, attempt: &Attempt) -> Vec<SpanData> {
    let scope = InstrumentationScope::builder("sluice.dev/admission").with_version(version::VERSION).build();
    let mut trace = Trace { id, attempt, scope, spans: Vec::new() };
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
                KeyValue::new("kueue.cycle.number", i64::try_from(decided.cycle).unwrap_or(i64::MAX)),
                KeyValue::new("kueue.cycle.heads", heads),
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
            KeyValue::new("kueue.workload.priority", i64::from(progress.priority)),
            KeyValue::new("kueue.admission.attempt", i64::from(*attempt)),
            text("kueue.admission.outcome", end.how.as_str()),
        ];
        if !progress.flavors.is_empty() {
            let flavors = progress.flavors.iter().take(MOST_FLAVORS);
            let flavors: Vec<StringValue> = flavors.map(|flavor| flavor.clone().into()).collect();
            attributes.push(KeyValue::new("kueue.flavors", Value::Array(Array::String(flavors))));
        }
        if !end.reason.is_empty() {
            attributes.push(text("kueue.admission.reason", &end.reason));
        }
        self.push(ROOT, ROOT, (start, end.at), attributes);
        if let Some(root) = self.spans.last_mut() {
            root.parent_span_id = SpanId::INVALID;
            if end.how == Ending::Evicted {
                root.status = Status::error(end.reason.clone());
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
                span.status = Status::error(state);
            }
        }
    }

    /// Says in the last span when the write that starts the job was answered.
    fn note_start(&mut self, admitted: Timestamp) {
        let Some(at) = self.attempt.job_started else { return };
        if let Some(span) = self.spans.last_mut() {
            span.events.events.push(Event::new("job started", at.max(admitted).into(), Vec::new(), 0));
        }
    }

    fn push(
        &mut self,
        name: &'static str,
        id: &str,
        times: (Timestamp, Timestamp),
        attributes: Vec<KeyValue>,
    ) {
        let id = span_id(self.id, id);
        self.spans.push(SpanData {
            span_context: SpanContext::new(self.id, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: span_id(self.id, ROOT),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: times.0.into(),
            end_time: times.1.max(times.0).into(),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        });
    }
}
