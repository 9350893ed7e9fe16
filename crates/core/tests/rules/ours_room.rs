//! Room on nodes (ours): what has to go so that pods fit, on nodes with and without a topology, by one object.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::world::{World, cq, job, key, n, node, q, topology};
use sluice_core::{
    Amount, CapacityNode, Choice, FreeCapacity, HOSTNAME, Name, NodeGroup, NodeGroups, PodsApart,
    RequestedLevel, SetNeeds, TopologyRequest, WorkloadKey,
};

const RACK: &str = "rack";
/// Two racks of two hosts with four GPUs each.
const HOSTS: [&str; 4] = ["r0h0", "r0h1", "r1h0", "r1h1"];

fn hosts() -> BTreeMap<&'static str, BTreeMap<Name, i128>> {
    HOSTS.iter().map(|host| (*host, BTreeMap::from([(n("gpu"), 4), (n("pods"), 110)]))).collect()
}

fn seen<'a>(
    hosts: &'a BTreeMap<&'static str, BTreeMap<Name, i128>>,
) -> impl Iterator<Item = CapacityNode<'a>> + Clone {
    hosts.iter().map(|(name, allocatable)| CapacityNode { name, allocatable })
}

fn per_pod(gpus: i64) -> Vec<(Name, Amount)> {
    vec![(n("gpu"), Amount(gpus)), (n("pods"), Amount(1))]
}

fn needs(per_pod: &[(Name, Amount)], count: i64, healthy: impl IntoIterator<Item = usize>) -> SetNeeds<'_> {
    let nodes = Rc::new(healthy.into_iter().collect());
    SetNeeds { pod_set: 0, assigned: None, count, per_pod, nodes, exclusive: None }
}

/// The racks, of which the second one may not be whole.
fn racks(whole: bool) -> [NodeGroups<'static>; 1] {
    let group = |value, nodes: [usize; 2], whole| NodeGroup { value, nodes: nodes.to_vec(), whole };
    let all = vec![group("r0", [0, 1], true), group("r1", [2, 3], whole)];
    [NodeGroups { label: RACK.to_owned(), all, of: vec![Some(0), Some(0), Some(1), Some(1)] }]
}

/// A room in which each of these workloads has a pod of four GPUs on each of its nodes.
fn room<'a>(
    w: &'a World,
    hosts: &'a BTreeMap<&'static str, BTreeMap<Name, i128>>,
    groups: &'a [NodeGroups<'a>],
    workloads: &'a [(WorkloadKey, Vec<usize>)],
) -> FreeCapacity<'a> {
    let mut room = FreeCapacity::new(&w.core, seen(hosts), groups);
    let four = per_pod(4);
    for (key, nodes) in workloads {
        room.add_workload(key, nodes.iter().map(|node| (*node, four.as_slice())), &BTreeSet::from([RACK]));
    }
    room.keep();
    room
}

#[test]
fn ours_room_lets_the_first_candidates_go_that_are_enough_and_none_in_vain() {
    let (w, hosts) = (World::new(), hosts());
    let workloads: Vec<_> = (0..4).map(|at| (key(&format!("w{at}")), vec![at])).collect();
    let mut room = room(&w, &hosts, &[], &workloads);
    let four = per_pod(4);
    let wanted = [needs(&four, 2, [1, 2, 3])];
    assert!(!room.place(&key("p"), &wanted));
    let mark = room.mark();
    let candidates = || [Some(0), None, Some(1), Some(2), Some(3)].into_iter();
    let chosen = room.make_way(&key("p"), &wanted, candidates(), u64::MAX);
    assert_eq!(chosen, Choice::Victims(vec![1, 2]), "the node of the first one is lost");
    assert!(room.place(&key("p"), &wanted) && !room.place(&key("p"), &wanted));
    room.undo(mark);
    assert!(!room.place(&key("p"), &wanted), "all is as it was");
    let most = room.steps();
    assert_eq!(room.make_way(&key("p"), &wanted, candidates(), most), Choice::Cut);
}

