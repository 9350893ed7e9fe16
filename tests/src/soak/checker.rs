//! Goes through what etcd has stored, change by change, and notes each moment at which something held that must never hold.

mod excess;
mod lost;
mod nodes;
mod objects;
mod parts;
mod quota;
mod strays;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice_testkit::etcd::Change;

use excess::Excess;
use lost::LostNodes;
use objects::{Job, Pod, Workload};

pub use objects::FAILS;
use quota::Quotas;
use strays::Strays;

const WORKLOADS: &str = "/registry/kueue.x-k8s.io/workloads/";
const CLUSTER_QUEUES: &str = "/registry/kueue.x-k8s.io/clusterqueues/";
const COHORTS: &str = "/registry/kueue.x-k8s.io/cohorts/";
const JOBS: &str = "/registry/jobs/";
const JOBSETS: &str = "/registry/jobset.x-k8s.io/jobsets/";
const PODS: &str = "/registry/pods/";
const NODES: &str = "/registry/minions/";

/// Whether the changes of a key are looked at.
fn is_relevant(key: &str) -> bool {
    [WORKLOADS, CLUSTER_QUEUES, COHORTS, JOBS, JOBSETS, PODS, NODES].iter().any(|kind| key.starts_with(kind))
}

/// The key of a Job.
pub fn job_key(namespace: &str, name: &str) -> String {
    format!("{JOBS}{namespace}/{name}")
}

/// The key of a JobSet.
pub fn jobset_key(namespace: &str, name: &str) -> String {
    format!("{JOBSETS}{namespace}/{name}")
}

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Quota is held twice for one job, or given anew without an eviction.
    AdmittedTwice,
    /// A queue or a cohort is above its limits, or pods are assigned to a node that has no room for them.
    AboveQuota,
    /// More pods of a job run on a node than are assigned to it.
    Misplaced,
    /// A job runs that has no admitted Workload.
    RunsUnadmitted,
    /// Quota is given back while pods run on it.
    FreedTooEarly,
    /// A job did not end, or ended without the user's will.
    Lost,
    /// A pod goes on although its job may not run, or beside the pods of a later admission.
    GoesOn,
    /// Something is left of what is gone.
    LeftBehind,
}

/// One moment at which a rule was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// When.
    pub revision: u64,
    /// The object.
    pub key: String,
    /// What held.
    pub text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule, revision, key, text } = self;
        write!(f, "{rule:?} at revision {revision}, {key}: {text}")
    }
}

/// What a history contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Changes that were looked at.
    pub changes: usize,
    /// Jobs with a queue that were made.
    pub jobs: usize,
    /// Those that completed or failed.
    pub finished: usize,
    /// Those that the user deleted before.
    pub deleted: usize,
    /// Times that a job began to run.
    pub started: usize,
    /// Times that a Workload was admitted.
    pub admissions: usize,
    /// Times that one was evicted.
    pub evictions: usize,
    /// Evictions of Workloads some of whose pods had completed.
    pub evictions_of_partly_completed: usize,
    /// Pods that came to a node which they were assigned to.
    pub placed: usize,
    /// Times that pods of a lost node were given another place without an eviction.
    pub moved: usize,
    /// Times that quota was free before the pods were gone of a job that was started and stopped before its own controller had ever looked at
    /// it: nothing in its status says so.
    pub freed_unseen: usize,
    /// Times that a Job's own controller had made more pods than the Job has at a time: the answer to a request was lost with its API server.
    pub surplus: usize,
    /// Times that reservations exceeded a limit for a moment, and nothing ran on what was too much: a write of a former leader came late.
    pub late_reservations: usize,
}

/// The world at one revision, and what was broken until then.
#[derive(Debug, Default)]
pub struct Checker {
    workloads: BTreeMap<String, Workload>,
    /// Workloads by the UID of their job.
    of_job: BTreeMap<String, BTreeSet<String>>,
    jobs: BTreeMap<String, Job>,
    keys: BTreeMap<String, String>,
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
    /// What exceeds a limit now.
    excesses: Vec<Excess>,
    lost: LostNodes,
    strays: Strays,
    account: Account,
    violations: Vec<Violation>,
    revision: u64,
}

