//! Checks etcd's changes one by one, and notes each moment at which an invariant is violated.

mod charges;
mod excess;
mod faults;
mod findings;
mod fits;
mod leader;
mod lost;
mod objects;
mod parts;
mod places;
mod pod_sets;
mod pods;
mod quota;
mod returns;
mod rights;
mod strays;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice_testkit::etcd::Change;

use excess::Excess;
use faults::Faults;
pub(super) use faults::STALL;
use leader::Leader;
use lost::LostNodes;
use objects::{Job, Pod, Workload};
use places::Places;
use pod_sets::PodSet;
use pods::Gone;
use quota::Quotas;
use returns::Returns;
use rights::Rights;
use strays::Strays;

pub use findings::{Account, Rule, Violation};
pub use objects::{FAILS, LET_RUN};
pub use returns::QuotaReturns;

const WORKLOADS: &str = "/registry/kueue.x-k8s.io/workloads/";
const CLUSTER_QUEUES: &str = "/registry/kueue.x-k8s.io/clusterqueues/";
const COHORTS: &str = "/registry/kueue.x-k8s.io/cohorts/";
const JOBS: &str = "/registry/jobs/";
const JOBSETS: &str = "/registry/jobset.x-k8s.io/jobsets/";
const PODS: &str = "/registry/pods/";
const NODES: &str = "/registry/minions/";
const FLAVORS: &str = "/registry/kueue.x-k8s.io/resourceflavors/";
const LOCAL_QUEUES: &str = "/registry/kueue.x-k8s.io/localqueues/";
const LEASES: &str = "/registry/leases/kueue-system/";
const EVENTS: &str = "/registry/events/";

/// Whether the changes of a key are looked at.
fn is_relevant(key: &str) -> bool {
    let kinds = [WORKLOADS, CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, FLAVORS, JOBS, JOBSETS, PODS, NODES];
    kinds.iter().any(|kind| key.starts_with(kind))
}

/// The key of a Job.
pub fn job_key(namespace: &str, name: &str) -> String {
    format!("{JOBS}{namespace}/{name}")
}

/// The key of a JobSet.
pub fn jobset_key(namespace: &str, name: &str) -> String {
    format!("{JOBSETS}{namespace}/{name}")
}

/// The world at one revision, and the violations until then.
#[derive(Debug, Default)]
pub struct Checker {
    workloads: BTreeMap<String, Workload>,
    /// Workloads by the UID of their job.
    of_job: BTreeMap<String, BTreeSet<String>>,
    jobs: BTreeMap<String, Job>,
    keys: BTreeMap<String, String>,
    /// Jobs that are being deleted, or gone, by UID.
    gone: BTreeMap<String, Gone>,
    pods: BTreeMap<String, Pod>,
    quotas: Quotas,
    /// Jobs whose deletion the user asked for.
    unwanted: BTreeSet<String>,
    /// Jobs that have not ended yet.
    open: BTreeSet<String>,
    /// Jobs whose controller has seen them run since they last began to.
    seen_running: BTreeSet<String>,
    /// Workloads on whose reservation their job has run.
    ran: BTreeSet<String>,
    /// Limits that are exceeded now.
    excesses: Vec<Excess>,
    /// The Workload that the present change takes quota from without a good reason: see [`excess`].
    dropped: Option<String>,
    lost: LostNodes,
    places: Places,
    rights: Rights,
    leader: Leader,
    /// What was done to the managers and the control plane.
    faults: Faults,
    /// The elapsed time of the run.
    now: Duration,
    strays: Strays,
    /// How long quota of deleted jobs takes to be back.
    returns: Returns,
    account: Account,
    violations: Vec<Violation>,
    revision: u64,
}

impl Checker {
    /// The violations so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The totals so far.
    pub fn account(&self) -> Account {
        Account { returns: self.returns.figures(), ..self.account }
    }

    /// The last change that was looked at.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Jobs that exist and have not ended, by key.
    pub fn open(&self) -> &BTreeSet<String> {
        &self.open
    }

    /// The user is about to delete this job.
    pub fn expect_deletion(&mut self, key: &str) {
        self.unwanted.insert(key.to_owned());
    }

    /// Sets the elapsed time of the run, before the next change.
    pub fn clock(&mut self, now: Duration) {
        self.now = now;
        self.judge_strays();
    }

