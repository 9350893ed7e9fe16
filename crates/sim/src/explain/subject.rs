//! What is asked about, as it was read from a cluster.

use serde_json::Value;

/// What is known of the one that is asked about, as it was read: also when it is over, and left out of the world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// Its Workload.
    pub workload: Option<Value>,
    /// The job.
    pub job: Option<Value>,
    /// Pods of its namespace that are pending, and more of its own: its own are picked.
    pub pods: Vec<Value>,
    /// Whether all of its own that have not failed are among them.
    pub all_pods: bool,
    /// Whether more are pending than were read.
    pub more_pods: bool,
    /// Events about the Workload, or about the job that has none: a bounded number.
    pub events: Vec<Value>,
    /// Whether these could not be read.
    pub no_events: bool,
}
