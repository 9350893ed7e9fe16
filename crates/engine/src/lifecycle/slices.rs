//! The slices of an elastic job (docs/reference/06-algorithm.md 6.26): Workloads that follow one another as the job changes its size. One runs; a job
//! that grows gets another, which waits for the additional quota while the running pods continue.
//!
//! The new slice is admitted first, and then the slice that it replaces is finished. In between both are admitted; of the older one only the usage
//! beyond that of the newer one counts, in every replica that sees the two. So the job has an admitted Workload at every moment, whatever fails.

use std::sync::Arc;

use serde_json::json;
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::job::{JobPodSet, JobView};
use sluice_api::v1beta2::WorkloadStatus;
use sluice_api::{labels, slim};
use sluice_core::{Admission, Amount, ReplacedSlice, WorkloadKey};
use sluice_jobs::Patch;

use super::body;
use super::decisions::job_uid;
use super::matching::{OwnWorkload, is_slice_of};
use super::transition;
use crate::effect::{Effect, Level, Purpose, Write};
use crate::engine::Engine;
use crate::ingest::workload::{created, flavors, is, reserved};
use crate::metrics;
use crate::outbox::{About, normal, observe};
use crate::world::{JobKey, WorkloadEntry, workload_ref};

/// The message for a slice that nothing replaces.
const OUT_OF_SYNC: &str = "The workload slice is out of sync with its parent job";

/// How a job's pod counts compare with those of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Same,
    /// Fewer pods of some pod set, and of none more.
    Smaller,
    /// More pods of some pod set than the slice has, not counting pods that ended.
    Larger,
}

/// How many pods of a pod set may still run at a time: pods that ended and are not replaced are not requested again.
pub(super) fn usable(view: &JobView, set: &JobPodSet) -> i32 {
    let ended = view.reclaimable.iter().find(|(name, _)| *name == set.name).map_or(0, |(_, ended)| *ended);
    set.count.saturating_sub(ended.max(0)).max(0)
}

/// The slices that a job has.
struct Chain {
    /// The slice whose pods run, or will.
    current: WorkloadKey,
    /// The slice that replaces it.
    next: Option<WorkloadKey>,
    /// Surplus slices.
    rest: Vec<WorkloadKey>,
}

/// The first slice of the chain that a slice is of: its own name, if it does not say.
pub(crate) fn first_slice(key_name: &str, entry: &WorkloadEntry) -> String {
    let annotations = entry.object.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(labels::WORKLOAD_SLICE_NAME))
        .map_or(key_name, String::as_str)
        .to_owned()
}

/// Whether a finished slice was replaced by another, or was surplus: neither shows how its job ended.
pub fn is_superseded(workload: &slim::Workload) -> bool {
    conditions::find(&workload.status.conditions, Type::Finished.as_str()).is_some_and(|c| {
        c.status == "True"
            && (c.reason == reason::WORKLOAD_SLICE_REPLACED
                || c.reason == reason::OUT_OF_SYNC && c.message == OUT_OF_SYNC)
    })
}

impl Engine {
    /// Whether a job may change its size while it runs. A job whose pods run without the gate, or do not name their pod set, may not: nothing would
    /// hold back more of them, or ungate them.
    pub(crate) fn is_elastic(&self, view: &JobView) -> bool {
        let asks = || {
            let kind = view.job.kind;
            view.annotations.get(labels::ELASTIC_JOB).is_some_and(|value| value == "true")
                && sluice_jobs::supports_slices(kind)
                && view.prebuilt_workload.is_none()
        };
        let gated = || view.pod_sets.iter().all(JobPodSet::holds_pods_back);
        self.config.on(Gate::ElasticJobsViaWorkloadSlices)
            && asks()
            && (view.suspended || view.stopping || view.finished.is_some() || gated())
    }

