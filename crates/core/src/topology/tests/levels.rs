//! docs/reference/06-algorithm.md 6.12: the chosen level and domains.

use super::fixture::{LEVELS, Pods, World, node, pods, show, world, world_of};

/// One block: racks with 8, 6 and 2 cpus.
fn racks() -> World {
    world(&[
        ("b1", "r1", "a", 4),
        ("b1", "r1", "b", 4),
        ("b1", "r2", "c", 3),
        ("b1", "r2", "d", 3),
        ("b1", "r3", "e", 2),
    ])
}

/// Three nodes with 4, 2 and 3 cpus.
fn hosts() -> World {
    world(&[("b1", "r1", "a", 4), ("b1", "r1", "b", 2), ("b1", "r1", "c", 3)])
}

#[test]
fn required_takes_the_tightest_domain_that_fits() {
    assert_eq!(racks().put(&pods(5).required("rack")), "c=3 d=2");
    assert_eq!(racks().put(&pods(7).required("rack")), "a=4 b=3");
    assert_eq!(racks().put(&pods(1).required("rack")), "e=1");
}

#[test]
fn required_fails_when_no_domain_fits() {
    let text = "topology \"default\" allows to fit only 8 out of 9 pod(s)";
    assert_eq!(racks().put(&pods(9).required("rack")), text);
}

#[test]
fn domains_that_are_alike_come_in_the_order_of_their_values() {
    let mut world = world(&[("b1", "r2", "b", 2), ("b1", "r1", "c", 2), ("b1", "r2", "a", 2)]);
    assert_eq!(world.put(&pods(2).required("rack")), "c=2");
    assert_eq!(world.put(&pods(3).required("rack")), "a=2 b=1");
}

#[test]
fn preferred_goes_up_a_level_when_no_domain_fits() {
    assert_eq!(racks().put(&pods(9).preferred("rack")), "a=4 b=4 e=1");
}

#[test]
fn preferred_at_the_top_takes_the_largest_domains_and_a_tight_last_one() {
    let mut world = world(&[("b1", "r1", "a", 4), ("b2", "r1", "b", 3), ("b3", "r1", "c", 2)]);
    assert_eq!(world.put(&pods(6).preferred("block")), "a=4 c=2");
    assert_eq!(world.put(&pods(6).preferred("rack")), "a=4 c=2");
    let text = "topology \"default\" allows to fit only 9 out of 10 pod(s)";
    assert_eq!(world.put(&pods(10).preferred("rack")), text);
}

#[test]
fn unconstrained_takes_the_smallest_domain_that_fits() {
    for count in 1..=2 {
        assert_eq!(hosts().put(&pods(count).unconstrained()), format!("b={count}"));
    }
    assert_eq!(hosts().put(&pods(3).unconstrained()), "c=3");
}

#[test]
fn unconstrained_spreads_from_the_smallest() {
    assert_eq!(hosts().put(&pods(8).unconstrained()), "a=3 b=2 c=3");
    assert_eq!(hosts().put(&pods(6).unconstrained()), "a=1 b=2 c=3");
}

#[test]
fn without_the_mixed_profile_unconstrained_starts_with_the_largest() {
    let mut world = hosts();
    world.config.gates.tas_profile_mixed = false;
    assert_eq!(world.put(&pods(2).unconstrained()), "b=2");
    assert_eq!(world.put(&pods(8).unconstrained()), "a=4 b=1 c=3");
}

#[test]
fn pods_that_ask_for_nothing_are_unconstrained() {
    assert_eq!(hosts().put(&pods(8)), "a=3 b=2 c=3");
}

#[test]
fn no_pods_get_no_domains() {
    assert_eq!(hosts().put(&pods(0)), "");
    assert_eq!(hosts().put(&pods(0).required("rack")), "");
}

#[test]
fn a_level_that_the_topology_does_not_have_is_refused() {
    assert_eq!(hosts().put(&pods(1).required("zone")), "no requested topology level: zone");
}

#[test]
fn a_flavor_without_nodes_has_no_domains() {
    let mut world = world(&[]);
    assert_eq!(world.put(&pods(1).required("rack")), "no topology domains at level: rack");
}

