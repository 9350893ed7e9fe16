use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message as _;
use sluice_api::v1beta2::CheckState;
use sluice_engine::attempt::{CheckSeen, End, Ending, Progress, Step};
use sluice_engine::{Name, WorkloadKey};

use super::attempts::Attempts;
use super::ids::trace_id;
use super::stand_in::StandIn;
use super::*;
use crate::fake_api;
use crate::metrics;
use crate::metrics::registry::Role;
use crate::shutdown::Stopper;
use crate::supervise::tests::supervisor;

/// Milliseconds after a whole second.
fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + ms).unwrap()
}

fn whole(ms: i64) -> Timestamp {
    Timestamp::from_second(at(ms).as_second()).unwrap()
}

fn step(ms: i64, step: Step) -> AttemptStep {
    AttemptStep { at: at(ms), workload: WorkloadKey::new("ns", "w"), uid: "uid".into(), attempt: 1, step }
}

fn seen(ms: i64, change: impl FnOnce(&mut Progress)) -> AttemptStep {
    let mut progress = Progress {
        local_queue: "lq".to_owned(),
        cluster_queue: "cq".to_owned(),
        priority: 7,
        queued: Some(whole(0)),
        reserved: None,
        flavors: Vec::new(),
        checks: Vec::new(),
        admitted: None,
        waits_for_pods: true,
        end: None,
    };
    change(&mut progress);
    step(ms, Step::Seen(Box::new(progress)))
}

fn check(name: &str, state: CheckState, ms: i64) -> CheckSeen {
    CheckSeen { name: name.to_owned(), state, since: whole(ms) }
}

fn reserved(progress: &mut Progress) {
    progress.reserved = Some(whole(3_050));
    progress.flavors = vec!["spot".to_owned()];
}

fn ended(how: Ending, ms: i64, reason: &str) -> End {
    End { at: whole(ms), how, reason: reason.to_owned() }
}

const TOOK: Duration = Duration::from_millis(20);

/// A whole attempt with two checks, in the order in which the engine says it.
fn whole_attempt() -> Vec<AttemptStep> {
    let considered = "default, spot".to_owned();
    let with_checks = |a: CheckState, b: CheckState, b_at: i64| {
        vec![check("a", a, if a == CheckState::Pending { 3_050 } else { 9_400 }), check("b", b, b_at)]
    };
    vec![
        seen(400, |_| {}),
        step(3_000, Step::Decided { cycle: 12, heads: 3, considered }),
        seen(3_050, |p| {
            reserved(p);
            p.checks = with_checks(CheckState::Pending, CheckState::Pending, 3_050);
        }),
        seen(5_250, |p| {
            reserved(p);
            p.checks = with_checks(CheckState::Pending, CheckState::Ready, 5_250);
        }),
        seen(9_400, |p| {
            reserved(p);
            p.checks = with_checks(CheckState::Ready, CheckState::Ready, 5_250);
        }),
        seen(9_500, |p| {
            reserved(p);
            p.checks = with_checks(CheckState::Ready, CheckState::Ready, 5_250);
            p.admitted = Some(whole(9_500));
        }),
        step(9_600, Step::JobStarted),
        seen(15_700, |p| {
            reserved(p);
            p.checks = with_checks(CheckState::Ready, CheckState::Ready, 5_250);
            p.admitted = Some(whole(9_500));
            p.end = Some(ended(Ending::Started, 15_700, "Started"));
        }),
    ]
}

/// The spans after all steps: of each its name, its check, and when it began and ended in milliseconds.
fn timeline(spans: &[Span]) -> Vec<(String, i64, i64)> {
    let ms = |nanos: u64| i64::try_from(nanos / 1_000_000).unwrap() - 1_800_000_000_000;
    let name = |span: &Span| match text_of(span, "kueue.admission_check.name") {
        None => span.name.clone(),
        Some(check) => format!("{} {check}", span.name),
    };
    spans.iter().map(|s| (name(s), ms(s.start_time_unix_nano), ms(s.end_time_unix_nano))).collect()
}

fn value_of(span: &Span, key: &str) -> Option<Value> {
    span.attributes.iter().find(|a| a.key == key)?.value.clone()?.value
}

fn text_of(span: &Span, key: &str) -> Option<String> {
    let Value::StringValue(text) = value_of(span, key)? else { return None };
    Some(text)
}

