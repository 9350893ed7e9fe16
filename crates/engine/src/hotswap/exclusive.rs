//! JobSets that take whole groups of nodes, made by a label.

use std::collections::BTreeSet;

use sluice_api::job::JobView;

/// Whether a JobSet takes whole groups of nodes.
pub(crate) fn takes_groups(view: &JobView) -> bool {
    view.pod_sets.iter().any(|set| set.exclusive_topology.is_some())
}

/// The labels by which a JobSet takes whole groups of nodes.
pub(crate) fn exclusive_in(view: &JobView) -> BTreeSet<&str> {
    exclusive_labels(view).collect()
}

/// The same, one for each such pod set.
pub(crate) fn exclusive_labels(view: &JobView) -> impl Iterator<Item = &str> {
    view.pod_sets.iter().filter_map(|set| Some(set.exclusive_topology.as_ref()?.key.as_str()))
}
