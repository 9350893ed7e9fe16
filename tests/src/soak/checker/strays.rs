//! Pods that continue to run after an eviction or a stop of their job, or after the loss of their node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::faults::Excuse;
use super::objects::Job;
use super::pod_sets::Assigned;
use super::rights::{IN_FLIGHT, LATE};
use super::{Checker, Rule};

/// How long a pod on a lost node may continue. Kubernetes itself takes more than a minute to remove the pods of a deleted node.
pub(super) const GRACE: Duration = Duration::from_mins(3);
/// How long any other pod, and a job that must stop, may continue: in time during which a replica led.
pub(super) const PROMPT: Duration = Duration::from_secs(20);
/// How often all are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// When something was first seen to continue: in the time of the run, and in the time during which a replica led.
#[derive(Clone, Copy, Debug)]
struct Since {
    day: Duration,
    led: Duration,
}

/// Pods and jobs that should end, and since when.
#[derive(Debug, Default)]
pub(super) struct Strays {
    looked: Option<Duration>,
    since: BTreeMap<String, Since>,
    reported: BTreeSet<String>,
}

impl Checker {
    /// Looks for what should have ended long ago.
    pub(super) fn judge_strays(&mut self) {
        let now = Since { day: self.now, led: self.leader.led(self.now) };
        if self.strays.looked.is_some_and(|looked| now.day < looked + EVERY) {
            return;
        }
        self.strays.looked = Some(now.day);
        let pods = self.pods.keys().filter_map(|key| Some((key.clone(), self.stray(key)?)));
        let workloads =
            self.workloads.keys().filter_map(|key| Some((key.clone(), self.not_carried_out(key)?)));
        let parts = self.jobs.iter().filter_map(|(key, job)| Some((key.clone(), self.part_of_nothing(job)?)));
        let by_hand = self.jobs.iter().filter_map(|(key, job)| Some((key.clone(), self.let_run(job)?)));
        let strays: BTreeMap<_, _> = pods.chain(workloads).chain(parts).chain(by_hand).collect();
        self.strays.since.retain(|key, _| strays.contains_key(key));
        for (key, why) in strays {
            let since = *self.strays.since.entry(key.clone()).or_insert(now);
            let (for_long, led) = (now.day.saturating_sub(since.day), now.led.saturating_sub(since.led));
            let lost = self.pods.get(&key).is_some_and(|pod| self.is_on_lost_node(pod));
            let late = if lost { for_long >= GRACE } else { led >= PROMPT };
            if late && self.strays.reported.insert(key.clone()) {
                let text = format!(
                    "it continues for {} s, {} s of them led, and {why}",
                    for_long.as_secs(),
                    led.as_secs()
                );
                self.note(Rule::GoesOn, &key, text);
            }
        }
    }

    /// Why a Workload should no longer hold quota, or its job should not run.
    fn not_carried_out(&self, key: &str) -> Option<String> {
        let workload = self.workloads.get(key).filter(|workload| workload.reserved && !workload.finished)?;
        if workload.evicted {
            let job = self.keys.get(workload.job.as_ref()?)?;
            let runs = self.jobs.get(job).is_some_and(Job::runs);
            return runs.then(|| format!("{job}, which is evicted, runs"));
        }
        // A job that has ended or is being deleted is not evicted: its Workload releases the quota when its pods have ended.
        let job = workload.job.as_ref().map(|uid| self.keys.get(uid).and_then(|key| self.jobs.get(key)));
        if job.is_some_and(|job| job.is_none_or(|job| job.finished || job.deleting)) {
            return None;
        }
        self.rights.must_go(key, workload).map(|why| format!("{why}, and it is not evicted"))
    }

    /// Why a job should not run that its user let run.
    fn let_run(&self, job: &Job) -> Option<String> {
        let covered = self.workloads_of(&job.uid).any(|(_, workload)| workload.covers());
        (job.by_hand && job.runs() && !covered).then(|| "its user let it run without an admission".to_owned())
    }

    /// Why a pod should not continue.
    fn stray(&self, key: &str) -> Option<String> {
        let pod = self.pods.get(key).filter(|pod| pod.live)?;
        let top = self.top_of(pod.owner.clone()?);
        let Some(job) = self.keys.get(&top) else { return Some("its job is gone".to_owned()) };
        if !self.jobs.get(job).is_some_and(|job| job.queued) {
            return None;
        }
        let Some((_, covering)) = self.workloads_of(&top).find(|(_, workload)| workload.covers()) else {
            return Some(format!("{job} is not admitted"));
        };
        let (node, places) = (pod.node.as_ref()?, covering.nodes.as_ref()?);
        places.get(node).is_none_or(|place| place.pods == 0).then(|| format!("{job} has no place on {node}"))
    }

    /// A job is admitted. If its user let it run, it does so with right from now on.
    pub(super) fn take_on(&mut self, key: &str) {
        if let Some(job) = self.jobs.get_mut(key).filter(|job| job.by_hand && job.runs()) {
            job.taken_on = true;
        }
    }

