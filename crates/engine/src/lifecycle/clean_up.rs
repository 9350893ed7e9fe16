//! What parts of a job do on its quota after it is deleted: a Job removes the data of a RayService's cluster from Redis, and the cluster is deleted
//! when that is done (docs/reference/07-integrations.md 7.2).

use sluice_api::job::{JobKind, JobView};
use sluice_core::Name;

use crate::engine::Engine;
use crate::world::{WorkloadEntry, controller};

impl Engine {
    /// Whether parts of a deleted job have to clean up after it, and still exist.
    pub(super) fn parts_clean_up(&self, kind: JobKind, uid: &Name) -> bool {
        let is_on = kind.integration().parts_clean_up.is_some_and(|gate| self.config.on(gate));
        let mut parts = self.world.children.get(uid).into_iter().flatten();
        is_on && parts.any(|part| kind.parts_of(part.kind).is_some())
    }

    /// The same for the deleted job that controls a Workload.
    pub(super) fn is_cleaned_up_after(&self, entry: &WorkloadEntry) -> bool {
        let Some(owner) = controller(&entry.object) else { return false };
        let kind = JobKind::from_owner(&owner.api_version, &owner.kind);
        kind.is_some_and(|kind| self.parts_clean_up(kind, &Name::from(owner.uid.as_str())))
    }

    /// Marks what waits for a part that was deleted now.
    pub(crate) fn mark_cleaned_up(&mut self, part: &JobView) {
        let Some(owner) = &part.controller else { return };
        let kind = JobKind::from_owner(&owner.api_version, &owner.kind);
        if kind.is_some_and(|kind| kind.integration().parts_clean_up.is_some()) {
            let uid = Name::from(owner.uid.as_str());
            self.dirty.workloads.extend(self.world.owned(&uid));
            self.dirty.jobs.extend(self.world.job_by_uid.get(&uid).cloned());
        }
    }
}
