//! The guide's example: `high` runs on pools A and B, `low` on C and D; A fails; `low` is preempted; A returns; `low` runs again.

use sluice_engine::Purpose;

use crate::bed::Bed;

/// `high` and `low` run, on four pools.
pub fn page(chips: i64) -> Bed {
    page_with(Bed::new(), chips)
}

/// The same on another bed.
pub fn page_with(mut bed: Bed, chips: i64) -> Bed {
    bed.page_queue(chips);
    bed.high_and_low(["q", "q"]);
    bed.pass(2);
    bed
}

#[test]
fn with_quota_for_both_the_low_one_is_preempted_and_runs_again_when_the_pool_returns() {
    let mut bed = page(64);
    assert_eq!(
        (bed.pools_of("high"), bed.pools_of("low")),
        (vec!["a".into(), "b".into()], vec!["c".into(), "d".into()])
    );
    bed.fail(&["a"]);
    bed.pass(29);
    assert!(bed.runs("low") && bed.evictions("high").is_empty(), "NotReady counts after 30 s");
    bed.pass(5);

    assert!(bed.runs("high"));
    assert_eq!(bed.pools_of("high"), ["b", "c"]);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    let text = bed.reported("high", "Requeued");
    assert_eq!(
        text,
        "True/NodeFailures: Workload was evicted to leave unhealthy node(s): a-0, a-1, a-2, a-3"
    );

    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
    assert!(
        bed.reported("low", "Preempted")
            .starts_with("True/OutOfCohortReclamation: Preempted to accommodate a workload (UID: uid-")
    );
    assert!(bed.reported("low", "Evicted").contains("preemptor path: /q; preemptee path: /q"));
    assert!(bed.reported("low", "Requeued").starts_with("True/Preempted"));
    let waits = "False/WaitingForCapacity: couldn't assign flavors to pod set slice: insufficient capacity of healthy nodes for \
                 google.com/tpu in flavor tpu, 16 more needed";
    assert_eq!(bed.reported("low", "QuotaReserved"), waits);
    for reason in ["Preempted", "PreemptedWorkload"] {
        let [note] = &bed.c.notes(reason)[..] else { unreachable!("one {reason}") };
        let who = "; preemptor effective priority: 2000000 (base: 2000000, boost: 0); preemptee effective priority: 1000000 (base: 1000000, boost: 0)";
        assert!(note.ends_with(who), "{note}");
    }

    bed.pass(60);
    assert!(!bed.runs("low"), "nothing changes while the pool is gone");
    bed.come_back(&["a"]);
    bed.pass(3);
    assert!(bed.runs("low") && bed.runs("high"));
    assert_eq!(bed.pools_of("low"), ["a", "d"]);
    assert_eq!(bed.evictions("high").len() + bed.evictions("low").len(), 2, "once each");
}

#[test]
fn with_the_pages_quota_one_runs_and_one_waits_and_the_spare_pools_are_used() {
    let mut bed = page(32);
    assert!(bed.runs("high") && !bed.runs("low"));
    assert!(bed.reported("low", "QuotaReserved").starts_with("False/WaitingForQuota"));
    bed.fail(&["a"]);
    bed.pass(35);
    assert_eq!(bed.pools_of("high"), ["b", "c"], "the displaced one goes first in its queue");
    assert!(!bed.runs("low") && bed.evictions("low").is_empty());
}

#[test]
fn a_spare_pool_is_used_without_a_victim() {
    let mut bed = page(64);
    bed.pools(&["e"], 4);
    bed.settle();
    bed.fail(&["a"]);
    bed.pass(35);
    assert_eq!(bed.pools_of("high"), ["b", "e"]);
    assert!(bed.runs("low") && bed.evictions("low").is_empty());
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
}

#[test]
fn one_node_of_a_pool_takes_the_whole_slice_away() {
    let mut bed = page(64);
    let node = bed.nodes_of(&["a"]).remove(2);
    bed.ready(&node, "False");
    bed.pass(35);
    assert_eq!(bed.pools_of("high"), ["b", "c"]);
    assert!(
        bed.reported("low", "QuotaReserved").contains("16 more needed"),
        "the rest of pool a is no capacity"
    );
    bed.ready(&node, "True");
    bed.pass(3);
    assert!(bed.runs("low"));
}

#[test]
fn a_departing_node_counts_at_once_and_a_deleted_one_too() {
    let mut bed = page(64);
    let node = bed.nodes_of(&["a"]).remove(0);
    let label =
        serde_json::json!({"metadata": {"labels": {"cloud.google.com/active-node-maintenance": "true"}}});
    bed.c.api.edit(&node, &label);
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["b", "c"]);
    let mut bed = page(64);
    let node = bed.nodes_of(&["b"]).remove(0);
    bed.c.api.delete(&node);
    bed.pass(3);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
}

#[test]
fn victims_are_admitted_again_by_priority_then_by_their_place() {
    let mut bed = Bed::new();
    bed.page_queue(96);
    bed.c.api.priority_class("middle", 1_500_000);
    bed.pools(&["a", "b", "c", "d", "e", "f"], 4);
    bed.jobset("high", "q", "high", 3);
    bed.settle();
    bed.jobset("low", "q", "low", 1);
    bed.settle();
    bed.jobset("middle", "q", "middle", 1);
    bed.settle();
    bed.jobset("low-2", "q", "low", 1);
    bed.pass(5);
    bed.fail(&["a", "b", "c"]);
    bed.pass(35);
    assert_eq!(bed.pools_of("high"), ["d", "e", "f"]);
    assert!(!bed.runs("low") && !bed.runs("middle") && !bed.runs("low-2"));
    bed.come_back(&["a"]);
    bed.pass(3);
    assert!(bed.runs("middle") && !bed.runs("low"));
    bed.come_back(&["b"]);
    bed.pass(3);
    assert!(bed.runs("low") && !bed.runs("low-2"));
}

#[test]
fn pods_that_can_never_end_are_not_taken_for_those_of_the_next_start() {
    let mut bed = page(64);
    bed.machines_die = true;
    bed.fail(&["a"]);
    bed.pass(60);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(bed.pools_of("high"), ["a", "b", "c"], "what was on pool a is still there, and means nothing");
    assert!(bed.runs("high") && !bed.runs("low"));
    let waits = bed.reported("low", "QuotaReserved");
    assert!(waits.ends_with("16 more needed"), "nor does it count as room: {waits}");
    assert!(bed.listed("high").is_empty());
}

#[test]
fn pods_whose_end_was_not_seen_yet_are_not_taken_for_those_of_the_next_start() {
    let mut bed = page(64);
    bed.pools(&["e"], 4);
    bed.settle();
    bed.ends_are_seen_late = true;
    bed.fail(&["a"]);
    bed.pass(60);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(bed.pools_of("high"), ["a", "b", "e"], "as the watch still shows it");
    assert!(bed.runs("high") && bed.runs("low") && bed.listed("high").is_empty());
}

#[test]
fn nor_are_they_if_the_watch_shows_the_release_before_its_write_is_answered() {
    let mut bed = page(64);
    bed.pools(&["e"], 4);
    bed.settle();
    bed.ends_are_seen_late = true;
    bed.c.late = Some(Purpose::ReleaseQuota);
    bed.fail(&["a"]);
    bed.pass(40);
    assert!(bed.reported("high", "QuotaReserved").starts_with("False"), "its pods have ended");
    bed.c.release();
    bed.pass(20);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(bed.pools_of("high"), ["a", "b", "e"], "as the watch still shows it");
    assert!(bed.runs("high") && bed.runs("low") && bed.listed("high").is_empty());
}
