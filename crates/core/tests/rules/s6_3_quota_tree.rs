//! 6.3 Quota tree.

use crate::world::{World, cohort, cq, job, q};
use sluice_core::{InactiveCause, PreemptionPolicy, StopPolicy};

#[test]
fn s6_3_01_the_subtree_quota_of_a_cohort_is_its_own_and_that_of_its_children() {
    let mut w = World::new();
    w.cohort(cohort("root").quota(q(3)));
    w.cohort(cohort("mid").parent("root").quota(q(2)));
    w.cq(cq("a").cohort("mid").quota(q(4)));
    w.cq(cq("b").cohort("root").quota(q(6)));
    assert_eq!((w.subtree("mid").0, w.subtree("root").0), (6, 15));
}

#[test]
fn s6_3_02_a_lending_limit_keeps_the_rest_as_local_quota() {
    let mut w = World::new();
    w.cohort(cohort("co").quota(q(3)));
    w.cq(cq("a").cohort("co").quota(q(4).lend(1)));
    w.cq(cq("b").cohort("co").quota(q(6).lend(60)));
    assert_eq!(w.subtree("co").0, 3 + 1 + 6);
    w.submit(job("j", "b").gpu(11));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
    assert_eq!(
        w.message("j"),
        "couldn't assign flavors to pod set main: insufficient quota for gpu in flavor default, previously \
         considered podsets requests (0) + current podset request (11) > maximum capacity (10)"
    );
}

#[test]
fn s6_3_02_a_lending_limit_of_a_cohort_keeps_the_rest_in_its_subtree() {
    let mut w = World::new();
    w.cohort(cohort("root"));
    w.cohort(cohort("mid").parent("root").quota(q(2).lend(1)));
    w.cq(cq("a").cohort("mid").quota(q(4)));
    w.cq(cq("b").cohort("root").quota(q(1)));
    assert_eq!((w.subtree("mid").0, w.subtree("root").0), (6, 2));
    assert_eq!((w.available("a"), w.available("b")), (7, 2));
}

#[test]
fn s6_3_03_only_usage_above_local_quota_reaches_the_parent() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4).lend(1)));
    w.cq(cq("b").cohort("co").quota(q(6)));
    w.running(job("j1", "a").gpu(2), "default");
    assert_eq!(w.subtree("co"), (7, 0));
    w.running(job("j2", "a").gpu(3), "default");
    assert_eq!((w.used("a"), w.subtree("co")), ((5, 1), (7, 2)));
    w.running(job("j3", "b").gpu(1), "default");
    assert_eq!(w.subtree("co"), (7, 3));
}

#[test]
fn s6_3_04_removing_usage_is_the_inverse_of_adding_it_in_any_order() {
    let mut w = World::new();
    w.cohort(cohort("root"));
    w.cohort(cohort("mid").parent("root").quota(q(2).lend(1)));
    w.cq(cq("a").cohort("mid").quota(q(4).lend(1)));
    w.cq(cq("b").cohort("mid").quota(q(3).lend(0)));
    for (name, queue, gpu) in [("j1", "a", 2), ("j2", "b", 4), ("j3", "a", 3), ("j4", "b", 2)] {
        w.running(job(name, queue).gpu(gpu), "default");
    }
    // a: 5 of which 3 local; b: 6 of which 3 local; mid: 2 + 3, of which 2 local.
    assert_eq!((w.subtree("mid").1, w.subtree("root").1), (5, 3));
    w.finished("j1");
    assert_eq!((w.subtree("mid").1, w.subtree("root").1), (3, 1));
    w.finished("j4");
    assert_eq!((w.subtree("mid").1, w.subtree("root").1), (1, 0));
    w.finished("j3");
    w.finished("j2");
    assert_eq!((w.used("a"), w.used("b"), w.subtree("mid").1, w.subtree("root").1), ((0, 0), (0, 0), 0, 0));
}

