//! Whether pods fit, updated while workloads are released and brought back.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::free_nodes::{FreeNodes, Takes};
use super::needs::SetNeeds;

/// How much room nodes have for some pods, updated while workloads are released and brought back: so whether all fit need not be tried on all nodes
/// each time.
pub(super) struct Probe<'n, 'a> {
    needs: &'n [SetNeeds<'a>],
    sets: SmallVec<[(Takes, Fits); 1]>,
}

/// The room for one set.
enum Fits {
    /// By node, if pods may be on it, and in all.
    Nodes(Vec<Option<i64>>, i128),
    /// The groups, by the label at this position, into which one replica fits, for this number of replicas.
    Groups(usize, i64, BTreeSet<usize>),
    /// No room.
    Nothing,
}

impl<'n, 'a> Probe<'n, 'a> {
    /// The current room.
    pub(super) fn of(room: &mut FreeNodes<'_>, needs: &'n [SetNeeds<'a>]) -> Self {
        let sets = needs.iter().map(|set| {
            let takes = room.takes(set.per_pod);
            let fits = Fits::of(room, set, &takes);
            (takes, fits)
        });
        Self { needs, sets: sets.collect() }
    }

    /// A workload went, or came back.
    pub(super) fn changed(&mut self, room: &mut FreeNodes<'_>, workload: usize) {
        let nodes = room.nodes_of(workload);
        for (set, (takes, fits)) in self.needs.iter().zip(&mut self.sets) {
            match fits {
                Fits::Nodes(by_node, sum) => {
                    for node in &nodes {
                        if let Some(fit) = &mut by_node[*node] {
                            let now = room.fit(takes, *node, set.count);
                            *sum += i128::from(now) - i128::from(*fit);
                            *fit = now;
                        }
                    }
                }
                Fits::Groups(label, replicas, good) => {
                    let groups = &room.groups[*label];
                    let of_nodes = nodes.iter().filter_map(|node| groups.of[*node]);
                    let own = room.groups_of(workload).iter().filter(|(of, _)| of == label);
                    let mut changed: SmallVec<[usize; 4]> =
                        of_nodes.chain(own.map(|(_, group)| *group)).collect();
                    changed.sort_unstable();
                    changed.dedup();
                    for group in changed {
                        if is_good(room, set, takes, (*label, group), *replicas) {
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

    /// Whether all fit. Several sets are tried, as they share nodes.
    pub(super) fn fits(&self, room: &mut FreeNodes<'_>) -> bool {
        let each = self.needs.iter().zip(&self.sets).all(|(set, (_, fits))| match fits {
            Fits::Nodes(_, sum) => *sum >= i128::from(set.count),
            Fits::Groups(_, replicas, good) => i64::try_from(good.len()).unwrap_or(i64::MAX) >= *replicas,
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

impl Fits {
    fn of(room: &mut FreeNodes<'_>, set: &SetNeeds<'_>, takes: &Takes) -> Self {
        let Some((label, replicas)) = set.exclusive else {
            let mut fits = vec![None; room.nodes()];
            let mut sum = 0;
            for node in set.nodes.iter() {
                let fit = room.fit(takes, node, set.count);
                fits[node] = Some(fit);
                sum += i128::from(fit);
            }
            room.count_compared(set.nodes.count());
            return Self::Nodes(fits, sum);
        };
        let Some(label) = room.label(label) else { return Self::Nothing };
        let open = || room.open[label].iter().copied();
        let good = open().filter(|group| is_good(room, set, takes, (label, *group), replicas)).collect();
        let looked = open().map(|group| room.groups[label].all[group].nodes.len()).sum();
        room.count_compared(looked);
        Self::Groups(label, replicas, good)
    }
}

/// Whether a group is whole and free, and has room for one of this number of replicas.
fn is_good(
    room: &FreeNodes<'_>,
    set: &SetNeeds<'_>,
    takes: &Takes,
    (label, group): (usize, usize),
    replicas: i64,
) -> bool {
    if !room.open[label].contains(&group) {
        return false;
    }
    let wanted = set.per_replica(replicas);
    let usable = room.groups[label].all[group].nodes.iter().filter(|node| set.nodes.contains(**node));
    usable.map(|node| i128::from(room.fit(takes, *node, wanted))).sum::<i128>() >= i128::from(wanted)
}
