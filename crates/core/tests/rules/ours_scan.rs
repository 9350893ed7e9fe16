//! Flavor searches: where those end that continue over several cycles, and what is reported of them. Ours.

use crate::world::{NO_LONGER_FITS, World, cq, job, n, node, q, topology};
use sluice_core::PreemptionPolicy::Any;
use sluice_core::{
    BorrowWithinCohort, Fungibility, FungibilityPolicy, FungibilityPreference, HOSTNAME, Reason, StopPolicy,
    WhenCanPreempt, WorkloadState,
};

#[test]
fn a_search_that_would_never_end_is_inadmissible_so_that_those_behind_it_have_their_turn() {
    let mut w = World::new();
    w.cq(cq("a").flavor("x", &[("cpu", q(4))]).flavor("y", &[("cpu", q(5))]).flavor("z", &[("gpu", q(2))]));
    w.running(job("r", "a").gpu(2), "z");
    // While gpu is what is missing, one of the pod sets always has a flavor of cpu left to try.
    w.submit(job("j", "a").req("cpu", 3).gpu(1).pod_set("second").req("cpu", 2));
    w.submit(job("behind", "a").req("cpu", 1));
    for _ in 0..12 {
        assert_eq!(w.cycle(), ["j WaitingForQuota"]);
        assert!(w.report.scanning);
    }
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    assert!(!w.report.scanning);
    assert_eq!(w.inadmissible("a"), ["j"]);
    assert_eq!(w.cycle(), ["behind admitted x"]);
    w.finished("r");
    assert_eq!(w.cycle(), ["j admitted x,z,y"], "it is looked at again when quota is free");
}

/// `b` has borrowed cpu of `x`, where `a` may reclaim it, but not while it borrows gpu itself: it stops there, and continues with `y`, which is
/// too small.
fn stops_at_the_first() -> World {
    let mut w = World::new();
    let queue =
        cq("a").flavor("x", &[("cpu", q(5)), ("gpu", q(1))]).flavor("y", &[("cpu", q(1)), ("gpu", q(2))]);
    w.cq(queue.cohort("co").reclaim(Any).with(|spec| {
        spec.fungibility = Fungibility {
            when_can_borrow: FungibilityPolicy::MayStopSearch,
            when_can_preempt: WhenCanPreempt::MayStopSearch,
            preference: None,
        };
    }));
    w.cq(cq("b").cohort("co").flavor("x", &[("cpu", q(1)), ("gpu", q(3))]));
    w.running(job("r", "b").req("cpu", 4), "x");
    w.submit(job("j", "a").req("cpu", 5).gpu(2));
    w
}

#[test]
fn a_search_that_continues_in_another_cycle_names_all_flavors_and_the_least_severe_reason() {
    let mut w = stops_at_the_first();
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    let first = "insufficient unused quota for cpu in flavor x, 3m more needed";
    assert_eq!(w.message("j"), format!("couldn't assign flavors to pod set main: {first}"));
    assert!(w.report.scanning);
    assert_eq!(w.cycle(), ["j WaitingForQuota"], "y alone would be ExceedsMaxQuota, and it waits for x");
    let second = "insufficient quota for cpu in flavor y, previously considered podsets requests (0) + current podset request (5m) > maximum capacity (1m)";
    assert_eq!(w.message("j"), format!("couldn't assign flavors to pod set main: {second}, {first}"));
    assert_eq!(w.inadmissible("a"), ["j"]);
}

#[test]
fn what_becomes_free_while_a_search_continues_is_not_missed() {
    let mut w = stops_at_the_first();
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    w.finished("r");
    assert_eq!(w.cycle(), ["j WaitingForQuota"], "y is too small, and now x would do");
    assert!(w.report.scanning);
    assert_eq!(w.heap("a"), ["j"]);
    assert_eq!(w.cycle(), ["j admitted x"]);
}

#[test]
fn a_search_that_starts_over_reports_nothing_of_the_last_one() {
    let mut w = stops_at_the_first();
    w.cycle();
    w.cycle();
    w.cq(cq("a").flavor("y", &[("cpu", q(1)), ("gpu", q(2))]));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
    assert!(!w.message("j").contains("flavor x"));
    assert_eq!(w.why("j").reason, Reason::ExceedsMaxQuota);
}

#[test]
fn where_preemption_is_preferred_the_missing_amount_is_reported_next_to_what_could_be_borrowed() {
    let mut w = World::new();
    // One may be borrowed, the other is held by a workload that may not be evicted while others borrow.
    let queue = cq("a").flavor("x", &[("cpu", q(0)), ("gpu", q(4))]).cohort("co").reclaim(Any);
    w.cq(queue.with(|spec| {
        spec.fungibility.preference = Some(FungibilityPreference::PreemptionOverBorrowing);
        spec.preemption.borrow_within_cohort = Some(BorrowWithinCohort { max_priority_threshold: None });
    }));
    w.cq(cq("b").cohort("co").flavor("x", &[("cpu", q(4)), ("gpu", q(0))]));
    w.running(job("r", "b").gpu(4).priority(9), "x");
    w.submit(job("j", "a").req("cpu", 2).gpu(4));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    assert!(w.message("j").ends_with("insufficient unused quota for gpu in flavor x, 4 more needed"));
}

