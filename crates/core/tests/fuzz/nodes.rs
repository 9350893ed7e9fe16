//! Topologies, nodes and their pods, from the bytes of an input.

use std::sync::Arc;

use sluice_core::fixtures::{self, topology};
use sluice_core::{
    AssignedDomain, HOSTNAME, Name, NodeSpec, RequestedLevel, Scheduler, SharedAssignment, SliceLayer,
    SliceMoves, Taint, TaintEffect, TopologyAssignment, TopologyRequest, TopologySpec, TopologyState,
};

use crate::events::Choices;

const LEVELS: [&str; 3] = ["block", "rack", HOSTNAME];

pub(super) fn topology_name(c: &mut Choices<'_>) -> Name {
    c.name("t", 2)
}

fn level(c: &mut Choices<'_>) -> Name {
    if c.byte() > 240 { c.name("level", 2) } else { Name::from(c.pick(&LEVELS)) }
}

pub(super) fn request(c: &mut Choices<'_>) -> Option<TopologyRequest> {
    let requested = match c.below(4) {
        0 => RequestedLevel::Required(level(c)),
        1 => RequestedLevel::Preferred(level(c)),
        2 => RequestedLevel::Unconstrained,
        _ => return None,
    };
    let slices = if c.flag() {
        c.some(2, |c| SliceLayer { level: level(c), size: c.pick(&[1, 2, 4, 0, -1, i64::MAX]) })
    } else {
        Vec::new()
    };
    Some(TopologyRequest { level: requested, slices })
}

pub(super) fn assignment(c: &mut Choices<'_>) -> SharedAssignment {
    let all = c.flag();
    let levels: Vec<Name> =
        if all { &LEVELS[..] } else { &LEVELS[2..] }.iter().map(|l| Name::from(*l)).collect();
    let width = if c.byte() > 250 { 1 } else { levels.len() };
    let domains = c.some(3, |c| AssignedDomain {
        values: (0..width).map(|_| c.name("h", 6)).collect(),
        count: c.count(),
    });
    Arc::new(TopologyAssignment { levels, domains })
}

pub(super) fn state(c: &mut Choices<'_>) -> TopologyState {
    TopologyState {
        checks_ready: c.flag(),
        unhealthy_nodes: if c.byte() > 150 { c.some(2, |c| c.name("h", 6)) } else { Vec::new() },
        pinned: c.byte() > 240,
        slice_moves: match c.byte() {
            ..100 => SliceMoves::Off,
            100..110 => SliceMoves::Refused(c.name("why", 2)),
            110.. => SliceMoves::Allowed,
        },
        eviction_refused: c.byte() > 240,
    }
}

fn node(c: &mut Choices<'_>) -> NodeSpec {
    let name = c.name("h", 6);
    let mut labels = c.pairs();
    for (key, count) in [("block", 2), ("rack", 3)] {
        if c.byte() < 230 {
            labels.push((Name::from(key), c.name(key, count)));
        }
    }
    if c.byte() < 240 {
        labels.push((Name::from(HOSTNAME), name.clone()));
    }
    NodeSpec {
        name,
        labels,
        taints: if c.byte() > 220 {
            vec![Taint { key: c.name("key", 3), value: c.name("value", 2), effect: TaintEffect::NoSchedule }]
        } else {
            Vec::new()
        },
        allocatable: ["r0", "r1", "r2", "pods"].map(|r| (Name::from(r), c.amount())).to_vec(),
        usable: c.byte() < 230,
    }
}

/// A topology, nodes of it, and flavors that have it.
pub(super) fn furnish(core: &mut Scheduler) {
    core.set_topology(&topology("t0", &LEVELS));
    for at in 0..4 {
        let name = format!("h{at}");
        let labels = [("block", "block0"), ("rack", if at < 2 { "rack0" } else { "rack1" })];
        core.set_node(&fixtures::node(&name, &labels, &["r0", "r1", "r2"].map(|resource| (resource, 8))));
    }
    for at in 0..3 {
        let mut flavor = fixtures::flavor(&format!("f{at}"));
        flavor.topology = Some(Name::from("t0"));
        core.set_flavor(flavor);
    }
}

pub(super) fn event(c: &mut Choices<'_>, core: &mut Scheduler) {
    match c.below(8) {
        0 => {
            let levels = if c.flag() { &LEVELS[..] } else { &LEVELS[..2] };
            let levels = levels.iter().map(|level| Name::from(*level)).collect();
            core.set_topology(&TopologySpec { name: topology_name(c), levels });
        }
        1 if c.byte() > 200 => core.remove_topology(&topology_name(c)),
        2 => core.remove_node(&c.name("h", 6)),
        3 => {
            let usage = c.some(3, |c| (c.name("r", 3), c.amount()));
            core.set_other_usage(&c.name("h", 6), &usage);
        }
        _ => core.set_node(&node(c)),
    }
}
