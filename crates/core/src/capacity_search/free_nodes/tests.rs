//! Skipping nodes changes no result: compared with an implementation that visits all nodes each time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::needs::NodeGroup;
use super::super::probe::Probe;
use super::*;

/// The label that makes groups: two nodes each.
const POOL: &str = "pool";
/// What pods take besides their place.
const TPU: &str = "tpu";
/// The number of nodes.
const NODES: usize = 6;

/// A node: chips, places for pods, and whether its group is whole.
type NodeSpec = (i128, Option<i128>, bool);
/// A workload: the nodes and chips of its pods, and whether it has their groups to itself.
type WorkloadSpec = (Vec<(usize, i64)>, bool);
/// A pod set: how many, chips of each, which of the two sorts of nodes, and its replicas if each has a group to itself.
type SetSpec = (i64, i64, usize, Option<i64>);

/// What happens to the room.
#[derive(Clone, Debug)]
enum Op {
    /// A workload goes, or comes back.
    Shift(usize),
    /// Sets are placed, on some nodes only if there is a mask.
    Place(Vec<usize>, Option<u8>),
    /// It is asked whether sets fit.
    Probe(Vec<usize>),
    /// The same while a workload goes or comes back.
    ProbeChange(Vec<usize>, usize),
    Mark,
    Undo,
    Keep,
}

#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<NodeSpec>,
    sorts: [u8; 2],
    workloads: Vec<WorkloadSpec>,
    sets: Vec<SetSpec>,
    ops: Vec<Op>,
}

fn cases() -> impl Strategy<Value = Case> {
    let node = (0..=8_i128, prop::option::weighted(0.8, 0..=3_i128), prop::bool::weighted(0.8));
    let workload = (prop::collection::vec((0..NODES, 0..=4_i64), 0..3), any::<bool>());
    let set = (1..=4_i64, 0..=4_i64, 0..2_usize, prop::option::of(1..=2_i64));
    let sets = || prop::collection::vec(0..4_usize, 1..3);
    let op = prop_oneof![
        3 => (0..4_usize).prop_map(Op::Shift),
        4 => (sets(), prop::option::weighted(0.2, any::<u8>())).prop_map(|(s, among)| Op::Place(s, among)),
        1 => sets().prop_map(Op::Probe),
        2 => (sets(), 0..4_usize).prop_map(|(s, one)| Op::ProbeChange(s, one)),
        2 => Just(Op::Mark),
        2 => Just(Op::Undo),
        1 => Just(Op::Keep),
    ];
    (
        prop::collection::vec(node, NODES),
        any::<[u8; 2]>(),
        prop::collection::vec(workload, 4),
        prop::collection::vec(set, 4),
        prop::collection::vec(op, 0..40),
    )
        .prop_map(|(nodes, sorts, workloads, sets, ops)| Case { nodes, sorts, workloads, sets, ops })
}

/// The room by the plain rule.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    free: Vec<BTreeMap<&'static str, i128>>,
    occupied: [usize; NODES / 2],
    whole: [bool; NODES / 2],
}

impl Plain {
    fn shift(&mut self, (pods, exclusive): &WorkloadSpec, sign: i128) {
        for (node, chips) in pods {
            *self.free[*node].get_mut(TPU).unwrap() += sign * i128::from(*chips);
            if let Some(places) = self.free[*node].get_mut(PODS) {
                *places += sign;
            }
        }
        for group in pods.iter().map(|(node, _)| node / 2).collect::<BTreeSet<_>>() {
            if *exclusive && sign < 0 {
                self.occupied[group] += 1;
            } else if *exclusive {
                self.occupied[group] -= usize::from(self.occupied[group] > 0);
            }
        }
    }

    /// Puts pods on nodes one by one.
    fn pods(&mut self, nodes: impl Iterator<Item = usize>, mut count: i64, chips: i64) -> bool {
        let chips = i128::from(chips);
        for node in nodes {
            let free = &mut self.free[node];
            while count > 0
                && (chips == 0 || free[TPU] >= chips)
                && free.get(PODS).is_none_or(|places| *places > 0)
            {
                *free.get_mut(TPU).unwrap() -= chips;
                if let Some(places) = free.get_mut(PODS) {
                    *places -= 1;
                }
                count -= 1;
            }
        }
        count == 0
    }

    fn place(&mut self, sets: &[SetSpec], sorts: [u8; 2], among: Option<u8>) -> bool {
        let before = self.clone();
        let all = sets.iter().all(|(count, chips, sort, replicas)| {
            let usable = |node: &usize| sorts[*sort] & among.unwrap_or(u8::MAX) & (1 << node) != 0;
            let Some(replicas) = replicas else {
                return self.pods((0..NODES).filter(usable), *count, *chips);
            };
            let mut left = *replicas;
            for group in 0..NODES / 2 {
                let mut tried = self.clone();
                let members = (2 * group..2 * group + 2).filter(usable);
                let each = (count + replicas - 1) / replicas;
                let free = self.whole[group] && self.occupied[group] == 0;
                if left > 0 && free && tried.pods(members, each, *chips) {
                    tried.occupied[group] = 1;
                    *self = tried;
                    left -= 1;
                }
            }
            left == 0
        });
        if !all {
            *self = before;
        }
        all
    }
}

fn seen(room: &FreeNodes<'_>) -> (Vec<BTreeMap<String, i128>>, Vec<usize>) {
    let free = (0..NODES).map(|node| {
        let slots = room.columns.names().filter_map(|name| Some((name, room.slot(node, name)?)));
        slots.map(|(name, slot)| (name.to_owned(), room.free[room.at(slot)])).collect()
    });
    (free.collect(), room.occupied[0].clone())
}

