use serde_json::json;
use sluice_engine::input::{Input, Object};

use super::*;
use crate::dashboard::store::Store;
use crate::dashboard::store::tests::{condition, workload as a_workload};
use crate::dashboard::viewer::Viewer;
use crate::dashboard::views::workload::workload;

fn object(conditions: &[Value], checks: &[Value]) -> slim::Workload {
    let Object::Workload(mut object) = a_workload("a", "w", conditions) else { unreachable!() };
    object.status.admission_checks = serde_json::from_value(checks.into()).unwrap();
    *object
}

/// A check that has had its state since a second of a minute.
fn check(name: &str, state: &str, second: u32) -> Value {
    json!({
        "name": name, "state": state, "message": format!("{name} says so"),
        "lastTransitionTime": format!("2026-01-01T00:01:{second:02}Z"),
    })
}

/// A line of the journal, of a second of an hour.
fn line(second: u32, mut more: Value) -> WorkloadLine {
    let mut line = json!({
        "at": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60), "namespace": "a", "workload": "w", "uid": "u",
        "localQueue": "lq", "clusterQueue": "cq",
    });
    line.as_object_mut().unwrap().append(more.as_object_mut().unwrap());
    serde_json::from_value(line).unwrap()
}

fn event(reason: &str, message: &str, at: &str) -> Value {
    json!({"reason": reason, "message": message, "type": "Normal", "eventTime": format!("2026-01-01T00:{at}Z")})
}

/// What a life has, and why.
fn lived(
    store: &Store,
    object: &slim::Workload,
    past: (Option<&[Value]>, &[WorkloadLine]),
) -> Vec<(String, String)> {
    store.synced();
    let row = WorkloadRow::of(object);
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
    let life = life(&store.fresh(), &row, object, past);
    life.iter().map(|entry| (text(entry, "what"), text(entry, "reason"))).collect()
}

/// The same without the reasons.
fn whats(life: &[(String, String)]) -> Vec<&str> {
    life.iter().map(|(what, _)| what.as_str()).collect()
}

#[test]
fn what_happened_in_one_second_is_shown_in_the_order_of_a_life() {
    let of = |conditions: &[(&str, &str)]| -> Vec<Value> {
        conditions.iter().map(|(of, status)| condition(of, status, "Reason", 1)).collect()
    };
    // A status lists its conditions in no order, and what it says has whole seconds.
    let mut short = object(
        &of(&[("Finished", "True"), ("PodsReady", "True"), ("Admitted", "True"), ("QuotaReserved", "True")]),
        &[check("machines", "Ready", 1)],
    );
    short.metadata.creation_timestamp =
        short.status.conditions.first().map(|c| c.last_transition_time.clone());
    let all = ["queued", "reserved", "checkReady", "admitted", "started", "finished"];
    assert_eq!(whats(&lived(&Store::default(), &short, (None, &[]))), all);
    // So it is with what events say, which have parts of seconds.
    let events = [
        event("QuotaReserved", "", "01:01.700000"),
        event(
            "AdmissionCheckUpdated",
            "Admission check budget updated state from Pending to Ready",
            "01:01.600000",
        ),
        event("Admitted", "", "01:01.500000"),
    ];
    let bare = object(&of(&[("PodsReady", "True")]), &[]);
    let life = lived(&Store::default(), &bare, (Some(&events), &[]));
    assert_eq!(whats(&life), ["queued", "reserved", "checkReady", "admitted", "started"]);
    // What waits again comes after its eviction, and what never had quota before all else.
    let evicted = object(
        &of(&[("Requeued", "True"), ("PodsReady", "False"), ("QuotaReserved", "False"), ("Evicted", "True")]),
        &[],
    );
    let again = ["queued", "evicted", "podsNotReady", "waiting", "Requeued"];
    assert_eq!(whats(&lived(&Store::default(), &evicted, (None, &[]))), again);
    let journal = [line(61, json!({"what": "QuotaReserved", "usage": {}}))];
    let waits = object(&of(&[("QuotaReserved", "False")]), &[]);
    assert_eq!(whats(&lived(&Store::default(), &waits, (None, &journal))), ["queued", "waiting", "reserved"]);
}

