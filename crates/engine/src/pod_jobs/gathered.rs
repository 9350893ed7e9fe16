//! Which pods of a job a start is for. The Workload is for a number of pods of a certain size, whatever role pods claim to have: of an object that
//! gathers its pods (docs/reference/07-integrations.md 7.4), and of a group, without the pods that gave their quota back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sluice_api::slim;
use sluice_api::v1beta2::PodSetAssignment;
use sluice_core::{Amount, Name, WorkloadKey};
use sluice_jobs::pods::{Granted, Member, StopReason};

use super::tend::role_counts;
use crate::effect::EventType;
use crate::engine::Engine;
use crate::ingest::requests::{amount_in, per_pod};
use crate::lifecycle::exceeding::charged;
use crate::world::{JobKey, WorkloadEntry};

/// The quota of one pod of a role.
struct PerPod {
    /// The hash of what it asks for, if it asks for just that.
    requests_hash: u64,
    /// The amounts.
    amounts: BTreeMap<Name, Amount>,
}

impl Engine {
    /// The pods of a job that a start is for: none that asks for more than its role has quota for, and no more than its Workload holds quota for.
    pub(super) fn pods_to_start(&mut self, key: &JobKey, workload: &WorkloadKey) -> Vec<Name> {
        let name = |member: &Member| Arc::clone(&member.name);
        let Some(job) = self.world.pod_jobs.get(key) else { return Vec::new() };
        if !job.has_roles() {
            return job.pods.gated().map(name).collect();
        }
        self.measure_again(key, workload);
        self.gathered_to_start(key, workload)
    }

    /// Pods that were too large for another version of the Workload are checked again.
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
        let granted = self.granted(entry);
        let (mut chosen, mut too_large) = (Vec::new(), Vec::new());
        let held = charged(&entry.object.spec.pod_sets, entry.status());
        for (set, held) in role_counts(entry).into_iter().zip(held) {
            let asked = Granted { role: &set.role, count: set.count, held };
            let room = job.shape.room(asked, &job.pods);
            let all = chosen.len().saturating_add(room);
            let mut waiting = job.pods.waiting(&set.role);
            while chosen.len() < all
                && let Some(member) = waiting.next()
            {
                let fits = self.fits(member, &granted);
                if fits { &mut chosen } else { &mut too_large }.push(Arc::clone(&member.name));
            }
        }
        let is_group = job.shape.is_of_members_alone();
        let pod_sets = role_counts(entry);
        let strangers = job.pods.waiting_strangers(&pod_sets).filter(|_| is_group);
        let strangers: Vec<_> = strangers.map(|member| Arc::clone(&member.name)).collect();
        let note = if let Some(pod) = strangers.first() {
            let role = job.pods.get(pod).map(|member| &*member.role).unwrap_or_default();
            Some(format!(
                "The pod {pod:?} waits: the Workload of the group has no pods of its shape (role {role:?})"
            ))
        } else {
            let first = too_large.first().filter(|_| is_group);
            first.map(|pod| {
                format!("The pod {pod:?} waits: it requests more than its role in the Workload has quota for")
            })
        };
        if let Some(job) = self.world.pod_jobs.get_mut(key) {
            job.pods.set_back(&too_large);
            job.pods.set_back(&strangers);
        }
        if let Some(note) = note {
            self.report_waiting(key, &note);
        }
        chosen
    }

    /// A pod of a group waits until it is removed: there is no quota for such a pod.
    fn report_waiting(&mut self, key: &JobKey, note: &str) {
        let Some(view) = self.world.jobs.get(key).map(|entry| Arc::clone(&entry.view)) else { return };
        self.report_job(key, &view, EventType::Warning, "ErrWorkloadCompose", note);
    }

    /// The quota of one pod of each pod set of a Workload: the requests of its template, or those when it was admitted.
    fn granted<'a>(&self, entry: &'a WorkloadEntry) -> BTreeMap<&'a str, PerPod> {
        let namespace = entry.object.metadata.namespace.as_deref().unwrap_or_default();
        let around = self.world.around(namespace, &self.config);
        let admission = entry.object.status.admission.as_ref();
        let of = |(at, set): (usize, &'a slim::PodSet)| {
            let mut amounts: BTreeMap<Name, Amount> =
                per_pod(&set.template, "", around).0.into_iter().collect();
            let assigned = admission.and_then(|admission| admission.pod_set_assignments.get(at));
            for (name, amount) in assigned.into_iter().flat_map(|assigned| used_by_one(assigned, set)) {
                let most = amounts.entry(name).or_default();
                *most = amount.max(*most);
            }
            (set.name.as_str(), PerPod { requests_hash: set.template.requests_hash, amounts })
        };
        entry.object.spec.pod_sets.iter().enumerate().map(of).collect()
    }

    /// Whether a pod asks for no more than its role has quota for.
    fn fits(&self, member: &Member, granted: &BTreeMap<&str, PerPod>) -> bool {
        let Some(granted) = granted.get(&*member.role) else { return false };
        if member.requests_hash() == Some(granted.requests_hash) {
            return true;
        }
        let Some(size) = &member.size else { return false };
        let around = self.world.around(&member.namespace, &self.config);
        let asked = per_pod(size, "", around).0;
        let most = |name| granted.amounts.get(name).copied().unwrap_or(Amount::ZERO);
        asked.iter().all(|(name, amount)| *amount <= most(name))
    }

    /// Pods that run, or may at any time, and ask for more than their role has quota for.
    pub(super) fn running_too_large(&self, key: &JobKey, workload: &WorkloadKey) -> BTreeSet<Name> {
        let (Some(job), Some(entry)) = (self.world.pod_jobs.get(key), self.world.workloads.get(workload))
        else {
            return BTreeSet::new();
        };
        let sets = entry.object.spec.pod_sets.iter();
        let others =
            sets.flat_map(|set| job.pods.free_asking_otherwise(&set.name, set.template.requests_hash));
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            return BTreeSet::new();
        }
        let granted = self.granted(entry);
        let too_large = others.into_iter().filter(|member| !self.fits(member, &granted));
        too_large.map(|member| Arc::clone(&member.name)).collect()
    }

    /// Stops pods that run beyond those that their object's Workload is for; returns whether there are any.
    pub(super) fn tend_gathered(&mut self, key: &JobKey, workload: &WorkloadKey) -> bool {
        let Some(job) = self.world.pod_jobs.get(key) else { return false };
        let Some(entry) = self.world.workloads.get(workload) else { return false };
        let mut others: BTreeSet<_> = job.pods.running_beyond(&role_counts(entry)).into_iter().collect();
        others.extend(self.running_too_large(key, workload));
        if others.is_empty() {
            return false;
        }
        let why = "The Workload is not for this pod";
        self.end_pods(key, StopReason::NoMatchingWorkload, why, |member| others.contains(&member.name))
    }
}

/// The amounts of one pod in a pod set's admission.
fn used_by_one(assigned: &PodSetAssignment, set: &slim::PodSet) -> Vec<(Name, Amount)> {
    let pods = i64::from(assigned.count.unwrap_or(set.count)).max(1);
    let usage = &assigned.resource_usage;
    let one = |name: &String| (Name::from(name.as_str()), Amount(amount_in(usage, name).get() / pods));
    usage.keys().map(one).collect()
}