    /// The slice that this slice replaces according to its annotation, if it belongs to the same job.
    pub(crate) fn replaced_by(&self, key: &WorkloadKey) -> Option<WorkloadKey> {
        let entry = self.world.workloads.get(key)?;
        let annotations = entry.object.metadata.annotations.as_ref()?;
        let text = annotations.get(labels::WORKLOAD_SLICE_REPLACEMENT_FOR)?;
        if !self.config.on(Gate::ElasticJobsViaWorkloadSlices) {
            return None;
        }
        let (namespace, name) = text.split_once('/')?;
        let old = WorkloadKey::new(namespace, name);
        let owner = entry.controller_uid()?;
        let same = self.world.workloads.get(&old)?.controller_uid() == Some(owner);
        (same && old != *key && *old.namespace == *key.namespace).then_some(old)
    }

    /// The slices that replace this slice according to their annotations.
    pub(crate) fn replacing(&self, key: &WorkloadKey) -> Vec<WorkloadKey> {
        let Some(entry) = self.world.workloads.get(key) else { return Vec::new() };
        let annotations = entry.object.metadata.annotations.as_ref();
        if !annotations.is_some_and(|all| all.contains_key(labels::ELASTIC_JOB)) {
            return Vec::new();
        }
        let others = entry.controller_uid().map(|uid| self.world.owned(uid)).unwrap_or_default();
        others.into_iter().filter(|other| self.replaced_by(other).as_ref() == Some(key)).collect()
    }

    /// Marks the other slices of a job: their usage is computed again.
    pub(crate) fn mark_slices(&mut self, entry: &WorkloadEntry) {
        let annotations = entry.object.metadata.annotations.as_ref();
        if annotations.is_some_and(|all| all.contains_key(labels::ELASTIC_JOB))
            && let Some(uid) = entry.controller_uid()
        {
            self.dirty.workloads.extend(self.world.owned(uid));
        }
    }

    fn entry(&self, key: &WorkloadKey) -> &WorkloadEntry {
        &self.world.workloads[key]
    }

    fn leaves(&self, key: &WorkloadKey) -> bool {
        self.entry(key).object.metadata.deletion_timestamp.is_some()
    }

    /// Whether a slice lets its job run.
    fn runs(&self, key: &WorkloadKey) -> bool {
        is(self.entry(key).status(), Type::Admitted)
    }

    fn size(&self, view: &JobView, key: &WorkloadKey) -> Size {
        let sets = view.pod_sets.iter().zip(&self.entry(key).object.spec.pod_sets);
        let mut size = Size::Same;
        for (of_job, set) in sets {
            if usable(view, of_job) > set.count {
                return Size::Larger;
            }
            if of_job.count < set.count {
                size = Size::Smaller;
            }
        }
        size
    }

    /// Which of the slices that are not over runs, which takes over, and which are left over.
    fn chain(&self, live: &[WorkloadKey]) -> Option<Chain> {
        let newest = |wanted: &dyn Fn(&WorkloadKey) -> bool| {
            let of: Vec<_> = live.iter().filter(|key| wanted(key)).collect();
            let replaced =
                |key: &&WorkloadKey| of.iter().any(|by| self.replaced_by(by).as_ref() == Some(*key));
            of.iter().copied().rfind(|key| !replaced(key)).or(of.last().copied()).cloned()
        };
        let evicted = |key: &WorkloadKey| is(self.entry(key).status(), Type::Evicted);
        // A slice that may not run now, or not yet, must not be bypassed by another.
        let held_back = |key: &WorkloadKey| {
            let entry = self.entry(key);
            !entry.object.spec.active || evicted(key) && entry.status().requeue_state.is_some()
        };
        // Nor does a slice that replaces such a slice, even if it has quota: its approval, or its nodes, came too late.
        let decides = |key: &&WorkloadKey| {
            held_back(key) && !self.replaced_by(key).is_some_and(|old| live.contains(&old))
        };
        let current = (live.iter().rfind(decides).cloned())
            .or_else(|| newest(&|key| self.runs(key)))
            .or_else(|| newest(&|key| reserved(self.entry(key).status())))
            .or_else(|| live.iter().rfind(|key| held_back(key)).cloned())
            .or_else(|| live.iter().rfind(|key| !evicted(key)).cloned())
            .or_else(|| live.last().cloned())?;
        let holds = reserved(self.entry(&current).status());
        let follows =
            |key: &&WorkloadKey| **key != current && self.replaced_by(key).as_ref() == Some(&current);
        let next = live.iter().rfind(|key| holds && follows(key) && !self.runs(key)).cloned();
        let rest = live.iter().filter(|key| **key != current && Some(*key) != next.as_ref());
        let rest = rest.cloned().collect();
        Some(Chain { current, next, rest })
    }

