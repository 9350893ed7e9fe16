//! Nodes that are lent out in the cohort come back for a slice that lost a node and may move. Ours.

use crate::world::{DEFERRED, Job, World, cq, job, key, n, node, q, topology};
use sluice_core::{
    Amount, AssignedDomain, HOSTNAME, PreemptionPolicy, RequestedLevel, SharedAssignment, SliceLayer,
    SliceMoves, Time, TopologyAssignment, TopologyRequest, TopologyState, WorkloadSpec, WorkloadState,
};

const RACK: &str = "rack";
const NOTHING: [&str; 0] = [];

/// Racks of two nodes with one GPU each. The queue `s` has all quota of the cohort, and `o` borrows.
fn world(racks: &[&str]) -> World {
    let mut w = World::new();
    w.core.set_topology(&topology("t", &[RACK, HOSTNAME]));
    w.flavor("default", |spec| spec.topology = Some(n("t")));
    for &rack in racks {
        for name in nodes_of(rack) {
            w.core.set_node(&node(&name, &[(RACK, rack)], &[("gpu", 1)]));
        }
    }
    w.cq(cq("s").cohort("co").quota(q(100)));
    w.cq(cq("o").cohort("co").quota(q(0)));
    w
}

fn nodes_of(rack: &str) -> [String; 2] {
    [format!("{rack}0"), format!("{rack}1")]
}

/// One pod on each of these nodes.
fn on(nodes: &[String]) -> SharedAssignment {
    let domains = nodes.iter().map(|name| AssignedDomain { values: vec![n(name)], count: 1 });
    TopologyAssignment { levels: vec![n(HOSTNAME)], domains: domains.collect() }.into()
}

/// A workload runs on the nodes of a rack.
fn holds(w: &mut World, job: Job, rack: &str, change: impl FnOnce(&mut WorkloadState)) {
    let queue = job.spec.local_queue.clone();
    w.holding(job.gpu(1).count(2), &queue, "default", |state| {
        if let WorkloadState::Reserved { admission, reserved_at, .. } = state {
            admission.pod_sets[0].topology = Some(on(&nodes_of(rack)));
            *reserved_at = Time::from_seconds(1);
        }
        change(state);
    });
}

/// A workload that borrows runs on the nodes of a rack.
fn borrows(w: &mut World, name: &str, priority: i32, rack: &str) {
    holds(w, job(name, "o").priority(priority), rack, |_| {});
}

/// A slice runs in a rack, of which the second node has failed.
fn fails(w: &mut World, name: &str, rack: &str) {
    fails_and(w, name, rack, false);
}

/// The same, and it may be evicted.
fn fails_and(w: &mut World, name: &str, rack: &str, is_evicted: bool) {
    let slices = vec![SliceLayer { level: n(RACK), size: 2 }];
    let request = TopologyRequest { level: RequestedLevel::Unconstrained, slices };
    let job = job(name, "s").priority(10).pod(|pod_set| pod_set.topology = Some(request));
    holds(w, job, rack, |state| {
        if let WorkloadState::Reserved { topology, evicted, .. } = state {
            *evicted = is_evicted;
            topology.unhealthy_nodes = vec![n(&nodes_of(rack)[1])];
            topology.slice_moves = SliceMoves::Allowed;
        }
    });
}

#[test]
fn what_is_not_evicted_after_all_is_chosen_again() {
    let mut w = world(&["a", "b"]);
    borrows(&mut w, "v", 0, "b");
    fails(&mut w, "p", "a");
    let reclaims = ["p slice reclaims v:InCohortReclamation"];
    assert_eq!(w.cycle(), reclaims);
    assert_eq!(w.cycle(), NOTHING);
    // Its eviction could not be written.
    borrows(&mut w, "v", 0, "b");
    assert_eq!(w.cycle(), reclaims);
    w.released("v");
    assert_eq!(w.cycle()[0], "p 1 moved from a1 to b0,b1: main b0=1,b1=1");
}

#[test]
fn what_is_not_evicted_as_that_is_refused_again_and_again_is_not_counted_on() {
    let mut w = world(&["a", "b", "c"]);
    let refused = |w: &mut World, name: &str, priority: i32, rack: &str| {
        holds(w, job(name, "o").priority(priority), rack, |state| {
            if let WorkloadState::Reserved { topology, evicted, .. } = state {
                (*evicted, topology.eviction_refused) = (true, true);
            }
        });
    };
    borrows(&mut w, "v", -2, "b");
    borrows(&mut w, "u", -1, "c");
    fails(&mut w, "p", "a");
    assert_eq!(w.cycle(), ["p slice reclaims v:InCohortReclamation"]);
    refused(&mut w, "v", -2, "b");
    assert_eq!(w.cycle(), ["p slice reclaims u:InCohortReclamation"]);
    refused(&mut w, "u", -1, "c");
    let lines = w.cycle();
    assert!(lines[0].starts_with("p not replaced: a1"), "{lines:?}");
}

