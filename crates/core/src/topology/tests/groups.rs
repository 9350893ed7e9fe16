//! docs/reference/06-algorithm.md 6.12: a leader and its workers.

use super::fixture::{node, pods, show, world};

#[test]
fn a_leader_is_placed_in_the_domain_of_its_workers() {
    let mut world = world(&[("b1", "r1", "a", 3), ("b1", "r1", "b", 1), ("b1", "r2", "c", 3)]);
    let group = [pods(3).required("rack"), pods(1).required("rack")];
    assert_eq!(show(&world.place_with(&group, false, &[], &[])), "a=2 b=1 | a=1");
    let [workers, leader] = group;
    assert_eq!(show(&world.place_with(&[leader, workers], false, &[], &[])), "a=1 | a=2 b=1");
}

#[test]
fn a_leader_that_needs_more_goes_where_that_is_without_taking_room_that_the_workers_need() {
    let mut world = world(&[("b1", "r1", "a", 3)]);
    world.node(&node("b1", "r1", "b", &[("cpu", 1), ("gpu", 1)]));
    let group = [pods(3).required("rack"), pods(1).each(&[("cpu", 1), ("gpu", 1)])];
    assert_eq!(show(&world.place_with(&group, false, &[], &[])), "a=3 | b=1");
}

#[test]
fn the_leader_goes_where_its_workers_lose_least() {
    // On `a` it would take all that two workers could have.
    let mut world = world(&[("b1", "r1", "a", 4), ("b1", "r1", "b", 3)]);
    let group = [pods(3).required("rack").each(&[("cpu", 2)]), pods(1)];
    let all = "topology \"default\" allows to fit only 3 out of 4 pod(s)";
    assert_eq!(show(&world.place_with(&group, false, &[], &[])), "a=2 b=1 | b=1");
    let more = [pods(4).required("rack").each(&[("cpu", 2)]), pods(1)];
    assert_eq!(show(&world.place_with(&more, false, &[], &[])), all);
}

#[test]
fn a_group_fails_where_its_leader_fits_nowhere() {
    let mut world = world(&[("b1", "r1", "a", 3)]);
    let group = [pods(2).required("rack"), pods(1).each(&[("gpu", 1)])];
    let text = "topology \"default\" allows to fit only 3 out of 2 pod(s)";
    assert_eq!(show(&world.place_with(&group, false, &[], &[])), text);
    let group = [pods(2).unconstrained(), pods(1).each(&[("gpu", 1)])];
    let text = "topology \"default\" doesn't allow to fit any of 2 pod(s)";
    assert_eq!(show(&world.place_with(&group, false, &[], &[])), text);
}

#[test]
fn an_unconstrained_group_takes_the_smallest_node_that_holds_both() {
    let mut world = world(&[("b1", "r1", "a", 4), ("b1", "r1", "b", 2), ("b1", "r1", "c", 3)]);
    let group = [pods(2).unconstrained(), pods(1).unconstrained()];
    assert_eq!(show(&world.place_with(&group, false, &[], &[])), "c=2 | c=1");
    let group = [pods(7).unconstrained(), pods(1).unconstrained()];
    assert_eq!(show(&world.place_with(&group, false, &[], &[])), "a=3 b=1 c=3 | b=1");
}
