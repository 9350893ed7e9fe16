//! Which pods of a job a start is for. Of an object that gathers its pods (docs/reference/07-integrations.md 7.4) its Workload is for so many of a
//! certain size, whatever pods claim to be its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_core::{Amount, Name, WorkloadKey};
use sluice_jobs::pods::{Member, StopReason};

use super::tend::role_counts;
use crate::engine::Engine;
use crate::ingest::requests::per_pod;
use crate::world::{JobKey, WorkloadEntry};

impl Engine {
    /// The pods of a job that a start is for. Of an object that gathers its pods: no more than its Workload is for, and none that asks for more.
    pub(super) fn pods_to_start(&mut self, key: &JobKey, workload: &WorkloadKey) -> Vec<Name> {
        let name = |member: &Member| Arc::clone(&member.name);
        let Some(job) = self.world.pod_jobs.get(key) else { return Vec::new() };
        if !job.has_roles() {
            return job.pods.gated().map(name).collect();
        }
        let Some(entry) = self.world.workloads.get(workload) else { return Vec::new() };
        if job.parent.is_none() {
            let roles = entry.object.spec.pod_sets.iter().map(|set| set.name.as_str());
            return roles.flat_map(|role| job.pods.waiting(role)).map(name).collect();
        }
        self.measure_again(key, workload);
        self.gathered_to_start(key, workload)
    }

    /// What was too large for another version of its Workload is looked at again.
    fn measure_again(&mut self, key: &JobKey, workload: &WorkloadKey) {
        let entry = self.world.workloads.get(workload);
        let version = entry.and_then(|entry| entry.object.metadata.resource_version.clone());
        if let Some(job) = self.world.pod_jobs.get_mut(key)
            && job.measured_against != version
        {
            job.measured_against = version;
            job.pods.look_again();
        }
    }

    fn gathered_to_start(&mut self, key: &JobKey, workload: &WorkloadKey) -> Vec<Name> {
        let (Some(job), Some(entry)) = (self.world.pod_jobs.get(key), self.world.workloads.get(workload))
        else {
            return Vec::new();
        };
        let sizes = self.sizes(entry);
        let (mut chosen, mut too_large) = (Vec::new(), Vec::new());
        for set in role_counts(entry) {
            let room = usize::try_from(set.count).unwrap_or(0).saturating_sub(job.pods.ungated(&set.role));
            let all = chosen.len() + room;
            let mut waiting = job.pods.waiting(&set.role);
            while chosen.len() < all
                && let Some(member) = waiting.next()
            {
                let fits = self.fits(member, &sizes);
                if fits { &mut chosen } else { &mut too_large }.push(Arc::clone(&member.name));
            }
        }
        if let Some(job) = self.world.pod_jobs.get_mut(key) {
            job.pods.set_back(&too_large);
        }
        chosen
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
        let others: BTreeSet<_> = job.pods.running_beyond(&role_counts(entry)).into_iter().collect();
        if others.is_empty() {
            return false;
        }
        let why = "The Workload is not for this pod";
        self.end_pods(key, StopReason::NoMatchingWorkload, why, |member| others.contains(&member.name))
    }
}
