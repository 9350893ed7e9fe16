//! 6.5 The cycle: nomination, and the order of the heads.

use crate::world::{NO_LONGER_FITS, NS, World, cohort, cq, job, n, pairs, q};
use sluice_core::PreemptionPolicy::LowerPriority;
use sluice_core::{Config, Detail, FairSharing, Reason, Selector, StopPolicy, Unadmitted, WorkloadState};

fn pending(failed_checks: bool, invalid: Option<&str>) -> WorkloadState {
    let invalid = invalid.map(str::to_owned);
    WorkloadState::Pending {
        requeue_at: None,
        keeps_place: false,
        requeued_false: false,
        failed_checks,
        invalid,
    }
}

#[test]
fn s6_5_01_a_workload_that_got_quota_otherwise_is_no_head() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)));
    w.submit(job("j", "a").gpu(1));
    w.running(job("j", "a").gpu(1), "default");
    assert!(w.cycle().is_empty());
    assert_eq!(w.used("a"), (1, 0));
}

#[test]
fn s6_5_02_failed_checks_make_a_head_inadmissible() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)));
    w.submit(job("j", "a").gpu(1));
    w.state("j", pending(true, None));
    assert_eq!(w.cycle(), ["j PendingEvaluation: The workload has failed admission checks"]);
    assert_eq!(w.inadmissible("a"), ["j"]);
    w.state("j", pending(false, None));
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_5_03_of_several_objections_the_first_wins() {
    let mut w = World::new();
    let team = Selector { match_labels: pairs(&[("team", "red")]), expressions: Vec::new() };
    w.cq(cq("a").quota(q(4)).with(|spec| spec.namespace_selector = Some(team)));
    w.submit(job("j", "a").gpu(9));
    w.state("j", pending(true, Some("too much")));
    assert_eq!(w.cycle(), ["j PendingEvaluation: The workload has failed admission checks"]);
    w.state("j", pending(false, Some("too much")));
    assert_eq!(w.cycle(), ["j Misconfigured: workload namespace doesn't match ClusterQueue selector"]);
    w.core.set_namespace(&n(NS), pairs(&[("team", "red")]));
    assert_eq!(w.cycle(), ["j Misconfigured: too much"]);
    w.state("j", pending(false, None));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
}

#[test]
fn s6_5_04_an_inactive_or_missing_queue_is_named_and_offers_no_head() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).with(|spec| spec.stop_policy = StopPolicy::Hold));
    w.lq("lost", "gone", |_| {});
    w.submit_all([job("j1", "a").gpu(1), job("j2", "lost").gpu(1)]);
    assert!(w.cycle().is_empty() && !w.core.has_heads());
    let text = |detail, reason| Unadmitted { reason, detail, requests: [].into() }.message();
    assert_eq!(text(Detail::QueueInactive(n("a")), Reason::Suspended), "ClusterQueue a is inactive");
    assert_eq!(text(Detail::QueueMissing(n("gone")), Reason::Misconfigured), "ClusterQueue gone not found");
}

#[test]
fn s6_5_05_the_head_that_borrows_less_high_is_processed_first() {
    let mut w = World::new();
    w.cohort(cohort("root").quota(q(9)));
    w.cohort(cohort("mid").parent("root").quota(q(2)));
    w.cq(cq("far").cohort("mid").quota(q(0)));
    w.cq(cq("near").cohort("mid").quota(q(0)));
    w.cq(cq("own").cohort("mid").quota(q(2)));
    w.submit_all([
        job("root", "far").gpu(5).priority(9),
        job("mid", "near").gpu(2).priority(5),
        job("own", "own").gpu(2),
    ]);
    assert_eq!(w.cycle(), ["own admitted default", "mid admitted default", "root admitted default"]);
}

fn two_queues(w: &mut World) {
    w.cq(cq("a").cohort("co").quota(q(2)));
    w.cq(cq("b").cohort("co").quota(q(2)));
}

