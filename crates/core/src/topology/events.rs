//! What comes in from outside: topologies, flavors, nodes and what other pods use of them (docs/reference/06-algorithm.md 6.12). A node
//! touches its own leaves alone.

use smallvec::SmallVec;

use crate::Name;
use crate::intern::{FlavorId, HostId, Names, PODS, ResourceId};
use crate::spec::FlavorSpec;
use crate::topology::booking::NodeUsage;
use crate::topology::hosts::Home;
use crate::topology::places::Path;
use crate::topology::spec::{NodeSpec, TopologySpec};
use crate::topology::taints::NO_TAINTS;
use crate::topology::trees::Tree;
use crate::topology::world::Topologies;

/// Where a node is to be: its path in the tree of each flavor.
type Wanted = SmallVec<[(FlavorId, Path); 2]>;

impl Topologies {
    /// Takes in a Topology, or takes it away. Returns the flavors that it concerns.
    pub(crate) fn set_topology(
        &mut self,
        usage: &mut NodeUsage,
        name: &Name,
        spec: Option<&TopologySpec>,
    ) -> Vec<FlavorId> {
        if self.specs.get(name) == spec {
            return Vec::new();
        }
        match spec {
            Some(spec) => drop(self.specs.insert(name.clone(), spec.clone())),
            None => drop(self.specs.remove(name)),
        }
        let names_it = |(_, flavor): &(&FlavorId, &FlavorSpec)| flavor.topology.as_ref() == Some(name);
        let concerned: Vec<FlavorId> = self.flavors.iter().filter(names_it).map(|(&id, _)| id).collect();
        for &flavor in &concerned {
            self.plant(usage, flavor);
        }
        concerned
    }

    /// Takes in a flavor, or takes it away: its `topology`, `node_labels`, `taints` and `tolerations`.
    pub(crate) fn set_flavor(&mut self, usage: &mut NodeUsage, id: FlavorId, spec: Option<&FlavorSpec>) {
        let spec = spec.filter(|spec| spec.topology.is_some());
        if self.flavors.get(&id) == spec {
            return;
        }
        match spec {
            Some(spec) => drop(self.flavors.insert(id, spec.clone())),
            None => drop(self.flavors.remove(&id)),
        }
        self.plant(usage, id);
    }

    /// Creates the tree of a flavor again, or removes it.
    fn plant(&mut self, usage: &mut NodeUsage, flavor: FlavorId) {
        if let Some(tree) = self.trees.get_mut(&flavor) {
            tree.forget_layout();
            let hosts: Vec<HostId> = tree.hosts().map(|(host, ..)| host).collect();
            for host in hosts {
                self.leave_trees(usage, host, |home| home.flavor == flavor);
            }
            self.trees.remove(&flavor);
        }
        let Some(spec) = self.flavors.get(&flavor) else { return };
        let topology = spec.topology.as_ref().and_then(|name| self.specs.get(name));
        let Some(topology) = topology.filter(|topology| !topology.levels.is_empty()) else { return };
        self.trees.insert(flavor, Tree::new(flavor, spec, topology));
        self.outdate(flavor);
        for host in self.hosts.ids() {
            self.join(usage, host, flavor);
        }
    }

    /// Results about the tree of a flavor may be out of date.
    fn outdate(&mut self, flavor: FlavorId) {
        self.generations += 1;
        if let Some(tree) = self.trees.get_mut(&flavor) {
            tree.outdate(self.generations);
        }
    }

    /// A node that stays where it is has other labels or taints, or is usable and was not, or the other way.
    fn relabel(&mut self, id: HostId) {
        for at in 0..self.hosts.get(id).homes.len() {
            let Home { flavor, place, .. } = self.hosts.get(id).homes[at];
            if let Some(tree) = self.trees.get_mut(&flavor) {
                tree.relabel(place);
            }
        }
    }

