//! The state at one moment, as answers are made from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use sluice_engine::{Name, WorkloadKey};

use super::amounts::Amounts;
use super::happening::Happening;
use super::rows::{CohortRow, FlavorRow, NodeRow, QueueRow, State, WorkloadRow};
use super::seen_queues::SeenQueues;
use super::viewer::Viewer;

/// The state at one moment. Cheap to make: rows are shared.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Grows with every change.
    pub revision: u64,
    /// Whether these are the Workloads of all namespaces.
    pub complete: bool,
    /// All Workloads.
    pub workloads: BTreeMap<WorkloadKey, Arc<WorkloadRow>>,
    /// All ClusterQueues.
    pub cluster_queues: BTreeMap<Name, Arc<QueueRow>>,
    /// Cohorts that are objects.
    pub cohorts: BTreeMap<Name, Arc<CohortRow>>,
    /// The ClusterQueue of each LocalQueue, by namespace and name.
    pub local_queues: BTreeMap<(Name, Name), Name>,
    /// All ResourceFlavors.
    pub flavors: BTreeMap<Name, Arc<FlavorRow>>,
    /// The labels of the levels of each Topology.
    pub topologies: BTreeMap<Name, Arc<Vec<String>>>,
    /// All nodes.
    pub nodes: BTreeMap<Name, Arc<NodeRow>>,
    /// The latest changes, newest first.
    pub recent: Vec<Happening>,
    /// Made when it is first asked for.
    pub sums: OnceLock<BTreeMap<Name, QueueSums>>,
    /// Made when it is first asked for.
    pub namespaces: OnceLock<BTreeSet<Name>>,
}

/// Sums over the Workloads of a ClusterQueue.
#[derive(Debug, Default)]
pub struct QueueSums {
    /// The number that waits for quota.
    pub pending: usize,
    /// The number with quota, admitted or not.
    pub reserving: usize,
    /// The number of admitted ones.
    pub admitted: usize,
    /// The quota that they hold, by flavor.
    pub used: BTreeMap<Name, Amounts>,
    /// Those that have not ended: first those with quota.
    pub members: Vec<Arc<WorkloadRow>>,
}

impl Snapshot {
    /// The same, without what is computed on first use.
    pub(super) fn copy(&self) -> Self {
        Self {
            revision: self.revision,
            complete: self.complete,
            workloads: self.workloads.clone(),
            cluster_queues: self.cluster_queues.clone(),
            cohorts: self.cohorts.clone(),
            local_queues: self.local_queues.clone(),
            flavors: self.flavors.clone(),
            topologies: self.topologies.clone(),
            nodes: self.nodes.clone(),
            recent: self.recent.clone(),
            sums: OnceLock::new(),
            namespaces: OnceLock::new(),
        }
    }

    /// How many Workloads have not ended.
    pub fn unfinished(&self) -> usize {
        self.workloads.values().filter(|row| row.state != State::Finished).count()
    }

    /// The ClusterQueue that a Workload is held by, or waits in.
    pub fn queue_of<'a>(&'a self, row: &'a WorkloadRow) -> Option<&'a Name> {
        row.holder.as_ref().or_else(|| {
            let local = (Name::clone(&row.key.namespace), Name::clone(&row.local_queue));
            self.local_queues.get(&local)
        })
    }

    /// The ClusterQueues and Cohorts that a viewer may know.
    pub fn seen_queues(&self, viewer: &Viewer) -> SeenQueues<'_> {
        SeenQueues::of(Some(self), viewer)
    }

    /// The sums over the Workloads of each ClusterQueue.
    pub fn sums(&self) -> &BTreeMap<Name, QueueSums> {
        self.sums.get_or_init(|| self.sum_up())
    }

    /// The namespaces that have Workloads or LocalQueues.
    pub fn namespaces(&self) -> &BTreeSet<Name> {
        self.namespaces.get_or_init(|| {
            let mut all: BTreeSet<Name> =
                self.local_queues.keys().map(|(namespace, _)| Name::clone(namespace)).collect();
            let mut last: Option<&Name> = None;
            for WorkloadKey { namespace, .. } in self.workloads.keys() {
                if last != Some(namespace) {
                    all.insert(Name::clone(namespace));
                    last = Some(namespace);
                }
            }
            all
        })
    }

    fn sum_up(&self) -> BTreeMap<Name, QueueSums> {
        let mut all = BTreeMap::<Name, QueueSums>::new();
        for row in self.workloads.values().filter(|row| row.state != State::Finished) {
            let Some(queue) = self.queue_of(row) else { continue };
            let sums = all.entry(Name::clone(queue)).or_default();
            sums.members.push(Arc::clone(row));
            sums.pending += usize::from(row.state == State::Pending);
            sums.reserving += usize::from(row.state.holds());
            sums.admitted += usize::from(row.state == State::Admitted);
            for (flavor, resource, amount) in &row.usage {
                let used = sums.used.entry(Name::clone(flavor)).or_default();
                let sum = used.entry(Name::clone(resource)).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        for sums in all.values_mut() {
            sums.members.sort_by(|a, b| {
                (a.state, -i64::from(a.priority), a.created, &a.key).cmp(&(
                    b.state,
                    -i64::from(b.priority),
                    b.created,
                    &b.key,
                ))
            });
        }
        all
    }
}
