//! The pods of a job: the nodes on which they run, and whether they have ended when their quota is released.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::faults::{ANSWER, Excuse};
use super::objects::{Job, Pod, Workload};
use super::{Checker, Rule};

/// A job that is being deleted, or gone. Its pods may still be there.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    key: String,
    /// Its JobSet, if it has one.
    above: Option<String>,
    /// The revision since when it is: pods that its controller makes later are removed again.
    since: u64,
    /// It was stopped before its own controller had ever looked at it.
    unseen: bool,
    /// When it was made.
    made: Duration,
    /// As it last was.
    last: Job,
}

impl Checker {
    pub(super) fn pod(&mut self, key: &str, object: Option<&Value>) -> Result<()> {
        let Some(object) = object else {
            self.pods.remove(key);
            return Ok(());
        };
        let mut pod = Pod::read(object)?;
        let made = self.pods.get(key).map(|before| (before.made, before.made_at));
        (pod.made, pod.made_at) = made.unwrap_or((self.revision, self.now));
        let before = self.pods.insert(key.to_owned(), pod.clone());
        let came = before.is_none_or(|before| before.node.is_none());
        if let Some(node) = pod.node.as_deref().filter(|_| came && pod.live) {
            self.came_to_node(key, &pod, node);
        }
        Ok(())
    }