    /// Looks at the next change.
    ///
    /// # Errors
    ///
    /// If a Workload holds quota without an admission, or is admitted with pod sets or nodes that make no sense; or if an amount, also of a queue,
    /// cohort or node, is not a whole number with a known unit.
    pub fn observe(&mut self, change: &Change) -> Result<()> {
        self.revision = change.revision;
        let Change { key, object, .. } = change;
        let object = object.as_ref();
        if key.starts_with(LEASES) {
            self.account.leaders += usize::from(self.leader.lease(object, self.now));
        } else if key.starts_with(EVENTS) {
            self.event(key, object);
        }
        if !is_relevant(key) {
            return Ok(());
        }
        self.account.changes += 1;
        if key.starts_with(WORKLOADS) {
            self.workload(key, object)
        } else if let Some(name) = key.strip_prefix(CLUSTER_QUEUES) {
            self.rights.set_queue(name, object, self.now);
            self.quotas.set_queue(name, object)
        } else if let Some(name) = key.strip_prefix(COHORTS) {
            self.quotas.set_cohort(name, object)
        } else if let Some(name) = key.strip_prefix(LOCAL_QUEUES) {
            self.rights.set_local(name, object, self.now);
            Ok(())
        } else if let Some(name) = key.strip_prefix(FLAVORS) {
            self.places.set_flavor(name, object);
            Ok(())
        } else if let Some(name) = key.strip_prefix(NODES) {
            self.lost.node(name, object, self.revision);
            self.places.set_node(name, object, self.now);
            self.quotas.set_node(name, object)
        } else if key.starts_with(PODS) {
            self.pod(key, object)
        } else {
            self.job(key, object);
            Ok(())
        }
        .with_context(|| format!("reading {key} at revision {}", self.revision))
    }

    /// At the end, when nothing more happens and all jobs still exist: every job has ended, and no quota is in use.
    pub fn rest(&mut self) {
        self.end_excesses();
        for key in self.live() {
            self.note(Rule::GoesOn, &key, "it continues after all jobs have ended".to_owned());
        }
        for key in self.open.clone() {
            self.note(Rule::Lost, &key, "it has not ended".to_owned());
        }
        for text in self.quotas.in_use() {
            self.note(Rule::LeftBehind, "", format!("quota is in use: {text}"));
        }
    }

    /// After all jobs were deleted: nothing is left.
    pub fn nothing_left(&mut self) {
        let left: Vec<_> =
            self.workloads.keys().chain(self.jobs.keys()).chain(self.pods.keys()).cloned().collect();
        for key in left {
            self.note(Rule::LeftBehind, &key, "it is left".to_owned());
        }
    }

    /// Called after the queues were deleted, too: an object that still exists is blocked by a finalizer.
    pub fn still_there(&mut self, left: &[(String, String)]) {
        for (key, finalizers) in left {
            self.note(Rule::LeftBehind, key, format!("it is held by {finalizers}"));
        }
    }

    /// The used quota, as text.
    pub fn in_use(&self) -> Vec<String> {
        self.quotas.in_use()
    }

    /// A Workload whose job runs, and some of whose pods have completed: the one with the most pods left.
    pub fn partly_completed(&self) -> Option<String> {
        let runs = |workload: &Workload| {
            let job = workload.job.as_ref().and_then(|uid| self.jobs.get(self.keys.get(uid)?));
            job.is_some_and(Job::runs)
        };
        let left = |workload: &Workload| workload.sets.iter().map(PodSet::left).sum::<usize>();
        let eligible = |workload: &Workload| {
            workload.covers() && workload.partly_completed && !workload.evicted && !workload.inactive
        };
        let all = self.workloads.iter().filter(|(_, one)| eligible(one) && runs(one) && left(one) > 0);
        let most = all.max_by_key(|(_, one)| left(one));
        most.map(|(key, _)| key.trim_start_matches(WORKLOADS).to_owned())
    }

    /// Whether a Workload, by namespace and name, holds quota.
    pub fn holds_quota(&self, workload: &str) -> bool {
        self.workloads.get(&format!("{WORKLOADS}{workload}")).is_some_and(|one| one.reserved && !one.finished)
    }