    /// The slice of a job that runs, or will; the others are made, updated, and finished.
    pub(super) fn slice_workload(&mut self, key: &JobKey, view: &Arc<JobView>) -> OwnWorkload {
        let mut owned = self.world.owned(&view.job.uid);
        owned.sort_by_cached_key(|key| (created(&self.entry(key).object), self.entry(key).uid()));
        if owned.iter().any(|key| self.entry(key).open.is_some()) {
            return OwnWorkload::Wait;
        }
        let (over, live): (Vec<_>, Vec<_>) =
            owned.into_iter().partition(|key| is(self.entry(key).status(), Type::Finished));
        for key in &over {
            if self.leaves(key) {
                self.drop_finalizer(key);
            }
        }
        if let Some(leaving) = live.iter().find(|key| self.leaves(key)) {
            if !live.iter().any(|other| self.runs(other) && !self.leaves(other)) {
                return OwnWorkload::One(leaving.clone());
            }
            let leaving = leaving.clone();
            self.drop_finalizer(&leaving);
            return OwnWorkload::Wait;
        }
        let Some(chain) = self.chain(&live) else {
            let last = over.into_iter().rfind(|key| !self.leaves(key));
            let last = last.filter(|key| view.finished.is_some() || !is_superseded(&self.entry(key).object));
            return last.map_or(OwnWorkload::None, OwnWorkload::One);
        };
        if self.find_back(key, view, &chain.current) {
            return OwnWorkload::Wait;
        }
        let mut waits = false;
        for left in &chain.rest {
            waits |= self.end_slice(left, &chain.current);
        }
        if waits {
            return OwnWorkload::Wait;
        }
        if view.finished.is_some() {
            return OwnWorkload::One(chain.current);
        }
        self.resize(key, view, chain)
    }

    /// Brings the slices in line with the numbers of pods that the job has now.
    fn resize(&mut self, key: &JobKey, view: &Arc<JobView>, chain: Chain) -> OwnWorkload {
        let Chain { current, next, .. } = chain;
        let entry = self.entry(&current);
        let size = self.size(view, &current);
        let holds = reserved(entry.status());
        if !is_slice_of(view, &entry.object, entry.status(), &self.config) {
            if let Some(next) = next {
                self.end_slice(&next, &current);
                return OwnWorkload::Wait;
            }
            return self.mismatched(key, view, &current);
        }
        if size != Size::Larger
            && let Some(next) = &next
        {
            self.end_slice(next, &current);
            return OwnWorkload::Wait;
        }
        // Its pod counts are updated after it is stopped: a refused write must not delay a stop.
        let leaves = is(entry.status(), Type::Evicted) && (holds || !view.suspended);
        if !leaves && (size == Size::Smaller || size == Size::Larger && !holds) {
            self.set_counts(view, &current, false);
            return OwnWorkload::Wait;
        }
        if size == Size::Larger {
            self.grow(key, view, &current, next.as_ref());
        }
        if self.world.jobs.get(key).is_none_or(|entry| entry.open.is_some()) {
            return OwnWorkload::Wait;
        }
        if size == Size::Same {
            self.drop_templates(key);
        }
        OwnWorkload::One(current)
    }

    /// Creates or updates the slice that replaces the running one, which has fewer pods than the job requests.
    fn grow(&mut self, key: &JobKey, view: &Arc<JobView>, current: &WorkloadKey, next: Option<&WorkloadKey>) {
        let Some(next) = next else {
            let entry = self.entry(current);
            // A slice that is about to lose its quota gets the new pod counts itself.
            if !is(entry.status(), Type::Evicted) && entry.object.spec.active && entry.decision.is_none() {
                match self.priority_of(view) {
                    Ok(priority) => self.create_workload(key, view, priority, Some(current)),
                    Err(why) => self.report_uncomposed(key, view, &why),
                }
            }
            return;
        };
        let entry = self.entry(next);
        if entry.decision.is_some() || entry.retry.waits(self.now) {
            return;
        }
        if !is_slice_of(view, &entry.object, entry.status(), &self.config) {
            self.end_slice(next, current);
            return;
        }
        if reserved(entry.status()) {
            // Its pods do not run: the running pods belong to the slice before.
            if is(entry.status(), Type::Evicted) {
                let mut status = entry.status().clone();
                transition::release(&mut status, self.at(&entry.object));
                self.write_status(next, Purpose::ReleaseQuota, status, Vec::new());
            } else if self.size(view, next) == Size::Smaller {
                self.set_counts(view, next, false);
            }
        } else if self.counts(view, next, true).is_empty() {
            self.sync_spec(key, view, next);
        } else {
            self.set_counts(view, next, true);
        }
    }

