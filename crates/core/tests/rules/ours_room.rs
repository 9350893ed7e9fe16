//! Room on nodes (ours): what has to go so that pods fit, on nodes with and without a topology, by one object.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::world::{World, cq, job, key, n, node, q, topology};
use sluice_core::{
    Amount, Answers, AssignedPods, CapacityNode, Choice, FreeCapacity, HOSTNAME, Name, NodeGroup, NodeGroups,
    NodeSet, PodsApart, RequestedLevel, SetNeeds, TopologyRequest, WorkloadKey,
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
    let chosen = room.victims_for(&key("p"), &wanted, candidates(), u64::MAX, &mut Answers::default());
    assert_eq!(chosen, Choice::Victims(vec![1, 2]), "the node of the first one is lost");
    assert!(room.place(&key("p"), &wanted) && !room.place(&key("p"), &wanted));
    room.undo(mark);
    assert!(!room.place(&key("p"), &wanted), "all is as it was");
    let most = room.steps();
    let mut answers = Answers::default();
    assert_eq!(room.victims_for(&key("p"), &wanted, candidates(), most, &mut answers), Choice::Cut);
}

#[test]
fn ours_room_only_compares_nodes_without_room_which_is_quick() {
    let w = World::new();
    let full = BTreeMap::from([(n("gpu"), 0), (n("pods"), 110)]);
    let names: Vec<String> = (0..320).map(|node| format!("n{node:03}")).collect();
    let nodes = names.iter().map(|name| CapacityNode { name, allocatable: &full });
    let mut room = FreeCapacity::new(&w.core, nodes, &[]);
    let four = per_pod(4);
    let wanted = [needs(&four, 1, 0..names.len())];
    assert!(!room.place(&key("p"), &wanted));
    assert_eq!(room.steps(), 20);
    let none = std::iter::repeat_n(None, 160);
    assert_eq!(room.victims_for(&key("p"), &wanted, none, u64::MAX, &mut Answers::default()), Choice::None);
    assert_eq!(room.steps(), 20 + 20 + 10);
}

#[test]
fn ours_room_continues_with_a_search_that_was_cut() {
    let (mut w, hosts) = (with_topology(), hosts());
    for host in HOSTS {
        w.core.set_other_usage(&n(host), &per_pod(4));
    }
    let workloads: Vec<_> = (0..4).map(|at| (key(&format!("w{at}")), vec![at])).collect();
    let four = per_pod(4);
    let loose = needs(&four, 2, [0, 2, 3]);
    let assigned = SetNeeds { assigned: Some(n("default")), ..needs(&four, 2, 0..4) };
    for wanted in [[loose], [assigned]] {
        let search = |most: u64, answers: &mut Answers| {
            let mut room = room(&w, &hosts, &[], &workloads);
            let apart = workloads.iter().enumerate().map(|(at, (_, nodes))| {
                (at, nodes.iter().map(|node| (HOSTS[*node], four.as_slice())).collect())
            });
            room.assign_nodes(std::iter::empty(), apart.collect(), &[]);
            let candidates = [1, 2, 0, 3].into_iter().map(Some);
            let chosen = room.victims_for(&key("p"), &wanted, candidates, most, answers);
            (chosen, room.place(&key("p"), &wanted))
        };
        let whole = search(u64::MAX, &mut Answers::default());
        assert!(matches!(whole, (Choice::Victims(_), true)), "{whole:?}");
        let mut answers = Answers::default();
        let parts: Vec<_> = std::iter::repeat_with(|| search(0, &mut answers)).take(20).collect();
        let cut = parts.iter().take_while(|(chosen, _)| *chosen == Choice::Cut).count();
        assert!(cut > 1, "it is cut more than once");
        assert_eq!(parts[cut], whole);
    }
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
    asks_for(&mut w, RequestedLevel::Required(n(RACK)));
    w
}

/// The Workload asks for this.
fn asks_for(w: &mut World, level: RequestedLevel) {
    w.submit(job("p", "a").gpu(4).pod(|set| {
        set.count = 2;
        set.topology = Some(TopologyRequest { level, slices: Vec::new() });
    }));
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
        let p = key("p");
        let mut first = in_room(&[1]);
        let mark = first.mark();
        assert!(first.place(&p, &wanted));
        let (nodes, places) = first.placed(mark);
        assert_eq!(nodes.iter().collect::<Vec<_>>(), [0, 1]);

        let mut later = in_room(&[0, 1]);
        let before = later.steps();
        assert!(later.place_again(&p, &wanted, &nodes, &places));
        assert!(later.steps() - before <= 4, "{} steps", later.steps() - before);
        assert!(!later.place_again(&p, &wanted, &nodes, &places), "it is taken");
        let three = [needs(&four, 3, 0..4)];
        assert!(!in_room(&[1]).place_again(&p, &three, &nodes, &places), "there were two pods");
        let healthy = SetNeeds { nodes: Rc::new([1, 2, 3].into_iter().collect()), ..wanted[0].clone() };
        assert!(!in_room(&[1]).place_again(&p, &[healthy], &nodes, &places), "a node is lost");
        assert!(wanted[0].assigned.is_some() || !in_room(&[0]).place_again(&p, &wanted, &nodes, &places));
    }
}

#[test]
fn ours_room_in_other_domains_than_are_asked_for_now_is_not_taken_again() {
    let (hosts, four, p) = (hosts(), per_pod(4), key("p"));
    let wanted = [SetNeeds { assigned: Some(n("default")), ..needs(&four, 2, [0, 2]) }];
    let again = |w: &World, found: Option<&(NodeSet, AssignedPods)>| {
        let mut room = room(w, &hosts, &[], &[]);
        room.assign_nodes(["r0h1", "r1h1"].into_iter(), PodsApart::new(), &[]);
        let mark = room.mark();
        match found {
            None => room.place(&p, &wanted).then(|| room.placed(mark)),
            Some((nodes, places)) => {
                room.place_again(&p, &wanted, nodes, places).then(|| (NodeSet::default(), places.clone()))
            }
        }
    };
    let mut w = with_topology();
    asks_for(&mut w, RequestedLevel::Preferred(n(RACK)));
    let found = again(&w, None).expect("two racks have a host each");
    assert!(again(&w, Some(&found)).is_some());
    asks_for(&mut w, RequestedLevel::Required(n(RACK)));
    assert!(again(&w, Some(&found)).is_none() && again(&w, None).is_none());
    asks_for(&mut w, RequestedLevel::Preferred(n(RACK)));
    assert!(again(&w, Some(&found)).is_some());
    w.core.set_node(&node("r1h0", &[(RACK, "r0")], &[("gpu", 4)]));
    assert!(again(&w, Some(&found)).is_none() && again(&w, None).is_some(), "the host is in another rack");
}
