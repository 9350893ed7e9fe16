//! The scheduler: everything that the core knows, and the doors to it.

use std::collections::BTreeMap;

use crate::Name;
use crate::config::Config;
use crate::reason::Unadmitted;
use crate::report::{
    Changed, ClusterQueueStatus, CohortStatus, CycleReport, LocalQueueStatus, PendingPosition,
};
use crate::spec::{ClusterQueueSpec, CohortSpec, FlavorSpec, LocalQueueSpec, Time};
use crate::workload::{WorkloadKey, WorkloadSpec};

/// The state of the world and the algorithm over it.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: Config,
    cycle: u64,
    flavors: BTreeMap<Name, FlavorSpec>,
    cohorts: BTreeMap<Name, CohortSpec>,
    cluster_queues: BTreeMap<Name, ClusterQueueSpec>,
    local_queues: BTreeMap<(Name, Name), LocalQueueSpec>,
    namespaces: BTreeMap<Name, Vec<(Name, Name)>>,
    checks: BTreeMap<Name, bool>,
    workloads: BTreeMap<WorkloadKey, WorkloadSpec>,
}

impl Scheduler {
    /// An empty world.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            cycle: 0,
            flavors: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            cluster_queues: BTreeMap::new(),
            local_queues: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            checks: BTreeMap::new(),
            workloads: BTreeMap::new(),
        }
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds or replaces a ResourceFlavor.
    pub fn set_flavor(&mut self, spec: FlavorSpec) {
        self.flavors.insert(spec.name.clone(), spec);
    }

    /// Removes a ResourceFlavor.
    pub fn remove_flavor(&mut self, name: &str) {
        self.flavors.remove(name);
    }

    /// Adds or replaces a Cohort.
    pub fn set_cohort(&mut self, spec: CohortSpec) {
        self.cohorts.insert(spec.name.clone(), spec);
    }

    /// Removes a Cohort; it stays as an implicit one while something refers to it.
    pub fn remove_cohort(&mut self, name: &str) {
        self.cohorts.remove(name);
    }

    /// Adds or replaces a ClusterQueue.
    pub fn set_cluster_queue(&mut self, spec: ClusterQueueSpec) {
        self.cluster_queues.insert(spec.name.clone(), spec);
    }

    /// Removes a ClusterQueue.
    pub fn remove_cluster_queue(&mut self, name: &str) {
        self.cluster_queues.remove(name);
    }

    /// Adds or replaces a LocalQueue.
    pub fn set_local_queue(&mut self, spec: LocalQueueSpec) {
        self.local_queues.insert((spec.namespace.clone(), spec.name.clone()), spec);
    }

    /// Removes a LocalQueue.
    pub fn remove_local_queue(&mut self, namespace: &str, name: &str) {
        self.local_queues.remove(&(Name::from(namespace), Name::from(name)));
    }

    /// Adds a namespace or replaces its labels.
    pub fn set_namespace(&mut self, name: &Name, labels: Vec<(Name, Name)>) {
        self.namespaces.insert(name.clone(), labels);
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Adds an AdmissionCheck or changes whether it is active.
    pub fn set_check(&mut self, name: &Name, active: bool) {
        self.checks.insert(name.clone(), active);
    }

    /// Removes an AdmissionCheck.
    pub fn remove_check(&mut self, name: &str) {
        self.checks.remove(name);
    }

    /// Adds or replaces a workload: any transition between states, idempotent.
    pub fn set_workload(&mut self, spec: WorkloadSpec, _now: Time) {
        self.workloads.insert(spec.key.clone(), spec);
    }

    /// Removes a workload; what it held is free.
    pub fn remove_workload(&mut self, key: &WorkloadKey, _now: Time) {
        self.workloads.remove(key);
    }

    /// The write of an admission failed: forget what was assumed, and queue the workload again at once.
    pub fn admission_failed(&mut self, _key: &WorkloadKey, _now: Time) {}

    /// One cycle: takes one head per active ClusterQueue, decides, and assumes what it decided. Victims are marked
    /// evicted and keep their quota until they are set to another state or removed.
    pub fn cycle(&mut self, _now: Time) -> CycleReport {
        self.cycle += 1;
        CycleReport { cycle: self.cycle, ..CycleReport::default() }
    }

    /// There is something in the heap of an active ClusterQueue.
    pub fn has_heads(&self) -> bool {
        false
    }

    /// When the first backoff of a parked workload ends.
    pub fn next_wakeup(&self) -> Option<Time> {
        None
    }

    /// Queues the workloads whose backoff ended by `now`.
    pub fn wake(&mut self, _now: Time) {}

    /// Whose status figures changed since the last call.
    pub fn take_changed(&mut self) -> Changed {
        Changed::default()
    }

    /// The status figures of a ClusterQueue; `None` if there is none.
    pub fn cluster_queue_status(&self, _name: &str) -> Option<ClusterQueueStatus> {
        None
    }

    /// The status figures of a LocalQueue; `None` if there is none.
    pub fn local_queue_status(&self, _namespace: &str, _name: &str, _now: Time) -> Option<LocalQueueStatus> {
        None
    }

    /// The status figures of a Cohort, explicit or implicit; `None` if there is none.
    pub fn cohort_status(&self, _name: &str) -> Option<CohortStatus> {
        None
    }

    /// The pending workloads of a ClusterQueue in its order, parked ones included.
    pub fn positions(&self, _cluster_queue: &str) -> Vec<PendingPosition> {
        Vec::new()
    }

    /// The place of one pending workload.
    pub fn position(&self, _key: &WorkloadKey) -> Option<PendingPosition> {
        None
    }

    /// Why the workload was not admitted when it was last tried.
    pub fn last_decision(&self, _key: &WorkloadKey) -> Option<&Unadmitted> {
        None
    }

    /// Rebuilds usage and queues from the specs and compares; the differences, if any.
    pub fn audit(&self) -> Result<(), Vec<String>> {
        Ok(())
    }
}
