//! What the pods of a Workload ask of nodes and of quotas: computed once for each version of a Workload, not in each look.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use sluice_core::{Amount, Name};

/// What the pods of a Workload ask for, by pod set. It follows from the Workload's spec, the LimitRanges of its namespace and the RuntimeClasses.
#[derive(Clone, Debug)]
pub(crate) struct Asks(pub Vec<Arc<SetAsks>>);

/// What the pods of one pod set ask for.
#[derive(Clone, Debug)]
pub(crate) struct SetAsks {
    /// What each takes of a node, as `takes` has it.
    pub of_node: Vec<(Name, Amount)>,
    /// Nothing is wrong with what they ask for.
    pub valid: bool,
    /// What each takes of quotas; cpu in milli-CPU, everything else in whole units.
    pub of_quota: Vec<(Name, Amount)>,
    /// What they tolerate without their flavor.
    pub tolerations: Vec<Toleration>,
    /// All that decides which nodes of a flavor they may be on: equal for pods that may be on the same ones.
    pub shape: Arc<str>,
}