/// `b` may borrow in `x` and is too big for `y`. The heads of `a` want more of `x` than is free, and reserve their own quota of it.
fn kept_out(strict: bool) -> World {
    let mut w = World::new();
    let a = cq("a").cohort("co").flavor("x", &[("cpu", q(4))]);
    w.cq(if strict { a.strict() } else { a });
    w.cq(cq("b").cohort("co").flavor("x", &[("cpu", q(0))]).flavor("y", &[("cpu", q(1))]));
    w.running(job("r", "a").req("cpu", 1), "x");
    w.submit(job("big", "a").req("cpu", 4));
    w.submit(job("j", "b").req("cpu", 3));
    w
}

#[test]
fn what_was_kept_out_by_a_reservation_is_tried_again_when_that_is_gone() {
    let mut w = kept_out(false);
    assert_eq!(w.cycle(), ["big WaitingForQuota".to_owned(), format!("j {NO_LONGER_FITS}")]);
    assert_eq!(w.inadmissible("a"), ["big"]);
    assert_eq!(w.cycle(), ["j WaitingForQuota"], "the search continues with y, as the reference has it");
    let first = "insufficient unused quota for cpu in flavor x, 3m more needed";
    let second = "insufficient quota for cpu in flavor y, previously considered podsets requests (0) + current podset request (3m) > maximum capacity (1m)";
    assert_eq!(w.message("j"), format!("couldn't assign flavors to pod set main: {second}, {first}"));
    assert!(w.report.scanning);
    assert_eq!(w.heap("b"), ["j"]);
    assert_eq!(w.cycle(), ["j admitted x"]);
}

#[test]
fn what_is_kept_out_in_every_cycle_waits_for_the_head_that_reserves() {
    let mut w = kept_out(true);
    w.cycle();
    assert_eq!(w.cycle(), ["j WaitingForQuota", "big WaitingForQuota"]);
    assert!(!w.report.scanning);
    assert_eq!(w.inadmissible("b"), ["j"]);
    assert_eq!(w.cycle(), ["big WaitingForQuota"], "it reserves still");
    assert_eq!(w.inadmissible("b"), ["j"]);
    // Another head goes before it, and reserves nothing.
    w.submit(job("first", "a").req("cpu", 9).priority(9));
    assert_eq!(w.cycle(), ["first ExceedsMaxQuota"]);
    assert!(w.report.scanning);
    assert_eq!(w.heap("b"), ["j"]);
    assert_eq!(w.cycle(), ["first ExceedsMaxQuota", "j admitted x"]);
}

#[test]
fn equal_workloads_are_tried_again_with_the_one_that_was_kept_out() {
    let mut w = kept_out(false);
    w.submit(job("j2", "b").req("cpu", 3));
    w.cycle();
    w.cycle();
    assert_eq!(w.heap("b"), ["j", "j2"]);
    assert_eq!(w.cycle(), ["j admitted x"]);
    w.finished("j");
    assert_eq!(w.settle().last().unwrap(), "j2 admitted x");
}

#[test]
fn what_is_kept_out_again_and_again_is_tried_a_limited_number_of_times() {
    let mut w = kept_out(false);
    for number in 0..40 {
        w.submit(job(&format!("big{number:02}"), "a").req("cpu", 4).priority(100 - number));
    }
    let lines = w.settle();
    let kept_out = format!("j {NO_LONGER_FITS}");
    assert_eq!(lines.iter().filter(|line| **line == kept_out).count(), 13);
    assert_eq!(w.inadmissible("b"), ["j"]);
    w.finished("r");
    assert!(w.settle().contains(&"big00 admitted x".to_owned()));
}

#[test]
fn what_a_head_of_another_tree_kept_from_nodes_is_tried_when_that_waits_no_more() {
    let ends: [fn(&mut World); 3] = [
        |w| w.finished("p"),
        |w| w.state("p", WorkloadState::Inactive),
        |w| w.lq("a", "a", |spec| spec.stop_policy = StopPolicy::Hold),
    ];
    for end in ends {
        let mut w = World::new();
        w.core.set_topology(&topology("t", &[HOSTNAME]));
        w.flavor("default", |spec| spec.topology = Some(n("t")));
        w.core.set_node(&node("h", &[], &[("gpu", 8)]));
        w.cq(cq("a").strict().quota(q(20)));
        w.cq(cq("b").quota(q(20)));
        w.submit(job("r", "a").gpu(1).count(5));
        assert_eq!(w.cycle(), ["r admitted default"]);
        w.submit_all([job("p", "a").gpu(1).count(8), job("w", "b").gpu(1).count(2)]);
        for _ in 0..3 {
            w.cycle();
        }
        assert_eq!((w.heap("a"), w.inadmissible("b")), (vec!["p".to_owned()], vec!["w".to_owned()]));
        end(&mut w);
        assert!(w.core.has_heads(), "no other event makes a cycle");
        assert_eq!(w.cycle(), ["w admitted default"]);
    }
}
