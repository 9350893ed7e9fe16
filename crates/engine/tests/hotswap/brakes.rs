//! When Hotswap does nothing: most nodes look bad, nodes flap, or not everything is known.

use sluice_engine::{Input, Kind, Purpose, WriteError};

use crate::page::page;

#[test]
fn when_most_nodes_look_bad_nothing_is_evicted() {
    let mut bed = page(64);
    bed.fail(&["a", "b", "c"]);
    bed.pass(60);
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());
    assert_eq!(bed.listed("high").len(), 8);
    let notes = bed.c.notes("HotswapNotPossible");
    assert!(
        notes.iter().any(
            |n| n.ends_with("more than 55 % of the flavor's nodes look unhealthy, so nothing is evicted")
        ),
        "{notes:?}"
    );
    // Half of them: it is the nodes after all.
    bed.come_back(&["b", "c"]);
    bed.pass(5);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert!(bed.runs("high"));
}

#[test]
fn a_node_that_flaps_displaces_no_jobset() {
    let mut bed = page(64);
    for _ in 0..5 {
        bed.fail(&["a"]);
        bed.pass(20);
        bed.come_back(&["a"]);
        bed.pass(20);
    }
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());
    assert!(bed.listed("high").is_empty());
}

#[test]
fn everything_not_ready_at_start_moves_nothing() {
    let mut bed = page(64);
    bed.fail(&["a", "b", "c", "d"]);
    bed.c.now = bed.c.now.checked_add(jiff::SignedDuration::from_secs(600)).unwrap();
    bed.c.api.now = bed.c.now;
    bed.c.restart();
    bed.pass(60);
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());
    bed.come_back(&["a", "b", "c", "d"]);
    bed.pass(3);
    assert!(bed.runs("high") && bed.runs("low") && bed.listed("high").is_empty());
}

#[test]
fn nothing_is_decided_before_the_pods_were_seen() {
    let mut bed = page(64);
    bed.fail(&["a"]);
    bed.c.now = bed.c.now.checked_add(jiff::SignedDuration::from_secs(600)).unwrap();
    bed.c.api.now = bed.c.now;
    bed.c.restart_without(&[Kind::Pod]);
    bed.jobset("new", "q", "low", 1);
    bed.c.advance(60);
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());
    assert!(
        bed.reported("new", "QuotaReserved").starts_with("False/Waiting"),
        "{}",
        bed.reported("new", "QuotaReserved")
    );
    let present = bed.c.api.names(Kind::Pod);
    for pod in &present {
        let object = bed.c.api.seen(pod);
        bed.c.engine.apply(bed.c.now, Input::Applied(object));
    }
    bed.c.engine.apply(bed.c.now, Input::Listed { kind: Kind::Pod, present, as_of: None });
    bed.pass(3);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
}

#[test]
fn pools_that_are_back_before_the_eviction_could_be_written_keep_their_work() {
    let mut bed = page(64);
    bed.c.refuse = Some((Purpose::Evict, WriteError::Transient("no answer".to_owned())));
    bed.fail(&["a"]);
    bed.pass(60);
    assert!(bed.c.refused > 0, "it was about to move");
    bed.come_back(&["a"]);
    bed.pass(1);
    bed.c.refuse = None;
    bed.pass(120);
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());
    assert!(bed.runs("high") && bed.runs("low"));
}
