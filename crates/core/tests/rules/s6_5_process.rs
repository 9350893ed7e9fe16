//! 6.5 The cycle: how each head is processed with what earlier ones left.

use crate::world::{Cq, DEFERRED, Job, NO_LONGER_FITS, OVERLAPS, World, cohort, cq, job, n, q};
use sluice_core::PreemptionPolicy::{Any, LowerOrNewerEqualPriority, LowerPriority, Never};
use sluice_core::{Amount, BorrowWithinCohort, CheckRule, Outcome, Reason, StopPolicy, Time, WhenCanPreempt};

/// `c` uses `gpu` of what belongs to `a` and `b`, which want theirs back.
fn reclaimers(w: &mut World, victims: &[(&str, i64)]) {
    w.cq(cq("a").cohort("co").quota(q(4)).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(4)).reclaim(Any));
    w.cq(cq("c").cohort("co").quota(q(0)));
    for &(name, gpu) in victims {
        w.running(job(name, "c").gpu(gpu), "default");
    }
    w.submit_all([job("ja", "a").gpu(4), job("jb", "b").gpu(4)]);
}

#[test]
fn s6_5_17_on_overlapping_targets_the_assignment_is_recomputed_with_other_victims() {
    let mut w = World::new();
    reclaimers(&mut w, &[("v1", 4), ("v2", 4)]);
    assert_eq!(w.cycle(), ["ja preempts v2:InCohortReclamation", "jb preempts v1:InCohortReclamation"]);
}

#[test]
fn s6_5_18_what_fits_after_earlier_preemptions_is_deferred() {
    let mut w = World::new();
    reclaimers(&mut w, &[("v", 8)]);
    assert_eq!(w.cycle(), ["ja preempts v:InCohortReclamation".to_owned(), format!("jb {DEFERRED}")]);
    assert_eq!(w.heap("b"), ["jb"], "it waits as one that preempts does");
    w.finished("v");
    assert_eq!(w.cycle(), ["ja admitted default", "jb admitted default"]);
}

#[test]
fn s6_5_19_without_the_gate_overlapping_targets_make_a_head_skipped() {
    let mut w = World::gated(|gates| gates.recompute_assignment_upon_preemption_targets_overlap = false);
    reclaimers(&mut w, &[("v1", 4), ("v2", 4)]);
    assert_eq!(w.cycle(), ["ja preempts v2:InCohortReclamation".to_owned(), format!("jb {OVERLAPS}")]);
    assert_eq!(w.heap("b"), ["jb"]);
}

#[test]
fn s6_5_20_a_deferred_head_keeps_its_room_from_later_heads() {
    let world = |recompute| {
        let mut w =
            World::gated(|gates| gates.recompute_assignment_upon_preemption_targets_overlap = recompute);
        reclaimers(&mut w, &[("v", 7)]);
        w.cq(cq("d").cohort("co").quota(q(0)));
        w.submit(job("jd", "d").gpu(1));
        w.cycle().pop().unwrap()
    };
    assert_eq!(world(true), format!("jd {NO_LONGER_FITS}"));
    assert_eq!(world(false), "jd admitted default", "no head keeps it without the gate");
}

#[test]
fn s6_5_21_recomputing_looks_only_at_flavors_nominated_before() {
    let mut w = World::new();
    let stop = |queue: Cq| {
        queue
            .reclaim(LowerPriority)
            .with(|spec| spec.fungibility.when_can_preempt = WhenCanPreempt::MayStopSearch)
    };
    w.cq(stop(cq("a").cohort("co").flavor("x", &[("gpu", q(4))])));
    w.cq(stop(cq("b").cohort("co").flavor("x", &[("gpu", q(4))]).flavor("y", &[("gpu", q(4))])));
    w.cq(cq("c").cohort("co").flavor("x", &[("gpu", q(0))]));
    w.running(job("v", "c").gpu(4), "x");
    w.running(job("safe", "c").gpu(4).priority(100), "x");
    w.submit_all([job("ja", "a").gpu(4).priority(10), job("jb", "b").gpu(4).priority(10)]);
    assert_eq!(w.cycle(), ["ja preempts v:InCohortReclamation", "jb WaitingForQuota"]);
    assert!(!w.message("jb").contains("flavor y"), "{}", w.message("jb"));
}

