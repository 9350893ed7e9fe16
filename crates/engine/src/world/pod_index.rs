//! Indexes over the pods that are bound to nodes: one node or job has few of all pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_core::Name;

use crate::hotswap::pod::{Pod, PodKey};

/// Bound pods by a common property. Sorted pairs take less memory than sets of which most have one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodIndex {
    /// By node.
    pub(super) on: BTreeSet<(Name, PodKey)>,
    /// By the UID of their controller.
    pub(super) controlled: BTreeSet<(Name, PodKey)>,
    /// By the name of their JobSet.
    pub(super) in_jobset: BTreeSet<(Name, PodKey)>,
}

impl PodIndex {
    pub(super) fn put(&mut self, key: &PodKey, pod: &Pod) {
        self.on.insert((Arc::clone(&pod.node), key.clone()));
        let (controller, jobset) = pod.owners();
        self.controlled.extend(controller.map(|uid| (Arc::clone(uid), key.clone())));
        self.in_jobset.extend(jobset.map(|name| (Arc::clone(name), key.clone())));
    }

    pub(super) fn take(&mut self, key: &PodKey, pod: &Pod) {
        self.on.remove(&(Arc::clone(&pod.node), key.clone()));
        let (controller, jobset) = pod.owners();
        if let Some(uid) = controller {
            self.controlled.remove(&(Arc::clone(uid), key.clone()));
        }
        if let Some(name) = jobset {
            self.in_jobset.remove(&(Arc::clone(name), key.clone()));
        }
    }
}

/// The pods that have a name in common, from a namespace on.
pub(super) fn named<'a>(
    pairs: &'a BTreeSet<(Name, PodKey)>,
    name: &'a str,
    namespace: &str,
) -> impl Iterator<Item = &'a PodKey> + use<'a> {
    let first = (Name::from(name), (Name::from(namespace), Name::default()));
    pairs.range(first..).take_while(move |(other, _)| **other == *name).map(|(_, key)| key)
}

/// Those of one namespace.
pub(super) fn within<'a>(
    pairs: &'a BTreeSet<(Name, PodKey)>,
    name: &'a str,
    namespace: &'a str,
) -> impl Iterator<Item = &'a PodKey> + use<'a> {
    named(pairs, name, namespace).take_while(move |key| *key.0 == *namespace)
}
