//! The Jobs of a JobSet. They name no queue: their rights are those of their JobSet.

use super::objects::Job;
use super::{Checker, Rule};

impl Checker {
    /// A Job begins to run although its JobSet may not, and the JobSet's controller has reported that it saw the stop. Before that, the JobSet's Jobs
    /// continue to run for a moment, with quota that is kept for them.
    pub(super) fn judge_part(&mut self, key: &str, before: Option<&Job>, job: &Job) {
        if !job.runs() || before.is_some_and(Job::runs) {
            return;
        }
        let Some(whole) = job.owner.as_ref().and_then(|owner| self.jobs.get(self.keys.get(owner)?)) else {
            return;
        };
        let covered = self.workloads_of(&whole.uid).any(|(_, workload)| workload.covers());
        // A report from before the last start does not concern the stop.
        let knows = whole.seen_suspended && !whole.unheard;
        if whole.queued && whole.suspended && knows && !covered {
            let text = "it begins to run, and its JobSet is stopped and has no admitted Workload";
            self.note(Rule::RunsUnadmitted, key, text.to_owned());
        }
    }

    /// Why a Job should not run: its JobSet is gone, or is being deleted, and so is what it was admitted by. Its controller may be behind, and make more.
    pub(super) fn part_of_nothing(&self, job: &Job) -> Option<String> {
        let owner = job.owner.as_ref().filter(|_| job.runs() && !job.queued)?;
        let whole = self.keys.get(owner).and_then(|key| self.jobs.get(key));
        let goes = whole.is_none_or(|whole| whole.queued && whole.deleting);
        let covered = self.workloads_of(owner).any(|(_, workload)| workload.covers());
        (goes && !covered).then(|| "its JobSet is gone, or is being deleted".to_owned())
    }

    /// Whether a job runs that has not ended: what others wait for.
    pub fn something_runs(&self) -> bool {
        self.open.iter().filter_map(|key| self.jobs.get(key)).any(Job::runs)
    }
}