#[test]
fn s6_5_22_no_fit_is_requeued_with_its_reason_and_what_it_asked_for() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)));
    w.running(job("r", "a").gpu(3), "default");
    w.submit(job("j", "a").gpu(1).count(3));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    let requests = [(n("main"), vec![(n("gpu"), Amount(3))])];
    assert_eq!(*w.why("j").requests, requests);
    assert_eq!(w.why("j").reason.legacy(), "Pending");
}

/// `a` may not preempt and waits for 2 of its own quota of 4, which stopped `c` uses; `b` could borrow the other 2.
fn waiting_for_its_own(reclaim: sluice_core::PreemptionPolicy) -> Vec<String> {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)).reclaim(reclaim));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.cq(cq("c").cohort("co").quota(q(0)).with(|spec| spec.stop_policy = StopPolicy::Hold));
    w.running(job("r", "c").gpu(2), "default");
    w.submit_all([job("jb", "b").gpu(2), job("ja", "a").gpu(4)]);
    w.cycle()
}

#[test]
fn s6_5_23_a_preemption_without_candidates_reserves_capacity_unless_it_may_reclaim_any() {
    assert_eq!(waiting_for_its_own(Never), ["ja WaitingForQuota".to_owned(), format!("jb {NO_LONGER_FITS}")]);
    assert_eq!(waiting_for_its_own(LowerPriority)[1], format!("jb {NO_LONGER_FITS}"));
    assert_eq!(waiting_for_its_own(Any), ["ja WaitingForQuota", "jb admitted default"]);
}

#[test]
fn s6_5_24_a_borrowing_head_reserves_up_to_its_borrowing_limit() {
    let world = |gpu| {
        let mut w = World::new();
        let borrow = BorrowWithinCohort { max_priority_threshold: None };
        w.cq(cq("a")
            .cohort("co")
            .quota(q(2).borrow(3))
            .reclaim(LowerPriority)
            .with(|spec| spec.preemption.borrow_within_cohort = Some(borrow)));
        w.cq(cq("b").cohort("co").quota(q(7)));
        w.cq(cq("late").cohort("co").quota(q(0)));
        w.running(job("own", "a").gpu(3), "default");
        w.running(job("other", "b").gpu(3), "default");
        w.submit_all([job("ja", "a").gpu(4), job("j", "late").gpu(gpu)]);
        w.cycle()
    };
    // Free are 3; it may still use 2 + 3 − 3 and reserves just that.
    assert_eq!(world(1), ["ja WaitingForQuota", "j admitted default"]);
    assert_eq!(world(2), ["ja WaitingForQuota".to_owned(), format!("j {NO_LONGER_FITS}")]);
}

#[test]
fn s6_5_25_a_closed_preemption_gate_blocks_the_preemption() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).within(LowerPriority));
    w.running(job("v", "a").gpu(4), "default");
    let gated = job("j", "a").gpu(4).priority(1).with(|spec| spec.preemption_gated = true);
    w.submit(gated);
    assert_eq!(w.cycle(), ["j gated"]);
    assert_eq!(w.inadmissible("a"), ["j"]);
    w.submit(job("j", "a").gpu(4).priority(1));
    assert_eq!(w.cycle(), ["j preempts v:InClusterQueue"]);
}

