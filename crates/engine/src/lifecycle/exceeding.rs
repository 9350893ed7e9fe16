//! Jobs that run with more than their Workload holds quota for, or elsewhere. The Workload is evicted, which stops the job, and is queued again after
//! a delay that doubles each time.
//!
//! One cause: pods that succeeded gave their quota back, and their controller runs them again, as JobSet's does when it restarts the whole. They
//! cannot be charged again: while quota is reserved, reclaimable pods never become fewer. The same is true of a group of pods: replacements of
//! succeeded pods wait, unless a client removes their gates.
//!
//! Another cause: the program of a SparkApplication asks for more executors than its spec says.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_api::conditions::{WorkloadCondition as Type, reason, whole_seconds};
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::WorkloadKey;

use super::transition::Eviction;
use super::workload::later;
use crate::backoff::{Backoff, jittered};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::trouble::Trouble;
use crate::world::JobKey;

/// How long it is not queued again.
const BACKOFF: Backoff = Backoff::seconds(10, 3_600);

/// For how long terminating pods may run beside those that a program makes in their place: twice the default grace period.
const REPLACES_SECONDS: i64 = 60;

/// How often it was evicted for a reason.
fn times(status: &WorkloadStatus, reason: &str) -> i32 {
    let evictions = status.scheduling_stats.iter().flat_map(|stats| &stats.evictions);
    let count = evictions.filter(|known| known.reason == reason).map(|known| known.count);
    count.max().unwrap_or(0)
}

/// How many pods of a pod set run, as the job says it.
fn running(view: &JobView, set: &str) -> i32 {
    view.running.iter().find(|(name, _)| name == set).map_or(0, |(_, pods)| *pods)
}

/// How many pods of a pod set gave their quota back.
fn given_back(status: &WorkloadStatus, set: &str) -> i32 {
    status.reclaimable_pods.iter().find(|one| one.name == set).map_or(0, |one| one.count.max(0))
}

/// With how many pods each pod set was admitted.
fn admitted(sets: &[slim::PodSet], status: &WorkloadStatus) -> Vec<i32> {
    let assigned = status.admission.as_ref().map(|admission| &admission.pod_set_assignments[..]);
    let assigned = assigned.unwrap_or_default();
    let count = |at: usize| assigned.get(at).and_then(|assigned| assigned.count);
    sets.iter().enumerate().map(|(at, set)| count(at).unwrap_or(set.count)).collect()
}

/// For how many pods of each pod set quota is held.
pub(crate) fn charged(sets: &[slim::PodSet], status: &WorkloadStatus) -> Vec<i32> {
    let left = |set: &slim::PodSet| set.count.saturating_sub(given_back(status, &set.name));
    sets.iter().zip(admitted(sets, status)).map(|(set, admitted)| left(set).min(admitted)).collect()
}

impl Engine {
    /// Evicts the Workload of a job that runs with more than that; says whether it does.
    pub(super) fn evict_exceeding(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[workload];
        let status = entry.status();
        let runs = !view.suspended && view.finished.is_none();
        if !runs || !is(status, Type::Admitted) || is(status, Type::Evicted) {
            return false;
        }
        let message = self
            .exceeding_component(key, view)
            .or_else(|| self.running_beyond(key, view, workload))
            .or_else(|| self.off_its_flavors(key, view, workload))
            .or_else(|| self.beyond_for_long(key, view, workload));
        let Some(message) = message else { return false };
        self.evict_for_a_while(workload, reason::OUT_OF_SYNC, message);
        true
    }

    /// Evicts a Workload, and queues it again later each time that it is for this reason.
    pub(super) fn evict_for_a_while(
        &mut self,
        workload: &WorkloadKey,
        reason: &'static str,
        message: String,
    ) {
        let entry = &self.world.workloads[workload];
        let mut next = entry.status().clone();
        let until = self.now.checked_add(jittered(BACKOFF, times(&next, reason), &entry.uid())).ok();
        next.requeue_state.get_or_insert_default().requeue_at = until.map(|at| Time(whole_seconds(at)));
        let eviction = Eviction { reason, cause: String::new(), message, preemption: None };
        self.evict_from(workload, next, &eviction);
    }

    /// What a job runs beyond its quota. A program that makes its pods itself may replace a terminating one: it is given time for that.
    fn running_beyond(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) -> Option<String> {
        let beyond = self.pods_beyond(view, workload);
        if key.kind.integration().maker_pods.is_none() {
            return beyond;
        }
        self.once_it_lasted(key, |trouble| &mut trouble.made_beyond_since, beyond, REPLACES_SECONDS)
    }

    /// The problem of a job, once it has lasted for this many seconds without a break; `since` is where its start is kept.
    pub(super) fn once_it_lasted(
        &mut self,
        key: &JobKey,
        since: fn(&mut Trouble) -> &mut Option<Timestamp>,
        found: Option<String>,
        seconds: i64,
    ) -> Option<String> {
        let now = self.now;
        let entry = self.world.jobs.get_mut(key)?;
        if found.is_none() {
            if let Some(trouble) = &mut entry.trouble {
                *since(trouble) = None;
            }
            return None;
        }
        let since = since(entry.trouble.get_or_insert_default());
        let until = later(*since.get_or_insert(now), seconds);
        if until > now {
            self.wake_at(until, Alarm::Job(key.clone()));
            return None;
        }
        *since = None;
        found
    }

    /// What a job runs although its quota was given back, or was never requested.
    fn pods_beyond(&self, view: &JobView, workload: &WorkloadKey) -> Option<String> {
        if view.running.is_empty() || self.is_elastic(view) {
            return None;
        }
        let entry = &self.world.workloads[workload];
        let sets = &entry.object.spec.pod_sets;
        let beyond = |(set, charged): (&slim::PodSet, i32)| {
            let pods = running(view, &set.name);
            (pods > charged).then(|| {
                let name = &set.name;
                let released = given_back(entry.status(), name) > 0;
                let why = if released { "; the quota of the other pods was released" } else { "" };
                format!("{pods} pods of {name:?} run, but quota covers only {charged}{why}")
            })
        };
        sets.iter().zip(charged(sets, entry.status())).find_map(beyond)
    }

    /// What an object that a job wraps runs beyond its declared pods.
    fn exceeding_component(&self, key: &JobKey, view: &JobView) -> Option<String> {
        if !key.kind.integration().wraps_objects {
            return None;
        }
        let children = self.children(key, &view.job.uid).map(|entry| &entry.view);
        // Children whose pods are in groups are not jobs: each group is one.
        let children = children.chain(self.world.sets_below(key, &view.job.uid));
        let mut runs = children.filter(|child| !child.deleting && child.finished.is_none());
        runs.find_map(|child| view.exceeded_by_wrapped(child))
    }
}
