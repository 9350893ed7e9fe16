//! 6.12 Placement, as far as it shows in what is admitted: all else is tested beside the code.

use crate::world::{Job, World, cq, domains, job, key, n, node, q, topology};
use sluice_core::{AffinityTerm, Expression, HOSTNAME, Operator, PreferredTerm};

/// Three nodes, and preferred node affinity with the gate or without.
fn world(respected: bool) -> World {
    let mut w = World::configured(|config| config.gates.tas_respect_node_affinity_preferred = respected);
    w.core.set_topology(&topology("t", &[HOSTNAME]));
    w.flavor("default", |spec| spec.topology = Some(n("t")));
    for (name, gpus) in [("h1", 2), ("h2", 4), ("h3", 4)] {
        w.core.set_node(&node(name, &[("disk", name)], &[("gpu", gpus)]));
    }
    w.cq(cq("a").quota(q(10)));
    w
}

fn prefers(job: Job, disk: &str, weight: i32) -> Job {
    let expression = Expression::new(n("disk"), Operator::In, vec![n(disk)]);
    let term = AffinityTerm { expressions: vec![expression], fields: Vec::new() };
    job.pod(|pod_set| pod_set.preferred_affinity.push(PreferredTerm { weight, term }))
}

fn nodes(w: &World, name: &str) -> String {
    w.core.nodes(&key(name)).first().map_or_else(String::new, |(_, assignment)| domains(assignment))
}

#[test]
fn s6_12_13_preferred_node_affinity_orders_domains_with_its_gate() {
    for (respected, first, second) in [(true, "h3=1", "h2=1"), (false, "h1=1", "h1=1")] {
        let mut w = world(respected);
        w.submit(prefers(prefers(job("best", "a").gpu(1), "h2", 1), "h3", 2));
        w.cycle();
        assert_eq!(nodes(&w, "best"), first);
        w.submit(prefers(job("other", "a").gpu(1), "h2", 1));
        w.cycle();
        assert_eq!(nodes(&w, "other"), second);
    }
}