#[test]
fn s6_5_26_a_head_that_no_longer_fits_after_earlier_ones_is_skipped() {
    let mut w = World::new();
    w.cohort(cohort("co").quota(q(3)));
    w.cq(cq("a").cohort("co").quota(q(0)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.submit_all([job("ja", "a").gpu(2), job("jb", "b").gpu(2)]);
    assert_eq!(w.cycle(), ["ja admitted default".to_owned(), format!("jb {NO_LONGER_FITS}")]);
    assert_eq!(w.why("jb").reason, Reason::WaitingForQuota);
}

#[test]
fn s6_5_27_a_preemption_names_its_victims_and_waits_for_them() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)).within(LowerPriority).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.running(job("v1", "a").gpu(2).priority(-1), "default");
    w.running(job("v2", "b").gpu(2), "default");
    w.submit(job("p", "a").gpu(4));
    assert_eq!(w.cycle(), ["p preempts v2:InCohortReclamation v1:InClusterQueue"]);
    assert_eq!(w.why("p").reason, Reason::WaitingForPreemptedWorkloads);
    assert_eq!(
        w.message("p"),
        "couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor default, 4 more \
         needed. Pending the preemption of 2 workload(s)"
    );
    let Outcome::Preempting { victims, .. } = &w.report.entries[0].outcome else { panic!("{:?}", w.report) };
    let reported = (&*victims[0].preemptor_path, &*victims[0].preemptee_path, &*victims[0].cluster_queue);
    assert_eq!(reported, ("/co/a", "/co/b", "b"));
    assert_eq!(victims[0].reason.sentence(), "reclamation within the cohort");
    assert_eq!(victims[1].reason.sentence(), "prioritization in the ClusterQueue");
}

#[test]
fn s6_5_28_a_preemptor_takes_its_room_from_later_heads() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)).within(LowerPriority));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.running(job("v", "a").gpu(2).priority(-1), "default");
    w.submit_all([job("p", "a").gpu(4), job("jb", "b").gpu(1)]);
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue".to_owned(), format!("jb {NO_LONGER_FITS}")]);
}

#[test]
fn s6_5_29_block_admission_admits_nothing_while_pods_are_not_ready() {
    let mut w = World::configured(|config| config.block_admission = true);
    w.cq(cq("a").quota(q(4)));
    w.submit_all([job("first", "a").gpu(1), job("next", "a").gpu(1)]);
    assert_eq!(w.cycle(), ["first admitted default"]);
    let blocked = "next WaitingForPodsReady: waiting for all admitted workloads to be in PodsReady condition";
    assert_eq!(w.cycle(), [blocked]);
    assert_eq!(w.why("next").reason.legacy(), "Waiting");
    w.running(job("first", "a").gpu(1), "default");
    assert_eq!(w.cycle(), ["next admitted default"]);
}

/// `first` of `a` does not get ready; `next` of another queue waits for it. Then it is evicted, and may come again at once.
fn evicted_blocker(fair: bool, strangers: bool) -> World {
    let mut w = World::configured(|config| {
        config.block_admission = true;
        config.fair_sharing = fair.then(sluice_core::FairSharing::default);
    });
    let cohorts = if strangers { ["left", "right"] } else { ["co", "co"] };
    w.cq(cq("a").cohort(cohorts[0]).quota(q(4)));
    w.cq(cq("b").cohort(cohorts[1]).quota(q(4)));
    w.submit(job("first", "a").gpu(1).priority(5));
    assert_eq!(w.cycle(), ["first admitted default"]);
    w.submit(job("next", "b").gpu(1));
    assert_eq!(
        w.cycle(),
        ["next WaitingForPodsReady: waiting for all admitted workloads to be in PodsReady condition"]
    );
    w.submit(job("later", "b").gpu(1).priority(9));
    w.released("first");
    w
}

