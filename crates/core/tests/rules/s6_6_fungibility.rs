//! 6.6 Flavor assignment: which flavor is the better one, and what is reported.

use crate::world::{Cq, World, cohort, cq, job, n, q};
use sluice_core::PreemptionPolicy::{Any, LowerPriority};
use sluice_core::{
    Fungibility, FungibilityPolicy, FungibilityPreference, Outcome, Reason, Taint, TaintEffect,
    WhenCanPreempt,
};

const TRY_NEXT: Fungibility = Fungibility {
    when_can_borrow: FungibilityPolicy::TryNextFlavor,
    when_can_preempt: WhenCanPreempt::TryNextFlavor,
    preference: None,
};

/// A queue with gpu in flavors x and y.
fn xy(name: &str, x: i64, y: i64) -> Cq {
    cq(name).flavor("x", &[("gpu", q(x))]).flavor("y", &[("gpu", q(y))])
}

fn fungible(queue: Cq, fungibility: Fungibility) -> Cq {
    queue.with(|spec| spec.fungibility = fungibility)
}

fn taint(effect: TaintEffect) -> Taint {
    Taint { key: n("spot"), value: n("yes"), effect }
}

#[test]
fn s6_6_23_reclaiming_from_others_only_is_better_than_preempting_in_the_own_queue() {
    let mut w = World::new();
    w.cq(fungible(xy("a", 4, 4).cohort("co").within(LowerPriority).reclaim(Any), TRY_NEXT));
    w.cq(xy("b", 0, 0).cohort("co"));
    w.running(job("own", "a").gpu(4).priority(-1), "x");
    w.running(job("other", "b").gpu(4), "y");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j preempts other:InCohortReclamation"]);
}

#[test]
fn s6_6_24_a_preemption_is_better_than_one_without_candidates() {
    let mut w = World::new();
    w.cq(xy("a", 4, 4).within(LowerPriority));
    w.running(job("high", "a").gpu(4).priority(9), "x");
    w.running(job("low", "a").gpu(4).priority(-1), "y");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j preempts low:InClusterQueue"]);
}

#[test]
fn s6_6_25_a_flavor_without_candidates_is_better_than_one_that_does_not_fit() {
    let mut w = World::new();
    w.cq(xy("a", 1, 4).cohort("co").strict());
    w.cq(xy("b", 4, 0).cohort("co"));
    w.running(job("r1", "b").gpu(4), "x");
    w.running(job("r2", "a").gpu(4).priority(9), "y");
    w.submit(job("j", "a").gpu(4));
    // Only what is a preemption, though one without candidates, reserves capacity: of y, not of x.
    w.submit(job("k", "b").gpu(1));
    assert_eq!(w.cycle(), ["j WaitingForQuota", "k admitted x"]);
}

/// x: a preemption within nominal; y: fits by borrowing.
fn preempt_or_borrow(preference: Option<FungibilityPreference>) -> String {
    let mut w = World::new();
    let fungibility = Fungibility { preference, ..TRY_NEXT };
    w.cq(fungible(xy("a", 4, 0).cohort("co").within(LowerPriority), fungibility));
    w.cq(xy("b", 0, 4).cohort("co"));
    w.running(job("v", "a").gpu(4).priority(-1), "x");
    w.submit(job("j", "a").gpu(4));
    w.cycle().pop().unwrap()
}

#[test]
fn s6_6_26_borrowing_over_preemption_compares_the_mode_first_and_is_the_default() {
    assert_eq!(preempt_or_borrow(None), "j admitted y");
    assert_eq!(preempt_or_borrow(Some(FungibilityPreference::BorrowingOverPreemption)), "j admitted y");
}

#[test]
fn s6_6_27_preemption_over_borrowing_compares_the_height_first() {
    assert_eq!(
        preempt_or_borrow(Some(FungibilityPreference::PreemptionOverBorrowing)),
        "j preempts v:InClusterQueue"
    );
}

