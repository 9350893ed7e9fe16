//! The places of waiting Workloads for a part that keeps a copy of them: what changed since its last request, at a cost in proportion to the changes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use sluice_api::slim;
use sluice_core::{Name, Standing, WorkloadKey};

use crate::engine::Engine;
use crate::followed::Followed;
use crate::input::{Kind, ObjectRef};

/// A waiting Workload: where it stands, and what is shown of it.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingWorkload {
    /// Where it stands in its ClusterQueue.
    pub standing: Standing,
    /// `metadata.creationTimestamp`.
    pub created: Option<Time>,
    /// `spec.priority`.
    pub priority: i32,
    /// `metadata.ownerReferences`.
    pub owners: Vec<OwnerReference>,
}

/// What changed.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    /// The engine was rebuilt: everything known before is void.
    pub rebuilt: bool,
    /// The initial state is complete.
    pub synced: bool,
    /// ClusterQueues, and whether they exist now.
    pub cluster_queues: Vec<(Name, bool)>,
    /// LocalQueues by namespace and name, and their current ClusterQueue; `None` for a LocalQueue that does not exist.
    pub local_queues: Vec<((Name, Name), Option<Name>)>,
    /// LocalQueues and the usage that orders their Workloads now (see [`Standing::order`]).
    pub usages: Vec<((Name, Name), f64)>,
    /// Workloads, and where they wait now, if they do.
    pub workloads: Vec<(WorkloadKey, Option<WaitingWorkload>)>,
    /// There is more.
    pub more: bool,
}

impl Engine {
    /// Notes what changes about places from now on. Called before anything is seen.
    pub fn follow_positions(&mut self) {
        self.scheduler.follow_moves();
        self.followed = Some(Followed::rebuilt());
    }

    /// Whether there is anything to report.
    pub fn has_moves(&self) -> bool {
        let reported = |f: &Followed| !f.rebuilt && f.synced == self.synced && f.queues.is_empty();
        self.followed.as_ref().is_some_and(|followed| !reported(followed) || self.scheduler.has_moves())
    }

    /// The changes, of at most `most` queues, `most` usages and `most` Workloads at a time.
    pub fn take_moves(&mut self, most: usize) -> Moves {
        let Some(followed) = &mut self.followed else { return Moves::default() };
        let mut moves = Moves {
            rebuilt: std::mem::take(&mut followed.rebuilt),
            usages: self.scheduler.take_usages(most),
            ..Moves::default()
        };
        for _ in 0..most {
            let Some(queue) = followed.queues.pop_first() else { break };
            if queue.kind == Kind::ClusterQueue {
                let exists = self.world.cluster_queues.contains_key(&queue.name);
                moves.cluster_queues.push((queue.name, exists));
            } else {
                let key = (queue.namespace, queue.name);
                let target = self.world.local_queues.get(&key);
                let target =
                    target.map(|queue| queue.spec.cluster_queue.as_deref().unwrap_or_default().into());
                moves.local_queues.push((key, target));
            }
        }
        for (key, standing) in self.scheduler.take_moves(most) {
            let waiting = standing.zip(self.world.workloads.get(&key)).map(|(standing, entry)| {
                let metadata = &entry.object.metadata;
                let priority = entry.object.spec.priority.unwrap_or_default();
                WaitingWorkload {
                    standing,
                    created: metadata.creation_timestamp.clone(),
                    priority,
                    owners: metadata.owner_references.clone().unwrap_or_default(),
                }
            });
            moves.workloads.push((key, waiting));
        }
        moves.more = !followed.queues.is_empty() || self.scheduler.has_moves();
        if !moves.more {
            followed.synced = self.synced;
        }
        moves.synced = followed.synced;
        moves
    }

    /// The displayed fields of a waiting Workload may differ in its new version, although its place is the same.
    pub(crate) fn note_other_looks(&mut self, key: &WorkloadKey, new: &slim::Workload) {
        if self.followed.is_none() {
            return;
        }
        let same =
            |old: &slim::Workload| old.spec.priority == new.spec.priority && owners(old) == owners(new);
        if self.world.workloads.get(key).is_some_and(|entry| !same(&entry.object)) {
            self.scheduler.note_move(key);
        }
    }

    /// A ClusterQueue or LocalQueue was seen, or is gone.
    pub(crate) fn queue_moved(&mut self, queue: &ObjectRef) {
        if let Some(followed) = &mut self.followed {
            followed.queues.insert(queue.clone());
        }
    }
}

fn owners(of: &slim::Workload) -> &[OwnerReference] {
    of.metadata.owner_references.as_deref().unwrap_or_default()
}
