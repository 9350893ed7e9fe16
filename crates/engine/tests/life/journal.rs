//! The journal's lines about a Workload's lifecycle, and the ledger that results from them (docs/tasks/journal.md).

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::json;
use sluice_api::journal::ledger::{Collector, Ledger, hours};
use sluice_api::journal::{Event, Line, Outcome, WorkloadLine};
use sluice_engine::{Effect, EngineConfig, Input, Kind, Object, ObjectRef};

use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};
use crate::readiness::for_pods;

/// A cluster with a journal, and one ClusterQueue of `cpu` processors in which the more important job preempts.
fn cluster(cpu: &str) -> Cluster {
    cluster_of(cpu, EngineConfig::default())
}

fn cluster_of(cpu: &str, config: EngineConfig) -> Cluster {
    let mut c = Cluster::new(EngineConfig { journal: true, status_interval_ms: 0, ..config });
    c.api.namespace("team-a", &[]);
    c.api.simple(cpu, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.priority_class("high", 100);
    c.settle();
    c
}

fn add(c: &mut Cluster, name: &str, count: i32, class: Option<&str>) {
    let mut view = job("team-a", name, "lq", count, "1");
    view.workload_priority_class = class.map(str::to_owned);
    c.api.add_job(view);
    c.settle();
}

fn about(c: &Cluster, job: &str) -> Vec<WorkloadLine> {
    let line = |line: &Line| match line {
        Line::Workload(line) if line.workload.starts_with(&format!("job-{job}-")) => Some((**line).clone()),
        _ => None,
    };
    c.journal.iter().filter_map(line).collect()
}

/// What happened to a job, in a word or three.
fn story(c: &Cluster, job: &str) -> Vec<String> {
    let say = |line: WorkloadLine| match line.event {
        Event::Pending(why) => format!("Pending {}", why.reason),
        Event::QuotaReserved { held } => format!("QuotaReserved {}", held.usage["default"]["cpu"]),
        Event::Holding { held, admitted, .. } => {
            let admitted = if admitted.is_some() { ", admitted" } else { "" };
            format!("Holding {}{admitted}", held.usage["default"]["cpu"])
        }
        Event::Resized { held, .. } => format!("Resized {}", held.usage["default"]["cpu"]),
        Event::Checked { check, state, message } => format!("Checked {check} {state:?} {message}"),
        Event::Admitted => "Admitted".to_owned(),
        Event::PodsReady => "PodsReady".to_owned(),
        Event::Evicted(why) => format!("Evicted {}", why.reason),
        Event::Released { outcome, reason, .. } => format!("Released {outcome:?} {reason}"),
        Event::Finished(why) => format!("Finished {}", why.reason),
        Event::Deleted => "Deleted".to_owned(),
    };
    about(c, job).into_iter().map(say).collect()
}

fn ledger(c: &Cluster, since: Timestamp) -> Ledger {
    let mut collector = Collector::default();
    c.journal.iter().cloned().for_each(|line| collector.take(line));
    collector.ledger(since, c.now)
}

/// Processor seconds: all, by what was evicted, by what failed.
fn seconds(ledger: &Ledger) -> [i64; 3] {
    let sum = |of: fn(&sluice_api::journal::ledger::Used) -> i128| {
        let all: i128 = ledger.accounts.values().map(of).sum();
        #[expect(clippy::cast_possible_truncation, reason = "small whole numbers")]
        let seconds = (hours("cpu", all) * 3600.0).round() as i64;
        seconds
    };
    [sum(|used| used.total), sum(|used| used.evicted), sum(|used| used.failed)]
}

#[test]
fn a_whole_life_is_written_down_with_its_reasons() {
    let mut c = cluster("2");
    let start = c.now;
    add(&mut c, "low", 2, None);
    c.advance(10);
    add(&mut c, "high", 1, Some("high"));
    c.advance(10);
    c.api.finish_job("high", true);
    c.advance(10);
    c.api.finish_job("low", false);
    c.advance(1);
    c.api.delete_job("low");
    c.advance(1);
    let low = story(&c, "low");
    let expected = [
        "QuotaReserved 2",
        "Admitted",
        "Evicted Preempted/InClusterQueue",
        "Released Evicted Preempted",
        "QuotaReserved 2",
        "Admitted",
        "Finished Failed",
        "Released Failed Failed",
        "Deleted",
    ];
    let without_waiting: Vec<_> = low.iter().filter(|said| !said.starts_with("Pending")).collect();
    assert_eq!(without_waiting, expected, "{low:#?}");
    assert!(low.iter().any(|said| said.starts_with("Pending")), "{low:?}");
    let queues: BTreeSet<_> =
        about(&c, "low").into_iter().map(|line| (line.local_queue, line.cluster_queue)).collect();
    assert_eq!(queues, BTreeSet::from([("lq".to_owned(), "cq".to_owned())]));
    let ledger = ledger(&c, start);
    // 10 s of two, lost to the eviction; 10 s of one; 10 s of two that failed.
    assert_eq!(seconds(&ledger), [50, 20, 20]);
    let place = ledger.places.values().next().unwrap();
    assert_eq!((place.borrowed, place.used * 64), (0, place.nominal * 50), "two for 32 s");
}

#[test]
fn why_a_workload_is_refused_is_written_down_as_its_condition_says_it() {
    let mut c = cluster("2");
    add(&mut c, "large", 3, None);
    c.advance(10);
    let refusal = |line: WorkloadLine| match line.event {
        Event::Pending(why) => Some(format!("False/{}: {}", why.reason, why.message)),
        _ => None,
    };
    let said: Vec<String> = about(&c, "large").into_iter().filter_map(refusal).collect();
    let condition = reported(&c.workload("large"), "QuotaReserved");
    let why = "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered podsets \
               requests (0) + current podset request (3) > maximum capacity (2)";
    assert!(condition.ends_with(why), "{condition}");
    assert_eq!(said.last(), Some(&condition), "{said:?}");
}

#[test]
fn what_checks_said_and_that_pods_were_ready_is_written_down_for_each_attempt() {
    let waits = EngineConfig { wait_for_pods_ready: Some(for_pods()), ..EngineConfig::default() };
    let mut c = cluster_of("2", waits);
    c.api.active_check("prov");
    c.api.simple("2", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
    c.settle();
    add(&mut c, "a", 2, None);
    let workload = Api::workload_ref(&c.workload("a"));
    let answer = |c: &mut Cluster, state: &str, at: Timestamp| {
        let at = at.to_string();
        c.api.edit_status(&workload, |status| {
            let check = &mut status["admissionChecks"][0];
            (check["state"], check["lastTransitionTime"]) = (json!(state), json!(at));
            check["message"] = json!(format!("says {state}"));
        });
        c.settle();
    };
    c.advance(10);
    let first = c.now;
    answer(&mut c, "Ready", first);
    c.api.edit_job("a", |job| job.view.pods_ready = true);
    c.settle();
    c.advance(10);
    // It wants to be tried again, and its clock is wrong.
    answer(&mut c, "Retry", Timestamp::UNIX_EPOCH);
    let second = c.now;
    c.advance(10);
    let third = c.now;
    answer(&mut c, "Ready", third);
    let steps = ["Checked", "Admitted", "PodsReady", "Evicted", "QuotaReserved"];
    let lines = story(&c, "a");
    let lines: Vec<_> = lines.iter().filter(|line| steps.iter().any(|step| line.starts_with(step))).collect();
    let expected = [
        "QuotaReserved 2",
        "Checked prov Ready says Ready",
        "Admitted",
        "PodsReady",
        "Checked prov Retry says Retry",
        "Evicted AdmissionCheck",
        "QuotaReserved 2",
        "Checked prov Ready says Ready",
        "Admitted",
    ];
    assert_eq!(lines, expected);
    let of_checks = about(&c, "a").into_iter().filter(|line| matches!(line.event, Event::Checked { .. }));
    let of_checks: Vec<_> = of_checks.map(|line| (line.at, line.cluster_queue)).collect();
    assert_eq!(of_checks[0], (first, "cq".to_owned()));
    assert_eq!(of_checks[1].0, second, "no time before its reservation");
}

#[test]
fn what_a_queue_uses_of_its_cohort_is_borrowed_for_as_long_as_it_does() {
    let mut c =
        Cluster::new(EngineConfig { journal: true, status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    let cohort = json!({"cohortName": "co"});
    c.api.simple("2", &cohort);
    c.api.cluster_queue("lender", "default", "4", &cohort);
    c.api.local_queue("team-a", "lends", "lender");
    c.settle();
    let start = c.now;
    // Three, of which one is borrowed, for 10 s; five, of which three are, for 10 s; then two.
    add(&mut c, "wide", 3, None);
    c.advance(10);
    add(&mut c, "more", 2, None);
    c.advance(10);
    c.api.finish_job("wide", true);
    c.advance(10);
    c.api.finish_job("more", true);
    c.advance(1);
    let ledger = ledger(&c, start);
    assert_eq!(seconds(&ledger), [100, 0, 0]);
    let place = |queue: &str| {
        let of = |name: &str| name.to_owned();
        ledger.places[&(of(queue), of("default"), of("cpu"))]
    };
    let own = place("cq");
    assert_eq!((own.borrowed * 100, own.nominal * 100), (own.used * 40, own.used * 62), "{own:?}");
    let lender = place("lender");
    assert_eq!((lender.used, lender.borrowed, lender.nominal), (0, 0, own.nominal * 2));
}

#[test]
fn pods_that_are_over_are_not_counted_on() {
    let mut c = cluster("4");
    let start = c.now;
    add(&mut c, "a", 4, None);
    c.advance(10);
    c.api.edit_job("a", |job| job.view.reclaimable = vec![("main".to_owned(), 3)]);
    c.advance(5);
    c.restart();
    c.advance(5);
    c.api.finish_job("a", true);
    c.advance(1);
    let said = story(&c, "a");
    assert_eq!(
        said.iter().filter(|said| !said.starts_with("Pending")).collect::<Vec<_>>(),
        [
            "QuotaReserved 4",
            "Admitted",
            "Resized 1",
            "Holding 1, admitted",
            "Finished Succeeded",
            "Released Finished Succeeded"
        ]
    );
    assert_eq!(seconds(&ledger(&c, start)), [50, 0, 0]);
    // In any order, and by those lines alone that came after the resize.
    c.journal.reverse();
    assert_eq!(seconds(&ledger(&c, start)), [50, 0, 0]);
    c.journal.retain(|line| line.at() > start);
    assert_eq!(seconds(&ledger(&c, start)), [50, 0, 0]);
}

#[test]
fn what_another_process_writes_down_again_counts_once() {
    let mut c = cluster("2");
    let start = c.now;
    add(&mut c, "a", 2, None);
    c.advance(10);
    // A new process, then one that follows another's lead.
    c.restart();
    c.advance(10);
    assert_eq!(story(&c, "a").last().map(String::as_str), Some("Holding 2, admitted"));
    c.engine.apply(c.now, Input::Leader(false));
    c.api.delete_job("a");
    let workload = c.api.names(Kind::Workload).remove(0);
    c.api.edit(&workload, &json!({"metadata": {"finalizers": null}}));
    c.api.delete(&workload);
    c.settle();
    assert_eq!(story(&c, "a").last().map(String::as_str), Some("Deleted"), "a follower writes, too");
    c.advance(10);
    assert_eq!(seconds(&ledger(&c, start)), [40, 0, 0]);
}

#[test]
fn a_reservation_that_was_renewed_unseen_ends_where_the_next_begins() {
    let mut c = cluster("2");
    let start = c.now;
    add(&mut c, "a", 2, None);
    c.advance(10);
    let workload = c.api.names(Kind::Workload).remove(0);
    let later = c.now.to_string();
    c.api.edit_status(&workload, |status| {
        for condition in status["conditions"].as_array_mut().unwrap() {
            if condition["type"] == "QuotaReserved" {
                condition["lastTransitionTime"] = json!(later);
            }
        }
    });
    c.advance(10);
    let releases: Vec<_> =
        about(&c, "a").into_iter().filter(|l| matches!(l.event, Event::Released { .. })).collect();
    assert!(
        matches!(releases[..], [WorkloadLine { at, .. }] if at == start + jiff::SignedDuration::from_secs(10))
    );
    let Event::Released { outcome, .. } = &releases[0].event else { panic!() };
    assert_eq!(*outcome, Outcome::Evicted);
    assert_eq!(seconds(&ledger(&c, start)), [40, 20, 0]);
}

#[test]
fn quota_counts_from_its_change_until_its_queue_goes() {
    let mut c = cluster("2");
    let start = c.now;
    c.advance(10);
    let quota = |cpu: &str| {
        let resource = json!({"name": "cpu", "nominalQuota": cpu});
        let flavor = json!({"name": "default", "resources": [resource]});
        json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}})
    };
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&queue, &quota("5"));
    c.advance(10);
    c.api.delete(&queue);
    c.settle();
    c.advance(10);
    let nominal: i128 = ledger(&c, start).places.values().map(|place| place.nominal).sum();
    assert_eq!(nominal, 1000 * 1000 * (2 * 10 + 5 * 10), "thousandths of a processor times milliseconds");
}

