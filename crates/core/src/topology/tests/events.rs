//! docs/reference/06-algorithm.md 6.12: nodes and usage that are added, changed and removed.

use std::collections::BTreeSet;

use super::fixture::{World, node, pods, show, tas_flavor, unshared_world, world};
use crate::fixtures::n;
use crate::intern::{FlavorId, UsedNames};
use crate::topology::{HOSTNAME, TopologySpec};

const TWO: [(&str, &str, &str, i64); 2] = [("b1", "r1", "a", 2), ("b1", "r1", "b", 3)];

fn two() -> World {
    world(&TWO)
}

/// A second flavor over the same nodes.
fn second(world: &mut World) -> FlavorId {
    let other = world.names.flavor(&n("other"));
    world.topologies.set_flavor(&mut world.usage, other, Some(&tas_flavor("other")));
    other
}

#[test]
fn a_node_concerns_the_flavors_that_it_belongs_to_before_or_after() {
    let mut world = two();
    let a = node("b1", "r1", "a", &[("cpu", 2)]);
    assert_eq!(world.node(&a), []);
    let mut away = a.clone();
    away.usable = false;
    assert_eq!(world.node(&away), [world.tas]);
    assert_eq!(world.node(&a), [world.tas]);
    let mut labelled = a.clone();
    labelled.labels.push((n("x"), n("y")));
    assert_eq!(world.node(&labelled), [world.tas]);
    assert_eq!(world.topologies.remove_node(&mut world.usage, "a"), [world.tas]);
    assert_eq!(world.topologies.remove_node(&mut world.usage, "a"), []);
    let mut elsewhere = a;
    elsewhere.labels.retain(|(key, _)| **key != *"pool");
    assert_eq!(world.node(&elsewhere), []);
}

#[test]
fn a_node_that_only_turns_concerns_what_it_would_with_all_that_it_says() {
    let mut world = two();
    assert_eq!(world.turn("a", true), [], "it is so already");
    assert_eq!(world.turn("a", false), [world.tas]);
    assert_eq!(world.turn("a", false), []);
    assert_eq!(world.put(&pods(4)), "topology \"default\" allows to fit only 3 out of 4 pod(s)");
    let mut away = node("b1", "r1", "a", &[("cpu", 2)]);
    away.usable = false;
    assert_eq!(world.node(&away), [], "it was said before");
    assert_eq!(world.turn("a", true), [world.tas]);
    assert_eq!(world.put(&pods(5)), "a=2 b=3");
    assert_eq!(world.turn("unknown", true), []);
    assert_eq!(world.put(&pods(5)), "a=2 b=3");
}

#[test]
fn a_label_concerns_what_reads_it_and_else_is_only_known() {
    let mut world = two();
    assert_eq!(world.label("a", "x", Some("y")), None);
    assert_eq!(world.label("unknown", "x", Some("y")), None);
    let selective = pods(2).selector(&[("x", "y")]);
    assert_eq!(world.put(&selective), "a=2", "it was known");
    assert_eq!(world.label("a", "x", None), Some(vec![world.tas]));
    assert!(world.put(&selective).contains("nodeSelector: 2"), "a shape that was placed reads it");
    assert_eq!(world.label("b", "x", Some("y")), Some(vec![world.tas]));
    assert_eq!(world.put(&selective), "b=2");
    assert_eq!(world.put(&pods(5).required("rack")), "a=2 b=3");
    assert_eq!(world.label("b", "rack", Some("r2")), Some(vec![world.tas]));
    assert!(world.put(&pods(5).required("rack")).contains("only 3 out of 5"));
    assert_eq!(world.label("a", "pool", None), Some(vec![world.tas]), "it leaves the flavor");
    assert_eq!(world.put(&pods(3)), "b=3");
    assert!(world.put(&pods(4)).contains("only 3 out of 4"));
    world.turn("b", false);
    assert_eq!(world.label("b", "x", None), Some(vec![]), "nothing is free there");
    world.turn("b", true);
    assert!(world.put(&selective).contains("nodeSelector: 1"));
}

#[test]
fn what_comes_turns_and_goes_before_anything_is_placed_is_laid_out_as_it_is_then() {
    let mut world = two();
    assert_eq!(world.put(&pods(5)), "a=2 b=3");
    world.node(&node("b0", "r0", "c", &[("cpu", 4)]));
    world.turn("c", false);
    world.turn("b", false);
    world.node(&node("b0", "r0", "d", &[("cpu", 1)]));
    world.turn("c", true);
    world.topologies.remove_node(&mut world.usage, "a");
    world.node(&node("b1", "r2", "a", &[("cpu", 5)]));
    world.node(&node("b1", "r2", "e", &[("cpu", 9)]));
    world.topologies.remove_node(&mut world.usage, "e");
    world.turn("d", false);
    assert_eq!(world.put(&pods(9)), "c=4 a=5");
    assert_eq!(world.put(&pods(10)), "topology \"default\" allows to fit only 9 out of 10 pod(s)");
    world.turn("d", true);
    world.turn("b", true);
    assert_eq!(world.put(&pods(13)), "c=4 d=1 b=3 a=5");
}

