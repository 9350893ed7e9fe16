//! The effects of a start and a stop on a job.

use std::sync::Arc;

use serde_json::Value;
use sluice_api::job::{JobFinished, JobView, PodSetInfo};
use sluice_api::v1beta2;
use sluice_engine::{EndPods, Kind, Object, ObjectRef, PodsOf, WriteError};

use super::api::{Api, JobState};

/// How a controller fails to remove the pods of a stopped job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disobeys {
    /// It does not.
    #[default]
    No,
    /// It waits for the next event.
    UntilTouched,
    /// It leaves the job alone, and its status as it was.
    Always,
    /// It makes others in place of those that are deleted.
    MakesOthers,
}

pub(super) fn start(job: &mut JobState, infos: &[PodSetInfo]) {
    assert!(job.view.suspended, "{} is started twice", job.view.job.name);
    job.view.suspended = false;
    job.view.generation += 1;
    if std::mem::take(&mut job.answered) {
        job.view.suspended_condition = None;
    }
    // Where its controller has a say, the test speaks for that.
    job.view.active = job.view.suspended_condition.is_none();
    for (set, info) in job.view.pod_sets.iter_mut().zip(infos) {
        // Pods that ended are in no admitted number, and do not change the job's.
        if set.min_count.is_some() {
            set.count = info.count;
        }
        set.scheduling.labels.extend(info.scheduling.labels.clone());
        set.scheduling.annotations.extend(info.scheduling.annotations.clone());
        set.scheduling.node_selector.extend(info.scheduling.node_selector.clone());
        set.scheduling.tolerations.extend(info.scheduling.tolerations.clone());
        for gate in &info.scheduling.scheduling_gates {
            if !set.scheduling.scheduling_gates.contains(gate) {
                set.scheduling.scheduling_gates.push(gate.clone());
            }
        }
        set.scheduling.affinity = info.scheduling.affinity.clone().or(set.scheduling.affinity.take());
    }
}

pub(super) fn stop(job: &mut JobState, infos: &[PodSetInfo]) {
    job.started_by_user = false;
    job.view.suspended = true;
    job.view.generation += 1;
    (job.view.stopping, job.view.stop_waits) = (false, false);
    job.view.pods_ready = false;
    job.stopping_pods = job.view.active && job.disobeys == Disobeys::No;
    job.pods |= job.view.active && job.disobeys != Disobeys::No;
    let elastic = job.view.annotations.contains_key("kueue.x-k8s.io/elastic-job");
    for (set, info) in job.view.pod_sets.iter_mut().zip(infos) {
        if !elastic {
            set.count = info.count;
        }
        set.scheduling = info.scheduling.clone();
    }
}

impl JobState {
    /// Where its controller obeys, pods that its status shows are being deleted.
    fn has_leaving_pods(&self) -> bool {
        self.stopping_pods || self.view.active && self.disobeys == Disobeys::No
    }
}

impl Api {
    /// Gives a part that runs the node selectors of the template that it is made of, as its controller does when it lets it run.
    pub(super) fn place_part(&self, part: &mut JobView) {
        let Some(uid) = part.controller.as_ref().map(|owner| owner.uid.clone()) else { return };
        let mut all = self.jobs().map(|(_, job)| &job.view);
        let Some(above) = all.find(|view| *view.job.uid == *uid && !view.suspended) else { return };
        let kind = above.job.kind;
        let is_of_one = kind.parts_of(part.job.kind).is_some_and(|parts| parts.names.is_of_one());
        if !is_of_one || kind.integration().resumes_parts_as_made {
            return;
        }
        let made = above.made(part).and_then(<[_]>::first);
        let selector = made.map(|set| set.scheduling.node_selector.clone()).unwrap_or_default();
        for own in &mut part.pod_sets {
            for (label, value) in &selector {
                own.scheduling.node_selector.entry(label.clone()).or_insert_with(|| value.clone());
            }
        }
    }

    pub fn delete_job(&mut self, name: &str) {
        let reference = self.job_ref(name);
        self.delete(&reference);
    }

    /// Changes a job as its user or controller would.
    pub fn edit_job(&mut self, name: &str, change: impl FnOnce(&mut JobState)) {
        let reference = self.job_ref(name);
        self.edit_job_at(&reference, change);
    }

    /// The job's pods all end well.
    pub fn finish_job(&mut self, name: &str, success: bool) {
        self.edit_job(name, |job| {
            job.view.active = false;
            job.view.finished = Some(JobFinished { success, message: "Job finished".to_owned() });
        });
    }

