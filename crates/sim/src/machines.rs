//! The state of machines beyond their node objects: where pods run, which pods are objects, and which can never end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef};

use crate::nodes::{Nodes, PodGroup, groups};

/// How long pods stay on a node that does not answer, as their default tolerations say.
pub(crate) const PODS_STAY: SignedDuration = SignedDuration::from_secs(300);
/// How long pods stay on a removed node until they are garbage-collected.
pub(crate) const PODS_COLLECTED: SignedDuration = SignedDuration::from_secs(40);

/// A pod that is an object: its node and its name.
pub(crate) type Shown = (Arc<str>, ObjectRef);

/// The machines, and what is on them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machines {
    /// Their scheduler.
    pub nodes: Nodes,
    /// Nodes that do not answer, and since when.
    pub failed: BTreeMap<Arc<str>, Timestamp>,
    /// Nodes that a scenario deleted, as they were.
    pub removed: BTreeMap<String, Value>,
    /// JobSets that restart because pods failed, not because they were stopped: they wait until the old pods are gone.
    pub restarting: BTreeSet<ObjectRef>,
    /// Whether there was a ClusterQueue for which a manager would watch pods.
    pub asked_for: bool,
    /// Pods of running jobs are objects.
    pub shown: bool,
    /// By job: its pods, where they are objects.
    pub pods: BTreeMap<ObjectRef, Vec<Shown>>,
    /// By job: terminating pods on nodes that do not answer.
    pub stuck: BTreeMap<ObjectRef, Vec<Shown>>,
}

/// The spec of a pod, as far as it matters here.
fn spec(group: &PodGroup<'_>, node: &str) -> Value {
    let containers = |key: &str| -> Value {
        let all = group.spec[key].as_array().into_iter().flatten();
        all.map(|c| {
            let mut kept = json!({"name": c["name"], "resources": c["resources"]});
            if let Some(policy) = c.get("restartPolicy") {
                kept["restartPolicy"] = policy.clone();
            }
            kept
        })
        .collect()
    };
    let mut spec = json!({"nodeName": node, "containers": containers("containers")});
    for key in ["overhead", "resources"] {
        if let Some(value) = group.spec.get(key) {
            spec[key] = value.clone();
        }
    }
    if group.spec.get("initContainers").is_some() {
        spec["initContainers"] = containers("initContainers");
    }
    spec
}

impl Machines {
    /// The pods of a job as objects; `attempt` names the start of the job that they belong to.
    pub fn documents(
        &self,
        job: &ObjectRef,
        kind: JobKind,
        value: &Value,
        attempt: u64,
    ) -> Vec<(Shown, Value)> {
        let groups = groups(kind, value);
        let document = |pod: &crate::nodes::Placed| {
            let group = groups.get(pod.group)?;
            // If a group has no parts, the index alone identifies its pods.
            let part = if kind.has_parts() {
                format!("-{}-{}", group.name.to_ascii_lowercase(), pod.replica)
            } else if groups.len() == 1 {
                String::new()
            } else {
                format!("-{}", group.name.to_ascii_lowercase())
            };
            let name = format!("{}{part}-{}-{attempt}", job.name, pod.index);
            let mut metadata = json!({"name": name, "namespace": &*job.namespace});
            if let Some(label) = kind.integration().pod_label {
                metadata["labels"] = json!({label: &*job.name});
            } else {
                metadata["ownerReferences"] = json!([{
                    "apiVersion": kind.api_version(), "kind": kind.kind(), "name": &*job.name, "controller": true,
                    "uid": value["metadata"]["uid"],
                }]);
            }
            let reference = ObjectRef::namespaced(Kind::Pod, job.namespace.clone(), name.as_str());
            let object = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": spec(group, &pod.node), "status": {"phase": "Running"},
            });
            Some(((Arc::clone(&pod.node), reference), object))
        };
        self.nodes.pods_of(job).iter().filter_map(document).collect()
    }

    /// How many pods of a job can never end in this state.
    pub fn stuck_of(&self, job: &ObjectRef) -> usize {
        self.stuck.get(job).map_or(0, Vec::len)
    }

    /// Takes the stuck pods of nodes that answer again or are gone, each with its job.
    pub fn take_stuck(&mut self, node: &str) -> Vec<(ObjectRef, ObjectRef)> {
        let mut freed = Vec::new();
        for (job, pods) in &mut self.stuck {
            let (free, rest): (Vec<_>, Vec<_>) = pods.drain(..).partition(|(on, _)| **on == *node);
            freed.extend(free.into_iter().map(|(_, pod)| (job.clone(), pod)));
            *pods = rest;
        }
        self.stuck.retain(|_, pods| !pods.is_empty());
        freed
    }
}
