//! Pods of an object that gathers them (docs/reference/07-integrations.md 7.4): its Workload is for so many of a certain size, whatever pods claim
//! to be its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_core::{Amount, Name, WorkloadKey};
use sluice_jobs::pods::{Member, StopReason};

use super::index::PodJob;
use super::tend::role_counts;
use crate::engine::Engine;
use crate::ingest::requests::per_pod;
use crate::world::{JobKey, WorkloadEntry};

impl Engine {
    /// The pods of a job that a start is for. Of an object that gathers its pods: no more than its Workload is for, and none that asks for more.
    pub(super) fn to_start(&self, workload: &WorkloadKey, job: &PodJob) -> Vec<Name> {
        let gated = job.pods.gated();
        let entry = self.world.workloads.get(workload).filter(|_| job.parent.is_some());
        let Some(entry) = entry else { return gated.map(|member| Arc::clone(&member.name)).collect() };
        let beyond: BTreeSet<_> = job.pods.against(&role_counts(entry)).excess.into_iter().collect();
        let sizes = self.sizes(entry);
        let fits = |member: &&Member| !beyond.contains(&member.name) && self.fits(member, &sizes);
        gated.filter(fits).map(|member| Arc::clone(&member.name)).collect()
    }

    /// What one pod of each pod set of a Workload asks for.
    fn sizes<'a>(&self, entry: &'a WorkloadEntry) -> BTreeMap<&'a str, BTreeMap<Name, Amount>> {
        let namespace = entry.object.metadata.namespace.as_deref().unwrap_or_default();
        let around = self.world.around(namespace, &self.config);
        let sets = entry.object.spec.pod_sets.iter();
        sets.map(|set| (set.name.as_str(), per_pod(&set.template, "", around).0.into_iter().collect()))
            .collect()
    }

    /// Whether a pod asks for no more than its role has quota for.
    fn fits(&self, member: &Member, sizes: &BTreeMap<&str, BTreeMap<Name, Amount>>) -> bool {
        let (Some(size), Some(granted)) = (&member.size, sizes.get(&*member.role)) else { return false };
        let around = self.world.around(&member.namespace, &self.config);
        let asked = per_pod(size, "", around).0;
        asked
            .iter()
            .all(|(name, amount)| granted.get(name).is_some_and(|most| amount <= most) || amount.get() == 0)
    }

    /// Stops pods that run beyond those that the Workload of their object is for; says whether there are any.
    pub(super) fn tend_gathered(&mut self, key: &JobKey, workload: &WorkloadKey) -> bool {
        let Some(job) = self.world.pod_jobs.get(key) else { return false };
        let Some(entry) = self.world.workloads.get(workload) else { return false };
        let against = job.pods.against(&role_counts(entry));
        let others: BTreeSet<_> = against.excess.into_iter().chain(against.strangers).collect();
        let stray = |name: &Name| job.pods.get(name).is_some_and(Member::is_free);
        if !others.iter().any(stray) {
            return false;
        }
        let why = "The Workload is not for this pod";
        self.end_pods(key, StopReason::NoMatchingWorkload, why, |member| others.contains(&member.name))
    }
}
