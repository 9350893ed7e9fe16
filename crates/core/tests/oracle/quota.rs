//! The quota tree (6.3): what each node may use, lend and borrow. Usage is in [`super::snapshot`].

use super::world::{Fr, Group, Name, Quota, World};
use sluice_quantity::Amount;
use std::collections::{BTreeMap, BTreeSet};

/// A node of the tree. Queues and cohorts may share a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Cohort(Name),
    Queue(Name),
}

/// Quotas of every node, with the sums over subtrees.
#[derive(Debug)]
pub struct Tree {
    parents: BTreeMap<Node, Node>,
    children: BTreeMap<Node, BTreeSet<Node>>,
    quotas: BTreeMap<Node, BTreeMap<Fr, Quota>>,
    subtree: BTreeMap<Node, BTreeMap<Fr, Amount>>,
}

fn quotas_of(groups: &[Group]) -> BTreeMap<Fr, Quota> {
    let mut quotas = BTreeMap::new();
    for (flavor, resources) in groups.iter().flat_map(|group| &group.flavors) {
        for (resource, quota) in resources {
            quotas.insert(Fr { flavor: flavor.clone(), resource: resource.clone() }, *quota);
        }
    }
    quotas
}

impl Tree {
    pub fn of(world: &World) -> Tree {
        let mut tree = Tree {
            parents: BTreeMap::new(),
            children: BTreeMap::new(),
            quotas: BTreeMap::new(),
            subtree: BTreeMap::new(),
        };
        for (name, cohort) in &world.cohorts {
            tree.insert(Node::Cohort(name.clone()), cohort.parent.as_ref(), &cohort.groups);
        }
        for (name, queue) in &world.queues {
            tree.insert(Node::Queue(name.clone()), queue.cohort.as_ref(), &queue.groups);
        }
        let roots: Vec<Node> =
            tree.children.keys().filter(|node| !tree.parents.contains_key(node)).cloned().collect();
        for root in roots {
            tree.sum(&root);
        }
        tree
    }

    /// A missing Cohort object is a node with zero quota and no limits.
    fn insert(&mut self, node: Node, parent: Option<&Name>, groups: &[Group]) {
        self.children.entry(node.clone()).or_default();
        if let Some(parent) = parent {
            let parent = Node::Cohort(parent.clone());
            self.parents.insert(node.clone(), parent.clone());
            self.children.entry(parent).or_default().insert(node.clone());
        }
        self.quotas.insert(node, quotas_of(groups));
    }

    /// SubtreeQuota: a queue's nominal; a cohort's own nominal + Σ children (SubtreeQuota − localQuota).
    fn sum(&mut self, node: &Node) {
        let own = self.quotas.get(node).into_iter().flatten();
        let mut subtree: BTreeMap<Fr, Amount> = own.map(|(fr, quota)| (fr.clone(), quota.nominal)).collect();
        for child in self.children.get(node).cloned().into_iter().flatten() {
            self.sum(&child);
            for (fr, quota) in self.subtree[&child].clone() {
                let lent = quota.sub(self.local_quota(&child, &fr));
                let sum = subtree.entry(fr).or_default();
                *sum = sum.add(lent);
            }
        }
        self.subtree.insert(node.clone(), subtree);
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.children.keys()
    }

    pub fn parent(&self, node: &Node) -> Option<&Node> {
        self.parents.get(node)
    }

    pub fn children(&self, node: &Node) -> impl Iterator<Item = &Node> {
        self.children.get(node).into_iter().flatten()
    }

    /// From the parent up to the root.
    pub fn ancestors<'a>(&'a self, node: &Node) -> impl Iterator<Item = &'a Node> + 'a {
        std::iter::successors(self.parent(node), |node| self.parent(node))
    }

    pub fn root<'a>(&'a self, node: &'a Node) -> &'a Node {
        self.ancestors(node).last().unwrap_or(node)
    }

    pub fn quota(&self, node: &Node, fr: &Fr) -> Quota {
        self.quotas.get(node).and_then(|quotas| quotas.get(fr)).copied().unwrap_or_default()
    }

    pub fn subtree_quota(&self, node: &Node, fr: &Fr) -> Amount {
        self.subtree[node].get(fr).copied().unwrap_or_default()
    }

    /// Every (flavor, resource) that has a quota somewhere in the subtree.
    pub fn subtree_frs(&self, node: &Node) -> impl Iterator<Item = &Fr> {
        self.subtree[node].keys()
    }

    /// What the node keeps to itself: `max(0, SubtreeQuota − lendingLimit)`, nothing without a lending limit.
    pub fn local_quota(&self, node: &Node, fr: &Fr) -> Amount {
        match self.quota(node, fr).lending_limit {
            Some(limit) => self.subtree_quota(node, fr).sub(limit).max(Amount::ZERO),
            None => Amount::ZERO,
        }
    }

    /// The most the node could ever use.
    pub fn potential_available(&self, node: &Node, fr: &Fr) -> Amount {
        let subtree = self.subtree_quota(node, fr);
        let Some(parent) = self.parent(node) else {
            return subtree;
        };
        let most = self.local_quota(node, fr).add(self.potential_available(parent, fr));
        match self.quota(node, fr).borrowing_limit {
            Some(limit) => most.min(subtree.add(limit)),
            None => most,
        }
    }

    /// 0 without children; else 1 + the height of the highest child cohort, at least 1.
    pub fn height(&self, node: &Node) -> u32 {
        self.children(node)
            .map(|child| match child {
                Node::Cohort(_) => 1 + self.height(child),
                Node::Queue(_) => 1,
            })
            .max()
            .unwrap_or(0)
    }
}
