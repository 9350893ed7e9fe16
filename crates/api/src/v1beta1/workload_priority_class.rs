//! WorkloadPriorityClass (docs/reference/01-api.md 1.5).

use crate::kind::custom_resource;

custom_resource! {
    /// WorkloadPriorityClass is a priority for queueing that leaves the pods' priority alone.
    pub struct WorkloadPriorityClass("v1beta1", "workloadpriorityclasses", ClusterResourceScope) {
        always {
            /// The priority; higher goes first.
            value: i32,
        }
        if_some {
            /// When to use the class.
            description: String,
        }
    }
}
