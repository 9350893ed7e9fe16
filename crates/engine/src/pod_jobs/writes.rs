//! The writes on pods: one for each pod, all at once.

use std::sync::Arc;

use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_api::job::{JobView, PodSetInfo};
use sluice_api::labels;
use sluice_core::{Name, WorkloadKey};
use sluice_jobs::pods::{Composite, Member, StopReason};

use super::answered::together;
use super::index::PodJob;
use super::view::{about_pod, pod_ref};
use crate::effect::{Effect, EventType, Level, PodStep, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::metrics::RemovedGate;
use crate::outbox::normal;
use crate::world::JobKey;

/// A write on a pod, and the effects that report it once it succeeded.
pub(super) type Planned = (Name, Vec<PodStep>, Vec<Effect>);

/// The deletion of a pod.
fn deletion(member: &Member) -> PodStep {
    PodStep::Delete { uid: Arc::clone(&member.uid) }
}

/// The removal of a pod: without our finalizer, so that it needs no replacement.
pub(super) fn removal(shape: &dyn Composite, member: &Member) -> Planned {
    let mut steps: Vec<_> = shape.release(member).map(PodStep::Patch).into_iter().collect();
    if member.deleted_by.is_none() {
        steps.push(deletion(member));
    }
    (Arc::clone(&member.name), steps, Vec::new())
}

impl Engine {
    /// Sends writes on pods of a job.
    pub(super) fn write_pods(&mut self, key: &JobKey, purpose: Purpose, planned: Vec<Planned>) {
        self.write_pods_off(None, key, purpose, planned);
    }

    /// The same for writes that remove a gate each.
    fn write_pods_off(
        &mut self,
        gate: Option<&RemovedGate>,
        key: &JobKey,
        purpose: Purpose,
        planned: Vec<Planned>,
    ) {
        for (pod, steps, then) in planned {
            let id = self.outbox.write(pod_ref(key, &pod), purpose, Write::Pod(steps), then);
            self.outbox.amend(id, |open| open.gate = gate.cloned());
            if let Some(job) = self.world.pod_jobs.get_mut(key) {
                job.open.insert(pod, id);
                job.starting += usize::from(purpose == Purpose::StartJob);
            }
        }
    }

    /// The pods that may be written to now. When the others may, the job is looked at again.
    pub(super) fn writable(&mut self, key: &JobKey, pods: Vec<Name>) -> Vec<Name> {
        let Some(job) = self.world.pod_jobs.get(key) else { return Vec::new() };
        let wait = |pod: &Name| job.waits(pod, self.now);
        let next = pods.iter().filter_map(wait).min();
        let now = pods.into_iter().filter(|pod| job.waits(pod, self.now).is_none()).collect();
        if let Some(until) = next {
            self.wake_at(together(until), Alarm::Job(key.clone()));
        }
        now
    }

    /// Whether pods of a job wait, also while others of it run.
    pub(crate) fn has_gated_pods(&self, key: &JobKey) -> bool {
        self.world.pod_jobs.get(key).is_some_and(|job| job.pods.gated_count() > 0)
    }

    /// Lets the pods of a job that wait be scheduled, with what admission adds to them.
    pub(crate) fn start_pods(
        &mut self,
        key: &JobKey,
        workload: &WorkloadKey,
        infos: &[PodSetInfo],
        note: &str,
    ) {
        // Until our own writes on pods are seen, some of the waiting pods may be about to be deleted.
        if !self.world.pod_jobs.get(key).is_some_and(|job| job.pods.is_settled()) {
            return;
        }
        let gated = self.pods_to_start(key, workload);
        let Some(job) = self.world.pod_jobs.get(key) else { return };
        let left = job.parent.as_ref().filter(|_| gated.len() < job.pods.gated_count()).cloned();
        if let Some(parent) = left {
            let note = "Some pods wait: their number or requests exceed the Workload's quota. Scale to zero and up again to queue them";
            self.report_job(key, &parent, EventType::Warning, "ErrWorkloadCompose", note);
        }
        let mut planned = Vec::new();
        for name in self.writable(key, gated) {
            let Some(job) = self.world.pod_jobs.get(key) else { return };
            let Some(member) = job.pods.get(&name) else { continue };
            // A pod of a role that the Workload does not have is not admitted with it.
            let by_role = |info: &&PodSetInfo| !job.has_roles() || *info.name == *member.role;
            let Some(info) = infos.iter().find(by_role) else { continue };
            match job.shape.start(member, info) {
                Ok(Some(patch)) => {
                    let started = normal(about_pod(key, member), "Started", note);
                    planned.push((name, vec![PodStep::Patch(patch)], vec![started]));
                }
                Ok(None) => {}
                Err(why) => return self.unstartable(key, &why.to_string()),
            }
        }
        if planned.is_empty() {
            return;
        }
        let pods = planned.len();
        let about: [(&'static str, &dyn ToString); 3] =
            [("job", &key.object()), ("workload", workload), ("pods", &pods)];
        self.outbox.push(self.log(Level::Info, "pods are started", &about));
        let is_group = self.world.pod_jobs.get(key).is_some_and(PodJob::has_roles);
        let status = self.world.workloads[workload].status();
        let gate = RemovedGate::of(status, labels::ADMISSION_SCHEDULING_GATE, is_group);
        self.write_pods_off(gate.as_ref(), key, Purpose::StartJob, planned);
    }

    /// Why the pods of a job are stopped now.
    fn stop_reason(&self, view: &JobView) -> (Option<WorkloadKey>, String) {
        let workload = self.world.owned(&view.job.uid).pop();
        let entry = workload.as_ref().and_then(|workload| self.world.workloads.get(workload));
        let evicted = entry.and_then(|entry| {
            let evicted = conditions::find(&entry.status().conditions, Type::Evicted.as_str())?;
            (evicted.status == "True").then(|| evicted.reason.clone())
        });
        (workload, evicted.unwrap_or_default())
    }

    /// Deletes the pods of a job that run, after a condition that says why; says whether there are any.
    pub(crate) fn stop_pods(&mut self, key: &JobKey, view: &JobView, why: &str) -> bool {
        let (workload, evicted) = self.stop_reason(view);
        let entry = workload.as_ref().and_then(|workload| self.world.workloads.get(workload));
        let reason = match entry {
            None => StopReason::NoMatchingWorkload,
            Some(entry) if entry.object.metadata.deletion_timestamp.is_some() => StopReason::WorkloadDeleted,
            Some(_) if !evicted.is_empty() => StopReason::Evicted(&evicted),
            Some(entry) if is(entry.status(), Type::Admitted) => StopReason::NoMatchingWorkload,
            Some(_) => StopReason::NotAdmitted,
        };
        self.end_pods(key, reason, why, |_| true)
    }

    /// The same for some of its pods.
    pub(super) fn end_pods(
        &mut self,
        key: &JobKey,
        reason: StopReason<'_>,
        why: &str,
        meant: impl Fn(&Member) -> bool,
    ) -> bool {
        let Some(job) = self.world.pod_jobs.get(key) else { return false };
        let stopped = job.shape.to_stop(reason, &job.pods).into_iter().filter(|member| meant(member));
        let stopped: Vec<_> = stopped.map(|member| Arc::clone(&member.name)).collect();
        let any = !stopped.is_empty();
        let now = self.writable(key, stopped);
        let Some(job) = self.world.pod_jobs.get(key) else { return false };
        let of = |member: &Member| {
            let stop = job.shape.stop(member, reason, why, self.now);
            let announced = PodStep::ApplyStatus { field_manager: stop.field_manager, body: stop.status };
            let reported = normal(about_pod(key, member), "Stopped", why);
            (Arc::clone(&member.name), vec![announced, deletion(member)], vec![reported])
        };
        let planned: Vec<_> = now.iter().filter_map(|name| job.pods.get(name)).map(of).collect();
        if !planned.is_empty() {
            let pods = planned.len();
            let about: [(&'static str, &dyn ToString); 3] =
                [("job", &key.object()), ("why", &why), ("pods", &pods)];
            self.outbox.push(self.log(Level::Info, "pods are stopped", &about));
        }
        self.write_pods(key, Purpose::StopJob, planned);
        any
    }

    /// Removes all pods of a job.
    pub(crate) fn delete_pods(&mut self, key: &JobKey) {
        let Some(job) = self.world.pod_jobs.get(key) else { return };
        let all = job.pods.members().map(|member| Arc::clone(&member.name)).collect();
        let now = self.writable(key, all);
        let Some(job) = self.world.pod_jobs.get(key) else { return };
        let planned =
            now.iter().filter_map(|name| job.pods.get(name)).map(|member| removal(job.shape, member));
        let planned = planned.filter(|(_, steps, _)| !steps.is_empty()).collect();
        self.write_pods(key, Purpose::DeleteJob, planned);
    }

    /// Removes our finalizer from the pods of a job that is over; returns whether any had it.
    pub(crate) fn release_pods(&mut self, key: &JobKey) -> bool {
        let Some(job) = self.world.pod_jobs.get(key) else { return false };
        let held: Vec<_> = job.pods.held().map(|member| Arc::clone(&member.name)).collect();
        let any = !held.is_empty();
        self.finalize_pods(key, held);
        any
    }

    /// Takes our finalizer off these pods.
    pub(super) fn finalize_pods(&mut self, key: &JobKey, pods: Vec<Name>) {
        let now = self.writable(key, pods);
        let Some(job) = self.world.pod_jobs.get_mut(key) else { return };
        job.pods.expect(&now);
        let planned = now.into_iter().filter_map(|name| {
            let patch = job.shape.release(job.pods.get(&name)?)?;
            Some((name, vec![PodStep::Patch(patch)], Vec::new()))
        });
        let planned = planned.collect();
        self.write_pods(key, Purpose::ReleasePod, planned);
    }

    /// Reads the pods of which it is not known whether they were started; returns whether there are any.
    pub(crate) fn read_uncertain_pods(&mut self, key: &JobKey) -> bool {
        let Some(job) = self.world.pod_jobs.get(key).filter(|job| job.is_uncertain()) else { return false };
        let uncertain = job.fares.iter().filter(|(_, fare)| fare.uncertain).map(|(name, _)| Arc::clone(name));
        let uncertain = uncertain.collect();
        let now = self.writable(key, uncertain);
        let any = !now.is_empty();
        self.read_pods(key, now);
        any
    }

    /// Reads the pods that stand for their roles in full: their templates were dropped.
    pub(crate) fn read_pod_templates(&mut self, key: &JobKey) {
        let Some(job) = self.world.pod_jobs.get_mut(key) else { return };
        job.slim = false;
        let without = job.pods.speakers().filter(|member| !member.has_template());
        let without = without.map(|member| Arc::clone(&member.name)).collect();
        let now = self.writable(key, without);
        self.read_pods(key, now);
    }

    fn read_pods(&mut self, key: &JobKey, pods: Vec<Name>) {
        for pod in pods {
            let id = self.outbox.write(pod_ref(key, &pod), Purpose::Read, Write::Read, Vec::new());
            if let Some(job) = self.world.pod_jobs.get_mut(key) {
                job.open.insert(pod, id);
            }
        }
    }
}
