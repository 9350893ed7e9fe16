//! Nodes as they were seen last.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::{Bound, Deref};

use indexmap::Equivalent;
use sluice_api::slim;
use sluice_core::Name;

use crate::hotswap::pod::{Allocatable, allocatable};
use crate::index_map::IndexMap;

/// A Node, with what it has for pods.
#[derive(Clone, Debug)]
pub(crate) struct KnownNode {
    object: slim::Node,
    /// What it has for pods.
    has: Allocatable,
}

impl KnownNode {
    fn new(object: slim::Node) -> Self {
        Self { has: allocatable(&object), object }
    }

    /// What it has for pods.
    pub fn allocatable(&self) -> &Allocatable {
        &self.has
    }

    /// Whether a later version says the same. Then it is known to be that.
    pub fn is_still(&mut self, object: &slim::Node) -> bool {
        self.object.metadata.resource_version.clone_from(&object.metadata.resource_version);
        self.object == *object
    }

    /// Takes a later version; `has`: what that has for pods, if it is something else.
    pub fn replace(&mut self, object: slim::Node, has: Option<Allocatable>) {
        self.object = object;
        if let Some(has) = has {
            self.has = has;
        }
    }
}

impl Deref for KnownNode {
    type Target = slim::Node;

    fn deref(&self) -> &slim::Node {
        &self.object
    }
}

/// Nodes, found by hash: an event looks its node up several times, and names of nodes begin alike. The order is for whole passes, which find each
/// node by its position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    rows: IndexMap<Name, Box<KnownNode>>,
    order: BTreeMap<Name, usize>,
}

impl Nodes {
    /// Puts one in that is not there.
    pub fn insert(&mut self, name: &Name, object: slim::Node) {
        let (at, _) = self.rows.insert_full(Name::clone(name), Box::new(KnownNode::new(object)));
        self.order.insert(Name::clone(name), at);
    }

    /// Takes one out.
    pub fn remove(&mut self, name: &Name) {
        let Some((at, ..)) = self.rows.swap_remove_full(name) else { return };
        self.order.remove(name);
        // The last one took its position.
        if let Some((moved, _)) = self.rows.get_index(at)
            && let Some(position) = self.order.get_mut(moved)
        {
            *position = at;
        }
    }

    /// A node.
    pub fn get<Q: ?Sized + Hash + Equivalent<Name>>(&self, name: &Q) -> Option<&slim::Node> {
        self.rows.get(name).map(|node| &node.object)
    }

    /// A node, with what it has for pods.
    pub fn known(&self, name: &Name) -> Option<&KnownNode> {
        self.rows.get(name).map(Box::as_ref)
    }

    /// The same, with the stored name: clones of it share its memory.
    pub fn get_key_value<Q: ?Sized + Hash + Equivalent<Name>>(
        &self,
        name: &Q,
    ) -> Option<(&Name, &slim::Node)> {
        self.rows.get_key_value(name).map(|(name, node)| (name, &node.object))
    }

    /// A node, to change it.
    pub fn get_mut(&mut self, name: &Name) -> Option<&mut KnownNode> {
        self.rows.get_mut(name).map(Box::as_mut)
    }

    /// Whether there is a node of that name.
    pub fn contains_key(&self, name: &Name) -> bool {
        self.rows.contains_key(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// All names, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Name> {
        self.order.keys()
    }

    /// All nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &KnownNode)> {
        self.order.iter().map(|(name, at)| (name, &*self.rows[*at]))
    }

    /// The differences between what is kept besides and the objects.
    pub fn audit(&self) -> Option<String> {
        let ordered = |(name, at): (&Name, &usize)| self.rows.get_index(*at).is_some_and(|row| row.0 == name);
        let same = self.order.len() == self.rows.len()
            && self.order.iter().all(ordered)
            && self.rows.values().all(|node| node.has == allocatable(&node.object));
        (!same).then(|| "the order of nodes, or what they have for pods, differs from the objects".to_owned())
    }

    /// The names behind one, or all, in order.
    pub fn names_after(&self, name: Option<&Name>) -> impl Iterator<Item = &Name> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range::<Name, _>((from, Bound::Unbounded)).map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn node(name: &str) -> slim::Node {
        let mut node = slim::Node::default();
        node.metadata.name = Some(name.to_owned());
        node
    }

    #[test]
    fn nodes_come_in_the_order_of_their_names_after_any_change() {
        let (mut nodes, mut expected) = (Nodes::default(), BTreeSet::new());
        for step in 0..100_usize {
            let name = format!("n{:02}", step * 7 % 13);
            if expected.remove(&name) {
                nodes.remove(&Name::from(name.as_str()));
            } else {
                nodes.insert(&Name::from(name.as_str()), node(&name));
                expected.insert(name.clone());
            }
            let all = nodes.iter().map(|(key, node)| (&**key, node.metadata.name.as_deref()));
            assert!(all.eq(expected.iter().map(|name| (name.as_str(), Some(name.as_str())))), "{step}");
            assert!(nodes.keys().map(|key| &**key).eq(expected.iter().map(String::as_str)));
            assert_eq!((nodes.len(), nodes.audit()), (expected.len(), None));
            assert_eq!(nodes.get(name.as_str()).is_some(), expected.contains(&name));
            let after = nodes.names_after(Some(&Name::from(name.as_str()))).next();
            let next = expected.iter().find(|other| **other > name);
            assert_eq!(after.map(|name| &**name), next.map(String::as_str));
        }
    }
}
