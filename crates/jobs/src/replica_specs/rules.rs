//! Objects that the controllers of these kinds do not act on. If a job is changed into one it continues with its pods, whatever `suspend` says: it
//! could neither be stopped nor held to its quota.

use serde_json::Value;

use super::ReplicaSpecs;
use crate::adapter::Change;
use crate::object;
use crate::review::{Context, Meta, Violations};

impl ReplicaSpecs {
    /// Holds a managed job against the rules; what was wrong before is not held against another change.
    pub(super) fn judge(&self, change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
        let managed = |meta: &Meta| context.manage_jobs_without_queue_name || meta.queue_name().is_some();
        if !managed(change.meta) {
            return;
        }
        let before = change.old.filter(|(_, meta)| managed(meta)).map(|(old, _)| self.broken(old).0);
        let known = before.unwrap_or_default();
        let new = self.broken(change.object).0.into_iter();
        violations.0.extend(new.filter(|violation| !known.contains(violation)));
    }

    fn broken(&self, object: &Value) -> Violations {
        let mut violations = Violations::default();
        for (name, spec) in self.specs(object) {
            let path = format!("{}.{name}.replicas", self.path());
            if let Some(count) = object::int(&spec["replicas"]).filter(|count| *count < 0) {
                violations.invalid(&path, &count.to_string(), "must be greater than or equal to 0");
            }
        }
        (self.rules)(self, object, &mut violations);
        violations
    }
}
