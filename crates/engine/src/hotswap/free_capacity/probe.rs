//! Whether pods fit, kept up to date while Workloads go and come back.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::WorkloadKey;

use super::{FreeCapacity, per_replica};
use crate::hotswap::needs::SetNeeds;

/// What nodes have room for of some pods, kept up to date while Workloads go and come back: whether all fit need not be tried on all
/// nodes each time.
pub(crate) struct Probe<'n, 'a> {
    needs: &'n [SetNeeds<'a>],
    sets: Vec<Fits<'a>>,
}

/// What there is room for of one set.
enum Fits<'a> {
    /// By node, and in all.
    Nodes(BTreeMap<usize, i128>, i128),
    /// The groups that one replica each fits into.
    Groups(&'a str, BTreeSet<&'a str>),
}

impl<'n, 'a> Probe<'n, 'a> {
    /// What there is room for now.
    pub fn of(room: &mut FreeCapacity<'a>, needs: &'n [SetNeeds<'a>]) -> Self {
        let mut sets = Vec::new();
        for set in needs {
            sets.push(match &set.exclusive {
                None => {
                    let most = i128::from(set.count);
                    let fits = set.nodes.iter().filter_map(|node| {
                        let node = *room.nodes.get(node)?;
                        Some((node, room.fit(set, node, most)))
                    });
                    let fits: BTreeMap<usize, i128> = fits.collect();
                    room.count(set.nodes.len());
                    let sum = fits.values().sum();
                    Fits::Nodes(fits, sum)
                }
                Some((label, replicas)) => match room.groups.get_key_value(label.as_str()) {
                    None => Fits::Groups("", BTreeSet::new()),
                    Some((label, groups)) => {
                        let open = || room.open.get(label.as_str()).into_iter().flatten().copied();
                        let good = open().filter(|value| is_good(room, set, label, value, *replicas));
                        let good = good.collect();
                        let looked = open().map(|value| groups.nodes[value].len()).sum();
                        room.count(looked);
                        Fits::Groups(label, good)
                    }
                },
            });
        }
        Self { needs, sets }
    }

    /// A Workload went, or came back.
    pub fn changed(&mut self, room: &mut FreeCapacity<'a>, key: &WorkloadKey) {
        let Some(taken) = room.taken.get(key) else { return };
        let mut nodes: Vec<usize> = taken.amounts.iter().map(|(place, _)| place.node).collect();
        nodes.dedup();
        for (set, fits) in self.needs.iter().zip(&mut self.sets) {
            match fits {
                Fits::Nodes(by_node, sum) => {
                    for node in &nodes {
                        if let Some(fit) = by_node.get_mut(node) {
                            let now = room.fit(set, *node, i128::from(set.count));
                            *sum += now - *fit;
                            *fit = now;
                        }
                    }
                }
                Fits::Groups(label, good) => {
                    let Some(groups) = room.groups.get(*label) else { continue };
                    let replicas = set.exclusive.as_ref().map_or(1, |(_, replicas)| *replicas);
                    let of_nodes = taken.nodes.iter().filter_map(|node| groups.of.get(node).copied());
                    let of_itself =
                        taken.groups.iter().filter(|(of, _)| of == label).map(|(_, value)| *value);
                    let values: BTreeSet<&'a str> = of_nodes.chain(of_itself).collect();
                    for value in values.into_iter().filter(|value| groups.whole.contains(value)) {
                        if is_good(room, set, label, value, replicas) {
                            good.insert(value);
                        } else {
                            good.remove(value);
                        }
                    }
                }
            }
        }
        room.count(nodes.len());
    }

    /// Whether all fit. Several sets are tried, as they take from each other.
    pub fn fits(&self, room: &mut FreeCapacity<'a>) -> bool {
        let each = self.needs.iter().zip(&self.sets).all(|(set, fits)| match fits {
            Fits::Nodes(_, sum) => *sum >= i128::from(set.count),
            Fits::Groups(_, good) => {
                let replicas = set.exclusive.as_ref().map_or(1, |(_, replicas)| *replicas);
                i64::try_from(good.len()).unwrap_or(i64::MAX) >= replicas
            }
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

/// Whether a group is free and has room for one replica.
fn is_good<'a>(
    room: &FreeCapacity<'a>,
    set: &SetNeeds<'_>,
    label: &'a str,
    value: &'a str,
    replicas: i64,
) -> bool {
    if room.is_occupied((label, value)) {
        return false;
    }
    let wanted = i128::from(per_replica(set, replicas));
    let members = room.groups.get(label).and_then(|groups| groups.nodes.get(value)).into_iter().flatten();
    let usable = members.filter(|node| set.nodes.contains(**node)).filter_map(|node| room.nodes.get(node));
    usable.map(|node| room.fit(set, *node, wanted)).sum::<i128>() >= wanted
}