    pub fn workload_ref(workload: &v1beta2::Workload) -> ObjectRef {
        let metadata = &workload.metadata;
        ObjectRef::namespaced(
            Kind::Workload,
            metadata.namespace.as_deref().unwrap(),
            metadata.name.as_deref().unwrap(),
        )
    }

    /// The controller of the job with that UID gets an event.
    pub(super) fn touch_job(&mut self, uid: &Value) {
        let jobs: Vec<_> =
            self.jobs().filter(|(_, j)| *j.view.job.uid == *uid).map(|(r, _)| r.clone()).collect();
        for reference in jobs {
            self.edit_job_at(&reference, |job| {
                if job.disobeys == Disobeys::UntilTouched {
                    (job.stopping_pods, job.pods) = (job.pods, false);
                }
            });
        }
    }

    /// The UIDs of jobs with pods that carry the name of a Workload, and continue: its own, unless that is stopped, and the parts of that.
    fn carriers(&self, workload: &str) -> Vec<Arc<str>> {
        let named = self.kept_workloads().find(|kept| kept["metadata"]["name"] == *workload);
        let owners = named.and_then(|kept| kept["metadata"]["ownerReferences"].as_array());
        let owned = |uid: &str| owners.into_iter().flatten().any(|owner| owner["uid"] == *uid);
        let goes_on = |job: &JobState| job.view.active && !job.view.suspended && !job.view.deleting;
        if !self.jobs().any(|(_, job)| owned(&job.view.job.uid) && goes_on(job)) {
            return Vec::new();
        }
        let above = |job: &JobState| job.view.controller.as_ref().map(|owner| owner.uid.clone());
        let carries = |job: &JobState| {
            let parent = above(job);
            let next = self.jobs().find(|(_, other)| parent.as_deref() == Some(&*other.view.job.uid));
            let next = next.and_then(|(_, parent)| above(parent));
            owned(&job.view.job.uid) || parent.into_iter().chain(next).any(|uid| owned(&uid))
        };
        let all = self.jobs().filter(|(_, job)| goes_on(job) && carries(job));
        all.map(|(_, job)| Arc::clone(&job.view.job.uid)).collect()
    }

    /// Looks for pods of these jobs, and has them go.
    pub(super) fn look_for_pods(
        &mut self,
        of: &PodsOf,
        then: &EndPods,
    ) -> Result<Option<Object>, WriteError> {
        if let EndPods::LookForLeft { left, .. } = then {
            let mut remain = Vec::new();
            for left in left {
                let carriers = if left.by_name { self.carriers(&left.workload) } else { Vec::new() };
                if left.ends_within.is_some() {
                    self.hurried.extend(left.of.iter().chain(&carriers).cloned());
                }
                if !carriers.is_empty() || left.of.iter().any(|uid| self.ending_pods.contains(uid)) {
                    remain.push(Arc::clone(&left.workload));
                }
            }
            return if remain.is_empty() { Ok(None) } else { Err(WriteError::PodsRemain(remain)) };
        }
        let is_own = |job: &JobState| of.uids.contains(&job.view.job.uid);
        let own: Vec<_> = self.jobs().filter(|(_, job)| is_own(job)).collect();
        let count = |has: fn(&JobState) -> bool| {
            u32::try_from(own.iter().filter(|(_, job)| has(job)).count()).unwrap()
        };
        // Of what no kind here is.
        let labelled = of.label.as_ref().and_then(|(_, name)| self.labelled_pods.get(name)).copied();
        let going_on = count(|job| job.pods) + labelled.unwrap_or(0);
        let leaving = count(JobState::has_leaving_pods);
        let has_pods: Vec<_> = own.iter().filter(|(_, job)| job.pods).map(|(r, _)| (*r).clone()).collect();
        match then {
            EndPods::Touch(patch) if going_on > 0 => self.touch_job(&patch["metadata"]["uid"]),
            EndPods::Look | EndPods::Touch(_) | EndPods::LookForLeft { .. } => {}
            EndPods::Delete => {
                if let Some((_, name)) = &of.label {
                    self.labelled_pods.remove(name);
                }
                for reference in has_pods {
                    self.edit_job_at(&reference, |job| job.pods = job.disobeys == Disobeys::MakesOthers);
                }
            }
        }
        if going_on + leaving == 0 { Ok(None) } else { Err(WriteError::PodsLeft { going_on, leaving }) }
    }
}