#[test]
fn s6_5_06_then_higher_priority() {
    let mut w = World::new();
    two_queues(&mut w);
    w.submit_all([job("low", "a").gpu(1), job("high", "b").gpu(1).priority(1)]);
    assert_eq!(w.cycle(), ["high admitted default", "low admitted default"]);
}

#[test]
fn s6_5_06_without_the_gate_priority_does_not_count_between_queues() {
    let mut w = World::gated(|gates| gates.priority_sorting_within_cohort = false);
    two_queues(&mut w);
    w.submit_all([job("low", "b").gpu(1), job("high", "a").gpu(1).priority(1)]);
    assert_eq!(w.cycle(), ["low admitted default", "high admitted default"]);
}

#[test]
fn s6_5_07_then_the_older_timestamp() {
    let mut w = World::new();
    two_queues(&mut w);
    w.submit_all([job("older", "b").gpu(1), job("newer", "a").gpu(1)]);
    assert_eq!(w.cycle(), ["older admitted default", "newer admitted default"]);
}

/// In `a`, `p` preempted `v`, which did not stop yet; in `b`, `h` of higher priority fits.
fn preemptor_and_priority(prioritize: bool) -> World {
    let mut w = World::gated(|gates| gates.prioritize_preemptor_workloads = prioritize);
    w.cq(cq("a").cohort("co").quota(q(2)).within(LowerPriority));
    w.cq(cq("b").cohort("co").quota(q(1)));
    w.running(job("v", "a").gpu(2).priority(-1), "default");
    w.submit(job("p", "a").gpu(2));
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue"]);
    w.submit(job("h", "b").gpu(1).priority(9));
    w
}

#[test]
fn s6_5_08_with_the_gate_remembered_preemptors_are_processed_before_all_others() {
    let again = "p preempts v:InClusterQueue (evicted before)";
    assert_eq!(preemptor_and_priority(true).cycle(), [again, "h admitted default"]);
    assert_eq!(preemptor_and_priority(false).cycle(), ["h admitted default", again]);
}

#[test]
fn s6_5_09_several_heads_of_one_cohort_are_admitted_in_one_cycle() {
    let mut w = World::new();
    w.cohort(cohort("co").quota(q(5)));
    for name in ["a", "b", "c"] {
        w.cq(cq(name).cohort("co").quota(q(0)));
        w.submit(job(&format!("j{name}"), name).gpu(2));
    }
    assert_eq!(w.cycle(), ["ja admitted default", "jb admitted default", &format!("jc {NO_LONGER_FITS}")]);
}

fn fair() -> World {
    World::configured(|config: &mut Config| config.fair_sharing = Some(FairSharing::default()))
}

