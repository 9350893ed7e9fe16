//! docs/reference/06-algorithm.md 6.12: leaves, which of them count, and how a failure describes the others.

use sluice_selector::{Operator, TolerationOperator};

use super::fixture::{node, pods, show, taint, tas_flavor, world, world_of};
use crate::fixtures::n;
use crate::spec::{Expression, TaintEffect, Toleration};
use crate::workload::AffinityTerm;

fn tolerate(key: &str) -> Toleration {
    Toleration { key: Some(n(key)), operator: TolerationOperator::Exists, value: n(""), effect: None }
}

fn term(key: &str, value: &str) -> AffinityTerm {
    let expression = Expression::new(n(key), Operator::In, vec![n(value)]);
    AffinityTerm { expressions: vec![expression], ..AffinityTerm::default() }
}

const NONE: &str = "topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: ";

#[test]
fn every_pod_takes_one_of_pods() {
    let mut world = world(&[("b1", "r1", "a", 4)]);
    let text = "topology \"default\" allows to fit only 10 out of 11 pod(s)";
    assert_eq!(world.put(&pods(11).each(&[])), text);
    assert_eq!(world.put(&pods(10).each(&[("cpu", 0)])), "a=10");
}

#[test]
fn a_node_offers_nothing_of_what_it_does_not_list() {
    let mut world = world(&[("b1", "r1", "a", 4)]);
    let text = format!("{NONE}1; excluded: resource \"gpu\": 1");
    assert_eq!(world.put(&pods(1).each(&[("cpu", 1), ("gpu", 1)])), text);
    let mut bare = node("b1", "r1", "a", &[("cpu", 4)]);
    bare.allocatable.retain(|(name, _)| **name != *"pods");
    world.node(&bare);
    assert_eq!(world.put(&pods(1)), format!("{NONE}1; excluded: resource \"pods\": 1"));
}

#[test]
fn of_several_resources_without_room_the_first_by_name_is_blamed() {
    let mut world = world(&[("b1", "r1", "a", 1)]);
    let text = format!("{NONE}1; excluded: resource \"cpu\": 1");
    assert_eq!(world.put(&pods(1).each(&[("gpu", 1), ("cpu", 2)])), text);
}

#[test]
fn a_node_of_which_nothing_is_free_is_not_blamed() {
    let mut world = world(&[("b1", "r1", "a", 10)]);
    world.other("a", 10, 10);
    assert_eq!(world.put(&pods(1)), "topology \"default\" doesn't allow to fit any of 1 pod(s)");
}

#[test]
fn only_usable_nodes_with_all_labels_count() {
    let mut world = world_of(&super::fixture::LEVELS);
    let good = node("b1", "r1", "a", &[("cpu", 1)]);
    let mut not_ready = node("b1", "r1", "b", &[("cpu", 9)]);
    not_ready.usable = false;
    let mut other_pool = node("b1", "r1", "c", &[("cpu", 9)]);
    other_pool.labels.retain(|(key, _)| **key != *"pool");
    let mut no_rack = node("b1", "r1", "d", &[("cpu", 9)]);
    no_rack.labels.retain(|(key, _)| **key != *"rack");
    for node in [&good, &not_ready, &other_pool, &no_rack] {
        world.node(node);
    }
    let text = "topology \"default\" allows to fit only 1 out of 2 pod(s)";
    assert_eq!(world.put(&pods(2)), text);
}

#[test]
fn taints_keep_pods_away_unless_they_or_the_flavor_tolerate_them() {
    let mut world = world(&[]);
    let mut tainted = node("b1", "r1", "a", &[("cpu", 1)]);
    tainted.taints = vec![taint("dedicated", "x", TaintEffect::NoExecute)];
    world.node(&tainted);
    let text = format!("{NONE}1; excluded: taint \"dedicated=x:NoExecute\": 1");
    assert_eq!(world.put(&pods(1)), text);
    assert_eq!(world.put(&pods(1).with(|spec| spec.tolerations = vec![tolerate("dedicated")])), "a=1");
    let mut flavor = tas_flavor("tas");
    flavor.tolerations = vec![tolerate("dedicated")];
    let tas = world.tas;
    world.topologies.set_flavor(&mut world.usage, tas, Some(&flavor));
    assert_eq!(world.put(&pods(1)), "a=1");
}