#[test]
fn a_slice_for_which_nothing_is_evicted_after_all_has_its_turn_again_later_and_keeps_nothing() {
    let mut w = world(&["a", "b", "c"]);
    borrows(&mut w, "v", 0, "b");
    borrows(&mut w, "w", 20, "c");
    fails(&mut w, "p", "a");
    let reclaims = ["p slice reclaims v:InCohortReclamation"];
    assert_eq!(w.cycle(), reclaims);
    w.core.reclaim_failed(&key("p"), w.now());
    assert_eq!(w.core.audit(), Ok(()));
    w.released("v");
    w.submit(job("next", "s").gpu(1).count(2).priority(5));
    assert_eq!(w.cycle()[0], "next admitted default");
    let lines: Vec<String> = (0..2).flat_map(|_| w.cycle()).collect();
    assert!(lines.iter().any(|line| line.starts_with("p not replaced: a1")), "{lines:?}");
}

#[test]
fn other_nodes_come_back_when_those_that_a_slice_waits_for_take_no_pods() {
    let mut w = world(&["a", "b", "c"]);
    borrows(&mut w, "v", -2, "b");
    borrows(&mut w, "u", -1, "c");
    fails(&mut w, "p", "a");
    assert_eq!(w.cycle(), ["p slice reclaims v:InCohortReclamation"]);
    w.core.set_node_usable("b1", false);
    assert_eq!(w.cycle(), ["p slice reclaims u:InCohortReclamation"]);
    w.released("u");
    assert_eq!(w.cycle()[0], "p 1 moved from a1 to c0,c1: main c0=1,c1=1");
}

#[test]
fn a_slice_does_not_get_the_nodes_that_another_one_waits_for() {
    let mut w = world(&["a", "b", "c", "d"]);
    borrows(&mut w, "v", -2, "c");
    borrows(&mut w, "u", -1, "d");
    fails(&mut w, "p", "a");
    fails(&mut w, "r", "b");
    assert_eq!(
        w.cycle(),
        ["p slice reclaims v:InCohortReclamation", "r slice reclaims u:InCohortReclamation"]
    );
    w.released("u");
    assert_eq!(w.cycle()[0], "r 1 moved from b1 to d0,d1: main d0=1,d1=1");
    w.released("v");
    assert_eq!(w.cycle()[0], "p 1 moved from a1 to c0,c1: main c0=1,c1=1");
}

#[test]
fn two_slices_together_take_no_more_than_a_queue_borrows() {
    let mut w = world(&["a", "b", "c", "d"]);
    w.cq(cq("o").cohort("co").quota(q(2)));
    borrows(&mut w, "v", -2, "c");
    borrows(&mut w, "u", -1, "d");
    fails(&mut w, "p", "a");
    fails(&mut w, "r", "b");
    let lines = w.cycle();
    assert_eq!((lines.len(), &*lines[0]), (2, "p slice reclaims v:InCohortReclamation"));
    assert!(lines[1].starts_with("r not replaced: b1"), "{lines:?}");
}

/// `p` waits for the rack b, whose workload has left before its pods. `next` was tried, and finds no nodes.
fn kept_from_others() -> World {
    let mut w = world(&["a", "b"]);
    w.cq(cq("y").quota(q(1)));
    borrows(&mut w, "v", 0, "b");
    fails(&mut w, "p", "a");
    assert_eq!(w.cycle(), ["p slice reclaims v:InCohortReclamation"]);
    w.finished("v");
    w.core.set_other_usage(&n("b0"), &[(n("gpu"), Amount(1))]);
    w.submit(job("next", "y").gpu(1));
    w.cycle();
    assert_eq!(w.inadmissible("y"), ["next"], "b1 is kept");
    assert_eq!(w.cycle(), NOTHING);
    w
}

#[test]
fn others_get_the_nodes_that_were_kept_when_the_slice_is_evicted() {
    let mut w = kept_from_others();
    fails_and(&mut w, "p", "a", true);
    assert_eq!(w.cycle(), ["next admitted default"]);
}

#[test]
fn others_get_the_nodes_that_were_kept_when_the_slice_is_preempted() {
    let mut w = kept_from_others();
    // Its queue borrows from now on.
    w.cq(cq("s").cohort("co").quota(q(0)));
    w.cq(cq("x").cohort("co").quota(q(2)).reclaim(PreemptionPolicy::Any));
    w.submit(job("head", "x").gpu(1).count(2));
    let lines = w.cycle();
    assert!(lines.iter().any(|line| line == "head preempts p:InCohortReclamation"), "{lines:?}");
    let lines = w.cycle();
    assert!(lines.iter().any(|line| line == "next admitted default"), "{lines:?}");
}

/// A slice of `p` could get the nodes of `v`. Others are free, which are of no use to it. All quota is used, of which `o` has borrowed that of `x`.
fn with_a_reclaimer() -> World {
    let mut w = world(&["a", "b", "c"]);
    for rack in ["d", "e"] {
        w.core.set_node(&node(&nodes_of(rack)[0], &[(RACK, rack)], &[("gpu", 1)]));
    }
    w.cq(cq("s").cohort("co").quota(q(4)));
    w.cq(cq("x").cohort("co").quota(q(2)).reclaim(PreemptionPolicy::Any));
    borrows(&mut w, "v", -2, "b");
    borrows(&mut w, "w", -1, "c");
    holds(&mut w, job("p", "s").priority(10), "a", |_| {});
    w
}

