//! Pods that are bound to nodes.

use std::sync::Arc;

use sluice_core::Name;

use super::pod_index::within;
use super::{World, index, unindex};
use crate::hotswap::pod::{Pod, PodKey};

impl World {
    /// Puts a pod in.
    pub fn put_pod(&mut self, key: PodKey, pod: Pod) {
        // Most changes of a pod leave the indexes as they are.
        if let Some(known) = self.pods.get_mut(&key)
            && known.is_indexed_like(&pod)
        {
            *known = pod;
            return;
        }
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
    pub fn pods_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        self.pod_index.on.get(node).into_iter().flatten()
    }

    /// The pods of a namespace that a job controls.
    pub fn pods_controlled_by<'a>(
        &'a self,
        uid: &'a Name,
        namespace: &'a Name,
    ) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        within(&self.pod_index.controlled, uid, namespace)
    }

    /// The pods of a namespace that name a JobSet.
    pub fn pods_of_jobset<'a>(
        &'a self,
        name: &'a Name,
        namespace: &'a Name,
    ) -> impl Iterator<Item = &'a PodKey> + use<'a> {
        within(&self.pod_index.in_jobset, name, namespace)
    }
}
