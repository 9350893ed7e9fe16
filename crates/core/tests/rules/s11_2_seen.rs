//! 11.2 Decisions that were seen on the real Kueue.

use crate::world::{NO_LONGER_FITS, OVERLAPS, World, cohort, cq, job, n, q};
use sluice_core::PreemptionPolicy::{Any, LowerPriority};
use sluice_core::{
    AdmissionFairSharing, FairStrategy, FungibilityPreference, PreemptionPossibility, Reason, Refusal,
    WhenCanPreempt, WorkloadState,
};

/// `qa` could borrow in flavor `a`, which a long row of others of higher priority takes first, and has `b` of its own.
fn overtaken(keep: bool) -> World {
    let mut w = World::gated(|gates| gates.flavor_fungibility_preserve_scan_progress = keep);
    w.cq(cq("qa").cohort("co").flavor("a", &[("cpu", q(1))]).flavor("b", &[("cpu", q(2))]));
    w.cq(cq("qb").cohort("co").flavor("a", &[("cpu", q(2))]));
    w.submit(job("j", "qa").req("cpu", 2));
    for at in 0..20 {
        w.submit(job(&format!("row{at:02}"), "qb").req("cpu", 3).priority(1));
    }
    assert_eq!(w.cycle(), ["row00 admitted a".to_owned(), format!("j {NO_LONGER_FITS}")]);
    w.finished("row00");
    w
}

#[test]
fn s11_2_01_a_search_continues_after_no_longer_fits() {
    let mut w = overtaken(true);
    assert!(w.report.scanning, "another cycle looks at another flavor");
    assert_eq!(w.cycle(), ["j admitted b", "row01 admitted a"]);
}

#[test]
fn s11_2_01_without_the_gate_a_skipped_head_starts_its_search_again() {
    let mut w = overtaken(false);
    assert!(!w.report.scanning);
    for at in 1..20 {
        assert_eq!(w.cycle(), [format!("row{at:02} admitted a"), format!("j {NO_LONGER_FITS}")]);
        w.finished(&format!("row{at:02}"));
    }
    assert_eq!(w.cycle(), ["j admitted a"]);
}

#[test]
fn s11_2_01_a_search_continues_after_overlapping_victims() {
    let mut w = World::gated(|gates| gates.recompute_assignment_upon_preemption_targets_overlap = false);
    let stop = |spec: &mut sluice_core::ClusterQueueSpec| {
        spec.fungibility.when_can_preempt = WhenCanPreempt::MayStopSearch;
    };
    w.cq(cq("a").cohort("co").flavor("x", &[("gpu", q(4))]).reclaim(Any).with(stop));
    w.cq(cq("b")
        .cohort("co")
        .flavor("x", &[("gpu", q(4))])
        .flavor("y", &[("gpu", q(4))])
        .reclaim(Any)
        .with(stop));
    w.cq(cq("c").cohort("co").flavor("x", &[("gpu", q(0))]));
    w.running(job("v1", "c").gpu(4), "x");
    w.running(job("v2", "c").gpu(4), "x");
    w.submit_all([job("ja", "a").gpu(4), job("jb", "b").gpu(4)]);
    assert_eq!(w.cycle(), ["ja preempts v2:InCohortReclamation".to_owned(), format!("jb {OVERLAPS}")]);
    assert!(w.cycle().contains(&"jb admitted y".to_owned()));
}