#[test]
fn ours_room_gives_a_whole_group_to_each_replica() {
    let (w, hosts) = (World::new(), hosts());
    let four = per_pod(4);
    let workloads = [(key("w0"), vec![0, 1])];
    for (whole, fits) in [(true, true), (false, false)] {
        let groups = racks(whole);
        let mut room = room(&w, &hosts, &groups, &workloads);
        let wanted = [SetNeeds { exclusive: Some((RACK, 1)), ..needs(&four, 2, 0..4) }];
        assert_eq!(room.place(&key("p"), &wanted), fits);
        room.release(0);
        assert!(room.place(&key("p"), &wanted));
        assert!(!room.place(&key("p"), &wanted));
    }
}

/// The racks as a topology, and a Workload of two pods that needs one of them.
fn with_topology() -> World {
    let mut w = World::new();
    w.core.set_topology(&topology("t", &[RACK, HOSTNAME]));
    w.flavor("default", |spec| spec.topology = Some(n("t")));
    for host in HOSTS {
        w.core.set_node(&node(host, &[(RACK, &host[..2])], &[("gpu", 4)]));
    }
    w.cq(cq("a").quota(q(1_000)));
    w.submit(job("p", "a").gpu(4).pod(|set| {
        set.count = 2;
        let level = RequestedLevel::Required(n(RACK));
        set.topology = Some(TopologyRequest { level, slices: Vec::new() });
    }));
    w
}

#[test]
fn ours_room_takes_what_a_topology_assigns_of_the_free_nodes_too() {
    let w = with_topology();
    let (hosts, four) = (hosts(), per_pod(4));
    let mut room = room(&w, &hosts, &[], &[]);
    let assigned = [SetNeeds { assigned: Some(n("default")), ..needs(&four, 2, 0..4) }];
    assert!(!room.place(&key("p"), &assigned), "nothing assigns nodes yet");
    room.assign_nodes(["r0h1"].into_iter(), PodsApart::new(), &[]);
    assert!(room.place(&key("p"), &assigned) && !room.place(&key("p"), &assigned), "one rack is whole");
    assert!(room.take_failure().is_some() && room.take_failure().is_none());
    let loose = [needs(&four, 1, 0..4)];
    assert!(room.place(&key("q"), &loose) && room.place(&key("q"), &loose) && !room.place(&key("q"), &loose));
}

#[test]
fn ours_room_is_taken_again_where_it_was_found_if_it_is_there_still() {
    let (w, hosts, four, racks) = (with_topology(), hosts(), per_pod(4), racks(true));
    let workloads = [(key("w0"), vec![2]), (key("w1"), vec![0, 1])];
    let group = SetNeeds { exclusive: Some((RACK, 1)), ..needs(&four, 2, 0..4) };
    let assigned = SetNeeds { assigned: Some(n("default")), ..needs(&four, 2, 0..4) };
    for wanted in [[needs(&four, 2, 0..4)], [group], [assigned]] {
        let in_room = |gone: &[usize]| {
            let mut room = room(&w, &hosts, &racks, &workloads);
            for at in gone {
                room.release(*at);
            }
            room.assign_nodes(std::iter::empty(), PodsApart::new(), &[]);
            room.keep();
            room
        };
        let mut first = in_room(&[1]);
        let mark = first.mark();
        assert!(first.place(&key("p"), &wanted));
        let (nodes, places) = first.placed(mark);
        assert_eq!(nodes.iter().collect::<Vec<_>>(), [0, 1]);

        let mut later = in_room(&[0, 1]);
        let before = later.steps();
        assert!(later.place_again(&wanted, &nodes, &places));
        assert!(later.steps() - before <= 3, "{} steps", later.steps() - before);
        assert!(!later.place_again(&wanted, &nodes, &places), "it is taken");
        assert!(!in_room(&[1]).place_again(&[needs(&four, 3, 0..4)], &nodes, &places), "there were two pods");
        let healthy = SetNeeds { nodes: Rc::new([1, 2, 3].into_iter().collect()), ..wanted[0].clone() };
        assert!(!in_room(&[1]).place_again(&[healthy], &nodes, &places), "a node is lost");
        assert!(wanted[0].assigned.is_some() || !in_room(&[0]).place_again(&wanted, &nodes, &places));
    }
}
