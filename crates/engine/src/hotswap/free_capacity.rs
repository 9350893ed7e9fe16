//! What is free on the nodes, and whether pods fit there: first fit by name, whole groups for those Workloads that take them.
//!
//! Everything that is tried is noted and can be undone: nothing is copied. What is full is passed over: groups that are taken, and the nodes
//! at the beginning that have no room for such a pod. The nodes that a search looks at are counted, so that it has an end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;

use sluice_core::{Amount, Name, WorkloadKey};

use super::capacity::Groups;
use super::needs::SetNeeds;
use super::snapshot::{Snapshot, exact};

pub(crate) use probe::Probe;

/// The label and value of a group of nodes.
type Group<'a> = (&'a str, &'a str);

/// What a Workload has on the nodes.
#[derive(Clone, Debug, Default)]
struct Taken<'a> {
    /// Amounts: which of the free ones, and how much.
    amounts: Vec<(Slot, i128)>,
    /// The nodes of its pods.
    nodes: BTreeSet<&'a str>,
    /// Groups that it has to itself.
    groups: BTreeSet<Group<'a>>,
}

/// A resource of a node: the positions of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    node: usize,
    resource: usize,
}

/// A value before it was changed.
#[derive(Clone, Debug)]
enum Before<'a> {
    Free(Slot, i128),
    Occupied(Group<'a>, usize),
}

/// The first node that may have room for a pod: those before it have none.
#[derive(Clone, Debug)]
struct First<'a> {
    /// The nodes that the pod may be on.
    among: Rc<BTreeSet<&'a str>>,
    /// What it takes.
    per_pod: Vec<(Name, Amount)>,
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
    /// The positions of the nodes.
    nodes: BTreeMap<&'a str, usize>,
    /// The names at these.
    names: Vec<&'a str>,
    /// By node: its resources.
    free: Vec<Vec<(&'a Name, i128)>>,
    taken: BTreeMap<&'a WorkloadKey, Taken<'a>>,
    pub(super) groups: &'a BTreeMap<String, Groups<'a>>,
    /// Groups that one Workload has to itself.
    occupied: BTreeMap<Group<'a>, usize>,
    /// By label: the whole groups that no Workload has to itself.
    open: BTreeMap<&'a str, BTreeSet<&'a str>>,
    firsts: Vec<First<'a>>,
    /// The nodes of which more became free, as often as it did.
    grown: Vec<usize>,
    before: Vec<Before<'a>>,
    steps: u64,
}

impl<'a> FreeCapacity<'a> {
    /// What the pods of a snapshot leave. `exclusive` names the labels by which a Workload takes whole groups.
    pub fn of(
        snapshot: &'a Snapshot<'a>,
        groups: &'a BTreeMap<String, Groups<'a>>,
        exclusive: impl Fn(&WorkloadKey) -> BTreeSet<&'a str>,
    ) -> Self {
        let mut room = Self {
            nodes: snapshot.nodes.keys().enumerate().map(|(at, name)| (*name, at)).collect(),
            names: snapshot.nodes.keys().copied().collect(),
            free: snapshot
                .nodes
                .values()
                .map(|seen| seen.allocatable.iter().map(|(r, a)| (r, *a)).collect())
                .collect(),
            taken: BTreeMap::new(),
            groups,
            occupied: BTreeMap::new(),
            open: groups.iter().map(|(label, groups)| (label.as_str(), groups.whole.clone())).collect(),
            firsts: Vec::new(),
            grown: Vec::new(),
            before: Vec::new(),
            steps: 0,
        };
        for pod in &snapshot.others {
            let Some(&node) = room.nodes.get(&*pod.node) else { continue };
            for (resource, amount) in &pod.requests {
                if let Some(place) = room.slot(node, resource) {
                    room.free[place.node][place.resource].1 -= exact(*amount);
                }
            }
        }
        for (key, pods) in &snapshot.of_workload {
            let keys = exclusive(key);
            let mut taken = Taken::default();
            for pod in pods {
                taken.nodes.insert(&pod.node);
                let Some(&node) = room.nodes.get(&*pod.node) else { continue };
                for (resource, amount) in &pod.requests {
                    taken.amounts.extend(room.slot(node, resource).map(|place| (place, exact(*amount))));
                }
                for (label, groups) in groups.iter().filter(|(label, _)| keys.contains(label.as_str())) {
                    taken.groups.extend(groups.of.get(&*pod.node).map(|value| (label.as_str(), *value)));
                }
            }
            room.shift_by(&taken, -1);
            room.taken.insert(key, taken);
        }
        room.keep();
        room
    }

    fn slot(&self, node: usize, resource: &Name) -> Option<Slot> {
        let resource = self.free[node].iter().position(|(name, _)| *name == resource)?;
        Some(Slot { node, resource })
    }

    /// The point to which later changes can be undone.
    pub fn mark(&self) -> Mark {
        Mark(self.before.len())
    }

