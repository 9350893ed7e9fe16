//! Indexes over the pods that are bound to nodes: one node or job has few of all pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_core::Name;

use crate::hotswap::pod::{Pod, PodKey};
use crate::index_map::IndexMap;

/// Bound pods by a common property. Sorted pairs take less memory than sets of which most have one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodIndex {
    /// By node, in order. Nodes have few pods, and an event of one finds them by hash.
    pub(super) on: IndexMap<Name, Vec<PodKey>>,
    /// By the UID of their controller.
    pub(super) controlled: BTreeSet<(Name, PodKey)>,
    /// By the name of their JobSet.
    pub(super) in_jobset: BTreeSet<(Name, PodKey)>,
}

impl PodIndex {
    pub(super) fn put(&mut self, key: &PodKey, pod: &Pod) {
        let on = self.on.entry(Arc::clone(&pod.node)).or_insert_with(|| Vec::with_capacity(1));
        if let Err(at) = on.binary_search(key) {
            on.insert(at, key.clone());
        }
        let (controller, jobset) = pod.owners();
        self.controlled.extend(controller.map(|uid| (Arc::clone(uid), key.clone())));
        self.in_jobset.extend(jobset.map(|name| (Arc::clone(name), key.clone())));
    }

    /// Whether pods are there that an object with this UID controls, in any namespace.
    pub(super) fn has_controller(&self, uid: &Name) -> bool {
        let first = (Name::clone(uid), (Name::default(), Name::default()));
        self.controlled.range(first..).next().is_some_and(|(known, _)| known == uid)
    }

    pub(super) fn take(&mut self, key: &PodKey, pod: &Pod) {
        if let Some(on) = self.on.get_mut(&pod.node) {
            if let Ok(at) = on.binary_search(key) {
                on.remove(at);
            }
            if on.is_empty() {
                self.on.swap_remove(&pod.node);
            }
        }
        let (controller, jobset) = pod.owners();
        if let Some(uid) = controller {
            self.controlled.remove(&(Arc::clone(uid), key.clone()));
        }
        if let Some(name) = jobset {
            self.in_jobset.remove(&(Arc::clone(name), key.clone()));
        }
    }
}

/// The pods of a namespace that have a name in common.
pub(super) fn within<'a>(
    pairs: &'a BTreeSet<(Name, PodKey)>,
    name: &'a Name,
    namespace: &'a Name,
) -> impl Iterator<Item = &'a PodKey> + use<'a> {
    let first = (Name::clone(name), (Name::clone(namespace), Name::default()));
    let of = move |(other, key): &&(Name, PodKey)| (other, &key.0) == (name, namespace);
    pairs.range(first..).take_while(of).map(|(_, key)| key)
}
