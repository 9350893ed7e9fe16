//! Jobs that have more pods than they hold quota for, for longer than the watch needs to show them all.
//!
//! A Job's controller replaces a pod that is being deleted at once, unless the Job's `podReplacementPolicy` is `Failed`. A pod that ignores SIGTERM
//! runs on beside its replacement for its grace period, which the user sets. Pods of elastic jobs wait behind a scheduling gate and are identified by
//! a label; a client may remove both.

use sluice_api::job::JobView;
use sluice_core::WorkloadKey;

use super::exceeding::charged;
use crate::engine::Engine;
use crate::input::Kind;
use crate::world::JobKey;

/// For how long pods that end may run beside their replacements: the default grace period is 30 s.
const REPLACED_SECONDS: i64 = 60;
/// For how long the views of an elastic job and of its pods may be inconsistent.
const ELASTIC_SECONDS: i64 = 10;

impl Engine {
    /// What a job uses beyond its quota, once that has lasted.
    pub(super) fn beyond_for_long(
        &mut self,
        key: &JobKey,
        view: &JobView,
        workload: &WorkloadKey,
    ) -> Option<String> {
        let elastic = self.is_elastic(view);
        // For jobs of every kind: a look that is due is made.
        let left = self.parts_left_pods(&view.job.uid);
        let beyond = if elastic {
            self.ungated_by_others(key, view, workload)
        } else if left {
            Some("Pods of deleted jobs still run beside their replacements".to_owned())
        } else {
            self.replaced(key, view, workload)
        };
        let seconds = if elastic { ELASTIC_SECONDS } else { REPLACED_SECONDS };
        self.once_it_lasted(key, |trouble| &mut trouble.beyond_since, beyond, seconds)
    }

    /// For how many pods a Workload holds quota.
    fn charged(&self, workload: &WorkloadKey) -> i64 {
        let entry = &self.world.workloads[workload];
        charged(&entry.object.spec.pod_sets, entry.status()).into_iter().map(i64::from).sum()
    }

    /// Pods that are being deleted, beside their replacements, including those of jobs that the job's controller made. On nodes that are or may be
    /// lost, they do not count: there they do not end.
    fn replaced(&self, key: &JobKey, view: &JobView, workload: &WorkloadKey) -> Option<String> {
        let all = || {
            let children = self.children(key, &view.job.uid).map(|entry| &*entry.view);
            std::iter::once(view).chain(children)
        };
        let terminating: i64 = all().map(|view| i64::from(view.terminating)).sum();
        if terminating == 0 {
            return None;
        }
        let active: i64 = all().map(|view| i64::from(view.active_pods)).sum();
        let charged = self.charged(workload);
        if active + terminating <= charged {
            return None;
        }
        if !self.listed.contains(&Kind::Pod) && !self.nodes_lost().is_empty() {
            return None;
        }
        let stuck: usize = all().map(|view| self.stuck(&view.job.uid).0).sum();
        let ends = terminating - i64::try_from(stuck).unwrap_or(i64::MAX);
        (active + ends > charged).then(|| {
            format!(
                "{active} pods run and {ends} terminating pods have not ended, but quota covers only {charged}"
            )
        })
    }

    /// Pods of an elastic job that another client ungated, beyond what its slice was granted. Pods that its controller counts and that lack its label
    /// were ungated by another client, too.
    fn ungated_by_others(&self, key: &JobKey, view: &JobView, workload: &WorkloadKey) -> Option<String> {
        if !self.listed.contains(&Kind::JobPod) {
            return None;
        }
        let pods = self.pods_of_elastic(key, view);
        let count = |pods: usize| i64::try_from(pods).unwrap_or(i64::MAX);
        let free = count(pods.iter().filter(|one| one.pod.is_free() && !one.pod.leaves).count());
        let held =
            count(pods.iter().filter(|one| one.pod.is_gated() && !one.pod.ended && !one.pod.leaves).count());
        let counts = key.kind.integration().counts_terminating;
        let counted = if counts { i64::from(view.active_pods) - held } else { 0 };
        let (run, charged) = (free.max(counted), self.charged(workload));
        (run > charged).then(|| {
            format!(
                "{run} pods run, but quota covers only {charged}: another client removed their scheduling gates"
            )
        })
    }
}
