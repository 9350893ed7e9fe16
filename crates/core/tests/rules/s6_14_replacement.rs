//! 6.14 Node replacement, as far as it shows in what is decided: all else is tested beside the code.

use crate::world::{World, cq, job, n, node, q, topology};
use sluice_core::{
    AssignedDomain, HOSTNAME, PreemptionPolicy, TopologyAssignment, TopologyState, WorkloadState,
};

/// Two nodes with one GPU each; a workload that finds no other node continues waiting for one.
fn world() -> World {
    let mut w = World::configured(|config| config.gates.tas_failed_node_replacement_fail_fast = false);
    w.core.set_topology(&topology("t", &[HOSTNAME]));
    w.flavor("default", |spec| spec.topology = Some(n("t")));
    for name in ["h1", "h2"] {
        room(&mut w, name);
    }
    w.cq(cq("a").quota(q(4)).within(PreemptionPolicy::LowerPriority));
    w
}

fn room(w: &mut World, name: &str) {
    w.core.set_node(&node(name, &[], &[("gpu", 1)]));
}

/// A running workload of one pod on the node `h2`, which has failed.
fn fails(w: &mut World, change: impl FnOnce(&mut TopologyState)) {
    let domains = vec![AssignedDomain { values: vec![n("h2")], count: 1 }];
    let assignment = TopologyAssignment { levels: vec![n(HOSTNAME)], domains };
    w.holding(job("p", "a").gpu(1).priority(10), "a", "default", |state| {
        if let WorkloadState::Reserved { admission, topology, .. } = state {
            admission.pod_sets[0].topology = Some(assignment.into());
            topology.unhealthy_nodes = vec![n("h2")];
            change(topology);
        }
    });
}

#[test]
fn s6_14_14_nothing_is_preempted_for_a_replacement() {
    let mut w = world();
    w.submit(job("low", "a").gpu(1));
    assert_eq!(w.cycle(), ["low admitted default"]);
    fails(&mut w, |_| {});
    let lines: Vec<String> = (0..10).flat_map(|_| w.cycle()).collect();
    assert!(lines.len() > 1 && lines.iter().all(|line| line.starts_with("p not placed: ")), "{lines:?}");
    room(&mut w, "h3");
    let lines: Vec<String> = (0..10).flat_map(|_| w.cycle()).collect();
    assert_eq!(lines, ["p placed main h3=1"]);
}

#[test]
fn s6_14_15_a_workload_of_a_single_pod_keeps_its_node() {
    let mut w = world();
    fails(&mut w, |topology| topology.pinned = true);
    for _ in 0..10 {
        assert_eq!(w.cycle(), Vec::<String>::new(), "its pod cannot move");
    }
    assert_eq!(w.core.next_wakeup(), None);
}
