//! How far attempts to admit a Workload got, derived from the objects of the API server.

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::slim;
use sluice_api::v1beta2::{AdmissionCheckState, WorkloadStatus};
use sluice_core::{Name, WorkloadKey};

use crate::attempt::{AttemptStep, CheckSeen, End, Ending, FINER, Progress, Step};
use crate::effect::Effect;
use crate::engine::Engine;
use crate::ingest::workload::{effective_priority, is, reserved};
use crate::input::{Kind, ObjectRef};

/// The number of the attempt that a status belongs to, from 1. While a Workload is evicted and still holds quota, its attempt continues.
pub(crate) fn number(status: &WorkloadStatus) -> u32 {
    let counts = status.scheduling_stats.iter().flat_map(|stats| &stats.evictions);
    let evictions = counts.fold(0_u32, |sum, e| sum.saturating_add(u32::try_from(e.count).unwrap_or(0)));
    let ending = is(status, Type::Evicted) && reserved(status);
    if ending { evictions.max(1) } else { evictions.saturating_add(1) }
}

/// How the attempt of a status ended, if it did.
fn end(status: &WorkloadStatus) -> Option<End> {
    let of = |type_: Type, how: Ending| {
        let found = conditions::find(&status.conditions, type_.as_str()).filter(|c| c.status == "True")?;
        Some(End { at: found.last_transition_time.0, how, reason: found.reason.clone() })
    };
    let started = || {
        let ready = conditions::find(&status.conditions, Type::PodsReady.as_str())?;
        // Pods that failed later were ready once.
        let was = ready.status == "True" || ready.reason == reason::WAIT_FOR_RECOVERY;
        (was && is(status, Type::Admitted)).then(|| End {
            at: ready.last_transition_time.0,
            how: Ending::Started,
            reason: ready.reason.clone(),
        })
    };
    let evicted = || of(Type::Evicted, Ending::Evicted).filter(|_| reserved(status));
    started().or_else(|| of(Type::Finished, Ending::Finished)).or_else(evicted)
}

/// Whether two statuses of one attempt say the same about it.
fn same(before: &WorkloadStatus, after: &WorkloadStatus) -> bool {
    let since = |status: &WorkloadStatus, of: Type| conditions::true_since(&status.conditions, of.as_str());
    let checks = |a: &WorkloadStatus, b: &WorkloadStatus| {
        let same = |(a, b): (&AdmissionCheckState, &_)| same_check(a, b);
        a.admission_checks.len() == b.admission_checks.len()
            && a.admission_checks.iter().zip(&b.admission_checks).all(same)
    };
    [Type::QuotaReserved, Type::Admitted, Type::PodsReady, Type::Evicted, Type::Finished]
        .into_iter()
        .all(|of| since(before, of) == since(after, of))
        && checks(before, after)
}

fn same_check(a: &AdmissionCheckState, b: &AdmissionCheckState) -> bool {
    a.name == b.name && a.state == b.state
}

/// Since when the attempt of a status is queued, as far as it says so.
fn queued(object: &slim::Workload) -> Option<Timestamp> {
    if number(&object.status) == 1 {
        return object.metadata.creation_timestamp.as_ref().map(|made| made.0);
    }
    let held = conditions::find(&object.status.conditions, Type::QuotaReserved.as_str())?;
    (held.status == "False").then_some(held.last_transition_time.0)
}

impl Engine {
    /// Reports the progress of an attempt from a new version of its Workload. The stored version is still the old one.
    pub(crate) fn attempt_seen(&mut self, key: &WorkloadKey, after: &slim::Workload) {
        if !self.config.tracing {
            return;
        }
        let Some(before) = self.world.workloads.get(key).map(|entry| &entry.object) else {
            let finer = queued(after).is_some_and(|since| self.now.duration_since(since) < FINER);
            // For what existed before this process started, the objects have all that can be known.
            if finer && !reserved(&after.status) && !is(&after.status, Type::Finished) {
                let progress = self.progress(key, after, None, end(&after.status));
                self.push_attempt(key, after, number(&after.status), progress);
            }
            return;
        };
        let (old, new) = (number(&before.status), number(&after.status));
        let over = self.is_over(&before.status);
        if old == new && (over || same(&before.status, &after.status)) {
            return;
        }
        let mut pushed = Vec::new();
        if old != new && !over {
            // Evicted while it held nothing, or released in the same write.
            let found = conditions::find(&after.status.conditions, Type::Evicted.as_str());
            let (at, reason) =
                found.map_or((self.now, String::new()), |c| (c.last_transition_time.0, c.reason.clone()));
            let end = End { at, how: Ending::Evicted, reason };
            pushed.push((old, self.progress(key, before, None, Some(end))));
        }
        pushed.push((new, self.progress(key, after, Some(before), end(&after.status))));
        for (attempt, progress) in pushed {
            self.push_attempt(key, after, attempt, progress);
        }
    }