#[test]
fn others_wait_for_the_quota_of_the_victims_of_a_slice_and_evict_nothing_else() {
    let mut w = with_a_reclaimer();
    fails(&mut w, "p", "a");
    w.submit(job("r", "x").gpu(1).count(2));
    let deferred = format!("r {DEFERRED}");
    assert_eq!(w.cycle(), ["p slice reclaims v:InCohortReclamation", deferred.as_str()]);
    assert_eq!(w.cycle(), ["r preempts v:InCohortReclamation (evicted before)"]);
    w.released("v");
    assert_eq!(w.cycle()[..2], ["p 1 moved from a1 to b0,b1: main b0=1,b1=1", "r admitted default"]);
}

#[test]
fn what_a_slice_waits_for_is_the_first_victim_of_others() {
    let mut w = with_a_reclaimer();
    fails(&mut w, "p", "a");
    assert_eq!(w.cycle(), ["p slice reclaims v:InCohortReclamation"]);
    w.submit(job("r", "x").gpu(1).count(2));
    for _ in 0..2 {
        assert_eq!(w.cycle(), ["r preempts v:InCohortReclamation (evicted before)"]);
    }
}

#[test]
fn what_others_wait_for_is_the_first_victim_of_a_slice() {
    let mut w = with_a_reclaimer();
    w.submit(job("r", "x").gpu(1).count(2));
    assert_eq!(w.cycle(), ["r preempts v:InCohortReclamation"]);
    fails(&mut w, "p", "a");
    for _ in 0..2 {
        assert_eq!(w.cycle(), ["r preempts v:InCohortReclamation (evicted before)"]);
    }
    w.released("v");
    assert_eq!(w.cycle()[..2], ["p 1 moved from a1 to b0,b1: main b0=1,b1=1", "r admitted default"]);
}

/// A thousand racks, each of them with a workload of one pod on its first node, and one of the priority `second` on the other.
fn many(second: impl Fn(i32) -> i32) -> World {
    let mut w = world(&["a"]);
    for rack in 0..1_000 {
        let label = format!("r{rack}-");
        let [first, other] = nodes_of(&label);
        for (name, priority) in [(first, rack - 2_000), (other, second(rack))] {
            w.core.set_node(&node(&name, &[(RACK, label.as_str())], &[("gpu", 1)]));
            let job = job(&name, "o").gpu(1).priority(priority);
            let mut admission = job.admission("o", "default");
            admission.pod_sets[0].topology = Some(on(&[name]));
            let state = WorkloadState::Reserved {
                admission,
                reserved_at: Time::from_seconds(1),
                admitted: true,
                evicted: false,
                pods_ready: true,
                topology: TopologyState::default(),
            };
            w.core.set_workload(WorkloadSpec { state, ..job.spec }, w.now());
        }
    }
    w.cq(cq("s").cohort("co").quota(q(10_000)));
    fails(&mut w, "p", "a");
    w
}

#[test]
fn few_placements_find_the_victims_among_thousands() {
    // The first rack whose workloads are both among the lowest is the last one.
    let mut w = many(|rack| -1 - rack);
    let before = w.core.stats().placements;
    assert_eq!(w.cycle(), ["p slice reclaims r999-1:InCohortReclamation r999-0:InCohortReclamation"]);
    let placements = w.core.stats().placements - before;
    assert!(placements <= 20, "{placements}");
}

#[test]
fn one_placement_says_that_all_who_borrow_are_not_enough() {
    let mut w = many(|_| 10);
    let before = w.core.stats().placements;
    assert!(w.cycle()[0].starts_with("p not replaced: a1"));
    assert_eq!(w.core.stats().placements - before, 2, "with all, and without all");
}

#[test]
fn a_cycle_searches_for_some_slices_the_next_one_for_the_others_and_each_is_searched_for_once() {
    let racks: Vec<String> = (0..20).map(|rack| format!("r{rack}-")).collect();
    let mut w = world(&racks.iter().map(String::as_str).collect::<Vec<_>>());
    let (lent, own) = racks.split_at(10);
    for (slice, (lent, own)) in lent.iter().zip(own).enumerate() {
        borrows(&mut w, &format!("v{slice}"), 0, lent);
        fails(&mut w, &format!("p{slice}"), own);
    }
    let each = [(2, true), (2, true), (2, true), (2, true), (2, false), (0, false)];
    for (reclaims, scanning) in each {
        let before = w.core.stats();
        let lines = w.cycle();
        let searches = w.core.stats().preemption_searches - before.preemption_searches;
        let searches = usize::try_from(searches).unwrap();
        assert_eq!((lines.len(), searches, w.report.scanning), (reclaims, reclaims, scanning));
        assert!(lines.iter().all(|line| line.contains(" slice reclaims v")), "{lines:?}");
    }
}
