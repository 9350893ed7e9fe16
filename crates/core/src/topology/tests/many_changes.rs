//! Counts that are kept while many nodes come and go.

use super::fixture::{LEVELS, node, pods, world_of};
use super::kept::{refused, work};

#[test]
fn the_three_hundredth_node_that_joins_is_the_one_leaf_that_is_counted_as_the_first_was() {
    let mut world = world_of(&LEVELS);
    for at in 0..100 {
        world.node(&node("b", &format!("r{}", at / 10), &format!("n{at}"), &[("cpu", 4)]));
    }
    let (often, once) = (pods(1).required("rack"), pods(1).required("rack").each(&[("cpu", 2)]));
    for set in [&often, &once] {
        world.place(set).expect("it fits");
    }
    let mut nodes = 100;
    for at in 0..700 {
        let (counted, ordered) = (work(&world).1, world.usage.ordered());
        if at % 7 == 6 {
            world.topologies.remove_node(&mut world.usage, &format!("m{}", at - 1));
            nodes -= 1;
        } else {
            world.node(&node("b", &format!("r{}", at % 10), &format!("m{at}"), &[("cpu", 4)]));
            nodes += 1;
        }
        world.place(&often).expect("it fits");
        let (counted, ordered) = (work(&world).1 - counted, world.usage.ordered() - ordered);
        assert!(
            counted == 1 && (ordered == 0 || at < 2 && ordered <= nodes + 10),
            "change {at}: {counted} counted, {ordered} of {nodes} ordered"
        );
    }
    // A shape that nothing has asked for since is counted anew, alone.
    for (set, expected) in [(&once, nodes), (&once, 0), (&often, 0)] {
        let counted = work(&world).1;
        world.place(set).expect("it fits");
        assert_eq!(work(&world).1 - counted, expected);
    }
}

#[test]
fn many_nodes_that_join_while_nothing_is_placed_are_laid_out_together() {
    let (mut world, set, _) = refused();
    for at in 0..1_000 {
        world.node(&node("b", &format!("q{at}"), &format!("m{at}"), &[("cpu", 4)]));
    }
    let (_, counted) = work(&world);
    assert!(world.put(&set).contains("out of "));
    assert_eq!(work(&world).1, counted + 1_000 + 4);
    world.check();
}