    /// A pod is on a node from now on: if its Workload has assigned nodes, this node must have a place for it.
    fn came_to_node(&mut self, key: &str, pod: &Pod, node: &str) {
        let Some(job) = pod.owner.clone().map(|owner| self.top_of(owner)) else { return };
        // What its user let run is to be stopped: see [`super::strays`].
        let of_job = self.keys.get(&job).and_then(|key| self.jobs.get(key));
        if of_job.is_some_and(|job| job.is_by_hand(pod.made)) {
            return;
        }
        self.not_beside_others(key, &job);
        let covering = self.workloads_of(&job).find(|(_, workload)| workload.covers());
        let Some(covering) = covering.map(|(_, workload)| workload.clone()) else { return };
        self.judge_labels(key, pod, node, &covering);
        let Some(assigned) = &covering.nodes else { return };
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
    pub(super) fn top_of(&self, uid: String) -> String {
        let above = self.keys.get(&uid).and_then(|key| self.jobs.get(key)).and_then(|job| job.owner.clone());
        above.unwrap_or(uid)
    }

    /// A job is being deleted, or gone.
    pub(super) fn goes(&mut self, key: &str, job: &Job) {
        let unseen = job.suspended && !self.is_known_to_have_run(key, job);
        let (key, above, since) = (key.to_owned(), job.owner.clone(), self.revision);
        let gone = Gone { key, above, since, unseen, made: job.made, last: job.clone() };
        self.gone.entry(job.uid.clone()).or_insert(gone);
    }

    /// Whether a job, by its UID, is one that its user deleted.
    pub(super) fn is_deleted_by_its_user(&self, uid: &str) -> bool {
        let key = self.keys.get(uid).or_else(|| self.gone.get(uid).map(|gone| &gone.key));
        key.is_some_and(|key| self.unwanted.contains(key))
    }

    /// Whether the status of a job shows its pods, or that it had some.
    fn is_known_to_have_run(&self, key: &str, job: &Job) -> bool {
        job.finished || self.seen_running.contains(key) || job.says_suspended
    }

    /// A Workload no longer covers its job, or no longer holds quota: nothing may run on it.
    pub(super) fn quota_is_freed(&mut self, key: &str, before: &Workload, now: Option<&Workload>) {
        let Some(uid) = &before.job else { return };
        let job_key = self.keys.get(uid).cloned();
        let runs = job_key.as_ref().filter(|key| self.jobs.get(*key).is_some_and(Job::runs));
        let covers = now.is_some_and(Workload::covers);
        if let Some(job_key) = runs.filter(|_| before.covers() && !covers) {
            let covered = self.workloads_of(uid).any(|(_, workload)| workload.covers());
            let job = &self.jobs[job_key];
            if !covered && !job.is_without_quota() {
                if self.is_let_run_meanwhile(job) {
                    self.is_to_be_stopped(job_key);
                } else {
                    let text = format!("it runs, and {key} is admitted no more");
                    self.note(Rule::RunsUnadmitted, job_key, text);
                }
            }
        }
        let reserved = now.is_some_and(|now| now.reserved && !now.finished);
        if !before.reserved || before.finished || reserved {
            return;
        }
        let there = self.present_pods(uid);
        if there.is_empty() {
            return;
        }
        // When the job was made, if its own controller had never looked at it.
        let unseen = match (self.gone.get(uid), &job_key) {
            (Some(gone), _) => gone.unseen.then_some(gone.made),
            (None, Some(key)) => {
                let job = &self.jobs[key];
                (!self.is_known_to_have_run(key, job)).then_some(job.made)
            }
            (None, None) => None,
        };
        let text = format!("its quota is free, and {there:?} are not over");
        match unseen {
            Some(made) if self.faults.overlap(Excuse::Unseen, made, self.now) => {
                self.account.freed_unseen += 1;
            }
            Some(_) => {
                let text = format!("{text}; no fault kept its job's controller from looking");
                self.note(Rule::FreedTooEarly, key, text);
            }
            None => self.note(Rule::FreedTooEarly, key, text),
        }
    }

    /// More pods of a Workload are reported as reclaimable: that many must have ended, or not exist.
    pub(super) fn some_pods_are_done(&mut self, key: &str, before: &Workload, now: &Workload) {
        let Some(uid) = now.job.as_ref().filter(|_| before.reserved && now.reserved && !now.finished) else {
            return;
        };
        if self.keys.get(uid).and_then(|key| self.jobs.get(key)).is_some_and(|job| job.by_hand) {
            return;
        }
        for set in &now.sets {
            let was = before.sets.iter().find(|one| one.name == set.name).map_or(0, |one| one.reclaimable);
            if set.reclaimable <= was {
                continue;
            }
            let mut live = self.live_pods(uid);
            live.retain(|key| {
                now.sets.len() == 1 || self.pods[key].set.as_ref().is_none_or(|name| *name == set.name)
            });
            // The answer to the request that made a pod was lost: the Job's controller made another one, and counts one of them.
            let too_many = live.len() > set.left();
            if too_many && self.counted(&live) <= set.left() && self.answers_were_lost(&live, set.left()) {
                self.account.surplus += 1;
            } else if too_many {
                let (name, left) = (&set.name, set.left());
                let text = format!("the pod set {name} keeps quota for {left} pods, and {live:?} run");
                self.note(Rule::FreedTooEarly, key, text);
            }
        }
    }

    /// Whether a fault may have kept the answers to the requests that made these pods from their controllers, of as many as are too many.
    pub(super) fn answers_were_lost(&self, pods: &[String], most: usize) -> bool {
        let made = pods.iter().map(|key| self.pods[key].made_at);
        let lost = made.filter(|made| self.faults.overlap(Excuse::Surplus, *made, *made + ANSWER));
        lost.count() >= pods.len().saturating_sub(most)
    }

    /// How many of these pods the controllers of their Jobs say that these have.
    fn counted(&self, live: &[String]) -> usize {
        let mut of_jobs: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in live.iter().map(|key| &self.pods[key]) {
            *of_jobs.entry(pod.owner.as_deref().unwrap_or_default()).or_default() += 1;
        }
        let active = |uid: &str| self.jobs.get(self.keys.get(uid)?)?.active;
        let active = |uid: &str| active(uid).unwrap_or(usize::MAX);
        of_jobs.iter().map(|(uid, pods)| (*pods).min(active(uid))).sum()
    }

    fn pods_of(&self, uid: &str) -> impl Iterator<Item = (&String, &Pod)> {
        let of_job = move |owner: &str| owner == uid || self.top_of(owner.to_owned()) == uid;
        self.pods.iter().filter(move |(_, pod)| pod.owner.as_deref().is_some_and(of_job))
    }

    /// The pods of a job, and of the Jobs of a JobSet, that run or will.
    pub(super) fn live_pods(&self, uid: &str) -> Vec<String> {
        self.pods_of(uid).filter(|(_, pod)| pod.live).map(|(key, _)| key.clone()).collect()
    }

    /// Pods that have not ended, including terminating ones, and those of a deleted job or of a deleted Job of a JobSet. Pods on a node that was lost
    /// meanwhile cannot be known (docs/reference/11-observed.md 11.1.6). Those of a run that its user began, and that was never admitted,
    /// have no quota to give back.
    fn present_pods(&self, uid: &str) -> Vec<String> {
        let there = self.pods.iter().filter(|(_, pod)| pod.present && !self.is_on_lost_node(pod));
        let of_job = there.filter(|(_, pod)| {
            let Some(owner) = pod.owner.as_deref() else { return false };
            let (made_by, of) = (self.gone.get(owner), self.gone.get(uid));
            let above = made_by.and_then(|gone| gone.above.as_deref());
            let late = made_by.into_iter().chain(of).any(|gone| pod.made > gone.since);
            let top = self.keys.get(uid).and_then(|key| self.jobs.get(key)).or(of.map(|gone| &gone.last));
            let by_hand = top.is_some_and(|job| job.is_without_quota() && pod.made >= job.began);
            !late && !by_hand && (owner == uid || above == Some(uid) || self.top_of(owner.to_owned()) == uid)
        });
        of_job.map(|(key, _)| key.clone()).collect()
    }

    /// Whether the node of a pod was lost since the pod was made.
    pub(super) fn is_on_lost_node(&self, pod: &Pod) -> bool {
        pod.node.as_ref().is_some_and(|node| self.lost.is_lost_since(node, pod.made))
    }
}