impl Checker {
    /// What was broken so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// What happened so far.
    pub fn account(&self) -> Account {
        self.account
    }

    /// The last change that was looked at.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Jobs that are there and have not ended, by key.
    pub fn open(&self) -> &BTreeSet<String> {
        &self.open
    }

    /// The user is about to delete this job.
    pub fn expect_deletion(&mut self, key: &str) {
        self.unwanted.insert(key.to_owned());
    }

    /// So much time of the day is over, before the next change.
    pub fn clock(&mut self, now: Duration) {
        self.strays.now = now;
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
        if !is_relevant(key) {
            return Ok(());
        }
        self.account.changes += 1;
        let object = object.as_ref();
        if key.starts_with(WORKLOADS) {
            self.workload(key, object)
        } else if let Some(name) = key.strip_prefix(CLUSTER_QUEUES) {
            self.quotas.set_queue(name, object)
        } else if let Some(name) = key.strip_prefix(COHORTS) {
            self.quotas.set_cohort(name, object)
        } else if let Some(name) = key.strip_prefix(NODES) {
            self.lost.node(name, object, self.revision);
            self.quotas.set_node(name, object)
        } else if key.starts_with(PODS) {
            self.pod(key, object);
            Ok(())
        } else {
            self.job(key, object);
            Ok(())
        }
        .with_context(|| format!("reading {key} at revision {}", self.revision))
    }