    /// Whether a Workload, by namespace and name, holds no quota and has not finished.
    pub fn waits(&self, workload: &str) -> bool {
        self.workloads
            .get(&format!("{WORKLOADS}{workload}"))
            .is_some_and(|one| !one.reserved && !one.finished)
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.workloads.len() + self.jobs.len() + self.pods.len()
    }

    /// An event that says that the manager gave an object up.
    fn event(&mut self, key: &str, object: Option<&Value>) {
        if let Some(event) = object.filter(|event| event["reason"] == "SetAside") {
            let text = event["message"].as_str().or_else(|| event["note"].as_str()).unwrap_or_default();
            self.note(Rule::SetAside, key, text.to_owned());
        }
    }

    fn note(&mut self, rule: Rule, key: &str, text: String) {
        self.violations.push(self.violation(rule, key, text));
    }

    fn violation(&self, rule: Rule, key: &str, text: String) -> Violation {
        Violation { rule, revision: self.revision, key: key.to_owned(), text }
    }

    /// The Workloads of a job, by its UID.
    fn workloads_of(&self, uid: &str) -> impl Iterator<Item = (&String, &Workload)> {
        let keys = self.of_job.get(uid).into_iter().flatten();
        keys.filter_map(|key| Some((key, self.workloads.get(key)?)))
    }

    fn job(&mut self, key: &str, object: Option<&Value>) {
        let before = self.jobs.get(key).cloned();
        let Some(object) = object else {
            if let Some(before) = self.jobs.remove(key) {
                self.touch_whole(&before);
                self.goes(key, &before);
                self.keys.remove(&before.uid);
                self.quota_is_to_be_back(&before.uid);
                self.job_is_gone(key);
            }
            return;
        };
        let mut job = Job::read(object);
        let same = before.as_ref().filter(|old| old.uid == job.uid);
        job.made = same.map_or(self.now, |old| old.made);
        job.changed = self.now;
        let begins = job.follow(same, self.revision);
        job.began_at = same.filter(|_| !begins).map_or(self.now, |old| old.began_at);
        if let Some(old) = before.as_ref().filter(|old| old.uid != job.uid) {
            self.goes(key, old);
            self.keys.remove(&old.uid);
            self.quota_is_to_be_back(&old.uid);
            self.job_is_gone(key);
        }
        if job.deleting {
            self.goes(key, &job);
            self.quota_is_to_be_back(&job.uid);
        }
        let before = before.filter(|old| old.uid == job.uid);
        self.keys.insert(job.uid.clone(), key.to_owned());
        self.jobs.insert(key.to_owned(), job.clone());
        self.touch_whole(&job);
        if !job.queued {
            self.judge_part(key, before.as_ref(), &job);
            return;
        }
        if before.is_none() {
            self.account.jobs += 1;
            self.open.insert(key.to_owned());
        }
        if job.finished && self.open.remove(key) {
            self.account.finished += 1;
            if job.failed_unmade {
                self.note(Rule::Lost, key, "it failed, and no pod of it was made to fail".to_owned());
            }
        }
        if begins {
            self.nothing_of_a_former_run(key, before.as_ref());
            self.seen_running.remove(key);
        } else if job.seen_running {
            self.seen_running.insert(key.to_owned());
        }
        if job.runs() {
            self.account.started += usize::from(begins);
            let reserved = self.workloads_of(&job.uid).filter(|(_, workload)| workload.reserved);
            let reserved: Vec<_> = reserved.map(|(key, _)| key.clone()).collect();
            self.ran.extend(reserved);
            self.judge_excesses();
            let covered = self
                .workloads_of(&job.uid)
                .any(|(_, workload)| workload.covers() && !(begins && workload.evicted));
            if self.workloads_of(&job.uid).any(|(_, workload)| workload.covers() && !workload.evicted) {
                self.take_on(key);
            }
            if let Some(job) = self.jobs.get_mut(key).filter(|_| begins) {
                job.began_admitted = covered;
            }
            if !covered && job.by_hand {
                // It is to be stopped: see [`strays`].
                self.account.by_hand += usize::from(begins);
            } else if !covered {
                let text = if begins { "it begins to run" } else { "it runs" };
                self.note(Rule::RunsUnadmitted, key, format!("{text}, and has no admitted Workload"));
            }
        }
    }

