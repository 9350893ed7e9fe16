//! Ours: where the pods of a workload that found no place would fit, as the placement counts them
//! (`sluice_core::Scheduler::pod_set_fits`), and the shapes of pods that wait (`asked_shapes`).

use crate::world::{World, cq, job, key, n, node, q, topology};
use sluice_core::{Amount, HOSTNAME, Taint, TaintEffect};

/// Two racks with two and one nodes of two GPUs each.
fn world() -> World {
    let mut w = World::new();
    w.core.set_topology(&topology("racks", &["rack", HOSTNAME]));
    w.flavor("gpu", |spec| {
        spec.topology = Some(n("racks"));
        spec.node_labels = vec![(n("pool"), n("gpu"))];
    });
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2")] {
        w.core.set_node(&node(name, &[("rack", rack), ("pool", "gpu")], &[("gpu", 2)]));
    }
    w.cq(cq("queue").flavor("gpu", &[("gpu", q(100)), ("credit", q(1_000))]));
    w
}

/// How many pods the job `j` has, and how many fit into the racks.
fn fits(w: &World) -> (i64, Vec<(String, i64)>) {
    let room = w.core.pod_set_fits(&key("j"), ("main", "gpu"), &[], 9).expect("it is known");
    let racks = room.levels[0].roomiest.iter();
    (room.pods, racks.map(|(path, pods)| (path[0].to_string(), *pods)).collect())
}

fn racks(r1: i64, r2: i64) -> Vec<(String, i64)> {
    vec![("r1".to_owned(), r1), ("r2".to_owned(), r2)]
}

#[test]
fn what_fits_is_counted_by_what_pods_take_of_nodes_and_not_by_what_they_take_of_quota() {
    let mut w = world();
    let seven = job("j", "queue").count(7).req("credit", 50);
    w.submit(seven.pod(|set| set.node_requests = Some(vec![(n("gpu"), Amount(1))])));
    assert_eq!(w.cycle(), ["j TopologyPlacementFailed"]);
    assert_eq!(fits(&w), (7, racks(4, 2)));
    let (shapes, _) = w.core.asked_shapes("gpu", 9);
    assert_eq!(shapes[0].per_pod, [(n("gpu"), 1)]);
    assert_eq!(w.core.shape_fits("gpu", &shapes[0], 1)[0].largest(), 4);
}

#[test]
fn of_a_shape_the_pods_that_most_pods_are_like_count() {
    let mut w = world();
    let mut away = node("c", &[("rack", "r2"), ("pool", "gpu")], &[("gpu", 8)]);
    away.taints = vec![Taint { key: n("maintenance"), value: n(""), effect: TaintEffect::NoSchedule }];
    w.core.set_node(&away);
    w.submit(job("j", "queue").count(8).gpu(1));
    assert_eq!(w.cycle(), ["j TopologyPlacementFailed"]);
    let largest = |w: &World| {
        let (shapes, _) = w.core.asked_shapes("gpu", 9);
        assert_eq!(shapes.len(), 1);
        w.core.shape_fits("gpu", &shapes[0], 1)[0].largest()
    };
    assert_eq!((fits(&w).1, largest(&w)), (racks(4, 0), 4), "nothing fits onto tainted nodes");
    w.submit(job("other", "queue").count(20).gpu(1).pod(|set| {
        set.node_selector = vec![(n("rack"), n("r3"))];
    }));
    w.cycle();
    assert_eq!(largest(&w), 0);
}
