//! Some of the nodes, by number.

/// Some of the nodes of a [`FreeCapacity`](super::FreeCapacity).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NodeSet {
    /// Their numbers, in order.
    nodes: Vec<usize>,
    /// By number: whether it is among them.
    has: Vec<bool>,
}

impl NodeSet {
    /// Whether a node is among them.
    pub fn contains(&self, node: usize) -> bool {
        self.has.get(node).is_some_and(|has| *has)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().copied()
    }

    /// The nodes from this number on.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = usize> {
        let before = self.nodes.partition_point(|node| *node < first);
        self.nodes[before..].iter().copied()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        let mut nodes: Vec<usize> = nodes.into_iter().collect();
        nodes.sort_unstable();
        nodes.dedup();
        let mut has = vec![false; nodes.last().map_or(0, |last| last + 1)];
        for node in &nodes {
            has[*node] = true;
        }
        Self { nodes, has }
    }
}
