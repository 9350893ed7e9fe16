//! Fake nodes: kwok makes them ready and runs their pods.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};

/// A group of equal nodes, as GKE's node pools are.
#[derive(Debug, Clone)]
pub struct Pool {
    name: String,
    nodes: u32,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    allocatable: BTreeMap<String, String>,
}

/// A pool of nodes with nothing but processors (64) and memory (256 Gi) each.
pub fn pool(name: &str, nodes: u32) -> Pool {
    let allocatable = [("cpu", "64"), ("memory", "256Gi"), ("pods", "110")];
    Pool {
        name: name.to_owned(),
        nodes,
        labels: BTreeMap::from([("cloud.google.com/gke-nodepool".to_owned(), name.to_owned())]),
        taints: Vec::new(),
        allocatable: allocatable.map(|(resource, amount)| (resource.to_owned(), amount.to_owned())).into(),
    }
}

/// A pool of TPU nodes with `chips` each, labelled and tainted as GKE does it with a slice: `accelerator` as in `tpu-v5-lite-podslice`,
/// `topology` as in `2x4`.
pub fn tpu_pool(name: &str, nodes: u32, chips: u32, accelerator: &str, topology: &str) -> Pool {
    pool(name, nodes)
        .label("cloud.google.com/gke-tpu-accelerator", accelerator)
        .label("cloud.google.com/gke-tpu-topology", topology)
        .allocatable("google.com/tpu", &chips.to_string())
        .taint("google.com/tpu", "present", "NoSchedule")
}

/// A pool of nodes with `gpus` each, labelled with the model and tainted as GKE does it.
pub fn gpu_pool(name: &str, nodes: u32, gpus: u32, accelerator: &str) -> Pool {
    pool(name, nodes)
        .label("cloud.google.com/gke-accelerator", accelerator)
        .allocatable("nvidia.com/gpu", &gpus.to_string())
        .taint("nvidia.com/gpu", "present", "NoSchedule")
}

impl Pool {
    /// Adds a label to each node.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// How much of a resource each node has.
    #[must_use]
    pub fn allocatable(mut self, resource: &str, amount: &str) -> Self {
        self.allocatable.insert(resource.to_owned(), amount.to_owned());
        self
    }

    /// A taint on each node; `effect` as in `NoSchedule`.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        let (key, value, effect) = (key.to_owned(), Some(value.to_owned()), effect.to_owned());
        self.taints.push(Taint { key, value, effect, time_added: None });
        self
    }

    /// The nodes, named `<pool>-<index>`.
    pub fn nodes(&self) -> Vec<Node> {
        let quantities = || -> BTreeMap<String, Quantity> {
            self.allocatable
                .iter()
                .map(|(resource, amount)| (resource.clone(), Quantity(amount.clone())))
                .collect()
        };
        (0..self.nodes)
            .map(|index| {
                let name = format!("{}-{index}", self.name);
                let mut labels = self.labels.clone();
                labels.insert("kubernetes.io/hostname".to_owned(), name.clone());
                let metadata = ObjectMeta { name: Some(name), labels: Some(labels), ..ObjectMeta::default() };
                let taints = (!self.taints.is_empty()).then(|| self.taints.clone());
                let spec = NodeSpec { taints, ..NodeSpec::default() };
                let status = NodeStatus {
                    allocatable: Some(quantities()),
                    capacity: Some(quantities()),
                    ..NodeStatus::default()
                };
                Node { metadata, spec: Some(spec), status: Some(status) }
            })
            .collect()
    }

    /// Makes the nodes (server-side apply, so that it may be repeated).
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or refuses a node or its status. Those before it are made then.
    pub async fn make(&self, client: &Client) -> Result<()> {
        let api: Api<Node> = Api::all(client.clone());
        let params = PatchParams::apply("sluice-testkit").force();
        for node in self.nodes() {
            let name = node.metadata.name.clone().unwrap_or_default();
            let status = Node { spec: None, ..node.clone() };
            let failed = || format!("making the node {name}");
            // At no moment without its status: kwok would put its own defaults there, perhaps after us.
            api.patch(&name, &params, &Patch::Apply(&node)).await.with_context(failed)?;
            // The main resource drops the status of a node that exists already.
            api.patch_status(&name, &params, &Patch::Apply(&status)).await.with_context(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tpu_pool_has_the_labels_and_the_taint_that_gke_gives() {
        let nodes = tpu_pool("slice", 2, 4, "tpu-v5-lite-podslice", "2x4").nodes();
        assert_eq!(nodes.len(), 2);
        let node = &nodes[1];
        let labels = node.metadata.labels.as_ref().unwrap();
        assert_eq!(node.metadata.name.as_deref(), Some("slice-1"));
        assert_eq!(labels["cloud.google.com/gke-nodepool"], "slice");
        assert_eq!(labels["cloud.google.com/gke-tpu-topology"], "2x4");
        assert_eq!(labels["kubernetes.io/hostname"], "slice-1");
        let status = node.status.as_ref().unwrap();
        assert_eq!(status.allocatable.as_ref().unwrap()["google.com/tpu"].0, "4");
        let taints = node.spec.as_ref().unwrap().taints.as_ref().unwrap();
        let [taint] = &taints[..] else { panic!("{taints:?}") };
        let value = taint.value.as_deref();
        assert_eq!((&*taint.key, value, &*taint.effect), ("google.com/tpu", Some("present"), "NoSchedule"));
    }
}
