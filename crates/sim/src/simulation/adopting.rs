//! Adopts pods that were read from a cluster: they stay on their nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef};

use super::Simulation;
use crate::json::text;
use crate::nodes::groups;

impl Simulation {
    /// Assigns the existing pods to the existing jobs. Pods without a job use capacity of their nodes for good.
    pub(super) fn adopt_pods(&mut self) {
        let pods: Vec<_> = self.world.of_kind(Kind::Pod).map(|(r, v)| (r.clone(), v.clone())).collect();
        if pods.is_empty() {
            return;
        }
        let jobs: BTreeMap<String, ObjectRef> = self
            .world
            .all()
            .filter(|(reference, _)| matches!(reference.kind, Kind::Job(_)))
            .map(|(reference, value)| (text(&value["metadata"]["uid"]).to_owned(), reference.clone()))
            .collect();
        let mut adopted = BTreeSet::new();
        for (pod, value) in pods {
            let node = text(&value["spec"]["nodeName"]);
            let job = self.job_of_pod(&pod, &value, &jobs);
            let runs = |job: &ObjectRef| {
                let Kind::Job(kind) = job.kind else { return false };
                self.world.get(job).is_some_and(|value| !sluice_jobs::is_suspended(kind, value))
            };
            let stopped = |job: &ObjectRef| !runs(job);
            if node.is_empty() || job.as_ref().is_some_and(stopped) {
                self.world.delete(&pod);
                continue;
            }
            self.machines.nodes.adopt(job.as_ref().unwrap_or(&pod), node, &value["spec"]);
            if let Some(job) = job {
                let shown = (Arc::from(node), pod);
                self.machines.pods.entry(job.clone()).or_default().push(shown);
                adopted.insert(job);
            }
        }
        for job in adopted {
            self.adopt_groups(&job);
        }
    }

    /// The job of a pod: its controller, or the job that its label names (then the pod's controller is a part of the job).
    fn job_of_pod(
        &self,
        pod: &ObjectRef,
        value: &Value,
        jobs: &BTreeMap<String, ObjectRef>,
    ) -> Option<ObjectRef> {
        let mut owners = value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.find(|owner| owner["controller"] == true);
        let controller = controller.and_then(|owner| jobs.get(text(&owner["uid"])).cloned());
        let named = |kind: JobKind| {
            let name = value["metadata"]["labels"][kind.integration().pod_label?].as_str()?;
            let job = ObjectRef::namespaced(Kind::Job(kind), Arc::clone(&pod.namespace), name);
            self.world.get(&job).is_some().then_some(job)
        };
        // A queued pod is a job itself.
        let itself = || jobs.get(text(&value["metadata"]["uid"])).cloned();
        controller.or_else(itself).or_else(|| JobKind::all().iter().copied().find_map(named))
    }

    /// Notes the groups of nodes that a JobSet has to itself.
    fn adopt_groups(&mut self, job: &ObjectRef) {
        let (Some(value), Kind::Job(kind)) = (self.world.get(job), job.kind) else { return };
        let groups = groups(kind, value);
        let labels: BTreeSet<&str> = groups.iter().filter_map(|group| group.exclusive).collect();
        let on: BTreeSet<_> =
            self.machines.nodes.pods_of(job).iter().map(|pod| Arc::clone(&pod.node)).collect();
        let mut holds = BTreeSet::new();
        for node in on {
            let Some(value) = self.world.get(&ObjectRef::cluster(Kind::Node, node)) else { continue };
            let of = |label: &&str| {
                Some(((*label).to_owned(), value["metadata"]["labels"][*label].as_str()?.to_owned()))
            };
            holds.extend(labels.iter().filter_map(of));
        }
        self.machines.nodes.hold(job, holds);
    }
}
