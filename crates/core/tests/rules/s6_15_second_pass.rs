//! 6.15 Second pass, with what 6.4 and 6.5 say of it.

use crate::world::{World, cohort, cq, job, n, node, q, topology};
use sluice_core::{
    AssignedDomain, FairSharing, FairStrategy, HOSTNAME, PreemptionPolicy, SharedAssignment, StopPolicy,
    TopologyAssignment, WorkloadKey, WorkloadState,
};

const NOT_YET: &str = "no topology domains at level: kubernetes.io/hostname";

/// A world whose flavor `default` has a topology, and no node yet.
fn world() -> World {
    with_topology(World::new())
}

fn with_topology(mut w: World) -> World {
    w.core.set_topology(&topology("t", &[HOSTNAME]));
    w.flavor("default", |spec| spec.topology = Some(n("t")));
    w
}

/// A workload that holds quota and waits for its nodes; its checks are ready.
fn placed_later(w: &mut World, name: &str, queue: &str) {
    changed(w, name, queue, |_| {});
}

fn changed(w: &mut World, name: &str, queue: &str, change: impl FnOnce(&mut WorkloadState)) {
    w.holding(job(name, queue).gpu(1), queue, "default", |state| {
        if let WorkloadState::Reserved { admission, admitted, topology, .. } = state {
            admission.pod_sets[0].topology_delayed = true;
            (*admitted, topology.checks_ready) = (false, true);
        }
        change(state);
    });
}

/// A node with room for a number of pods.
fn room(w: &mut World, name: &str, gpus: i64) {
    w.core.set_node(&node(name, &[], &[("gpu", gpus)]));
}

/// Cycles until `seconds` are over, in which no second pass succeeds: when there was one.
fn failing(w: &mut World, seconds: i64) -> Vec<i64> {
    let mut at = Vec::new();
    for second in 1..=seconds {
        let lines = w.cycle();
        if !lines.is_empty() {
            assert_eq!(lines, [format!("p not placed: {NOT_YET}")]);
            at.push(second);
        }
    }
    at
}

#[test]
fn s6_15_01_a_second_pass_waits_longer_each_time_up_to_half_a_minute() {
    let mut w = world();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    assert_eq!(failing(&mut w, 100), [1, 3, 7, 15, 31, 61, 91]);
    assert_eq!(w.used("a"), (1, 0), "what it holds is as it was");
}

#[test]
fn s6_15_02_it_is_asked_for_once_and_ends_with_success() {
    let mut w = world();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    placed_later(&mut w, "p", "a");
    assert_eq!(w.core.next_wakeup(), Some(sluice_core::Time(w.now().0 + 1_000_000_000)));
    room(&mut w, "h", 1);
    assert_eq!(w.cycle(), ["p placed main h=1"]);
    assert!(w.report.progress, "the next cycle may decide differently");
    assert_eq!((w.core.next_wakeup(), w.core.has_heads()), (None, false));
    assert_eq!(w.cycle(), Vec::<String>::new());
}

#[test]
fn s6_15_03_a_workload_that_needs_none_any_more_is_dropped_silently() {
    let mut w = world();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    w.running(job("p", "a").gpu(1), "default");
    assert_eq!(w.cycle(), Vec::<String>::new());
    assert_eq!(w.core.next_wakeup(), None);
}

#[test]
fn s6_15_04_only_a_workload_that_keeps_its_reservation_has_a_second_pass() {
    let changes: [fn(&mut World); 4] = [
        |w| w.state("p", WorkloadState::Inactive),
        |w| w.finished("p"),
        |w| w.core.admission_failed(&WorkloadKey::new("ns", "p"), w.now()),
        |w| {
            changed(w, "p", "a", |state| {
                if let WorkloadState::Reserved { evicted, .. } = state {
                    *evicted = true;
                }
            });
        },
    ];
    for change in changes {
        let mut w = world();
        w.cq(cq("a").quota(q(1)));
        placed_later(&mut w, "p", "a");
        change(&mut w);
        assert_eq!(w.core.next_wakeup(), None);
        assert!(w.cycle().iter().all(|line| !line.contains("placed")));
    }
}

#[test]
fn s6_15_05_a_change_of_its_status_keeps_its_turn() {
    let mut w = world();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    assert_eq!(failing(&mut w, 2), [1]);
    changed(&mut w, "p", "a", |state| {
        if let WorkloadState::Reserved { pods_ready, .. } = state {
            *pods_ready = false;
        }
    });
    assert_eq!(failing(&mut w, 6), [1, 5], "the third and the seventh second");
}

#[test]
fn s6_15_06_without_fair_sharing_a_workload_with_quota_is_processed_first() {
    let mut w = world();
    w.cq(cq("a").quota(q(4)).cohort("co"));
    w.cq(cq("b").quota(q(4)).cohort("co"));
    placed_later(&mut w, "p", "b");
    room(&mut w, "h", 3);
    w.submit_all([job("high", "a").gpu(1).priority(9), job("own", "b").gpu(1).priority(9)]);
    assert_eq!(w.cycle(), ["p placed main h=1", "high admitted default", "own admitted default"]);
}

