//! The slices of elastic jobs by the first slice, which their pods name.

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::{labels, slim};
use sluice_core::WorkloadKey;

use super::few::Few;
use crate::index_map::IndexMap;
use crate::ingest::workload::is;

/// Slices by the first slice that they name. Those that are over are left out: a job that often changes its size has many of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SliceIndex(IndexMap<WorkloadKey, Few<WorkloadKey>>);

/// The first slice that a slice names, unless it is over.
fn first_named(slice: &slim::Workload) -> Option<&str> {
    let first = slice.metadata.annotations.as_ref()?.get(labels::WORKLOAD_SLICE_NAME)?;
    (!is(&slice.status, Type::Finished)).then_some(first.as_str())
}

impl SliceIndex {
    /// A Workload came, changed or went.
    pub fn update(
        &mut self,
        key: &WorkloadKey,
        before: Option<&slim::Workload>,
        after: Option<&slim::Workload>,
    ) {
        let (before, after) = (before.and_then(first_named), after.and_then(first_named));
        if before == after {
            return;
        }
        let first = |name: &str| WorkloadKey::new(Arc::clone(&key.namespace), name);
        if let Some(before) = before {
            Few::unindex(&mut self.0, &first(before), key);
        }
        if let Some(after) = after {
            Few::index(&mut self.0, first(after), key.clone());
        }
    }

    /// The slices that name a first slice, which may be one of them.
    pub fn of(&self, first: &WorkloadKey) -> impl Iterator<Item = &WorkloadKey> {
        self.0.get(first).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SLICE_NAME: &str = labels::WORKLOAD_SLICE_NAME;

    fn slice(first: &str, finished: bool) -> slim::Workload {
        let over = json!({"type": "Finished", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let conditions = if finished { json!([over]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": {"name": "w", "namespace": "ns", "annotations": {SLICE_NAME: first}},
            "spec": {"queueName": "q", "podSets": []},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn a_slice_is_found_by_the_first_one_until_it_is_over() {
        let key = |name: &str| WorkloadKey::new("ns", name);
        let mut index = SliceIndex::default();
        let found = |index: &SliceIndex| ["a", "b"].map(|first| index.of(&key(first)).count());
        let versions = [slice("a", false), slice("b", false), slice("b", true)];
        index.update(&key("other"), None, Some(&versions[0]));
        index.update(&key("w"), None, Some(&versions[0]));
        assert_eq!(found(&index), [2, 0]);
        index.update(&key("w"), Some(&versions[0]), Some(&versions[1]));
        assert_eq!(found(&index), [1, 1]);
        index.update(&key("w"), Some(&versions[1]), Some(&versions[2]));
        index.update(&key("other"), Some(&versions[0]), None);
        assert_eq!((found(&index), index), ([0, 0], SliceIndex::default()));
    }
}
