//! The delay between an event and its cycle: events within a moment are decided together, and decisions are made no further ahead than they can soon
//! be written (docs/manual/performance.md "When decisions are made").

use jiff::SignedDuration;
use serde_json::json;
use sluice_engine::{EngineConfig, Gather, ObjectRef, Purpose};

use crate::budget::{finish, queued, writes};
use crate::model::Cluster;

/// A cluster with one ClusterQueue of `cpu` processors.
fn cluster(cpu: &str, config: EngineConfig) -> Cluster {
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple(cpu, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.advance(1);
    c.writes.clear();
    c
}

fn gathering() -> EngineConfig {
    EngineConfig { gather: Gather::of(SignedDuration::from_millis(3)), ..EngineConfig::default() }
}

fn ms(c: &mut Cluster, ms: i64) {
    c.now = c.now.checked_add(SignedDuration::from_millis(ms)).unwrap();
    c.api.now = c.now;
    c.settle();
}

/// Workloads of one processor that run.
fn running<const N: usize>(c: &mut Cluster, names: [&str; N]) -> [ObjectRef; N] {
    let all = names.map(|name| queued(c, name, "lq", "1", 100));
    c.advance(1);
    assert_eq!(c.written(Purpose::ReserveQuota), N);
    all
}

#[test]
fn what_two_ends_free_goes_to_the_larger_work_that_matters_more() {
    // What is preempted has its quota until its client has stopped it, which never comes here.
    for (apart, small, large, preempted) in [(2, 0, 1, 0), (20, 1, 0, 1)] {
        let mut c = cluster("2", gathering());
        let [one, two] = running(&mut c, ["one", "two"]);
        let large_one = queued(&mut c, "large", "lq", "2", 50);
        let small_one = queued(&mut c, "small", "lq", "1", 10);
        ms(&mut c, 100);
        finish(&mut c, &one);
        ms(&mut c, apart);
        finish(&mut c, &two);
        ms(&mut c, 100);
        let count =
            |object: &ObjectRef, purpose| writes(&c, object).iter().filter(|p| **p == purpose).count();
        assert_eq!(count(&small_one, Purpose::ReserveQuota), small, "{apart} ms apart");
        assert_eq!(count(&small_one, Purpose::Evict), preempted, "{apart} ms apart");
        assert_eq!(count(&large_one, Purpose::ReserveQuota), large, "{apart} ms apart");
    }
}

#[test]
fn a_decision_waits_no_longer_than_it_gathers_whatever_comes_meanwhile() {
    let mut c = cluster("100", gathering());
    let mut waited = 0;
    let first = queued(&mut c, "first", "lq", "1", 0);
    c.settle();
    while writes(&c, &first).is_empty() {
        queued(&mut c, &format!("more-{waited}"), "lq", "1", 0);
        ms(&mut c, 1);
        waited += 1;
        assert!(waited <= 3, "it comes after 3 ms");
    }
    assert_eq!(waited, 3);
    // Longer while writes wait behind which its own would only queue.
    c.backlog(16, 16);
    let next = queued(&mut c, "next", "lq", "1", 0);
    ms(&mut c, 0);
    ms(&mut c, 10);
    assert!(writes(&c, &next).is_empty());
    ms(&mut c, 1);
    assert_eq!(writes(&c, &next), [Purpose::ReserveQuota]);
}

#[test]
fn writes_that_come_after_those_of_a_decision_do_not_delay_it() {
    let mut c = cluster("100", gathering());
    c.backlog(64, 0);
    let workload = queued(&mut c, "w", "lq", "1", 0);
    c.settle();
    ms(&mut c, 2);
    assert!(writes(&c, &workload).is_empty());
    ms(&mut c, 1);
    assert_eq!(writes(&c, &workload), [Purpose::ReserveQuota], "64 reports wait, which go later");
}

#[test]
fn no_more_is_decided_than_can_be_written_soon_so_that_what_matters_more_goes_first() {
    let mut c = cluster("100", EngineConfig { most_reservations: 2, ..EngineConfig::default() });
    c.slow = Some(Purpose::ReserveQuota);
    let low: Vec<_> = (0..5).map(|n| queued(&mut c, &format!("low-{n}"), "lq", "1", 0)).collect();
    c.settle();
    assert_eq!(c.written(Purpose::ReserveQuota), 2);
    let high = queued(&mut c, "high", "lq", "1", 100);
    c.settle();
    assert_eq!(c.written(Purpose::ReserveQuota), 2, "the API server has not answered yet");
    c.release();
    let reserved = c.writes.iter().filter(|(_, purpose)| *purpose == Purpose::ReserveQuota);
    let order: Vec<_> = reserved.map(|(object, _)| object.clone()).collect();
    assert_eq!(order[..3], [low[0].clone(), low[1].clone(), high]);
    assert_eq!(order.len(), 6);
}

#[test]
fn writes_of_which_nothing_comes_hold_others_back_for_five_seconds_only() {
    let mut c = cluster("100", EngineConfig { most_reservations: 2, ..EngineConfig::default() });
    c.slow = Some(Purpose::ReserveQuota);
    for n in 0..2 {
        queued(&mut c, &format!("stuck-{n}"), "lq", "1", 0);
    }
    c.settle();
    c.slow = None;
    let other = queued(&mut c, "other", "lq", "1", 0);
    ms(&mut c, 4_000);
    assert!(writes(&c, &other).is_empty());
    // The engine asks for its turn by itself.
    c.advance(2);
    assert_eq!(writes(&c, &other), [Purpose::ReserveQuota]);
    c.release();
}
