//! What a caller may see: the namespaces in which he may read Workloads.

use std::collections::BTreeSet;

use sluice_engine::Name;

/// Who asks, and what he may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewer {
    /// His name.
    pub user: String,
    /// He may read the Workloads of every namespace.
    pub all: bool,
    /// Those in which he may, if not in all.
    pub namespaces: BTreeSet<Name>,
    /// He may list nodes.
    pub nodes: bool,
}

impl Viewer {
    /// Whether he may read the Workloads of a namespace.
    pub fn sees(&self, namespace: &str) -> bool {
        self.all || self.namespaces.contains(namespace)
    }

    /// Whether there is any namespace for him.
    pub fn sees_any(&self) -> bool {
        self.all || !self.namespaces.is_empty()
    }
}