#[test]
fn nothing_is_made_without_a_journal() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    add(&mut c, "a", 1, None);
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    assert!(c.journal.is_empty());
}

/// The lines of its end went with the process that saw it.
#[test]
fn the_end_that_no_process_wrote_down_is_written_by_the_next_one() {
    let mut c = cluster("2");
    let start = c.now;
    add(&mut c, "a", 2, None);
    c.advance(10);
    c.api.finish_job("a", true);
    c.advance(1);
    let ended = |line: &Line| matches!(line, Line::Workload(line) if matches!(line.event, Event::Finished(_) | Event::Released { .. }));
    let before = seconds(&ledger(&c, start));
    let whole = story(&c, "a");
    c.journal.retain(|line| !ended(line));
    c.restart();
    c.advance(60);
    assert_eq!(story(&c, "a"), whole);
    assert_eq!(seconds(&ledger(&c, start)), before);
    // Written twice, it counts once. What ended long ago has been written down.
    c.restart();
    c.settle();
    assert_eq!(seconds(&ledger(&c, start)), before);
    let known = story(&c, "a").len();
    c.advance(3600);
    c.restart();
    c.settle();
    assert_eq!(story(&c, "a").len(), known);
}

/// A restart of a busy manager: the lines of what had ended do not push out those of what continues.
#[test]
fn ends_that_are_written_once_more_are_bounded_and_the_rest_is_a_number() {
    let c = cluster("2");
    let config = EngineConfig { journal: true, ..EngineConfig::default() };
    let mut engine = sluice_engine::Engine::new(config);
    let end = |number: i64, ended: Timestamp| {
        let condition = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": ended.to_string()});
        let object = json!({
            "metadata": {"name": format!("w-{number}"), "namespace": "team-a", "uid": format!("u-{number}"), "resourceVersion": "1"},
            "spec": {"queueName": "lq", "podSets": []}, "status": {"conditions": [condition]},
        });
        Input::Applied(Object::Workload(serde_json::from_value(object).unwrap()))
    };
    let lines = |engine: &mut sluice_engine::Engine| {
        let (mut ends, mut missed) = (0, Vec::new());
        for effect in engine.take_effects() {
            if let Effect::Journal(line) = effect {
                match *line {
                    Line::Workload(_) => ends += 1,
                    Line::Missed(line) => missed.push(line.missed),
                    line => panic!("{line:?}"),
                }
            }
        }
        (ends, missed)
    };
    for number in 0..1_200 {
        engine.apply(c.now, end(number, c.now));
    }
    // What ended long ago is no part of it.
    engine.apply(c.now, end(2_000, c.now - jiff::SignedDuration::from_hours(2)));
    assert_eq!(lines(&mut engine), (1000, vec![]));
    engine.apply(c.now, Input::Synced);
    assert_eq!(lines(&mut engine), (0, vec![200]));
    // From then on each is new.
    engine.apply(c.now, end(3_000, c.now));
    assert_eq!(lines(&mut engine), (1, vec![]));
}

