//! 6.15 Second pass, with what 6.4 and 6.5 say of it.

use crate::world::{World, cohort, cq, job, n, q};
use sluice_core::{FairStrategy, SecondPass, StopPolicy, WorkloadKey, WorkloadState};

const NOT_YET: &str = "no node has room";

/// A workload that holds quota, and whose second pass is asked for.
fn placed_later(w: &mut World, name: &str, queue: &str) {
    w.running(job(name, queue).gpu(1), "default");
    w.core.queue_second_pass(&WorkloadKey::new("ns", name), w.now());
}

/// Cycles until `seconds` are over, in which no second pass succeeds: when there was one.
fn failing(w: &mut World, seconds: i64) -> Vec<i64> {
    let mut at = Vec::new();
    for second in 1..=seconds {
        let lines = w.cycle_placing(&mut |_| SecondPass::Failed(NOT_YET.to_owned()));
        if !lines.is_empty() {
            assert_eq!(lines, [format!("p not placed: {NOT_YET}")]);
            at.push(second);
        }
    }
    at
}

#[test]
fn s6_15_01_a_second_pass_waits_longer_each_time_up_to_half_a_minute() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    assert_eq!(failing(&mut w, 100), [1, 3, 7, 15, 31, 61, 91]);
    assert_eq!(w.used("a"), (1, 0), "what it holds is as it was");
}

#[test]
fn s6_15_02_it_is_asked_for_once_and_ends_with_success() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    w.core.queue_second_pass(&WorkloadKey::new("ns", "p"), w.now());
    assert_eq!(w.core.next_wakeup(), Some(sluice_core::Time(w.now().0 + 1_000_000_000)));
    assert_eq!(w.cycle_placing(&mut |_| SecondPass::Placed), ["p placed"]);
    assert!(w.report.progress, "the next cycle may decide differently");
    assert_eq!((w.core.next_wakeup(), w.core.has_heads()), (None, false));
    assert_eq!(w.cycle_placing(&mut |_| SecondPass::Placed), Vec::<String>::new());
}

#[test]
fn s6_15_03_who_needs_none_any_more_is_dropped_without_a_word() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    assert_eq!(w.cycle_placing(&mut |_| SecondPass::NotNeeded), Vec::<String>::new());
    assert_eq!(w.core.next_wakeup(), None);
}

#[test]
fn s6_15_04_only_who_keeps_its_reservation_has_a_second_pass() {
    let changes: [fn(&mut World); 4] = [
        |w| w.state("p", WorkloadState::Inactive),
        |w| w.finished("p"),
        |w| w.core.admission_failed(&WorkloadKey::new("ns", "p"), w.now()),
        |w| {
            w.holding(job("p", "a").gpu(1), "a", "default", |state| {
                if let WorkloadState::Reserved { evicted, .. } = state {
                    *evicted = true;
                }
            });
        },
    ];
    for change in changes {
        let mut w = World::new();
        w.cq(cq("a").quota(q(1)));
        placed_later(&mut w, "p", "a");
        change(&mut w);
        assert_eq!(w.core.next_wakeup(), None);
        w.cycle_placing(&mut |name| panic!("{name} has a second pass"));
    }
    let mut w = World::new();
    w.cq(cq("a").quota(q(0)));
    w.submit(job("waits", "a").gpu(1));
    w.core.queue_second_pass(&WorkloadKey::new("ns", "waits"), w.now());
    assert_eq!(w.core.next_wakeup(), None, "who holds nothing has no second pass");
}

#[test]
fn s6_15_05_a_change_of_its_status_keeps_its_turn() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    assert_eq!(failing(&mut w, 2), [1]);
    w.holding(job("p", "a").gpu(1), "a", "default", |state| {
        if let WorkloadState::Reserved { pods_ready, .. } = state {
            *pods_ready = false;
        }
    });
    assert_eq!(failing(&mut w, 6), [1, 5], "the third and the seventh second");
}