#[test]
fn s11_2_02_whether_the_preemptor_is_within_nominal_is_asked_before_the_first_victim() {
    let mut w = World::fair(&[]);
    w.cohort(cohort("x").parent("root"));
    w.cohort(cohort("y").parent("root").weight(500));
    w.cohort(cohort("below").parent("y"));
    let cpu = |name: &str, of: &str, nominal| cq(name).cohort(of).flavor("f", &[("cpu", q(nominal))]);
    w.cq(cpu("q0", "y", 2).within(LowerPriority).reclaim(Any));
    w.cq(cpu("q1", "x", 0));
    w.cq(cpu("q2", "below", 0));
    w.running(job("own", "q0").req("cpu", 1), "f");
    w.running(job("far1", "q1").req("cpu", 1), "f");
    w.running(job("far2", "q1").req("cpu", 1), "f");
    w.running(job("near", "q2").req("cpu", 1), "f");
    w.submit(job("j", "q0").req("cpu", 2).priority(2));
    assert_eq!(w.cycle(), ["j WaitingForQuota"], "its own victim does not bring it within nominal");
}

#[test]
fn s11_2_03_in_any_usage_based_queue_the_local_queue_of_higher_usage_is_taken_from_first() {
    for fair in [false, true] {
        let mut w = World::configured(|config| {
            config.admission_fair_sharing = Some(AdmissionFairSharing {
                half_life_seconds: 3600,
                sampling_interval_seconds: 300,
                resource_weights: Vec::new(),
            });
            config.fair_sharing = fair.then(sluice_core::FairSharing::default);
        });
        w.cq(cq("a").cohort("co").quota(q(4)).reclaim(Any));
        w.cq(cq("b").cohort("co").quota(q(0)).with(|spec| spec.usage_based_fair_sharing = true));
        w.lq("busy", "b", |spec| spec.consumed = vec![(n("gpu"), 50.0)]);
        w.lq("idle", "b", |spec| spec.consumed = vec![(n("gpu"), 1.0)]);
        w.holding(job("of_busy", "busy").gpu(2).priority(9), "b", "default", |_| {});
        w.holding(job("of_idle", "idle").gpu(2).priority(-9), "b", "default", |_| {});
        w.submit(job("j", "a").gpu(2));
        assert_eq!(w.cycle(), ["j preempts of_busy:InCohortReclamation"], "fair sharing: {fair}");
    }
}

#[test]
fn s11_2_04_the_sticky_preemptor_goes_by_name() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).within(LowerPriority));
    w.running(job("victim", "a").gpu(1), "default");
    w.submit(job("new", "a").gpu(4).priority(1));
    assert_eq!(w.cycle(), ["new preempts victim:InClusterQueue"]);
    w.submit(job("new", "a").gpu(4).with(|spec| spec.generation = 2));
    w.released("victim");
    assert_eq!(w.cycle(), ["new admitted default"], "the victim does not take its place back");
}

#[test]
fn s11_2_05_a_refusal_names_all_resources_that_do_not_fit_and_its_reason_is_the_worst() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").flavor("f", &[("cpu", q(1)), ("memory", q(4))]).reclaim(Any));
    w.cq(cq("b").cohort("co").flavor("f", &[("cpu", q(3)), ("memory", q(0))]));
    w.running(job("r", "b").req("cpu", 3), "f");
    w.submit(job("j", "a").req("cpu", 2).req("memory", 9));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
    assert_eq!(
        w.message("j"),
        "couldn't assign flavors to pod set main: insufficient quota for memory in flavor f, previously considered \
         podsets requests (0) + current podset request (9) > maximum capacity (4), insufficient unused quota for cpu \
         in flavor f, 1m more needed"
    );
    // The other way round: what comes after a resource that can never fit is reported, and no victim is looked for.
    w.submit(job("k", "a").req("cpu", 9).req("memory", 2));
    w.running(job("m", "b").req("memory", 4), "f");
    let before = w.core.stats().preemption_searches;
    assert!(w.cycle().contains(&"k ExceedsMaxQuota".to_owned()));
    assert!(w.message("k").contains("insufficient unused quota for memory in flavor f, 2 more needed"));
    assert_eq!(w.core.stats().preemption_searches, before);
    let sluice_core::Detail::Flavors { pod_sets, .. } = &w.why("k").detail else { panic!() };
    let possibility = pod_sets[0].refusals.iter().find_map(|refusal| match refusal {
        Refusal::InsufficientQuota { preemption, .. } => Some(*preemption),
        _ => None,
    });
    assert_eq!(possibility, Some(PreemptionPossibility::NotConsidered));
}

