//! The number of writes per lifecycle (docs/manual/performance.md "Writes"): exact counts, with the configuration of a running manager.

use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_engine::{EngineConfig, Gather, Kind, ObjectRef, Purpose, WriteError};

use crate::contract::cq;
use crate::model::build::{job, template};
use crate::model::{Api, Cluster, condition, reported};

const HEAD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

/// A cluster as the manager runs it, with one ClusterQueue of `cpu` processors.
pub fn cluster(more: &str, cpu: &str, queue: &Value) -> Cluster {
    let (file, _) = Configuration::parse(&format!("{HEAD}{more}")).unwrap();
    // Whatever happens at a moment is decided on at that moment; `gather.rs` has the rest.
    let mut config = EngineConfig { gather: Gather::NONE, ..EngineConfig::from(&file) };
    if more.is_empty() {
        config.wait_for_pods_ready = None;
    }
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple(cpu, queue);
    c.advance(1);
    c.writes.clear();
    c
}

/// A user makes a Workload directly.
pub fn queued(c: &mut Cluster, name: &str, queue: &str, cpu: &str, priority: i32) -> ObjectRef {
    let template = serde_json::to_value(template(cpu)).unwrap();
    c.api.put(
        Kind::Workload,
        json!({
            "metadata": {"name": name, "namespace": "team-a"},
            "spec": {"queueName": queue, "priority": priority,
                "podSets": [{"name": "main", "count": 1, "template": template}]},
        }),
    )
}

/// A Workload that a user made directly.
fn direct(c: &mut Cluster, name: &str, cpu: &str, priority: i32) -> ObjectRef {
    let workload = queued(c, name, "lq", cpu, priority);
    c.settle();
    workload
}

