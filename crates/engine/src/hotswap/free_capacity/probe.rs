//! Whether pods fit, kept up to date while Workloads go and come back.

use std::collections::BTreeSet;

use super::{FreeCapacity, per_replica};
use crate::hotswap::needs::SetNeeds;

/// What nodes have room for of some pods, kept up to date while Workloads go and come back: whether all fit need not be tried on all
/// nodes each time.
pub(crate) struct Probe<'n, 'a> {
    needs: &'n [SetNeeds<'a>],
    sets: Vec<Fits>,
}

/// What there is room for of one set.
enum Fits {
    /// By node, if pods may be on it, and in all.
    Nodes(Vec<Option<i128>>, i128),
    /// The groups by the label at this position that one replica each fits into.
    Groups(usize, BTreeSet<usize>),
    /// Nothing.
    Nothing,
}

impl<'n, 'a> Probe<'n, 'a> {
    /// What there is room for now.
    pub fn of(room: &mut FreeCapacity<'a>, needs: &'n [SetNeeds<'a>]) -> Self {
        let sets = needs.iter().map(|set| match set.exclusive {
            None => {
                let mut fits = vec![None; room.begins.len() - 1];
                let mut sum = 0;
                for node in set.nodes.iter() {
                    let fit = room.fit(set, node, i128::from(set.count));
                    fits[node] = Some(fit);
                    sum += fit;
                }
                room.count(set.nodes.len());
                Fits::Nodes(fits, sum)
            }
            Some((label, replicas)) => {
                let Some(label) = room.label(label) else { return Fits::Nothing };
                let open = || room.open[label].iter().copied();
                let good = open().filter(|group| is_good(room, set, label, *group, replicas)).collect();
                let looked = open().map(|group| room.groups[label].all[group].nodes.len()).sum();
                room.count(looked);
                Fits::Groups(label, good)
            }
        });
        Self { needs, sets: sets.collect() }
    }

    /// A Workload went, or came back.
    pub fn changed(&mut self, room: &mut FreeCapacity<'a>, workload: usize) {
        let Some(taken) = room.taken.get(workload) else { return };
        let mut nodes: Vec<usize> = taken.amounts.iter().map(|(slot, _)| slot.node).collect();
        nodes.dedup();
        for (set, fits) in self.needs.iter().zip(&mut self.sets) {
            match fits {
                Fits::Nodes(by_node, sum) => {
                    for node in &nodes {
                        if let Some(fit) = &mut by_node[*node] {
                            let now = room.fit(set, *node, i128::from(set.count));
                            *sum += now - *fit;
                            *fit = now;
                        }
                    }
                }
                Fits::Groups(label, good) => {
                    let replicas = set.exclusive.map_or(1, |(_, replicas)| replicas);
                    let groups = &room.groups[*label];
                    let of_nodes = nodes.iter().filter_map(|node| groups.of[*node]);
                    let of_itself =
                        taken.groups.iter().filter(|(of, _)| of == label).map(|(_, group)| *group);
                    let changed: BTreeSet<usize> = of_nodes.chain(of_itself).collect();
                    for group in changed {
                        if is_good(room, set, *label, group, replicas) {
                            good.insert(group);
                        } else {
                            good.remove(&group);
                        }
                    }
                }
                Fits::Nothing => {}
            }
        }
        room.count(nodes.len());
    }

    /// Whether all fit. Several sets are tried, as they take from each other.
    pub fn fits(&self, room: &mut FreeCapacity<'a>) -> bool {
        let each = self.needs.iter().zip(&self.sets).all(|(set, fits)| match fits {
            Fits::Nodes(_, sum) => *sum >= i128::from(set.count),
            Fits::Groups(_, good) => {
                let replicas = set.exclusive.map_or(1, |(_, replicas)| replicas);
                i64::try_from(good.len()).unwrap_or(i64::MAX) >= replicas
            }
            Fits::Nothing => false,
        });
        if !each || self.needs.len() == 1 {
            return each;
        }
        let mark = room.mark();
        let all = room.place(self.needs, None);
        room.undo(mark);
        all
    }
}

/// Whether a group is whole and free, and has room for one replica.
fn is_good(room: &FreeCapacity<'_>, set: &SetNeeds<'_>, label: usize, group: usize, replicas: i64) -> bool {
    if !room.open[label].contains(&group) {
        return false;
    }
    let wanted = i128::from(per_replica(set, replicas));
    let usable = room.groups[label].all[group].nodes.iter().filter(|node| set.nodes.contains(**node));
    usable.map(|node| room.fit(set, *node, wanted)).sum::<i128>() >= wanted
}