    /// Whether a user let a suspended job run while the quota of it was being taken away: no version of one object protects a write on another.
    pub(super) fn is_let_run_meanwhile(&self, job: &Job) -> bool {
        let late = self.now.saturating_sub(job.began_at);
        let delayed = || self.faults.overlap(Excuse::LateAdmission, job.began_at, self.now);
        job.by_hand && job.began_admitted && (late <= IN_FLIGHT || late <= LATE && delayed())
    }

    /// A job runs without right from now on, because its user let it run.
    pub(super) fn is_to_be_stopped(&mut self, key: &str) {
        if let Some(job) = self.jobs.get_mut(key) {
            job.taken_on = false;
            self.account.by_hand += 1;
        }
    }

    /// A job, or a Job of a JobSet, has changed.
    pub(super) fn touch_whole(&mut self, part: &Job) {
        let whole = part.owner.as_ref().and_then(|owner| self.keys.get(owner));
        if let Some(whole) = whole.and_then(|key| self.jobs.get_mut(key)) {
            whole.changed = self.now;
        }
    }

    /// Called when nothing has happened for long, and the controller of JobSets is about to begin again: a job that runs and does not end must have a
    /// fault for its cause since it last changed. Others wait for those.
    pub fn judge_oversights(&mut self) {
        let running = self.open.iter().filter_map(|key| Some((key, self.jobs.get(key)?)));
        let running = running.filter(|(_, job)| job.runs());
        let without =
            running.filter(|(_, job)| !self.faults.overlap(Excuse::Oversight, job.changed, self.now));
        let without: Vec<_> = without.map(|(key, job)| (key.clone(), job.changed)).collect();
        for (key, changed) in without {
            let long = self.now.saturating_sub(changed).as_secs();
            let text =
                format!("it runs, has not changed for {long} s, and no fault kept its controller from it");
            self.note(Rule::Lost, &key, text);
        }
    }

    /// Called when a job begins to run again. Its own controller has seen it run and has reported the stop, so none of its former pods may be left.
    pub(super) fn nothing_of_a_former_run(&mut self, key: &str, before: Option<&Job>) {
        let Some(before) = before.filter(|job| job.seen_suspended && self.seen_running.contains(key)) else {
            return;
        };
        let left = self.live_pods(&before.uid);
        if !left.is_empty() {
            self.note(
                Rule::GoesOn,
                key,
                format!("it begins to run again, and {left:?} of its last run continue"),
            );
        }
    }

    /// A pod of this job has come to a node: no more pods may continue now than the job is admitted with.
    pub(super) fn not_beside_others(&mut self, key: &str, job: &str) {
        let covering = self.workloads_of(job).find(|(_, workload)| workload.covers());
        let Some(covering) = covering.map(|(_, workload)| workload.clone()) else { return };
        // The pods of a deleted job are checked later.
        let Some(began) = self.keys.get(job).and_then(|key| self.jobs.get(key)).map(|job| job.began) else {
            return;
        };
        let most = covering.pods;
        let mut live = self.live_pods(job);
        live.retain(|key| self.pods[key].node.is_some());
        let too_many = live.len() > most;
        if too_many && self.is_surplus(&live, job, began, most) && self.answers_were_lost(&live, most) {
            self.account.surplus += 1;
        } else if too_many {
            let text = format!("{live:?} of its job are on nodes, and {most} pods are admitted");
            self.note(Rule::GoesOn, key, text);
        } else {
            self.judge_asks(key, &live, &covering);
        }
    }

    /// Whether there are this many pods only because the controller of their Jobs made too many, which it removes again. All must belong to this run
    /// of the job, and to its present places.
    fn is_surplus(&self, live: &[String], job: &str, began: u64, most: usize) -> bool {
        let mut places = self.workloads_of(job).filter_map(|(_, workload)| workload.nodes.as_ref());
        let places = places.next();
        let mut of_jobs: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in live.iter().map(|key| &self.pods[key]) {
            let has_place = |places: &BTreeMap<String, Assigned>| {
                pod.node.as_ref().is_some_and(|node| places.get(node).is_some_and(|place| place.pods > 0))
            };
            if pod.made < began || !places.is_none_or(has_place) {
                return false;
            }
            *of_jobs.entry(pod.owner.as_deref().unwrap_or_default()).or_default() += 1;
        }
        let at_a_time = |uid: &str| {
            let job = self.keys.get(uid).and_then(|key| self.jobs.get(key));
            job.map_or(usize::MAX, |job| job.parallelism)
        };
        of_jobs.iter().map(|(uid, pods)| (*pods).min(at_a_time(uid))).sum::<usize>() <= most
    }

    /// The pods that run or will.
    pub(super) fn live(&self) -> Vec<String> {
        self.pods
            .iter()
            .filter(|(_, pod)| pod.live && pod.owner.is_some())
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Whether a pod runs or will.
    pub fn some_pod_goes_on(&self) -> bool {
        !self.live().is_empty()
    }
}
