//! 6.8 Fair sharing.

use crate::world::{Cq, World, cohort, cq, job, q};
use sluice_core::FairStrategy::{self, LessThanInitialShare, LessThanOrEqualToFinalShare};
use sluice_core::PreemptionPolicy::{self, Any, LowerPriority, Never};
use sluice_core::{BorrowWithinCohort, FairSharing, StopPolicy, Weight, WorkloadState};

const S1: FairStrategy = LessThanOrEqualToFinalShare;
const S2: FairStrategy = LessThanInitialShare;

/// A Cohort `co` with this quota and queues `a`, `b` and `c` without.
fn shared(strategies: &[FairStrategy], quota: i64) -> World {
    let mut w = World::fair(strategies);
    w.cohort(cohort("co").quota(q(quota)));
    for queue in ["a", "b", "c"] {
        w.cq(cq(queue).cohort("co").quota(q(0)).reclaim(Any));
    }
    w
}

fn weight(queue: Cq, milli: i64) -> Cq {
    queue.with(|spec| spec.fair_weight = Weight::from_milli(milli))
}

/// Several running workloads of a queue.
fn run(w: &mut World, names: &[&str], queue: &str, gpu: i64) {
    for name in names {
        w.running(job(name, queue).gpu(gpu), "default");
    }
}

#[test]
fn s6_8_01_the_share_is_what_is_borrowed_in_thousandths_of_what_is_lendable() {
    let mut w = shared(&[], 10);
    run(&mut w, &["r"], "a", 3);
    assert_eq!((w.share("a"), w.share("b")), (300, 0));
    w.cq(cq("b").cohort("co").quota(q(2)));
    run(&mut w, &["s"], "b", 2);
    assert_eq!((w.share("a"), w.share("b")), (250, 0), "12 are lendable, and b is within nominal");
}

#[test]
fn s6_8_02_the_dominant_resource_counts() {
    let mut w = World::fair(&[]);
    w.cohort(cohort("co").flavor("x", &[("cpu", q(10)), ("gpu", q(4))]));
    w.cq(cq("a").cohort("co").flavor("x", &[("cpu", q(0)), ("gpu", q(0))]));
    w.running(job("r", "a").req("cpu", 3).gpu(1), "x");
    assert_eq!(w.share("a"), 300);
    w.running(job("s", "a").gpu(1), "x");
    assert_eq!(w.share("a"), 500);
}

#[test]
fn s6_8_03_borrowed_and_lendable_are_summed_over_the_flavors_of_a_resource() {
    let mut w = World::fair(&[]);
    w.cohort(cohort("co").flavor("x", &[("gpu", q(10))]).flavor("y", &[("gpu", q(10))]));
    w.cq(cq("a").cohort("co").flavor("x", &[("gpu", q(0))]).flavor("y", &[("gpu", q(0))]));
    w.running(job("r", "a").gpu(3), "x");
    assert_eq!(w.share("a"), 150);
    w.running(job("s", "a").gpu(2), "y");
    assert_eq!(w.share("a"), 250);
}

#[test]
fn s6_8_04_quota_unused_in_one_flavor_does_not_offset_borrowing_in_another() {
    let mut w = World::fair(&[]);
    w.cohort(cohort("co").flavor("x", &[("gpu", q(5))]).flavor("y", &[("gpu", q(0))]));
    w.cq(cq("a").cohort("co").flavor("x", &[("gpu", q(0))]).flavor("y", &[("gpu", q(5))]));
    w.running(job("r", "a").gpu(2), "x");
    assert_eq!(w.share("a"), 200);
}

#[test]
fn s6_8_05_the_share_is_divided_by_the_weight_and_rounded_up() {
    let mut w = World::fair(&[]);
    w.cohort(cohort("co").quota(q(7)));
    for (queue, milli, share) in [("a", 1000, 143), ("b", 2000, 72), ("c", 500, 286)] {
        w.cq(weight(cq(queue).cohort("co").quota(q(0)), milli));
        run(&mut w, &[&format!("r{queue}")], queue, 1);
        assert_eq!(w.share(queue), share, "1000/7 divided by {milli}/1000");
    }
}

#[test]
fn s6_8_06_weight_zero_is_infinite_while_borrowing() {
    let mut w = World::fair(&[]);
    w.cohort(cohort("co").quota(q(7)));
    w.cq(weight(cq("a").cohort("co").quota(q(1)), 0));
    run(&mut w, &["r"], "a", 1);
    assert_eq!(w.share("a"), 0);
    run(&mut w, &["s"], "a", 1);
    assert_eq!(w.share("a"), i64::MAX);
}

