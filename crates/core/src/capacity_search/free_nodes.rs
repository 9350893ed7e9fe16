//! The free part of the nodes, and whether pods fit there: first fit by number, whole groups for the workloads that take them.
//!
//! All trial changes are recorded and can be undone: nothing is copied. Full nodes are skipped: groups that are taken, and the nodes at the beginning
//! that have no room for such a pod. The nodes that a search visits are counted, so that it ends; those that were only compared with the usage of a
//! pod, which is fast, are counted separately.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use super::columns::{Columns, LastColumns};
use super::needs::{NodeGroups, SetNeeds};
use super::node_set::NodeSet;
use crate::intern::PODS;
use crate::{Amount, Name};

/// A group of nodes: the positions of its label and of itself.
pub(super) type GroupAt = (usize, usize);

/// The usage of a workload on the nodes.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// Which of [`FreeNodes::amounts`].
    amounts: Range<usize>,
    /// Which of [`FreeNodes::owned`].
    groups: Range<usize>,
}

/// A resource of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    node: usize,
    column: usize,
}

/// A value before it was changed.
#[derive(Clone, Copy, Debug)]
enum Before {
    Free(Slot, i128),
    Occupied(GroupAt, usize),
}

/// The usage of one resource by a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Take {
    /// The column of the resource; `None` if no node says that it has any.
    column: Option<usize>,
    amount: i128,
    /// A node that does not say how much it has does not limit it.
    boundless: bool,
}

/// The usage of a pod.
pub(super) type Takes = SmallVec<[Take; 4]>;

/// The first node that may have room for a pod: those before it have none.
#[derive(Clone, Debug)]
struct First {
    /// The nodes that the pod may be on.
    among: Rc<NodeSet>,
    /// The usage of a pod.
    takes: Takes,
    node: usize,
    /// How many of the nodes that have more since were considered.
    seen: usize,
}

/// A point to which changes can be undone.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeMark(usize);

/// The free part of the nodes.
#[derive(Clone, Debug)]
pub(super) struct FreeNodes<'a> {
    /// The column of each resource.
    columns: Columns<'a>,
    /// How many nodes there are.
    nodes: usize,
    /// Node by node, the columns: what is free.
    free: Vec<i128>,
    /// Whether the node says that it has any.
    has: Vec<bool>,
    /// By workload.
    taken: Vec<Taken>,
    /// The usage of workloads: adjacent for one workload, and within that for one node.
    amounts: Vec<(Slot, i128)>,
    /// The groups that workloads have to themselves.
    owned: Vec<GroupAt>,
    pub(super) groups: &'a [NodeGroups<'a>],
    /// By label and group: how many workloads have it to themselves.
    occupied: Vec<Vec<usize>>,
    /// By label: the whole groups that no workload has to itself.
    pub(super) open: Vec<BTreeSet<usize>>,
    firsts: Vec<First>,
    /// The nodes whose free part grew, as often as it did.
    grown: Vec<usize>,
    before: Vec<Before>,
    steps: u64,
    compared: u64,
}