    /// Hands out the end of an attempt whose Workload goes. It is still known.
    pub(crate) fn attempt_deleted(&mut self, key: &WorkloadKey) {
        if !self.config.tracing {
            return;
        }
        let Some(object) = self.world.workloads.get(key).map(|entry| &entry.object) else { return };
        // A deactivated Workload is not queued.
        if self.is_over(&object.status) || !object.spec.active {
            return;
        }
        let end = End { at: self.now, how: Ending::Deleted, reason: String::new() };
        let progress = self.progress(key, object, None, Some(end));
        let (uid, attempt) = (uid(object), number(&object.status));
        self.push_step(key, uid, attempt, Step::Seen(Box::new(progress)));
    }

    /// Hands out that a cycle decided to reserve quota.
    pub(crate) fn attempt_decided(&mut self, key: &WorkloadKey, cycle: u64, heads: usize, considered: &str) {
        if !self.config.tracing {
            return;
        }
        let Some(object) = self.world.workloads.get(key).map(|entry| &entry.object) else { return };
        let (uid, attempt) = (uid(object), number(&object.status));
        let step = Step::Decided { cycle, heads, considered: considered.to_owned() };
        self.push_step(key, uid, attempt, step);
    }

    /// Hands out that the write which starts a job was answered.
    pub(crate) fn attempt_job_started(&mut self, job: &str) {
        if !self.config.tracing {
            return;
        }
        for key in self.world.owned(job) {
            let Some(object) = self.world.workloads.get(&key).map(|entry| &entry.object) else { continue };
            let (uid, attempt) = (uid(object), number(&object.status));
            self.push_step(&key, uid, attempt, Step::JobStarted);
        }
    }

    /// The number of a Workload's attempt, if it is traced: if pods are not waited for, the attempt ends with the start of the job, which happens
    /// elsewhere if the job is not here.
    pub(crate) fn attempt_of(&self, object: &ObjectRef, uid: &str) -> Option<u32> {
        if !self.config.tracing || object.kind != Kind::Workload {
            return None;
        }
        let key = WorkloadKey::new(Name::clone(&object.namespace), Name::clone(&object.name));
        let entry = self.world.workloads.get(&key).filter(|entry| *entry.uid() == *uid)?;
        let ends = self.config.wait_for_pods_ready.is_some() || self.world.job_of(entry).is_some();
        ends.then(|| number(entry.status()))
    }

    /// Whether nothing of the attempt of a status is left to be seen: where pods are not waited for, all but the start of the job.
    fn is_over(&self, status: &WorkloadStatus) -> bool {
        let is_started = self.config.wait_for_pods_ready.is_none() && is(status, Type::Admitted);
        is_started || end(status).is_some()
    }

    fn progress(
        &self,
        key: &WorkloadKey,
        object: &slim::Workload,
        before: Option<&slim::Workload>,
        end: Option<End>,
    ) -> Progress {
        let status = &object.status;
        let since = |of: Type| conditions::true_since(&status.conditions, of.as_str());
        let admission = status.admission.as_ref();
        let cluster_queue = admission.map(|admission| admission.cluster_queue.clone());
        let of_queue = || self.world.cluster_queue_of(key, object).unwrap_or_default();
        let assigned = admission.iter().flat_map(|admission| &admission.pod_set_assignments);
        let mut flavors: Vec<_> = assigned.flat_map(|set| set.flavors.values().cloned()).collect();
        flavors.sort_unstable();
        flavors.dedup();
        let check = |check: &AdmissionCheckState| CheckSeen {
            name: check.name.clone(),
            state: check.state,
            since: check.last_transition_time.0,
        };
        let before = before.filter(|before| number(&before.status) == number(status));
        Progress {
            local_queue: object.spec.queue_name.clone(),
            cluster_queue: cluster_queue.unwrap_or_else(|| of_queue().to_string()),
            priority: effective_priority(object, &self.config),
            queued: queued(object).or_else(|| queued(before?)),
            reserved: since(Type::QuotaReserved),
            flavors,
            checks: status.admission_checks.iter().map(check).collect(),
            admitted: since(Type::Admitted),
            waits_for_pods: self.config.wait_for_pods_ready.is_some(),
            end,
        }
    }

    fn push_attempt(&mut self, key: &WorkloadKey, object: &slim::Workload, attempt: u32, seen: Progress) {
        self.push_step(key, uid(object), attempt, Step::Seen(Box::new(seen)));
    }

    fn push_step(&mut self, workload: &WorkloadKey, uid: Name, attempt: u32, step: Step) {
        let step = AttemptStep { at: self.now, workload: workload.clone(), uid, attempt, step };
        self.outbox.push(Effect::Attempt(Box::new(step)));
    }
}

fn uid(object: &slim::Workload) -> Name {
    object.metadata.uid.as_deref().unwrap_or_default().into()
}