#[test]
fn s6_15_07_a_second_pass_takes_no_quota() {
    let mut w = world();
    w.cq(cq("a").quota(q(2)));
    placed_later(&mut w, "p", "a");
    room(&mut w, "h", 2);
    w.submit(job("rest", "a").gpu(1));
    assert_eq!(w.cycle(), ["p placed main h=1", "rest admitted default"]);
    assert_eq!(w.used("a"), (2, 0));
}

#[test]
fn s6_15_08_block_admission_does_not_apply() {
    let mut w = with_topology(World::configured(|config| config.block_admission = true));
    w.cq(cq("a").quota(q(4)));
    placed_later(&mut w, "p", "a");
    room(&mut w, "h", 4);
    w.holding(job("unready", "a").gpu(1), "a", "default", |state| {
        if let WorkloadState::Reserved { pods_ready, .. } = state {
            *pods_ready = false;
        }
    });
    w.submit(job("blocked", "a").gpu(1));
    let lines = w.cycle();
    assert_eq!(lines[0], "p placed main h=1");
    assert!(lines[1].starts_with("blocked WaitingForPodsReady"), "{lines:?}");
}

#[test]
fn s6_15_09_a_queue_that_takes_no_part_makes_it_fail() {
    let mut w = world();
    w.cq(cq("a").quota(q(1)));
    placed_later(&mut w, "p", "a");
    room(&mut w, "h", 1);
    w.cq(cq("a").quota(q(1)).with(|spec| spec.stop_policy = StopPolicy::Hold));
    assert_eq!(w.cycle(), ["p not placed: ClusterQueue a is inactive"]);
    w.core.remove_cluster_queue("a");
    w.pass(1);
    assert_eq!(w.cycle(), ["p not placed: ClusterQueue a not found"]);
    w.cq(cq("a").quota(q(1)).cohort("one"));
    w.cohort(cohort("one").parent("two"));
    w.cohort(cohort("two").parent("one"));
    w.pass(3);
    assert_eq!(w.cycle(), ["p not placed: ClusterQueue a is inactive"]);
    w.cohort(cohort("two"));
    w.pass(7);
    assert_eq!(w.cycle(), ["p placed main h=1"]);
}

#[test]
fn s6_15_10_under_fair_sharing_a_second_pass_is_an_entry_like_others() {
    let mut w = with_topology(World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]));
    w.cq(cq("a").quota(q(4)).cohort("co"));
    w.cq(cq("b").quota(q(4)).cohort("co"));
    // b borrows 2 with what it holds; the head of a borrows nothing.
    w.running(job("more", "b").gpu(5), "default");
    placed_later(&mut w, "p", "b");
    room(&mut w, "h", 8);
    w.submit(job("head", "a").gpu(1));
    assert_eq!(w.cycle(), ["head admitted default", "p placed main h=1"]);
}

#[test]
fn s6_15_11_under_fair_sharing_the_second_passes_of_a_queue_have_their_turn_with_its_head() {
    let mut w = with_topology(World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]));
    w.cq(cq("a").quota(q(4)));
    for name in ["p", "p2"] {
        placed_later(&mut w, name, "a");
    }
    room(&mut w, "h", 4);
    w.submit(job("head", "a").gpu(1));
    assert_eq!(w.cycle(), ["p placed main h=1", "p2 placed main h=1", "head admitted default"]);
    assert_eq!(w.core.cluster_queue_status(&n("a")).map(|status| status.reserving), Some(3));
}

#[test]
fn s6_15_11_under_fair_sharing_a_second_pass_does_not_wait_for_a_head_that_waits() {
    for block_admission in [false, true] {
        let mut w = with_topology(World::configured(|config| {
            config.fair_sharing =
                Some(FairSharing { strategies: vec![FairStrategy::LessThanOrEqualToFinalShare] });
            config.block_admission = block_admission;
        }));
        w.cq(cq("a").strict().quota(q(4)));
        changed(&mut w, "p", "a", |state| {
            if let WorkloadState::Reserved { pods_ready, .. } = state {
                *pods_ready = false;
            }
        });
        room(&mut w, "h", 4);
        // Without blockAdmission it waits for quota that p holds, with it for p's pods: in the heap of its queue, in each cycle.
        w.submit(job("head", "a").gpu(if block_admission { 1 } else { 4 }));
        let lines = w.cycle();
        assert_eq!(lines[0], "p placed main h=1");
        assert!(lines[1].starts_with("head WaitingFor"), "{lines:?}");
        assert_eq!(w.heap("a"), ["head"]);
    }
}

