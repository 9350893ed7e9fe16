//! Jobs that their own controller holds back: quota is of no use to them until the hold ends (docs/reference/03-conditions-events.md, `OnHold`).

use std::sync::Arc;

use sluice_api::conditions::{WorkloadCondition as Type, reason};
use sluice_api::job::JobView;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::WorkloadKey;

use super::infos::restore_infos;
use super::transition;
use crate::effect::Purpose;
use crate::engine::Engine;
use crate::ingest::workload::{is, on_hold, reserved};
use crate::world::JobKey;

impl Engine {
    /// Keeps a Workload on hold while its job wants no pods (a StatefulSet with no replicas, for example), and queues it again afterwards. Returns
    /// whether there is nothing else to do.
    pub(super) fn sync_hold(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) -> bool {
        let Some(holds) = view.on_hold else { return false };
        let entry = &self.world.workloads[workload];
        let is_held = on_hold(entry.status());
        if !holds && !is_held {
            return false;
        }
        // An eviction is carried out first: pods that their controller does not take down, or slowly, hold quota that others wait for.
        let (status, gathers) = (entry.status(), key.kind.gathers_pods());
        if holds && gathers && is(status, Type::Evicted) && (reserved(status) || !view.suspended) {
            return false;
        }
        if holds && !view.suspended {
            // Its controller takes its pods down, in its own order.
            if gathers {
                return true;
            }
            let infos = restore_infos(&entry.object);
            self.stop_job(key, view, infos, "Job is on hold", &[]);
            return true;
        }
        let has_quota = reserved(entry.status());
        if holds && (is_held || has_quota && self.is_active(key)) {
            return true;
        }
        let entry = &self.world.workloads[workload];
        if holds && !has_quota && !entry.object.spec.active {
            // That it is deactivated has the first word (docs/reference/03-conditions-events.md 3.1): the hold is written when it is active again.
            return true;
        }
        let at = self.at(&entry.object);
        let (why, message) = if holds {
            (reason::ON_HOLD, key.kind.integration().on_hold)
        } else {
            let why = at.reason(reason::PENDING_EVALUATION, reason::PENDING);
            (why, "Workload no longer on hold; waiting for quota reservation")
        };
        if has_quota {
            self.end_reservation_as(workload, why, message, Vec::new());
            return true;
        }
        let mut next = entry.status().clone();
        transition::unreserve(&mut next, why, message, at);
        self.write_status(workload, Purpose::ReleaseQuota, next, Vec::new());
        true
    }

    /// Says that a waiting Workload is on hold, if its job is.
    pub(super) fn say_held(&self, workload: &WorkloadKey, next: &mut WorkloadStatus) {
        let entry = &self.world.workloads[workload];
        let Some(job) = self.world.job_of(entry) else { return };
        let view = self.world.jobs.get(&job).map(|job| &job.view);
        if view.is_some_and(|view| view.on_hold == Some(true) && view.suspended) {
            transition::unreserve(
                next,
                reason::ON_HOLD,
                job.kind.integration().on_hold,
                self.at(&entry.object),
            );
        }
    }
}
