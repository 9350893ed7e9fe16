//! Counts that are kept between placements: the same as fresh ones, and only what has changed is counted.

use super::fixture::{LEVELS, Pods, World, node, pods, show, world_of};
use super::random::Random;
use crate::topology::kept::KeptCounts;

/// The few shapes that come again and again, alone and as groups.
fn any_group(random: &mut Random) -> Vec<Pods> {
    let count = 1 + random.below(6);
    let level = LEVELS[usize::try_from(random.below(3)).expect("small")];
    match random.below(6) {
        0 => vec![pods(count).required(level)],
        1 => vec![pods(count).preferred(level).each(&[("cpu", 2)])],
        2 => vec![pods(count).unconstrained()],
        3 => vec![pods(2 * count).preferred("block").slice("rack", 2)],
        4 => vec![pods(1 + count).preferred("rack"), pods(1).each(&[("gpu", 1)])],
        _ => vec![pods(count).required("block").selector(&[("rack", "r1")])],
    }
}

/// The same placement with nothing kept.
fn afresh(world: &mut World, group: &[Pods], empty: bool) -> String {
    let kept = std::mem::take(&mut world.topologies.kept);
    let shown = show(&world.place_with(group, empty, &[], &[]));
    world.topologies.kept = kept;
    shown
}

#[test]
fn kept_counts_give_the_placements_and_texts_of_fresh_ones() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut world = world_of(&LEVELS);
        world.config.gates.tas_balanced_placement = random.one_in(2);
        let mut used = Vec::new();
        for _ in 0..60 {
            let name = format!("n{}", random.below(12));
            match random.below(5) {
                0 => {
                    let (block, rack) = (format!("b{}", random.below(2)), format!("r{}", random.below(3)));
                    let offers = [("cpu", random.below(5)), ("gpu", random.below(2))];
                    world.node(&node(&block, &rack, &name, &offers));
                }
                1 => drop(world.other(&name, random.below(2), random.below(2))),
                2 if !used.is_empty() => world.topologies.remove(&used.swap_remove(0)),
                _ => {}
            }
            let (group, empty) = (any_group(&mut random), random.one_in(4));
            let placed = world.place_with(&group, empty, &[], &[]);
            assert_eq!(show(&placed), afresh(&mut world, &group, empty), "seed {seed}");
            if let Ok(placed) = placed
                && !empty
                && random.one_in(2)
            {
                for one in placed {
                    world.topologies.add(&one.pods);
                    used.push(one.pods);
                }
            }
        }
    }
}

#[test]
fn a_shape_that_comes_again_counts_only_the_nodes_that_changed() {
    let mut world = world_of(&LEVELS);
    for at in 0..200 {
        world.node(&node("b", &format!("r{}", at / 10), &format!("n{at}"), &[("cpu", 4)]));
    }
    let counted = |world: &World| KeptCounts::counted(&world.topologies.kept.0);
    let set = pods(20).required("rack");
    let first = world.place(&set).expect("it fits");
    assert_eq!(counted(&world), 200);
    world.place(&set).expect("it fits");
    assert_eq!(counted(&world), 200, "nothing has changed");
    world.topologies.add(&first[0].pods);
    world.other("n150", 1, 1);
    world.place(&pods(12).preferred("rack")).expect("it fits");
    assert_eq!(counted(&world), 206, "five nodes are in use, and one by other pods");
    let mark = world.topologies.mark();
    world.topologies.remove(&first[0].pods);
    world.topologies.rollback(&mark);
    world.place(&set).expect("it fits");
    assert_eq!(counted(&world), 211, "what was tried is counted once");
}