#[test]
fn s6_5_29_what_waited_for_that_goes_before_the_one_that_was_evicted_for_it() {
    let waits = "WaitingForPodsReady: waiting for all admitted workloads to be in PodsReady condition";
    for (fair, strangers) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut w = evicted_blocker(fair, strangers);
        assert_eq!(w.cycle(), ["next admitted default".to_owned(), format!("first {waits}")]);
        w.running(job("next", "b").gpu(1), "default");
        assert_eq!(w.cycle()[0], "first admitted default", "it waited for its turn then");
    }
    let mut w = evicted_blocker(false, false);
    w.finished("next");
    assert_eq!(w.cycle()[0], "later admitted default", "one that is gone keeps no other waiting");
}

#[test]
fn s6_5_30_an_admission_is_assumed_at_once() {
    let mut w = World::new();
    let check = CheckRule { name: n("check"), on_flavors: Vec::new() };
    w.core.set_check(&n("check"), true);
    w.cq(cq("plain").quota(q(4)));
    w.cq(cq("checked").quota(q(4)).with(|spec| spec.admission_checks = vec![check]));
    w.submit_all([job("j1", "plain").gpu(3), job("j2", "checked").gpu(3)]);
    assert_eq!(w.cycle(), ["j1 admitted default", "j2 admitted default"]);
    let figures = |queue: &str| {
        let status = w.core.cluster_queue_status(queue).unwrap();
        (status.reserving, status.admitted, status.reservation[0].1[0].total, status.usage[0].1[0].total)
    };
    assert_eq!(figures("plain"), (1, 1, Amount(3), Amount(3)));
    assert_eq!(figures("checked"), (1, 0, Amount(3), Amount(0)), "with a check pending it only reserves");
}

#[test]
fn s6_5_31_a_victim_keeps_its_quota_until_it_is_released() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).within(LowerPriority));
    w.running(job("v", "a").gpu(4), "default");
    w.submit(job("p", "a").gpu(4).priority(1));
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue"]);
    assert_eq!(w.used("a"), (4, 0));
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue (evicted before)"]);
    assert!(!w.report.progress, "nothing new is to be written for it");
    w.released("v");
    assert_eq!(w.cycle(), ["p admitted default"]);
    assert_eq!(w.cycle(), ["v WaitingForQuota"]);
}

/// `p` preempts `v`, which holds 6 of 8; `jb` and `jc` ask for 2 each.
fn on_room_of_victims(only_free: bool) -> Vec<String> {
    let mut w = World::gated(|gates| gates.admit_only_free_quota = only_free);
    w.cq(cq("a").cohort("co").quota(q(8)).within(LowerPriority));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.cq(cq("c").cohort("co").quota(q(0)));
    w.running(job("v", "a").gpu(6).priority(-1), "default");
    w.submit_all([job("p", "a").gpu(3), job("jb", "b").gpu(2), job("jc", "c").gpu(2)]);
    let lines = w.cycle();
    let used = w.used("a").0 + w.used("b").0 + w.used("c").0;
    assert_eq!(used <= 8, only_free, "{lines:?}");
    lines
}

#[test]
fn s6_5_32_room_of_victims_counts_as_free_for_later_heads() {
    // The reference's rule: `fits` is checked with all victims so far gone, although they have not left yet.
    let expected = ["p preempts v:InClusterQueue", "jb admitted default", "jc admitted default"];
    assert_eq!(on_room_of_victims(false), expected);
}

#[test]
fn s6_5_33_by_our_gate_only_quota_that_is_really_free_is_given_away() {
    let lines = on_room_of_victims(true);
    assert_eq!(lines[0], "p preempts v:InClusterQueue");
    assert_eq!(lines[2], format!("jc {NO_LONGER_FITS}"));
}

