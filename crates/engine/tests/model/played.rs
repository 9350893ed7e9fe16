//! What a start and a stop do to a job.

use sluice_api::job::PodSetInfo;

use super::api::JobState;

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
    job.stopping_pods = job.view.active;
    let elastic = job.view.annotations.contains_key("kueue.x-k8s.io/elastic-job");
    for (set, info) in job.view.pod_sets.iter_mut().zip(infos) {
        if !elastic {
            set.count = info.count;
        }
        set.scheduling = info.scheduling.clone();
    }
}
