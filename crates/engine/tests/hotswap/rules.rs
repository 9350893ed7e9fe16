//! Which Workloads are preempted, and what counts as capacity.

use serde_json::json;
use sluice_engine::{EngineConfig, Purpose};

use crate::bed::Bed;
use crate::page::page;

#[test]
fn equal_priority_is_spared_and_the_event_says_why_nothing_is_done() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b", "c", "d"], 4);
    bed.jobset("one", "q", "high", 2);
    bed.settle();
    bed.jobset("two", "q", "high", 2);
    bed.pass(3);
    bed.fail(&["a"]);
    bed.pass(40);
    assert!(bed.runs("one") && bed.runs("two"));
    assert!(bed.evictions("one").is_empty() && bed.evictions("two").is_empty());
    assert_eq!(bed.listed("one"), ["a-0", "a-1", "a-2", "a-3"]);
    let note = "Workload/jobset-one: Pods are on unhealthy node(s) a-0, a-1, a-2, a-3: no healthy nodes are free for it, even if all \
                workloads of lower priority were evicted";
    assert_eq!(bed.c.notes("HotswapNotPossible"), [note], "reported once");
    bed.come_back(&["a"]);
    bed.pass(3);
    assert!(bed.listed("one").is_empty());
}

#[test]
fn nodes_whose_names_a_status_cannot_hold_are_not_listed() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    let long = format!("a.{}", "x".repeat(61));
    let long = long.as_str();
    bed.pools(&[long, "b", "c", "d"], 4);
    bed.jobset("one", "q", "high", 2);
    bed.settle();
    bed.jobset("two", "q", "high", 2);
    bed.pass(3);
    assert_eq!(bed.pools_of("one"), [long, "b"]);
    bed.fail(&[long, "b"]);
    bed.pass(40);
    assert!(bed.runs("one") && bed.evictions("one").is_empty());
    assert_eq!(bed.listed("one"), ["b-0", "b-1", "b-2", "b-3"]);
    let listings =
        |bed: &Bed| bed.c.writes.iter().filter(|(_, purpose)| *purpose == Purpose::UnhealthyNodes).count();
    let before = listings(&bed);
    bed.pass(60);
    assert_eq!(listings(&bed), before);
}

#[test]
fn another_reason_is_reported_though_the_same_nodes_are_lost() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b", "c", "d"], 4);
    for name in ["one", "two"] {
        bed.jobset(name, "q", "high", 2);
        bed.pass(2);
    }
    bed.fail(&["a", "c", "d"]);
    bed.pass(40);
    let reported = |bed: &Bed, why: &str| {
        let notes = bed.c.notes("HotswapNotPossible");
        notes.iter().filter(|note| note.contains("node(s) a-0") && note.contains(why)).count()
    };
    assert_eq!((reported(&bed, "55 %"), reported(&bed, "no healthy nodes are free")), (1, 0));
    bed.come_back(&["c", "d"]);
    bed.pass(60);
    assert_eq!(bed.listed("one"), ["a-0", "a-1", "a-2", "a-3"]);
    assert_eq!((reported(&bed, "55 %"), reported(&bed, "no healthy nodes are free")), (1, 1), "each once");
    bed.c.restart();
    bed.pass(60);
    assert_eq!(
        (reported(&bed, "55 %"), reported(&bed, "no healthy nodes are free")),
        (1, 2),
        "a restart repeats one"
    );
    bed.come_back(&["a"]);
    bed.pass(3);
    bed.fail(&["a"]);
    bed.pass(40);
    assert_eq!(reported(&bed, "no healthy nodes are free"), 3, "it is another failure");
}

#[test]
fn one_that_its_nodes_could_hold_is_reported_once_they_cannot() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b", "c"], 4);
    bed.jobset("one", "q", "high", 2);
    bed.pass(2);
    bed.jobset("two", "q", "high", 1);
    bed.pass(2);
    // Its pods have gone from pool A to pool C by themselves, all but one: that is lost, and not needed.
    bed.c.api.finish_job("two", true);
    let old: Vec<_> =
        bed.pods().into_iter().filter(|(job, node, _)| job == "two" || node.starts_with("a-")).collect();
    for (_, _, pod) in old.iter().filter(|(_, node, _)| node != "a-0") {
        bed.c.api.delete(pod);
    }
    for node in bed.nodes_of(&["c"]) {
        bed.bind(&format!("one-again-{}", node.name), Some("one"), &node.name, 4);
    }
    bed.fail(&["a"]);
    bed.pass(40);
    assert_eq!(bed.listed("one"), ["a-0"]);
    assert!(bed.c.notes("HotswapNotPossible").is_empty() && bed.evictions("one").is_empty());

    let node = bed.nodes_of(&["c"]).remove(3);
    bed.c.api.edit(&node, &json!({"spec": {"unschedulable": true}}));
    bed.pass(5);
    assert_eq!(bed.listed("one"), ["a-0"]);
    assert_eq!(bed.c.notes("HotswapNotPossible").len(), 1, "{:?}", bed.c.notes("HotswapNotPossible"));
}