#[test]
fn domains_above_the_hostname_are_named_by_all_levels_and_sum_up_their_nodes() {
    let mut world = world_of(&["block", "rack"]);
    for (rack, name, cpu) in [("r1", "a", 2), ("r1", "b", 3), ("r2", "c", 4)] {
        world.node(&node("b1", rack, name, &[("cpu", cpu)]));
    }
    assert_eq!(world.put(&pods(5).required("rack")), "b1/r1=5");
    assert_eq!(world.put(&pods(9).required("block")), "b1/r1=5 b1/r2=4");
}

#[test]
fn racks_of_the_same_name_in_two_blocks_are_two_domains() {
    let mut world = world(&[("b1", "r1", "a", 2), ("b2", "r1", "b", 2)]);
    let text = "topology \"default\" allows to fit only 2 out of 3 pod(s)";
    assert_eq!(world.put(&pods(3).required("rack")), text);
}

#[test]
fn what_workloads_use_is_not_free() {
    let mut world = hosts();
    world.add(&pods(2).unconstrained());
    assert_eq!(world.put(&pods(1).unconstrained()), "c=1");
}

#[test]
fn on_an_empty_cluster_other_pods_and_what_is_assumed_still_count() {
    let mut world = hosts();
    let used = world.resolve(&[("a", 4), ("b", 2), ("c", 3)]);
    world.usage.add(&used);
    world.other("b", 1, 1);
    let assumed = [world.resolve(&[("c", 1)])];
    let full = "topology \"default\" doesn't allow to fit any of 7 pod(s). Total nodes: 3; excluded: resource \"cpu\": 3";
    let all = [pods(7).unconstrained()];
    assert_eq!(show(&world.place_with(&all, false, &[], &[])), full);
    assert_eq!(show(&world.place_with(&all, true, &assumed, &[])), "a=4 b=1 c=2");
}

/// A free block of two racks, and one of which a rack is half in use.
fn blocks(keep_whole: bool) -> World {
    let mut world =
        world(&[("b1", "r1", "a", 4), ("b1", "r2", "b", 4), ("b2", "r1", "c", 4), ("b2", "r2", "d", 4)]);
    world.config.gates.tas_keep_whole_domains = keep_whole;
    let used = world.resolve(&[("c", 2)]);
    world.usage.add(&used);
    world
}

#[test]
fn of_domains_that_are_alike_the_one_that_leaves_larger_ones_whole_is_taken_with_its_gate() {
    for level in ["rack", LEVELS[2]] {
        assert_eq!(blocks(true).put(&pods(3).required(level)), "d=3");
        assert_eq!(blocks(false).put(&pods(3).required(level)), "a=3");
    }
    assert_eq!(blocks(true).put(&pods(4).unconstrained()), "d=4");
    assert_eq!(blocks(true).put(&pods(2).required("rack")), "c=2", "the tightest comes before");
    assert_eq!(blocks(true).put(&pods(8).required("block")), "a=4 b=4");
}

#[test]
fn so_are_several_domains_that_are_alike() {
    let racks =
        [("b1", "r1", "a"), ("b1", "r2", "b"), ("b1", "r3", "c"), ("b2", "r1", "d"), ("b2", "r2", "e")];
    let nodes = racks.map(|(block, rack, name)| (block, rack, name, 4));
    let put = |keep_whole: bool, sets: &[Pods]| {
        let mut world = world(&nodes);
        world.config.gates.tas_keep_whole_domains = keep_whole;
        show(&world.place_with(sets, false, &[], &[]))
    };
    for (set, last) in [(pods(8), 4), (pods(7), 3)] {
        let set = [set.unconstrained()];
        assert_eq!(put(false, &set), format!("a=4 b={last}"));
        assert_eq!(put(true, &set), format!("d=4 e={last}"), "the other block stays whole");
    }
    let group = [pods(7).unconstrained(), pods(1)];
    assert_eq!(put(false, &group), "a=3 b=4 | a=1");
    assert_eq!(put(true, &group), "d=3 e=4 | d=1");
}
