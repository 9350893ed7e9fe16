//! The view of one Workload: its whole life, from the object.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::conditions::reason;
use sluice_api::journal::{self, WorkloadLine};
use sluice_api::slim;
use sluice_api::v1beta2::PodSetAssignment;
use sluice_sim::explain::Event;

use super::items::item;
use crate::dashboard::happening::{Happening, word};
use crate::dashboard::placed::lowest;
use crate::dashboard::rows::{Fact, WorkloadRow, controller};
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::viewer::Viewer;

/// A condition and an event this close together report the same.
const SAME: SignedDuration = SignedDuration::from_secs(5);
/// Nodes of a pod set that are shown at most.
const MOST_NODES: usize = 1000;

/// The answer, for a viewer who may see the Workload. `past` has its events, if they may be read, and the journal's lines.
pub fn workload(
    snapshot: &Snapshot,
    viewer: &Viewer,
    workload: &slim::Workload,
    past: (Option<&[Value]>, &[WorkloadLine]),
    position: Option<usize>,
) -> Value {
    let row = WorkloadRow::of(workload);
    let mut item = item(&row, position, viewer);
    item["clusterQueue"] = json!(snapshot.queue_of(&row));
    json!({
        "item": item,
        "job": job(workload),
        "life": life(snapshot, &row, workload, past),
        "podSets": pod_sets(workload, viewer),
        "checks": checks(workload),
    })
}

fn job(workload: &slim::Workload) -> Value {
    let owner = controller(workload.metadata.owner_references.as_deref());
    owner.map_or(Value::Null, |owner| json!({"kind": owner.kind, "name": owner.name}))
}

/// One entry of a life.
type Entry = (Timestamp, String, String, String);

fn life(
    snapshot: &Snapshot,
    row: &WorkloadRow,
    workload: &slim::Workload,
    (events, journal): (Option<&[Value]>, &[WorkloadLine]),
) -> Vec<Value> {
    let mut entries: Vec<Entry> = Vec::new();
    if let Some(created) = row.created {
        entries.push((created, "queued".to_owned(), String::new(), String::new()));
    }
    for condition in &workload.status.conditions {
        let at = condition.last_transition_time.0;
        let fact = row.facts.iter().find(|fact| fact.of.as_str() == condition.type_);
        let what = match fact {
            Some(fact) => of_fact(fact),
            None if condition.type_ == "QuotaReserved" => "waiting".to_owned(),
            None if condition.type_ == "PodsReady" => "podsNotReady".to_owned(),
            // A condition that is no longer true is left out: the one that followed it says more.
            None => continue,
        };
        entries.push((at, what, condition.reason.clone(), condition.message.clone()));
    }
    for check in &workload.status.admission_checks {
        let what = format!("check{:?}", check.state);
        entries.push((check.last_transition_time.0, what, check.name.clone(), check.message.clone()));
    }
    // Conditions of the past are in the journal, and for an hour in its events. If those cannot be read, the remembered changes of the whole cluster
    // are used.
    let past: Vec<Entry> = match events {
        Some(events) => Event::all(events).iter().filter_map(of_event).collect(),
        None => snapshot.recent.iter().filter(|one| is_of(one, row)).filter_map(of_happening).collect(),
    };
    for one in past.into_iter().chain(journal.iter().filter_map(of_line)) {
        if !entries.iter().any(|entry| entry.1 == one.1 && entry.0.duration_since(one.0).abs() <= SAME) {
            entries.push(one);
        }
    }
    entries.sort();
    let shown = |(at, what, reason, message): Entry| json!({"at": at.to_string(), "what": what, "reason": reason, "message": message});
    entries.into_iter().map(shown).collect()
}

/// The entry for an event: with the word that its condition has, too.
fn of_event(event: &Event) -> Option<Entry> {
    let what = match (event.reason.as_str(), event.condition()?.0) {
        ("QuotaReserved", _) => "reserved",
        ("EvictedDueToPreempted", _) => "preempted",
        ("EvictedDueToNodeFailures", _) => "hotswap",
        (_, "Admitted") => "admitted",
        (_, "Evicted") => "evicted",
        (_, "QuotaReserved") => "waiting",
        // Its eviction says the same.
        _ => return None,
    };
    Some((event.at, what.to_owned(), event.reason.clone(), event.message.clone()))
}

