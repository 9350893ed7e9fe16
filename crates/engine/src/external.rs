//! Parents that other controllers manage (docs/reference/07-integrations.md 7.2, "External frameworks"): objects of the kinds in
//! `integrations.externalFrameworks`.
//!
//! Their controllers make Workloads for them, which are queued like all others. Nothing is made for them here, and nothing is written to them:
//! they are known so that jobs below them are distinguished from jobs that only name an owner.

pub(crate) mod parents;

use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_core::Name;

use self::parents::ExternalParent;
use crate::engine::Engine;
use crate::input::ObjectRef;
use crate::keys::{JobKey, job_key};
use crate::version::{Seen, compare};
use crate::world::{JobEntry, controller};

impl Engine {
    /// Takes an object of a kind that another controller manages.
    pub(crate) fn observe_external(&mut self, view: &JobView) {
        let key = JobKey::of(&view.job);
        let parent = ExternalParent::from(view);
        let known = self.world.external.get(&key, &view.job.uid);
        if let Some(known) = known
            && compare(Some(&known.resource_version), Some(&parent.resource_version)) == Seen::Older
        {
            return;
        }
        // Most changes are of what does not matter here.
        let matters = known
            .is_none_or(|known| (known.queued, &known.controller) != (parent.queued, &parent.controller));
        // The object before had the same name: jobs below it have no parent any more.
        if known.is_none() {
            self.forget_external(&key, None);
        }
        self.world.external.put(key, parent);
        if matters {
            self.mark_below(&view.job.uid);
        }
    }

    /// Takes in that a job, or an object above jobs, is gone.
    pub(crate) fn forget_job(&mut self, object: &ObjectRef, uid: Option<&str>) {
        let Some(key) = job_key(object) else { return };
        let same = |entry: &JobEntry| uid.is_none_or(|uid| *entry.view.job.uid == *uid);
        if self.world.jobs.get(&key).is_some_and(same) {
            self.drop_job(&key);
            self.object_gone(&key);
        }
        self.forget_external(&key, uid);
    }

    /// An object of a kind that another controller manages was deleted.
    pub(crate) fn forget_external(&mut self, key: &JobKey, uid: Option<&str>) {
        if let Some(gone) = self.world.external.take(key, uid) {
            self.mark_below(&gone.uid);
        }
    }

    /// The UID of the object that a Workload belongs to, if others manage that.
    pub(crate) fn external_owner(&self, workload: &slim::Workload) -> Option<Name> {
        self.world.external.uid(&controller(workload)?.uid)
    }

    /// Marks the jobs below an object that others manage.
    pub(crate) fn mark_below(&mut self, uid: &Name) {
        for above in self.world.external.with_those_below(uid) {
            self.dirty.jobs.extend(self.world.children.get(&above).into_iter().flatten().cloned());
        }
    }
}