#[test]
fn s6_15_11_under_fair_sharing_a_victim_of_an_earlier_head_has_no_second_pass() {
    let mut w = with_topology(World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]));
    w.cq(cq("x").cohort("co").quota(q(1)).reclaim(PreemptionPolicy::Any));
    w.cq(cq("a").cohort("co").quota(q(0)));
    room(&mut w, "h1", 1);
    fails(&mut w, 1, &[("h1", 1)], "h1");
    room(&mut w, "h2", 1);
    w.submit(job("head", "x").gpu(1).priority(5));
    w.submit(job("waits", "a").gpu(1));
    let lines = w.cycle();
    assert_eq!(lines[0], "head preempts p:InCohortReclamation");
    assert!(!lines.iter().any(|line| line.starts_with("p ")), "{lines:?}");
}

#[test]
fn s6_15_12_pods_on_a_node_that_failed_get_another_one() {
    let mut w = world();
    w.cq(cq("a").quota(q(4)));
    room(&mut w, "h1", 1);
    room(&mut w, "h2", 1);
    w.submit(job("p", "a").gpu(1).count(2));
    assert_eq!(w.cycle(), ["p admitted default"]);
    fails(&mut w, 2, &[("h1", 1), ("h2", 1)], "h1");
    room(&mut w, "h3", 1);
    assert_eq!(w.cycle(), ["p placed main h2=1,h3=1"]);
    assert_eq!(w.core.next_wakeup(), None);
}

#[test]
fn s6_15_12_pods_that_stay_count_once_for_the_pod_sets_after_theirs() {
    for (gpus, says) in [(3, "p placed main h2=2; rest h2=1"), (2, "p not replaced: h1")] {
        let mut w = world();
        w.cq(cq("a").quota(q(4)));
        room(&mut w, "h1", 2);
        room(&mut w, "h2", gpus);
        w.holding(job("p", "a").gpu(1).count(2).pod_set("rest").gpu(1), "a", "default", |state| {
            if let WorkloadState::Reserved { admission, topology, .. } = state {
                admission.pod_sets[0].topology = Some(on(&[("h1", 1), ("h2", 1)]));
                admission.pod_sets[1].topology = Some(on(&[("h1", 1)]));
                topology.unhealthy_nodes = vec![n("h1")];
            }
        });
        assert_eq!(w.cycle(), [says], "two pods lost their node, and one has its own on h2");
    }
}

#[test]
fn s6_15_13_a_workload_that_gets_no_other_node_is_evicted_at_once_or_tried_again() {
    for fail_fast in [true, false] {
        let mut w = with_topology(World::configured(|config| {
            config.gates.tas_failed_node_replacement_fail_fast = fail_fast;
        }));
        w.cq(cq("a").quota(q(4)));
        room(&mut w, "h1", 1);
        w.submit(job("p", "a").gpu(1));
        assert_eq!(w.cycle(), ["p admitted default"]);
        fails(&mut w, 1, &[("h1", 1)], "h1");
        let line = w.cycle().remove(0);
        if fail_fast {
            assert_eq!(line, "p not replaced: h1");
        } else {
            assert!(line.starts_with("p not placed: topology"), "{line}");
            assert!(w.core.next_wakeup().is_some());
        }
    }
}

#[test]
fn s6_15_13_nodes_that_a_head_only_reserved_replace_a_failed_one() {
    let mut w = with_topology(World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]));
    for queue in ["a", "b"] {
        w.cq(cq(queue).quota(q(4)).cohort("co"));
    }
    room(&mut w, "h1", 1);
    room(&mut w, "h2", 1);
    // a borrows with what it holds; the head of b borrows nothing, and goes first.
    w.running(job("more", "a").gpu(4), "default");
    w.submit(job("p", "a").gpu(1));
    assert_eq!(w.cycle(), ["p admitted default"]);
    w.submit(job("v", "b").gpu(1));
    assert_eq!(w.cycle(), ["v admitted default"]);
    fails(&mut w, 1, &[("h1", 1)], "h1");
    w.core.remove_node("h1");
    room(&mut w, "h3", 1);
    w.submit(job("r", "b").gpu(1).count(2));
    let lines = w.cycle();
    assert!(lines[0].starts_with("r TopologyPlacementFailed"), "{lines:?}");
    assert_eq!(lines[1..], ["p placed main h3=1"]);
}

/// Pods on these nodes.
fn on(nodes: &[(&str, i64)]) -> SharedAssignment {
    let domain = |(name, count): &(&str, i64)| AssignedDomain { values: vec![n(name)], count: *count };
    TopologyAssignment { levels: vec![n(HOSTNAME)], domains: nodes.iter().map(domain).collect() }.into()
}

/// A running workload of pods of one GPU is on these nodes, one of which fails.
fn fails(w: &mut World, count: i64, nodes: &[(&str, i64)], lost: &str) {
    w.holding(job("p", "a").gpu(1).count(count), "a", "default", |state| {
        if let WorkloadState::Reserved { admission, topology, .. } = state {
            admission.pod_sets[0].topology = Some(on(nodes));
            topology.unhealthy_nodes = vec![n(lost)];
        }
    });
}
