//! docs/reference/06-algorithm.md 6.12: balanced placement.

use super::fixture::{World, pods, world};

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
