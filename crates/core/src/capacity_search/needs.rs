//! What pods need of nodes, and the groups of nodes that some take as a whole.

use std::borrow::Cow;
use std::rc::Rc;

use super::node_set::NodeSet;
use crate::{Amount, Name};

/// What the pods of one pod set need of nodes.
#[derive(Debug, Clone)]
pub struct SetNeeds<'a> {
    /// The place of the pod set in its workload.
    pub pod_set: usize,
    /// The flavor, if pods that get it get nodes with it: [`crate::Scheduler::assigns_nodes`].
    pub assigned: Option<Name>,
    /// Their number; at least one.
    pub count: i64,
    /// The usage of each pod, `pods` included; cpu in milli-CPU, everything else in whole units.
    pub per_pod: &'a [(Name, Amount)],
    /// The nodes that they may be on, whatever is free there.
    pub nodes: Rc<NodeSet>,
    /// The label that makes groups of nodes, and how many replicas take one each.
    pub exclusive: Option<(&'a str, i64)>,
}

impl SetNeeds<'_> {
    /// Whether its pods go where there is room, in any or in whole groups.
    pub(super) fn is_free(&self) -> bool {
        self.assigned.is_none() || self.exclusive.is_some()
    }

    /// How many of its pods one group holds if this number of replicas take one group each.
    pub(super) fn per_replica(&self, replicas: i64) -> i64 {
        self.count / replicas + i64::from(self.count % replicas != 0)
    }
}

/// The pod sets whose pods go where there is room; with the groups of nodes that they take whole, if they do.
pub(super) fn free_sets<'n, 'a>(needs: &'n [SetNeeds<'a>]) -> Cow<'n, [SetNeeds<'a>]> {
    if needs.iter().all(SetNeeds::is_free) {
        Cow::Borrowed(needs)
    } else {
        Cow::Owned(needs.iter().filter(|set| set.is_free()).cloned().collect())
    }
}

/// The nodes that have one value of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup<'a> {
    /// The value.
    pub value: &'a str,
    /// The numbers of its nodes.
    pub nodes: Vec<usize>,
    /// Whether every node has capacity, and none is missing.
    pub whole: bool,
}

/// The groups of nodes by the values of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroups<'a> {
    /// The label.
    pub label: String,
    /// The groups, by value.
    pub all: Vec<NodeGroup<'a>>,
    /// By node: the position of its group.
    pub of: Vec<Option<usize>>,
}

impl<'a> NodeGroups<'a> {
    /// The group of a node.
    pub fn group_of(&self, node: usize) -> Option<&NodeGroup<'a>> {
        self.all.get((*self.of.get(node)?)?)
    }
}
