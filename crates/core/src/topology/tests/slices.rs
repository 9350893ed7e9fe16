//! docs/reference/06-algorithm.md 6.12: slices, and layers of them.

use super::fixture::{World, pods, show, world};
use crate::topology::HOSTNAME;

/// Two racks: nodes with 3 and 3 cpus, and one with 5.
fn racks() -> World {
    world(&[("b1", "r1", "a", 3), ("b1", "r1", "b", 3), ("b1", "r2", "c", 5)])
}

#[test]
fn a_slice_stays_in_one_domain_of_its_level() {
    assert_eq!(racks().put(&pods(8).required("block").slice("rack", 4)), "a=3 b=1 c=4");
    let text = "topology \"default\" allows to fit only 1 out of 2 slice(s)";
    assert_eq!(racks().put(&pods(12).required("block").slice("rack", 6)), text);
}

#[test]
fn what_is_left_of_a_domain_after_whole_slices_is_not_used() {
    let text = "topology \"default\" allows to fit only 2 out of 3 slice(s)";
    assert_eq!(racks().put(&pods(12).required("block").slice("rack", 4)), text);
    let text = "topology \"default\" doesn't allow to fit any of 1 slice(s)";
    assert_eq!(racks().put(&pods(6).required("rack").slice(HOSTNAME, 6)), text);
}

#[test]
fn slices_alone_are_unconstrained_from_the_highest_level() {
    let mut world = world(&[("b1", "r1", "a", 5), ("b2", "r2", "b", 4), ("b3", "r3", "c", 2)]);
    assert_eq!(world.put(&pods(4).slice("rack", 2)), "b=4");
    assert_eq!(world.put(&pods(8).slice("rack", 2)), "a=2 b=4 c=2");
}

#[test]
fn below_the_level_of_slices_the_smaller_nodes_come_first() {
    let mut world = world(&[("b1", "r1", "a", 3), ("b1", "r1", "b", 2)]);
    assert_eq!(world.put(&pods(4).required("rack").slice("rack", 4)), "a=2 b=2");
    assert_eq!(world.put(&pods(4).required("rack")), "a=3 b=1");
}

#[test]
fn the_level_of_slices_must_not_be_above_that_of_the_pods() {
    let text = "podset slice topology block is above the podset topology rack";
    assert_eq!(racks().put(&pods(4).required("rack").slice("block", 2)), text);
    let text = "no requested topology level for slices: zone";
    assert_eq!(racks().put(&pods(4).required("rack").slice("zone", 2)), text);
}

#[test]
fn inner_layers_give_pods_in_portions() {
    let layers = |count| pods(count).required("block").slice("rack", 4).slice(HOSTNAME, 2);
    assert_eq!(racks().put(&layers(8)), "a=2 b=2 c=4");
    let text = "topology \"default\" doesn't allow to fit; 2/3 slice(s) fit on level rack; \
                4/6 slice(s) fit on level kubernetes.io/hostname";
    assert_eq!(racks().put(&layers(12)), text);
}

#[test]
fn without_the_gate_inner_layers_do_not_count() {
    let mut world = racks();
    world.config.gates.tas_multi_layer_topology = false;
    assert_eq!(world.put(&pods(8).required("block").slice("rack", 4).slice(HOSTNAME, 2)), "a=3 b=1 c=4");
}

#[test]
fn inner_layers_must_be_lower_and_divide_the_ones_above() {
    let base = || pods(4).required("block").slice("rack", 4);
    let text = "additional slice layer topology rack must be at a lower level than rack";
    assert_eq!(racks().put(&base().slice("rack", 2)), text);
    let text = "additional slice layer size 3 must evenly divide parent layer size 4";
    assert_eq!(racks().put(&base().slice(HOSTNAME, 3)), text);
    let text = "no requested topology level for additional slice layer: zone";
    assert_eq!(racks().put(&base().slice("zone", 2)), text);
}

#[test]
fn pods_that_do_not_fill_a_slice_are_in_the_last_one() {
    let mut world = world(&[("b", "r1", "a", 4), ("b", "r2", "c", 2), ("b", "r3", "d", 2)]);
    assert_eq!(world.put(&pods(7).required("block").slice("rack", 2)), "a=4 c=2 d=1");
    assert_eq!(world.put(&pods(5).preferred("rack").slice("rack", 2)), "a=4 c=1");
    // Where no level is asked for, the domains with the least room are used first.
    assert_eq!(world.put(&pods(3).slice("rack", 2)), "c=2 d=1");
    world.config.gates.tas_balanced_placement = true;
    assert_eq!(world.put(&pods(7).preferred("block").slice("rack", 2)), "a=4 c=2 d=1");
    let text = "topology \"default\" allows to fit only 4 out of 5 slice(s)";
    assert_eq!(world.put(&pods(9).required("block").slice("rack", 2)), text);
}

#[test]
fn a_slice_that_is_alone_needs_no_more_room_than_its_pods() {
    let mut world = world(&[("b", "r1", "a", 7), ("b", "r2", "c", 6)]);
    let set = pods(7).required("rack").slice("rack", 8);
    assert_eq!(world.put(&set), "a=7");
    world.other("a", 1, 0);
    let text = "topology \"default\" doesn't allow to fit any of 1 slice(s)";
    assert!(world.put(&set).starts_with(text), "{}", world.put(&set));
    world.other("a", 7, 0);
    world.other("c", 6, 0);
    assert!(world.put(&set).starts_with(text), "full nodes have room for none");
}

#[test]
fn a_leader_comes_with_slices_of_which_the_last_is_not_whole() {
    let mut world = world(&[("b", "r1", "a", 4), ("b", "r2", "c", 5)]);
    let workers = pods(7).required("block").slice("rack", 4);
    let placed = world.place_with(&[pods(1).required("block"), workers], false, &[], &[]);
    assert_eq!(show(&placed), "c=1 | a=4 c=3");
}

#[test]
fn of_layers_only_the_last_slice_is_not_whole() {
    let layers = |count| pods(count).required("block").slice("rack", 4).slice(HOSTNAME, 2);
    assert_eq!(racks().put(&layers(7)), "a=2 b=2 c=3");
    assert_eq!(racks().put(&layers(5)), "a=2 b=2 c=1");
    assert_eq!(racks().put(&layers(3)), "a=2 b=1");
    let text = "topology \"default\" doesn't allow to fit; 2/3 slice(s) fit on level rack; \
                4/5 slice(s) fit on level kubernetes.io/hostname";
    assert_eq!(racks().put(&layers(10)), text);
}
