//! Surplus pods, replaced pods, and pods that ended.

use std::collections::BTreeSet;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::JobView;
use sluice_core::Name;
use sluice_jobs::pods::{Member, RoleCount, StopReason, is_group_workload};

use super::view::about_pod;
use super::workload::waits_for_others;
use super::writes::removal;
use crate::effect::Purpose;
use crate::engine::Engine;
use crate::ingest::workload::is;
use crate::outbox::normal;
use crate::world::{JobKey, WorkloadEntry};

/// How many pods of each role a Workload is for.
pub(super) fn role_counts(entry: &WorkloadEntry) -> Vec<RoleCount> {
    let sets = &entry.object.spec.pod_sets;
    sets.iter().map(|set| RoleCount { role: Name::from(set.name.as_str()), count: set.count }).collect()
}

impl Engine {
    /// Handles surplus, unneeded and lost pods of a job; returns whether there are any.
    pub(crate) fn tend_pods(&mut self, key: &JobKey, view: &JobView) -> bool {
        let Some(job) = self.world.pod_jobs.get(key) else { return false };
        // Our own writes on pods were not seen yet: acting again may be too much.
        if !job.pods.is_settled() {
            return false;
        }
        let workload = self.world.owned(&view.job.uid).pop();
        let entry = workload.as_ref().and_then(|workload| self.world.workloads.get(workload));
        if job.parent.is_some() {
            return workload.is_some_and(|workload| self.tend_gathered(key, &workload));
        }
        let over = view.finished.is_some() && entry.is_none();
        let Some(group) = &job.group else { return over && self.release_pods(key) };
        // Pods that were all deleted are not replaced, unless an eviction deleted them. It deletes no pod that waits: its user did, as all others.
        let by_eviction = || {
            let evicted = entry.is_some_and(|entry| is(entry.status(), Type::Evicted));
            evicted && !job.pods.members().any(|member| member.gated && member.deleted_by.is_some())
        };
        if over || job.pods.is_leaving() && !by_eviction() {
            return self.release_pods(key);
        }
        let Some(entry) = entry else {
            let inactive = job.pods.inactive();
            let excess = job.pods.compose(group).map(|composition| composition.excess).unwrap_or_default();
            return self.remove_pods(key, inactive, excess);
        };
        let annotations = entry.object.metadata.annotations.clone().unwrap_or_default();
        if is(entry.status(), Type::Finished)
            || entry.object.metadata.deletion_timestamp.is_some()
            || !is_group_workload(&annotations, &self.config.gates)
            // It is made again.
            || waits_for_others(job, group, entry)
        {
            return false;
        }
        let against = job.pods.against(&role_counts(entry));
        if !against.matches {
            return false;
        }
        // The Workload is deleted with its last owner: new pods become owners before old ones are removed.
        let replaced = if job.unowned.is_empty() { against.replaced } else { Vec::new() };
        let strangers: BTreeSet<_> = against.strangers.into_iter().collect();
        if !strangers.is_empty() {
            let why = "The Workload of the group has no such role";
            let reason = StopReason::NoMatchingWorkload;
            if self.end_pods(key, reason, why, |member| strangers.contains(&member.name)) {
                return true;
            }
        }
        let too_large = workload.map(|workload| self.running_too_large(key, &workload)).unwrap_or_default();
        if !too_large.is_empty() {
            let why = "The Workload is not for this pod: it asks for more";
            let reason = StopReason::NoMatchingWorkload;
            if self.end_pods(key, reason, why, |member| too_large.contains(&member.name)) {
                return true;
            }
        }
        self.remove_pods(key, replaced, against.excess)
    }

    /// Finalizes pods, and finalizes and deletes others; says whether there is anything to do.
    fn remove_pods(&mut self, key: &JobKey, finalized: Vec<Name>, excess: Vec<Name>) -> bool {
        let Some(job) = self.world.pod_jobs.get(key) else { return false };
        let there = |name: &Name| {
            let member = job.pods.get(name);
            member.is_some_and(|member| member.held || member.deleted_by.is_none())
        };
        let excess: Vec<_> = excess.into_iter().filter(there).collect();
        if finalized.is_empty() && excess.is_empty() {
            return false;
        }
        self.finalize_pods(key, finalized);
        let now = self.writable(key, excess);
        let Some(job) = self.world.pod_jobs.get_mut(key) else { return false };
        job.pods.expect(&now);
        let Some(job) = self.world.pod_jobs.get(key) else { return false };
        let of = |member: &Member| {
            let (name, steps, mut then) = removal(job.shape, member);
            if member.deleted_by.is_none() {
                then.push(normal(about_pod(key, member), "ExcessPodDeleted", "Excess pod deleted"));
            }
            (name, steps, then)
        };
        let planned = now.iter().filter_map(|name| job.pods.get(name)).map(of).collect();
        self.write_pods(key, Purpose::RemovePod, planned);
        true
    }
}
