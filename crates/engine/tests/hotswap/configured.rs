//! Hotswap follows its configuration, and the time that jobs have to recover.

use serde_json::{Value, json};
use sluice_api::config::{Duration, Hotswap};
use sluice_engine::{EngineConfig, Kind, ObjectRef, WaitForPodsReady};

use crate::bed::Bed;
use crate::page::{page, page_with};

/// The page with this changed.
fn with(change: impl FnOnce(&mut Hotswap)) -> Bed {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    change(&mut config.hotswap);
    page_with(Bed::with(config), 64)
}

/// Changes the first node of pool A.
fn edit(bed: &mut Bed, change: &Value) {
    let node = bed.nodes_of(&["a"]).remove(0);
    bed.c.api.edit(&node, change);
    bed.pass(3);
}

fn label(bed: &mut Bed, key: &str, value: &str) {
    edit(bed, &json!({"metadata": {"labels": {key: value}}}));
}

fn taint(bed: &mut Bed, key: &str) {
    edit(bed, &json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}));
}

fn moved(bed: &Bed) -> bool {
    assert_eq!(bed.evictions("high").is_empty(), bed.evictions("low").is_empty());
    let moved = bed.pools_of("high") == ["b", "c"];
    assert_eq!(moved, bed.evictions("high") == [("NodeFailures".to_owned(), 1)]);
    moved
}

#[test]
fn the_taint_alone_says_that_a_node_goes() {
    let mut bed = page(64);
    taint(&mut bed, "example.com/reserved");
    assert!(!moved(&bed), "any other taint says nothing");
    taint(&mut bed, "cloud.google.com/impending-node-termination");
    assert!(moved(&bed));
}

#[test]
fn a_queue_that_turns_it_on_is_acted_for_at_once() {
    let mut bed = Bed::new();
    bed.queue("q", 64, &json!({"enable": false}), &json!({}));
    bed.high_and_low(["q", "q"]);
    bed.fail(&["a"]);
    bed.pass(60);
    assert!(bed.evictions("high").is_empty());
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "q");
    bed.c.api.edit(&queue, &json!({"spec": {"preemption": {"reclaimOutOfCohort": {"enable": true}}}}));
    bed.pass(3);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
}

#[test]
fn departing_labels_and_taints_are_as_configured() {
    let config = |hotswap: &mut Hotswap| {
        hotswap.departing_labels = [("example.com/going".to_owned(), "soon".to_owned())].into();
        hotswap.departing_taints = vec!["example.com/bye".to_owned()];
    };
    let mut bed = with(config);
    label(&mut bed, "cloud.google.com/active-node-maintenance", "true");
    taint(&mut bed, "cloud.google.com/impending-node-termination");
    label(&mut bed, "example.com/going", "late");
    assert!(!moved(&bed), "these are not configured");
    label(&mut bed, "example.com/going", "soon");
    assert!(moved(&bed));
    let mut bed = with(config);
    taint(&mut bed, "example.com/bye");
    assert!(moved(&bed));
}

#[test]
fn a_node_may_be_not_ready_for_as_long_as_configured() {
    for seconds in [5, 90] {
        let mut bed = with(|hotswap| hotswap.not_ready_after = Duration::from_secs(seconds));
        bed.fail(&["a"]);
        bed.pass(seconds - 1);
        assert!(!moved(&bed), "{seconds} s are not over");
        bed.pass(4);
        assert!(moved(&bed), "{seconds} s are over");
    }
}

#[test]
fn the_brake_holds_above_the_configured_percentage() {
    for (most, moves) in [(24, false), (25, true)] {
        let mut bed = with(|hotswap| hotswap.max_unhealthy_percent = most);
        bed.fail(&["a"]);
        bed.pass(40);
        assert_eq!(moved(&bed), moves, "at {most} %");
        let notes = bed.c.notes("HotswapNotPossible");
        let reported = notes.iter().any(|note| note.contains(&format!("more than {most} % of")));
        assert_eq!(reported, !moves, "{notes:?}");
    }
}

#[test]
fn when_no_workload_can_be_preempted_the_recovery_timeout_decides() {
    let ready = WaitForPodsReady {
        timeout_seconds: 300,
        recovery_timeout_seconds: Some(120),
        block_admission: false,
        order_by_eviction: true,
        backoff_limit_count: None,
        backoff_base_seconds: 60,
        backoff_max_seconds: 150,
    };
    let config =
        EngineConfig { status_interval_ms: 0, wait_for_pods_ready: Some(ready), ..EngineConfig::default() };
    let mut bed = Bed::with(config);
    bed.page_queue(64);
    bed.pools(&["a", "b", "c", "d"], 4);
    for name in ["one", "two"] {
        bed.jobset(name, "q", "high", 2);
        bed.pass(2);
        bed.c.api.edit_job(name, |job| job.view.pods_ready = true);
        bed.settle();
    }
    bed.fail(&["a"]);
    bed.c.api.edit_job("one", |job| job.view.pods_ready = false);
    bed.pass(115);
    assert_eq!(bed.c.notes("HotswapNotPossible").len(), 1);
    assert!(bed.evictions("one").is_empty(), "it may recover");
    bed.pass(10);
    assert_eq!(bed.evictions("one"), [("PodsReadyTimeout".to_owned(), 1)]);
    assert!(bed.reported("one", "Requeued").starts_with("False/PodsReadyTimeout"));
    assert!(bed.listed("one").is_empty());

    bed.pass(120);
    assert!(!bed.runs("one"), "there is no room for it");
    let waits = bed.reported("one", "QuotaReserved");
    assert!(waits.starts_with("False/WaitingForCapacity"), "{waits}");
    assert!(bed.runs("two") && bed.evictions("two").is_empty());
    bed.come_back(&["a"]);
    bed.pass(3);
    assert!(bed.runs("one"));
    assert_eq!(bed.evictions("one"), [("PodsReadyTimeout".to_owned(), 1)]);
}
