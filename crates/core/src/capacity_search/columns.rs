//! Where the amounts of each resource are in the rows of nodes. Most nodes have the resources of the node before, and most pods those of the pod
//! before: their columns are looked up once.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::Name;

/// The column of each resource that nodes have.
#[derive(Clone, Debug)]
pub(super) struct Columns<'a>(BTreeMap<&'a str, usize>);

impl<'a> Columns<'a> {
    /// Those of all resources of these nodes.
    pub(super) fn of(nodes: impl Iterator<Item = &'a BTreeMap<Name, i128>>) -> Self {
        let mut columns = BTreeMap::new();
        let mut last: Option<&BTreeMap<Name, i128>> = None;
        for node in nodes {
            if last.is_some_and(|last| last.keys().eq(node.keys())) {
                continue;
            }
            for resource in node.keys() {
                let next = columns.len();
                columns.entry(&**resource).or_insert(next);
            }
            last = Some(node);
        }
        Self(columns)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// That of one resource, if any node has it.
    pub(super) fn get(&self, resource: &str) -> Option<usize> {
        self.0.get(resource).copied()
    }

    /// The resources.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.0.keys().copied()
    }
}

/// The columns of the resources of the last node or pod.
#[derive(Debug, Default)]
pub(super) struct LastColumns<'n> {
    names: SmallVec<[&'n Name; 8]>,
    columns: SmallVec<[Option<usize>; 8]>,
}

impl<'n> LastColumns<'n> {
    /// Those of the next one, which has these resources.
    pub(super) fn next(
        &mut self,
        columns: &Columns<'_>,
        names: impl Iterator<Item = &'n Name> + Clone,
    ) -> &[Option<usize>] {
        if !names.clone().eq(self.names.iter().copied()) {
            self.columns = names.clone().map(|name| columns.get(name)).collect();
            self.names = names.collect();
        }
        &self.columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(resources: &[&str]) -> BTreeMap<Name, i128> {
        resources.iter().map(|resource| (Name::from(*resource), 1)).collect()
    }

    #[test]
    fn each_resource_has_one_column_whatever_the_node_before_had() {
        let nodes = [node(&["cpu", "pods"]), node(&["cpu", "pods"]), node(&["tpu"]), node(&["cpu", "pods"])];
        let columns = Columns::of(nodes.iter());
        assert_eq!(columns.count(), 3);
        let all: Vec<_> = columns.names().map(|name| columns.get(name)).collect();
        assert_eq!(all, [Some(0), Some(1), Some(2)]);
        assert_eq!(columns.get("memory"), None);
        let other = node(&["cpu", "memory", "tpu"]);
        let mut last = LastColumns::default();
        for (of, expected) in [
            (&nodes[0], &[Some(0), Some(1)][..]),
            (&nodes[1], &[Some(0), Some(1)]),
            (&other, &[Some(0), None, Some(2)]),
            (&other, &[Some(0), None, Some(2)]),
            (&nodes[2], &[Some(2)]),
        ] {
            assert_eq!(last.next(&columns, of.keys()), expected);
        }
    }
}