    /// A node joins the tree of a flavor, if it belongs there.
    fn join(&mut self, usage: &mut NodeUsage, id: HostId, flavor: FlavorId) {
        let node = self.hosts.get(id).spec.as_ref().filter(|node| node.usable);
        let (Some(tree), Some(node)) = (self.trees.get(&flavor), node) else { return };
        let Some(mut path) = tree.path(node) else { return };
        let place = self.places.id(tree.place_key(&path, !self.own_hosts));
        if self.places.flavors(place).any(|other| other == flavor) {
            // Nodes with the same hostname are one domain, wherever else their labels say that they are.
            if let Some(closed) = tree.closed_for(place) {
                // One that takes no pods leaves it to this one.
                self.leave_trees(usage, closed, |home| home.flavor == flavor);
            } else if let Some(known) = tree.path_of(place) {
                path = known.clone();
            }
        }
        let (Some(tree), host) = (self.trees.get_mut(&flavor), self.hosts.get(id)) else { return };
        let is_new = host.homes.iter().all(|home| home.place != place);
        self.places.link(place, flavor);
        if tree.insert(&path, place, id) {
            self.generations += 1;
            tree.outdate(self.generations);
        }
        usage.ledger.grow(self.places.len());
        if is_new {
            usage.ledger.offer(place, &host.offered, 1);
            usage.ledger.offer(place, &host.other, -1);
        }
        let homes = &mut self.hosts.get_mut(id).homes;
        let at = homes.partition_point(|home| home.flavor < flavor);
        homes.insert(at, Home { flavor, path, place });
    }

    /// A node leaves some of the trees that it is in.
    fn leave_trees(&mut self, usage: &mut NodeUsage, id: HostId, which: impl Fn(&Home) -> bool) {
        let host = self.hosts.get_mut(id);
        if !host.homes.iter().any(&which) {
            return;
        }
        let (gone, stay): (Vec<Home>, Vec<Home>) =
            std::mem::take(&mut host.homes).into_iter().partition(which);
        host.homes = stay;
        let after = host.places();
        let mut lost: Vec<_> = gone.iter().map(|home| home.place).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.retain(|place| !after.contains(place));
        lost.retain(|_| host.is_open());
        for place in lost {
            usage.ledger.offer(place, &host.offered, -1);
            usage.ledger.offer(place, &host.other, 1);
        }
        for home in gone {
            self.places.unlink(home.place, home.flavor);
            let tree = self.trees.get_mut(&home.flavor);
            if tree.is_some_and(|tree| tree.remove(home.place, id)) {
                self.outdate(home.flavor);
            }
        }
    }

    /// Labels of a known Node have changed, and nothing else: each has this value now, or is gone. `selected` returns whether pods select nodes by
    /// a label. Returns the flavors that it concerns; `None` if nothing reads these labels.
    pub(crate) fn set_labels(
        &mut self,
        usage: &mut NodeUsage,
        names: &mut Names,
        name: &str,
        changed: &[(Name, Option<Name>)],
        selected: impl Fn(&str) -> bool,
    ) -> Option<Vec<FlavorId>> {
        let id = self.hosts.find(name)?;
        let decides = |(key, _): &(Name, Option<Name>)| self.trees.values().any(|tree| tree.reads_label(key));
        let moves = changed.iter().any(decides);
        let known = self.hosts.get_mut(id).spec.as_mut()?;
        if moves {
            let mut node = known.clone();
            replace_labels(&mut node.labels, changed);
            return Some(self.set_node(usage, names, &node));
        }
        replace_labels(&mut known.labels, changed);
        // A shape whose counts are kept may have no workload at the moment.
        let is_read = changed.iter().any(|(key, _)| selected(key) || usage.kept.0.read_label(key));
        is_read.then(|| {
            self.relabel(id);
            self.hosts.get(id).open_flavors()
        })
    }

