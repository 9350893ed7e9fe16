//! docs/reference/06-algorithm.md 6.14 and 6.12 "Elastic": some pods stay while others are placed.

use std::sync::Arc;

use super::fixture::{Pods, World, pods, show, world};
use crate::topology::HOSTNAME;

/// Racks of three nodes and of one.
fn racks() -> World {
    world(&[("b1", "r1", "a", 2), ("b1", "r1", "b", 2), ("b1", "r1", "c", 2), ("b1", "r2", "d", 4)])
}

/// Pods that run where they were, with a lost node.
fn replace(world: &mut World, set: Pods, running: &[(&str, i64)], lost: &str) -> String {
    let used = world.resolve(running);
    world.usage.add(&used);
    let placed = world.place_with(&[set.previous(running)], false, &[], &[lost]);
    world.usage.remove(&used);
    show(&placed)
}

#[test]
fn pods_of_a_lost_node_stay_in_the_required_domain() {
    let set = || pods(4).required("rack");
    assert_eq!(replace(&mut racks(), set(), &[("a", 2), ("b", 2)], "b"), "a=2 c=2");
    let mut world = racks();
    world.other("c", 2, 0);
    let text = "topology \"default\" doesn't allow to fit any of 2 pod(s). Total nodes: 4; excluded: \
                resource \"cpu\": 2, topologyDomain: 2";
    assert_eq!(replace(&mut world, set(), &[("a", 2), ("b", 2)], "b"), text);
}

#[test]
fn preferred_pods_of_a_lost_node_may_leave_the_domain() {
    let mut world = racks();
    world.other("c", 2, 0);
    assert_eq!(replace(&mut world, pods(4).preferred("rack"), &[("a", 2), ("b", 2)], "b"), "a=2 d=2");
}

#[test]
fn a_lost_node_that_held_all_pods_sets_them_free() {
    assert_eq!(replace(&mut racks(), pods(2).required("rack"), &[("a", 2)], "a"), "b=2");
}

#[test]
fn a_lost_node_may_be_gone() {
    let mut world = racks();
    world.topologies.remove_node(&mut world.usage, "b");
    assert_eq!(replace(&mut world, pods(4).required("rack"), &[("a", 2), ("b", 2)], "b"), "a=2 c=2");
}

#[test]
fn pods_that_join_others_on_their_node_are_counted_together() {
    let mut world = world(&[("b1", "r1", "a", 4), ("b1", "r1", "b", 2)]);
    assert_eq!(replace(&mut world, pods(4).required("rack"), &[("a", 2), ("b", 2)], "b"), "a=4");
}

#[test]
fn another_domain_without_a_node_makes_it_impossible() {
    let mut world = racks();
    world.topologies.remove_node(&mut world.usage, "a");
    let text = "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale \
                domain a";
    assert_eq!(replace(&mut world, pods(4).required("rack"), &[("a", 2), ("b", 2)], "b"), text);
}

#[test]
fn a_lost_node_without_pods_changes_nothing() {
    assert_eq!(replace(&mut racks(), pods(2).required("rack"), &[("a", 2)], "b"), "a=2");
}

#[test]
fn an_incomplete_slice_is_completed_in_its_own_domain() {
    let set = || pods(4).required("block").slice("rack", 2);
    assert_eq!(replace(&mut racks(), set(), &[("a", 1), ("b", 1), ("d", 2)], "b"), "a=2 d=2");
    let mut world = racks();
    world.other("a", 1, 0);
    assert_eq!(replace(&mut world, set(), &[("a", 1), ("b", 1), ("d", 2)], "b"), "a=1 c=1 d=2");
}

#[test]
fn whole_slices_of_a_lost_node_may_leave_their_domain() {
    let mut world = racks();
    world.other("a", 2, 0);
    world.other("c", 2, 0);
    let set = pods(4).preferred("block").slice("rack", 2);
    assert_eq!(replace(&mut world, set, &[("b", 2), ("d", 2)], "b"), "d=4");
}