#[test]
fn s11_2_06_overlapping_victims_mean_waiting_for_quota() {
    let mut w = World::gated(|gates| gates.recompute_assignment_upon_preemption_targets_overlap = false);
    w.cq(cq("a").cohort("co").quota(q(4)).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(4)).reclaim(Any));
    w.cq(cq("c").cohort("co").quota(q(0)));
    w.running(job("v", "c").gpu(8), "default");
    w.submit_all([job("ja", "a").gpu(4), job("jb", "b").gpu(4)]);
    assert_eq!(w.cycle(), ["ja preempts v:InCohortReclamation".to_owned(), format!("jb {OVERLAPS}")]);
    assert_eq!(w.why("jb").reason, Reason::WaitingForQuota);
}

/// `a` borrows memory already, wants its cpu back, and asks for `memory` more.
fn reclaims_beside(memory: i64) -> Vec<String> {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").flavor("f", &[("cpu", q(2)), ("memory", q(0))]).reclaim(Any));
    w.cq(cq("b").cohort("co").flavor("f", &[("cpu", q(0)), ("memory", q(9))]));
    w.running(job("own", "a").req("memory", 1), "f");
    w.running(job("v", "b").req("cpu", 2), "f");
    w.submit(job("j", "a").req("cpu", 2).req("memory", memory));
    w.cycle()
}

#[test]
fn s11_2_07_requests_of_zero_take_no_part_in_the_search_for_victims() {
    assert_eq!(reclaims_beside(0), ["j preempts v:InCohortReclamation"]);
    assert_eq!(reclaims_beside(1), ["j WaitingForQuota"], "a Workload that must borrow may not reclaim");
}

#[test]
fn s11_2_07_nor_in_the_order_under_fair_sharing() {
    let mut w = World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]);
    w.cq(cq("a").cohort("co").flavor("f", &[("cpu", q(2)), ("memory", q(0))]));
    w.cq(cq("b").cohort("co").flavor("f", &[("cpu", q(2)), ("memory", q(90))]));
    w.running(job("own", "a").req("memory", 1), "f");
    w.running(job("others", "b").req("cpu", 1), "f");
    w.submit(job("jb", "b").req("cpu", 2));
    w.submit(job("ja", "a").req("cpu", 2).req("memory", 0));
    assert_eq!(
        w.cycle(),
        ["ja admitted f".to_owned(), format!("jb {NO_LONGER_FITS}")],
        "ja asks for no memory, so it borrows nothing that it asks for; jb would borrow cpu"
    );
}

/// `j` stops at the first flavor, where it may not preempt, and continues with the second in the next cycle.
fn scanning() -> World {
    let mut w = World::new();
    let queue = cq("a").cohort("co").flavor("x", &[("gpu", q(5))]).flavor("y", &[("gpu", q(4))]);
    w.cq(queue.within(LowerPriority).with(|spec| {
        spec.fungibility.when_can_preempt = WhenCanPreempt::MayStopSearch;
    }));
    w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(1))]));
    w.running(job("vx", "a").gpu(4), "x");
    w.running(job("vy", "a").gpu(4), "y");
    w.running(job("own", "a").gpu(1).priority(9), "x");
    w.running(job("other", "b").gpu(1), "x");
    w.submit(waits(1));
    assert_eq!(w.cycle(), ["j gated"]);
    assert!(w.message("j").contains("flavor x"));
    w.submit(job("first", "a").gpu(0).priority(5));
    w
}

fn waits(priority: i32) -> crate::world::Job {
    job("j", "a").gpu(4).priority(priority).with(|spec| spec.preemption_gated = true)
}