/// `high` in a queue of its own, `low` in another without a cohort; pool A fails.
fn two_queues(enable: bool, more: bool, nominal_after: i64) -> Bed {
    let mut bed = Bed::new();
    bed.queue("x", 32, &json!({"enable": enable, "reclaimMoreThanNominalQuota": more}), &json!({}));
    bed.queue("y", 32, &json!({"enable": true}), &json!({}));
    bed.high_and_low(["x", "y"]);
    bed.queue(
        "x",
        nominal_after,
        &json!({"enable": enable, "reclaimMoreThanNominalQuota": more}),
        &json!({}),
    );
    bed.fail(&["a"]);
    bed.pass(35);
    bed
}

#[test]
fn another_queue_without_a_cohort_is_preempted_where_the_flags_say_so() {
    for (enable, more, nominal, is_preempted) in [
        (true, false, 32, true),
        (true, true, 32, true),
        (true, false, 16, false),
        // No flag gives back more than the quota could ever be.
        (true, true, 16, false),
        (false, false, 32, false),
        (false, true, 32, false),
    ] {
        let bed = two_queues(enable, more, nominal);
        let at = format!("enable {enable}, more {more}, nominal {nominal}");
        assert_eq!(!bed.evictions("low").is_empty(), is_preempted, "{at}");
        assert_eq!(!bed.evictions("high").is_empty(), is_preempted, "{at}");
        if is_preempted {
            assert!(
                bed.reported("low", "Evicted").contains("preemptor path: /x; preemptee path: /y"),
                "{at}"
            );
        }
        assert!(bed.runs("high"), "{at}");
    }
}

#[test]
fn the_own_queue_is_preempted_before_others() {
    let mut bed = Bed::new();
    bed.queue("x", 48, &json!({"enable": true}), &json!({}));
    bed.queue("y", 16, &json!({"enable": true}), &json!({}));
    bed.pools(&["a", "b", "c", "d"], 4);
    bed.jobset("high", "x", "high", 2);
    bed.settle();
    bed.jobset("other", "y", "low", 1);
    bed.settle();
    bed.jobset("own", "x", "low", 1);
    bed.pass(3);
    bed.fail(&["a"]);
    bed.pass(35);
    assert!(bed.runs("high") && bed.runs("other"));
    assert_eq!(bed.evictions("own"), [("Preempted".to_owned(), 1)]);
}

#[test]
fn no_workload_goes_from_nodes_that_would_not_help() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b", "c", "d"], 4);
    bed.jobset("high", "q", "high", 3);
    bed.settle();
    bed.jobset("low", "q", "low", 1);
    bed.pass(3);
    // Two slices are lost and one could be had.
    bed.fail(&["a", "b"]);
    bed.pass(40);
    assert!(bed.runs("high") && bed.runs("low"));
    assert_eq!(bed.c.notes("HotswapNotPossible").len(), 1);
}

#[test]
fn new_work_needs_quota_and_capacity_and_running_work_stays_when_capacity_shrinks() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b"], 4);
    bed.jobset("one", "q", "low", 1);
    bed.jobset("two", "q", "low", 2);
    bed.pass(3);
    assert!(bed.runs("one") && !bed.runs("two"));
    assert!(bed.reported("two", "QuotaReserved").starts_with("False/WaitingForCapacity"));
    // The pool under the running one is cordoned.
    for node in bed.nodes_of(&["a"]) {
        bed.c.api.edit(&node, &json!({"spec": {"unschedulable": true}}));
    }
    bed.pass(40);
    assert!(bed.runs("one") && bed.evictions("one").is_empty() && bed.listed("one").is_empty());
    assert!(
        bed.reported("two", "QuotaReserved").contains("16 more needed"),
        "{}",
        bed.reported("two", "QuotaReserved")
    );
}

#[test]
fn pods_that_hold_no_quota_take_capacity() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b"], 4);
    let stranger = bed.bind("stranger", None, "a-0", 4);
    bed.pass(2);
    bed.jobset("two", "q", "low", 2);
    bed.pass(3);
    assert!(
        bed.reported("two", "QuotaReserved").contains("4 more needed"),
        "{}",
        bed.reported("two", "QuotaReserved")
    );
    bed.c.api.delete(&stranger);
    bed.pass(3);
    assert!(bed.runs("two"));
}

#[test]
fn a_flavor_without_nodes_is_not_limited_by_nodes() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.jobset("one", "q", "low", 4);
    bed.settle();
    assert!(bed.runs("one"));
}