#[test]
fn s6_8_07_borrowing_counts_even_where_nothing_is_lendable() {
    let mut w = World::fair(&[]);
    w.cq(cq("a").cohort("co").quota(q(0)));
    w.cq(weight(cq("b").cohort("co").quota(q(0)), 0));
    run(&mut w, &["r"], "a", 1);
    run(&mut w, &["s"], "b", 1);
    assert_eq!((w.share("a"), w.share("b")), (0, i64::MAX));
}

#[test]
fn s6_8_08_without_a_parent_the_share_is_zero() {
    let mut w = World::fair(&[]);
    w.cq(cq("a").quota(q(1)));
    run(&mut w, &["r"], "a", 5);
    assert_eq!(w.share("a"), 0);
    w.cq(cq("b").cohort("co").quota(q(1)));
    run(&mut w, &["s"], "b", 5);
    assert_eq!(w.core.cohort_status("co").unwrap().weighted_share, 0);
}

#[test]
fn s6_8_09_a_cohorts_share_is_relative_to_its_parent_and_a_queues_to_its_cohort() {
    let mut w = World::fair(&[]);
    w.cohort(cohort("root").quota(q(8)));
    w.cohort(cohort("mid").parent("root").quota(q(2).borrow(2)).weight(2000));
    w.cq(cq("a").cohort("mid").quota(q(0)));
    run(&mut w, &["r"], "a", 3);
    // mid can have 2 + 2, the root 8 + 2.
    assert_eq!(w.share("a"), 750);
    assert_eq!(w.core.cohort_status("mid").unwrap().weighted_share, 50);
}

#[test]
fn s6_8_10_weight_zero_ranks_above_all_and_among_themselves_by_the_unweighted_share() {
    let mut w = World::fair(&[]);
    w.cohort(cohort("co").quota(q(20)));
    for (queue, milli) in [("heavy", 1000), ("zero_much", 0), ("zero_less", 0)] {
        w.cq(weight(cq(queue).cohort("co").quota(q(0)), milli));
    }
    run(&mut w, &["r1"], "heavy", 9);
    run(&mut w, &["r2"], "zero_much", 2);
    run(&mut w, &["r3"], "zero_less", 1);
    w.submit_all([job("j2", "zero_much").gpu(1), job("j3", "zero_less").gpu(1), job("j1", "heavy").gpu(1)]);
    assert_eq!(w.cycle(), ["j1 admitted default", "j3 admitted default", "j2 admitted default"]);
}

#[test]
fn s6_8_11_less_than_or_equal_to_final_share_compares_with_the_share_after_the_removal() {
    let head = |gpu| {
        let mut w = shared(&[S1], 6);
        run(&mut w, &["v1", "v2"], "b", 3);
        w.submit(job("j", "a").gpu(gpu));
        w.cycle().pop().unwrap()
    };
    // After the removal b has 500.
    assert_eq!(head(3), "j preempts v2:InCohortFairSharing");
    assert_eq!(head(4), "j WaitingForQuota");
}

#[test]
fn s6_8_12_less_than_initial_share_compares_with_the_share_before_the_removal() {
    let head = |strategy, gpu| {
        let mut w = shared(&[strategy], 4);
        run(&mut w, &["v"], "b", 4);
        w.submit(job("j", "a").gpu(gpu));
        w.cycle().pop().unwrap()
    };
    assert_eq!(head(S2, 3), "j preempts v:InCohortFairSharing", "750 < 1000");
    assert_eq!(head(S2, 4), "j WaitingForQuota", "1000 is not below 1000");
    assert_eq!(head(S1, 1), "j WaitingForQuota", "after the removal b has 0");
}

#[test]
fn s6_8_13_the_second_strategy_is_tried_on_what_the_first_did_not_take() {
    let mut w = shared(&[S1, S2], 4);
    run(&mut w, &["v"], "b", 4);
    w.submit(job("j", "a").gpu(3));
    assert_eq!(w.cycle(), ["j preempts v:InCohortFairSharing"]);
    let mut w =
        World::configured(|config| config.fair_sharing = Some(FairSharing { strategies: Vec::new() }));
    w.cohort(cohort("co").quota(q(4)));
    w.cq(cq("a").cohort("co").quota(q(0)).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(0)));
    run(&mut w, &["v"], "b", 4);
    w.submit(job("j", "a").gpu(3));
    assert_eq!(w.cycle(), ["j preempts v:InCohortFairSharing"], "no strategies are the default, both");
}

