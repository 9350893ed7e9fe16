//! Pods that a job's controller made, and that wait nevertheless.
//!
//! The webhook queues no pod of a job that has quota. It knows jobs and Workloads from watches, and each replica has its own: a replica that has not
//! seen a job yet, or its admission, takes the job's pods for pods without a job. They would wait for quota of their own, or use it beside the job's.
//! The engine knows better: it removes the gate from such a pod, and no longer manages it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodSchedulingGate;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::{ControllerRef, JobKind, JobView};
use sluice_api::labels;
use sluice_core::Name;
use sluice_jobs::pods::{Member, release};
use sluice_jobs::{MadePod, Maker, PodMarks, may_be_pod_of};

use super::index::PODS;
use crate::effect::{Level, PodStep, Purpose};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::lifecycle::ancestor::{OWNER_WAIT_SECONDS, Standing};
use crate::lifecycle::workload::later;
use crate::world::JobKey;

/// The longest time until a pod is looked at again, in seconds.
const LONGEST: i64 = 64;

/// How much the clocks of two API servers may differ, in seconds.
const CLOCKS_DIFFER_SECONDS: i64 = 2;

/// What is known of the job that made a pod.
enum Made {
    /// No job that makes such pods.
    Nothing,
    /// The job that it names was not seen.
    Unknown,
    /// It has no quota.
    Waiting,
    /// It runs. Its template may have the topology gate.
    Running { placed: bool },
}

impl Engine {
    /// Ungates a pod that waits although a job with quota made it; returns whether nothing else is to be decided about it now.
    pub(crate) fn release_made_pod(&mut self, key: &JobKey, view: &Arc<JobView>) -> bool {
        let Some(job) = self.world.pod_jobs.get(key).filter(|job| !job.has_roles()) else { return false };
        let waits = |member: &&Member| member.gated && member.deleted_by.is_none();
        let Some(member) = job.pods.representative().filter(waits) else { return false };
        let Some(controller) = member.controller.as_deref() else { return false };
        let (made, created) = (self.made_by(member, controller), member.created);
        let until = later(created, OWNER_WAIT_SECONDS);
        let next = next_look(created, self.now);
        match made {
            Made::Nothing => return false,
            Made::Running { placed } => {
                self.release_made(key, view, placed);
                return true;
            }
            Made::Unknown if until > self.now => {
                self.wake_at(next.min(until), Alarm::Job(key.clone()));
                return true;
            }
            Made::Unknown | Made::Waiting => {}
        }
        self.wake_at(next, Alarm::Job(key.clone()));
        false
    }

    /// What is known of the job that a pod names as its controller.
    fn made_by(&self, member: &Member, controller: &ControllerRef) -> Made {
        let external = &self.config.external;
        let kind = JobKind::from_owner_or(external, &controller.api_version, &controller.kind);
        // Kinds that suspend their pods, or have them in groups, mark them.
        let makes = |kind: &JobKind| {
            let integration = kind.integration();
            let known = self.config.knows(*kind) || external.contains(kind);
            known && !(integration.suspends_pods || integration.of_pods || kind.has_groups())
        };
        let Some(kind) = kind.filter(makes) else { return Made::Nothing };
        let namespace = Arc::clone(&member.namespace);
        let key = JobKey { kind, namespace, name: Name::from(controller.name.as_str()), group: None };
        let seen = self.world.jobs.get(&key).map(|entry| &entry.view);
        let is_topology = |gate: &PodSchedulingGate| gate.name == labels::TOPOLOGY_SCHEDULING_GATE;
        let has_quota = if let Some(view) = seen.filter(|view| *view.job.uid == *controller.uid) {
            self.has_quota(view).filter(|_| may_have_made(view, member))
        } else if let Some(parent) = self.world.external.get(&key, &controller.uid) {
            let managed = self.manages(parent.queued, &key.namespace);
            managed.then(|| self.holds_quota(&key.namespace, &parent.uid))
        } else {
            return Made::Unknown;
        };
        match has_quota {
            None => Made::Nothing,
            Some(false) => Made::Waiting,
            Some(true) => {
                let sets = seen.into_iter().flat_map(|view| &view.pod_sets);
                let mut gates = sets.flat_map(|set| &set.scheduling.scheduling_gates);
                Made::Running { placed: gates.any(is_topology) }
            }
        }
    }

    /// Whether a job has quota: its own, or that of a job above it; none if it needs none.
    fn has_quota(&self, view: &JobView) -> Option<bool> {
        match self.standing(view) {
            Standing::Own => Some(self.holds_quota(&view.job.namespace, &view.job.uid)),
            Standing::Part { of, .. } => {
                // Its gates are known once it was read.
                let named = self.part_until(view) == Some(Timestamp::MAX) && !view.slim;
                Some(named && (self.holds_quota(&view.job.namespace, &of) || self.cleans_up(view)))
            }
            Standing::Unverified(_) => Some(false),
            Standing::Unmanaged | Standing::TooDeep => None,
        }
    }

    /// Whether a Workload of the object with this UID is admitted.
    fn holds_quota(&self, namespace: &str, uid: &str) -> bool {
        self.world.owned(uid).iter().filter(|workload| *workload.namespace == *namespace).any(|workload| {
            let status = &self.world.workloads[workload].object.status;
            is(status, Type::Admitted) && !is(status, Type::Finished)
        })
    }

    /// Takes what makes it wait off a pod, once nothing holds quota for it.
    fn release_made(&mut self, key: &JobKey, view: &Arc<JobView>, placed: bool) {
        if !self.world.owned(&view.job.uid).is_empty() {
            return self.remove_former_workloads(key, view);
        }
        for name in self.writable(key, vec![Arc::clone(&key.name)]) {
            let Some(member) = self.world.pod_jobs.get(key).and_then(|job| job.pods.get(&name)) else {
                return;
            };
            let steps = vec![PodStep::Patch(release(member, placed))];
            let note = "pod of an admitted job is released";
            let then = vec![self.log(Level::Info, note, &[("pod", &key.object())])];
            self.write_pods(key, Purpose::ReleasePod, vec![(name, steps, then)]);
        }
    }
}

/// Whether a job may have made a pod that names it.
fn may_have_made(view: &JobView, member: &Member) -> bool {
    let Ok(pod_set) = &member.pod_set else { return false };
    let (kind, marks) = (view.job.kind, PodMarks::of(view));
    // Each pod of a wrapped object is one of several.
    let wrapped = kind.integration().wraps_objects && !view.wraps_object(PODS, &member.name);
    let pod = MadePod { name: &member.name, labels: &pod_set.scheduling.labels };
    // An older pod was adopted: adoption by a Job of any size gives it no quota. Clocks of API servers may differ a little.
    let adopted = later(member.created, CLOCKS_DIFFER_SECONDS) < view.created;
    !wrapped
        && !adopted
        && may_be_pod_of(&Maker { kind, name: &view.job.name, uid: &view.job.uid, marks: &marks }, &pod)
}

/// When a pod that was made at that time is looked at next: ever later, and at the same time whatever it was looked at for before.
fn next_look(created: Timestamp, now: Timestamp) -> Timestamp {
    let age = now.duration_since(created).as_secs().max(0);
    let at = if age < LONGEST { (age + 1).unsigned_abs().next_power_of_two() } else { 0 };
    let at = i64::try_from(at).ok().filter(|at| *at > age).unwrap_or((age / LONGEST + 1) * LONGEST);
    created.checked_add(SignedDuration::from_secs(at)).unwrap_or(Timestamp::MAX)
}
