//! The pods of a group, and their sums.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::job::{JobFinished, JobPodSet};

use super::changes::StopReason;
use super::member::{Member, Phase, TotalCount};
use super::order::{Keep, Leave, Votes};
use crate::object::MAX_POD_SETS;

/// The pods of one role.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Role {
    /// Counted pods, in the order in which they are kept.
    pub counting: BTreeSet<Keep>,
    /// The others, the last replaced first.
    pub inactive: BTreeSet<Leave>,
    /// The number of other pods without our finalizer.
    pub released: usize,
    /// The number of succeeded pods.
    pub succeeded: i32,
    /// The number of counted pods that do not wait.
    pub ungated: usize,
    /// How many of these have not ended: they use quota, or may at any time.
    pub using: usize,
    /// The number of counted pods that have not ended.
    pub unended: usize,
    /// How many of these are being deleted: others may wait to take their places.
    pub leaving: usize,
    /// The number of pods that run, or may at any time, and are not being deleted.
    pub free: usize,
    /// The same by their requests.
    asks: BTreeMap<Option<u64>, usize>,
    /// Pods that wait and were not set back, in the order in which they are kept.
    pub waiting: BTreeSet<Keep>,
}

/// A label that Workloads take over, and its value.
type Label = (Arc<str>, String);

/// The pods of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The labels that its Workload takes over.
    copied_labels: BTreeSet<String>,
    pub(super) members: BTreeMap<Arc<str>, Member>,
    pub(super) roles: BTreeMap<Arc<str>, Role>,
    /// All that count, the first kept longest.
    pub(super) counting: BTreeSet<Keep>,
    /// How long their names are, added up.
    pub(super) name_bytes: usize,
    gated: BTreeSet<Arc<str>>,
    free: BTreeSet<Arc<str>>,
    held: BTreeSet<Arc<str>>,
    succeeded: i32,
    unended: usize,
    /// The number of pods that are not being deleted.
    present: usize,
    /// Running pods, by the end of their grace period.
    running: BTreeMap<Option<Timestamp>, usize>,
    /// The number of counted pods that are ready, or succeeded.
    ready: usize,
    unretriable: usize,
    pub(super) queues: Votes<Option<Arc<str>>>,
    pub(super) totals: Votes<TotalCount>,
    serving: Votes<bool>,
    pub(super) indexes: Votes<Result<u32, String>>,
    pub(super) labels: BTreeMap<Arc<str>, Votes<Label>>,
    /// UIDs of pods that are being finalized or deleted by us, which has not been seen yet.
    leaving: BTreeSet<Arc<str>>,
}

impl Group {
    /// A group without pods. Its Workload takes over labels with these keys.
    pub fn new(copied_labels: &[String]) -> Self {
        Self { copied_labels: copied_labels.iter().cloned().collect(), ..Self::default() }
    }

    /// Adds or updates a pod. Repeated changes do no harm.
    pub fn insert(&mut self, member: Member) {
        if let Some(old) = self.members.remove(&member.name) {
            self.count(&old, false);
            if old.uid != member.uid {
                self.leaving.remove(&old.uid);
            }
        }
        if !member.held {
            self.leaving.remove(&member.uid);
        }
        self.count(&member, true);
        self.members.insert(Arc::clone(&member.name), member);
    }

    /// A pod is gone.
    pub fn remove(&mut self, name: &str) -> Option<Member> {
        let member = self.members.remove(name)?;
        self.leaving.remove(&member.uid);
        self.count(&member, false);
        Some(member)
    }

