//! Pods that continue after their job has ended.
//!
//! The controllers of some kinds leave the pods of an ended job alone, by the user's choice or by default, or do not wait for the end of those that
//! they delete, and no longer count those that run. They use its quota: its Workload is finished once none of them runs. They may end by themselves
//! for as long as a controller has time to carry out a stop; those that still run then are deleted. Those that take longer than
//! `scheduler.maxTerminationGracePeriod` after that are given less time. Pods that ended stay, with their logs.
//!
//! Everything follows from the objects and from when the end was first seen: after a restart the time begins again. A job without such pods costs one
//! look.

use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::job::JobView;

use super::unheeded::STOP_ENFORCED;
use crate::effect::{EndPods, Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::input::{Object, WriteError};
use crate::outbox::{Open, warning};
use crate::unheeded::{Outlived, PATIENCE_SECONDS};
use crate::world::{JobEntry, JobKey};

impl JobEntry {
    /// Whether pods of it may continue after its end.
    pub(super) fn may_be_outlived(&self) -> bool {
        self.trouble.as_ref().is_some_and(|trouble| trouble.outlived.is_some())
    }

    /// When those are deleted, or were.
    pub(super) fn outlived_until(&self) -> Option<Timestamp> {
        Some(self.trouble.as_ref()?.outlived.as_ref()?.until)
    }

    /// Whether its status, once it has ended, does not say whether pods of it still run.
    pub(super) fn hides_pods_at_end(&self) -> bool {
        self.view.leaves_pods || self.view.job.kind.integration().leaves_terminating
    }
}

impl Engine {
    /// Whether pods of a job that ended may still run; sees to it that they are looked for, and end.
    pub(super) fn is_outlived(&mut self, key: &JobKey, view: &JobView) -> bool {
        let own = self.world.jobs.get(key);
        if !own.into_iter().chain(self.children(key, &view.job.uid)).any(JobEntry::hides_pods_at_end) {
            return false;
        }
        let now = self.now;
        let Some(entry) = self.world.jobs.get_mut(key) else { return false };
        let trouble = entry.trouble.get_or_insert_default();
        let known = trouble.outlived.get_or_insert_with(|| Outlived::since(now));
        let (next, ends) = (known.next, known.until <= now);
        if known.is_over {
            trouble.outlived = None;
            return false;
        }
        if next > now {
            self.wake_at(next, Alarm::Job(key.clone()));
            return true;
        }
        let then = if ends { EndPods::Delete } else { EndPods::Look };
        let write = Write::EndPods { of: self.marks_of_pods(key, view), then };
        self.write_job(key, Purpose::EndPods, write, Vec::new());
        true
    }

    /// A look for such pods was answered.
    pub(super) fn looked_for_outliving(
        &mut self,
        key: &JobKey,
        view: &Arc<JobView>,
        open: &Open,
        result: Result<Option<Object>, WriteError>,
    ) {
        let now = self.now;
        let stuck: usize = self.owners_of_pods(key, view).iter().map(|of| self.stuck(of).0).sum();
        let Some(entry) = self.world.jobs.get_mut(key) else { return };
        let Some(known) = entry.trouble.as_mut().and_then(|trouble| trouble.outlived.as_mut()) else {
            return;
        };
        match result {
            Ok(_) => known.is_over = true,
            Err(WriteError::PodsLeft { going_on, leaving }) => {
                // On a lost node a pod never ends.
                known.is_over = going_on == 0 && usize::try_from(leaving).is_ok_and(|pods| pods <= stuck);
                let ended = if known.until <= now { going_on } else { 0 };
                known.again(going_on, now);
                if ended > 0 {
                    self.report_outlived(key, view, ended);
                }
            }
            Err(WriteError::Withdrawn) => {}
            Err(WriteError::NotFound(_)) => self.forget_object(&open.object, None),
            Err(error) => {
                known.next = known.retry.failed(open.purpose, &error, now);
                let note = format!("Error looking for pods that run although the job has ended: {error}");
                let reported = known.retry.should_report(&error, &note);
                self.note_outage(&error, || Alarm::Job(key.clone()));
                if reported {
                    self.outbox.push(warning(self.about_job(key, view), "FailedDelete", note));
                }
            }
        }
    }

    fn report_outlived(&mut self, key: &JobKey, view: &JobView, pods: u32) {
        let note = format!(
            "The job has ended, and its controller leaves its pods as they are: {pods} still ran after {PATIENCE_SECONDS} s and were deleted"
        );
        self.outbox.push(warning(self.about_job(key, view), STOP_ENFORCED, note));
        let about: [(&'static str, &dyn ToString); 2] = [("job", &key.object()), ("pods", &pods)];
        self.outbox.push(self.log(Level::Warn, "pods of an ended job deleted", &about));
    }
}