#[test]
fn a_reservation_of_seconds_before_is_shown_beside_the_one_that_followed() {
    let usage = json!({"spot": {"cpu": "1"}});
    let reserved = |second: u32| line(second, json!({"what": "QuotaReserved", "usage": usage}));
    let evicted =
        line(63, json!({"what": "Evicted", "reason": "Preempted/InClusterQueue", "message": "why"}));
    let now = object(&[condition("QuotaReserved", "True", "QuotaReserved", 4)], &[]);
    let expected = ["queued", "reserved", "preempted", "reserved"];
    let journal = [reserved(62), evicted, reserved(64)];
    assert_eq!(whats(&lived(&Store::default(), &now, (Some(&[]), &journal))), expected);
    let events = [
        event("QuotaReserved", "", "01:02.100000"),
        event("EvictedDueToPreempted", "why", "01:03.200000"),
        event("QuotaReserved", "", "01:04.300000"),
    ];
    assert_eq!(whats(&lived(&Store::default(), &now, (Some(&events), &[]))), expected);
    assert_eq!(whats(&lived(&Store::default(), &now, (Some(&events), &journal))), expected, "shown once");
}

#[test]
fn checks_and_ready_pods_of_an_earlier_attempt_are_shown() {
    // The present attempt has neither, and its check is asked again.
    let now = object(
        &[condition("QuotaReserved", "True", "QuotaReserved", 50)],
        &[check("machines", "Pending", 50)],
    );
    let expected = [
        ("queued", ""),
        ("reserved", ""),
        ("checkReady", "machines"),
        ("admitted", ""),
        ("started", ""),
        ("preempted", "Preempted/InClusterQueue"),
        ("reserved", "QuotaReserved"),
        ("checkPending", "machines"),
    ];
    let journal = [
        line(62, json!({"what": "QuotaReserved", "usage": {}})),
        line(63, json!({"what": "Checked", "check": "machines", "state": "Ready", "message": "here"})),
        line(63, json!({"what": "Admitted"})),
        line(70, json!({"what": "PodsReady"})),
        line(80, json!({"what": "Evicted", "reason": "Preempted/InClusterQueue", "message": "why"})),
    ];
    let life = lived(&Store::default(), &now, (Some(&[]), &journal));
    let shown: Vec<_> = life.iter().map(|(what, why)| (what.as_str(), why.as_str())).collect();
    assert_eq!(shown, expected);
    // Without a journal: what is remembered of its conditions, and events about its checks, of which none is of its pods.
    let store = Store::default();
    let note = |object: &slim::Workload| {
        store.note(&Input::Applied(Object::Workload(Box::new(object.clone()))));
    };
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", 2);
    let admitted = condition("Admitted", "True", "Admitted", 3);
    let ready = condition("PodsReady", "True", "Started", 10);
    note(&object(&[reserved.clone(), admitted.clone(), ready.clone()], &[]));
    note(&object(&[reserved, admitted, ready, condition("Evicted", "True", "Preempted", 20)], &[]));
    note(&now);
    let text = "Admission check machines updated state from Pending to Ready with message: it goes to Ready";
    let events = [
        event("AdmissionCheckUpdated", text, "01:03.000004"),
        event(
            "AdmissionCheckUpdated",
            "Admission check odd updated state from Pending to <b>",
            "01:04.000000",
        ),
        event(
            "AdmissionCheckRejected",
            "Deactivated due to AdmissionCheck in Rejected state: \"budget\" (never)",
            "01:15.000000",
        ),
        event("EvictedDueToPreempted", "why", "01:20.200000"),
    ];
    let life = lived(&store, &now, (Some(&events), &[]));
    let shown: Vec<_> = life.iter().map(|(what, why)| (what.as_str(), why.as_str())).collect();
    let expected = [
        ("queued", ""),
        ("reserved", "QuotaReserved"),
        ("checkReady", "machines"),
        ("admitted", "Admitted"),
        ("started", "Started"),
        ("checkRejected", "budget"),
        ("preempted", "Preempted"),
        ("reserved", "QuotaReserved"),
        ("checkPending", "machines"),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_check_is_decided_once_whatever_clocks_say() {
    let decided = |second: u32, state: &str| {
        line(second, json!({"what": "Checked", "check": "machines", "state": state}))
    };
    let reserved = |second: u32| line(second, json!({"what": "QuotaReserved", "usage": {}}));
    let shown = |checked: Value, journal: &[WorkloadLine]| {
        let now = object(&[condition("QuotaReserved", "True", "QuotaReserved", 1)], &[checked]);
        lived(&Store::default(), &now, (Some(&[]), journal))
            .into_iter()
            .map(|(what, _)| what)
            .collect::<Vec<_>>()
    };
    // The controller's clock is ahead: two replicas wrote their own times.
    let journal = [reserved(61), decided(62, "Ready"), decided(63, "Ready")];
    assert_eq!(shown(check("machines", "Ready", 40), &journal), ["queued", "reserved", "checkReady"]);
    // It was decided otherwise in between, or later.
    let journal = [reserved(61), decided(62, "Ready"), decided(63, "Retry"), decided(64, "Ready")];
    let expected = ["queued", "reserved", "checkReady", "checkRetry", "checkReady"];
    assert_eq!(shown(check("machines", "Ready", 40), &journal), expected);
    // What was decided in an attempt before is another decision.
    let journal = [reserved(20), decided(30, "Ready"), reserved(61)];
    let expected = ["queued", "reserved", "checkReady", "reserved", "checkReady"];
    let life = shown(check("machines", "Ready", 5), &journal);
    assert_eq!(life.iter().filter(|what| *what == "checkReady").count(), 2, "{life:?}");
    assert_eq!(life.len(), expected.len(), "{life:?}");
}

#[test]
fn a_life_shows_checks_and_evictions_in_the_order_of_their_times() {
    let conditions = [
        condition("QuotaReserved", "True", "QuotaReserved", 1),
        condition("Evicted", "True", "AdmissionCheck", 9),
    ];
    let checks = [check("machines", "Ready", 5), check("budget", "Pending", 3)];
    let object = object(&conditions, &checks);
    let store = Store::default();
    store.synced();
    let viewer = Viewer { all: true, ..Viewer::default() };
    let shown = workload(&store.fresh(), &viewer, &object, (None, &[]), None);
    let entry = |second: u32, what: &str, reason: &str, message: &str| {
        let at = format!("2026-01-01T00:01:{second:02}Z");
        json!({"at": at, "what": what, "reason": reason, "message": message})
    };
    let life = shown["life"].as_array().unwrap();
    assert_eq!(life[0]["what"], "queued");
    assert_eq!(
        life[1..],
        [
            entry(1, "reserved", "QuotaReserved", "QuotaReserved because of secret-message"),
            entry(3, "checkPending", "budget", "budget says so"),
            entry(5, "checkReady", "machines", "machines says so"),
            entry(9, "evicted", "AdmissionCheck", "Evicted because of secret-message"),
        ]
    );
}

#[test]
fn a_life_is_not_that_of_a_namesake_before() {
    let store = Store::default();
    store.synced();
    let of = |uid: &str, conditions: &[Value]| {
        let Object::Workload(mut workload) = a_workload("a", "w", conditions) else { unreachable!() };
        workload.metadata.uid = Some(uid.to_owned());
        *workload
    };
    let note = |workload: &slim::Workload| {
        store.note(&Input::Applied(Object::Workload(Box::new(workload.clone()))));
    };
    note(&of("first", &[condition("Evicted", "True", "Preempted", 3)]));
    let second = of("second", &[condition("QuotaReserved", "True", "QuotaReserved", 5)]);
    note(&second);
    let viewer = Viewer { all: true, ..Viewer::default() };
    let whats = |of: &slim::Workload| {
        let shown = workload(&store.fresh(), &viewer, of, (None, &[]), None);
        let life = shown["life"].as_array().unwrap().iter();
        life.map(|entry| entry["what"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(whats(&second), [json!("queued"), json!("reserved")]);
}

#[test]
fn evictions_whose_events_are_gone_are_shown_from_the_journal() {
    let held = json!({"spot": {"cpu": "1"}});
    let evicted = |reason: &str| json!({"what": "Evicted", "reason": reason, "message": "why"});
    let journal = [
        line(10, json!({"what": "Pending", "reason": "Pending", "message": ""})),
        line(20, json!({"what": "QuotaReserved", "usage": held})),
        line(21, json!({"what": "Admitted"})),
        line(30, evicted("Preempted/InCohortReclamation")),
        line(
            31,
            json!({"what": "Released", "since": "2026-01-01T00:00:20Z", "outcome": "Evicted", "usage": held}),
        ),
        line(40, evicted("AdmissionCheck")),
        line(50, evicted("NodeFailures")),
        // Its condition says the same.
        line(61, json!({"what": "QuotaReserved", "usage": held})),
    ];
    let object = object(&[condition("QuotaReserved", "True", "QuotaReserved", 1)], &[]);
    // There are no events any more.
    let life = lived(&Store::default(), &object, (Some(&[]), &journal));
    let shown: Vec<_> = life.iter().map(|(what, reason)| (what.as_str(), reason.as_str())).skip(1).collect();
    let expected = [
        ("reserved", ""),
        ("admitted", ""),
        ("preempted", "Preempted/InCohortReclamation"),
        ("evicted", "AdmissionCheck"),
        ("hotswap", "NodeFailures"),
        ("reserved", "QuotaReserved"),
    ];
    assert_eq!(shown, expected);
}
