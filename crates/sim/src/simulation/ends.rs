//! When running jobs end, and since when they run if they started before the beginning.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_api::conditions::true_since;
use sluice_api::slim;
use sluice_engine::{Kind, ObjectRef};

use super::Simulation;
use crate::agenda::after;
use crate::json::text;
use crate::pods::{Phase, Pods, deadline};
use crate::world::World;

/// Draws that are tried for what has run for longer than the first of them says.
const DRAWS: u64 = 64;
/// A running job ends at least this much later than now.
const NEXT: SignedDuration = SignedDuration::from_millis(1);
/// Times in statuses are of whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// What determines the ends of runs.
struct Ends<'a> {
    world: &'a World,
    pods: &'a Pods,
    now: Timestamp,
}

/// Since when a Workload is admitted.
fn admitted_since(workload: &Value) -> Option<Timestamp> {
    let mut conditions = workload["status"]["conditions"].as_array()?.iter();
    let admitted = conditions.find(|c| c["type"] == "Admitted" && c["status"] == "True")?;
    text(&admitted["lastTransitionTime"]).parse().ok()
}

impl Ends<'_> {
    /// When what has run since then ends, by the draw of a seed.
    fn by(&self, seed: u64, (job, value): (&ObjectRef, &Value), since: Timestamp) -> Timestamp {
        let run = self.pods.run_time_by(seed, job, value).0;
        let end = after(after(since, self.pods.startup), run);
        let bound = self.pods.rests_on_bound(job, value).then(|| self.last_moment(job, value)).flatten();
        bound.map_or(end, |bound| end.min(bound))
    }

    /// By the first draw that is later than the job's present run time, if there is one.
    fn drawn(&self, job: &ObjectRef, since: Timestamp) -> Option<Timestamp> {
        let value = self.world.get(job)?;
        let seeds = (0..DRAWS).map(|again| self.pods.seed.wrapping_add(again.wrapping_mul(1_000_003)));
        seeds.map(|seed| self.by(seed, (job, value), since)).find(|end| *end > self.now)
    }

    /// A job for which no draw is long enough runs as long again as it has run, within its deadlines.
    fn as_long_again(&self, job: &ObjectRef, value: &Value, since: Timestamp) -> Timestamp {
        let again = after(self.now, self.now.duration_since(since));
        let deadline = deadline(job, value).map(|deadline| after(since, deadline));
        let bounds = deadline.into_iter().chain(self.last_moment(job, value));
        bounds.fold(again, Timestamp::min)
    }

    /// The last moment before the engine finds that a Workload is admitted for longer than it may be.
    fn last_moment(&self, job: &ObjectRef, value: &Value) -> Option<Timestamp> {
        let last = |workload: &Value| {
            let most = workload["spec"]["maximumExecutionTimeSeconds"].as_i64()?;
            let past = workload["status"]["accumulatedPastExecutionTimeSeconds"].as_i64().unwrap_or(0);
            let left = SignedDuration::from_secs(most.saturating_sub(past)).saturating_sub(NEXT);
            Some(after(admitted_since(workload)?, left))
        };
        if job.kind == Kind::Workload {
            return last(value);
        }
        let owned = self.world.owned(text(&value["metadata"]["uid"]));
        owned.iter().filter_map(|workload| last(self.world.get(workload)?)).max()
    }
}

impl Simulation {
    fn ends(&self) -> Ends<'_> {
        Ends { world: &self.world, pods: &self.pods, now: self.now }
    }

    /// When a job, or a Workload without one, will end that has run since `since`.
    pub(super) fn end_of(&self, job: &ObjectRef, since: Timestamp) -> Timestamp {
        let soonest = after(self.now, NEXT);
        let Some(value) = self.world.get(job) else { return soonest };
        let ends = self.ends();
        let end = if since < self.now {
            ends.drawn(job, since).unwrap_or_else(|| ends.as_long_again(job, value, since))
        } else {
            ends.by(self.pods.seed, (job, value), since)
        };
        end.max(soonest)
    }

    /// Since when a job runs that was read from a cluster and runs there: as it says itself, or since its Workload was admitted.
    pub(super) fn known_start(&self, job: &ObjectRef) -> Option<Timestamp> {
        let status = &self.world.get(job)?["status"];
        let said = text(&status["startTime"]).parse::<Timestamp>().ok();
        if let Some(said) = said.filter(|at| *at <= self.now && status["active"].as_i64() > Some(0)) {
            return Some(said);
        }
        // In the simulation it was admitted at the beginning, at the earliest.
        let admitted = admitted_since(self.admitted(job)?)?;
        let begins = self.now <= self.options.start && after(admitted, SECOND) <= self.options.start;
        begins.then_some(admitted)
    }

    /// Since when a Workload without a job runs.
    pub(super) fn runs_since(&self, workload: &slim::Workload) -> Timestamp {
        true_since(&workload.status.conditions, "Admitted").unwrap_or(self.now).min(self.now)
    }

    /// Draws the run times of running jobs again after a change of the seed: another future from here on.
    pub(crate) fn redraw(&mut self) {
        let ends = Ends { world: &self.world, pods: &self.pods, now: self.now };
        self.agenda.move_ends(|job| {
            let Phase::Running { since } = ends.pods.run(job)?.phase else { return None };
            ends.drawn(job, since)
        });
    }
}
