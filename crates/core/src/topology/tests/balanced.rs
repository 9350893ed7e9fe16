//! docs/reference/06-algorithm.md 6.12: balanced placement.

use super::fixture::{LEVELS, World, node, pods, world, world_of};
use crate::topology::HOSTNAME;

fn balanced(nodes: &[(&str, &str, &str, i64)]) -> World {
    let mut world = world(nodes);
    world.config.gates.tas_balanced_placement = true;
    world
}

#[test]
fn preferred_spreads_evenly_over_the_fewest_domains() {
    let nodes = [("b1", "r1", "a", 5), ("b1", "r1", "b", 4), ("b1", "r1", "c", 4)];
    assert_eq!(balanced(&nodes).put(&pods(8).preferred("rack")), "b=4 c=4");
    assert_eq!(world(&nodes).put(&pods(8).preferred("rack")), "a=5 b=3");
}

#[test]
fn the_rest_above_the_threshold_goes_to_the_domains_with_most_room() {
    let nodes = [("b1", "r1", "a", 5), ("b1", "r1", "b", 3)];
    assert_eq!(balanced(&nodes).put(&pods(7).preferred("rack")), "a=4 b=3");
}

#[test]
fn where_it_does_not_work_best_fit_does() {
    let nodes = [("b1", "r1", "a", 3), ("b2", "r2", "b", 2)];
    assert_eq!(balanced(&nodes).put(&pods(4).preferred("rack")), "a=3 b=1");
}

#[test]
fn required_and_unconstrained_are_not_spread() {
    let nodes = [("b1", "r1", "a", 5), ("b1", "r1", "b", 4), ("b1", "r1", "c", 4)];
    assert_eq!(balanced(&nodes).put(&pods(8).required("rack")), "a=5 b=3");
}

/// Racks of sixteen nodes with one to eight cpus.
fn mixed(levels: &[&str], nodes: i64) -> World {
    let mut world = world_of(levels);
    world.config.gates.tas_balanced_placement = true;
    for at in 0..nodes {
        world.node(&node("b", &format!("r{}", at / 16), &format!("n{at}"), &[("cpu", 1 + at * 7 % 8)]));
    }
    world
}

/// How many nodes got pods, and how many domains were compared.
fn spread(world: &mut World, count: i64, level: &str) -> (usize, u64) {
    let placed = world.place(&pods(count).preferred(level)).expect("they fit");
    let domains = &placed[0].assignment.domains;
    assert_eq!(domains.iter().map(|domain| domain.count).sum::<i64>(), count);
    (domains.len(), world.usage.compared())
}

#[test]
fn the_fewest_of_many_different_nodes_are_found_in_few_steps() {
    let (nodes, compared) = spread(&mut mixed(&LEVELS, 256), 1_000, "rack");
    // 32 each of four to eight cpus, and 14 of three.
    assert_eq!(nodes, 174);
    assert!(compared < 20_000, "{compared}");
    let (nodes, compared) = spread(&mut mixed(&[HOSTNAME], 2_000), 3_000, HOSTNAME);
    // All of eight cpus, and 143 of seven.
    assert_eq!(nodes, 393);
    assert!(compared < 40_000, "{compared}");
}

#[test]
fn many_equal_nodes_take_no_steps_to_choose_from() {
    let mut world = world_of(&[HOSTNAME]);
    world.config.gates.tas_balanced_placement = true;
    for at in 0..2_000 {
        world.node(&node("b", "r", &format!("n{at}"), &[("cpu", 8)]));
    }
    let (nodes, compared) = spread(&mut world, 6_000, HOSTNAME);
    assert_eq!(nodes, 750);
    assert!(compared < 10_000, "{compared}");
}
