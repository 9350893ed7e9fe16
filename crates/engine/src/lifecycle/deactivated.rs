//! Consequences for a job whose Workload waits: its events repeat the messages of the checks, and it may be deleted once it was deactivated
//! (docs/reference/03-conditions-events.md 3.4; docs/reference/06-algorithm.md 6.19).

use sluice_api::conditions::reason;
use sluice_api::job::JobView;
use sluice_api::v1beta2::CheckState;
use sluice_core::WorkloadKey;

use super::workload::{evicted_as_deactivated, later};
use crate::effect::{Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::outbox::normal;
use crate::world::JobKey;

impl Engine {
    /// Deletes a job that Sluice deactivated, not its user, once `afterDeactivatedByKueue` is over; returns whether it did.
    pub(crate) fn remove_deactivated(
        &mut self,
        key: &JobKey,
        view: &JobView,
        workload: &WorkloadKey,
    ) -> bool {
        let Some(seconds) = self.config.retention_after_deactivated_seconds else { return false };
        let entry = &self.world.workloads[workload];
        // Other groups of the object continue.
        if entry.object.spec.active || key.group.is_some() {
            return false;
        }
        // `DeactivatedDueTo…`: a plain `Deactivated` was the user's wish.
        let evicted = evicted_as_deactivated(entry.status()).filter(|c| c.reason != reason::DEACTIVATED);
        let Some(evicted) = evicted else { return false };
        let until = later(evicted.last_transition_time.0, seconds);
        if until > self.now {
            self.wake_at(until, Alarm::Job(key.clone()));
            return false;
        }
        let why = evicted.reason.clone();
        if self.is_active(key) {
            return false;
        }
        let note = "Deleted job: deactivation retention period expired";
        let uid = &view.job.uid;
        let then = vec![
            normal(self.about_job(key, view), "Deleted", note),
            self.log(Level::Info, "deactivated job deleted", &[("job", &key.object()), ("why", &why)]),
        ];
        if self.world.pod_jobs.get(key).is_some_and(|job| job.shape.is_of_members_alone()) {
            self.outbox.extend(then);
            self.delete_pods(key);
            return true;
        }
        let write = Write::Delete { uid: Some(uid.clone()), grace_period_seconds: None, foreground: false };
        self.write_job(key, Purpose::DeleteJob, write, then);
        true
    }

    /// Reports the messages of pending checks on a waiting job, if they are new.
    pub(crate) fn report_checks(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) {
        let checks = &self.world.workloads[workload].status().admission_checks;
        let pending = checks.iter().filter(|c| c.state == CheckState::Pending && !c.message.is_empty());
        let lines: Vec<_> = pending.map(|c| format!("{}: {}", c.name, c.message)).collect();
        let text = lines.join("; ");
        let Some(entry) = self.world.jobs.get_mut(key).filter(|e| e.reported_checks != text) else { return };
        entry.reported_checks.clone_from(&text);
        if !text.is_empty() {
            let updated = normal(self.about_job(key, view), "UpdatedAdmissionCheck", text);
            self.outbox.push(updated);
        }
    }
}