#[test]
fn a_node_that_takes_no_pods_is_as_if_it_were_not_there() {
    let mut world = two();
    let used = world.resolve(&[("b", 1)]);
    world.usage.add(&used);
    let mut closed = node("b1", "r1", "b", &[("cpu", 3)]);
    closed.usable = false;
    assert_eq!(world.node(&closed), [world.tas]);
    assert!(!world.fits(&[("b", 1)]));
    assert_eq!(
        world.put(&pods(3).selector(&[("x", "y")])),
        "topology \"default\" doesn't allow to fit any of 3 pod(s). Total nodes: 1; excluded: nodeSelector: 1"
    );
    closed.allocatable[0].1 = crate::Amount(9);
    assert_eq!(world.node(&closed), [], "what it has does not matter now");
    world.other("b", 2, 2);
    assert_eq!(world.other("b", 1, 1), [], "nor what others use of it");
    let stays = pods(2).previous(&[("a", 1), ("b", 1)]);
    let failed = show(&world.place_with(&[stays], false, &[], &["a"]));
    assert!(failed.contains("the stale domain b"), "{failed}");
    let mut gone = node("b1", "r1", "a", &[("cpu", 2)]);
    gone.usable = false;
    world.node(&gone);
    assert_eq!(world.put(&pods(1).required("rack")), "no topology domains at level: rack");
    closed.usable = true;
    assert_eq!(world.node(&closed), [world.tas]);
    assert_eq!(world.put(&pods(7)), "b=7", "nine, less what is used");
}

#[test]
fn a_node_takes_over_the_hostname_of_one_that_takes_no_pods() {
    let mut world = two();
    let other = second(&mut world);
    let mut closed = node("b1", "r1", "a", &[("cpu", 2)]);
    closed.usable = false;
    world.node(&closed);
    let mut twin = node("b1", "r9", "twin", &[("cpu", 4)]);
    twin.labels.iter_mut().filter(|(key, _)| **key == *HOSTNAME).for_each(|label| label.1 = n("a"));
    world.node(&twin);
    assert_eq!(world.put(&pods(4).required("rack")), "a=4");
    closed.usable = true;
    world.node(&closed);
    assert_eq!(world.put(&pods(6).required(HOSTNAME)), "a=6");
    closed.usable = false;
    world.node(&closed);
    twin.usable = false;
    world.node(&twin);
    for tas in [world.tas, other] {
        world.tas = tas;
        assert_eq!(world.put(&pods(3)), "b=3");
        assert!(world.put(&pods(4)).contains("only 3 out of 4"));
    }
    world.topologies.remove_node(&mut world.usage, "twin");
    closed.usable = true;
    world.node(&closed);
    assert_eq!(world.put(&pods(5)), "a=2 b=3");
}

#[test]
fn usage_stays_at_a_node_that_is_gone_and_counts_when_it_comes_back() {
    let mut world = two();
    let used = world.resolve(&[("b", 2)]);
    world.usage.add(&used);
    world.topologies.remove_node(&mut world.usage, "b");
    assert!(!world.fits(&[("b", 1)]));
    world.node(&node("b1", "r1", "b", &[("cpu", 3)]));
    assert_eq!(
        world.put(&pods(3).required(HOSTNAME)),
        "topology \"default\" allows to fit only 2 out of 3 pod(s)"
    );
    assert!(world.fits(&[("b", 1)]));
}

#[test]
fn usage_may_come_before_its_node() {
    let mut world = world(&[]);
    let used = world.resolve(&[("a", 1)]);
    world.usage.add(&used);
    world.other("a", 1, 1);
    world.node(&node("b1", "r1", "a", &[("cpu", 3)]));
    assert_eq!(world.put(&pods(1)), "a=1");
    assert!(!world.fits(&[("a", 2)]));
}

#[test]
fn a_node_may_move_and_offer_more() {
    let mut world = two();
    world.node(&node("b1", "r2", "a", &[("cpu", 9)]));
    assert_eq!(world.put(&pods(9).required("rack")), "a=9");
    world.node(&node("b1", "r2", "a", &[("cpu", 4)]));
    assert_eq!(world.put(&pods(4).required("rack")), "a=4");
    assert_eq!(world.put(&pods(7).required("block")), "b=3 a=4");
}

#[test]
fn other_pods_concern_flavors_only_when_they_free_something() {
    let mut world = two();
    assert_eq!(world.other("a", 2, 1), []);
    assert_eq!(world.put(&pods(2).required(HOSTNAME)), "b=2");
    assert_eq!(world.other("a", 1, 2), [world.tas]);
    assert_eq!(world.other("a", 0, 0), [world.tas]);
    assert_eq!(world.other("unknown", 3, 1), []);
    assert_eq!(world.other("unknown", 0, 0), []);
}