impl<'a> FreeNodes<'a> {
    /// Nodes that nothing has taken anything of, by what they have.
    pub(super) fn new(
        nodes: impl Iterator<Item = &'a BTreeMap<Name, i128>> + Clone,
        groups: &'a [NodeGroups<'a>],
    ) -> Self {
        let columns = Columns::of(nodes.clone());
        let (count, width) = (nodes.clone().count(), columns.count());
        let mut free = vec![0; count * width];
        let mut has = vec![false; count * width];
        let mut last = LastColumns::default();
        for (node, resources) in nodes.enumerate() {
            let own = last.next(&columns, resources.keys()).iter().zip(resources.values());
            for (at, amount) in own.filter_map(|(column, amount)| Some((node * width + (*column)?, amount))) {
                (free[at], has[at]) = (*amount, true);
            }
        }
        let open = |of: &NodeGroups<'_>| {
            let whole = of.all.iter().enumerate().filter(|(_, group)| group.whole);
            whole.map(|(at, _)| at).collect()
        };
        Self {
            columns,
            nodes: count,
            free,
            has,
            taken: Vec::new(),
            amounts: Vec::new(),
            owned: Vec::new(),
            groups,
            occupied: groups.iter().map(|of| vec![0; of.all.len()]).collect(),
            open: groups.iter().map(open).collect(),
            firsts: Vec::new(),
            grown: Vec::new(),
            before: Vec::new(),
            steps: 0,
            compared: 0,
        }
    }

    /// A pod of no workload takes this of a node.
    pub(super) fn add_other(&mut self, node: usize, requests: &[(Name, Amount)]) {
        for (resource, amount) in requests {
            if let Some(slot) = self.slot(node, resource) {
                let at = self.at(slot);
                self.free[at] -= exact(*amount);
            }
        }
    }

    /// The next workload, with the usage of its pods by node, and the labels by which it takes whole groups.
    pub(super) fn add_workload<'p>(
        &mut self,
        pods: impl Iterator<Item = (usize, &'p [(Name, Amount)])>,
        labels: &BTreeSet<&str>,
    ) {
        let (amounts, owned) = (self.amounts.len(), self.owned.len());
        let mut last = LastColumns::default();
        for (node, requests) in pods {
            let columns = last.next(&self.columns, requests.iter().map(|(resource, _)| resource));
            for (column, (_, amount)) in columns.iter().zip(requests) {
                if let Some(slot) = column.and_then(|column| self.slot_at(node, column)) {
                    self.amounts.push((slot, exact(*amount)));
                    let at = self.at(slot);
                    self.free[at] -= exact(*amount);
                }
            }
            for (label, groups) in self.groups.iter().enumerate() {
                if labels.contains(groups.label.as_str()) {
                    self.owned.extend(groups.of[node].map(|group| (label, group)));
                }
            }
        }
        self.amounts[amounts..].sort_by_key(|(slot, _)| slot.node);
        self.owned[owned..].sort_unstable();
        let mut own: SmallVec<[GroupAt; 4]> = self.owned.drain(owned..).collect();
        own.dedup();
        for group in own {
            self.owned.push(group);
            self.set_occupied(group, self.occupied[group.0][group.1] + 1);
        }
        self.taken.push(Taken { amounts: amounts..self.amounts.len(), groups: owned..self.owned.len() });
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }

    fn at(&self, slot: Slot) -> usize {
        slot.node * self.columns.count() + slot.column
    }

    fn slot(&self, node: usize, resource: &str) -> Option<Slot> {
        self.slot_at(node, self.columns.get(resource)?)
    }

    fn slot_at(&self, node: usize, column: usize) -> Option<Slot> {
        let slot = Slot { node, column };
        self.has[self.at(slot)].then_some(slot)
    }

    /// The usage of a pod with these requests.
    pub(super) fn takes(&self, per_pod: &[(Name, Amount)]) -> Takes {
        let take = |(resource, amount): &(Name, Amount)| Take {
            column: self.columns.get(resource),
            amount: exact(*amount),
            boundless: **resource == *PODS,
        };
        per_pod.iter().map(take).collect()
    }

    /// The point to which later changes can be undone.
    pub(super) fn mark(&self) -> FreeMark {
        FreeMark(self.before.len())
    }

    /// Undoes all changes since then.
    pub(super) fn undo(&mut self, mark: FreeMark) {
        while self.before.len() > mark.0 {
            match self.before.pop() {
                Some(Before::Free(slot, amount)) => self.set(slot, amount),
                Some(Before::Occupied(group, count)) => self.set_occupied(group, count),
                None => return,
            }
        }
    }

    /// The nodes that were changed since then.
    pub(super) fn changed_since(&self, mark: FreeMark) -> impl Iterator<Item = usize> {
        self.before.get(mark.0..).unwrap_or_default().iter().filter_map(|before| match before {
            Before::Free(slot, _) => Some(slot.node),
            Before::Occupied(..) => None,
        })
    }

    /// All changes stay. Earlier marks are invalid.
    pub(super) fn keep(&mut self) {
        self.before.clear();
    }

    /// How many nodes searches have put pods on, and how much of workloads they have moved.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// How many nodes and workloads searches have only compared with what they look for.
    pub(super) fn compared(&self) -> u64 {
        self.compared
    }

    /// Counts the work of a search.
    pub(super) fn count(&mut self, steps: usize) {
        self.steps += steps as u64;
    }

    /// Counts nodes, or workloads, that were only compared.
    pub(super) fn count_compared(&mut self, compared: usize) {
        self.compared += compared as u64;
    }

    fn change(&mut self, slot: Slot, by: i128) {
        let amount = self.free[self.at(slot)];
        self.before.push(Before::Free(slot, amount));
        self.set(slot, amount + by);
    }

    fn set(&mut self, slot: Slot, amount: i128) {
        let at = self.at(slot);
        let before = std::mem::replace(&mut self.free[at], amount);
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
    fn first(&mut self, set: &SetNeeds<'_>, takes: &Takes) -> usize {
        let same = |first: &First| Rc::ptr_eq(&first.among, &set.nodes) && first.takes == *takes;
        let at = self.firsts.iter().position(same).unwrap_or_else(|| {
            let (among, takes) = (Rc::clone(&set.nodes), takes.clone());
            self.firsts.push(First { among, takes, node: 0, seen: self.grown.len() });
            self.firsts.len() - 1
        });
        let first = &mut self.firsts[at];
        let since = self.grown[first.seen..].iter().copied().min();
        first.node = since.map_or(first.node, |since| first.node.min(since));
        first.seen = self.grown.len();
        at
    }

    /// The position of a label that makes groups.
    pub(super) fn label(&self, label: &str) -> Option<usize> {
        self.groups.iter().position(|groups| groups.label == label)
    }

    /// The pods of a workload are back.
    pub(super) fn take(&mut self, workload: usize) {
        self.shift(workload, -1);
    }

    /// The pods of a workload are gone.
    pub(super) fn release(&mut self, workload: usize) {
        self.shift(workload, 1);
    }

    fn shift(&mut self, workload: usize, sign: i128) {
        let Some(Taken { amounts, groups }) = self.taken.get(workload).cloned() else { return };
        self.count(amounts.len());
        for at in amounts {
            let (slot, amount) = self.amounts[at];
            self.change(slot, sign * amount);
        }
        for at in groups {
            self.occupy(self.owned[at], |count| if sign < 0 { count + 1 } else { count.saturating_sub(1) });
        }
    }

    /// The nodes that a workload has something of, in order.
    pub(super) fn nodes_of(&self, workload: usize) -> SmallVec<[usize; 4]> {
        let amounts = self.taken.get(workload).map_or(&[][..], |taken| &self.amounts[taken.amounts.clone()]);
        let mut nodes: SmallVec<_> = amounts.iter().map(|(slot, _)| slot.node).collect();
        nodes.dedup();
        nodes
    }

    /// The groups that a workload has to itself.
    pub(super) fn groups_of(&self, workload: usize) -> &[GroupAt] {
        self.taken.get(workload).map_or(&[], |taken| &self.owned[taken.groups.clone()])
    }

    /// How many pods a node has room for, `most` at most.
    pub(super) fn fit(&self, takes: &Takes, node: usize, most: i64) -> i64 {
        let row = node * self.columns.count();
        let mut fit = i128::from(most);
        for take in takes {
            match take.column.filter(|column| self.has[row + column]) {
                Some(column) => fit = fit.min(self.free[row + column].max(0) / take.amount.max(1)),
                None if take.boundless => {}
                None => return 0,
            }
        }
        // It is at most `most`.
        i64::try_from(fit).unwrap_or(most)
    }

    /// Finds nodes for all pods and takes them; changes nothing if there are none.
    pub(super) fn place(&mut self, needs: &[SetNeeds<'_>], among: Option<&NodeSet>) -> bool {
        let mark = self.mark();
        let all = needs.iter().all(|set| {
            let takes = self.takes(set.per_pod);
            if let Some((label, replicas)) = set.exclusive {
                return self.place_in_groups(set, &takes, (label, replicas), among);
            }
            match among {
                Some(among) => {
                    let usable = among.iter().filter(|node| set.nodes.contains(*node));
                    self.place_on(&takes, usable, set.count)
                }
                None => self.place_anywhere(set, &takes),
            }
        });
        if !all {
            self.undo(mark);
        }
        all
    }

    /// Puts the pods of a set on the first of its nodes that have room.
    fn place_anywhere(&mut self, set: &SetNeeds<'_>, takes: &Takes) -> bool {
        let at = self.first(set, takes);
        let mut left = set.count;
        // Each node takes as many as it can: those before the last have no room for one more.
        let mut last = self.nodes;
        for node in set.nodes.from(self.firsts[at].node) {
            left -= self.place_on_node(takes, node, left);
            if left == 0 {
                last = node;
                break;
            }
        }
        self.firsts[at].node = last;
        left == 0
    }

    /// Puts as many pods on a node as it takes, `most` at most.
    fn place_on_node(&mut self, takes: &Takes, node: usize, most: i64) -> i64 {
        let fit = self.fit(takes, node, most);
        self.count_compared(1);
        if fit <= 0 {
            return 0;
        }
        self.count(1);
        for take in takes {
            let slot = take.column.map(|column| Slot { node, column });
            if let Some(slot) = slot.filter(|slot| self.has[self.at(*slot)]) {
                self.change(slot, -(take.amount * i128::from(fit)));
            }
        }
        fit
    }

    /// Puts `count` pods on these nodes, as many on each as it takes.
    pub(super) fn place_on(&mut self, takes: &Takes, nodes: impl Iterator<Item = usize>, count: i64) -> bool {
        let mut left = count;
        for node in nodes {
            left -= self.place_on_node(takes, node, left);
            if left == 0 {
                return true;
            }
        }
        left == 0
    }

    /// Gives each replica a whole group that no other workload has.
    fn place_in_groups(
        &mut self,
        set: &SetNeeds<'_>,
        takes: &Takes,
        (label, replicas): (&str, i64),
        among: Option<&NodeSet>,
    ) -> bool {
        let Some(label) = self.label(label) else { return false };
        let groups = &self.groups[label];
        let per_replica = set.per_replica(replicas);
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
            if self.place_on(takes, members, per_replica) {
                self.occupy((label, group), |count| count + 1);
                left -= 1;
            } else {
                self.undo(mark);
            }
        }
        left == 0
    }
}

/// An amount as an exact number.
fn exact(amount: Amount) -> i128 {
    i128::from(amount.get())
}

#[cfg(test)]
mod tests;