#[test]
fn a_taint_that_only_prefers_does_not_keep_pods_away() {
    let mut world = world(&[]);
    let mut tainted = node("b1", "r1", "a", &[("cpu", 1)]);
    tainted.taints = vec![taint("slow", "", TaintEffect::PreferNoSchedule)];
    world.node(&tainted);
    assert_eq!(world.put(&pods(1)), "a=1");
}

#[test]
fn a_requested_extended_resource_tolerates_its_own_taint() {
    let mut world = world(&[]);
    let mut gpu = node("b1", "r1", "a", &[("cpu", 1), ("nvidia.com/gpu", 1)]);
    gpu.taints = vec![taint("nvidia.com/gpu", "present", TaintEffect::NoSchedule)];
    world.node(&gpu);
    assert_eq!(world.put(&pods(1).each(&[("nvidia.com/gpu", 1)])), "a=1");
    let text = format!("{NONE}1; excluded: taint \"nvidia.com/gpu=present:NoSchedule\": 1");
    assert_eq!(world.put(&pods(1)), text);
}

#[test]
fn a_resource_without_a_domain_does_not_tolerate_a_taint() {
    let mut world = world(&[]);
    let mut tainted = node("b1", "r1", "a", &[("cpu", 1)]);
    tainted.taints = vec![taint("cpu", "", TaintEffect::NoSchedule)];
    world.node(&tainted);
    assert_eq!(world.put(&pods(1)), format!("{NONE}1; excluded: taint \"cpu:NoSchedule\": 1"));
}

#[test]
fn node_selector_and_required_affinity_are_compared_with_the_labels_of_nodes() {
    let mut world = world(&[("b1", "r1", "a", 1), ("b1", "r2", "b", 2)]);
    assert_eq!(world.put(&pods(1).selector(&[("rack", "r2")])), "b=1");
    let of = |terms: Vec<AffinityTerm>| pods(1).with(|spec| spec.affinity = terms);
    assert_eq!(world.put(&of(vec![term("rack", "r9"), term("rack", "r2")])), "b=1");
    assert_eq!(world.put(&of(vec![term("rack", "r9")])), format!("{NONE}2; excluded: affinity: 2"));
    let empty = vec![AffinityTerm::default()];
    assert_eq!(world.put(&of(empty)), format!("{NONE}2; excluded: affinity: 2"));
}

#[test]
fn where_nodes_are_not_the_lowest_level_neither_taints_nor_labels_count() {
    let mut world = world_of(&["block", "rack"]);
    let mut tainted = node("b1", "r1", "a", &[("cpu", 1)]);
    tainted.taints = vec![taint("dedicated", "x", TaintEffect::NoSchedule)];
    world.node(&tainted);
    assert_eq!(world.put(&pods(1).selector(&[("rack", "r2")])), "b1/r1=1");
}

#[test]
fn a_failure_lists_what_was_excluded_in_the_order_of_the_words() {
    let mut world = world(&[("b1", "r1", "a", 0), ("b1", "r1", "b", 1), ("b1", "r2", "c", 1)]);
    world.node(&node("b1", "r1", "lost", &[("cpu", 1)]));
    let mut tainted = node("b1", "r1", "t", &[("cpu", 1)]);
    tainted.taints = vec![taint("k", "v", TaintEffect::NoSchedule)];
    world.node(&tainted);
    let mut other = node("b1", "r1", "x", &[("cpu", 1)]);
    other.labels[0].1 = n("b9");
    world.node(&other);
    let request = pods(1).selector(&[("block", "b1")]).with(|spec| {
        spec.affinity = vec![term("kubernetes.io/hostname", "a"), term("kubernetes.io/hostname", "lost")];
    });
    let placed = world.place_with(&[request], false, &[], &["lost"]);
    let text = format!(
        "{NONE}6; excluded: affinity: 2, nodeSelector: 1, resource \"cpu\": 1, taint \"k=v:NoSchedule\": 1, \
         topologyDomain: 1"
    );
    assert_eq!(show(&placed), text);
}

#[test]
fn lost_nodes_are_not_used() {
    let mut world = world(&[("b1", "r1", "a", 1), ("b1", "r1", "b", 2)]);
    assert_eq!(show(&world.place_with(&[pods(1)], false, &[], &["a"])), "b=1");
}