#[test]
fn s6_6_28_no_candidates_is_worse_than_borrowing_whatever_the_preference() {
    let mut w = World::new();
    let fungibility =
        Fungibility { preference: Some(FungibilityPreference::PreemptionOverBorrowing), ..TRY_NEXT };
    w.cq(fungible(xy("a", 4, 0).cohort("co").within(LowerPriority), fungibility));
    w.cq(xy("b", 0, 4).cohort("co"));
    w.running(job("high", "a").gpu(4).priority(9), "x");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j admitted y"]);
}

#[test]
fn s6_6_29_of_equal_mode_the_lower_height_is_better() {
    let mut w = World::new();
    w.cohort(cohort("root").flavor("x", &[("gpu", q(9))]).flavor("y", &[("gpu", q(9))]));
    w.cohort(cohort("mid").parent("root").flavor("y", &[("gpu", q(4))]));
    w.cq(fungible(xy("a", 0, 0).cohort("mid"), TRY_NEXT));
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j admitted y"], "x would be borrowed from the root, y from mid");
}

#[test]
fn s6_6_30_a_flavor_is_as_good_as_its_worst_resource() {
    let mut w = World::new();
    let of = |cpu: i64, gpu: i64| [("cpu", q(cpu)), ("gpu", q(gpu))];
    w.cq(cq("a").flavor("x", &of(9, 4)).flavor("y", &of(4, 4)).within(LowerPriority));
    w.running(job("vx", "a").gpu(4).priority(-1), "x");
    w.submit(job("j", "a").gpu(4).req("cpu", 4));
    assert_eq!(w.cycle(), ["j admitted y"], "cpu fits in x, but gpu only after a preemption");
    w.finished("j");
    w.running(job("vy", "a").req("cpu", 1).priority(9), "y");
    w.submit(job("k", "a").gpu(4).req("cpu", 4));
    assert_eq!(w.cycle(), ["k preempts vx:InClusterQueue"], "cpu of y has no candidates");
}

#[test]
fn s6_6_31_when_can_borrow_decides_whether_a_flavor_to_borrow_stops_the_search() {
    let world = |when_can_borrow| {
        let mut w = World::new();
        w.cq(fungible(xy("a", 0, 4).cohort("co"), Fungibility { when_can_borrow, ..Fungibility::default() }));
        w.cq(xy("b", 4, 0).cohort("co"));
        w.submit(job("j", "a").gpu(4));
        w.cycle().pop().unwrap()
    };
    assert_eq!(world(FungibilityPolicy::MayStopSearch), "j admitted x");
    assert_eq!(world(FungibilityPolicy::TryNextFlavor), "j admitted y");
    assert_eq!(FungibilityPolicy::default(), FungibilityPolicy::MayStopSearch);
}

#[test]
fn s6_6_32_when_can_preempt_decides_whether_a_flavor_to_preempt_in_stops_the_search() {
    let world = |when_can_preempt| {
        let mut w = World::new();
        let fungibility = Fungibility { when_can_preempt, ..Fungibility::default() };
        w.cq(fungible(xy("a", 4, 4).within(LowerPriority), fungibility));
        w.running(job("v", "a").gpu(4).priority(-1), "x");
        w.submit(job("j", "a").gpu(4));
        w.cycle().pop().unwrap()
    };
    assert_eq!(world(WhenCanPreempt::MayStopSearch), "j preempts v:InClusterQueue");
    assert_eq!(world(WhenCanPreempt::TryNextFlavor), "j admitted y");
    assert_eq!(WhenCanPreempt::default(), WhenCanPreempt::TryNextFlavor);
}

#[test]
fn s6_6_33_without_a_better_one_the_first_of_the_best_is_kept() {
    let mut w = World::new();
    w.cq(fungible(xy("a", 0, 0).cohort("co"), TRY_NEXT));
    w.cq(xy("b", 4, 4).cohort("co"));
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j admitted x"]);
}

