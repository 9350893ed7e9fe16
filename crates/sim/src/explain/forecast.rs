//! When a job will start: the start in several futures that differ in what is drawn. An estimate, with its basis.

use jiff::SignedDuration;
use serde::Serialize;
use sluice_engine::{Kind, ObjectRef};

use super::{ExplainError, Question};
use crate::pods::Basis;
use crate::simulation::Simulation;

/// Futures that are simulated.
const FUTURES: u64 = 20;
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
    /// The job whose end lets it start in the first future, if that is what does.
    #[serde(skip)]
    pub(super) after: Option<String>,
}

impl Question<'_> {
    /// Simulates futures until the job starts; nothing if time is over before there are enough of them.
    pub(super) fn forecast(
        &self,
        present: &Simulation,
        job: &ObjectRef,
    ) -> Result<Option<Forecast>, ExplainError> {
        let mut starts = Vec::new();
        let mut after = None;
        let (basis, all_known) = known(present);
        // What is not drawn comes out the same in every future.
        let futures = if all_known { 1 } else { FUTURES };
        for future in 0..futures {
            // Until now all is as it was; what is drawn differs from here on.
            let mut simulation = present.fork();
            simulation.options.until = None;
            if future > 0 {
                simulation.pods.seed = simulation.pods.seed.wrapping_add(future);
                simulation.redraw();
            }
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
            if future == 0 && reached {
                after = self.cause(&simulation);
            }
        }
        starts.sort_unstable();
        let count = u64::try_from(starts.len()).unwrap_or(0);
        // The place among n draws below which the next one lies with that probability: counted among n + 1.
        let quantile = |part: u64| {
            let rank = ((futures + 1) * part).div_ceil(100).clamp(1, futures);
            usize::try_from(rank - 1).ok().and_then(|at| starts.get(at).copied())
        };
        let (p50, p90) = (quantile(50), quantile(90));
        Ok(Some(Forecast { p50, p90, futures, starts: count, basis, after }))
    }

    /// The last job that ended in the instant in which ours started.
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

/// Where the run times come from, and whether none of them is drawn.
fn known(simulation: &Simulation) -> (String, bool) {
    let mut counts = std::collections::BTreeMap::new();
    for kind in sluice_api::job::JobKind::jobs() {
        let ends = |value: &serde_json::Value| sluice_jobs::ends(kind, value);
        for (reference, value) in simulation.world.of_kind(Kind::Job(kind)).filter(|(_, value)| ends(value)) {
            *counts.entry(simulation.pods.basis(reference, value)).or_insert(0_usize) += 1;
        }
    }
    let say = |basis: &Basis| match basis {
        Basis::Scenario => "by the scenario",
        Basis::Annotation => "by annotation",
        Basis::Observed => "by what jobs of their queue took",
        Basis::Bound => "by their bound",
        Basis::Default => "by the default run time",
    };
    let parts: Vec<_> = counts.iter().map(|(basis, n)| format!("{n} {}", say(basis))).collect();
    let fixed = matches!(simulation.pods.default, crate::Distribution::Fixed(_));
    let drawn = [Basis::Scenario, Basis::Observed].iter().any(|b| counts.contains_key(b))
        || (counts.contains_key(&Basis::Default) && !fixed);
    (format!("run times of jobs: {}", parts.join(", ")), !drawn && simulation.agenda.arrivals() == 0)
}
