//! How long pods wait behind a scheduling gate after their Workload was admitted, until the write that removes it has succeeded.

use jiff::Timestamp;
use sluice_api::conditions::{WorkloadCondition as Type, true_since};
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::Name;

/// The gate that a write removes from a pod of an admitted Workload.
#[derive(Clone, Debug)]
pub(crate) struct RemovedGate {
    gate: &'static str,
    cluster_queue: Name,
    is_group: bool,
    /// When the Workload was admitted.
    pub since: Timestamp,
}

impl RemovedGate {
    /// A gate that is removed, with the labels from its Workload. `None` if that is not admitted.
    pub fn of(status: &WorkloadStatus, gate: &'static str, is_group: bool) -> Option<Self> {
        let since = true_since(&status.conditions, Type::Admitted.as_str())?;
        let cluster_queue = Name::from(status.admission.as_ref()?.cluster_queue.as_str());
        Some(Self { gate, cluster_queue, is_group, since })
    }

    /// The labels of the metric that is reported once the gate is off.
    pub fn labels(&self) -> [&str; 3] {
        [self.gate, &self.cluster_queue, if self.is_group { "true" } else { "false" }]
    }
}