#[test]
fn s6_8_14_the_second_strategy_offers_each_queue_once_and_then_gives_up() {
    let head = |gpu| {
        let mut w = shared(&[S1, S2], 7);
        run(&mut w, &["v1", "v2"], "b", 3);
        run(&mut w, &["own"], "a", 1);
        w.submit(job("j", "a").gpu(gpu));
        w.cycle().pop().unwrap()
    };
    // After the removal b has 3/7. With 4/7 and 5/7 a passes only the second strategy, for the first candidate of b.
    assert_eq!(head(3), "j preempts v2:InCohortFairSharing");
    assert_eq!(head(4), "j WaitingForQuota");
}

#[test]
fn s6_8_15_the_own_queues_candidates_need_no_comparison() {
    let mut w = World::fair(&[S1]);
    w.cohort(cohort("co").quota(q(6)));
    w.cq(cq("a").cohort("co").quota(q(0)).within(LowerPriority).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(0)));
    run(&mut w, &["v"], "b", 2);
    w.running(job("own", "a").gpu(4).priority(-1), "default");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j preempts own:InClusterQueue"]);
}

/// `a` borrows cpu, and its head asks for gpu within nominal, which `b` borrows with one workload.
fn within_nominal(gate: bool) -> String {
    let mut w = World::configured(|config| {
        config.fair_sharing = Some(FairSharing { strategies: vec![S1] });
        config.gates.fair_sharing_preempt_within_nominal = gate;
    });
    w.cohort(cohort("co").flavor("x", &[("cpu", q(10)), ("gpu", q(0))]));
    w.cq(cq("a").cohort("co").flavor("x", &[("cpu", q(0)), ("gpu", q(2))]).reclaim(Any));
    w.cq(cq("b").cohort("co").flavor("x", &[("cpu", q(0)), ("gpu", q(2))]));
    w.running(job("cpu", "a").req("cpu", 5), "x");
    w.running(job("v", "b").gpu(4), "x");
    w.submit(job("j", "a").gpu(2));
    w.cycle().pop().unwrap()
}

#[test]
fn s6_8_16_a_queue_that_stays_within_nominal_takes_without_comparing_shares() {
    assert_eq!(within_nominal(true), "j preempts v:InCohortReclamation");
    assert_eq!(within_nominal(false), "j WaitingForQuota", "a has 500 of cpu, b without v has 0");
}

#[test]
fn s6_8_17_the_incoming_usage_counts_for_being_within_nominal() {
    let mut w = World::fair(&[S1]);
    w.cq(cq("a").cohort("co").quota(q(2)).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(2)));
    run(&mut w, &["own"], "a", 1);
    run(&mut w, &["v"], "b", 3);
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j preempts v:InCohortReclamation"]);
    w.finished("j");
    w.submit(job("k", "a").gpu(2));
    assert_eq!(w.cycle(), ["k WaitingForQuota"], "250 against 0 after the removal");
}

#[test]
fn s6_8_18_shares_are_compared_at_the_children_of_the_lowest_common_ancestor() {
    let mut w = World::fair(&[S1, S2]);
    w.cohort(cohort("root").quota(q(10)));
    w.cohort(cohort("left").parent("root"));
    w.cohort(cohort("right").parent("root"));
    w.cq(cq("a").cohort("left").quota(q(0)).reclaim(LowerPriority));
    w.cq(cq("sibling").cohort("left").quota(q(0)));
    w.cq(cq("b").cohort("right").quota(q(0)));
    w.running(job("safe", "sibling").gpu(5).priority(9), "default");
    for name in ["v1", "v2", "v3", "v4", "v5"] {
        w.running(job(name, "b").gpu(1).priority(-1), "default");
    }
    w.submit(job("j", "a").gpu(1));
    // a itself would have 100, but left 600 against the 500 of right.
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    w.finished("j");
    w.running(job("safe", "sibling").gpu(4).priority(9), "default");
    w.running(job("v6", "b").gpu(1).priority(-1), "default");
    w.submit(job("k", "a").gpu(1));
    assert_eq!(w.cycle(), ["k preempts v6:InCohortFairSharing"], "left 500, right 500 after the removal");
}

#[test]
fn s6_8_19_the_queue_with_the_highest_share_is_taken_from_first() {
    let mut w = shared(&[S1], 6);
    run(&mut w, &["b1", "b2", "b3", "b4"], "b", 1);
    run(&mut w, &["c1", "c2"], "c", 1);
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j preempts b4:InCohortFairSharing b3:InCohortFairSharing"]);
}

