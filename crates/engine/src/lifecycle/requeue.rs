//! What lets a Workload be queued again after an eviction, and the end of its backoff (docs/reference/06-algorithm.md 6.16 and 6.17).

use serde_json::json;
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::v1beta2::StopPolicy;
use sluice_core::WorkloadKey;

use super::body::strict_patch;
use super::transition;
use crate::effect::{Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::{is, reserved};
use crate::world::{World, workload_ref};

const BACKOFF_FINISHED: &str = "The workload backoff was finished";

impl Engine {
    /// Sets `Requeued` to true when what delayed it is over (docs/reference/06-algorithm.md 6.17); returns whether it wrote.
    pub(super) fn reconcile_requeue(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let (object, status) = (&entry.object, entry.status());
        if !object.spec.active {
            return false;
        }
        let requeued = conditions::find(&status.conditions, Type::Requeued.as_str());
        let Some(held) = requeued.filter(|c| c.status == "False").map(|c| c.reason.as_str()) else {
            return false;
        };
        let (why, message) = match held {
            reason::PODS_READY_TIMEOUT
            | reason::ADMISSION_CHECK
            | reason::OUT_OF_SYNC
            | reason::FAILED_TO_START => {
                let until = status.requeue_state.as_ref().and_then(|r| r.requeue_at.as_ref());
                if until.is_some_and(|until| until.0 > self.now) {
                    return false;
                }
                (reason::BACKOFF_FINISHED, BACKOFF_FINISHED)
            }
            reason::CLUSTER_QUEUE_STOPPED => {
                let queue = self.world.cluster_queue_of(key, object);
                let queue = queue.and_then(|q| self.world.cluster_queues.get(&q));
                if queue.is_none_or(|q| q.spec.stop_policy != StopPolicy::None) {
                    return false;
                }
                (reason::CLUSTER_QUEUE_RESTARTED, "The ClusterQueue was restarted after being stopped")
            }
            reason::LOCAL_QUEUE_STOPPED => {
                let queue = self.world.local_queues.get(&World::queue_of(key, object));
                if queue.is_none_or(|q| q.spec.stop_policy != StopPolicy::None) {
                    return false;
                }
                (reason::LOCAL_QUEUE_RESTARTED, "The LocalQueue was restarted after being stopped")
            }
            _ => return false,
        };
        let mut next = status.clone();
        transition::requeue(&mut next, why, message, self.at(object));
        self.write_status(key, Purpose::Requeue, next, Vec::new());
        true
    }

    /// Removes `requeueAt` once it has passed, whatever else there is; returns whether it wrote.
    pub(super) fn end_backoff(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let (object, status) = (&entry.object, entry.status());
        let Some(until) = status.requeue_state.as_ref().and_then(|r| r.requeue_at.as_ref()).map(|t| t.0)
        else {
            return false;
        };
        if until > self.now {
            self.wake_at(until, Alarm::Workload(key.clone()));
            return false;
        }
        let mut next = status.clone();
        let held_back = conditions::is_false(&status.conditions, Type::Requeued.as_str());
        if held_back && is(status, Type::Evicted) && reserved(status) {
            transition::requeue(&mut next, reason::BACKOFF_FINISHED, BACKOFF_FINISHED, self.at(object));
            self.write_status(key, Purpose::Requeue, next, Vec::new());
            return true;
        }
        if let Some(state) = &mut next.requeue_state {
            state.requeue_at = None;
        }
        // Another client may have written it: it is removed whatever manager owns it.
        self.patch_status(key, Purpose::Requeue, &json!({"requeueState": {"requeueAt": null}}), next);
        true
    }

    /// A deactivated Workload has no backoff, whatever client wrote it; says whether it wrote.
    pub(super) fn forget_requeuing(&mut self, key: &WorkloadKey) -> bool {
        let status = self.world.workloads[key].status();
        if status.requeue_state.is_none() {
            return false;
        }
        let mut next = status.clone();
        next.requeue_state = None;
        self.patch_status(key, Purpose::Deactivate, &json!({"requeueState": null}), next);
        true
    }

    /// Patches the status of a Workload, where an apply cannot take away what others own.
    pub(super) fn patch_status(
        &mut self,
        key: &WorkloadKey,
        purpose: Purpose,
        status: &serde_json::Value,
        next: sluice_api::v1beta2::WorkloadStatus,
    ) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        let body = strict_patch(&entry.object, json!({ "status": status }));
        let write = Write::MergePatch { subresource: Some("status"), body };
        let id = self.outbox.write(workload_ref(key), purpose, write, Vec::new());
        self.world.assume(key, id, next);
    }
}
