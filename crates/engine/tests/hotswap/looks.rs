//! How often the engine goes over all nodes, pods and Workloads: such a pass is expensive in large clusters.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use crate::bed::{Bed, TPU};
use crate::model::build::job;

fn looks(bed: &Bed) -> u64 {
    bed.c.engine.state()["hotswap"]["looks"].as_u64().unwrap()
}

/// Two JobSets of a pool each run, and nothing is left; one of the nodes under the first fails for good.
fn degraded() -> Bed {
    let mut bed = Bed::new();
    bed.pools(&["a", "b"], 4);
    bed.page_queue(32);
    bed.jobset("one", "q", "high", 1);
    bed.jobset("two", "q", "high", 1);
    bed.settle();
    let first = bed.nodes_of(&["a"])[0].clone();
    bed.ready(&first, "Unknown");
    bed.pass(60);
    assert_eq!(bed.c.engine.state()["hotswap"]["degraded"], json!(true));
    bed
}

#[test]
fn while_a_node_fails_others_that_come_are_looked_at_together() {
    let mut bed = degraded();
    let before = looks(&bed);
    for number in 0..50 {
        let mut job = job("team-a", &format!("j{number}"), "q", 1, "1");
        job.pod_sets[0].count = 1;
        bed.c.api.add_job(job);
        bed.c.settle();
    }
    let made = looks(&bed) - before;
    assert!(made <= 1, "{made} looks for 50 Workloads that came in the same second");
    bed.c.advance(1);
    assert!(looks(&bed) - before <= 3, "{} looks", looks(&bed) - before);
}

#[test]
fn nodes_that_change_soon_after_each_other_are_looked_at_together_and_heartbeats_not_at_all() {
    let mut bed = degraded();
    let node = bed.nodes_of(&["b"])[0].clone();
    // The displaced pods may go there.
    let change = |bed: &mut Bed, pods: u32| {
        bed.c.api.edit_status(&node, |status| status["allocatable"]["pods"] = json!(pods.to_string()));
    };
    let later = |bed: &mut Bed, milliseconds: i64| {
        bed.c.now = bed.c.now.checked_add(SignedDuration::from_millis(milliseconds)).unwrap();
        bed.c.api.now = bed.c.now;
        bed.c.settle();
    };
    bed.pass(5);
    let before = looks(&bed);
    for number in 0..50 {
        let beat = json!({"beat": number.to_string()});
        bed.c.api.edit(&node, &json!({"metadata": {"annotations": beat, "labels": beat}}));
        later(&mut bed, 10);
    }
    assert_eq!(looks(&bed), before, "what is looked at did not change");
    change(&mut bed, 64);
    bed.c.settle();
    assert_eq!(looks(&bed), before + 1, "the first is looked at at once");
    for number in 0..50 {
        change(&mut bed, 65 + number);
        later(&mut bed, 10);
    }
    assert!(looks(&bed) - before <= 1 + 5, "{} looks in half a second", looks(&bed) - before);
    bed.c.advance(1);
    let before = looks(&bed);
    for pods in [200, 201] {
        change(&mut bed, pods);
        bed.c.settle();
        assert_eq!(looks(&bed) - before, 1, "{pods}");
    }
    bed.c.advance(1);
    assert_eq!(looks(&bed) - before, 2, "the second is looked at, too");
}

#[test]
fn the_end_of_work_on_a_failing_node_lowers_the_limit_at_once() {
    let mut bed = degraded();
    // Four of its chips are lost, twelve are left: too few for any job, and the pool is not whole.
    bed.jobset("three", "q", "low", 1);
    bed.settle();
    assert!(bed.runs("one") && !bed.runs("three"));
    bed.c.api.finish_job("one", true);
    bed.c.settle();
    assert!(
        bed.reported("three", "QuotaReserved").contains("more needed"),
        "{}",
        bed.reported("three", "QuotaReserved")
    );
    assert!(bed.reported("three", "QuotaReserved").contains(TPU));
    assert!(!bed.runs("three"), "it was given chips of a pool that is not whole");
}

