//! Ours: a placement that was refused is not searched for again while the nodes of its topology are as they were
//! (`sluice_core::Stats::placement_searches`).

use crate::world::{World, cq, job, n, node, q, topology};
use sluice_core::{HOSTNAME, QueueingStrategy};

/// Two flavors with a topology each, with one node and a queue; the head of the one of `one` does not fit.
fn world() -> World {
    let mut w = nodes();
    let strict = |queue: crate::world::Cq| queue.with(|spec| spec.strategy = QueueingStrategy::StrictFIFO);
    w.cq(strict(cq("one").flavor("one", &[("gpu", q(100))])));
    w.cq(cq("two").flavor("two", &[("gpu", q(100))]));
    w.submit(job("large", "one").gpu(4).count(2));
    assert_eq!(w.cycle(), ["large TopologyPlacementFailed"]);
    w
}

/// Two flavors with a topology each, with one node.
fn nodes() -> World {
    let mut w = World::new();
    for flavor in ["one", "two"] {
        w.core.set_topology(&topology(flavor, &["rack", HOSTNAME]));
        w.flavor(flavor, |spec| {
            spec.topology = Some(n(flavor));
            spec.node_labels = vec![(n("pool"), n(flavor))];
        });
        host(&mut w, flavor, flavor, 4);
    }
    w
}

fn host(w: &mut World, pool: &str, name: &str, gpus: i64) {
    w.core.set_node(&node(name, &[("rack", "r"), ("pool", pool)], &[("gpu", gpus)]));
}

#[test]
fn the_head_of_a_strict_queue_that_does_not_fit_costs_nothing_while_other_queues_and_nodes_change() {
    let mut w = world();
    let before = w.core.stats();
    for round in 0..10 {
        host(&mut w, "two", &format!("h{round}"), 1);
        w.submit(job(&format!("small{round}"), "two").gpu(1));
        assert!(w.cycle().contains(&format!("small{round} admitted two")));
    }
    let after = w.core.stats();
    assert!(after.evaluations >= before.evaluations + 20, "the head is evaluated in each cycle");
    assert_eq!(after.placement_searches - before.placement_searches, 10, "those of the others alone");
    host(&mut w, "one", "h", 4);
    assert_eq!(w.cycle(), ["large admitted one"]);
}

#[test]
fn nine_heads_of_as_many_shapes_cost_nothing_while_other_queues_and_nodes_change() {
    let mut w = nodes();
    w.cq(cq("two").flavor("two", &[("gpu", q(100))]));
    for at in 1..=9 {
        let queue = format!("strict{at}");
        let strict = cq(&queue).flavor("one", &[("gpu", q(100))]);
        w.cq(strict.with(|spec| spec.strategy = QueueingStrategy::StrictFIFO));
        w.submit(job(&format!("large{at}"), &queue).gpu(at).count(9));
    }
    assert_eq!(w.cycle().len(), 9);
    let before = w.core.stats();
    for round in 0..10 {
        host(&mut w, "two", &format!("h{round}"), 1);
        w.cycle();
    }
    let after = w.core.stats();
    assert!(after.evaluations >= before.evaluations + 90, "the heads are evaluated in each cycle");
    assert_eq!(after.placement_searches, before.placement_searches);
    assert_eq!(after.counted_domains, before.counted_domains);
}