    /// Takes in a Node. Returns the flavors that it concerns, before or after, if anything changed that matters to them.
    pub(crate) fn set_node(
        &mut self,
        usage: &mut NodeUsage,
        names: &mut Names,
        node: &NodeSpec,
    ) -> Vec<FlavorId> {
        if !usage.ledger.knows_pods() {
            usage.ledger.set_pods(names.resource(&Name::from(PODS)));
        }
        let id = self.hosts.id(&node.name);
        let known = self.hosts.get(id).spec.as_ref();
        let labelled = known.is_none_or(|known| known.labels != node.labels);
        let tainted = known.is_none_or(|known| known.taints != node.taints);
        let equipped = known.is_none_or(|known| known.allocatable != node.allocatable);
        let turned = known.is_none_or(|known| known.usable != node.usable);
        if !(labelled || tainted || equipped || turned) {
            return Vec::new();
        }
        let amounts = node.allocatable.iter();
        let offered = equipped
            .then(|| amounts.map(|(resource, amount)| (names.resource(resource), amount.get())).collect());
        let (concerned, wanted) = (self.hosts.get(id).open_flavors(), self.homes_of(id, node, node.usable));
        self.leave_others(usage, id, &wanted);
        self.offer_instead(usage, id, offered, node.usable);
        if labelled || tainted || turned {
            self.relabel(id);
        }
        if tainted {
            let taints = self.taints.take(&node.taints);
            let before = self.hosts.set_taints(id, taints);
            self.taints.give_back(before);
        }
        let spec = &mut self.hosts.get_mut(id).spec;
        if let Some(known) = spec {
            // Most of it is as it was.
            known.usable = node.usable;
            if labelled {
                known.labels.clone_from(&node.labels);
            }
            if tainted {
                known.taints.clone_from(&node.taints);
            }
            if equipped {
                known.allocatable.clone_from(&node.allocatable);
            }
        } else {
            *spec = Some(node.clone());
        }
        self.join_others(usage, id, &wanted, concerned)
    }

    /// A Node is usable and was not, or the other way, and has changed in nothing else. Returns the flavors that it concerns.
    pub(crate) fn set_usable(&mut self, usage: &mut NodeUsage, name: &str, usable: bool) -> Vec<FlavorId> {
        let Some(id) = self.hosts.find(name) else { return Vec::new() };
        let host = self.hosts.get(id);
        let Some(node) = host.spec.as_ref().filter(|node| node.usable != usable) else { return Vec::new() };
        let (concerned, wanted) = (host.open_flavors(), self.homes_of(id, node, usable));
        self.leave_others(usage, id, &wanted);
        self.offer_instead(usage, id, None, usable);
        self.relabel(id);
        if let Some(node) = &mut self.hosts.get_mut(id).spec {
            node.usable = usable;
        }
        self.join_others(usage, id, &wanted, concerned)
    }

    /// Where a node is to be with these labels: one that is not usable stays where it is alone in its leaf.
    fn homes_of(&self, id: HostId, node: &NodeSpec, usable: bool) -> Wanted {
        let homes = &self.hosts.get(id).homes;
        let home = |(&flavor, tree): (&FlavorId, &Tree)| {
            let home = homes.iter().find(|home| home.flavor == flavor);
            let stays = home.filter(|home| tree.is_path(node, &home.path));
            let path = stays.map_or_else(|| tree.path(node), |home| Some(home.path.clone()))?;
            let alone = || stays.is_some_and(|home| tree.is_alone(home.place, id));
            (usable || alone()).then_some((flavor, path))
        };
        self.trees.iter().filter_map(home).collect()
    }

    /// A node leaves the trees where it is to be no longer, or elsewhere.
    fn leave_others(&mut self, usage: &mut NodeUsage, id: HostId, wanted: &Wanted) {
        let stays =
            |home: &Home| wanted.iter().any(|(flavor, path)| (*flavor, path) == (home.flavor, &home.path));
        self.leave_trees(usage, id, |home| !stays(home));
    }