    /// Undoes all changes since then.
    pub fn undo(&mut self, mark: Mark) {
        while self.before.len() > mark.0 {
            match self.before.pop() {
                Some(Before::Free(place, amount)) => self.set(place, amount),
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

    fn change(&mut self, place: Slot, by: i128) {
        let amount = self.free[place.node][place.resource].1;
        self.before.push(Before::Free(place, amount));
        self.set(place, amount + by);
    }

    fn set(&mut self, place: Slot, amount: i128) {
        let before = std::mem::replace(&mut self.free[place.node][place.resource].1, amount);
        if amount > before {
            self.grown.push(place.node);
        }
    }

    fn occupy(&mut self, group: Group<'a>, by: impl Fn(usize) -> usize) {
        let count = self.occupied.get(&group).copied().unwrap_or_default();
        self.before.push(Before::Occupied(group, count));
        self.set_occupied(group, by(count));
    }

    fn set_occupied(&mut self, group: Group<'a>, count: usize) {
        self.occupied.insert(group, count);
        let (label, value) = group;
        let whole = self.groups.get(label).is_some_and(|groups| groups.whole.contains(value));
        if let Some(open) = self.open.get_mut(label).filter(|_| whole) {
            if count > 0 {
                open.remove(value);
            } else {
                open.insert(value);
            }
        }
    }

    /// Which of `firsts` says where the search for nodes for the pods of a set begins; it is up to date.
    fn first(&mut self, set: &SetNeeds<'a>) -> usize {
        let same = |first: &First<'a>| Rc::ptr_eq(&first.among, &set.nodes) && first.per_pod == set.per_pod;
        let at = self.firsts.iter().position(same).unwrap_or_else(|| {
            let (among, per_pod) = (Rc::clone(&set.nodes), set.per_pod.clone());
            self.firsts.push(First { among, per_pod, node: 0, seen: self.grown.len() });
            self.firsts.len() - 1
        });
        let first = &mut self.firsts[at];
        let since = self.grown[first.seen..].iter().copied().min();
        first.node = since.map_or(first.node, |since| first.node.min(since));
        first.seen = self.grown.len();
        at
    }

    /// Whether one Workload has the group to itself.
    fn is_occupied(&self, group: Group<'a>) -> bool {
        self.occupied.get(&group).is_some_and(|count| *count > 0)
    }

    /// The pods of a Workload are there.
    pub fn take(&mut self, key: &WorkloadKey) {
        self.shift(key, -1);
    }

    /// The pods of a Workload are gone.
    pub fn release(&mut self, key: &WorkloadKey) {
        self.shift(key, 1);
    }

    fn shift(&mut self, key: &WorkloadKey, sign: i128) {
        let Some(taken) = self.taken.remove_entry(key) else { return };
        self.shift_by(&taken.1, sign);
        self.taken.insert(taken.0, taken.1);
    }

    fn shift_by(&mut self, taken: &Taken<'a>, sign: i128) {
        self.count(taken.amounts.len());
        for (place, amount) in &taken.amounts {
            self.change(*place, sign * amount);
        }
        for group in &taken.groups {
            self.occupy(*group, |count| if sign < 0 { count + 1 } else { count.saturating_sub(1) });
        }
    }

    /// How many pods of a set a node has room for, `most` at most.
    fn fit(&self, set: &SetNeeds<'_>, node: usize, most: i128) -> i128 {
        let free = &self.free[node];
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
    pub fn place(&mut self, needs: &[SetNeeds<'a>], among: Option<&BTreeSet<&str>>) -> bool {
        let mark = self.mark();
        let all = needs.iter().all(|set| {
            if let Some((label, replicas)) = &set.exclusive {
                return self.place_in_groups(set, label, *replicas, among);
            }
            match among {
                Some(among) => {
                    let usable = among.iter().filter(|node| set.nodes.contains(**node)).copied();
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
        let Some(from) = self.names.get(self.firsts[at].node).copied() else { return set.count <= 0 };
        let mut left = i128::from(set.count);
        // Each node takes what it can: those before the last have no room for one more.
        let mut last = self.names.len();
        for name in set.nodes.range::<&str, _>(from..) {
            self.count(1);
            let Some(&node) = self.nodes.get(name) else { continue };
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
    pub fn place_on<'n>(
        &mut self,
        set: &SetNeeds<'_>,
        nodes: impl Iterator<Item = &'n str>,
        count: i64,
    ) -> bool {
        let mut left = i128::from(count);
        for node in nodes {
            self.count(1);
            let Some(&node) = self.nodes.get(node) else { continue };
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
        among: Option<&BTreeSet<&str>>,
    ) -> bool {
        let Some((label, groups)) = self.groups.get_key_value(label) else { return false };
        let label = label.as_str();
        let per_replica = per_replica(set, replicas);
        let mut left = replicas;
        let mut some: BTreeSet<&'a str> = match among {
            Some(among) => among.iter().filter_map(|node| groups.of.get(node).copied()).collect(),
            None => BTreeSet::new(),
        };
        let mut last = None;
        while left > 0 {
            let value = if among.is_some() {
                some.pop_first()
            } else {
                let rest = (last.map_or(Unbounded, Excluded), Unbounded);
                self.open.get(label).and_then(|open| open.range::<&str, _>(rest).next()).copied()
            };
            let Some(value) = value else { break };
            last = Some(value);
            let group = (label, value);
            self.count(1);
            if !groups.whole.contains(value) || self.is_occupied(group) {
                continue;
            }
            let usable =
                |node: &&&str| set.nodes.contains(**node) && among.is_none_or(|among| among.contains(**node));
            let members = groups.nodes[value].iter().filter(usable).copied();
            let mark = self.mark();
            if self.place_on(set, members, per_replica) {
                self.occupy(group, |count| count + 1);
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