#[test]
fn s6_3_05_available_is_what_is_free_locally_and_in_the_parent() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4).lend(1)));
    w.cq(cq("b").cohort("co").quota(q(6)));
    assert_eq!((w.available("a"), w.available("b")), (3 + 7, 7));
    w.running(job("j1", "a").gpu(2), "default");
    assert_eq!((w.available("a"), w.available("b")), (1 + 7, 7));
    w.running(job("j2", "a").gpu(2), "default");
    assert_eq!((w.available("a"), w.available("b")), (6, 6));
}

#[test]
fn s6_3_06_a_borrowing_limit_is_measured_against_what_is_stored_in_the_parent() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4).lend(1).borrow(2)));
    w.cq(cq("b").cohort("co").quota(q(6)));
    // Local 3; stored in the parent 1, so that 1 + 2 of it.
    assert_eq!(w.available("a"), 3 + 3);
    w.running(job("j1", "a").gpu(4), "default");
    assert_eq!(w.available("a"), 2);
    w.running(job("j2", "a").gpu(2), "default");
    assert_eq!(w.available("a"), 0);
    assert_eq!(w.available("b"), 7 - 3);
}

#[test]
fn s6_3_07_available_at_a_cluster_queue_is_at_least_zero() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(2)));
    w.running(job("j", "a").gpu(10), "default");
    assert_eq!((w.available("a"), w.available("b")), (0, 0));
}

#[test]
fn s6_3_08_a_root_over_its_quota_is_negative_below_too() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(8).lend(0)));
    w.running(job("j", "a").gpu(10), "default");
    assert_eq!(w.available("b"), 8 - 6, "the root's −6 counts against the local 8");
}

#[test]
fn s6_3_09_potential_available_is_the_maximum_capacity_of_the_no_fit_test() {
    let mut w = World::new();
    w.cohort(cohort("root").quota(q(5)));
    w.cohort(cohort("mid").parent("root").quota(q(0).borrow(2)));
    w.cq(cq("a").cohort("mid").quota(q(1)));
    w.submit(job("four", "a").gpu(4));
    assert_eq!(w.cycle(), ["four ExceedsMaxQuota"]);
    assert!(w.message("four").ends_with("current podset request (4) > maximum capacity (3)"));
    w.submit(job("three", "a").gpu(3));
    assert_eq!(w.cycle(), ["three admitted default"]);
}

#[test]
fn s6_3_09_potential_available_does_not_depend_on_usage() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(2)));
    w.running(job("used", "b").gpu(6), "default");
    w.submit_all([job("max", "a").gpu(6)]);
    assert_eq!(w.cycle(), ["max WaitingForQuota"]);
    w.submit(job("above", "a").gpu(7));
    assert_eq!(w.cycle(), ["above ExceedsMaxQuota"]);
}

#[test]
fn s6_3_10_a_cluster_queue_borrows_what_it_uses_above_nominal() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(4)));
    w.running(job("j1", "a").gpu(4), "default");
    assert_eq!(w.used("a"), (4, 0));
    w.running(job("j2", "a").gpu(1), "default");
    assert_eq!(w.used("a"), (5, 1));
}

#[test]
fn s6_3_11_a_queue_within_nominal_is_not_preempted_from_other_queues() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)).reclaim(PreemptionPolicy::Any));
    w.cq(cq("b").cohort("co").quota(q(4)));
    w.cq(cq("c").cohort("co").quota(q(0)));
    w.running(job("nominal", "b").gpu(4), "default");
    w.running(job("borrows", "c").gpu(1), "default");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j preempts borrows:InCohortReclamation"]);
    w.finished("borrows");
    assert_eq!(w.cycle(), ["j admitted default"]);
    w.submit(job("next", "a").gpu(1));
    assert_eq!(w.cycle(), ["next WaitingForQuota"]);
}

#[test]
fn s6_3_12_the_quota_of_an_inactive_queue_stays_borrowable() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(6)).with(|spec| spec.stop_policy = StopPolicy::Hold));
    w.submit(job("j", "a").gpu(10));
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(w.used("a"), (10, 6));
}

