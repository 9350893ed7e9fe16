//! What is free on the nodes, and whether pods fit there: first fit by name, whole groups for those who take them.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::{Name, WorkloadKey};

use super::capacity::Groups;
use super::needs::SetNeeds;
use super::scene::{Scene, exact};

/// What a Workload has on the nodes.
#[derive(Clone, Debug, Default)]
struct Taken<'a> {
    /// Amounts by node.
    amounts: Vec<(&'a str, &'a Name, i128)>,
    /// Groups that it has to itself: label and value.
    groups: BTreeSet<(&'a str, &'a str)>,
}

/// What is free on the nodes.
#[derive(Clone, Debug)]
pub(crate) struct Room<'a> {
    free: BTreeMap<&'a str, BTreeMap<&'a Name, i128>>,
    taken: BTreeMap<&'a WorkloadKey, Taken<'a>>,
    groups: &'a BTreeMap<String, Groups<'a>>,
    /// Groups that somebody has to himself.
    occupied: BTreeMap<(&'a str, &'a str), usize>,
}

impl<'a> Room<'a> {
    /// What the pods of a scene leave. `exclusive` names the labels by which a Workload takes whole groups.
    pub fn of(
        scene: &'a Scene<'a>,
        groups: &'a BTreeMap<String, Groups<'a>>,
        exclusive: impl Fn(&WorkloadKey) -> BTreeSet<String>,
    ) -> Self {
        let free = scene.nodes.iter().map(|(name, seen)| {
            (*name, seen.allocatable.iter().map(|(resource, amount)| (resource, *amount)).collect())
        });
        let mut room =
            Self { free: free.collect(), taken: BTreeMap::new(), groups, occupied: BTreeMap::new() };
        for pod in &scene.others {
            for (resource, amount) in &pod.requests {
                room.change(&pod.node, resource, -exact(*amount));
            }
        }
        for (key, pods) in &scene.of_workload {
            let keys = exclusive(key);
            let mut taken = Taken::default();
            for pod in pods {
                for (resource, amount) in &pod.requests {
                    taken.amounts.push((&pod.node, resource, exact(*amount)));
                }
                for (label, groups) in groups.iter().filter(|(label, _)| keys.contains(*label)) {
                    let of_node = groups.nodes.iter().find(|(_, all)| all.contains(&&*pod.node));
                    taken.groups.extend(of_node.map(|(value, _)| (label.as_str(), *value)));
                }
            }
            room.taken.insert(key, taken);
            room.take(key);
        }
        room
    }

    fn change(&mut self, node: &str, resource: &Name, by: i128) {
        if let Some(amount) = self.free.get_mut(node).and_then(|free| free.get_mut(resource)) {
            *amount += by;
        }
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
        let Some(taken) = self.taken.get(key).cloned() else { return };
        for (node, resource, amount) in taken.amounts {
            self.change(node, resource, sign * amount);
        }
        for group in taken.groups {
            let count = self.occupied.entry(group).or_default();
            *count = if sign < 0 { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// Finds nodes for all pods and takes them; changes nothing if there are none.
    pub fn place(&mut self, needs: &[SetNeeds<'_>], among: Option<&BTreeSet<&str>>) -> bool {
        let mut trial = self.clone();
        let all = needs.iter().all(|set| {
            if let Some((label, replicas)) = &set.exclusive {
                return trial.place_in_groups(set, label, *replicas, among);
            }
            let nodes: Vec<&str> = set.nodes.iter().copied().collect();
            trial.place_on(set, &nodes, set.count, among)
        });
        if all {
            *self = trial;
        }
        all
    }

    /// Puts `count` pods on these nodes, as many on each as it takes.
    fn place_on(
        &mut self,
        set: &SetNeeds<'_>,
        nodes: &[&str],
        count: i64,
        among: Option<&BTreeSet<&str>>,
    ) -> bool {
        let mut left = i128::from(count);
        for node in nodes.iter().filter(|node| among.is_none_or(|among| among.contains(**node))) {
            let Some(free) = self.free.get_mut(*node) else { continue };
            let fit = set.per_pod.iter().map(|(resource, amount)| match free.get(resource) {
                Some(free) => free.max(&0) / exact(*amount).max(1),
                // A node that does not say how many pods it takes does not limit them.
                None if **resource == *super::pods::PODS => left,
                None => 0,
            });
            let fit = fit.min().unwrap_or(left).min(left);
            for (resource, amount) in &set.per_pod {
                if let Some(free) = free.get_mut(resource) {
                    *free -= exact(*amount) * fit;
                }
            }
            left -= fit;
            if left == 0 {
                return true;
            }
        }
        left == 0
    }

    /// Gives each replica a whole group that nobody else has.
    fn place_in_groups(
        &mut self,
        set: &SetNeeds<'_>,
        label: &str,
        replicas: i64,
        among: Option<&BTreeSet<&str>>,
    ) -> bool {
        let Some((label, groups)) = self.groups.get_key_value(label) else { return false };
        let label = label.as_str();
        let per_replica = set.count / replicas + i64::from(set.count % replicas != 0);
        let mut left = replicas;
        for (value, members) in &groups.nodes {
            let group = (label, *value);
            if left == 0 {
                break;
            }
            if !groups.whole.contains(value) || self.occupied.get(&group).is_some_and(|count| *count > 0) {
                continue;
            }
            let usable: Vec<&str> = members.iter().copied().filter(|node| set.nodes.contains(node)).collect();
            let mut trial = self.clone();
            if trial.place_on(set, &usable, per_replica, among) {
                *trial.occupied.entry(group).or_default() += 1;
                *self = trial;
                left -= 1;
            }
        }
        left == 0
    }
}
