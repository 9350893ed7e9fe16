//! The rules for the spec of a cluster (docs/reference/07-integrations.md 7.2).

use super::cluster::{Cluster, HEAD, ONLY_ELASTIC, RESERVED};
use crate::object::MAX_POD_SETS;
use crate::pod_group::path_of;
use crate::review::Violations;

/// Checks the cluster of a managed object. Only one with workload slices may scale itself.
pub(super) fn check(cluster: Cluster<'_>, slices: bool, violations: &mut Violations) {
    let path = path_of(cluster.pointer);
    if cluster.scales_itself() && !(slices && cluster.is_elastic()) {
        let field = format!("{path}.enableInTreeAutoscaling");
        violations.add(&field, format!("Invalid value: true: {ONLY_ELASTIC}"));
    }
    let groups = cluster.workers().len() + 1;
    if groups > MAX_POD_SETS {
        let message = format!("Too many: {groups}: must have at most {MAX_POD_SETS} items");
        violations.add(&format!("{path}.workerGroupSpecs"), message);
    }
    for (index, group) in cluster.workers().iter().enumerate() {
        if group["groupName"] == HEAD {
            violations.forbidden(&format!("{path}.workerGroupSpecs[{index}].groupName"), RESERVED);
        }
    }
}
