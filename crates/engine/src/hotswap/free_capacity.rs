//! What is free on the nodes, and whether pods fit there: first fit by name, whole groups for those Workloads that take them.
//!
//! Everything that is tried is noted and can be undone: nothing is copied. What is full is passed over: groups that are taken, and the nodes
//! at the beginning that have no room for such a pod. The nodes that a search looks at are counted, so that it has an end.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use sluice_core::{Amount, Name};

use super::capacity::Groups;
use super::needs::SetNeeds;
use super::snapshot::{NodeSet, SeenNode, SeenPod, exact};

pub(crate) use probe::Probe;

/// A group of nodes: the positions of its label and of itself.
type GroupAt = (usize, usize);

/// What a Workload has on the nodes.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// Amounts: which of the free ones, and how much; those of one node come together.
    amounts: Vec<(Slot, i128)>,
    /// Groups that it has to itself.
    groups: Vec<GroupAt>,
}

/// A resource of a node: the number of the node, and the position of the resource among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    node: usize,
    at: usize,
}

/// A value before it was changed.
#[derive(Clone, Copy, Debug)]
enum Before {
    Free(Slot, i128),
    Occupied(GroupAt, usize),
}

/// The first node that may have room for a pod: those before it have none.
#[derive(Clone, Debug)]
struct First<'a> {
    /// The nodes that the pod may be on.
    among: Rc<NodeSet>,
    /// What it takes.
    per_pod: &'a [(Name, Amount)],
    node: usize,
    /// How many of the nodes that have more since were considered.
    seen: usize,
}

/// How far changes are to be undone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(usize);

/// What is free on the nodes.
#[derive(Clone, Debug)]
pub(crate) struct FreeCapacity<'a> {
    /// The resources of all nodes.
    free: Vec<(&'a Name, i128)>,
    /// By node: where its resources begin; and where those of the last end.
    begins: Vec<usize>,
    /// By Workload.
    taken: Vec<Taken>,
    groups: &'a [Groups<'a>],
    /// By label and group: how many Workloads have it to themselves.
    occupied: Vec<Vec<usize>>,
    /// By label: the whole groups that no Workload has to itself.
    open: Vec<BTreeSet<usize>>,
    firsts: Vec<First<'a>>,
    /// The nodes of which more became free, as often as it did.
    grown: Vec<usize>,
    before: Vec<Before>,
    steps: u64,
}