/// As they are sent.
fn made(steps: Vec<AttemptStep>) -> Vec<Span> {
    let mut attempts = Attempts::default();
    let over: Vec<_> = steps.into_iter().filter_map(|step| attempts.take(step, TOOK)).collect();
    assert_eq!((over.len(), attempts.len()), (1, 0));
    spans(trace_id("uid", 1), &over[0]).into_iter().map(Span::from).collect()
}

fn expected(all: &[(&str, i64, i64)]) -> Vec<(String, i64, i64)> {
    all.iter().map(|(name, from, until)| ((*name).to_owned(), *from, *until)).collect()
}

#[test]
fn an_attempt_is_a_tree_of_spans_with_the_times_that_it_had() {
    let spans = made(whole_attempt());
    let times = [
        ("admission", 400, 15_700),
        ("queued", 400, 3_000),
        ("cycle", 3_000, 3_020),
        ("reserved", 3_020, 3_050),
        ("check a", 3_050, 9_400),
        ("check b", 3_050, 5_250),
        ("started", 9_500, 15_700),
    ];
    assert_eq!(timeline(&spans), expected(&times));
    let (root, children) = spans.split_first().unwrap();
    assert_eq!((root.trace_id.len(), root.span_id.len(), root.parent_span_id.len()), (16, 8, 0));
    assert!(children.iter().all(|s| s.trace_id == root.trace_id && s.parent_span_id == root.span_id));
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    assert_eq!(ids.len(), spans.len());
    let texts = [
        ("k8s.namespace.name", "ns"),
        ("kueue.workload.name", "w"),
        ("kueue.local_queue.name", "lq"),
        ("kueue.cluster_queue.name", "cq"),
        ("kueue.admission.outcome", "Started"),
    ];
    for (key, text) in texts {
        assert_eq!(text_of(root, key).as_deref(), Some(text), "{key}");
    }
    assert_eq!(value_of(root, "kueue.workload.priority"), Some(Value::IntValue(7)));
    assert_eq!(value_of(&children[1], "kueue.cycle.heads"), Some(Value::IntValue(3)));
    assert_eq!(text_of(&children[1], "kueue.cycle.considered").as_deref(), Some("default, spot"));
    assert_eq!(children[5].events[0].name, "job started");
}

#[test]
fn a_process_that_saw_the_end_alone_makes_the_same_trace_in_whole_seconds() {
    let last = whole_attempt().pop().unwrap();
    let times = [
        ("admission", 0, 15_700),
        ("queued", 0, 3_000),
        ("reserved", 3_000, 3_000),
        ("check a", 3_000, 9_000),
        ("check b", 3_000, 5_000),
        ("started", 9_000, 15_700),
    ];
    let spans = made(vec![last]);
    assert_eq!(timeline(&spans), expected(&times));
    assert_eq!(spans[0].trace_id, made(whole_attempt())[0].trace_id);
}

#[test]
fn an_eviction_by_a_check_is_the_error_of_its_check_and_of_the_attempt() {
    let mut steps = whole_attempt();
    steps.truncate(4);
    steps.push(seen(8_300, |p| {
        reserved(p);
        p.checks = vec![check("a", CheckState::Retry, 8_300), check("b", CheckState::Ready, 5_250)];
    }));
    steps.push(seen(8_350, |p| {
        reserved(p);
        // As the eviction resets them.
        p.checks = vec![check("a", CheckState::Pending, 8_350), check("b", CheckState::Pending, 8_350)];
        p.end = Some(ended(Ending::Evicted, 8_350, "AdmissionCheck"));
    }));
    let spans = made(steps);
    let times = [
        ("admission", 400, 8_350),
        ("queued", 400, 3_000),
        ("cycle", 3_000, 3_020),
        ("reserved", 3_020, 3_050),
        ("check a", 3_050, 8_300),
        ("check b", 3_050, 5_250),
    ];
    assert_eq!(timeline(&spans), expected(&times));
    assert_eq!(spans[0].status.as_ref().unwrap().message, "AdmissionCheck");
    assert_eq!(spans[4].status.as_ref().unwrap().message, "Retry");
    assert_eq!(spans[5].status, Some(Status::default()));
}

#[test]
fn where_pods_are_not_waited_for_the_start_of_the_job_is_the_end() {
    let mut steps = whole_attempt();
    steps.truncate(7);
    for step in &mut steps {
        if let Step::Seen(progress) = &mut step.step {
            progress.waits_for_pods = false;
        }
    }
    let spans = made(steps);
    assert_eq!(timeline(&spans).pop(), Some(("started".to_owned(), 9_500, 9_600)));
    assert_eq!(text_of(&spans[0], "kueue.admission.outcome").as_deref(), Some("Started"));
}