#[test]
fn s11_2_08_a_scan_is_outdated_by_what_happens_in_its_own_queue_only() {
    type Change = fn(&mut World);
    let changes: [(&str, Change, &str); 5] = [
        ("a workload of its queue ended", |w| w.finished("own"), "flavor x"),
        (
            "a workload of its queue changed",
            |w| {
                w.holding(job("own", "a").gpu(1).priority(9), "a", "x", |state| {
                    if let WorkloadState::Reserved { pods_ready, .. } = state {
                        *pods_ready = false;
                    }
                });
            },
            "flavor x",
        ),
        (
            "quota of its tree changed",
            |w| w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(2))])),
            "flavor x",
        ),
        ("a workload of another queue ended", |w| w.finished("other"), "flavor y"),
        (
            "the policy of a queue changed",
            |w| w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(1))]).reclaim(Any)),
            "flavor y",
        ),
    ];
    for (what, change, flavor) in changes {
        let mut w = scanning();
        change(&mut w);
        assert_eq!(w.cycle(), ["first admitted x"], "j waits for a cycle");
        assert!(w.cycle().contains(&"j gated".to_owned()));
        assert!(w.message("j").contains(flavor), "{what}: {}", w.message("j"));
    }
}

#[test]
fn s11_2_08_another_priority_starts_the_scan_again() {
    let mut w = scanning();
    w.submit(waits(6));
    assert_eq!(w.cycle(), ["j gated"]);
    assert!(w.message("j").contains("flavor x"));
}

/// Where `a` is full, and `big` is inadmissible beside `small`, which is too.
fn inadmissible() -> World {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.running(job("r", "a").gpu(4), "default");
    w.submit_all([job("big", "a").gpu(2), job("small", "b").gpu(1)]);
    assert_eq!(w.cycle().len(), 2);
    assert_eq!(
        (w.inadmissible("a"), w.inadmissible("b")),
        (vec!["big".to_owned()], vec!["small".to_owned()])
    );
    w
}

#[test]
fn s11_2_09_the_deletion_of_one_that_waits_wakes_the_inadmissible() {
    let mut w = inadmissible();
    w.finished("small");
    assert_eq!(w.heap("a"), ["big"]);
    let mut w = inadmissible();
    w.state("small", WorkloadState::Inactive);
    assert_eq!(w.heap("a"), ["big"], "so does its deactivation");
}

#[test]
fn s11_2_09_another_priority_of_one_that_waits_does_not() {
    let mut w = inadmissible();
    w.submit(job("small", "b").gpu(1).priority(7));
    assert_eq!((w.heap("b"), w.inadmissible("a")), (vec!["small".to_owned()], vec!["big".to_owned()]));
}

#[test]
fn s11_2_09_unless_it_kept_others_from_quota() {
    let mut w = World::new();
    // `head` waits for its victims' quota and keeps the rest; `b` would borrow that, and its second flavor is too small.
    w.cq(cq("a").cohort("co").flavor("x", &[("gpu", q(4))]).strict());
    w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(0))]).flavor("y", &[("gpu", q(0))]).with(|spec| {
        spec.preemption.within_cluster_queue = LowerPriority;
    }));
    w.running(job("r", "a").gpu(2), "x");
    w.submit_all([job("head", "a").gpu(4).priority(5), job("j", "b").gpu(2)]);
    assert_eq!(w.cycle(), ["head WaitingForQuota".to_owned(), format!("j {NO_LONGER_FITS}")]);
    assert_eq!(w.cycle(), ["j WaitingForQuota", "head WaitingForQuota"]);
    assert_eq!(w.inadmissible("b"), ["j"]);
    w.submit(job("next", "a").gpu(1).priority(3));
    w.submit(job("head", "a").gpu(4).priority(1));
    assert_eq!(w.heap("b"), ["j"], "what head kept is free now");
}

