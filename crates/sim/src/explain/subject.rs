//! What is asked about, as it was read from a cluster.

use serde_json::Value;

/// What is known of the one that is asked about, as it was read: also when it is over, and left out of the world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// Its Workload.
    pub workload: Option<Value>,
    /// The job.
    pub job: Option<Value>,
    /// Pods of its namespace that are pending: its own are picked.
    pub pods: Vec<Value>,
    /// Whether there are more of them than were read.
    pub more_pods: bool,
}