fn wanted(plain: &Plain) -> (Vec<BTreeMap<String, i128>>, Vec<usize>) {
    let free = plain.free.iter().map(|node| node.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect());
    (free.collect(), plain.occupied.to_vec())
}

const POOLS: [&str; NODES / 2] = ["p0", "p1", "p2"];

fn check(case: &Case) -> Result<(), TestCaseError> {
    let whole: [bool; NODES / 2] = std::array::from_fn(|group| case.nodes[2 * group].2);
    let allocatable = case.nodes.iter().map(|(chips, places, _)| {
        let chips = [(Name::from(TPU), *chips)];
        chips.into_iter().chain(places.map(|places| (Name::from(PODS), places))).collect()
    });
    let allocatable: Vec<BTreeMap<Name, i128>> = allocatable.collect();
    let group = |group: usize| NodeGroup {
        value: POOLS[group],
        nodes: vec![2 * group, 2 * group + 1],
        whole: whole[group],
    };
    let by_pool = NodeGroups {
        label: POOL.to_owned(),
        all: (0..NODES / 2).map(group).collect(),
        of: (0..NODES).map(|node| Some(node / 2)).collect(),
    };
    let groups = [by_pool];
    let mut room = FreeNodes::new(allocatable.iter(), &groups);
    for (pods, exclusive) in &case.workloads {
        let labels = if *exclusive { BTreeSet::from([POOL]) } else { BTreeSet::new() };
        let requests = pods.iter().map(|(node, chips)| {
            (*node, vec![(Name::from(TPU), Amount(*chips)), (Name::from(PODS), Amount(1))])
        });
        let requests: Vec<_> = requests.collect();
        room.add_workload(requests.iter().map(|(node, requests)| (*node, requests.as_slice())), &labels);
    }
    let mut plain = Plain { free: Vec::new(), occupied: [0; NODES / 2], whole };
    for (chips, places, _) in &case.nodes {
        let mut free = BTreeMap::from([(TPU, *chips)]);
        free.extend(places.map(|places| (PODS, places)));
        plain.free.push(free);
    }
    for workload in &case.workloads {
        plain.shift(workload, -1);
    }
    let sorts = case.sorts.map(|mask| Rc::new((0..NODES).filter(|node| mask & (1 << node) != 0).collect()));
    let per_pod = case.sets.iter().map(|(_, chips, ..)| {
        let takes = [(TPU, *chips), (PODS, 1)].into_iter().filter(|(_, amount)| *amount > 0);
        takes.map(|(name, amount)| (name.into(), Amount(amount))).collect()
    });
    let per_pod: Vec<Vec<_>> = per_pod.collect();
    let needs = |sets: &[usize]| {
        let sets = sets.iter().map(|set| (case.sets[*set], &per_pod[*set]));
        let needs = sets.map(|((count, _, sort, replicas), per_pod)| SetNeeds {
            pod_set: 0,
            assigned: None,
            count,
            per_pod,
            nodes: Rc::clone(&sorts[sort]),
            exclusive: replicas.map(|replicas| (POOL, replicas)),
        });
        needs.collect::<Vec<_>>()
    };
    let specs = |sets: &[usize]| sets.iter().map(|set| case.sets[*set]).collect::<Vec<_>>();
    let mut here = [true; 4];
    let mut marks = Vec::new();
    for op in &case.ops {
        match op {
            Op::Shift(one) => {
                if here[*one] {
                    room.release(*one);
                } else {
                    room.take(*one);
                }
                plain.shift(&case.workloads[*one], if here[*one] { 1 } else { -1 });
                here[*one] = !here[*one];
            }
            Op::Place(sets, among) => {
                let nodes = among.map(|mask| (0..NODES).filter(move |node| mask & (1 << node) != 0));
                let nodes: Option<NodeSet> = nodes.map(Iterator::collect);
                let placed = room.place(&needs(sets), nodes.as_ref());
                prop_assert_eq!(placed, plain.place(&specs(sets), case.sorts, *among));
            }
            Op::Probe(sets) => {
                let needs = needs(sets);
                let fits = Probe::of(&mut room, &needs).fits(&mut room);
                prop_assert_eq!(fits, plain.clone().place(&specs(sets), case.sorts, None));
            }
            Op::ProbeChange(sets, one) => {
                let needs = needs(sets);
                let mut probe = Probe::of(&mut room, &needs);
                if here[*one] {
                    room.release(*one);
                } else {
                    room.take(*one);
                }
                plain.shift(&case.workloads[*one], if here[*one] { 1 } else { -1 });
                here[*one] = !here[*one];
                probe.changed(&mut room, *one);
                let fits = probe.fits(&mut room);
                prop_assert_eq!(fits, plain.clone().place(&specs(sets), case.sorts, None));
            }
            Op::Mark => marks.push((room.mark(), plain.clone(), here)),
            Op::Undo => {
                if let Some((mark, was, were)) = marks.pop() {
                    room.undo(mark);
                    (plain, here) = (was, were);
                }
            }
            Op::Keep => {
                room.keep();
                marks.clear();
            }
        }
        prop_assert_eq!(seen(&room), wanted(&plain), "after {:?}", op);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn what_is_full_is_passed_over_and_nothing_else(case in cases()) {
        check(&case)?;
    }
}