#[test]
fn s6_6_34_without_the_gate_flavor_fungibility_the_first_flavor_that_fits_is_taken() {
    let mut w = World::gated(|gates| gates.flavor_fungibility = false);
    w.cq(fungible(xy("a", 0, 4).cohort("co"), TRY_NEXT));
    w.cq(xy("b", 4, 0).cohort("co"));
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j admitted x"]);
}

#[test]
fn s6_6_34_without_the_gate_what_fits_goes_before_a_preemption_and_then_the_first_that_can_do() {
    let head = |x_victim: bool, y_victim: bool, gpu: i64| {
        let mut w = World::gated(|gates| gates.flavor_fungibility = false);
        w.cq(xy("a", 4, 4).within(LowerPriority));
        for (victim, flavor) in [(x_victim, "x"), (y_victim, "y")] {
            if victim {
                w.running(job(&format!("v{flavor}"), "a").gpu(4).priority(-1), flavor);
            }
        }
        w.submit(job("j", "a").gpu(gpu));
        w.cycle().pop().unwrap()
    };
    assert_eq!(head(true, false, 4), "j admitted y");
    assert_eq!(head(true, true, 4), "j preempts vx:InClusterQueue");
    assert_eq!(head(false, false, 5), "j ExceedsMaxQuota");
}

#[test]
fn s6_6_35_the_mode_of_a_workload_is_the_worst_of_its_pod_sets() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).within(LowerPriority));
    w.running(job("v", "a").gpu(2).priority(-1), "default");
    w.submit(job("j", "a").gpu(2).pod_set("second").gpu(2));
    assert_eq!(w.cycle(), ["j preempts v:InClusterQueue"]);
    assert_eq!(
        w.message("j"),
        "couldn't assign flavors to pod set second: insufficient unused quota for gpu in flavor default, 2 more \
         needed. Pending the preemption of 1 workload(s)"
    );
}

#[test]
fn s6_6_36_pod_sets_are_joined_by_semicolons_and_reasons_sorted() {
    let mut w = World::new();
    w.cq(xy("a", 2, 2).cohort("co").within(LowerPriority));
    w.cq(xy("b", 0, 9).cohort("co"));
    w.running(job("r1", "a").gpu(2).priority(9), "x");
    w.running(job("r2", "b").gpu(11).priority(9), "y");
    w.submit(job("j", "a").gpu(2).pod_set("second").gpu(3));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    // Neither has candidates; y, where the queue uses nothing yet, is the lower to borrow from, so main gets y.
    assert_eq!(
        w.message("j"),
        "couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor x, 2 more needed, \
         insufficient unused quota for gpu in flavor y, 2 more needed; couldn't assign flavors to pod set second: \
         insufficient quota for gpu in flavor x, previously considered podsets requests (0) + current podset request \
         (3) > maximum capacity (2), insufficient unused quota for gpu in flavor y, 5 more needed"
    );
}

#[test]
fn s6_6_37_a_pod_set_that_fits_says_nothing() {
    let mut w = World::new();
    w.cq(xy("a", 1, 4));
    w.submit(job("j", "a").gpu(2).pod_set("second").gpu(9));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
    let message = w.message("j");
    assert!(message.starts_with("couldn't assign flavors to pod set second: ") && !message.contains("main"));
}

#[test]
fn s6_6_38_the_reason_is_the_least_severe_of_the_flavors() {
    let mut w = World::new();
    w.flavor("tainted", |flavor| flavor.taints = vec![taint(TaintEffect::NoSchedule)]);
    let queue = cq("a").flavor("tainted", &[("gpu", q(9))]).flavor("small", &[("gpu", q(1))]);
    w.cq(queue.flavor("used", &[("gpu", q(2))]));
    w.running(job("r", "a").gpu(2), "used");
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    w.submit(job("k", "a").gpu(3));
    assert_eq!(w.cycle(), ["k ExceedsMaxQuota"]);
    w.submit(job("l", "a").gpu(1).pod(|pod_set| pod_set.group = Some(n("g"))).pod_set("two").req("tpu", 1));
    assert_eq!(w.cycle(), ["l NoMatchingFlavor"]);
}