#[test]
fn s6_15_06_without_fair_sharing_who_holds_quota_is_processed_first() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).cohort("co"));
    w.cq(cq("b").quota(q(4)).cohort("co"));
    placed_later(&mut w, "p", "b");
    w.submit_all([job("high", "a").gpu(1).priority(9), job("own", "b").gpu(1).priority(9)]);
    let lines = w.cycle_placing(&mut |_| SecondPass::Placed);
    assert_eq!(lines, ["p placed", "high admitted default", "own admitted default"]);
}

#[test]
fn s6_15_07_a_second_pass_takes_no_quota() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)));
    placed_later(&mut w, "p", "a");
    w.submit(job("rest", "a").gpu(1));
    assert_eq!(w.cycle_placing(&mut |_| SecondPass::Placed), ["p placed", "rest admitted default"]);
    assert_eq!(w.used("a"), (2, 0));
}

#[test]
fn s6_15_08_block_admission_does_not_apply() {
    let mut w = World::configured(|config| config.block_admission = true);
    w.cq(cq("a").quota(q(4)));
    placed_later(&mut w, "p", "a");
    w.holding(job("unready", "a").gpu(1), "a", "default", |state| {
        if let WorkloadState::Reserved { pods_ready, .. } = state {
            *pods_ready = false;
        }
    });
    w.submit(job("blocked", "a").gpu(1));
    let lines = w.cycle_placing(&mut |_| SecondPass::Placed);
    assert_eq!(lines[0], "p placed");
    assert!(lines[1].starts_with("blocked WaitingForPodsReady"), "{lines:?}");
}

#[test]
fn s6_15_09_a_queue_that_takes_no_part_makes_it_fail() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    w.cq(cq("a").quota(q(1)).with(|spec| spec.stop_policy = StopPolicy::Hold));
    let never = &mut |_: &str| panic!("no check is asked");
    assert_eq!(w.cycle_placing(never), ["p not placed: ClusterQueue a is inactive"]);
    w.core.remove_cluster_queue("a");
    w.pass(1);
    assert_eq!(w.cycle_placing(never), ["p not placed: ClusterQueue a not found"]);
    w.cq(cq("a").quota(q(1)).cohort("one"));
    w.cohort(cohort("one").parent("two"));
    w.cohort(cohort("two").parent("one"));
    w.pass(3);
    assert_eq!(w.cycle_placing(never), ["p not placed: ClusterQueue a is inactive"]);
    w.cohort(cohort("two"));
    w.pass(7);
    assert_eq!(w.cycle_placing(&mut |_| SecondPass::Placed), ["p placed"]);
}

#[test]
fn s6_15_10_under_fair_sharing_a_second_pass_is_an_entry_like_others() {
    let mut w = World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]);
    w.cq(cq("a").quota(q(4)).cohort("co"));
    w.cq(cq("b").quota(q(4)).cohort("co"));
    // b borrows 2 with what it holds; the head of a borrows nothing.
    w.running(job("more", "b").gpu(5), "default");
    placed_later(&mut w, "p", "b");
    w.submit(job("head", "a").gpu(1));
    let lines = w.cycle_placing(&mut |_| SecondPass::Placed);
    assert_eq!(lines, ["head admitted default", "p placed"]);
}

#[test]
fn s6_15_11_under_fair_sharing_of_several_entries_of_a_queue_only_the_last_takes_part() {
    let mut w = World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]);
    w.cq(cq("a").quota(q(4)));
    placed_later(&mut w, "p", "a");
    w.submit(job("head", "a").gpu(1));
    let lines = w.cycle_placing(&mut |name| panic!("{name} takes no part"));
    assert_eq!(
        lines,
        ["p not placed: Another workload of its ClusterQueue is considered first", "head admitted default"]
    );
    w.pass(1);
    assert_eq!(w.cycle_placing(&mut |_| SecondPass::Placed), ["p placed"]);
    assert_eq!(w.core.cluster_queue_status(&n("a")).map(|status| status.reserving), Some(2));
}