#[test]
fn a_change_of_quota_says_what_it_was_before() {
    let mut c = cluster("2");
    c.api.simple("4", &json!({}));
    c.settle();
    let quotas = |c: &Cluster| {
        let lines = c.journal.iter().filter_map(|line| match line {
            Line::Quota(line) => Some((line.before.clone(), line.nominal.clone(), line.created.is_some())),
            _ => None,
        });
        let cpu = |usage: &std::collections::BTreeMap<String, std::collections::BTreeMap<String, String>>| {
            usage.get("default").map_or("none", |flavor| flavor["cpu"].as_str()).to_owned()
        };
        lines.map(|(before, now, made)| (before.as_ref().map(cpu), cpu(&now), made)).collect::<Vec<_>>()
    };
    let known = quotas(&c);
    assert_eq!(known.last().unwrap(), &(Some("2".to_owned()), "4".to_owned(), true), "{known:?}");
    // What a queue that stood already had before is not known. One that is made has had nothing.
    c.restart();
    c.settle();
    assert_eq!(quotas(&c)[known.len()..], [(None, "4".to_owned(), true)]);
}

#[test]
fn a_queue_that_is_stopped_and_continues_has_a_line_each_time() {
    let mut c = cluster("2");
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    for policy in ["Hold", "None"] {
        c.advance(10);
        c.api.edit(&queue, &json!({"spec": {"stopPolicy": policy}}));
        c.settle();
    }
    let lines = c.journal.iter().filter_map(|line| match line {
        Line::Quota(line) => Some([line.stop_policy_before, line.stop_policy].map(|policy| json!(policy))),
        _ => None,
    });
    assert_eq!(lines.collect::<Vec<_>>(), [["None", "None"], ["None", "Hold"], ["Hold", "None"]]);
}

