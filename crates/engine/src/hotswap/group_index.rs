//! The groups that labels make of nodes, and announced maintenances, kept while nodes come, change and go: what a node changes about its group is found
//! without a pass over the others.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::config::Hotswap;
use sluice_api::slim;
use sluice_core::{HOSTNAME, Name};

use super::matching::label;
use super::pod::Allocatable;
use crate::world::nodes::Nodes;

/// Whether groups lack nodes that have fewer than a slice. Groups that are only parts of slices lack nothing: if several groups share a label, at least
/// one of them is a slice.
pub(super) fn are_sized(label: &str, groups: usize, any_is_slice: impl FnOnce() -> bool) -> bool {
    label != HOSTNAME && (groups == 1 || any_is_slice())
}

/// How many nodes the slice of a node has: the product of its topology (`4x4`) by what one node has of it.
pub(super) fn slice_size(node: &slim::Node, has: &Allocatable, config: &Hotswap) -> Option<usize> {
    let topology = node.metadata.labels.as_ref()?.get(&config.slice_topology_label)?;
    let sides: Option<Vec<i128>> = topology.split('x').map(|side| side.parse().ok()).collect();
    let all = sides?.into_iter().try_fold(1_i128, i128::checked_mul)?;
    let own = has.get(config.slice_resource.as_str()).copied().filter(|own| *own > 0)?;
    usize::try_from(all / own).ok()
}

/// The nodes with one value of a label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    /// Their names.
    pub(super) nodes: BTreeSet<Name>,
    /// How many nodes its slice has, by what the first of them says.
    pub(super) wanted: usize,
}

impl Group {
    fn is_slice(&self) -> bool {
        self.wanted > 1 && self.nodes.len() >= self.wanted
    }
}

/// The groups of one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Groups {
    by_value: BTreeMap<String, Group>,
    /// How many are slices of several nodes.
    slices: usize,
}

impl Groups {
    fn are_sized(&self, label: &str) -> bool {
        are_sized(label, self.by_value.len(), || self.slices > 0)
    }

    /// Changes the nodes of a group, and reads again how many it should have.
    fn change(
        &mut self,
        value: &str,
        (nodes, config): (&Nodes, &Hotswap),
        change: impl FnOnce(&mut BTreeSet<Name>),
    ) {
        let mut group = self.by_value.remove(value).unwrap_or_default();
        self.slices -= usize::from(group.is_slice());
        change(&mut group.nodes);
        let Some(first) = group.nodes.first() else { return };
        let size = nodes.known(first).and_then(|node| slice_size(node, node.allocatable(), config));
        group.wanted = size.unwrap_or(1);
        self.slices += usize::from(group.is_slice());
        self.by_value.insert(value.to_owned(), group);
    }
}

/// What a node says that its groups and their maintenances depend on.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The groups that it is in: label and value.
    groups: Vec<(String, String)>,
    begins: Option<i64>,
}

/// When the announced maintenance of a node begins, in Unix seconds.
pub(super) fn begins(node: &slim::Node, announced: &str) -> Option<i64> {
    label(node, announced)?.parse().ok()
}

/// The groups of some labels, and the nodes whose maintenance is announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupIndex {
    labels: BTreeMap<String, Groups>,
    announced: BTreeSet<(i64, Name)>,
}

impl GroupIndex {
    /// From now on the groups of these labels are kept.
    pub(super) fn set_labels(&mut self, labels: &BTreeSet<&str>, nodes: &Nodes, config: &Hotswap) {
        self.labels.retain(|key, _| labels.contains(key.as_str()));
        for key in labels {
            if self.labels.contains_key(*key) {
                continue;
            }
            let mut names: BTreeMap<&str, BTreeSet<Name>> = BTreeMap::new();
            for (name, node) in nodes.iter() {
                if let Some(value) = label(node, key) {
                    names.entry(value).or_default().insert(Name::clone(name));
                }
            }
            let mut groups = Groups::default();
            for (value, names) in names {
                groups.change(value, (nodes, config), |group| *group = names);
            }
            self.labels.insert((*key).to_owned(), groups);
        }
    }

    /// What a node says, before it changes or goes.
    pub(super) fn said(&self, node: &slim::Node, config: &Hotswap) -> Said {
        let group = |key: &String| Some((key.clone(), label(node, key)?.to_owned()));
        let groups = self.labels.keys().filter_map(group).collect();
        Said { groups, begins: begins(node, &config.maintenance_time_label) }
    }

    /// A node, which had said this, came, changed or went. Returns its groups before and after; `None` if groups of other nodes may be whole now that
    /// were not, or the other way.
    pub(super) fn node_changed(
        &mut self,
        name: &Name,
        said: Said,
        nodes: &Nodes,
        config: &Hotswap,
    ) -> Option<BTreeSet<(String, String)>> {
        let now = nodes.get(name).map(|node| self.said(node, config)).unwrap_or_default();
        if let Some(begins) = said.begins {
            self.announced.remove(&(begins, Name::clone(name)));
        }
        if let Some(begins) = now.begins {
            self.announced.insert((begins, Name::clone(name)));
        }
        let sized: Vec<bool> = self.labels.iter().map(|(key, groups)| groups.are_sized(key)).collect();
        for (key, value) in &said.groups {
            if let Some(groups) = self.labels.get_mut(key) {
                groups.change(value, (nodes, config), |group| {
                    group.remove(name);
                });
            }
        }
        for (key, value) in &now.groups {
            if let Some(groups) = self.labels.get_mut(key) {
                groups.change(value, (nodes, config), |group| {
                    group.insert(Name::clone(name));
                });
            }
        }
        let same = self.labels.iter().map(|(key, groups)| groups.are_sized(key)).eq(sized);
        same.then(|| said.groups.into_iter().chain(now.groups).collect())
    }

    /// The group of a label's value, if it has nodes, and whether it lacks nodes if it has fewer than a slice.
    pub(super) fn group(&self, label: &str, value: &str) -> Option<(&Group, bool)> {
        let groups = self.labels.get(label)?;
        Some((groups.by_value.get(value)?, groups.are_sized(label)))
    }

    /// The announced maintenances, from the first.
    pub(super) fn announced(&self) -> impl Iterator<Item = &(i64, Name)> {
        self.announced.iter()
    }

    /// The same from all nodes.
    pub(super) fn afresh(&self, nodes: &Nodes, config: &Hotswap) -> Self {
        let begins = |node: &slim::Node| begins(node, &config.maintenance_time_label);
        let announced = nodes.iter().filter_map(|(name, node)| Some((begins(node)?, Name::clone(name))));
        let mut afresh = Self { announced: announced.collect(), ..Self::default() };
        afresh.set_labels(&self.labels.keys().map(String::as_str).collect(), nodes, config);
        afresh
    }
}