    /// Adds a pod to all counters, or subtracts it.
    fn count(&mut self, member: &Member, add: bool) {
        let step = |counter: &mut usize, counts: bool| {
            if counts {
                *counter = if add { *counter + 1 } else { *counter - 1 };
            }
        };
        let sign = if add { 1 } else { -1 };
        let succeeded = if member.phase == Phase::Succeeded { sign } else { 0 };
        let present = member.deleted_by.is_none();
        let waits = member.gated && !member.ended() && present;
        let role = self.roles.entry(Arc::clone(&member.role)).or_default();
        role.succeeded += succeeded;
        self.succeeded += succeeded;
        if member.counts() {
            put(&mut role.counting, Keep::of(member), add);
            put(&mut self.counting, Keep::of(member), add);
            step(&mut role.ungated, !member.gated);
            step(&mut role.using, member.is_free());
            step(&mut role.unended, !member.ended());
            step(&mut role.leaving, !member.ended() && !present);
            let bytes = member.name.len();
            self.name_bytes = if add { self.name_bytes + bytes } else { self.name_bytes - bytes };
        } else {
            put(&mut role.inactive, Leave::of(member), add);
            step(&mut role.released, !member.held);
        }
        step(&mut role.free, member.is_free() && present);
        if member.is_free() && present {
            let asking = role.asks.entry(member.requests_hash()).or_default();
            step(asking, true);
            if *asking == 0 {
                role.asks.remove(&member.requests_hash());
            }
        }
        if waits {
            put(&mut role.waiting, Keep::of(member), add);
        }
        if role.counting.is_empty() && role.inactive.is_empty() {
            self.roles.remove(&member.role);
        }
        if waits {
            put(&mut self.gated, Arc::clone(&member.name), add);
        }
        if member.is_free() && present {
            put(&mut self.free, Arc::clone(&member.name), add);
        }
        if member.held {
            put(&mut self.held, Arc::clone(&member.name), add);
        }
        step(&mut self.unended, !member.ended());
        step(&mut self.present, present);
        step(&mut self.unretriable, member.unretriable);
        step(&mut self.ready, member.counts() && (member.ready || member.phase == Phase::Succeeded));
        if let Some(until) = member.active_until(false) {
            let running = self.running.entry(until).or_default();
            step(running, true);
            if *running == 0 {
                self.running.remove(&until);
            }
        }
        vote(&mut self.queues, member.queue_name.clone(), member, add);
        vote(&mut self.totals, member.total_count.clone(), member, add);
        vote(&mut self.serving, member.serving, member, add);
        if let Some(index) = &member.index {
            let number = index.parse::<u32>().map_err(|_| index.clone());
            vote(&mut self.indexes, number, member, add);
        }
        let Ok(pod_set) = &member.pod_set else { return };
        for (key, value) in &pod_set.scheduling.labels {
            if self.copied_labels.contains(key) {
                let key: Arc<str> = Arc::from(key.as_str());
                let votes = self.labels.entry(Arc::clone(&key)).or_default();
                vote(votes, (Arc::clone(&key), value.clone()), member, add);
                if *votes == Votes::default() {
                    self.labels.remove(&key);
                }
            }
        }
    }

