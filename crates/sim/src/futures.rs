//! Several futures of one present with different random draws: the basis of estimated starts.

use sluice_engine::{Kind, ObjectRef};

use crate::pods::Basis;
use crate::simulation::Simulation;

/// Futures that are simulated.
const FUTURES: u64 = 20;

/// The futures of a present.
pub(crate) struct Futures<'a> {
    present: &'a Simulation,
    /// The number of futures. What is not drawn is the same in each of them.
    pub count: u64,
    /// The basis of the run times, in words.
    pub basis: String,
}

impl<'a> Futures<'a> {
    /// Of this present.
    pub fn of(present: &'a Simulation) -> Self {
        let (basis, all_known) = known(present);
        Self { present, count: if all_known { 1 } else { FUTURES }, basis }
    }

    /// One future. It shares the past; its draws differ from now on.
    pub fn begin(&self, number: u64) -> Simulation {
        let mut future = self.present.fork();
        future.options.until = None;
        if number > 0 {
            future.pods.seed = future.pods.seed.wrapping_add(number);
            future.redraw();
        }
        future
    }
}

/// The time before which it happens in `percent` of all futures; nothing if it happens in fewer of them. `starts` has the sorted starts of the
/// futures in which it starts.
pub(crate) fn later_than(starts: &[i64], futures: u64, percent: u64) -> Option<i64> {
    // The place among n draws below which the next one lies with that probability: counted among n + 1.
    place(starts, futures, ((futures + 1) * percent).div_ceil(100))
}

/// The time before which it happens in at most `percent` of all futures: the beginning of a range.
pub(crate) fn not_before(starts: &[i64], futures: u64, percent: u64) -> Option<i64> {
    place(starts, futures, (futures + 1) * percent / 100)
}

fn place(starts: &[i64], futures: u64, rank: u64) -> Option<i64> {
    let rank = rank.clamp(1, futures.max(1));
    usize::try_from(rank - 1).ok().and_then(|at| starts.get(at).copied())
}

/// Why no start in a ClusterQueue can be estimated, if so.
pub fn why_not(present: &Simulation, queue: &str) -> Option<String> {
    let queue = present.object(&ObjectRef::cluster(Kind::ClusterQueue, queue))?;
    let checks = queue["spec"]["admissionChecksStrategy"]["admissionChecks"].as_array();
    let old = queue["spec"]["admissionChecks"].as_array();
    let any = checks.into_iter().chain(old).any(|checks| !checks.is_empty());
    any.then(|| "its ClusterQueue has admission checks, and how long they take is not known".to_owned())
}

/// The basis of the run times, and whether none of them is drawn.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_eight_of_ten_futures_between_its_ends() {
        let starts: Vec<i64> = (1..=20).collect();
        let range = (not_before(&starts, 20, 10), later_than(&starts, 20, 50), later_than(&starts, 20, 90));
        assert_eq!(range, (Some(2), Some(11), Some(19)));
        // In half of the futures it does not start at all.
        assert_eq!((later_than(&starts[..10], 20, 50), not_before(&starts[..10], 20, 10)), (None, Some(2)));
        assert_eq!(
            (later_than(&[7], 1, 90), not_before(&[7], 1, 10), not_before(&[], 0, 10)),
            (Some(7), Some(7), None)
        );
    }
}
