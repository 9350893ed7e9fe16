//! Metrics of a Workload's life, taken from the object as it is seen, whatever client wrote it.

use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::slim;
use sluice_core::{Name, WorkloadKey};

use crate::effect::Effect;
use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};
use crate::metrics;
use crate::outbox::observe;

impl Engine {
    /// Metrics from a new version of a Workload: how long its eviction took, that it ended, and how long it ran.
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
            reported = self.measure_end(key, new);
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

    /// The metrics of a Workload's end, whatever its kind, and whatever client wrote it.
    fn measure_end(&self, key: &WorkloadKey, object: &slim::Workload) -> Vec<Effect> {
        let held = object.status.admission.as_ref().map(|a| Name::from(a.cluster_queue.as_str()));
        let queue = held.or_else(|| self.world.cluster_queue_of(key, object)).unwrap_or_default();
        let class = metrics::priority_class(object);
        let labels = [&*queue, class];
        let local = [&*object.spec.queue_name, &*key.namespace, class];
        let measured = self.measures(&key.namespace, &object.spec.queue_name);
        let mut reported = vec![observe(metrics::FINISHED_WORKLOADS_TOTAL, &labels, 1.0)];
        if measured {
            reported.push(observe(metrics::LOCAL_QUEUE_FINISHED_WORKLOADS_TOTAL, &local, 1.0));
        }
        if let Some(seconds) = execution_time(object) {
            reported.push(observe(metrics::EXECUTION_TIME_SECONDS, &labels, seconds));
            if measured {
                reported.push(observe(metrics::LOCAL_QUEUE_EXECUTION_TIME_SECONDS, &local, seconds));
            }
        }
        reported
    }
}

/// How long a finished Workload ran, in seconds; nothing if it did not, or if its time goes on in the slice that replaced it.
fn execution_time(object: &slim::Workload) -> Option<f64> {
    let status = &object.status;
    let since = conditions::true_since(&status.conditions, Type::Admitted.as_str())?;
    let finished = conditions::find(&status.conditions, Type::Finished.as_str())?;
    // With a maximum the next slice begins with this one's time, and is measured with it.
    let carries_over = object.spec.maximum_execution_time_seconds.is_some();
    if carries_over && finished.reason == reason::WORKLOAD_SLICE_REPLACED {
        return None;
    }
    let past = f64::from(status.accumulated_past_execution_time_seconds.unwrap_or(0));
    Some(past + metrics::seconds_between(since, finished.last_transition_time.0))
}