#[test]
fn s6_8_20_the_order_is_worked_out_again_after_each_victim() {
    let mut w = shared(&[S1], 6);
    run(&mut w, &["b1", "b2", "b3"], "b", 1);
    run(&mut w, &["c1", "c2", "c3"], "c", 1);
    w.submit(job("j", "a").gpu(2));
    // Equal shares: the queue of the candidate that comes first; then the other has the higher share.
    assert_eq!(w.cycle(), ["j preempts c3:InCohortFairSharing b3:InCohortFairSharing"]);
}

#[test]
fn s6_8_21_from_the_root_the_child_with_the_highest_share_is_descended_into() {
    let mut w = World::fair(&[S1]);
    w.cohort(cohort("root").quota(q(10)));
    w.cohort(cohort("mid").parent("root"));
    for (queue, cohort) in [("a", "root"), ("b", "root"), ("m1", "mid"), ("m2", "mid")] {
        w.cq(cq(queue).cohort(cohort).quota(q(0)).reclaim(Any));
    }
    run(&mut w, &["b1", "b2", "b3", "b4"], "b", 1);
    run(&mut w, &["x1", "x2"], "m1", 1);
    run(&mut w, &["y1", "y2", "y3", "y4"], "m2", 1);
    w.submit(job("j", "a").gpu(1));
    // b has 400, but mid 600; in it m2 has more than m1.
    assert_eq!(w.cycle(), ["j preempts y4:InCohortFairSharing"]);
}

#[test]
fn s6_8_22_a_cohort_wins_a_tie_with_a_queue() {
    let mut w = World::fair(&[S1]);
    w.cohort(cohort("root").quota(q(8)));
    w.cohort(cohort("mid").parent("root"));
    for (queue, cohort) in [("a", "root"), ("b", "root"), ("m", "mid")] {
        w.cq(cq(queue).cohort(cohort).quota(q(0)).reclaim(Any));
    }
    run(&mut w, &["m1", "m2"], "m", 2);
    run(&mut w, &["b1", "b2"], "b", 2);
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j preempts m2:InCohortFairSharing"]);
}

#[test]
fn s6_8_22_of_queues_that_tie_the_order_of_their_candidates_decides_other_queues_before_the_own() {
    let mut w = World::fair(&[S1]);
    w.cohort(cohort("co").flavor("default", &[("cpu", q(2)), ("gpu", q(2))]));
    for queue in ["a", "b"] {
        let queue = cq(queue).cohort("co").flavor("default", &[("cpu", q(0)), ("gpu", q(0))]);
        w.cq(queue.reclaim(Any).within(LowerPriority));
    }
    w.running(job("own", "a").gpu(1).priority(-1), "default");
    w.running(job("other", "b").gpu(1).priority(-1), "default");
    w.running(job("cpu", "b").req("cpu", 2), "default");
    w.submit(job("j", "a").gpu(1));
    // With j a has all of the gpu, and b all of the cpu, with and without its gpu.
    assert_eq!(w.cycle(), ["j preempts other:InCohortFairSharing"]);
}

#[test]
fn s6_8_23_a_queue_that_does_not_borrow_is_not_taken_from() {
    let mut w = World::fair(&[S1, S2]);
    w.cohort(cohort("co").quota(q(2)));
    w.cq(cq("a").cohort("co").quota(q(0)).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(2)));
    w.cq(cq("c").cohort("co").quota(q(0)));
    w.running(job("c1", "c").gpu(1), "default");
    w.running(job("c2", "c").gpu(1), "default");
    w.running(job("nominal", "b").gpu(2).priority(-9), "default");
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j preempts c2:InCohortFairSharing"]);
}

#[test]
fn s6_8_23_nor_one_that_no_longer_borrows_once_its_victims_are_gone() {
    let mut w = World::fair(&[S1, S2]);
    w.cq(cq("a").cohort("co").quota(q(5)).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(3)));
    // Its usage counts, and none of it can be taken (6.3.12).
    w.cq(cq("stopped").cohort("co").quota(q(0)).with(|spec| spec.stop_policy = StopPolicy::Hold));
    run(&mut w, &["s"], "stopped", 4);
    run(&mut w, &["b1", "b2", "b3", "b4"], "b", 1);
    w.submit(job("j", "a").gpu(3));
    assert_eq!(w.cycle(), ["j WaitingForQuota"], "b borrows one only");
    w.submit(job("less", "a").gpu(1));
    assert_eq!(w.cycle(), ["less preempts b4:InCohortReclamation"]);
}

