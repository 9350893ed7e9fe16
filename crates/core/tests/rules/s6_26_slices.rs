//! 6.26: slices of elastic jobs.

use crate::world::{Job, OVERLAPS, World, cq, job, q};
use sluice_core::{FairStrategy, PreemptionPolicy, WorkloadState};

/// A queue with this quota in which the slice `old` has three pods.
fn with_three(quota: i64) -> (World, Job) {
    let mut world = World::new();
    world.cq(cq("q").quota(q(quota)));
    let old = job("old", "q").gpu(1).count(3);
    world.running(old.clone(), "default");
    (world, old)
}

#[test]
fn s6_26_1_a_slice_needs_only_what_it_has_more_than_the_one_it_replaces() {
    let (mut world, old) = with_three(5);
    world.submit(job("alone", "q").gpu(1).count(5));
    assert_eq!(world.cycle(), ["alone WaitingForQuota"]);
    world.submit(job("new", "q").gpu(1).count(5).replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new admitted default"]);
    assert_eq!(world.used("q"), (5, 0), "nothing is counted twice");
    world.finished("old");
    assert_eq!(world.used("q"), (5, 0));
}

#[test]
fn s6_26_1_a_slice_that_needs_more_than_is_free_waits() {
    let (mut world, old) = with_three(5);
    world.submit(job("new", "q").gpu(1).count(6).replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new ExceedsMaxQuota"], "all of it counts against what there can be");
    world.running(job("other", "q").gpu(1), "default");
    world.submit(job("new", "q").gpu(1).count(5).replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new WaitingForQuota"]);
    assert_eq!(world.used("q"), (4, 0), "the slice that runs keeps what it has");
    world.finished("other");
    assert_eq!(world.cycle(), ["new admitted default"]);
}

#[test]
fn s6_26_2_a_slice_gets_the_flavors_of_the_one_it_replaces() {
    let mut world = World::new();
    world.cq(cq("q").flavor("a", &[("gpu", q(9))]).flavor("b", &[("gpu", q(4))]));
    let old = job("old", "q").gpu(1).count(3);
    world.running(old.clone(), "b");
    world.submit(job("new", "q").gpu(1).count(5).replaces(&old, "b"));
    assert_eq!(world.cycle(), ["new ExceedsMaxQuota"]);
    let message = world.message("new");
    assert!(
        message.contains("could not assign a flavor since the original workload is assigned: b"),
        "{message}"
    );
    world.submit(job("new", "q").gpu(1).count(4).replaces(&old, "b"));
    assert_eq!(world.cycle(), ["new admitted b"]);
}

#[test]
fn s6_26_3_what_the_replaced_slice_has_more_stays_its_own() {
    let mut world = World::new();
    world.cq(cq("q").quota(q(6)));
    let old = job("old", "q").gpu(1).count(3).pod_set("more").gpu(1).count(1);
    world.running(old.clone(), "default");
    let new = job("new", "q").gpu(1).count(1).pod_set("more").gpu(1).count(2);
    world.submit(new.replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new admitted default"]);
    assert_eq!(world.used("q"), (4, 0), "its pods may still run");
    world.finished("old");
    assert_eq!(world.used("q"), (3, 0));
}

#[test]
fn s6_26_4_the_replaced_slice_is_no_victim_of_the_one_that_replaces_it() {
    let mut world = World::new();
    world.cq(cq("q").quota(q(5)).within(PreemptionPolicy::LowerPriority));
    let old = job("old", "q").gpu(1).count(3);
    world.running(old.clone(), "default");
    world.running(job("low", "q").gpu(1).count(2).priority(-1), "default");
    world.submit(job("new", "q").gpu(1).count(5).priority(3).replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new preempts low:InClusterQueue"]);
    world.finished("low");
    assert_eq!(world.cycle(), ["new admitted default"]);
}

#[test]
fn s6_26_5_a_slice_whose_predecessor_is_preempted_in_the_cycle_waits() {
    let mut world = World::new();
    world.cq(cq("a").quota(q(2)).cohort("co").reclaim(PreemptionPolicy::Any));
    world.cq(cq("b").quota(q(4)).cohort("co"));
    let old = job("old", "b").gpu(1).count(5);
    world.running(old.clone(), "default");
    world.submit(job("first", "a").gpu(1).count(2).at(1));
    world.submit(job("new", "b").gpu(1).count(6).at(2).replaces(&old, "default"));
    assert_eq!(
        world.cycle(),
        ["first preempts old:InCohortReclamation".to_owned(), format!("new {OVERLAPS}")]
    );
    // What a preempted slice holds is promised already.
    let next = world.cycle();
    assert_eq!(next.last().map(String::as_str), Some("new WaitingForQuota"));
}

#[test]
fn s6_26_6_quota_of_another_queue_is_not_taken_over() {
    let mut world = World::new();
    world.cq(cq("a").quota(q(4)));
    world.cq(cq("b").quota(q(4)));
    let old = job("old", "a").gpu(1).count(3);
    world.running(old.clone(), "default");
    world.running(job("other", "b").gpu(1).count(1), "default");
    world.submit(job("new", "b").gpu(1).count(4).replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new WaitingForQuota"]);
    world.submit(job("new", "b").gpu(1).count(3).replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new admitted default"]);
    assert_eq!((world.used("a"), world.used("b")), ((3, 0), (4, 0)));
}

#[test]
fn s6_26_7_slices_share_no_negative_answer() {
    let (mut world, old) = with_three(5);
    world.running(job("other", "q").gpu(1), "default");
    world.submit(job("new", "q").gpu(1).count(5).replaces(&old, "default").at(1));
    world.submit(job("alike", "q").gpu(1).count(5).at(2));
    assert_eq!(world.cycle(), ["new WaitingForQuota"]);
    assert_eq!(world.heap("q"), ["alike"]);
    assert_eq!(world.cycle(), ["alike WaitingForQuota"]);
}

#[test]
fn s6_26_8_two_slices_do_not_take_over_from_the_same() {
    let (mut world, old) = with_three(6);
    world.submit(job("new", "q").gpu(1).count(4).replaces(&old, "default"));
    world.submit(job("other", "q").gpu(1).count(4).replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new admitted default"]);
    assert_eq!(world.cycle(), ["other WaitingForQuota"]);
    assert_eq!(world.used("q"), (4, 0));
}

#[test]
fn s6_26_9_without_its_predecessor_a_slice_is_as_any_workload() {
    let (mut world, old) = with_three(5);
    world.running(job("other", "q").gpu(1).count(2), "default");
    world.submit(job("new", "q").gpu(1).count(4).replaces(&old, "default"));
    assert_eq!(world.cycle(), ["new WaitingForQuota"]);
    world.state("old", WorkloadState::Inactive);
    assert_eq!(world.cycle(), ["new WaitingForQuota"]);
    world.finished("other");
    assert_eq!(world.cycle(), ["new admitted default"]);
}

#[test]
fn s6_26_10_the_share_of_a_slice_counts_the_replaced_one_once() {
    let mut world = World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]);
    for name in ["a", "b"] {
        world.cq(cq(name).quota(q(2)).cohort("co"));
    }
    world.cq(cq("c").quota(q(6)).cohort("co"));
    let old = job("old", "a").gpu(1).count(4);
    world.running(old.clone(), "default");
    world.running(job("busy", "b").gpu(1).count(4), "default");
    world.submit(job("second", "b").gpu(1).count(2).at(1));
    world.submit(job("new", "a").gpu(1).count(5).at(2).replaces(&old, "default"));
    assert_eq!(world.cycle()[0], "new admitted default");
}
