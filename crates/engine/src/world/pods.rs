//! Pods that are bound to nodes, and the indexes over them: a node and a job have few of all the pods that there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_core::Name;

use super::{World, index, unindex};
use crate::hotswap::pod::{Pod, PodKey};

/// Bound pods by what they have in common. Pairs in order take less than sets of which most have one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodIndex {
    /// By node.
    on: BTreeSet<(Name, PodKey)>,
    /// By the UID of their controller.
    controlled: BTreeSet<(Name, PodKey)>,
    /// By the name of their JobSet.
    in_jobset: BTreeSet<(Name, PodKey)>,
}

impl PodIndex {
    fn put(&mut self, key: &PodKey, pod: &Pod) {
        self.on.insert((Arc::clone(&pod.node), key.clone()));
        let (controller, jobset) = pod.owners();
        self.controlled.extend(controller.map(|uid| (Arc::clone(uid), key.clone())));
        self.in_jobset.extend(jobset.map(|name| (Arc::clone(name), key.clone())));
    }

    fn take(&mut self, key: &PodKey, pod: &Pod) {
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

/// The pods of a namespace that have a name in common.
fn of<'a>(
    pairs: &'a BTreeSet<(Name, PodKey)>,
    name: &'a str,
    namespace: &str,
) -> impl Iterator<Item = &'a PodKey> + use<'a> {
    let first = (Name::from(name), (Name::from(namespace), Name::from("")));
    pairs.range(first..).take_while(move |(other, _)| **other == *name).map(|(_, key)| key)
}

impl World {
    /// Puts a pod in.
    pub fn put_pod(&mut self, key: PodKey, pod: Pod) {
        self.take_pod(&key);
        if let Some(job) = pod.controller.as_ref().filter(|_| pod.leaving) {
            index(&mut self.leaving, Arc::clone(job), key.clone());
        }
        self.pod_index.put(&key, &pod);
        self.pods.insert(key, pod);
    }

    /// Takes a pod out.
    pub fn take_pod(&mut self, key: &PodKey) {
        let Some(pod) = self.pods.remove(key) else { return };
        self.pod_index.take(key, &pod);
        if let Some(job) = pod.controller {
            unindex(&mut self.leaving, &job, key);
        }
    }

    /// The pods that are bound to a node.
    pub fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        of(&self.pod_index.on, node, "")
    }

    /// The pods of a namespace that a job controls.
    pub fn pods_controlled_by<'a>(
        &'a self,
        uid: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        of(&self.pod_index.controlled, uid, namespace).take_while(move |key| *key.0 == *namespace)
    }

    /// The pods of a namespace that name a JobSet.
    pub fn pods_of_jobset<'a>(
        &'a self,
        name: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        of(&self.pod_index.in_jobset, name, namespace).take_while(move |key| *key.0 == *namespace)
    }
}
