//! How an eviction is written and reported (docs/reference/06-algorithm.md 6.17).

use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::{Reason, WorkloadKey};

use super::transition::{self, Eviction};
use crate::effect::{Effect, Purpose};
use crate::engine::Engine;
use crate::ingest::workload::reserved;
use crate::metrics;
use crate::outbox::{About, normal, observe};

impl Engine {
    /// Writes an eviction on top of a status.
    pub(crate) fn evict_from(&mut self, key: &WorkloadKey, mut next: WorkloadStatus, eviction: &Eviction) {
        let entry = &self.world.workloads[key];
        let at = self.at(&entry.object);
        let first = transition::evict(&mut next, eviction, at);
        if !reserved(&next) {
            // No job has to stop first.
            transition::release(&mut next, at);
            if eviction.reason == reason::DEACTIVATED {
                transition::pend(&mut next, Reason::Deactivated, "The workload is deactivated", &[], at);
            }
        }
        let then = self.report_evicted(key, &next, eviction, first);
        self.write_status(key, Purpose::Evict, next, then);
    }

    /// Whether a workload's job is just being started. It is evicted once that was answered: the two are different objects, and a
    /// job that begins to run after its Workload was evicted would run without quota.
    pub(crate) fn is_starting(&self, key: &WorkloadKey) -> bool {
        let job = self.world.workloads.get(key).and_then(|entry| self.world.job_of(entry));
        if job.as_ref().and_then(|job| self.world.pod_jobs.get(job)).is_some_and(|job| job.starting > 0) {
            return true;
        }
        let open = job.and_then(|job| self.world.jobs.get(&job)).and_then(|job| job.open);
        open.is_some_and(|id| self.outbox.purpose(id) == Some(Purpose::StartJob))
    }

    fn report_evicted(
        &self,
        key: &WorkloadKey,
        next: &WorkloadStatus,
        eviction: &Eviction,
        first: bool,
    ) -> Vec<Effect> {
        let entry = &self.world.workloads[key];
        let why = eviction.condition_reason();
        let queue = next.admission.as_ref().map(|a| a.cluster_queue.as_str()).unwrap_or_default();
        let class = metrics::priority_class(&entry.object);
        let labels = [queue, eviction.reason, &eviction.cause, class];
        let uid = entry.uid();
        let mut then = vec![
            normal(About::workload(key, &uid), format!("EvictedDueTo{why}"), eviction.message.clone()),
            self.log(
                crate::effect::Level::Info,
                "workload evicted",
                &[("workload", key), ("queue", &queue), ("reason", &why), ("message", &eviction.message)],
            ),
        ];
        if next.admission.is_none() {
            // It held no quota of any queue that it could be counted for.
            return then;
        }
        then.push(observe(metrics::EVICTED_WORKLOADS_TOTAL, &labels, 1.0));
        let local_queue = entry.object.spec.queue_name.as_str();
        let measured = self.measures(&key.namespace, local_queue);
        if measured {
            let local = [local_queue, &*key.namespace, eviction.reason, &eviction.cause, class];
            then.push(observe(metrics::LOCAL_QUEUE_EVICTED_WORKLOADS_TOTAL, &local, 1.0));
        }
        if first {
            then.push(observe(metrics::EVICTED_WORKLOADS_ONCE_TOTAL, &labels, 1.0));
        }
        if let Some(since) = conditions::true_since(&next.conditions, Type::PodsReady.as_str()) {
            let seconds = metrics::seconds_between(since, self.now);
            let labels = [queue, eviction.reason, &eviction.cause];
            then.push(observe(metrics::PODS_READY_TO_EVICTED_TIME_SECONDS, &labels, seconds));
            if measured {
                let local = [local_queue, &*key.namespace, eviction.reason, &eviction.cause];
                then.push(observe(metrics::LOCAL_QUEUE_PODS_READY_TO_EVICTED_TIME_SECONDS, &local, seconds));
            }
        }
        then
    }
}