#[test]
fn s6_3_12_the_usage_of_an_inactive_queue_counts_and_cannot_be_preempted() {
    let world = |stop| {
        let mut w = World::new();
        w.cq(cq("a").cohort("co").quota(q(4)).reclaim(PreemptionPolicy::Any));
        w.cq(cq("b").cohort("co").quota(q(6)).with(|spec| spec.stop_policy = stop));
        w.running(job("borrows", "b").gpu(8), "default");
        w.submit(job("j", "a").gpu(4));
        w.cycle()
    };
    assert_eq!(world(StopPolicy::None), ["j preempts borrows:InCohortReclamation"]);
    assert_eq!(world(StopPolicy::Hold), ["j WaitingForQuota"]);
}

#[test]
fn s6_3_13_a_cohort_without_an_object_has_no_quota_and_no_limits() {
    let mut w = World::new();
    w.cq(cq("a").cohort("implicit").quota(q(4)));
    w.cq(cq("b").cohort("implicit").quota(q(6)));
    assert_eq!(w.subtree("implicit"), (10, 0));
    w.submit(job("j", "a").gpu(10));
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_3_14_all_queues_under_a_cycle_of_cohorts_are_inactive_until_it_is_gone() {
    let mut w = World::new();
    w.cohort(cohort("x").parent("y"));
    w.cohort(cohort("y").parent("x"));
    w.cohort(cohort("below").parent("x"));
    w.cq(cq("in").cohort("y").quota(q(1)));
    w.cq(cq("under").cohort("below").quota(q(1)));
    w.cq(cq("free").cohort("other").quota(q(1)));
    w.submit_all([job("j1", "in").gpu(1), job("j2", "under").gpu(1), job("j3", "free").gpu(1)]);
    assert_eq!(w.cycle(), ["j3 admitted default"]);
    for queue in ["in", "under"] {
        let status = w.core.cluster_queue_status(queue).unwrap();
        assert!(matches!(&status.inactive[..], [InactiveCause::CohortCycle(names)] if names.len() == 2));
    }
    assert!(w.core.cohort_status("x").unwrap().in_cycle && w.core.cohort_status("below").unwrap().in_cycle);
    w.cohort(cohort("y"));
    assert_eq!(w.cycle(), ["j1 admitted default", "j2 admitted default"]);
}

/// root (10 of its own) over mid (2) over a (1).
fn three_levels() -> World {
    let mut w = World::new();
    w.cohort(cohort("root").quota(q(10)));
    w.cohort(cohort("mid").parent("root").quota(q(2)));
    w.cq(cq("a").cohort("mid").quota(q(1)));
    w
}

fn considered(w: &World) -> String {
    match &w.report.entries[0].outcome {
        sluice_core::Outcome::Admitted { considered, .. } => considered.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn s6_3_15_the_borrowing_height_is_that_of_the_lowest_subtree_that_fits() {
    for (gpu, height) in [(3, 1), (4, 2), (13, 2)] {
        let mut w = three_levels();
        w.submit(job("j", "a").gpu(gpu));
        assert_eq!(w.cycle(), ["j admitted default"]);
        let expected = format!("main: default(Fit;borrow={height})");
        assert_eq!(considered(&w), expected, "{gpu} gpu");
    }
    let mut w = three_levels();
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(considered(&w), "", "what fits within nominal has height 0");
}

#[test]
fn s6_3_16_local_available_covers_a_part_of_what_is_borrowed_from_above() {
    let mut w = World::new();
    w.cohort(cohort("top").quota(q(9)));
    w.cohort(cohort("root").parent("top").quota(q(1)));
    w.cohort(cohort("mid").parent("root").quota(q(2).lend(0)));
    w.cq(cq("a").cohort("mid").quota(q(1)));
    // mid keeps 3 for itself, so that only 1 of 4 is asked from root, which has it.
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(considered(&w), "main: default(Fit;borrow=2)");
}