    /// The new pod counts of a slice, by the positions of its pod sets. A slice without quota gets `exactly` the pods that are still to come; for
    /// another, pods that ended become reclaimable.
    fn counts(&self, view: &JobView, key: &WorkloadKey, exactly: bool) -> Vec<(usize, i32)> {
        let sets = view.pod_sets.iter().zip(&self.entry(key).object.spec.pod_sets).enumerate();
        let wanted = sets.map(|(at, (of_job, set))| {
            let usable = usable(view, of_job);
            let wanted = if exactly { usable } else { set.count.min(of_job.count).max(usable) };
            (wanted != set.count).then_some((at, wanted))
        });
        wanted.flatten().collect()
    }

    /// Gives a slice the numbers of pods that its job has now.
    fn set_counts(&mut self, view: &JobView, key: &WorkloadKey, exactly: bool) {
        let entry = self.entry(key);
        if entry.retry.waits(self.now) || entry.decision.is_some() {
            return;
        }
        if self.give_back_less(view, key, exactly) {
            return;
        }
        let metadata = &self.entry(key).object.metadata;
        let operations = self.counts(view, key, exactly).into_iter().map(|(at, count)| {
            json!({"op": "replace", "path": format!("/spec/podSets/{at}/count"), "value": count})
        });
        let patch = Patch::Json(operations.collect());
        let patch = patch.pinned(metadata.resource_version.as_deref().unwrap_or_default());
        let then = vec![self.log(Level::Info, "workload slice resized", &[("workload", key)])];
        let write = Write::Patch(patch);
        let id = self.outbox.write(workload_ref(key), Purpose::ResizeSlice, write, then);
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.open = Some(id);
        }
    }

    /// A slice whose pod counts shrink needs fewer reclaimable pods, too: more than its count are refused, and too many would give the quota of
    /// running pods to others. Returns whether that has to be written first; until the slice shrinks, it counts for more than its pods use.
    fn give_back_less(&mut self, view: &JobView, key: &WorkloadKey, exactly: bool) -> bool {
        let entry = self.entry(key);
        let mut next = entry.status().clone();
        for (at, count) in self.counts(view, key, exactly) {
            let ended = view.pod_sets[at].count.saturating_sub(usable(view, &view.pod_sets[at]));
            let most =
                count.saturating_sub(view.pod_sets[at].count.saturating_sub(ended)).clamp(0, count.max(0));
            let name = &entry.object.spec.pod_sets[at].name;
            for given_back in next.reclaimable_pods.iter_mut().filter(|one| one.name == *name) {
                given_back.count = given_back.count.min(most);
            }
        }
        next.reclaimable_pods.retain(|one| one.count > 0);
        if next.reclaimable_pods == entry.status().reclaimable_pods {
            return false;
        }
        self.write_part(key, Purpose::Reclaim, body::RECLAIMABLE_PODS, next, Vec::new());
        true
    }

    /// Finishes a slice that is surplus or was replaced by the current one; returns whether to wait for it.
    fn end_slice(&mut self, key: &WorkloadKey, current: &WorkloadKey) -> bool {
        let entry = self.entry(key);
        if entry.open.is_some() {
            return true;
        }
        if entry.retry.waits(self.now) || entry.decision.is_some() {
            return false;
        }
        let uid = entry.uid();
        let queue = entry.status().admission.as_ref().map(|a| a.cluster_queue.clone()).unwrap_or_default();
        let mut next = entry.status().clone();
        let at = self.at(&entry.object);
        let mut then: Vec<Effect> = Vec::new();
        let replaced =
            reserved(self.entry(current).status()) && self.replaced_by(current).as_ref() == Some(key);
        if replaced {
            let by = self.entry(current);
            let job = job_uid(&by.object).unwrap_or("UNKNOWN");
            let message = format!(
                "Replaced to accommodate a workload (UID: {}, JobUID: {job}) due to workload slice aggregation",
                by.uid()
            );
            transition::finish(&mut next, reason::WORKLOAD_SLICE_REPLACED, &message, at);
            let mut event = normal(About::admission(key, &uid), reason::WORKLOAD_SLICE_REPLACED, message);
            if let Effect::Event(event) = &mut event {
                "Replaced".clone_into(&mut event.action);
            }
            then.push(event);
            if !queue.is_empty() {
                then.push(observe(metrics::REPLACED_WORKLOAD_SLICES_TOTAL, &[&queue], 1.0));
            }
        } else {
            transition::finish(&mut next, reason::OUT_OF_SYNC, OUT_OF_SYNC, at);
        }
        then.push(self.log(
            Level::Info,
            "workload slice finished",
            &[("workload", key), ("current", current), ("queue", &queue)],
        ));
        self.write_status(key, Purpose::Finish, next, then);
        true
    }

    /// Whether a slice holds quota that none of its pods uses yet: the running pods belong to the slice that it replaces.
    pub(super) fn is_unused_slice(&self, key: &WorkloadKey) -> bool {
        self.replaced_by(key).is_some_and(|old| {
            let status = self.entry(&old).status();
            is(status, Type::Admitted) && !is(status, Type::Finished)
        })
    }

    /// Whether a job that runs asks for more pods than its slice has: they wait.
    pub(super) fn has_waiting_pods(&self, view: &JobView, workload: &WorkloadKey) -> bool {
        self.is_elastic(view) && self.size(view, workload) == Size::Larger
    }
}

