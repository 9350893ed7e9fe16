//! Where a workload's priority comes from (docs/reference/06-algorithm.md 6.19).

use sluice_api::job::JobView;
use sluice_api::v1beta2::PriorityClassRef;

use crate::engine::Engine;

/// A priority and the class that it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Priority {
    /// The class, if there is one.
    pub class: Option<PriorityClassRef>,
    /// The value.
    pub value: i32,
}

/// A WorkloadPriorityClass.
pub(crate) const WORKLOAD_PRIORITY_CLASS: &str = "WorkloadPriorityClass";

impl Engine {
    /// The priority of a job: its WorkloadPriorityClass, else the first pod template's PriorityClass, else the cluster's
    /// default, else 0. An error names the class that does not exist.
    pub(crate) fn priority_of(&self, view: &JobView) -> Result<Priority, String> {
        if let Some(name) = &view.workload_priority_class {
            let Some(value) = self.world.workload_priority_classes.get(name.as_str()) else {
                return Err(format!("WorkloadPriorityClass {name:?} not found"));
            };
            let class = class_ref("kueue.x-k8s.io", WORKLOAD_PRIORITY_CLASS, name);
            return Ok(Priority { class: Some(class), value: *value });
        }
        if let Some(name) = &view.pod_priority_class {
            let Some((value, _)) = self.world.priority_classes.get(name.as_str()) else {
                return Err(format!("PriorityClass {name:?} not found"));
            };
            return Ok(Priority {
                class: Some(class_ref("scheduling.k8s.io", "PriorityClass", name)),
                value: *value,
            });
        }
        let default = self.world.priority_classes.iter().filter(|(_, (_, default))| *default);
        let lowest = default.min_by_key(|(_, (value, _))| *value);
        Ok(lowest.map_or_else(Priority::default, |(name, (value, _))| Priority {
            class: Some(class_ref("scheduling.k8s.io", "PriorityClass", name)),
            value: *value,
        }))
    }
}

fn class_ref(group: &str, kind: &str, name: &str) -> PriorityClassRef {
    PriorityClassRef { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}