#[test]
fn a_local_queue_has_a_line_when_it_stops_or_continues_and_none_otherwise() {
    let mut c = cluster("2");
    let queue = ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq");
    let said = |c: &Cluster| {
        let lines = c.journal.iter().filter_map(|line| match line {
            Line::LocalQueue(line) => Some(json!([line.stop_policy_before, line.stop_policy, line.deleted])),
            _ => None,
        });
        lines.collect::<Vec<_>>()
    };
    assert!(said(&c).is_empty());
    let set = |c: &mut Cluster, policy: &str| {
        c.advance(10);
        c.api.edit(&queue, &json!({"spec": {"stopPolicy": policy}}));
    };
    for policy in ["Hold", "HoldAndDrain", "None", "Hold"] {
        set(&mut c, policy);
        c.settle();
    }
    let mut lines = vec![
        json!(["None", "Hold", false]),
        json!(["Hold", "HoldAndDrain", false]),
        json!(["HoldAndDrain", "None", false]),
        json!(["None", "Hold", false]),
    ];
    assert_eq!(said(&c), lines);
    // A process that begins says which are stopped, and which were when the one before it ended.
    c.restart();
    set(&mut c, "None");
    c.restart();
    c.settle();
    lines.extend([json!([null, "Hold", false]), json!([null, "None", false])]);
    assert_eq!(said(&c), lines);
    set(&mut c, "Hold");
    c.settle();
    c.api.delete(&queue);
    c.settle();
    lines.extend([json!(["None", "Hold", false]), json!(["Hold", "None", true])]);
    assert_eq!(said(&c), lines);
}