/// Another client says that a Workload has finished.
pub fn finish(c: &mut Cluster, workload: &ObjectRef) {
    c.api.edit_status(workload, |status| {
        status["conditions"].as_array_mut().unwrap().push(json!({
            "type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }));
    });
    c.settle();
}

/// What was written on an object, in that order.
pub fn writes(c: &Cluster, object: &ObjectRef) -> Vec<Purpose> {
    c.writes.iter().filter(|(on, _)| on == object).map(|(_, purpose)| *purpose).collect()
}

/// What was written on Workloads and jobs.
fn all_writes(c: &Cluster) -> Vec<Purpose> {
    let on = |(object, purpose): &(ObjectRef, Purpose)| {
        matches!(object.kind, Kind::Workload | Kind::Job(_)).then_some(*purpose)
    };
    c.writes.iter().filter_map(on).collect()
}

/// Lets tenths of a second pass.
fn tenths(c: &mut Cluster, tenths: i64) {
    for _ in 0..tenths {
        c.now = c.now.checked_add(jiff::SignedDuration::from_millis(100)).unwrap();
        c.api.now = c.now;
        c.settle();
    }
}

#[test]
fn a_workload_that_is_admitted_at_once_takes_one_write() {
    let mut c = cluster("", "1", &json!({}));
    let w = direct(&mut c, "w", "1", 0);
    c.advance(60);
    finish(&mut c, &w);
    c.advance(3600);
    assert_eq!(writes(&c, &w), [Purpose::ReserveQuota]);
    assert_eq!(c.events.len(), 1, "{:?}", c.events);
}

#[test]
fn a_waiting_workload_gets_the_reason_only_if_it_still_waits_after_the_delay() {
    for (waits, expected) in
        [(4, &[Purpose::ReserveQuota][..]), (6, &[Purpose::Pend, Purpose::ReserveQuota][..])]
    {
        let mut c = cluster("", "1", &json!({}));
        let first = direct(&mut c, "first", "1", 0);
        let w = direct(&mut c, "w", "1", 0);
        assert_eq!(writes(&c, &w), [], "it is not reported yet");
        tenths(&mut c, waits);
        finish(&mut c, &first);
        c.advance(60);
        assert_eq!(writes(&c, &w), expected, "admitted after {waits} tenths of a second");
        let pending = c.events.iter().filter(|event| event.reason == "WaitingForQuota").count();
        assert_eq!(pending, expected.len() - 1, "the event comes with the write");
    }
}

#[test]
fn the_delay_is_longer_while_more_writes_wait() {
    let mut c = cluster("", "0", &json!({}));
    c.backlog(100, 0);
    let w = direct(&mut c, "w", "1", 0);
    tenths(&mut c, 29);
    assert_eq!(writes(&c, &w), []);
    tenths(&mut c, 1);
    assert_eq!(writes(&c, &w), [Purpose::Pend], "after 3 s");
    c.backlog(1_000_000, 0);
    let w = direct(&mut c, "v", "2", 0);
    c.advance(9);
    assert_eq!(writes(&c, &w), []);
    c.advance(1);
    assert_eq!(writes(&c, &w), [Purpose::Pend], "after 10 s at the latest");
}

fn reasons(c: &Cluster) -> usize {
    c.written(Purpose::Pend) + c.written(Purpose::Bypassed)
}

#[test]
fn while_the_api_server_is_busy_few_reasons_are_written_in_a_second() {
    let mut c = cluster("", "0", &json!({}));
    c.busy(true);
    for number in 0..200 {
        direct(&mut c, &format!("w{number:03}"), "1", 0);
    }
    tenths(&mut c, 5);
    assert_eq!(reasons(&c), 10, "what the last second left");
    c.advance(2);
    assert_eq!(reasons(&c), 30);
    // A Workload that is admitted meanwhile takes no turn.
    let first = c.api.names(Kind::Workload)[0].clone();
    assert_eq!(writes(&c, &first).len(), 1, "those that have waited longest come first");
    c.api.cluster_queue("cq", "default", "100", &json!({}));
    c.settle();
    assert_eq!(reasons(&c), 30);
    c.busy(false);
    c.advance(2);
    assert_eq!(reasons(&c), 30 + 100, "the rest follows");
}

#[test]
fn reasons_of_very_many_workloads_are_written_over_some_seconds() {
    let mut c = cluster("", "0", &json!({}));
    for number in 0..350 {
        direct(&mut c, &format!("w{number:03}"), "1", 0);
    }
    tenths(&mut c, 5);
    assert_eq!(reasons(&c), 100, "what the last second left");
    c.advance(2);
    assert_eq!(reasons(&c), 300);
    c.advance(10);
    assert_eq!(reasons(&c), 350, "each once");
}

#[test]
fn a_job_takes_three_writes_until_it_runs_and_two_at_its_end() {
    use Purpose::{CreateWorkload, Finish, PodsReady, ReleaseFinished, ReserveQuota, StartJob};
    const START: [Purpose; 3] = [CreateWorkload, ReserveQuota, StartJob];
    for (ready, expected) in [
        (true, &[CreateWorkload, ReserveQuota, StartJob, PodsReady, Finish, ReleaseFinished][..]),
        (false, &[CreateWorkload, ReserveQuota, StartJob, Finish, ReleaseFinished][..]),
    ] {
        let mut c = cluster("waitForPodsReady: {timeout: 5m}\n", "1", &json!({}));
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        c.settle();
        assert_eq!(all_writes(&c), START, "PodsReady comes with the admission");
        assert_eq!(condition(&c.workload("a"), "PodsReady"), "False");
        if ready {
            c.api.edit_job("a", |job| job.view.pods_ready = true);
            c.settle();
        }
        c.api.finish_job("a", true);
        c.advance(60);
        assert_eq!(all_writes(&c), expected);
    }
}

#[test]
fn preemption_and_the_way_back_take_four_writes_and_the_stop() {
    let mut c = cluster("", "1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.add_job(job("team-a", "low", "lq", 1, "1"));
    c.advance(60);
    c.writes.clear();
    let high = direct(&mut c, "high", "1", 1_000);
    tenths(&mut c, 3);
    assert_eq!(writes(&c, &high), [Purpose::ReserveQuota], "its victim stopped within the delay");
    finish(&mut c, &high);
    c.advance(60);
    let mut low = all_writes(&c);
    low.retain(|purpose| !matches!(purpose, Purpose::StopJob | Purpose::AskController));
    // One of the two admissions is that of the other Workload.
    let expected = [
        Purpose::Evict,
        Purpose::ReleaseQuota,
        Purpose::ReserveQuota,
        Purpose::ReserveQuota,
        Purpose::StartJob,
    ];
    assert_eq!(low, expected);
}

#[test]
fn an_hour_of_waiting_behind_others_takes_a_write_per_five_minutes_at_most() {
    let mut c = cluster("", "4", &json!({}));
    let mut running: Vec<_> = (0..4).map(|n| direct(&mut c, &format!("r{n}"), "1", 1)).collect();
    let waiting: Vec<_> = (0..5).map(|n| direct(&mut c, &format!("w{n}"), "4", 0)).collect();
    // Others of a higher priority come and go: numbers, and which comes first, change all the time.
    for step in 0..180 {
        let next = direct(&mut c, &format!("n{step}"), if step % 3 == 0 { "2" } else { "1" }, 1);
        running.push(next);
        let over = running.remove(0);
        if c.api.json(&over).unwrap()["status"]["admission"].is_object() {
            finish(&mut c, &over);
        } else {
            running.push(over);
        }
        c.advance(20);
    }
    for w in &waiting {
        let count = writes(&c, w).len();
        assert!((1..=12).contains(&count), "{count} writes on {w}");
    }
}

#[test]
fn figures_alone_are_no_reason_to_write() {
    let mut c = cluster("", "4", &json!({}));
    let running: Vec<_> = (0..4).map(|n| direct(&mut c, &format!("r{n}"), "1", 1)).collect();
    let w = direct(&mut c, "w", "4", 0);
    c.advance(60);
    let reason = |c: &Cluster| {
        reported(
            c.api.workloads().iter().find(|o| o.metadata.name.as_deref() == Some("w")).unwrap(),
            "QuotaReserved",
        )
    };
    let before = reason(&c);
    assert!(before.ends_with("4 more needed"), "{before}");
    for over in &running[..3] {
        finish(&mut c, over);
        c.advance(900);
    }
    assert_eq!(writes(&c, &w), [Purpose::Pend]);
    assert_eq!(reason(&c), before);
    // A change by an administrator is reported after the delay.
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "Hold"}}));
    c.advance(1);
    assert_eq!(reason(&c), "False/Suspended: ClusterQueue cq is inactive");
}