    /// A pod.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name)
    }

    /// All pods, by name.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// How many pods there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether all pods are gone.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether every pod is being deleted.
    pub fn is_leaving(&self) -> bool {
        self.present == 0
    }

    /// Whether all pods that have not ended wait for admission.
    pub fn only_waits(&self) -> bool {
        self.unended == self.gated.len()
    }

    /// The counters from a pass over all pods: equal, if nothing went wrong.
    #[must_use]
    pub fn recounted(&self) -> Self {
        let mut fresh = Self { copied_labels: self.copied_labels.clone(), ..Self::default() };
        for member in self.members.values() {
            fresh.insert(member.clone());
        }
        fresh.leaving.clone_from(&self.leaving);
        // Pods that were set back wait, too.
        for (name, role) in &mut fresh.roles {
            role.waiting.retain(|keep| self.roles.get(name).is_some_and(|role| role.waiting.contains(keep)));
        }
        fresh
    }

    /// The pod that represents the group: the one that is kept longest.
    pub fn representative(&self) -> Option<&Member> {
        let kept = self.counting.first().map(|keep| &keep.name);
        let inactive = || self.roles.values().filter_map(|role| role.inactive.first()).min();
        self.members.get(kept.or_else(|| inactive().map(|leave| &leave.name))?)
    }

    /// The pod set of one pod of a role: from the pod that is kept longest. Its template may have been dropped.
    pub fn pod_set(&self, role: &str) -> Option<&JobPodSet> {
        let first = self.roles.get(role)?.counting.first()?;
        self.members.get(&first.name)?.pod_set.as_deref().ok()
    }

    /// The pods from which the pod sets of their roles are made.
    pub fn speakers(&self) -> impl Iterator<Item = &Member> {
        let first = self.roles.values().filter_map(|role| role.counting.first());
        first.filter_map(|keep| self.members.get(&keep.name))
    }

    /// After a pod was created or changed: drops the template that its role does not need any more. One is enough for all pods of a role; and none is
    /// needed while there are more roles than a Workload may have, as the group cannot have a Workload then. A template that is missing later has to
    /// be read.
    pub fn drop_needless_templates(&mut self, changed: &str) {
        let Some(role) = self.members.get(changed).and_then(|member| self.roles.get(&member.role)) else {
            return;
        };
        let mut kept = role.counting.iter().map(|keep| &keep.name);
        let stands_for_it = kept.next().is_some_and(|first| **first == *changed);
        let is_for_nothing = || self.roles.len() > MAX_POD_SETS && self.compose("").is_err();
        let needless = if !stands_for_it || is_for_nothing() {
            Arc::from(changed)
        } else if let Some(before) = kept.next() {
            // The previous representative of the role.
            Arc::clone(before)
        } else {
            return;
        };
        if let Some(member) = self.members.get_mut(&needless) {
            member.drop_template();
        }
    }

    /// Drops the templates, which only a new Workload needs.
    pub fn drop_templates(&mut self) {
        for member in self.members.values_mut() {
            member.drop_template();
        }
    }

    /// How many pods it has when it is complete, if its pods agree.
    pub fn total_count(&self) -> Option<i32> {
        self.totals.agreed().ok().flatten()?.as_ref().ok().copied()
    }

    /// Whether the group is admitted as soon as its first pod exists.
    pub fn is_fast(&self) -> bool {
        self.representative().is_some_and(|member| member.fast_admission)
    }

    /// Whether it never finishes.
    pub fn is_serving(&self) -> bool {
        matches!(self.serving.agreed(), Ok(Some(true)))
    }

    /// The pods that wait for admission and are not being deleted: those that a start concerns.
    pub fn gated(&self) -> impl Iterator<Item = &Member> {
        self.gated.iter().filter_map(|name| self.members.get(name))
    }

    /// How many pods wait for admission.
    pub fn gated_count(&self) -> usize {
        self.gated.len()
    }

    /// The pods of a role that wait and were not set back, the first kept longest.
    pub fn waiting(&self, role: &str) -> impl Iterator<Item = &Member> {
        let waiting = self.roles.get(role).into_iter().flat_map(|role| &role.waiting);
        waiting.filter_map(|keep| self.members.get(&keep.name))
    }

    /// How many pods of a role count and do not wait.
    pub fn ungated(&self, role: &str) -> usize {
        self.roles.get(role).map_or(0, |role| role.ungated)
    }

    /// How many pods of a role use quota, or may at any time.
    pub fn using(&self, role: &str) -> usize {
        self.roles.get(role).map_or(0, |role| role.using)
    }

    /// How many pods of each role run, or may at any time, and are not being deleted.
    pub fn running(&self) -> Vec<(String, i32)> {
        let free = self.roles.iter().filter(|(_, role)| role.free > 0);
        free.map(|(name, role)| (name.to_string(), i32::try_from(role.free).unwrap_or(i32::MAX))).collect()
    }

    /// Sets pods back that cannot be started now: they are not looked at until they change, or [`Group::look_again`].
    pub fn set_back(&mut self, names: &[Arc<str>]) {
        for member in names.iter().filter_map(|name| self.members.get(name)) {
            if let Some(role) = self.roles.get_mut(&member.role) {
                role.waiting.remove(&Keep::of(member));
            }
        }
    }

    /// Pods that were set back may be started now.
    pub fn look_again(&mut self) {
        for member in self.gated.iter().filter_map(|name| self.members.get(name)) {
            if let Some(role) = self.roles.get_mut(&member.role) {
                role.waiting.insert(Keep::of(member));
            }
        }
    }

    /// The pods that run, or may at any time, and are not being deleted: without admission there must be none.
    pub fn free(&self) -> impl Iterator<Item = &Member> {
        self.free.iter().filter_map(|name| self.members.get(name))
    }

    /// The pods of a role that run, or may at any time, and whose requests differ from the hash.
    pub fn free_asking_otherwise(&self, role: &str, requests_hash: u64) -> Vec<&Member> {
        let own = self.roles.get(role);
        let Some(own) = own.filter(|own| own.asks.keys().any(|asked| *asked != Some(requests_hash))) else {
            return Vec::new();
        };
        let counting = own.counting.iter().map(|keep| &keep.name);
        let all = counting.chain(own.inactive.iter().map(|leave| &leave.name));
        let members = all.filter_map(|name| self.members.get(name));
        let is_free = |member: &&Member| member.is_free() && member.deleted_by.is_none();
        members.filter(is_free).filter(|member| member.requests_hash() != Some(requests_hash)).collect()
    }

    /// The pods that a stop deletes: the free ones, or, if the Workload is being deleted, all. Gated pods stay, to be admitted again.
    pub fn to_stop(&self, reason: StopReason<'_>) -> Vec<&Member> {
        if reason == StopReason::WorkloadDeleted {
            self.members.values().filter(|member| member.deleted_by.is_none()).collect()
        } else {
            self.free().collect()
        }
    }

    /// The pods that our finalizer keeps.
    pub fn held(&self) -> impl Iterator<Item = &Member> {
        self.held.iter().filter_map(|name| self.members.get(name))
    }

    /// Until when it is active (`None`: until its pods change), if it is active at this time: a pod runs and its grace period is not over. With
    /// `fast`, a pod that is being deleted does not count (gate `FastQuotaReleaseInPodIntegration`).
    pub fn active_until(&self, now: Timestamp, fast: bool) -> Option<Option<Timestamp>> {
        if self.running.contains_key(&None) {
            return Some(None);
        }
        let last = self.running.last_key_value().and_then(|(until, _)| *until);
        last.filter(|until| !fast && *until > now).map(Some)
    }

    /// How it ended, if it did: all pods succeeded, or none is left to run and one has the annotation that none will follow. The numbers in its pods'
    /// annotations do not end it while some run, or may at any time.
    pub fn finished(&self) -> Option<JobFinished> {
        if self.is_serving() {
            return None;
        }
        let total = self.total_count()?;
        let over = self.succeeded == total || (self.unended == 0 && self.unretriable > 0);
        (over && self.free.is_empty()).then(|| JobFinished {
            success: true,
            message: format!("Pods succeeded: {}/{total}.", self.succeeded),
        })
    }

    /// How many pods count and are ready, or succeeded.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Whether as many pods as the group has are ready or succeeded.
    pub fn pods_ready(&self) -> bool {
        let total = self.total_count().and_then(|total| usize::try_from(total).ok());
        total.is_some_and(|total| self.ready >= total)
    }

    /// Succeeded pods, by role, in a Workload with these counts: their quota is free, except if other pods take their place.
    pub fn reclaimable(&self, counts: impl IntoIterator<Item = (Arc<str>, i32)>) -> Vec<(String, i32)> {
        if self.is_serving() {
            return Vec::new();
        }
        let of_role = |(name, count): (Arc<str>, i32)| {
            let role = self.roles.get(&name)?;
            let unended = i32::try_from(role.unended).unwrap_or(i32::MAX);
            let pods = role.succeeded.min(count.saturating_sub(unended));
            (pods > 0).then(|| (name.to_string(), pods))
        };
        counts.into_iter().filter_map(of_role).collect()
    }

    /// These pods are being finalized or deleted by us: until that is seen, no others are.
    pub fn expect(&mut self, names: &[Arc<str>]) {
        let held = names.iter().filter_map(|name| self.members.get(name)).filter(|member| member.held);
        self.leaving.extend(held.map(|member| Arc::clone(&member.uid)));
    }

    /// This could not be done: nothing will be seen of it.
    pub fn expect_no_longer(&mut self, uid: &str) {
        self.leaving.remove(uid);
    }

    /// Whether all was seen that we did.
    pub fn is_settled(&self) -> bool {
        self.leaving.is_empty()
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, value: T, add: bool) {
    if add {
        set.insert(value);
    } else {
        set.remove(&value);
    }
}

fn vote<T: Ord>(votes: &mut Votes<T>, value: T, member: &Member, add: bool) {
    if add {
        votes.add(value, member);
    } else {
        votes.remove(&value, member);
    }
}