#[test]
fn a_reservation_that_is_taken_back_begins_again_in_the_same_attempt() {
    let mut steps = whole_attempt();
    let rest = steps.split_off(1);
    steps.push(step(1_000, Step::Decided { cycle: 1, heads: 1, considered: String::new() }));
    steps.push(seen(1_100, |p| p.reserved = Some(whole(1_100))));
    steps.push(seen(2_000, |_| {}));
    steps.extend(rest);
    assert_eq!(timeline(&made(steps)), timeline(&made(whole_attempt())));
}

#[test]
fn attempts_that_never_end_take_bounded_memory() {
    let attempt = |number: usize| {
        let mut one = seen(400, |p| {
            reserved(p);
            p.checks = (0..100).map(|n| check(&n.to_string(), CheckState::Pending, 0)).collect();
        });
        one.uid = Name::from(format!("{number:036}"));
        one
    };
    let mut attempts = Attempts::new(1_000);
    let cost = allocation_counter::measure(|| {
        for number in 0..3_000 {
            assert_eq!(attempts.take(attempt(number), TOOK), None);
        }
    });
    assert_eq!(attempts.len(), 1_000);
    assert!(cost.bytes_current < 2 << 20, "{cost:?}");
    // The youngest are kept.
    let mut last = attempt(2_999);
    last.step = seen(500, |p| p.end = Some(ended(Ending::Deleted, 500, ""))).step;
    assert_eq!(attempts.take(last, TOOK).unwrap().queued, Some(at(400)));
}

/// Traces that go to a port, and the counts of what became of them.
fn sending(port: u16, max_queue_size: i32) -> (Traces, JoinHandle<()>, Arc<Registry>, Stopper) {
    let (supervisor, _, stopper) = supervisor();
    let registry = Arc::new(Registry::new(metrics::definitions(&[]), Role::Leader).unwrap());
    let endpoint = format!("http://127.0.0.1:{port}");
    let section = config::Tracing { endpoint, max_queue_size, ..config::Tracing::default() };
    let stop = stopper.subscribe();
    let (traces, exporting) =
        Traces::start(&supervisor, &section, "pod-0", Arc::clone(&registry), stop).unwrap();
    (traces, exporting, registry, stopper)
}

fn put(traces: &Traces, uid: &str, leading: bool) {
    for mut step in whole_attempt() {
        step.uid = uid.into();
        traces.put(Box::new(step), TOOK, leading);
    }
}