#[test]
fn a_workload_that_changes_its_size_while_it_waits_says_what_it_needs_now() {
    let mut c = cluster("", "4", &json!({}));
    direct(&mut c, "first", "2", 0);
    let w = direct(&mut c, "w", "4", 0);
    c.advance(60);
    let requests =
        |c: &Cluster| c.api.json(&w).unwrap()["status"]["resourceRequests"][0]["resources"]["cpu"].clone();
    assert_eq!(requests(&c), "4");
    let smaller = serde_json::to_value(template("3")).unwrap();
    c.api.edit(&w, &json!({"spec": {"podSets": [{"name": "main", "count": 1, "template": smaller}]}}));
    c.advance(60);
    assert_eq!(requests(&c), "3");
    c.advance(3600);
    assert_eq!(writes(&c, &w), [Purpose::Pend; 2]);
    let events = c.events.iter().filter(|event| event.reason == "WaitingForQuota").count();
    assert_eq!(events, 1, "the reason is the same");
}

#[test]
fn an_admission_does_not_wait_for_a_reason_that_has_not_been_sent() {
    let mut c = cluster("", "1", &json!({}));
    let first = direct(&mut c, "first", "1", 0);
    c.slow = Some(Purpose::Pend);
    let w = direct(&mut c, "w", "1", 0);
    c.advance(1);
    assert_eq!(writes(&c, &w), [Purpose::Pend], "it waits to be sent");
    finish(&mut c, &first);
    assert_eq!(c.withdrawn, 1);
    assert_eq!(writes(&c, &w), [Purpose::Pend, Purpose::ReserveQuota]);
    let gone = direct(&mut c, "gone", "2", 0);
    c.advance(1);
    c.api.delete(&gone);
    c.settle();
    assert_eq!(c.withdrawn, 2, "the reason of what is gone is of no use");
}

