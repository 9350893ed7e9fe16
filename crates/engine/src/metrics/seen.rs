//! Metrics of a Workload's life, taken from the object as it is seen, whatever client wrote it.

use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_api::slim;
use sluice_core::{Name, WorkloadKey};

use crate::effect::Effect;
use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};
use crate::metrics;
use crate::outbox::observe;

impl Engine {
    /// Metrics from a new version of a Workload: how long its eviction took, and how long it ran.
    pub(crate) fn measure_change(&mut self, key: &WorkloadKey, new: &slim::Workload) {
        if !self.decides() {
            return;
        }
        let Some(old) = self.world.workloads.get(key).map(|e| &e.object) else { return };
        if old.metadata.uid != new.metadata.uid {
            return;
        }
        let (before, after) = (&old.status, &new.status);
        let mut reported = Vec::new();
        if is(after, Type::Finished) && !is(before, Type::Finished) {
            reported = self.execution_time(key, new);
        } else if reserved(before)
            && !reserved(after)
            && let Some(evicted) = conditions::find(&after.conditions, Type::Evicted.as_str())
                .filter(|evicted| evicted.status == "True")
        {
            let queue = before.admission.as_ref().map(|a| a.cluster_queue.as_str()).unwrap_or_default();
            let latency = metrics::seconds_between(evicted.last_transition_time.0, self.now);
            let labels = [queue, &evicted.reason];
            reported.push(observe(metrics::WORKLOAD_EVICTION_LATENCY_SECONDS, &labels, latency));
        }
        self.outbox.extend(reported);
    }

    fn execution_time(&self, key: &WorkloadKey, object: &slim::Workload) -> Vec<Effect> {
        let status = &object.status;
        let Some(since) = conditions::true_since(&status.conditions, Type::Admitted.as_str()) else {
            return Vec::new();
        };
        let until = conditions::true_since(&status.conditions, Type::Finished.as_str()).unwrap_or(self.now);
        let past = f64::from(status.accumulated_past_execution_time_seconds.unwrap_or(0));
        let seconds = past + metrics::seconds_between(since, until);
        let held = status.admission.as_ref().map(|a| Name::from(a.cluster_queue.as_str()));
        let queue = held.or_else(|| self.world.cluster_queue_of(key, object)).unwrap_or_default();
        let class = metrics::priority_class(object);
        let mut reported = vec![observe(metrics::EXECUTION_TIME_SECONDS, &[&queue, class], seconds)];
        if self.measures(&key.namespace, &object.spec.queue_name) {
            let local = [&*object.spec.queue_name, &*key.namespace, class];
            reported.push(observe(metrics::LOCAL_QUEUE_EXECUTION_TIME_SECONDS, &local, seconds));
        }
        reported
    }
}