/// `wide` may evict `near`, but `near`, which borrows less high, goes first when both are heads. What was decided last.
fn loops(guard: bool) -> Vec<String> {
    let mut w = World::gated(|gates| gates.preemption_loop_guard = guard);
    w.cohort(cohort("root").flavor("x", &[("cpu", q(1)), ("gpu", q(0))]));
    w.cohort(cohort("mid").parent("root"));
    let borrow = BorrowWithinCohort { max_priority_threshold: None };
    let queue = cq("a").cohort("mid").flavor("x", &[("cpu", q(0)), ("gpu", q(2))]).reclaim(Any);
    w.cq(queue.with(|spec| spec.preemption.borrow_within_cohort = Some(borrow)));
    w.cq(cq("b").cohort("mid").flavor("x", &[("cpu", q(0)), ("gpu", q(0))]));
    w.running(job("near", "b").gpu(2), "x");
    w.submit(job("wide", "a").gpu(2).req("cpu", 1).priority(9));
    let mut lines = Vec::new();
    for _ in 0..4 {
        assert_eq!(w.cycle(), ["wide preempts near:InCohortReclaimWhileBorrowing"]);
        w.released("near");
        lines = w.cycle();
        if lines[0] == "wide admitted x" {
            return lines;
        }
        assert_eq!(lines, ["near admitted x".to_owned(), format!("wide {NO_LONGER_FITS}")]);
    }
    lines
}

#[test]
fn s6_5_34_the_rules_allow_a_preemption_to_repeat_for_ever_and_our_gate_ends_it() {
    assert_eq!(loops(false)[0], "near admitted x");
    assert_eq!(loops(true), ["wide admitted x".to_owned(), format!("near {NO_LONGER_FITS}")]);
}

/// `older` evicted `newer`, which would evict it in return by its place in the queue, and is held back.
fn held_back() -> World {
    let mut w = World::gated(|gates| gates.preemption_loop_guard = true);
    w.cq(cq("a").cohort("co").flavor("x", &[("gpu", q(1))]).within(LowerOrNewerEqualPriority));
    w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(0))]));
    w.submit(at_second(job("newer", "a").gpu(1), 20));
    assert_eq!(w.cycle(), ["newer admitted x"]);
    w.submit(at_second(job("older", "a").gpu(1), 10));
    assert_eq!(w.cycle(), ["older preempts newer:InClusterQueue"]);
    w.released("newer");
    assert_eq!(w.cycle(), ["older admitted x"]);
    // Its place in the queue is another one now, which is no change from outside.
    w.submit(at_second(job("newer", "a").gpu(1), 5));
    let lines = w.cycle();
    assert!(w.message("newer").contains("nothing changed since"), "{lines:?}");
    assert!(!w.core.has_heads());
    assert_eq!(w.inadmissible("a"), ["newer"]);
    w
}

fn at_second(job: Job, second: i64) -> Job {
    job.with(|spec| spec.queue_order = Time::from_seconds(second))
}

#[test]
fn s6_5_34_what_our_gate_holds_back_is_tried_again_after_an_arrival() {
    let mut w = held_back();
    w.submit(job("arrives", "b").gpu(9));
    let lines = w.cycle();
    assert!(lines.contains(&"newer preempts older:InClusterQueue".to_owned()), "{lines:?}");
}

/// As the finding `PreemptionHeldBack` of `explain` advises.
#[test]
fn s6_5_34_free_quota_another_priority_or_another_policy_end_what_our_gate_holds_back() {
    let mut w = held_back();
    w.finished("older");
    assert_eq!(w.cycle(), ["newer admitted x"]);

    let mut w = held_back();
    w.submit(at_second(job("newer", "a").gpu(1).priority(1), 5));
    assert_eq!(w.cycle(), ["newer preempts older:InClusterQueue"]);
    w.released("older");
    assert_eq!(w.cycle(), ["newer admitted x"]);

    // By this one neither evicts the other.
    let mut w = held_back();
    w.cq(cq("a").cohort("co").flavor("x", &[("gpu", q(1))]).within(LowerPriority));
    assert_eq!(w.cycle(), ["newer WaitingForQuota"]);
    w.finished("older");
    assert_eq!(w.cycle(), ["newer admitted x"]);
}