#[test]
fn s11_2_09_the_cohort_that_a_queue_has_left_is_tried_again() {
    let mut w = inadmissible();
    w.cq(cq("b").quota(q(0)));
    w.core.take_changed();
    assert_eq!(w.heap("a"), ["big"]);
}

#[test]
fn s11_2_10_one_resource_borrowed_and_another_preempted_for_in_one_flavor() {
    let mut w = World::new();
    let queue = cq("a").cohort("co").flavor("f", &[("cpu", q(2)), ("gpu", q(4))]).within(LowerPriority);
    w.cq(queue.with(|spec| {
        spec.fungibility.preference = Some(FungibilityPreference::PreemptionOverBorrowing);
    }));
    w.cq(cq("b").cohort("co").flavor("f", &[("cpu", q(2)), ("gpu", q(0))]));
    w.running(job("v", "a").gpu(4).priority(-1), "f");
    w.submit(job("j", "a").req("cpu", 4).gpu(4));
    assert_eq!(w.cycle(), ["j preempts v:InClusterQueue"]);
}

#[test]
fn s11_2_10_pods_take_part_where_they_are_what_is_missing() {
    let mut w = World::new();
    w.cq(cq("a").flavor("f", &[("pods", q(2))]).within(LowerPriority));
    let flavors = |job: crate::world::Job| job.req("pods", 1);
    w.running(flavors(job("v", "a").count(2).priority(-1)), "f");
    w.submit(job("j", "a").count(2));
    assert_eq!(w.cycle(), ["j preempts v:InClusterQueue"]);
}

#[test]
fn s11_2_10_a_head_that_borrows_a_pod_may_reclaim_its_cpu() {
    for fair in [false, true] {
        let mut w = World::configured(|config| {
            config.fair_sharing = fair.then(sluice_core::FairSharing::default);
        });
        w.cq(cq("a").cohort("co").flavor("f", &[("cpu", q(2)), ("pods", q(0))]).reclaim(Any));
        w.cq(cq("b").cohort("co").flavor("f", &[("cpu", q(0)), ("pods", q(9))]));
        w.running(job("v", "b").req("cpu", 2).req("pods", 1), "f");
        w.submit(job("j", "a").req("cpu", 2));
        assert_eq!(w.cycle(), ["j preempts v:InCohortReclamation"], "fair sharing: {fair}");
    }
}

#[test]
fn s11_2_10_a_queue_above_its_borrowing_limit_reserves_nothing() {
    let mut w = World::new();
    let borrow = sluice_core::BorrowWithinCohort { max_priority_threshold: None };
    let a = |limit| {
        cq("a")
            .cohort("co")
            .quota(q(2).borrow(limit))
            .reclaim(LowerPriority)
            .with(|spec| spec.preemption.borrow_within_cohort = Some(borrow))
    };
    w.cq(a(3));
    w.cq(cq("b").cohort("co").quota(q(7)));
    for late in ["late1", "late2"] {
        w.cq(cq(late).cohort("co").quota(q(0)));
    }
    w.running(job("own", "a").gpu(4), "default");
    w.running(job("other", "b").gpu(3), "default");
    w.cq(a(1));
    w.submit_all([job("ja", "a").gpu(1), job("j1", "late1").gpu(2), job("j2", "late2").gpu(1)]);
    assert_eq!(
        w.cycle(),
        ["ja WaitingForQuota".to_owned(), "j1 admitted default".to_owned(), format!("j2 {NO_LONGER_FITS}")],
        "2 are free, and no more"
    );
}

