//! Pods on nodes that have not been seen yet: the watch of Nodes may be behind that of Pods when an autoscaler brings machines.

use sluice_engine::Kind;

use crate::bed::Bed;

/// A JobSet runs on pools A and B, which no watch has shown; C and D are free.
fn on_unseen_nodes() -> Bed {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["c", "d"], 4);
    bed.settle();
    bed.c.blind = Some(Kind::Node);
    bed.pools(&["a", "b"], 4);
    bed.jobset("one", "q", "high", 2);
    bed.pass(3);
    assert_eq!(bed.pools_of("one"), ["a", "b"]);
    assert!(bed.runs("one"));
    bed
}

#[test]
fn what_runs_on_nodes_that_are_not_seen_yet_stays() {
    let mut bed = on_unseen_nodes();
    assert!(bed.evictions("one").is_empty());
    bed.pass(20);
    bed.c.blind = None;
    bed.come_back(&["a", "b"]);
    bed.pass(60);
    assert!(bed.runs("one") && bed.evictions("one").is_empty());
}

#[test]
fn nodes_that_never_come_count_as_gone_after_thirty_seconds() {
    let mut bed = on_unseen_nodes();
    bed.pass(22);
    assert!(bed.evictions("one").is_empty());
    bed.pass(10);
    assert_eq!(bed.evictions("one"), [("NodeFailures".to_owned(), 1)]);
}