#[test]
fn pods_of_a_slice_that_is_not_whole_stay_with_it() {
    let set = || pods(7).required("block").slice("rack", 4);
    let world = || {
        world(&[
            ("b1", "r1", "a", 4),
            ("b1", "r2", "b", 2),
            ("b1", "r2", "c", 1),
            ("b1", "r2", "d", 2),
            ("b1", "r3", "e", 4),
        ])
    };
    let running = [("a", 4), ("b", 2), ("c", 1)];
    assert_eq!(replace(&mut world(), set(), &running, "c"), "a=4 b=2 d=1");
    assert_eq!(replace(&mut world(), set(), &running, "a"), "e=4 b=2 c=1", "its ranks stay the first");
    let mut full = world();
    full.other("d", 2, 0);
    assert!(replace(&mut full, set(), &running, "c").contains("doesn't allow to fit any of 1 pod(s)"));
}

#[test]
fn pods_that_do_not_fill_a_slice_stay_in_the_required_domain() {
    let set = || pods(3).required("rack").slice(HOSTNAME, 2);
    let running = [("a", 2), ("b", 1)];
    assert_eq!(replace(&mut racks(), set(), &running, "b"), "a=2 c=1");
    let mut world = racks();
    world.other("c", 2, 0);
    assert!(replace(&mut world, set(), &running, "b").contains("doesn't allow to fit any of 1"));
}

#[test]
fn a_leader_alone_stays_in_the_required_domain_of_its_workers() {
    let leader = || pods(1).required("rack").beside(&[("b", 2)]);
    let mut world = racks();
    world.other("b", 2, 0);
    assert_eq!(replace(&mut world, leader(), &[("a", 1)], "a"), "c=1");
    world.other("c", 2, 0);
    assert!(replace(&mut world, leader(), &[("a", 1)], "a").contains("topologyDomain: 2"));
    let preferred = pods(1).preferred("rack").beside(&[("b", 2)]);
    assert_eq!(replace(&mut world, preferred, &[("a", 1)], "a"), "d=1");
}

#[test]
fn a_group_that_lost_its_only_node_stays_together() {
    let mut world =
        world(&[("b1", "r1", "a", 3), ("b1", "r2", "c", 1), ("b1", "r3", "d", 3), ("b1", "r3", "e", 1)]);
    let workers = pods(2).required("rack").previous(&[("a", 2)]).beside(&[("a", 1)]);
    let leader = pods(1).required("rack").previous(&[("a", 1)]).beside(&[("a", 2)]);
    let used = world.resolve(&[("a", 3)]);
    world.usage.add(&used);
    let placed = world.place_with(&[workers, leader], false, &[], &["a"]);
    assert_eq!(show(&placed), "d=2 | d=1");
}

/// Nodes with 2, 1 and 4 cpus, and the gate.
fn elastic() -> World {
    let mut world = world(&[("b1", "r1", "a", 2), ("b1", "r1", "b", 1), ("b1", "r1", "c", 4)]);
    world.config.gates.elastic_jobs_via_workload_slices_with_tas = true;
    world
}

#[test]
fn a_larger_elastic_slice_places_only_what_is_new() {
    assert_eq!(elastic().put(&pods(3).unconstrained().previous(&[("a", 1)])), "a=1 c=2");
    assert_eq!(elastic().put(&pods(2).unconstrained().previous(&[("a", 1)])), "a=2");
}

#[test]
fn a_smaller_elastic_slice_gives_up_the_last_domains() {
    assert_eq!(elastic().put(&pods(3).previous(&[("a", 2), ("b", 1), ("c", 1)])), "a=2 b=1");
    assert_eq!(elastic().put(&pods(1).previous(&[("a", 2), ("b", 1)])), "a=1");
}

#[test]
fn an_elastic_slice_of_the_same_size_keeps_its_assignment() {
    let mut world = elastic();
    let set = pods(2).previous(&[("c", 2)]);
    let placed = world.place(&set).expect("it stays");
    assert!(Arc::ptr_eq(&placed[0].assignment, set.previous.as_ref().expect("it was given")));
}

#[test]
fn an_elastic_slice_is_placed_again_where_it_cannot_stay() {
    assert_eq!(elastic().put(&pods(2).previous(&[("gone", 1)])), "a=2");
    assert_eq!(elastic().put(&pods(3).required("rack").previous(&[("a", 1)])), "c=3");
    let mut world = elastic();
    world.config.gates.elastic_jobs_via_workload_slices_with_tas = false;
    assert_eq!(world.put(&pods(2).previous(&[("c", 1)])), "a=2");
}