#[test]
fn s11_2_10_flavors_that_go_during_a_scan_are_neither_looked_at_nor_given() {
    for (left, gone) in [("x", "y"), ("y", "x")] {
        let mut w = scanning();
        let queue = cq("a").cohort("co").flavor(left, &[("gpu", q(5))]).within(LowerPriority);
        w.cq(queue.with(|spec| spec.fungibility.when_can_preempt = WhenCanPreempt::MayStopSearch));
        assert_eq!(w.cycle(), [format!("first admitted {left}")]);
        assert!(w.cycle().contains(&"j gated".to_owned()));
        let message = w.message("j");
        assert!(message.contains(&format!("flavor {left}")) && !message.contains(&format!("flavor {gone}")));
        for over in ["vx", "vy", "own", "other"] {
            w.finished(over);
        }
        assert_eq!(w.cycle(), [format!("j admitted {left}")]);
    }
}

#[test]
fn s11_2_10_a_flavor_that_a_queue_does_not_list_any_more_is_in_its_share() {
    let mut w = World::fair(&[]);
    w.cq(cq("a").cohort("co").flavor("x", &[("gpu", q(0))]).flavor("y", &[("gpu", q(1))]));
    w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(4))]));
    w.running(job("own", "a").gpu(2), "x");
    let before = w.share("a");
    assert!(before > 0);
    w.cq(cq("a").cohort("co").flavor("y", &[("gpu", q(1))]));
    assert_eq!(w.share("a"), before);
}

#[test]
fn s11_2_10_of_sibling_cohorts_with_equal_shares_the_first_by_name_is_taken_from() {
    let mut w = World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]);
    w.cohort(cohort("root").quota(q(8)));
    // The names of their queues, and their order of arrival, say the opposite.
    for (of, queue) in [("right", "b"), ("left", "c")] {
        w.cohort(cohort(of).parent("root"));
        w.cq(cq(queue).cohort(of).quota(q(0)));
        for at in 1..=2 {
            w.running(job(&format!("{of}{at}"), queue).gpu(2), "default");
        }
    }
    w.cq(cq("a").cohort("root").quota(q(0)).reclaim(Any));
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j preempts left2:InCohortFairSharing"]);
}

#[test]
fn s11_2_11_a_class_that_failed_is_remembered_without_a_member() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    w.running(job("r", "a").gpu(1), "default");
    w.submit(job("one", "a").gpu(1));
    assert_eq!(w.cycle(), ["one WaitingForQuota"]);
    w.submit(job("one", "a").gpu(1).priority(3));
    w.submit(job("two", "a").gpu(1));
    assert_eq!((w.heap("a"), w.inadmissible("a")), (vec!["one".to_owned()], vec!["two".to_owned()]));
    w.finished("r");
    w.submit(job("three", "a").gpu(1));
    assert_eq!(w.heap("a"), ["one", "two", "three"], "until the next flush");
}

#[test]
fn s11_2_11_one_that_is_to_be_tried_is_tried_though_its_new_class_has_failed() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    w.running(job("r", "a").gpu(1), "default");
    w.submit(job("one", "a").gpu(1));
    assert_eq!(w.cycle(), ["one WaitingForQuota"]);
    w.submit(job("other", "a").gpu(1).priority(-3));
    w.submit(job("other", "a").gpu(1));
    assert_eq!((w.heap("a"), w.inadmissible("a")), (vec!["other".to_owned()], vec!["one".to_owned()]));
    assert_eq!(w.cycle(), ["other WaitingForQuota"]);
    assert_eq!(w.inadmissible("a"), ["one", "other"]);
}

#[test]
fn s11_2_10_without_fungibility_what_finds_no_victim_is_inadmissible_and_the_next_has_its_turn() {
    let mut w = World::gated(|gates| gates.flavor_fungibility = false);
    w.cq(cq("a").quota(q(4)).within(LowerPriority));
    w.running(job("r", "a").gpu(2).priority(9), "default");
    w.submit_all([job("large", "a").gpu(4).priority(1), job("small", "a").gpu(2)]);
    assert_eq!(w.cycle(), ["large WaitingForQuota"]);
    assert_eq!(w.inadmissible("a"), ["large"]);
    assert_eq!(w.cycle(), ["small admitted default"]);
}