    /// At the end, when nothing is to happen any more and all jobs are still there: every one has ended, and no quota is in use.
    pub fn rest(&mut self) {
        self.end_excesses();
        for key in self.live() {
            self.note(Rule::GoesOn, &key, "it goes on after all jobs have ended".to_owned());
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

    /// After what jobs are queued by was deleted, too: an object that is there is held by a finalizer.
    pub fn still_there(&mut self, left: &[(String, String)]) {
        for (key, finalizers) in left {
            self.note(Rule::LeftBehind, key, format!("it is held by {finalizers}"));
        }
    }

    /// The quota that is in use, as text.
    pub fn in_use(&self) -> Vec<String> {
        self.quotas.in_use()
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.workloads.len() + self.jobs.len() + self.pods.len()
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
                self.keys.remove(&before.uid);
                self.job_is_gone(key);
            }
            return;
        };
        let mut job = Job::read(object);
        if let Some(old) = before.as_ref().filter(|old| old.uid != job.uid) {
            self.keys.remove(&old.uid);
            self.job_is_gone(key);
        }
        let before = before.filter(|old| old.uid == job.uid);
        let goes_on = before.as_ref().filter(|before| before.runs() || !job.runs());
        job.began = goes_on.map_or(self.revision, |before| before.began);
        self.keys.insert(job.uid.clone(), key.to_owned());
        self.jobs.insert(key.to_owned(), job.clone());
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
        if job.runs() && !before.as_ref().is_some_and(Job::runs) {
            self.nothing_of_a_former_run(key, before.as_ref());
            self.seen_running.remove(key);
        } else if job.seen_running {
            self.seen_running.insert(key.to_owned());
        }
        if job.runs() {
            let began = !before.is_some_and(|before| before.runs());
            self.account.started += usize::from(began);
            let reserved = self.workloads_of(&job.uid).filter(|(_, workload)| workload.reserved);
            let reserved: Vec<_> = reserved.map(|(key, _)| key.clone()).collect();
            self.ran.extend(reserved);
            self.judge_excesses();
            let covered = self
                .workloads_of(&job.uid)
                .any(|(_, workload)| workload.covers() && !(began && workload.evicted));
            if !covered {
                let text = if began { "it begins to run" } else { "it runs" };
                self.note(Rule::RunsUnadmitted, key, format!("{text}, and has no admitted Workload"));
            }
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

    fn pod(&mut self, key: &str, object: Option<&Value>) {
        match object {
            Some(object) => {
                let mut pod = Pod::read(object);
                pod.made = self.pods.get(key).map_or(self.revision, |before| before.made);
                let before = self.pods.insert(key.to_owned(), pod.clone());
                let came = before.is_none_or(|before| before.node.is_none());
                if let Some(node) = pod.node.as_deref().filter(|_| came && pod.live) {
                    self.came_to_node(key, &pod, node);
                }
            }
            None => drop(self.pods.remove(key)),
        }
    }

    /// A pod is on a node from now on: if its Workload has nodes assigned, that one has room for it.
    fn came_to_node(&mut self, key: &str, pod: &Pod, node: &str) {
        let Some(job) = pod.owner.clone().map(|owner| self.top_of(owner)) else { return };
        self.not_beside_others(key, &job);
        let covering = self.workloads_of(&job).find(|(_, workload)| workload.covers());
        let Some(assigned) = covering.and_then(|(_, workload)| workload.nodes.as_ref()) else { return };
        let most = assigned.get(node).map_or(0, |of| of.pods);
        let here = |pod: &&Pod| pod.live && pod.node.as_deref() == Some(node);
        let of_job = self.pods.values().filter(here).filter_map(|pod| pod.owner.clone());
        let many = of_job.filter(|owner| self.top_of(owner.clone()) == job).count();
        if many > most {
            let text = format!("{many} pods of its job are on {node}, and {most} are assigned to it");
            self.note(Rule::Misplaced, key, text);
        } else {
            self.account.placed += 1;
        }
    }

    /// The UID of the job that queues, for that of a Job: its JobSet, if it has one.
    fn top_of(&self, uid: String) -> String {
        let above = self.keys.get(&uid).and_then(|key| self.jobs.get(key)).and_then(|job| job.owner.clone());
        above.unwrap_or(uid)
    }

    fn workload(&mut self, key: &str, object: Option<&Value>) -> Result<()> {
        let now = object.map(Workload::read).transpose()?;
        let before = self.workloads.remove(key);
        if let Some(before) = &before {
            self.quotas.charge(before, -1);
            self.link(key, before, false);
        }
        if let Some(now) = &now {
            self.quotas.charge(now, 1);
            self.link(key, now, true);
            self.workloads.insert(key.to_owned(), now.clone());
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
            self.judge_excesses();
            return Ok(());
        };
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
        }
        if now.admitted && !before.admitted && now.finished {
            self.note(Rule::AdmittedTwice, key, "it is admitted after it finished".to_owned());
        }
        if now.reserved && !now.finished && (!before.reserved || before.job != now.job) {
            self.is_the_only_one(key, &now);
        }
        self.is_within_limits(key, &before, &now);
        self.judge_excesses();
        self.quota_is_freed(key, &before, Some(&now));
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

    /// A Workload no longer covers its job, or no longer holds quota: nothing may run on it.
    fn quota_is_freed(&mut self, key: &str, before: &Workload, now: Option<&Workload>) {
        let Some(uid) = &before.job else { return };
        let Some(job_key) = self.keys.get(uid).cloned() else { return };
        let job = self.jobs[&job_key].clone();
        let covers = now.is_some_and(Workload::covers);
        if before.covers() && !covers && job.runs() {
            let covered = self.workloads_of(uid).any(|(_, workload)| workload.covers());
            if !covered {
                self.note(Rule::RunsUnadmitted, &job_key, format!("it runs, and {key} is admitted no more"));
            }
        }
        let reserved = now.is_some_and(|now| now.reserved && !now.finished);
        if before.reserved && !before.finished && !reserved && !job.deleting {
            let live = self.live_pods(uid);
            if live.is_empty() || job.finished {
                return;
            }
            if self.seen_running.contains(&job_key) || job.says_suspended {
                self.note(Rule::FreedTooEarly, key, format!("its quota is free, and {live:?} run"));
            } else {
                self.account.freed_unseen += 1;
            }
        }
    }

    /// The pods of a job, and of the Jobs of a JobSet, that run or will.
    fn live_pods(&self, uid: &str) -> Vec<String> {
        let of_job = |owner: &str| owner == uid || self.top_of(owner.to_owned()) == uid;
        let live = self.pods.iter().filter(|(_, pod)| pod.live && pod.owner.as_deref().is_some_and(of_job));
        live.map(|(key, _)| key.clone()).collect()
    }
}
