//! Looking into the engine: audit, state, explanation.

use serde_json::{Value, json};
use sluice_core::{PendingPosition, Unadmitted, WorkloadKey};

use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::world::World;

/// Where a waiting workload stands and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// Its place in its queue, if it is in one.
    pub position: Option<PendingPosition>,
    /// Why it was not admitted when it was last tried, down to each flavor and resource.
    pub decision: Option<&'a Unadmitted>,
}

impl Engine {
    /// Rebuilds everything that is kept incrementally from the objects, and names what differs.
    ///
    /// The core's usage and queues are rebuilt by the core itself; here the indexes over the objects are.
    pub fn audit(&self) -> Result<(), Vec<String>> {
        let mut differences = self.scheduler.audit().err().unwrap_or_default();
        let mut fresh = World::default();
        for (key, entry) in &self.world.workloads {
            fresh.put_workload(key, entry.object.clone());
        }
        for entry in self.world.jobs.values() {
            fresh.put_job(std::sync::Arc::clone(&entry.view));
        }
        let mut compare = |what: &str, same: bool| {
            if !same {
                differences.push(format!("the index of {what} differs from the objects"));
            }
        };
        compare("workloads by owner", fresh.by_owner == self.world.by_owner);
        compare("workloads by queue", fresh.by_queue == self.world.by_queue);
        compare("jobs by UID", fresh.job_by_uid == self.world.job_by_uid);
        compare("jobs by controller", fresh.children == self.world.children);
        for (key, entry) in &self.world.workloads {
            if entry.open.is_some_and(|id| !self.outbox.open().any(|(known, _)| known == id)) {
                differences.push(format!("workload {key} waits for an answer that cannot come"));
            }
        }
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    }

    /// The engine's state in short, for people who look for a fault.
    pub fn state(&self) -> Value {
        let open: Vec<_> = self
            .outbox
            .open()
            .map(|(id, open)| {
                json!({"id": id.0, "object": open.object.to_string(), "purpose": format!("{:?}", open.purpose)})
            })
            .collect();
        let aside: Vec<_> =
            self.aside.iter().map(|(o, (_, why))| json!({"object": o.to_string(), "why": why})).collect();
        json!({
            "leader": self.leader,
            "synced": self.synced,
            "now": self.now.to_string(),
            "nextTimer": self.next_timer().map(|t| t.to_string()),
            "openWrites": open,
            "setAside": aside,
            "counts": {
                "workloads": self.world.workloads.len(),
                "jobs": self.world.jobs.len(),
                "clusterQueues": self.world.cluster_queues.len(),
                "localQueues": self.world.local_queues.len(),
                "cohorts": self.world.cohorts.len(),
                "resourceFlavors": self.world.flavors.len(),
                "nodes": self.world.nodes.len(),
                "timers": self.timers.len(),
            },
            "hotswap": self.hotswap_state(),
            "clusterQueues": self.world.cluster_queues.keys().map(|n| self.queue_state(n)).collect::<Vec<_>>(),
        })
    }

    fn queue_state(&self, name: &str) -> Value {
        let figures = self.scheduler.cluster_queue_status(name);
        let pending: Vec<_> = self
            .scheduler
            .positions(name)
            .into_iter()
            .map(|p| json!({"workload": p.key.to_string(), "priority": p.priority, "active": p.active}))
            .collect();
        json!({
            "name": name,
            "active": figures.as_ref().is_some_and(|f| f.inactive.is_empty()),
            "reserving": figures.as_ref().map(|f| f.reserving),
            "admitted": figures.as_ref().map(|f| f.admitted),
            "pending": pending,
        })
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

    /// The waiting workloads of a ClusterQueue in its order, parked ones included; `None` if there is no such queue.
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
        self.world.workloads.iter().map(|(key, entry)| {
            let reference = ObjectRef::namespaced(
                Kind::Workload,
                std::sync::Arc::clone(&key.namespace),
                std::sync::Arc::clone(&key.name),
            );
            (reference, &entry.object)
        })
    }
}
