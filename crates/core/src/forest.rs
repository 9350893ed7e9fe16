//! The forest of Cohorts and ClusterQueues: parents and children, cycles, heights, and the slots of each node (docs/reference/06-algorithm.md 6.3).

use std::collections::{BTreeMap, BTreeSet};

use crate::Name;
use crate::index_map::IndexMap;
use crate::intern::{FrId, NodeId, QueueId, SlotId};
use crate::quota::{Quota, QuotaLimits};
use crate::tables::TableSize;
use crate::usage::Usage;

/// One ClusterQueue or Cohort.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: Name,
    /// `/root/…/name`, as the preemption sentence has it.
    pub(crate) path: Name,
    /// The ClusterQueue, for a leaf.
    pub(crate) queue: Option<QueueId>,
    /// There is an object; an implicit Cohort has none.
    pub(crate) exists: bool,
    /// The parent as the spec names it.
    pub(crate) declared: Option<NodeId>,
    /// The parent in the tree: `None` for a root, and for one node of a cycle.
    pub(crate) parent: Option<NodeId>,
    /// Children as declared, in the order of their names, Cohorts apart from ClusterQueues.
    children: BTreeMap<(bool, Name), NodeId>,
    /// The root of its tree.
    pub(crate) root: NodeId,
    /// Depth below the root.
    pub(crate) depth: u32,
    /// Height: 0 without children, otherwise at least 1 (docs/reference/06-algorithm.md 6.3, "borrowing height").
    pub(crate) height: u32,
    /// In or below a cycle of Cohorts.
    pub(crate) in_cycle: bool,
    /// Fair-sharing weight.
    pub(crate) weight: f64,
    /// Counts changes of its own workloads, and of quota in its tree.
    generation: u64,
    /// When capacity was last set free in the tree, as a count; only at a root.
    freed: u64,
    limits: BTreeMap<FrId, QuotaLimits>,
    slots: Vec<(FrId, SlotId)>,
    /// All nodes of the tree in pre-order; only at a root.
    members: Vec<NodeId>,
}

impl Node {
    /// A node alone, without an object.
    fn new(id: NodeId, name: Name, queue: Option<QueueId>) -> Self {
        Self {
            path: format!("/{name}").into(),
            name,
            queue,
            exists: false,
            declared: None,
            parent: None,
            children: BTreeMap::new(),
            root: id,
            depth: 0,
            height: 0,
            in_cycle: false,
            weight: 1.0,
            generation: 0,
            freed: 0,
            limits: BTreeMap::new(),
            slots: Vec::new(),
            members: vec![id],
        }
    }

    /// The slot for a (flavor, resource), if the node has one.
    pub(crate) fn slot(&self, pair: FrId) -> Option<SlotId> {
        self.slots.binary_search_by_key(&pair, |&(pair, _)| pair).ok().map(|at| self.slots[at].1)
    }

    /// Whether the node itself has quota of a (flavor, resource).
    pub(crate) fn has_quota(&self, pair: FrId) -> bool {
        self.limits.contains_key(&pair)
    }

    /// All slots, by pair.
    pub(crate) fn slots(&self) -> &[(FrId, SlotId)] {
        &self.slots
    }

    /// The declared children of this node.
    pub(crate) fn children(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.children.values().copied()
    }

    /// What the spec sets for a pair.
    pub(crate) fn limits(&self, pair: FrId) -> QuotaLimits {
        self.limits.get(&pair).copied().unwrap_or(QuotaLimits::NONE)
    }
}

/// The nodes, their slots, and the quota columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forest {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    cohorts: IndexMap<Name, NodeId>,
    pub(crate) quota: Quota,
    touched: BTreeSet<NodeId>,
    generations: u64,
}

