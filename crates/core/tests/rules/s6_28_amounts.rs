//! 6.28 Saturating amounts, as far as decisions show them.

use crate::world::{World, cohort, cq, job, q};
use sluice_core::Amount;

const MAX: i64 = i64::MAX;

#[test]
fn s6_28_01_unlimited_less_what_is_used_stays_unlimited() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(MAX)));
    w.submit_all([job("one", "a").gpu(1 << 61), job("two", "a").gpu(1 << 61), job("three", "a").gpu(1)]);
    assert_eq!(w.settle(), ["one admitted default", "two admitted default", "three admitted default"]);
    assert_eq!(w.available("a"), MAX);
}

#[test]
fn s6_28_01_usage_that_saturates_is_unlimited_and_leaves_nothing() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(MAX)));
    w.submit_all([job("one", "a").gpu(MAX - 1), job("two", "a").gpu(MAX - 1), job("three", "a").gpu(1)]);
    assert_eq!(w.settle(), ["one admitted default", "two admitted default", "three WaitingForQuota"]);
    w.finished("one");
    assert_eq!(w.cycle(), ["three admitted default"], "the sum was clamped only to be compared");
}

#[test]
fn s6_28_02_unlimited_and_anything_is_unlimited() {
    let mut w = World::new();
    w.cohort(cohort("co").quota(q(5)));
    w.cq(cq("a").cohort("co").quota(q(MAX)));
    w.cq(cq("b").cohort("co").quota(q(1)));
    assert_eq!(w.subtree("co"), (MAX, 0));
    w.submit(job("j", "b").gpu(1 << 60));
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_28_03_unlimited_less_unlimited_is_zero_so_that_all_of_it_is_lent() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(MAX).lend(MAX)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    assert_eq!((w.subtree("co").0, w.available("b")), (MAX, MAX));
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(MAX).lend(3)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    assert_eq!(w.available("a"), MAX, "what is not lent stays unlimited");
}

#[test]
fn s6_28_04_a_bounded_amount_less_unlimited_is_the_lowest() {
    assert_eq!(Amount(7).sub(Amount::UNLIMITED), Amount(i64::MIN));
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(4)));
    w.running(job("r", "a").gpu(MAX), "default");
    assert_eq!(w.available("b"), 0);
    w.submit(job("j", "b").gpu(1));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    w.finished("r");
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!((w.used("a"), w.used("b")), ((0, 0), (1, 0)), "nothing was lost by saturating");
}

#[test]
fn s6_28_05_sums_of_quota_clamp_at_the_largest_amount() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(MAX - 1)));
    w.cq(cq("b").cohort("co").quota(q(MAX - 1)));
    assert_eq!(w.subtree("co").0, MAX);
}

#[test]
fn s6_28_06_a_request_times_its_count_clamps_at_the_largest_amount() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(MAX - 1)));
    w.submit(job("j", "a").gpu(MAX / 2).count(10_000));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
}

#[test]
fn s6_28_07_an_unlimited_borrowing_limit_is_none() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(1).borrow(MAX)));
    w.cq(cq("b").cohort("co").quota(q(4)));
    assert_eq!(w.available("a"), 5);
}

#[test]
fn s6_28_08_negative_quota_takes_from_the_cohort() {
    let mut w = World::new();
    w.cohort(cohort("co").quota(q(5)));
    w.cq(cq("a").cohort("co").quota(q(-2)));
    assert_eq!((w.subtree("co").0, w.available("a")), (3, 3));
}