/// The entry for a line of the journal, with the words of events.
fn of_line(line: &WorkloadLine) -> Option<Entry> {
    let (what, why) = match &line.event {
        journal::Event::QuotaReserved { .. } => ("reserved", None),
        journal::Event::Admitted => ("admitted", None),
        journal::Event::Evicted(why) => {
            let what = match why.reason.split('/').next() {
                Some(reason::PREEMPTED) => "preempted",
                Some(reason::NODE_FAILURES) => "hotswap",
                _ => "evicted",
            };
            (what, Some(why))
        }
        _ => return None,
    };
    let (reason, message) = why.map(|why| (why.reason.clone(), why.message.clone())).unwrap_or_default();
    Some((line.at, what.to_owned(), reason, message))
}

fn of_happening(past: &Happening) -> Option<Entry> {
    let words = (past.reason.to_string(), past.message.to_string());
    (past.what != "pending").then(|| (past.at, past.what.to_owned(), words.0, words.1))
}

/// A namesake before it had a life of its own.
fn is_of(happening: &Happening, row: &WorkloadRow) -> bool {
    happening.key == row.key && happening.uid == row.uid
}

fn of_fact(fact: &Fact) -> String {
    word(fact).map_or_else(|| fact.of.as_str().to_owned(), str::to_owned)
}

/// Only viewers who may list nodes get their names; all viewers get their number.
fn pod_sets(workload: &slim::Workload, viewer: &Viewer) -> Vec<Value> {
    let admission = workload.status.admission.as_ref();
    let assigned = |name: &str| -> Option<&PodSetAssignment> {
        admission?.pod_set_assignments.iter().find(|assigned| assigned.name == name)
    };
    let shown = |pod_set: &slim::PodSet| {
        let assigned = assigned(&pod_set.name);
        let topology = assigned.and_then(|assigned| assigned.topology_assignment.as_ref());
        let named = topology.filter(|_| viewer.nodes);
        let nodes =
            named.map(|topology| lowest(topology).take(MOST_NODES).map(|(node, _)| node).collect::<Vec<_>>());
        json!({
            "name": pod_set.name,
            "count": assigned.and_then(|assigned| assigned.count).unwrap_or(pod_set.count),
            "flavors": assigned.map(|assigned| &assigned.flavors),
            "nodeCount": topology.map(|topology| lowest(topology).count()),
            "nodes": nodes,
        })
    };
    workload.spec.pod_sets.iter().map(shown).collect()
}

fn checks(workload: &slim::Workload) -> Vec<Value> {
    let shown = |check: &sluice_api::v1beta2::AdmissionCheckState| json!({"name": check.name, "state": check.state, "message": check.message});
    workload.status.admission_checks.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_engine::input::{Input, Object};

    use super::*;
    use crate::dashboard::store::Store;
    use crate::dashboard::store::tests::{condition, workload as a_workload};

    #[test]
    fn a_life_has_checks_and_evictions_in_the_order_of_their_times() {
        let conditions = [
            condition("QuotaReserved", "True", "QuotaReserved", 1),
            condition("Evicted", "True", "AdmissionCheck", 9),
        ];
        let Object::Workload(mut object) = a_workload("a", "w", &conditions) else { unreachable!() };
        let check = |name: &str, state: &str, second: u32| {
            json!({
                "name": name, "state": state, "message": format!("{name} says so"),
                "lastTransitionTime": format!("2026-01-01T00:01:{second:02}Z"),
            })
        };
        let checks = json!([check("machines", "Ready", 5), check("budget", "Pending", 3)]);
        object.status.admission_checks = serde_json::from_value(checks).unwrap();
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
    fn evictions_whose_events_are_gone_are_reported_from_the_journal() {
        let line = |second: u32, more: Value| -> WorkloadLine {
            let mut line = json!({
                "at": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60), "namespace": "a", "workload": "w", "uid": "u",
                "localQueue": "lq", "clusterQueue": "cq",
            });
            line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(line).unwrap()
        };
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
        let Object::Workload(object) =
            a_workload("a", "w", &[condition("QuotaReserved", "True", "QuotaReserved", 1)])
        else {
            unreachable!()
        };
        let store = Store::default();
        store.synced();
        let viewer = Viewer { all: true, ..Viewer::default() };
        // The events have expired.
        let shown = workload(&store.fresh(), &viewer, &object, (Some(&[]), &journal), None);
        let told: Vec<_> = shown["life"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                let text = |field: &str| entry[field].as_str().unwrap().to_owned();
                (text("what"), text("reason"))
            })
            .collect();
        let told: Vec<_> =
            told.iter().map(|(what, reason)| (what.as_str(), reason.as_str())).skip(1).collect();
        let expected = [
            ("reserved", ""),
            ("admitted", ""),
            ("preempted", "Preempted/InCohortReclamation"),
            ("evicted", "AdmissionCheck"),
            ("hotswap", "NodeFailures"),
            ("reserved", "QuotaReserved"),
        ];
        assert_eq!(told, expected, "{shown}");
    }
}