impl<'a> FreeCapacity<'a> {
    /// What pods leave of these nodes: those of Workloads, in their order, and `others`. With the pods of a Workload come the labels by
    /// which it takes whole groups.
    pub fn of<'s>(
        nodes: &[SeenNode<'a>],
        others: &[SeenPod<'_>],
        workloads: impl ExactSizeIterator<Item = (&'s [SeenPod<'s>], BTreeSet<&'s str>)>,
        groups: &'a [Groups<'a>],
    ) -> Self {
        let mut free = Vec::new();
        let mut begins = vec![0];
        for seen in nodes {
            free.extend(seen.allocatable.iter().map(|(resource, amount)| (resource, *amount)));
            begins.push(free.len());
        }
        let open = |of: &Groups<'_>| {
            let whole = of.all.iter().enumerate().filter(|(_, group)| group.whole);
            whole.map(|(at, _)| at).collect()
        };
        let mut room = Self {
            free,
            begins,
            taken: Vec::with_capacity(workloads.len()),
            groups,
            occupied: groups.iter().map(|of| vec![0; of.all.len()]).collect(),
            open: groups.iter().map(open).collect(),
            firsts: Vec::new(),
            grown: Vec::new(),
            before: Vec::new(),
            steps: 0,
        };
        for seen in others {
            let Some(node) = seen.node else { continue };
            for (resource, amount) in &seen.pod.requests {
                if let Some(slot) = room.slot(node, resource) {
                    room.free[slot.at].1 -= exact(*amount);
                }
            }
        }
        for (pods, labels) in workloads {
            let taken = room.taken_by(pods, &labels);
            room.shift_by(&taken, -1);
            room.taken.push(taken);
        }
        room.keep();
        room
    }

    /// What these pods take, of a Workload that takes whole groups by these labels.
    fn taken_by(&self, pods: &[SeenPod<'_>], labels: &BTreeSet<&str>) -> Taken {
        let mut taken = Taken::default();
        let all = || pods.iter().filter_map(|seen| Some((seen.pod, seen.node?)));
        taken.amounts.reserve(all().map(|(pod, _)| pod.requests.len()).sum());
        for (pod, node) in all() {
            for (resource, amount) in &pod.requests {
                taken.amounts.extend(self.slot(node, resource).map(|slot| (slot, exact(*amount))));
            }
            for (label, groups) in self.groups.iter().enumerate() {
                if labels.contains(groups.label.as_str()) {
                    taken.groups.extend(groups.of[node].map(|group| (label, group)));
                }
            }
        }
        taken.amounts.sort_by_key(|(slot, _)| slot.node);
        taken.groups.sort_unstable();
        taken.groups.dedup();
        taken
    }

    /// The free resources of a node.
    fn free_of(&self, node: usize) -> &[(&'a Name, i128)] {
        &self.free[self.begins[node]..self.begins[node + 1]]
    }

    fn slot(&self, node: usize, resource: &Name) -> Option<Slot> {
        let resource = self.free_of(node).iter().position(|(name, _)| *name == resource)?;
        Some(Slot { node, at: self.begins[node] + resource })
    }

    /// The point to which later changes can be undone.
    pub fn mark(&self) -> Mark {
        Mark(self.before.len())
    }

    /// Undoes all changes since then.
    pub fn undo(&mut self, mark: Mark) {
        while self.before.len() > mark.0 {
            match self.before.pop() {
                Some(Before::Free(slot, amount)) => self.set(slot, amount),
                Some(Before::Occupied(group, count)) => self.set_occupied(group, count),
                None => return,
            }
        }
    }

    /// All changes stay. Marks that were made before mean nothing any more.
    pub fn keep(&mut self) {
        self.before.clear();
    }

    /// How many nodes and Workloads searches have looked at.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Counts the work of a search.
    pub fn count(&mut self, steps: usize) {
        self.steps += steps as u64;
    }

    fn change(&mut self, slot: Slot, by: i128) {
        let amount = self.free[slot.at].1;
        self.before.push(Before::Free(slot, amount));
        self.set(slot, amount + by);
    }

    fn set(&mut self, slot: Slot, amount: i128) {
        let before = std::mem::replace(&mut self.free[slot.at].1, amount);
        if amount > before {
            self.grown.push(slot.node);
        }
    }

    fn occupy(&mut self, group: GroupAt, by: impl Fn(usize) -> usize) {
        let count = self.occupied[group.0][group.1];
        self.before.push(Before::Occupied(group, count));
        self.set_occupied(group, by(count));
    }

    fn set_occupied(&mut self, (label, group): GroupAt, count: usize) {
        self.occupied[label][group] = count;
        if count > 0 {
            self.open[label].remove(&group);
        } else if self.groups[label].all[group].whole {
            self.open[label].insert(group);
        }
    }

    /// Which of `firsts` says where the search for nodes for the pods of a set begins; it is up to date.
    fn first(&mut self, set: &SetNeeds<'a>) -> usize {
        let same = |first: &First<'a>| Rc::ptr_eq(&first.among, &set.nodes) && first.per_pod == set.per_pod;
        let at = self.firsts.iter().position(same).unwrap_or_else(|| {
            let (among, per_pod) = (Rc::clone(&set.nodes), set.per_pod);
            self.firsts.push(First { among, per_pod, node: 0, seen: self.grown.len() });
            self.firsts.len() - 1
        });
        let first = &mut self.firsts[at];
        let since = self.grown[first.seen..].iter().copied().min();
        first.node = since.map_or(first.node, |since| first.node.min(since));
        first.seen = self.grown.len();
        at
    }

    /// The position of a label that makes groups.
    fn label(&self, label: &str) -> Option<usize> {
        self.groups.iter().position(|groups| groups.label == label)
    }

    /// The pods of a Workload are there.
    pub fn take(&mut self, workload: usize) {
        self.shift(workload, -1);
    }

    /// The pods of a Workload are gone.
    pub fn release(&mut self, workload: usize) {
        self.shift(workload, 1);
    }

    fn shift(&mut self, workload: usize, sign: i128) {
        let Some(taken) = self.taken.get_mut(workload).map(std::mem::take) else { return };
        self.shift_by(&taken, sign);
        self.taken[workload] = taken;
    }

    fn shift_by(&mut self, taken: &Taken, sign: i128) {
        self.count(taken.amounts.len());
        for (slot, amount) in &taken.amounts {
            self.change(*slot, sign * amount);
        }
        for group in &taken.groups {
            self.occupy(*group, |count| if sign < 0 { count + 1 } else { count.saturating_sub(1) });
        }
    }

    /// How many pods of a set a node has room for, `most` at most.
    fn fit(&self, set: &SetNeeds<'_>, node: usize, most: i128) -> i128 {
        let free = self.free_of(node);
        let fit = set.per_pod.iter().map(|(resource, amount)| {
            match free.iter().find(|(name, _)| *name == resource) {
                Some((_, free)) => free.max(&0) / exact(*amount).max(1),
                // A node that does not say how many pods it takes does not limit them.
                None if **resource == *super::pod::PODS => most,
                None => 0,
            }
        });
        fit.min().unwrap_or(most).min(most)
    }

    /// Finds nodes for all pods and takes them; changes nothing if there are none.
    pub fn place(&mut self, needs: &[SetNeeds<'a>], among: Option<&NodeSet>) -> bool {
        let mark = self.mark();
        let all = needs.iter().all(|set| {
            if let Some((label, replicas)) = set.exclusive {
                return self.place_in_groups(set, label, replicas, among);
            }
            match among {
                Some(among) => {
                    let usable = among.iter().filter(|node| set.nodes.contains(*node));
                    self.place_on(set, usable, set.count)
                }
                None => self.place_anywhere(set),
            }
        });
        if !all {
            self.undo(mark);
        }
        all
    }

    /// Puts the pods of a set on the first of its nodes that have room.
    fn place_anywhere(&mut self, set: &SetNeeds<'a>) -> bool {
        let at = self.first(set);
        let mut left = i128::from(set.count);
        // Each node takes what it can: those before the last have no room for one more.
        let mut last = self.begins.len() - 1;
        for node in set.nodes.from(self.firsts[at].node) {
            self.count(1);
            left -= self.place_on_node(set, node, left);
            if left == 0 {
                last = node;
                break;
            }
        }
        self.firsts[at].node = last;
        left == 0
    }

    /// Puts as many pods on a node as it takes, `most` at most.
    fn place_on_node(&mut self, set: &SetNeeds<'_>, node: usize, most: i128) -> i128 {
        let fit = self.fit(set, node, most);
        for (resource, amount) in set.per_pod.iter().filter(|_| fit > 0) {
            if let Some(slot) = self.slot(node, resource) {
                self.change(slot, -(exact(*amount) * fit));
            }
        }
        fit
    }

    /// Puts `count` pods on these nodes, as many on each as it takes.
    pub fn place_on(&mut self, set: &SetNeeds<'_>, nodes: impl Iterator<Item = usize>, count: i64) -> bool {
        let mut left = i128::from(count);
        for node in nodes {
            self.count(1);
            left -= self.place_on_node(set, node, left);
            if left == 0 {
                return true;
            }
        }
        left == 0
    }

    /// Gives each replica a whole group that no other Workload has.
    fn place_in_groups(
        &mut self,
        set: &SetNeeds<'_>,
        label: &str,
        replicas: i64,
        among: Option<&NodeSet>,
    ) -> bool {
        let Some(label) = self.label(label) else { return false };
        let groups = &self.groups[label];
        let per_replica = per_replica(set, replicas);
        let mut left = replicas;
        let mut some: BTreeSet<usize> = match among {
            Some(among) => among.iter().filter_map(|node| groups.of[node]).collect(),
            None => BTreeSet::new(),
        };
        let mut last = None;
        while left > 0 {
            let group = if among.is_some() {
                some.pop_first()
            } else {
                self.open[label].range((last.map_or(Unbounded, Excluded), Unbounded)).next().copied()
            };
            let Some(group) = group else { break };
            last = Some(group);
            self.count(1);
            if !self.open[label].contains(&group) {
                continue;
            }
            let usable =
                |node: &usize| set.nodes.contains(*node) && among.is_none_or(|among| among.contains(*node));
            let members = groups.all[group].nodes.iter().copied().filter(usable);
            let mark = self.mark();
            if self.place_on(set, members, per_replica) {
                self.occupy((label, group), |count| count + 1);
                left -= 1;
            } else {
                self.undo(mark);
            }
        }
        left == 0
    }
}

/// How many pods of a set one group takes.
fn per_replica(set: &SetNeeds<'_>, replicas: i64) -> i64 {
    set.count / replicas + i64::from(set.count % replicas != 0)
}

mod probe;
#[cfg(test)]
mod tests;