#[test]
fn s6_8_24_with_an_infinite_share_of_its_own_no_queue_with_a_finite_one_can_be_taken() {
    let head = |milli| {
        let mut w = World::fair(&[S1, S2]);
        w.cohort(cohort("co").quota(q(4)));
        w.cq(weight(cq("a").cohort("co").quota(q(0)).reclaim(Any), milli));
        w.cq(cq("b").cohort("co").quota(q(0)));
        run(&mut w, &["v1", "v2", "v3", "v4"], "b", 1);
        w.submit(job("j", "a").gpu(1));
        w.cycle().pop().unwrap()
    };
    assert_eq!(head(1), "j WaitingForQuota", "250 / 0.001 is large, but finite");
    assert_eq!(head(0), "j WaitingForQuota");
    assert_eq!(head(1000), "j preempts v4:InCohortFairSharing");
}

#[test]
fn s6_8_25_a_finite_share_takes_from_an_infinite_one() {
    let mut w = World::fair(&[S1]);
    w.cohort(cohort("co").quota(q(4)));
    w.cq(cq("a").cohort("co").quota(q(0)).reclaim(Any));
    w.cq(weight(cq("b").cohort("co").quota(q(0)), 0));
    run(&mut w, &["v1", "v2", "v3", "v4"], "b", 1);
    w.submit(job("j", "a").gpu(3));
    let taken: Vec<String> = ["v4", "v3", "v2"].map(|name| format!(" {name}:InCohortFairSharing")).into();
    assert_eq!(w.cycle(), [format!("j preempts{}", taken.concat())]);
}

#[test]
fn s6_8_26_the_reclaim_policy_filters_candidates_under_fair_sharing_too() {
    let head = |policy: PreemptionPolicy, victim| {
        let mut w = World::fair(&[S1, S2]);
        w.cohort(cohort("co").quota(q(4)));
        w.cq(cq("a").cohort("co").quota(q(0)).reclaim(policy));
        w.cq(cq("b").cohort("co").quota(q(0)));
        for name in ["v1", "v2", "v3", "v4"] {
            w.running(job(name, "b").gpu(1).priority(victim), "default");
        }
        w.submit(job("j", "a").gpu(1));
        w.cycle().pop().unwrap()
    };
    assert_eq!(head(Any, 9), "j preempts v4:InCohortFairSharing");
    assert_eq!(head(LowerPriority, 0), "j WaitingForQuota");
    assert_eq!(head(LowerPriority, -1), "j preempts v4:InCohortFairSharing");
    assert_eq!(head(Never, -1), "j WaitingForQuota");
}

#[test]
fn s6_8_27_there_is_no_borrow_within_cohort_under_fair_sharing() {
    let mut w = World::fair(&[S1]);
    w.cohort(cohort("co").quota(q(4)));
    let borrow = BorrowWithinCohort { max_priority_threshold: None };
    let queue = cq("a").cohort("co").quota(q(0)).reclaim(Any);
    w.cq(queue.with(|spec| spec.preemption.borrow_within_cohort = Some(borrow)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.running(job("v", "b").gpu(4).priority(-9), "default");
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j WaitingForQuota"], "only the strategies decide");
}

#[test]
fn s6_8_28_victims_that_are_not_needed_are_given_back_with_borrowing_allowed() {
    let mut w = shared(&[S1], 12);
    w.running(job("large", "b").gpu(4).priority(5), "default");
    w.running(job("small", "b").gpu(1), "default");
    w.running(job("rest", "b").gpu(7).priority(9), "default");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j preempts large:InCohortFairSharing"]);
}

#[test]
fn s6_8_29_evicted_candidates_come_first() {
    let mut w = shared(&[S1], 4);
    w.running(job("low", "b").gpu(2).priority(-9), "default");
    w.holding(job("leaving", "b").gpu(2).priority(9), "b", "default", |state| {
        if let WorkloadState::Reserved { evicted, .. } = state {
            *evicted = true;
        }
    });
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j preempts leaving:InCohortFairSharing (evicted before)"]);
}

#[test]
fn s6_8_30_without_fair_sharing_weights_decide_nothing() {
    let mut w = World::new();
    w.cohort(cohort("co").quota(q(4)));
    w.cq(weight(cq("a").cohort("co").quota(q(0)).reclaim(Any), 9000));
    w.cq(weight(cq("b").cohort("co").quota(q(0)), 0));
    run(&mut w, &["v1", "v2", "v3", "v4"], "b", 1);
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
}