#[test]
fn a_queue_whose_nodes_a_provisioning_check_asks_for_is_left_alone() {
    let mut bed = Bed::new();
    bed.c.api.put(
        sluice_engine::Kind::AdmissionCheck,
        json!({"metadata": {"name": "prov"}, "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"}}),
    );
    let check = sluice_engine::ObjectRef::cluster(sluice_engine::Kind::AdmissionCheck, "prov");
    bed.c.api.edit_status(&check, |s| {
        *s = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    });
    bed.queue(
        "dws",
        64,
        &json!({"enable": true}),
        &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}),
    );
    bed.pools(&["a", "b"], 4);
    bed.jobset("high", "dws", "high", 2);
    bed.settle();
    bed.jobset("low", "dws", "low", 2);
    bed.settle();
    for name in ["high", "low"] {
        assert!(bed.reported(name, "QuotaReserved").starts_with("True"), "quota alone decides: {name}");
        let workload = crate::model::Api::workload_ref(&bed.c.workload(name));
        bed.c.api.edit_status(&workload, |s| s["admissionChecks"][0]["state"] = json!("Ready"));
        bed.settle();
    }
    bed.fail(&["a"]);
    bed.pass(40);
    assert!(bed.runs("high") && bed.runs("low"));
    assert!(bed.evictions("high").is_empty() && bed.listed("high").is_empty());
}

#[test]
fn with_the_gate_off_nothing_of_it_happens() {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.gates = config.gates.with(sluice_api::gates::Gate::Hotswap, false);
    let mut bed = Bed::with(config);
    bed.page_queue(64);
    bed.pools(&["a", "b"], 4);
    bed.jobset("one", "q", "high", 2);
    bed.settle();
    bed.jobset("two", "q", "low", 2);
    bed.pass(2);
    assert!(bed.runs("one") && bed.reported("two", "Admitted").starts_with("True"), "quota alone decides");
    bed.fail(&["a"]);
    bed.pass(60);
    assert!(bed.evictions("one").is_empty() && bed.listed("one").is_empty());
}

#[test]
fn of_a_nine_node_pool_eight_nodes_are_listed() {
    let mut bed = Bed::new();
    bed.page_queue(72);
    bed.pools(&["a", "b"], 9);
    bed.sized_jobset("one", "q", "high", 1, 9);
    bed.settle();
    bed.sized_jobset("two", "q", "high", 1, 9);
    bed.pass(3);
    bed.fail(&["a"]);
    bed.pass(40);
    assert_eq!(bed.listed("one").len(), 8);
    assert!(
        bed.c.notes("HotswapNotPossible")[0].contains("a-7 and 1 more"),
        "{:?}",
        bed.c.notes("HotswapNotPossible")
    );
}

#[test]
fn time_to_recovery_is_the_wait_for_a_node_that_wavers_and_a_few_seconds() {
    let mut bed = page(64);
    let failed = bed.now();
    bed.fail(&["a"]);
    while bed.pools_of("high") != ["b", "c"] {
        bed.pass(1);
        assert!(bed.now().as_second() - failed.as_second() < 60, "{}", bed.reported("high", "QuotaReserved"));
    }
    let seconds = bed.now().as_second() - failed.as_second();
    println!("recovered after {seconds} s, of which 30 s until the nodes counted as lost");
    assert!((30..40).contains(&seconds), "{seconds}");
}

#[test]
fn several_displaced_at_once_are_cared_for_by_priority() {
    let mut bed = Bed::new();
    bed.page_queue(96);
    bed.c.api.priority_class("middle", 1_500_000);
    bed.pools(&["a", "b", "c", "d", "e", "f"], 4);
    for (name, priority) in [("middle", "middle"), ("high", "high"), ("low", "low")] {
        bed.jobset(name, "q", priority, 2);
        bed.pass(2);
    }
    assert_eq!((bed.pools_of("middle"), bed.pools_of("high")), (pools(["a", "b"]), pools(["c", "d"])));
    bed.fail(&["a", "c"]);
    bed.pass(40);
    assert!(bed.runs("high") && bed.runs("middle") && !bed.runs("low"));
    assert!(
        bed.pools_of("high").contains(&"d".to_owned()) || bed.pools_of("middle").contains(&"b".to_owned())
    );
    for name in ["high", "middle"] {
        assert_eq!(bed.evictions(name), [("NodeFailures".to_owned(), 1)], "{name}");
    }
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)], "once for both");

    bed.come_back(&["a", "c"]);
    bed.pass(5);
    assert!(bed.runs("high") && bed.runs("middle") && bed.runs("low"), "all have room again");
}

fn pools<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

#[test]
fn of_two_displaced_with_room_for_one_the_higher_priority_has_it() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.c.api.priority_class("middle", 1_500_000);
    bed.pools(&["a", "b", "c", "d", "e"], 4);
    bed.jobset("middle", "q", "middle", 1);
    bed.pass(2);
    bed.jobset("high", "q", "high", 1);
    bed.pass(2);
    bed.jobset("low", "q", "low", 1);
    bed.pass(2);
    for node in bed.nodes_of(&["d", "e"]) {
        bed.c.api.edit(&node, &json!({"spec": {"unschedulable": true}}));
    }
    bed.fail(&["a", "b"]);
    bed.pass(40);
    assert_eq!(bed.pools_of("high"), ["c"], "where low was");
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert!(bed.evictions("middle").is_empty(), "nothing would be won by it");
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
    assert_eq!(bed.listed("middle"), ["a-0", "a-1", "a-2", "a-3"]);
}