#[test]
fn a_node_that_several_flavors_share_is_used_once() {
    let mut world = two();
    let other = second(&mut world);
    world.add(&pods(3).required(HOSTNAME));
    world.tas = other;
    assert_eq!(world.put(&pods(1).required(HOSTNAME)), "a=1");
    assert_eq!(
        world.put(&pods(5)),
        "topology \"default\" allows to fit only 2 out of 5 pod(s). Total nodes: 2; \
                                     excluded: resource \"cpu\": 1"
    );
}

#[test]
fn without_the_gate_every_flavor_counts_for_itself() {
    let mut world = unshared_world(&TWO);
    let other = second(&mut world);
    world.add(&pods(3).required(HOSTNAME));
    world.tas = other;
    assert_eq!(world.put(&pods(5)), "a=2 b=3");
}

#[test]
fn topologies_and_flavors_come_in_any_order_and_go() {
    let mut world = two();
    let tas = world.tas;
    assert!(world.topologies.knows(tas) && world.topologies.has_hosts(tas));
    assert!(world.topologies.has_level(tas, "rack") && !world.topologies.has_level(tas, "zone"));
    assert_eq!(world.topologies.set_topology(&mut world.usage, &n("default"), None), [tas]);
    assert!(!world.topologies.knows(tas));
    assert_eq!(world.put(&pods(1)), "Flavor \"tas\" information missing in TAS cache");
    let spec = TopologySpec { name: n("default"), levels: vec![n("rack")] };
    assert_eq!(world.topologies.set_topology(&mut world.usage, &n("default"), Some(&spec)), [tas]);
    assert_eq!(world.put(&pods(5)), "r1=5");
    assert!(!world.topologies.has_hosts(tas));
    world.topologies.set_flavor(&mut world.usage, tas, None);
    assert!(!world.topologies.knows(tas));
    world.check();
}

#[test]
fn marks_nest() {
    let mut world = two();
    let one = world.resolve(&[("b", 1)]);
    let outer = world.usage.mark();
    world.usage.add(&one);
    let inner = world.usage.mark();
    world.usage.add(&one);
    world.usage.rollback(&inner);
    assert!(world.fits(&[("b", 2)]));
    assert!(!world.fits(&[("b", 3)]));
    world.usage.rollback(&outer);
    assert!(world.fits(&[("b", 3)]));
    world.check();
}

#[test]
fn pod_sets_fit_together_or_not() {
    let mut world = two();
    let half = world.resolve(&[("b", 2)]);
    assert!(world.usage.fits(std::slice::from_ref(&half)));
    assert!(!world.usage.fits(&[half.clone(), half]));
}

#[test]
fn places_that_nothing_refers_to_are_forgotten() {
    let mut world = two();
    let (held, gone, used) =
        (world.resolve(&[("x", 1)]), world.resolve(&[("y", 1)]), world.resolve(&[("z", 1)]));
    world.usage.add(&used);
    let rows = world.topologies.places_size().rows;
    let held: BTreeSet<_> = held.places.iter().map(|&(place, _)| place).collect();
    world.topologies.retain_places(&world.usage, &held);
    assert_eq!(world.topologies.places_size().free, 1);
    assert_eq!(world.resolve(&[("new", 1)]).places, gone.places);
    assert_eq!(world.topologies.places_size().rows, rows);
    world.check();
}

#[test]
fn names_that_topology_refers_to_are_kept() {
    let mut world = two();
    let mut used = UsedNames::default();
    world.topologies.mark_names(&world.usage, &mut used);
    world.names.retain(used);
    let new = world.names.resource(&n("new"));
    assert!(world.names.resource(&n("cpu")) != new && world.names.resource(&n("pods")) != new);
    assert_eq!(world.names.find_flavor("tas"), Some(world.tas));
    assert_eq!(show(&world.place(&pods(5))), "a=2 b=3");
}

#[test]
fn nodes_with_the_same_hostname_are_one_domain() {
    let mut world = two();
    let mut twin = node("b1", "r9", "twin", &[("cpu", 3)]);
    twin.labels = node("b1", "r9", "a", &[]).labels;
    world.node(&twin);
    assert_eq!(world.put(&pods(5).required("rack")), "a=5");
    assert_eq!(world.put(&pods(9)), "topology \"default\" allows to fit only 8 out of 9 pod(s)");
    world.topologies.remove_node(&mut world.usage, "a");
    assert_eq!(world.put(&pods(6)), "a=3 b=3");
    world.topologies.remove_node(&mut world.usage, "twin");
    assert_eq!(world.put(&pods(3)), "b=3");
}
