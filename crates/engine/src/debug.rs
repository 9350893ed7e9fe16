//! Looking into the engine: audit, explanation.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::{Name, PendingPosition, Unadmitted, WorkloadKey};

use crate::engine::Engine;
use crate::input::ObjectRef;
use crate::lifecycle::workload::is_being_reserved;
use crate::world::{World, workload_ref};

/// Where a waiting workload stands and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// Its place in its queue, if it is in one.
    pub position: Option<PendingPosition>,
    /// Why it was not admitted when it was last tried, down to each flavor and resource.
    pub decision: Option<&'a Unadmitted>,
}

impl Engine {
    /// Rebuilds everything that is kept incrementally from the objects, and compares.
    ///
    /// The core rebuilds its usage and queues itself; the indexes over the objects are rebuilt here.
    ///
    /// # Errors
    ///
    /// The differences, if there are any.
    pub fn audit(&self) -> Result<(), Vec<String>> {
        let mut differences = self.scheduler.audit().err().unwrap_or_default();
        let mut fresh = World::default();
        for (key, entry) in self.world.workloads.iter() {
            fresh.put_workload(key, entry.object.clone());
        }
        for entry in self.world.jobs.values() {
            fresh.put_job(std::sync::Arc::clone(&entry.view));
        }
        for (key, queue) in &self.world.local_queues {
            fresh.put_local_queue(key.clone(), queue.clone());
        }
        for (key, pod) in self.world.pods.iter() {
            fresh.put_pod(key.clone(), pod.clone());
        }
        let mut compare = |what: &str, same: bool| {
            if !same {
                differences.push(format!("the index of {what} differs from the objects"));
            }
        };
        compare("workloads by owner", fresh.by_owner == self.world.by_owner);
        compare("slices by the first one", fresh.slices == self.world.slices);
        compare("workloads by queue", fresh.by_queue == self.world.by_queue);
        compare("LocalQueues by ClusterQueue", fresh.by_cluster_queue == self.world.by_cluster_queue);
        for job in self.world.pod_jobs.values() {
            compare("pods of a job", job.pods.recounted() == job.pods);
        }
        let mut pods_of: BTreeMap<Name, BTreeSet<_>> = BTreeMap::new();
        for (key, known) in self.world.job_pods.iter().filter(|(_, known)| known.elastic) {
            let job = known.controller.clone().unwrap_or_default();
            pods_of.entry(job).or_default().insert(key.clone());
        }
        compare("pods of elastic jobs", pods_of == self.world.job_pods_of);
        compare("pods with a place", self.world.placed_again() == self.world.placed);
        compare("pods by node and job", fresh.pod_index == self.world.pod_index);
        compare("pods that are being deleted", fresh.leaving == self.world.leaving);
        compare("jobs by UID", fresh.job_by_uid == self.world.job_by_uid);
        compare("jobs by controller", fresh.children == self.world.children);
        differences.extend(self.world.audit_watched(&fresh));
        for (key, entry) in self.world.workloads.iter() {
            if entry.open.is_some_and(|id| !self.outbox.open().any(|(known, _)| known == id)) {
                differences.push(format!("workload {key} waits for an answer that cannot come"));
            }
        }
        differences.extend(self.audit_topology());
        differences.extend(self.audit_nodes_to_avoid());
        differences.extend(self.audit_capacity());
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    }

    /// How many objects an audit compares.
    pub fn audited(&self) -> usize {
        let world = &self.world;
        world.workloads.len() + world.jobs.len() + world.local_queues.len() + world.cluster_queues.len()
    }

    /// Where a waiting workload stands and why.
    pub fn explain(&self, namespace: &str, name: &str) -> Option<Explanation<'_>> {
        let key = WorkloadKey::new(namespace, name);
        self.world.workloads.get(&key)?;
        Some(Explanation {
            position: self.scheduler.position(&key),
            decision: self.scheduler.last_decision(&key),
        })
    }

    /// The waiting workloads of a ClusterQueue in its order, inadmissible ones included; `None` if there is no such queue.
    pub fn pending_workloads(&self, cluster_queue: &str) -> Option<Vec<PendingPosition>> {
        self.world.cluster_queues.contains_key(cluster_queue).then(|| self.scheduler.positions(cluster_queue))
    }

    /// The ClusterQueue of a LocalQueue, if there is such a LocalQueue.
    pub fn cluster_queue_of_local(&self, namespace: &str, name: &str) -> Option<&str> {
        let queue = self.world.local_queues.get(&(namespace.into(), name.into()))?;
        queue.spec.cluster_queue.as_deref()
    }

    /// The Workloads that are known, with their objects.
    pub fn workloads(&self) -> impl Iterator<Item = (ObjectRef, &sluice_api::slim::Workload)> {
        self.world.workloads.iter().map(|(key, entry)| (workload_ref(key), &entry.object))
    }

    /// The Workloads that were given quota of which it is not known whether that is written.
    pub fn reserving(&self) -> impl Iterator<Item = ObjectRef> {
        let all = self.world.workloads.iter().filter(|(_, entry)| is_being_reserved(entry));
        all.map(|(key, _)| workload_ref(key))
    }
}