    /// A node joins the trees where it is to be and is not. Returns the flavors that its change concerns: these were concerned before.
    fn join_others(
        &mut self,
        usage: &mut NodeUsage,
        id: HostId,
        wanted: &Wanted,
        mut concerned: Vec<FlavorId>,
    ) -> Vec<FlavorId> {
        for &(flavor, _) in wanted {
            // None of them is joined by joining another one.
            if self.hosts.get(id).homes.iter().all(|home| home.flavor != flavor) {
                self.join(usage, id, flavor);
            }
        }
        concerned.extend(self.hosts.get(id).open_flavors());
        concerned.sort_unstable();
        concerned.dedup();
        concerned
    }

    /// A node offers something else where it is, or the same; `open`: it takes pods from now on.
    fn offer_instead(
        &mut self,
        usage: &mut NodeUsage,
        id: HostId,
        offered: Option<Vec<(ResourceId, i64)>>,
        open: bool,
    ) {
        let host = self.hosts.get_mut(id);
        let was_open = host.is_open();
        let before = offered.map(|offered| std::mem::replace(&mut host.offered, offered));
        let before = before.as_ref().unwrap_or(&host.offered);
        if (was_open, before) == (open, &host.offered) {
            return;
        }
        for place in host.places() {
            if was_open {
                usage.ledger.offer(place, before, -1);
            }
            if open {
                usage.ledger.offer(place, &host.offered, 1);
            }
            if was_open != open {
                usage.ledger.offer(place, &host.other, if open { -1 } else { 1 });
            }
        }
        for home in host.homes.iter().filter(|_| was_open != open) {
            if let Some(tree) = self.trees.get_mut(&home.flavor) {
                tree.set_closed(home.place, !open);
            }
        }
    }

    /// A Node is gone. Returns the flavors that it concerns.
    pub(crate) fn remove_node(&mut self, usage: &mut NodeUsage, name: &str) -> Vec<FlavorId> {
        let Some(id) = self.hosts.find(name) else { return Vec::new() };
        let concerned = self.hosts.get(id).open_flavors();
        self.leave_trees(usage, id, |_| true);
        let before = self.hosts.set_taints(id, NO_TAINTS);
        self.taints.give_back(before);
        let host = self.hosts.get_mut(id);
        host.spec = None;
        host.offered.clear();
        self.hosts.forget_if_unknown(name);
        concerned
    }

    /// The usage of a node by pods without a topology assignment, `pods` included; the node need not exist yet. Returns the affected flavors, if
    /// something was freed.
    pub(crate) fn set_other_usage(
        &mut self,
        usage: &mut NodeUsage,
        node: &Name,
        other: &[(ResourceId, i64)],
    ) -> Vec<FlavorId> {
        let id = self.hosts.id(node);
        let host = self.hosts.get_mut(id);
        let after: Vec<(ResourceId, i64)> =
            other.iter().copied().filter(|(_, amount)| *amount != 0).collect();
        let before = std::mem::replace(&mut host.other, after);
        for place in host.open_places() {
            usage.ledger.offer(place, &before, 1);
            usage.ledger.offer(place, &host.other, -1);
        }
        let amount = |of: &[(ResourceId, i64)], resource| -> i128 {
            of.iter().filter(|(other, _)| *other == resource).map(|&(_, amount)| i128::from(amount)).sum()
        };
        let is_less =
            |&(resource, _): &(ResourceId, i64)| amount(&before, resource) > amount(&host.other, resource);
        let concerned = if before.iter().any(is_less) { host.open_flavors() } else { Vec::new() };
        self.hosts.forget_if_unknown(node);
        concerned
    }
}

/// Labels get other values, or go. What was in the order of the keys stays so.
fn replace_labels(labels: &mut Vec<(Name, Name)>, changed: &[(Name, Option<Name>)]) {
    for (key, value) in changed {
        let known = labels.iter().position(|(other, _)| other == key);
        match (known, value) {
            (Some(at), Some(value)) => labels[at].1 = value.clone(),
            (Some(at), None) => drop(labels.remove(at)),
            (None, Some(value)) => {
                let at = labels.partition_point(|(other, _)| other < key);
                labels.insert(at, (key.clone(), value.clone()));
            }
            (None, None) => {}
        }
    }
}
