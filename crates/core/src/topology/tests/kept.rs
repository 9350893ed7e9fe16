//! Cached counts between placements: they equal fresh ones, and only changed nodes are counted again.

use super::fixture::{LEVELS, Pods, World, node, pods, show, taint, tas_flavor, world_of};
use super::random::Random;
use crate::Amount;
use crate::fixtures::{n, pairs};
use crate::spec::{FlavorSpec, TaintEffect};
use crate::topology::NodeSpec;
use crate::topology::kept::KeptCounts;

/// The few shapes that come again and again, alone and as groups.
fn any_group(random: &mut Random) -> Vec<Pods> {
    let count = 1 + random.below(6);
    let level = LEVELS[usize::try_from(random.below(3)).expect("small")];
    match random.below(8) {
        7 => vec![pods(count).preferred(level).selector(&[("disk", "fast")])],
        0 => vec![pods(count).required(level)],
        1 => vec![pods(count).preferred(level).each(&[("cpu", 2)])],
        2 => vec![pods(count).unconstrained()],
        3 => vec![pods(2 * count).preferred("block").slice("rack", 2)],
        4 => vec![pods(count).preferred(level).prefers("rack", &[("r1", 2), ("r2", 1)])],
        5 => vec![pods(1 + count).preferred("rack"), pods(1).each(&[("gpu", 1)])],
        _ => vec![pods(count).required("block").selector(&[("rack", "r1")])],
    }
}

/// The same placement with nothing kept.
fn afresh(world: &mut World, group: &[Pods], empty: bool, lost: &[&str]) -> String {
    let kept = std::mem::take(&mut world.usage.kept);
    let shown = show(&world.place_with(group, empty, &[], lost));
    world.usage.kept = kept;
    shown
}

