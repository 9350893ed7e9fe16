//! Ours: where the pods of a workload that found no place would fit, as the placement counts them
//! (`sluice_core::Scheduler::fits_of`), and the shapes of pods that wait (`asked_shapes`).

use crate::world::{World, cq, job, key, n, node, q, topology};
use sluice_core::{Amount, HOSTNAME, Name, Taint, TaintEffect, WorkloadFits};

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
    let room = w.core.fits_of(&key("j")).of(("main", "gpu"), &[], 9).expect("it is known");
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

#[test]
fn what_earlier_pod_sets_take_is_found_once_for_all_that_come_after_them() {
    let mut w = world();
    w.submit(job("j", "queue").count(1).gpu(2).pod_set("workers").count(3).gpu(2));
    assert_eq!(w.cycle(), ["j TopologyPlacementFailed"]);
    let key = key("j");
    let mut fits = w.core.fits_of(&key);
    let placed = [(n("main"), n("gpu"))];
    let all = |fits: &mut WorkloadFits<'_>, placed: &[(Name, Name)]| {
        fits.of(("workers", "gpu"), placed, 9).expect("it is known").levels[0].pods
    };
    assert_eq!((all(&mut fits, &[]), fits.looked()), (3, 0));
    assert_eq!(fits.of(("workers", "none"), &placed, 9).expect("it is known").levels, []);
    assert_eq!(fits.looked(), 0, "a flavor without a topology needs no nodes");
    assert_eq!(all(&mut fits, &placed), 2);
    let looked = fits.looked();
    assert!(looked > 0);
    for _ in 0..9 {
        assert_eq!((all(&mut fits, &placed), fits.looked()), (2, looked));
    }
    // Others take nothing away from what is free without them.
    assert_eq!(all(&mut fits, &[]), 3);
    let twice = [placed[0].clone(), (n("workers"), n("gpu"))];
    assert_eq!(all(&mut fits, &twice), 3, "these do not fit together");
    assert_eq!(all(&mut fits, &placed), 2);
}