/// The most allocations that it takes to take one thing in while work moves off one of `pools` pools, and a node changes every second in
/// a field that does not affect new work.
fn most_reported(pools: usize) -> u64 {
    let mut bed = Bed::new();
    bed.c.checked = false;
    bed.page_queue(10_000);
    let names: Vec<String> = (0..pools).map(|pool| format!("p{pool:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.pools(&names, 2);
    for name in &names[..4] {
        bed.sized_jobset(name, "q", "high", 1, 2);
    }
    bed.settle();
    bed.fail(&["p001", "p002"]);
    bed.pass(2);
    bed.c.meter = |work| (Duration::ZERO, allocation_counter::measure(work).count_total);
    let other = bed.nodes_of(&["p005"]).remove(0);
    for second in 0..43 {
        bed.c.api.edit(&other, &json!({"metadata": {"labels": {"beat": second.to_string()}}}));
        bed.pass(1);
    }
    assert!(["p001", "p002"].iter().all(|job| bed.runs(job) && !bed.evictions(job).is_empty()));
    bed.c.most_reported
}

#[test]
fn a_start_does_not_look_at_all_nodes_because_a_workload_or_a_node_changed() {
    let [few, many] = [20, 200].map(most_reported);
    assert!(many <= few + few / 4, "{few} allocations, and among many nodes {many}");
}

/// A JobSet that has run for a while among `pools` pools of two nodes.
fn among_pools(pools: usize, jobset: &str) -> Bed {
    let mut bed = Bed::new();
    bed.c.checked = false;
    bed.page_queue(10_000);
    let names: Vec<String> = (0..pools).map(|pool| format!("p{pool:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.pools(&names, 2);
    bed.sized_jobset(jobset, "q", "high", 1, 2);
    bed.settle();
    bed.c.advance(5);
    bed
}

/// The most allocations that it takes to take one thing in while a slice starts among `pools` pools, soon after nodes have changed in what it avoids:
/// the second of them has not been looked at yet.
fn most_of_a_start(pools: usize) -> u64 {
    let mut bed = among_pools(pools, "first");
    let node = bed.nodes_of(&["p005"]).remove(0);
    let before = looks(&bed);
    for unschedulable in [true, false] {
        bed.c.api.edit(&node, &json!({"spec": {"unschedulable": unschedulable}}));
        bed.c.settle();
    }
    assert_eq!(looks(&bed), before + 1);
    bed.c.meter = |work| (Duration::ZERO, allocation_counter::measure(work).count_total);
    bed.c.most_reported = 0;
    bed.sized_jobset("second", "q", "high", 1, 2);
    bed.c.settle();
    assert!(bed.runs("second"));
    assert_eq!(looks(&bed), before + 1, "it starts before the next look");
    bed.c.most_reported
}

#[test]
fn a_start_looks_at_the_groups_of_changed_nodes_alone() {
    let [few, many] = [20, 200].map(most_of_a_start);
    assert!(many <= few + few / 4, "{few} allocations, and among many nodes {many}");
}

/// Allocations of one event of a node and of one of a pod, soon after a look at `pools` pools.
fn events_among(pools: usize) -> [u64; 2] {
    let mut bed = among_pools(pools, "p000");
    let node = bed.nodes_of(&["p001"]).remove(0);
    let change = |bed: &mut Bed, value: &str| {
        bed.c.api.edit(&node, &json!({"metadata": {"labels": {"changed": value}}}));
    };
    // This one is looked at.
    let before = looks(&bed);
    let other = bed.nodes_of(&["p002"]).remove(0);
    bed.c.api.edit(&other, &json!({"spec": {"unschedulable": true}}));
    bed.c.settle();
    assert_eq!(looks(&bed), before + 1);
    let before = looks(&bed);
    bed.c.meter = |work| (Duration::ZERO, allocation_counter::measure(work).count_total);
    let mut spent = |happens: &dyn Fn(&mut Bed)| {
        bed.c.spent = (Duration::ZERO, 0);
        happens(&mut bed);
        bed.c.settle();
        assert_eq!(looks(&bed), before);
        bed.c.spent.1
    };
    [
        spent(&|bed| change(bed, "2")),
        spent(&|bed| {
            bed.bind("other", None, "p001-0", 1);
        }),
    ]
}

#[test]
fn an_event_of_a_node_or_a_pod_soon_after_a_look_costs_the_same_among_few_nodes_and_many() {
    let [few, many] = [20, 200].map(events_among);
    for (few, many) in few.into_iter().zip(many) {
        // A list may have to grow.
        assert!(many <= few + (few / 4).max(2), "{few} allocations, and among many nodes {many}");
    }
}