#[test]
fn kept_counts_give_the_placements_and_texts_of_fresh_ones() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut world = world_of(&LEVELS);
        world.config.gates.tas_balanced_placement = random.one_in(2);
        world.config.gates.tas_respect_node_affinity_preferred = random.one_in(2);
        world.config.gates.tas_profile_mixed = random.one_in(2);
        other_flavor(&mut world);
        let mut used = Vec::new();
        for _ in 0..60 {
            let name = format!("n{}", random.below(12));
            match random.below(11) {
                10 => {
                    let mut any = || usize::try_from(random.below(3)).expect("small");
                    let key = ["disk", "rack", "unread"][any()];
                    let value = [None, Some("fast"), Some("r1")][any()];
                    drop(world.label(&name, key, value));
                }
                9 => drop(world.topologies.remove_node(&mut world.usage, &name)),
                5 => drop(world.node(&other_node(&name, random.below(5)))),
                6 if !used.is_empty() => {
                    let mark = world.usage.mark();
                    world.usage.remove(&used[0]);
                    let (group, empty) = (any_group(&mut random), random.one_in(4));
                    let placed = world.place_with(&group, empty, &[], &[]);
                    assert_eq!(show(&placed), afresh(&mut world, &group, empty, &[]), "seed {seed}");
                    world.usage.rollback(&mark);
                }
                7 => {
                    let host = world.topologies.hosts.find(&name);
                    let known = host.and_then(|id| world.topologies.hosts.get(id).spec.clone());
                    let Some(mut known) = known else { continue };
                    known.taints = (0..random.below(2))
                        .map(|_| taint("t", &random.below(3).to_string(), TaintEffect::NoSchedule))
                        .collect();
                    known.labels.retain(|(key, _)| **key != *"disk");
                    known.labels.push((n("disk"), n(if random.one_in(2) { "fast" } else { "slow" })));
                    world.node(&known);
                }
                8 => {
                    let host = world.topologies.hosts.find(&name);
                    let known = host.and_then(|id| world.topologies.hosts.get(id).spec.clone());
                    let Some(mut known) = known else { continue };
                    known.usable = !known.usable;
                    world.node(&known);
                }
                0 => {
                    let (block, rack) = (format!("b{}", random.below(2)), format!("r{}", random.below(3)));
                    let offers = [("cpu", random.below(5)), ("gpu", random.below(2))];
                    world.node(&node(&block, &rack, &name, &offers));
                }
                1 => drop(world.other(&name, random.below(2), random.below(2))),
                2 if !used.is_empty() => world.usage.remove(&used.swap_remove(0)),
                _ => {}
            }
            let (group, empty) = (any_group(&mut random), random.one_in(4));
            let lost = format!("n{}", random.below(12));
            let lost: &[&str] = if random.one_in(3) { &[&lost] } else { &[] };
            let placed = world.place_with(&group, empty, &[], lost);
            assert_eq!(show(&placed), afresh(&mut world, &group, empty, lost), "seed {seed}");
            if let Ok(placed) = placed
                && !empty
                && random.one_in(2)
            {
                for one in placed {
                    world.usage.add(&one.pods);
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
    let counted = |world: &World| KeptCounts::counted(&world.usage.kept.0);
    let set = pods(20).required("rack");
    let first = world.place(&set).expect("it fits");
    assert_eq!(counted(&world), 200);
    world.place(&set).expect("it fits");
    assert_eq!(counted(&world), 200, "nothing has changed");
    world.usage.add(&first[0].pods);
    world.other("n150", 1, 1);
    world.place(&pods(12).preferred("rack")).expect("it fits");
    assert_eq!(counted(&world), 206, "five nodes are in use, and one by other pods");
    let mark = world.usage.mark();
    world.usage.remove(&first[0].pods);
    world.usage.rollback(&mark);
    world.place(&set).expect("it fits");
    assert_eq!(counted(&world), 211, "what was tried is counted once");
}

#[test]
fn twenty_refused_shapes_that_are_asked_for_in_turn_are_counted_and_searched_once() {
    let mut world = world_of(&LEVELS);
    for at in 0..200 {
        let offers = [("cpu", 4), ("memory", 100)];
        world.node(&node("b", &format!("r{}", at / 10), &format!("n{at}"), &offers));
    }
    let shapes: Vec<Pods> = (0..20)
        .map(|at| pods(100).required("rack").selector(if at % 2 == 0 { &[] } else { &[("block", "b")] }))
        .zip(1..)
        .map(|(set, milli)| set.each(&[("cpu", 1 + milli % 3), ("memory", milli)]))
        .collect();
    let ask = |world: &mut World| {
        for set in &shapes {
            for empty in [false, true] {
                world.place_with(std::slice::from_ref(set), empty, &[], &[]).expect_err("none fits");
            }
        }
        work(world)
    };
    let first = ask(&mut world);
    assert_eq!(first, (40, 40 * 200));
    assert_eq!(ask(&mut world), first, "all of them are remembered");
    // So are the answers to questions that differ in the number of pods alone.
    for round in 0..2 {
        for count in 101..113 {
            world
                .place(&pods(count).required("rack").each(&[("cpu", 2), ("memory", 1)]))
                .expect_err("none fits");
        }
        assert_eq!(work(&world), (first.0 + 12, first.1), "round {round}");
    }
}

/// How many searches were made, and how many leaves were counted.
pub(super) fn work(world: &World) -> (u64, u64) {
    world.usage.searched()
}

/// A second flavor with the same topology.
fn other_flavor(world: &mut World) {
    let other = world.names.flavor(&n("other"));
    let labels = pairs(&[("pool", "other")]);
    world.topologies.set_flavor(
        &mut world.usage,
        other,
        Some(&FlavorSpec { node_labels: labels, ..tas_flavor("other") }),
    );
}

/// A node of that flavor.
fn other_node(name: &str, cpu: i64) -> NodeSpec {
    let mut node = node("b9", "r9", name, &[("cpu", cpu)]);
    for label in node.labels.iter_mut().filter(|(key, _)| **key == *"pool") {
        label.1 = n("other");
    }
    node
}

/// A world in which racks of 8 cpus are all that there is, and 12 pods that need one rack were refused.
pub(super) fn refused() -> (World, Pods, String) {
    let mut world = world_of(&LEVELS);
    other_flavor(&mut world);
    for at in 0..4 {
        world.node(&node("b", &format!("r{}", at / 2), &format!("n{at}"), &[("cpu", 4)]));
    }
    let set = pods(12).required("rack");
    let refused = world.put(&set);
    assert!(refused.contains("only 8 out of 12 pod(s)"), "{refused}");
    assert_eq!(work(&world), (1, 4));
    (world, set, refused)
}

#[test]
fn what_was_refused_is_not_searched_for_again_while_the_nodes_of_its_tree_are_as_they_were() {
    let (mut world, set, refused) = refused();
    assert_eq!(world.put(&set), refused);
    for at in 0..6_000 {
        world.node(&other_node(&format!("o{}", at % 10), 1 + at / 10));
    }
    world.topologies.remove_node(&mut world.usage, "o3");
    assert_eq!(world.put(&set), refused);
    assert_eq!(work(&world), (1, 4), "nodes of another tree do not matter");
    let mut seen_again = node("b", "r0", "n0", &[("cpu", 4)]);
    seen_again.allocatable.push((n("memory"), Amount(7)));
    world.node(&seen_again);
    assert_eq!(
        (world.put(&set), work(&world)),
        (refused, (1, 5)),
        "what it does not ask for is of none either"
    );
    world.node(&node("b", "r0", "n0", &[("cpu", 8)]));
    assert_eq!((world.put(&set), work(&world)), ("n0=8 n1=4".to_owned(), (2, 6)));
}

#[test]
fn what_was_refused_is_searched_for_again_once_a_node_of_its_tree_comes_or_is_labelled() {
    let (mut world, set, refused) = refused();
    world.node(&node("b", "r7", "n7", &[("cpu", 1)]));
    assert_eq!((world.put(&set), work(&world)), (refused.clone(), (2, 5)), "its rack is new, too");
    let mut tainted = node("b", "r7", "n7", &[("cpu", 1)]);
    tainted.taints = vec![taint("k", "v", TaintEffect::NoSchedule)];
    world.node(&tainted);
    assert!(world.put(&set).contains("taint \"k=v:NoSchedule\": 1"));
    assert_eq!(work(&world), (3, 6), "one leaf is counted");
    world.topologies.remove_node(&mut world.usage, "n7");
    assert_eq!((world.put(&set), work(&world)), (refused, (4, 7)), "and one near that is gone with its rack");
}

#[test]
fn a_node_that_is_labelled_or_tainted_is_the_one_leaf_that_is_counted_again() {
    let (mut world, set, refused) = refused();
    let picky = set.clone().selector(&[("disk", "fast")]);
    assert!(world.put(&picky).contains("nodeSelector: 4"));
    assert_eq!(work(&world), (2, 8));
    let mut labelled = node("b", "r0", "n0", &[("cpu", 4)]);
    labelled.labels.push((n("disk"), n("fast")));
    world.node(&labelled);
    assert!(world.put(&picky).contains("nodeSelector: 3"));
    assert_eq!(work(&world), (3, 9));
    assert_eq!((world.put(&set), work(&world)), (refused.clone(), (3, 10)), "to these pods it is the same");
    // A taint that comes gets the number of one that went.
    for key in ["one", "two", "three"] {
        labelled.taints = vec![taint(key, "", TaintEffect::NoSchedule)];
        world.node(&labelled);
        assert!(world.put(&set).contains(&format!("taint \"{key}:NoSchedule\": 1")), "{}", world.put(&set));
    }
    for key in ["four", "five"] {
        labelled.taints = vec![taint(key, "", TaintEffect::NoSchedule)];
        world.node(&labelled);
    }
    assert!(world.put(&set).contains("taint \"five:NoSchedule\": 1"), "{}", world.put(&set));
    labelled.taints = Vec::new();
    world.node(&labelled);
    assert_eq!(world.put(&set), refused);
}

#[test]
fn a_node_that_is_not_ready_or_cordoned_is_the_one_leaf_that_is_counted_again() {
    let (mut world, set, refused) = refused();
    let mut away = node("b", "r0", "n0", &[("cpu", 4)]);
    away.usable = false;
    for _ in 0..3 {
        let (_, counted) = work(&world);
        world.node(&away);
        assert_eq!(world.put(&set), refused, "the other rack holds as many");
        assert_eq!(work(&world).1, counted + 1);
        away.usable = !away.usable;
    }
    let picky = set.selector(&[("disk", "fast")]);
    for total in ["Total nodes: 3", "Total nodes: 4", "Total nodes: 3"] {
        assert!(world.put(&picky).contains(total), "{}", world.put(&picky));
        world.node(&away);
        away.usable = !away.usable;
    }
}

#[test]
fn a_node_that_joins_a_rack_or_leaves_it_is_the_one_leaf_that_is_counted_again() {
    let (mut world, set, refused) = refused();
    let more = refused.replace("only 8", "only 9");
    for _ in 0..3 {
        let (searches, counted) = work(&world);
        world.node(&node("b", "r1", "n15", &[("cpu", 1)]));
        assert_eq!((world.put(&set), work(&world)), (more.clone(), (searches + 1, counted + 1)));
        world.topologies.remove_node(&mut world.usage, "n15");
        assert_eq!((world.put(&set), work(&world)), (refused.clone(), (searches + 2, counted + 2)));
    }
}

#[test]
fn racks_that_come_and_go_count_no_other_leaf_of_any_shape() {
    let (mut world, set, refused) = refused();
    for (block, rack) in [("a", "r0"), ("b", "r05"), ("b", "r9"), ("c", "r0")] {
        let (searches, counted) = work(&world);
        world.node(&node(block, rack, "n15", &[("cpu", 9)]));
        let more = refused.replace("only 8", "only 9");
        assert_eq!((world.put(&set), work(&world)), (more, (searches + 1, counted + 1)), "{block} {rack}");
        world.topologies.remove_node(&mut world.usage, "n15");
        assert_eq!(world.put(&set), refused);
        assert!(work(&world).1 <= counted + 2, "{block} {rack}");
    }
}

#[test]
fn what_replaces_a_lost_node_counts_all_leaves_of_its_shape_once() {
    let mut world = world_of(&LEVELS);
    for at in 0..200 {
        world.node(&node("b", &format!("r{}", at / 10), &format!("n{at}"), &[("cpu", 4)]));
    }
    let used = world.resolve(&[("n0", 4), ("n1", 4)]);
    world.usage.add(&used);
    let set = pods(8).required("rack").previous(&[("n0", 4), ("n1", 4)]);
    for lost in ["n0", "n1", "n0"] {
        let placed = world.place_with(std::slice::from_ref(&set), false, &[], &[lost]);
        assert_eq!(show(&placed), if lost == "n0" { "n1=4 n2=4" } else { "n0=4 n2=4" });
    }
    assert_eq!(work(&world), (3, 200 + 2), "and the one that the search before it found");
    let compared = world.usage.compared();
    assert!(compared <= 40, "{compared} domains are compared, and a rack has ten");
}

/// A few racks, and a job of one of them that lost a node: what else it gets.
fn replaced(random: &mut Random) -> Option<(String, String)> {
    let mut world = world_of(&LEVELS);
    let gates = &mut world.config.gates;
    gates.tas_balanced_placement = random.one_in(2);
    gates.tas_keep_whole_domains = random.one_in(2);
    gates.tas_profile_mixed = random.one_in(2);
    let mut nodes: Vec<NodeSpec> = Vec::new();
    for at in 0..4 + random.below(12) {
        let (block, rack) = (format!("b{}", random.below(2)), format!("r{}", random.below(2)));
        nodes.push(node(&block, &rack, &format!("n{at}"), &[("cpu", 1 + random.below(4))]));
    }
    for node in &nodes {
        world.node(node);
    }
    let count = 2 * (1 + random.below(3));
    let set = match random.below(3) {
        0 => pods(count).required("rack"),
        1 => pods(count).required("rack").slice(LEVELS[2], 2),
        _ => pods(count).preferred("rack").slice("rack", count),
    };
    let placed = world.place(&set).ok()?.swap_remove(0);
    world.usage.add(&placed.pods);
    let hosts: Vec<(String, i64)> =
        placed.assignment.domains.iter().map(|one| (one.values[0].to_string(), one.count)).collect();
    if hosts.len() < 2 {
        // If none stays, no domain is kept.
        return None;
    }
    let running: Vec<(&str, i64)> = hosts.iter().map(|(host, count)| (&**host, *count)).collect();
    let set = [set.previous(&running)];
    let found = show(&world.place_with(&set, false, &[], &[running[0].0]));
    // The same in a world of that rack alone, without the node.
    let of = |name: &str| nodes.iter().find(|node| *node.name == *name).expect("it is there");
    let home = of(running[0].0).labels[..2].to_vec();
    for node in &nodes {
        if node.labels[..2] != home[..] {
            world.topologies.remove_node(&mut world.usage, &node.name);
        }
    }
    let mut away = of(running[0].0).clone();
    away.usable = false;
    world.node(&away);
    let alone = show(&world.place_with(&set, false, &[], &[running[0].0]));
    let is_placed = |shown: &str| !shown.contains("topology");
    assert_eq!(is_placed(&found), is_placed(&alone), "{found} / {alone}");
    is_placed(&found).then_some((found, alone))
}

#[test]
fn in_the_domain_of_a_lost_node_pods_go_where_they_would_if_there_were_no_other() {
    let found: Vec<_> = (0..2_000).filter_map(|seed| replaced(&mut Random::new(seed))).collect();
    assert!(found.len() > 50, "{}", found.len());
    for (at, (found, alone)) in found.iter().enumerate() {
        assert_eq!(found, alone, "{at}");
    }
}

#[test]
fn a_level_that_holds_too_little_is_not_looked_through_again_for_a_change_elsewhere() {
    let mut world = world_of(&LEVELS);
    for at in 0..200 {
        world.node(&node("b", &format!("r{}", at / 10), &format!("n{at}"), &[("cpu", 4)]));
    }
    let mut away = node("b", "r0", "n0", &[("cpu", 4)]);
    away.usable = false;
    world.node(&away);
    let set = pods(44).required("rack");
    for _ in 0..2 {
        assert!(world.put(&set).contains("only 40 out of 44"));
        world.other("n199", 1, 1);
        assert!(world.put(&set).contains("only 40 out of 44"));
        world.other("n199", 0, 0);
    }
    assert!(world.put(&set).contains("only 40 out of 44"));
    let (before, counted) = (world.usage.compared(), work(&world).1);
    for cpu in [2, 3, 5] {
        world.node(&node("b", "r7", "n70", &[("cpu", cpu)]));
        let most = 40.max(36 + cpu);
        assert!(world.put(&set).contains(&format!("only {most} out of 44")), "{}", world.put(&set));
    }
    assert_eq!((world.usage.compared(), work(&world).1), (before, counted + 3));
}

#[test]
fn pods_of_several_nodes_are_placed_without_a_look_at_all_nodes() {
    for mixed in [false, true] {
        let mut world = world_of(&LEVELS);
        world.config.gates.tas_profile_mixed = mixed;
        for at in 0..400 {
            world.node(&node("b", &format!("r{}", at / 10), &format!("n{at}"), &[("cpu", 1 + at % 4)]));
        }
        let (mut compared, mut before) = (Vec::new(), 0);
        for _ in 0..5 {
            world.add(&pods(16).unconstrained());
            compared.push(world.usage.compared() - before);
            before = world.usage.compared();
        }
        assert!(compared[0] > 400, "nothing is known of the nodes: {compared:?}");
        assert!(compared[2..].iter().all(|compared| *compared <= 2 * 16), "{compared:?}");
    }
}

#[test]
fn many_changes_of_labels_are_counted_together() {
    let (mut world, set, refused) = refused();
    for at in 0..1_000 {
        let mut labelled = node("b", "r0", "n0", &[("cpu", 4)]);
        labelled.labels.push((n("seen"), n(&at.to_string())));
        world.node(&labelled);
    }
    let (_, counted) = work(&world);
    assert_eq!(world.put(&set), refused);
    assert!(work(&world).1 <= counted + 4);
}

#[test]
fn what_is_tried_and_taken_back_forgets_nothing() {
    let (mut world, set, refused) = refused();
    let two = pods(2).required("rack");
    let used = world.add(&two);
    let less = world.put(&set);
    let (searches, _) = work(&world);
    let mark = world.usage.mark();
    world.usage.remove(&used);
    assert_eq!(world.put(&set), refused);
    world.usage.rollback(&mark);
    assert_eq!((world.put(&set), work(&world).0), (less, searches + 1), "the one that was tried");
    world.usage.remove(&used);
    assert_eq!((world.put(&set), work(&world).0), (refused, searches + 2));
}

#[test]
fn each_question_has_its_own_answer() {
    let (mut world, set, _) = refused();
    for (asked, number) in [(9, 2), (10, 3), (9, 3), (11, 4), (9, 4)] {
        assert!(world.put(&pods(asked).required("rack")).contains(&format!("out of {asked} ")));
        assert_eq!(work(&world).0, number);
    }
    assert_eq!(world.put(&pods(12).preferred("rack")), "n0=4 n1=4 n2=4");
    world.config.gates.tas_balanced_placement = true;
    assert!(world.put(&set).contains("out of 12 "));
    let (searches, _) = work(&world);
    // As if nothing was used, what is found lasts as long as the nodes.
    for _ in 0..3 {
        world.place_with(&[pods(8).required("rack")], true, &[], &[]).expect("it fits");
        let taken = world.add(&pods(1));
        world.usage.remove(&taken);
    }
    assert_eq!(work(&world).0, searches + 1 + 3);
}