#[test]
fn s6_6_39_over_resource_groups_and_pod_sets_the_most_severe_reason_counts() {
    let mut w = World::new();
    w.cq(cq("a").flavor("c", &[("cpu", q(2))]).flavor("g", &[("gpu", q(2))]));
    w.running(job("r", "a").req("cpu", 2), "c");
    w.submit(job("waits", "a").req("cpu", 1).gpu(1));
    assert_eq!(w.cycle(), ["waits WaitingForQuota"]);
    w.submit(job("groups", "a").req("cpu", 1).gpu(3));
    assert_eq!(w.cycle(), ["groups ExceedsMaxQuota"]);
    w.submit(job("pod_sets", "a").req("cpu", 1).pod_set("second").gpu(3));
    assert_eq!(w.cycle(), ["pod_sets ExceedsMaxQuota"]);
    w.submit(job("third", "a").req("cpu", 1).pod_set("second").gpu(1).pod_set("third").req("tpu", 1));
    assert_eq!(w.cycle(), ["third NoMatchingFlavor"]);
    assert_eq!(w.why("third").reason, Reason::NoMatchingFlavor);
}

#[test]
fn s6_6_40_the_flavors_considered_are_reported_unless_it_plainly_fits() {
    let mut w = World::new();
    w.cq(xy("a", 1, 1).cohort("co"));
    w.cq(xy("b", 0, 9).cohort("co"));
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j admitted y"]);
    let Outcome::Admitted { considered, .. } = &w.report.entries[0].outcome else { panic!("{:?}", w.report) };
    assert_eq!(
        considered.to_string(),
        "main: x(NoFit;insufficient quota for gpu in flavor x, previously considered \
         podsets requests (0) + current podset request (2) > maximum capacity (1)), \
         y(Fit;borrow=1)"
    );
}

/// How the flavor `x` is reported if `j` took `y` in the end; `rights` are those of its queue on what others use of `x`.
fn reported_of_x(rights: fn(Cq) -> Cq) -> String {
    let mut w = World::new();
    w.cq(rights(xy("a", 4, 9).cohort("co")));
    w.cq(xy("b", 0, 0).cohort("co"));
    w.running(job("own", "a").gpu(2).priority(-1), "x");
    w.running(job("other", "b").gpu(2).priority(-1), "x");
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j admitted y"]);
    let Outcome::Admitted { considered, .. } = &w.report.entries[0].outcome else { panic!("{:?}", w.report) };
    considered.to_string()
}

#[test]
fn s6_6_40_each_flavor_is_reported_with_one_mode() {
    let lacks = "insufficient unused quota for gpu in flavor x, 2 more needed";
    assert_eq!(reported_of_x(|queue| queue), format!("main: x(preemptionMode=NoCandidates;{lacks})"));
    let mode = reported_of_x(|queue| queue.within(LowerPriority));
    assert_eq!(mode, format!("main: x(preemptionMode=Preempt;{lacks})"));
    let mode = reported_of_x(|queue| queue.reclaim(Any));
    assert_eq!(mode, format!("main: x(preemptionMode=Reclaim;{lacks})"));

    let mut w = World::new();
    w.flavor("spot", |flavor| flavor.taints = vec![taint(TaintEffect::NoSchedule)]);
    w.cq(cq("a").flavor("spot", &[("gpu", q(9))]).flavor("y", &[("gpu", q(9))]));
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j admitted y"]);
    let Outcome::Admitted { considered, .. } = &w.report.entries[0].outcome else { panic!("{:?}", w.report) };
    assert_eq!(
        considered.to_string(),
        "main: spot(NoFit;untolerated taint {spot yes NoSchedule <nil>} in flavor spot)"
    );
}
