//! When a job will start: its start in several futures with different random draws. An estimate, with its basis.

use jiff::SignedDuration;
use serde::Serialize;
use sluice_engine::ObjectRef;

use super::{ExplainError, Question};
use crate::futures::{Futures, later_than};
use crate::simulation::Simulation;

/// How far they go.
const HORIZON: SignedDuration = SignedDuration::from_hours(24 * 14);

/// An estimate of a start. Seconds from now.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// In half of the futures it starts earlier; absent if it starts in fewer.
    pub p50: Option<i64>,
    /// In nine of ten futures it starts earlier; absent if it starts in fewer.
    pub p90: Option<i64>,
    /// Futures that were simulated.
    pub futures: u64,
    /// In how many of them it starts.
    pub starts: u64,
    /// Run times that the estimate rests on: how many jobs say theirs.
    pub basis: String,
    /// The job whose end lets this one start in the first future, if there is one.
    #[serde(skip)]
    pub(super) after: Option<String>,
}

impl Question<'_> {
    /// Simulates futures until the job starts; nothing if time runs out before there are enough futures.
    pub(super) fn forecast(
        &self,
        present: &Simulation,
        job: &ObjectRef,
    ) -> Result<Option<Forecast>, ExplainError> {
        let mut starts = Vec::new();
        let mut after = None;
        let all = Futures::of(present);
        for number in 0..all.count {
            let mut simulation = all.begin(number);
            let now = simulation.now();
            let end = now.checked_add(HORIZON).unwrap_or(now);
            let started = |s: &Simulation| {
                s.record()
                    .job(job)
                    .is_some_and(|j| j.holds.iter().any(|h| h.to.is_none() && h.admitted.is_some()))
            };
            let ended = |s: &Simulation| started(s) || s.now() > end || self.patience.is_over();
            let reached = simulation.run_until(ended)? && started(&simulation);
            if self.patience.is_over() {
                return Ok(None);
            }
            if reached {
                starts.push(simulation.now().as_second() - now.as_second());
            }
            if number == 0 && reached {
                after = self.cause(&simulation);
            }
        }
        starts.sort_unstable();
        let count = u64::try_from(starts.len()).unwrap_or(0);
        let Futures { count: futures, basis, .. } = all;
        let (p50, p90) = (later_than(&starts, futures, 50), later_than(&starts, futures, 90));
        Ok(Some(Forecast { p50, p90, futures, starts: count, basis, after }))
    }

    /// The last job that ended in the instant in which the explained job started.
    fn cause(&self, simulation: &Simulation) -> Option<String> {
        let record = simulation.record();
        let now = record.millis(simulation.now());
        let ended = record
            .entries
            .iter()
            .rev()
            .take_while(|e| e.at == now)
            .find(|e| matches!(e.what, crate::TimelineEvent::Finished { .. }))?;
        let job = &record.jobs[ended.job?];
        Some(self.shown(&job.namespace, &job.name))
    }
}