    /// A job, by its UID, is being deleted, or gone.
    fn quota_is_to_be_back(&mut self, uid: &str) {
        let holding = self.workloads_of(uid).filter(|(_, workload)| workload.reserved && !workload.finished);
        let holding: Vec<_> = holding.map(|(key, _)| key.clone()).collect();
        for key in holding {
            self.returns.job_goes(&key, self.now);
        }
    }

    fn job_is_gone(&mut self, key: &str) {
        self.seen_running.remove(key);
        if self.open.remove(key) {
            if self.unwanted.contains(key) {
                self.account.deleted += 1;
            } else {
                self.note(Rule::Lost, key, "it is deleted, and has not ended".to_owned());
            }
        }
    }

    fn workload(&mut self, key: &str, object: Option<&Value>) -> Result<()> {
        let now = object.map(Workload::read).transpose()?;
        if !now.as_ref().is_some_and(|now| now.reserved && !now.finished) {
            self.returns.holds_none(key, self.now);
        }
        let before = self.workloads.remove(key);
        self.note_dropped(key, before.as_ref(), now.as_ref());
        if let Some(before) = &before {
            self.quotas.charge(before, -1);
            self.link(key, before, false);
        }
        if let Some(now) = &now {
            self.quotas.charge(now, 1);
            self.link(key, now, true);
            self.workloads.insert(key.to_owned(), now.clone());
            let job = now.job.as_ref().filter(|_| now.covers() && !now.evicted);
            if let Some(job) = job.and_then(|uid| self.keys.get(uid).cloned()) {
                self.take_on(&job);
            }
        }
        let same = |old: &Workload| now.as_ref().is_some_and(|now| now.uid == old.uid);
        if let Some(before) = before.as_ref().filter(|before| !same(before)) {
            self.quota_is_freed(key, before, None);
        }
        let before = before.filter(same).unwrap_or_default();
        if !before.reserved || !now.as_ref().is_some_and(|now| now.reserved) {
            self.ran.remove(key);
        }
        let Some(now) = now else {
            self.rights.forget(key);
            self.judge_excesses();
            return Ok(());
        };
        self.rights.set_active(key, now.inactive, self.now);
        self.count(&before, &now);
        let changes = now.admission != before.admission;
        if now.reserved && before.reserved && changes {
            if self.lost.allow(key, &before, &now) {
                self.account.moved += 1;
            } else {
                self.note(Rule::AdmittedTwice, key, "its admission changes without an eviction".to_owned());
            }
        }
        if changes {
            self.lost.placed(key, self.revision);
            self.judge_places(key, &before, &now);
        }
        self.judge_right(key, &before, &now);
        self.judge_charge(key, &before, &now);
        if now.admitted && !before.admitted && now.finished {
            self.note(Rule::AdmittedTwice, key, "it is admitted after it finished".to_owned());
        }
        if now.reserved && !now.finished && (!before.reserved || before.job != now.job) {
            self.is_the_only_one(key, &now);
        }
        self.is_within_limits(key, &before, &now);
        self.judge_excesses();
        self.quota_is_freed(key, &before, Some(&now));
        self.some_pods_are_done(key, &before, &now);
        Ok(())
    }

    fn link(&mut self, key: &str, workload: &Workload, there: bool) {
        let Some(job) = &workload.job else { return };
        let keys = self.of_job.entry(job.clone()).or_default();
        if there {
            keys.insert(key.to_owned());
        } else {
            keys.remove(key);
            if keys.is_empty() {
                self.of_job.remove(job);
            }
        }
    }

    fn count(&mut self, before: &Workload, now: &Workload) {
        if now.admitted && !before.admitted {
            self.account.admissions += 1;
        }
        if now.evicted && !before.evicted {
            self.account.evictions += 1;
        }
        if now.evicted && before.reserved && !now.reserved && now.partly_completed {
            self.account.evictions_of_partly_completed += 1;
        }
    }

    fn is_the_only_one(&mut self, key: &str, workload: &Workload) {
        let Some(job) = &workload.job else { return };
        let others: Vec<_> = self
            .workloads_of(job)
            .filter(|(other, workload)| *other != key && workload.reserved && !workload.finished)
            .map(|(other, _)| other.clone())
            .collect();
        if !others.is_empty() {
            self.note(Rule::AdmittedTwice, key, format!("its job holds quota by {others:?}, too"));
        }
    }
}
