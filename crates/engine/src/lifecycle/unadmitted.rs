//! A managed job that is not admitted does not run, even if it has other problems.

use std::sync::Arc;

use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_api::job::JobView;
use sluice_core::WorkloadKey;

use super::infos::restore_infos;
use super::matching::matches;
use crate::engine::Engine;
use crate::ingest::workload::is;
use crate::world::{JobKey, WorkloadEntry, is_of_group};

impl Engine {
    /// Whether a job runs that no admitted Workload of its own lets run.
    pub(crate) fn runs_unadmitted(&self, view: &JobView) -> bool {
        !view.suspended && view.finished.is_none() && !self.is_admitted(view)
    }

    /// Whether one of the job's own Workloads is admitted, according to what is written.
    fn is_admitted(&self, view: &JobView) -> bool {
        self.world.owned(&view.job.uid).iter().filter(|w| named(view, w)).any(|w| {
            let status = &self.world.workloads[w].object.status;
            is(status, Type::Admitted) && !is(status, Type::Finished)
        })
    }

    /// Stops a job that runs unadmitted, and restores its templates where it is known how they were.
    pub(crate) fn halt(&mut self, key: &JobKey, view: &Arc<JobView>) {
        let owned = self.world.owned(&view.job.uid);
        let fits = |w: &&WorkloadKey| {
            let entry = &self.world.workloads[*w];
            matches(view, &entry.object, &entry.object.status, &self.config)
        };
        let fitting = owned.iter().filter(|w| named(view, w)).find(fits);
        let known = fitting.or_else(|| owned.last());
        let infos = known.map(|w| restore_infos(&self.world.workloads[w].object)).unwrap_or_default();
        let why = match known {
            Some(w) => why_not(&self.world.workloads[w], w, fitting.is_some()),
            None => match &view.prebuilt_workload {
                Some(name) => {
                    self.prebuilt_trouble(view, name).unwrap_or_else(|| "missing workload".to_owned())
                }
                None => "Missing Workload; unable to restore pod templates".to_owned(),
            },
        };
        self.stop_job(key, view, infos, &why, &[]);
    }

    /// What keeps a job from adopting the prebuilt Workload that it names.
    pub(super) fn prebuilt_trouble(&self, view: &JobView, name: &str) -> Option<String> {
        let key = WorkloadKey::new(Arc::clone(&view.job.namespace), name);
        let entry = self.world.workloads.get(&key)?;
        let owner = entry.controller_uid();
        if owner == Some(&*view.job.uid) {
            return None;
        }
        let trouble = if owner.is_some() || is_of_group(&entry.object) {
            "belongs to another job"
        } else if is(entry.status(), Type::Finished) {
            "has finished"
        } else if entry.object.metadata.deletion_timestamp.is_some() {
            "is being deleted"
        } else {
            return None;
        };
        Some(format!("The prebuilt workload {key} {trouble}"))
    }
}

/// Whether a job may run on a Workload of that name: any of its own, unless it names a prebuilt one.
pub(crate) fn named(view: &JobView, workload: &WorkloadKey) -> bool {
    view.prebuilt_workload.as_deref().is_none_or(|name| *name == *workload.name)
}

/// Why a job may not run on a Workload of its own.
fn why_not(entry: &WorkloadEntry, key: &WorkloadKey, fits: bool) -> String {
    let status = &entry.object.status;
    let evicted = conditions::find(&status.conditions, Type::Evicted.as_str()).filter(|c| c.status == "True");
    if is(status, Type::Finished) {
        format!("The workload {key} has finished")
    } else if entry.object.metadata.deletion_timestamp.is_some() {
        "Workload is deleted".to_owned()
    } else if !fits {
        "No matching Workload; restoring pod templates according to existent Workload".to_owned()
    } else if let Some(evicted) = evicted {
        evicted.message.clone()
    } else {
        "Not admitted by cluster queue".to_owned()
    }
}
