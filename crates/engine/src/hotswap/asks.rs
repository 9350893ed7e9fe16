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
    /// What each pod uses of a node, as `takes` computes it.
    pub of_node: Vec<(Name, Amount)>,
    /// The requests are valid.
    pub valid: bool,
    /// What each pod uses of quotas; cpu in milli-CPU, everything else in whole units.
    pub of_quota: Vec<(Name, Amount)>,
    /// Their tolerations, without those of their flavor.
    pub tolerations: Vec<Toleration>,
    /// Everything that decides on which nodes of a flavor they may run: equal for pods that may run on the same nodes.
    pub shape: Arc<str>,
}
