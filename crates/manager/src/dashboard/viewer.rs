//! What a caller may see: the namespaces in which they may read Workloads, and whether they may list nodes and ClusterQueues.

use std::collections::BTreeSet;

use sluice_engine::Name;

/// A user, and what they may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewer {
    /// The viewer's name.
    pub user: String,
    /// The viewer may read the Workloads of every namespace.
    pub all: bool,
    /// The namespaces in which the viewer may read Workloads, if not in all.
    pub namespaces: BTreeSet<Name>,
    /// The viewer may list nodes.
    pub nodes: bool,
    /// The viewer may list ClusterQueues: other viewers know those that their LocalQueues use.
    pub queues: bool,
}

/// A viewer, with what is known of their rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The viewer.
    pub viewer: Viewer,
    /// For how many namespaces the viewer's rights are not known yet.
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