fn count(registry: &Registry, result: &str) -> usize {
    let series = format!("sluice_traces_total{{result=\"{result}\"}} ");
    let text = registry.text();
    let value = text.lines().find_map(|line| line.strip_prefix(&series));
    value.map_or(0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn the_leader_s_attempts_reach_the_collector_and_a_follower_s_do_not() {
    let stand_in = StandIn::willing().await;
    let (traces, exporting, registry, stopper) = sending(stand_in.port, 10);
    put(&traces, "mine", true);
    put(&traces, "not-mine", false);
    drop(traces);
    stopper.stop();
    exporting.await.unwrap();
    let asked = stand_in.asked();
    let of = &asked[0].body.resource_spans[0];
    let names = of.resource.as_ref().unwrap().attributes.iter().map(|one| one.key.as_str());
    let expected = BTreeSet::from(["service.instance.id", "service.name", "service.version"]);
    assert_eq!((names.collect::<BTreeSet<_>>(), asked.len()), (expected, 1));
    let scope = of.scope_spans[0].scope.as_ref().unwrap();
    assert_eq!(scope.name, "sluice.dev/admission");
    let spans = &of.scope_spans[0].spans;
    assert_eq!(spans.len(), 7);
    assert!(spans.iter().all(|span| span.trace_id == trace_id("mine", 1).to_bytes()));
    assert_eq!((count(&registry, "sent"), count(&registry, "lost")), (1, 0));
}

#[tokio::test]
async fn a_collector_that_is_down_costs_its_traces_and_no_time_at_the_end() {
    let (_held, port) = fake_api::refusing_port();
    let (traces, exporting, registry, stopper) = sending(port, 2);
    for number in 0..500 {
        put(&traces, &number.to_string(), true);
        tokio::task::yield_now().await;
    }
    drop(traces);
    stopper.stop();
    exporting.await.unwrap();
    assert_eq!((count(&registry, "sent"), count(&registry, "lost")), (0, 500));
}

#[tokio::test]
async fn a_collector_that_never_answers_holds_nothing_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (traces, exporting, _registry, stopper) = sending(listener.local_addr().unwrap().port(), 2);
    // A caller of `put` cannot wait for anything: it is no future.
    for number in 0..500 {
        put(&traces, &number.to_string(), true);
    }
    drop(traces);
    stopper.stop();
    // The process waits no longer than it waits for other parts.
    let waited = tokio::time::timeout(Duration::from_millis(100), exporting).await;
    assert!(waited.is_err());
}

#[tokio::test]
async fn a_collector_that_comes_back_gets_what_waited() {
    let answers = AtomicUsize::default();
    let stand_in = StandIn::start(None, move || {
        let first = answers.fetch_add(1, Ordering::Relaxed) == 0;
        let status = if first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        (status, [("retry-after", "0")]).into_response()
    });
    let stand_in = stand_in.await;
    let (traces, exporting, registry, _stopper) = sending(stand_in.port, 10);
    put(&traces, "mine", true);
    drop(traces);
    exporting.await.unwrap();
    assert_eq!(stand_in.asked().len(), 2);
    assert_eq!((count(&registry, "sent"), count(&registry, "lost")), (1, 0));
}

/// What is counted as sent, rejected and lost of two traces to a collector that answers so, and how often it was asked.
async fn counted(answer: impl Fn() -> Response + Send + Sync + 'static) -> ([usize; 3], usize) {
    let stand_in = StandIn::start(None, answer).await;
    let (traces, exporting, registry, stopper) = sending(stand_in.port, 10);
    put(&traces, "one", true);
    put(&traces, "two", true);
    drop(traces);
    stopper.stop();
    exporting.await.unwrap();
    (["sent", "rejected", "lost"].map(|result| count(&registry, result)), stand_in.asked().len())
}

#[tokio::test]
async fn what_the_collector_does_not_want_is_counted_and_not_sent_again() {
    let partly = || {
        let partial = ExportTracePartialSuccess { rejected_spans: 1, error_message: "too old".to_owned() };
        ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec().into_response()
    };
    assert_eq!(counted(partly).await, ([1, 1, 0], 1));
    assert_eq!(counted(|| StatusCode::BAD_REQUEST.into_response()).await, ([0, 2, 0], 1));
    assert_eq!(counted(|| StatusCode::INTERNAL_SERVER_ERROR.into_response()).await, ([0, 2, 0], 1));
    // When the process ends, there is one try.
    assert_eq!(counted(|| StatusCode::SERVICE_UNAVAILABLE.into_response()).await, ([0, 0, 2], 1));
}

/// OpenTelemetry's exporter sends at most 64 MiB at once.
#[tokio::test]
async fn a_request_that_is_too_large_to_be_sent_is_lost_and_the_next_is_sent() {
    let stand_in = StandIn::willing().await;
    let registry = Arc::new(Registry::new(metrics::definitions(&[]), Role::Leader).unwrap());
    let endpoint = format!("http://127.0.0.1:{}", stand_in.port);
    let section = config::Tracing { endpoint, ..config::Tracing::default() };
    let (collector, tally) = (Collector::new(&section).unwrap(), Tally::new(Arc::clone(&registry)));
    let (_stopper, stop) = crate::shutdown::pair();
    let exporter = Exporter::new(collector, "pod-0".to_owned(), tally, stop).unwrap();
    let mut attempts = Attempts::default();
    let attempt = whole_attempt().into_iter().find_map(|step| attempts.take(step, TOOK)).unwrap();
    let small = spans(trace_id("uid", 1), &attempt);
    let mut large = small.clone();
    large[0].attributes.push(KeyValue::new("a", "x".repeat(64 << 20)));
    exporter.deliver(vec![large]).await;
    exporter.deliver(vec![small]).await;
    assert_eq!((count(&registry, "lost"), count(&registry, "sent")), (1, 1));
    assert_eq!(stand_in.asked().len(), 1);
}

#[tokio::test]
async fn steps_of_what_is_not_sampled_are_not_taken() {
    let stand_in = StandIn::willing().await;
    let (mut traces, exporting, registry, _stopper) = sending(stand_in.port, 10);
    traces.sampling = Sampling::new(0.0);
    put(&traces, "mine", true);
    drop(traces);
    exporting.await.unwrap();
    assert_eq!((stand_in.asked().len(), count(&registry, "lost")), (0, 0));
}
