//! What a caller may see: the namespaces in which they may read Workloads, and whether they may list nodes and ClusterQueues.

use std::collections::BTreeSet;

use sluice_engine::Name;

/// Who asks, and what they may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewer {
    /// The viewer's name.
    pub user: String,
    /// The viewer may read the Workloads of every namespace.
    pub all: bool,
    /// Those in which the viewer may, if not in all.
    pub namespaces: BTreeSet<Name>,
    /// The viewer may list nodes.
    pub nodes: bool,
    /// The viewer may list ClusterQueues: others know those that LocalQueues of theirs lead to.
    pub queues: bool,
}

/// A viewer, as far as it is known what they may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The viewer.
    pub viewer: Viewer,
    /// Of so many namespaces it is not known yet whether the viewer may see them.
    pub unasked: usize,
}

impl Viewer {
    /// Whether the viewer may read the Workloads of a namespace.
    pub fn sees(&self, namespace: &str) -> bool {
        self.all || self.namespaces.contains(namespace)
    }

    /// Whether the viewer may see any namespace.
    pub fn sees_any(&self) -> bool {
        self.all || !self.namespaces.is_empty()
    }
}
