//! Cuts a record: without some jobs, or without what happened after a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Hold, HoldEnd, JobRecord, Record, TimelineEvent};

/// The totals of a job's entries.
#[derive(Clone, Default)]
struct JobTotals {
    preempted: u32,
    preempts: u32,
    /// The last reason for waiting, until it was admitted.
    waits_for: Option<(Arc<str>, Arc<str>)>,
}

impl Record {
    /// Removes jobs, and what is recorded about them.
    pub(crate) fn retain_jobs(&mut self, stays: impl Fn(&JobRecord) -> bool) {
        let mut kept = 0;
        let mut next = |job: &JobRecord| {
            let place = stays(job).then_some(kept);
            kept += usize::from(place.is_some());
            place
        };
        let places: Vec<Option<usize>> = self.jobs.iter().map(&mut next).collect();
        let mut stay = places.iter();
        self.jobs.retain(|_| stay.next().is_some_and(Option::is_some));
        self.entries.retain_mut(|entry| match entry.job {
            Some(job) => {
                entry.job = places[job];
                entry.job.is_some()
            }
            None => true,
        });
        self.places.retain_mut(|place| {
            let job = places[place.job];
            place.job = job.unwrap_or_default();
            job.is_some()
        });
        self.by_uid.clear();
    }

    /// Forgets what happened after a time, in milliseconds from the beginning.
    pub fn cut(&mut self, end: i64) {
        self.entries.retain(|entry| entry.at <= end);
        self.quotas.retain(|change| change.at <= end);
        self.local_stops.retain(|change| change.at <= end);
        self.nodes.retain(|change| change.at <= end);
        self.places.retain(|change| change.at <= end);
        let reported = self.reported();
        for (job, reported) in self.jobs.iter_mut().zip(reported) {
            job.cut(end);
            (job.preempted, job.preempts) = (reported.preempted, reported.preempts);
            job.waits_for = reported.waits_for;
        }
        self.retain_jobs(|job| job.submitted <= end);
    }

    /// Removes the jobs that ended before the beginning, and earlier events that concern no job.
    pub(super) fn leave_out_what_was_before(&mut self) {
        let is_over = |job: &JobRecord| {
            let over = job.finished.or(job.deleted).is_some_and(|at| at < 0);
            over && job.holds.iter().all(|hold| hold.to.is_some_and(|to| to < 0))
        };
        self.retain_jobs(|job| !is_over(job));
        self.entries.retain(|entry| entry.job.is_some() || entry.at >= 0);
    }

    /// Forgets what is counted of the time before the beginning: preemptions, and run time that was lost by then.
    pub(super) fn count_from_beginning(&mut self) {
        let keys = self.jobs.iter().enumerate().map(|(at, job)| (job.key(), at));
        let by_key: BTreeMap<String, usize> = keys.collect();
        for entry in self.entries.iter().filter(|entry| entry.at < 0) {
            let (Some(job), TimelineEvent::Preempted { by, .. }) = (entry.job, &entry.what) else { continue };
            self.jobs[job].preempted = self.jobs[job].preempted.saturating_sub(1);
            if let Some(by) = by.as_deref().and_then(|by| by_key.get(by)) {
                self.jobs[*by].preempts = self.jobs[*by].preempts.saturating_sub(1);
            }
        }
        for job in &mut self.jobs {
            let earlier: i64 = job.holds.iter().map(|hold| job.lost_at(hold, |at| at < 0)).sum();
            job.lost = (job.lost - earlier).max(0);
        }
    }

    /// The totals of each job's entries.
    fn reported(&self) -> Vec<JobTotals> {
        let keys = self.jobs.iter().enumerate().map(|(at, job)| (job.key(), at));
        let by_key: BTreeMap<String, usize> = keys.collect();
        let mut all = vec![JobTotals::default(); self.jobs.len()];
        for entry in &self.entries {
            let Some(job) = entry.job else { continue };
            match &entry.what {
                TimelineEvent::Waiting { reason, message } => {
                    all[job].waits_for = Some((Arc::clone(reason), Arc::clone(message)));
                }
                TimelineEvent::Admitted { .. } => all[job].waits_for = None,
                TimelineEvent::Preempted { by, .. } => {
                    all[job].preempted += 1;
                    if let Some(by) = by.as_deref().and_then(|by| by_key.get(by)) {
                        all[*by].preempts += 1;
                    }
                }
                _ => {}
            }
        }
        all
    }
}

impl JobRecord {
    /// The run time that was lost at the end of a hold, if `is_such` holds for that time: by an eviction or a failure of the job.
    fn lost_at(&self, hold: &Hold, is_such: impl Fn(i64) -> bool) -> i64 {
        let failed = hold.to.filter(|_| hold.end == HoldEnd::Finished && !self.success);
        // A job that is resized while it stops was evicted in the part before.
        let lost = hold.evicted.or(failed).filter(|at| is_such(*at) && *at >= hold.from);
        lost.zip(hold.admitted).map_or(0, |(at, admitted)| (at - admitted).max(0))
    }

    fn cut(&mut self, end: i64) {
        let later: i64 = self.holds.iter().map(|hold| self.lost_at(hold, |at| at > end)).sum();
        self.lost = (self.lost - later).max(0);
        let known = |at: &mut Option<i64>| *at = at.filter(|at| *at <= end);
        known(&mut self.admitted);
        known(&mut self.deleted);
        known(&mut self.finished);
        self.success &= self.finished.is_some();
        self.holds.retain(|hold| hold.from <= end);
        for hold in &mut self.holds {
            known(&mut hold.admitted);
            known(&mut hold.evicted);
            known(&mut hold.to);
            if hold.to.is_none() && hold.evicted.is_none() {
                hold.end = HoldEnd::Open;
            }
        }
    }
}
