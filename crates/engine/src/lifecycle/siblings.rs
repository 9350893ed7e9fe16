//! Several parts of one job that each run all of its pods, like the two clusters of a RayService during an upgrade.
//!
//! The job's quota is for one of them. The parts of an elastic job are added up, and the job asks for more. Of any other job the oldest part runs on
//! the quota, and the next ones wait until it is gone. To upgrade without a pause a RayService has to be elastic: otherwise the user decides when the
//! cluster that serves is deleted; it is never stopped for the new one.

use sluice_api::job::{JobPodSet, JobView};
use sluice_core::Name;

use crate::engine::Engine;

impl Engine {
    /// The older running part beside which this part would exceed their job's quota.
    pub(super) fn runs_before(&self, above: &JobView, part: &JobView) -> Option<Name> {
        if !above.job.kind.names_parts_of(part.job.kind) || self.is_elastic(above) {
            return None;
        }
        self.made(above, part)?;
        let others = self.world.children.get(&above.job.uid).into_iter().flatten();
        let others = others.filter(|other| *other.namespace == *part.job.namespace);
        let others = others.filter_map(|other| self.world.jobs.get(other)).map(|entry| &entry.view);
        let age = |view: &JobView| (view.created, view.job.name.clone());
        let runs = |other: &&std::sync::Arc<JobView>| !other.suspended && other.finished.is_none();
        let before: Vec<_> = others
            .filter(runs)
            .filter(|other| age(other) < age(part) && self.made(above, other).is_some())
            .collect();
        let pods = |of: &JobView, set: &JobPodSet| -> i64 {
            let own = of.pod_sets.iter().filter(|own| own.name == set.name);
            own.map(|own| i64::from(own.count)).sum()
        };
        let exceeds = |set: &JobPodSet| {
            let run: i64 = before.iter().map(|other| pods(other, set)).sum();
            run + pods(part, set) > i64::from(set.count)
        };
        above.pod_sets.iter().any(exceeds).then(|| before.last().map(|other| other.job.name.clone()))?
    }
}