impl Forest {
    /// A node.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.at()]
    }

    /// A Cohort by name.
    pub(crate) fn cohort(&self, name: &str) -> Option<NodeId> {
        self.cohorts.get(name).copied()
    }

    /// A Cohort by name, made implicit if there is none.
    pub(crate) fn ensure_cohort(&mut self, name: &Name) -> NodeId {
        if let Some(id) = self.cohort(name) {
            return id;
        }
        let id = self.add(name.clone(), None);
        self.cohorts.insert(name.clone(), id);
        id
    }

    /// Adds the node of a ClusterQueue.
    pub(crate) fn add_queue(&mut self, name: Name, queue: QueueId) -> NodeId {
        self.add(name, Some(queue))
    }

    fn add(&mut self, name: Name, queue: Option<QueueId>) -> NodeId {
        let id = self.free.pop().unwrap_or_else(|| NodeId::new(self.nodes.len()));
        let node = Node::new(id, name, queue);
        if id.at() == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[id.at()] = node;
        }
        id
    }

    /// How long the table of nodes is.
    pub(crate) fn size(&self) -> TableSize {
        TableSize { rows: self.nodes.len(), free: self.free.len() }
    }

    /// Removes the nodes of these ClusterQueues, implicit Cohorts without references unless they are `kept`, and slots that are neither limited nor
    /// `used`. Nothing may be stale. Returns the removed nodes, and the roots of trees that lost slots.
    pub(crate) fn sweep(
        &mut self,
        usage: &mut Usage,
        queues: &[NodeId],
        kept: impl Fn(NodeId) -> bool,
        used: impl Iterator<Item = SlotId>,
    ) -> (Vec<NodeId>, BTreeSet<NodeId>) {
        let mut gone = queues.to_vec();
        let nodes = &self.nodes;
        self.cohorts.retain(|_, &mut id| {
            let node = &nodes[id.at()];
            let keep = node.exists || !node.children.is_empty() || node.declared.is_some() || kept(id);
            if !keep {
                gone.push(id);
            }
            keep
        });
        let mut needed = vec![false; self.quota.len()];
        let limited = self.nodes.iter().flat_map(|node| {
            node.slots.iter().filter(|(pair, _)| node.limits.contains_key(pair)).map(|&(_, slot)| slot)
        });
        for slot in limited.chain(used) {
            let mut at = Some(slot);
            while let Some(slot) = at.filter(|slot| !std::mem::replace(&mut needed[slot.at()], true)) {
                at = self.quota.parent(slot);
            }
        }
        let mut lost = BTreeSet::new();
        for node in &mut self.nodes {
            node.slots.retain(|&(_, slot)| {
                if !needed[slot.at()] {
                    self.quota.forget(slot);
                    usage.set(slot, 0);
                    lost.insert(node.root);
                }
                needed[slot.at()]
            });
        }
        for &id in &gone {
            self.nodes[id.at()] = Node::new(id, Name::from(""), None);
            self.free.push(id);
            lost.remove(&id);
        }
        (gone, lost)
    }

    /// The pairs that nodes have quota of, or slots for.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = FrId> + '_ {
        self.nodes
            .iter()
            .flat_map(|node| node.limits.keys().copied().chain(node.slots.iter().map(|&(pair, _)| pair)))
    }

    /// There is an object, and its spec says just this.
    pub(crate) fn is_declared(
        &self,
        id: NodeId,
        weight: f64,
        limits: &BTreeMap<FrId, QuotaLimits>,
        parent: Option<NodeId>,
    ) -> bool {
        let node = self.node(id);
        node.exists
            && node.declared == parent
            && node.weight.to_bits() == weight.to_bits()
            && node.limits == *limits
    }

    /// Sets what the spec says about a node. The tree is brought up to date by [`Forest::refresh`].
    pub(crate) fn set(&mut self, id: NodeId, exists: bool, weight: f64, limits: BTreeMap<FrId, QuotaLimits>) {
        let node = &mut self.nodes[id.at()];
        (node.exists, node.weight, node.limits) = (exists, weight, limits);
        self.touched.insert(id);
    }

    /// Hangs a node below a Cohort, or makes it a root.
    pub(crate) fn set_parent(&mut self, id: NodeId, parent: Option<NodeId>) {
        let (old, key) = {
            let node = &self.nodes[id.at()];
            (node.declared, (node.queue.is_some(), node.name.clone()))
        };
        if old == parent {
            return;
        }
        if let Some(old) = old {
            self.nodes[old.at()].children.remove(&key);
            self.touched.insert(old);
        }
        if let Some(parent) = parent {
            self.nodes[parent.at()].children.insert(key, id);
            self.touched.insert(parent);
        }
        self.nodes[id.at()].declared = parent;
        self.touched.insert(id);
    }

    /// The slot of a ClusterQueue for a pair that a workload holds, made if there is none.
    pub(crate) fn ensure_slot(&mut self, usage: &mut Usage, id: NodeId, pair: FrId) -> SlotId {
        if let Some(slot) = self.node(id).slot(pair) {
            return slot;
        }
        let slot = self.add_slot(usage, id, pair);
        self.touched.insert(id);
        slot
    }

    fn add_slot(&mut self, usage: &mut Usage, id: NodeId, pair: FrId) -> SlotId {
        let slot = self.quota.push();
        usage.grow(self.quota.len());
        let slots = &mut self.nodes[id.at()].slots;
        let at = slots.partition_point(|&(other, _)| other < pair);
        slots.insert(at, (pair, slot));
        slot
    }

    /// Whether [`Forest::refresh`] has something to do.
    pub(crate) fn is_stale(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Rebuilds the trees of all nodes that were touched: structure, slots, quota, and the usage of Cohorts from that
    /// of ClusterQueues. Returns the roots of the rebuilt trees.
    pub(crate) fn refresh(&mut self, usage: &mut Usage) -> Vec<NodeId> {
        let touched = std::mem::take(&mut self.touched);
        let mut roots = BTreeSet::new();
        for id in touched {
            roots.insert(self.find_root(id).0);
        }
        for &root in &roots {
            self.rebuild(root, usage);
        }
        roots.into_iter().collect()
    }

    /// The root of a node by declared parents; in a cycle the node of it with the lowest id, and true.
    fn find_root(&self, id: NodeId) -> (NodeId, bool) {
        let mut seen = BTreeSet::new();
        let mut at = id;
        while let Some(parent) = self.nodes[at.at()].declared {
            if !seen.insert(at) {
                let mut lowest = at;
                let mut walk = parent;
                while walk != at {
                    lowest = lowest.min(walk);
                    walk = self.nodes[walk.at()].declared.unwrap_or(at);
                }
                return (lowest, true);
            }
            at = parent;
        }
        (at, false)
    }

    fn rebuild(&mut self, root: NodeId, usage: &mut Usage) {
        let in_cycle = self.nodes[root.at()].declared.is_some();
        let mut members = Vec::new();
        let mut stack = vec![(root, None, 0)];
        while let Some((id, parent, depth)) = stack.pop() {
            let above =
                parent.map_or_else(|| Name::from(""), |parent: NodeId| self.nodes[parent.at()].path.clone());
            let node = &mut self.nodes[id.at()];
            node.path = format!("{above}/{}", node.name).into();
            (node.parent, node.root, node.depth, node.in_cycle) = (parent, root, depth, in_cycle);
            node.height = 0;
            node.members = Vec::new();
            members.push(id);
            for (_, &child) in node.children.iter().rev() {
                // The node of a cycle that serves as its root is also the child of another.
                if child != root {
                    stack.push((child, Some(id), depth + 1));
                }
            }
        }
        self.measure_heights(&members);
        self.spread_slots(&members, usage);
        self.compute_quota(&members, usage);
        for &id in &members {
            self.workloads_changed(id);
        }
        self.nodes[root.at()].members = members;
        self.capacity_changed(root);
    }

    /// Notes that a workload which holds quota of a queue changed: what makes the progress of flavor scans in that queue stale.
    pub(crate) fn workloads_changed(&mut self, id: NodeId) {
        self.generations += 1;
        self.nodes[id.at()].generation = self.generations;
    }

    /// The count at which a queue's own workloads, or quota in its tree, last changed.
    pub(crate) fn generation(&self, id: NodeId) -> u64 {
        self.node(id).generation
    }

    /// Notes that capacity became free in the tree of a node, or that its quota changed.
    pub(crate) fn capacity_changed(&mut self, id: NodeId) {
        self.workloads_changed(id);
        let root = self.nodes[id.at()].root;
        self.nodes[root.at()].freed = self.generations;
    }

    /// The count at which capacity last became free in the tree of a node.
    pub(crate) fn freed(&self, id: NodeId) -> u64 {
        self.node(self.node(id).root).freed
    }

    fn measure_heights(&mut self, members: &[NodeId]) {
        for &id in members.iter().rev() {
            let (height, parent, is_queue) = {
                let node = &self.nodes[id.at()];
                (node.height, node.parent, node.queue.is_some())
            };
            if let Some(parent) = parent {
                let above = if is_queue { 1 } else { height + 1 };
                let parent = &mut self.nodes[parent.at()];
                parent.height = parent.height.max(above);
            }
        }
    }

    /// Gives each node a slot for each pair that it or something below it has.
    fn spread_slots(&mut self, members: &[NodeId], usage: &mut Usage) {
        for &id in members.iter().rev() {
            let own: Vec<FrId> = self.nodes[id.at()].limits.keys().copied().collect();
            for pair in own {
                if self.nodes[id.at()].slot(pair).is_none() {
                    self.add_slot(usage, id, pair);
                }
            }
            let Some(parent) = self.nodes[id.at()].parent else { continue };
            let missing: Vec<FrId> = self.nodes[id.at()]
                .slots
                .iter()
                .map(|&(pair, _)| pair)
                .filter(|&pair| self.nodes[parent.at()].slot(pair).is_none())
                .collect();
            for pair in missing {
                self.add_slot(usage, parent, pair);
            }
        }
    }

    fn compute_quota(&mut self, members: &[NodeId], usage: &mut Usage) {
        for &id in members {
            let node = &self.nodes[id.at()];
            for &(pair, slot) in &node.slots {
                let parent = node.parent.and_then(|parent| self.nodes[parent.at()].slot(pair));
                self.quota.set(slot, parent, node.limits(pair));
                if node.queue.is_none() {
                    usage.set(slot, 0);
                }
            }
        }
        for &id in members.iter().rev() {
            for &(_, slot) in &self.nodes[id.at()].slots {
                self.quota.complete(slot);
                if let Some(parent) = self.quota.parent(slot) {
                    let above = (usage.get(slot) - self.quota.guaranteed(slot)).max(0);
                    usage.set(parent, usage.get(parent) + above);
                }
            }
        }
        for &id in members {
            for &(_, slot) in &self.nodes[id.at()].slots {
                self.quota.set_potential_available(slot);
            }
        }
    }

    /// The nodes of a tree in pre-order, given its root.
    pub(crate) fn members(&self, root: NodeId) -> &[NodeId] {
        &self.nodes[root.at()].members
    }

    /// The ClusterQueues of the tree that a node is in.
    pub(crate) fn queues_of_tree(&self, id: NodeId) -> impl Iterator<Item = QueueId> + '_ {
        self.members(self.node(id).root).iter().filter_map(|&id| self.node(id).queue)
    }

    /// All slots of the tree with that root.
    pub(crate) fn slots_of_tree(&self, root: NodeId) -> impl Iterator<Item = SlotId> + '_ {
        self.members(root).iter().flat_map(|&id| self.node(id).slots.iter().map(|&(_, slot)| slot))
    }

    /// The ancestors of a node, its parent first.
    pub(crate) fn ancestors(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.node(id).parent, |&at| self.node(at).parent)
    }

    /// The Cohorts of the cycle that a node is in or below, by name.
    pub(crate) fn cycle_of(&self, id: NodeId) -> Vec<Name> {
        let (start, in_cycle) = self.find_root(id);
        if !in_cycle {
            return Vec::new();
        }
        let mut names = vec![self.node(start).name.clone()];
        let mut at = self.nodes[start.at()].declared;
        while let Some(id) = at.filter(|&id| id != start) {
            names.push(self.node(id).name.clone());
            at = self.nodes[id.at()].declared;
        }
        names.sort();
        names
    }

    /// Whether the node's usage of each of the pairs is within its subtree's quota.
    pub(crate) fn within_nominal(&self, usage: &Usage, id: NodeId, pairs: &[FrId]) -> bool {
        let node = self.node(id);
        pairs.iter().all(|&pair| node.slot(pair).is_none_or(|slot| !self.quota.borrowing(usage, slot)))
    }

    /// The height of the lowest subtree in which `amount` fits without borrowing from outside, and whether that subtree is smaller than the whole
    /// tree, so that something may be reclaimed in the hierarchy (docs/reference/06-algorithm.md 6.3).
    pub(crate) fn borrowing_height(
        &self,
        usage: &Usage,
        id: NodeId,
        slot: SlotId,
        amount: i128,
    ) -> (u32, bool) {
        let parent = self.node(id).parent;
        if parent.is_none() || !self.quota.borrowing_with(usage, slot, amount) {
            return (0, parent.is_some());
        }
        let mut remaining = amount - self.quota.local_available(usage, slot);
        let (mut node, mut at) = (id, slot);
        while let (Some(above), Some(slot)) = (self.node(node).parent, self.quota.parent(at)) {
            if !self.quota.borrowing_with(usage, slot, remaining) {
                return (self.node(above).height, self.node(above).parent.is_some());
            }
            remaining -= self.quota.local_available(usage, slot);
            (node, at) = (above, slot);
        }
        (self.node(node).height, false)
    }
}