impl Engine {
    /// The slice that this slice replaces, for the core; `None` unless that slice holds quota.
    pub(super) fn replaced_slice(&self, key: &WorkloadKey) -> Option<ReplacedSlice> {
        let old = self.replaced_by(key)?;
        let object = &self.entry(&old).object;
        let admission = object.status.admission.as_ref();
        let holds = reserved(&object.status) && !is(&object.status, Type::Finished);
        let flavors = flavors(admission.filter(|_| holds)?, object);
        Some(ReplacedSlice { key: old, flavors })
    }

    /// The usage of slices that replace this one is subtracted: it counts only for what it has beyond that.
    pub(super) fn leave_to_others(&self, key: &WorkloadKey, admission: &mut Admission) {
        for by in self.replacing(key) {
            for (flavor, resource, amount) in self.scheduler.reserved(&by) {
                let mut taken = amount;
                for set in &mut admission.pod_sets {
                    let has = set.flavors.iter().any(|(r, f)| *r == resource && *f == flavor);
                    let usage = set.usage.iter_mut().find(|(r, _)| has && *r == resource);
                    if let Some((_, usage)) = usage {
                        let less = (*usage).min(taken).max(Amount::ZERO);
                        (*usage, taken) = (usage.sub(less), taken.sub(less));
                    }
                }
            }
        }
    }

    /// A slice continues the running time of the slice before, so that a job that grows does not get its maximum execution time again.
    pub(super) fn carry_time_over(&self, key: &WorkloadKey, next: &mut WorkloadStatus) {
        let longest = self.entry(key).object.spec.maximum_execution_time_seconds;
        let Some(old) = longest.and_then(|_| self.replaced_by(key)) else { return };
        let status = self.entry(&old).status();
        // Once it took over, its own time counts.
        if is(status, Type::Finished) {
            return;
        }
        let since = conditions::true_since(&status.conditions, Type::Admitted.as_str());
        let ran = since.map_or(0, |since| (self.now.as_second() - since.as_second()).max(0));
        let past = status.accumulated_past_execution_time_seconds.unwrap_or(0);
        let past = past.saturating_add(i32::try_from(ran).unwrap_or(i32::MAX));
        if past > next.accumulated_past_execution_time_seconds.unwrap_or(0) {
            next.accumulated_past_execution_time_seconds = Some(past);
        }
    }
}