/// The API server refuses what is reported for now, for example because of a policy.
fn refused() -> WriteError {
    WriteError::Refused("no such luck".to_owned())
}

#[test]
fn what_victims_leave_does_not_go_to_others_because_a_reason_is_refused() {
    let mut c = cluster("", "1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.add_job(job("team-a", "victim", "lq", 1, "1"));
    c.advance(60);
    c.pods_vanish = false;
    c.refuse = Some((Purpose::Pend, refused()));
    let new = direct(&mut c, "new", "1", 1_000);
    let other = direct(&mut c, "other", "1", 999);
    c.advance(2);
    assert!(c.refused > 0);
    c.writes.clear();
    c.pods_vanish = true;
    tenths(&mut c, 5);
    assert_eq!(writes(&c, &new), [Purpose::ReserveQuota]);
    assert!(!writes(&c, &other).contains(&Purpose::ReserveQuota));
}

#[test]
fn an_admission_waits_only_for_the_answer_of_a_reason_that_is_refused() {
    let mut c = cluster("", "1", &json!({}));
    let first = direct(&mut c, "first", "1", 0);
    c.fail.push_back((Purpose::Pend, refused()));
    c.late = Some(Purpose::Pend);
    let w = direct(&mut c, "w", "1", 0);
    c.advance(1);
    finish(&mut c, &first);
    assert_eq!(writes(&c, &w), [Purpose::Pend], "it is sent");
    c.release();
    assert_eq!(writes(&c, &w), [Purpose::Pend, Purpose::ReserveQuota]);
    c.advance(600);
    assert_eq!(writes(&c, &w).len(), 2, "nothing is reported any more");
}

#[test]
fn a_deactivation_does_not_wait_until_readiness_may_be_written_again() {
    let mut c = cluster("waitForPodsReady: {timeout: 5m, blockAdmission: false}\n", "1", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.refuse = Some((Purpose::PodsReady, refused()));
    c.api.edit_job("a", |job| job.view.pods_ready = true);
    c.settle();
    c.writes.clear();
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    assert_eq!(writes(&c, &workload)[0], Purpose::Evict);
    assert_eq!(c.refused, 1);
}

#[test]
fn readiness_is_reported_in_time_although_the_reason_for_waiting_was_refused() {
    let mut c = cluster("waitForPodsReady: {timeout: 1m, blockAdmission: false}\n", "1", &json!({}));
    c.api.add_job(job("team-a", "first", "lq", 1, "1"));
    c.settle();
    c.api.edit_job("first", |job| job.view.pods_ready = true);
    c.settle();
    c.refuse = Some((Purpose::Pend, refused()));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    // By now it is tried minutes apart.
    c.advance(400);
    assert!(c.refused > 1);
    c.refuse = None;
    c.api.finish_job("first", true);
    c.settle();
    c.api.edit_job("a", |job| job.view.pods_ready = true);
    c.advance(5);
    assert_eq!(condition(&c.workload("a"), "PodsReady"), "True");
    c.advance(120);
    assert_eq!(c.written(Purpose::Evict), 0, "none ran into the timeout");
}

/// A cluster with a job whose readiness waits to be sent.
fn ready_to_be_sent(queue: &Value) -> Cluster {
    let mut c = cluster("waitForPodsReady: {timeout: 5m, blockAdmission: false}\n", "1", queue);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.slow = Some(Purpose::PodsReady);
    c.api.edit_job("a", |job| job.view.pods_ready = true);
    c.settle();
    assert_eq!(all_writes(&c).last(), Some(&Purpose::PodsReady), "it waits to be sent");
    c.writes.clear();
    c
}

#[test]
fn an_end_does_not_wait_for_readiness_that_has_not_been_sent() {
    let mut c = ready_to_be_sent(&json!({}));
    c.api.finish_job("a", true);
    c.settle();
    assert_eq!(c.withdrawn, 1);
    assert_eq!(all_writes(&c), [Purpose::Finish, Purpose::ReleaseFinished]);
    c.release();
    assert_eq!(c.withdrawn, 1);
}

#[test]
fn an_eviction_does_not_wait_for_readiness_that_has_not_been_sent() {
    let mut c = ready_to_be_sent(&json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    let high = direct(&mut c, "high", "1", 1_000);
    assert_eq!(c.withdrawn, 1);
    assert_eq!(all_writes(&c)[0], Purpose::Evict);
    c.advance(60);
    assert_eq!(writes(&c, &high).last(), Some(&Purpose::ReserveQuota));
}

#[test]
fn reasons_are_written_a_few_at_a_time_and_all_in_the_end() {
    let mut c = cluster("", "0", &json!({}));
    c.slow = Some(Purpose::Pend);
    for number in 0..100 {
        direct(&mut c, &format!("w{number}"), &(number + 1).to_string(), 0);
    }
    c.advance(20);
    assert_eq!(c.written(Purpose::Pend) + c.written(Purpose::Bypassed), 64);
    c.release();
    c.advance(1);
    assert_eq!(all_writes(&c).len(), 100);
}

#[test]
fn a_queue_under_load_gets_its_usage_once_a_second_at_most() {
    let fair = "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}\n";
    // All that is used is borrowed, by the Cohort too.
    let mut c = cluster(fair, "0", &json!({"cohortName": "team"}));
    let team = c.api.put(Kind::Cohort, json!({"metadata": {"name": "team"}, "spec": {"parentName": "all"}}));
    c.api.cluster_queue("lends", "default", "1000", &json!({"cohortName": "all"}));
    c.checked = false;
    c.advance(30);
    c.writes.clear();
    for step in 0..100 {
        queued(&mut c, &format!("w{step}"), "lq", "1", 0);
        tenths(&mut c, 1);
    }
    for queue in [cq(), ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq"), team] {
        let count = writes(&c, &queue).len();
        assert!((2..=11).contains(&count), "{count} writes on {queue} in ten seconds");
    }
}

const QUEUES: usize = 25;

#[test]
fn statuses_of_queues_have_a_budget_and_each_is_written_once_a_second_at_most() {
    let mut c = cluster("", "1000", &json!({}));
    c.checked = false;
    for number in 0..QUEUES {
        c.api.cluster_queue(&format!("q{number}"), "default", "1000", &json!({}));
        c.api.local_queue("team-a", &format!("l{number}"), &format!("q{number}"));
    }
    c.advance(30);
    let reported = c.written(Purpose::QueueStatus);
    assert_eq!(reported, 2 * QUEUES, "each is reported active at once");
    c.writes.clear();
    // Load on every queue, for four seconds.
    for step in 0..8 {
        for number in 0..QUEUES {
            queued(&mut c, &format!("w{step}-{number}"), &format!("l{number}"), "1", 0);
        }
        c.settle();
        tenths(&mut c, 5);
    }
    let statuses = c.written(Purpose::QueueStatus);
    assert!((80..=100).contains(&statuses), "20 per second, and a second's worth: {statuses}");
    c.advance(60);
    c.writes.clear();
    c.advance(3600);
    assert!(c.writes.is_empty(), "none while nothing changes");
    // While many writes wait to be sent, there are five per second.
    c.backlog(1_000, 0);
    for step in 0..8 {
        for number in 0..QUEUES {
            queued(&mut c, &format!("v{step}-{number}"), &format!("l{number}"), "1", 0);
        }
        c.settle();
        tenths(&mut c, 5);
    }
    let statuses = c.written(Purpose::QueueStatus);
    assert!((20..=25).contains(&statuses), "5 per second, and a second's worth: {statuses}");
    c.backlog(0, 0);
    c.advance(60);
    for number in 0..QUEUES {
        let queue = ObjectRef::cluster(Kind::ClusterQueue, format!("q{number}"));
        let status = &c.api.json(&queue).unwrap()["status"];
        assert!(status["reservingWorkloads"].as_i64().unwrap() > 0, "{queue}: {status}");
    }
}