#[test]
fn s6_5_10_the_tournament_prefers_the_lower_dominant_resource_share() {
    let mut w = fair();
    w.cohort(cohort("co").quota(q(10)));
    w.cq(cq("a").cohort("co").quota(q(0)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.running(job("r", "a").gpu(5), "default");
    w.submit_all([job("ja", "a").gpu(1).priority(9), job("jb", "b").gpu(4)]);
    assert_eq!(w.cycle(), ["jb admitted default", "ja admitted default"]);
}

#[test]
fn s6_5_11_the_entrys_own_usage_counts_in_its_share() {
    let mut w = fair();
    w.cohort(cohort("co").quota(q(10)));
    w.cq(cq("a").cohort("co").quota(q(0)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.submit_all([job("large", "a").gpu(5), job("small", "b").gpu(4)]);
    assert_eq!(w.cycle(), ["small admitted default", "large admitted default"]);
}

#[test]
fn s6_5_12_shares_are_computed_again_after_each_head() {
    let mut w = fair();
    w.cohort(cohort("root").quota(q(10)));
    w.cohort(cohort("left").parent("root"));
    w.cohort(cohort("right").parent("root"));
    for (queue, cohort) in [("a", "left"), ("b", "left"), ("c", "right")] {
        w.cq(cq(queue).cohort(cohort).quota(q(0)));
    }
    w.submit_all([job("ja", "a").gpu(3), job("jb", "b").gpu(3), job("jc", "c").gpu(4)]);
    // left has 300 with ja; then 600 with jb, against 400 of right.
    assert_eq!(w.cycle(), ["ja admitted default", "jc admitted default", "jb admitted default"]);
}

/// `a` borrows much gpu but asks for cpu within nominal; `b` asks for cpu that it has to borrow.
fn non_borrowing(gate: bool) -> World {
    let mut w = World::configured(|config| {
        config.fair_sharing = Some(FairSharing::default());
        config.gates.fair_sharing_prioritize_non_borrowing = gate;
    });
    w.cohort(cohort("co").flavor("x", &[("gpu", q(10)), ("cpu", q(10))]));
    w.cq(cq("a").cohort("co").flavor("x", &[("gpu", q(0)), ("cpu", q(2))]));
    w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(0)), ("cpu", q(0))]));
    w.running(job("r", "a").gpu(8), "x");
    w.submit_all([job("jb", "b").req("cpu", 1), job("ja", "a").req("cpu", 2)]);
    w
}

#[test]
fn s6_5_13_the_tournament_puts_a_head_that_does_not_borrow_what_it_asks_for_first() {
    assert_eq!(non_borrowing(true).cycle(), ["ja admitted x", "jb admitted x"]);
    assert_eq!(
        non_borrowing(false).cycle(),
        ["jb admitted x", "ja admitted x"],
        "without the gate the share decides"
    );
}

#[test]
fn s6_5_14_at_equal_share_the_tournament_compares_priority_then_timestamp() {
    let order = |gate: bool, first: i32, second: i32| {
        let mut w = World::configured(|config| {
            config.fair_sharing = Some(FairSharing::default());
            config.gates.priority_sorting_within_cohort = gate;
        });
        two_queues(&mut w);
        w.submit_all([job("older", "b").gpu(1).priority(first), job("newer", "a").gpu(1).priority(second)]);
        w.cycle()
    };
    assert_eq!(order(true, 0, 1), ["newer admitted default", "older admitted default"]);
    assert_eq!(order(true, 1, 1), ["older admitted default", "newer admitted default"]);
    assert_eq!(order(false, 0, 1), ["older admitted default", "newer admitted default"]);
}

#[test]
fn s6_5_15_the_tournament_knows_remembered_preemptors_behind_the_gate() {
    let order = |gate: bool| {
        let mut w = World::configured(|config| {
            config.fair_sharing = Some(FairSharing::default());
            config.gates.prioritize_preemptor_workloads = gate;
        });
        w.cq(cq("a").cohort("co").quota(q(2)).within(LowerPriority));
        w.cq(cq("b").cohort("co").quota(q(1)));
        w.running(job("v", "a").gpu(2).priority(-1), "default");
        w.submit(job("p", "a").gpu(2));
        assert_eq!(w.cycle(), ["p preempts v:InClusterQueue"]);
        w.submit(job("h", "b").gpu(1).priority(9));
        w.cycle()
    };
    // With v still there p's queue would use 4 of 2: without the gate h, which borrows nothing, is first.
    let again = "p preempts v:InClusterQueue (evicted before)";
    assert_eq!(order(true), [again, "h admitted default"]);
    assert_eq!(order(false), ["h admitted default", again]);
}

#[test]
fn s6_5_16_a_queue_without_cohort_needs_no_tournament() {
    let mut w = fair();
    w.cq(cq("alone").quota(q(1)));
    two_queues(&mut w);
    w.submit_all([job("ja", "a").gpu(1), job("j", "alone").gpu(1)]);
    let mut lines = w.cycle();
    lines.sort();
    assert_eq!(lines, ["j admitted default", "ja admitted default"]);
}
