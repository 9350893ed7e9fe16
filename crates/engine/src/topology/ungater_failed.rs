//! Ungated pods that are not bound yet while their node has become unhealthy or is no longer assigned: they are marked failed, so that their
//! controller makes replacements (docs/reference/06-algorithm.md 6.14).

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::slim;
use sluice_api::status_apply::{TERMINATED_BY_KUEUE, TOPOLOGY_MANAGER};
use sluice_core::WorkloadKey;

use super::moved_slices::{MESSAGE as DISRUPTED, SLICE_MOVED};
use super::ungater::PodWrite;
use super::ungater_domains::Domains;
use super::ungater_index::PlacedPods;
use crate::effect::{Effect, Event, EventType, Purpose, Write};
use crate::engine::Engine;
use crate::hotswap::pod::PodKey;
use crate::input::{Kind, ObjectRef};
use crate::job_pod::{JobPod, Stage};

/// The reason of the condition (docs/reference/03-conditions-events.md 3.2).
const REASON: &str = "UnschedulableOnAssignedNode";
/// The message of the condition and of the event.
const MESSAGE: &str = "Pod terminated by Kueue NodeController due to node taint";

impl Engine {
    /// Marks such pods of a pod set failed. A domain of several nodes has other nodes. If slices `move`, the pods on nodes that are no longer assigned
    /// get a disruption condition: the Job was checked for that before its slice moved.
    pub(super) fn fail_placed(
        &self,
        workload: &WorkloadKey,
        of: (&str, &PlacedPods),
        (domains, moves): (&Domains, bool),
        writes: &mut Vec<PodWrite>,
    ) {
        if !domains.are_nodes() {
            return;
        }
        for (key, pod, place) in self.placed_in(workload, of, Stage::Unbound) {
            let domain = domains.of_pod(place);
            let is_open = domain.is_some_and(|domain| !domains.rooms[domain].closed);
            let waits = pod.open.is_some() || pod.retry.waits(self.now);
            if is_open || waits || pod.leaves || !place.pending {
                continue;
            }
            let write = Write::Apply {
                subresource: Some("status"),
                field_manager: TOPOLOGY_MANAGER,
                body: self.failed_status(&key, pod, moves && domain.is_none()).into(),
            };
            let then = vec![terminated(&key, pod)];
            writes.push(PodWrite { pod: key, purpose: Purpose::FailPod, write, then, target: None });
        }
    }

    /// The applied status. It is for the pod as it was seen: it may have got a node since.
    fn failed_status(&self, (namespace, name): &PodKey, pod: &JobPod, moves: bool) -> Value {
        let condition = |type_: &str, reason: &str, message: &str| {
            json!({
                "type": type_,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": whole_seconds(self.now),
            })
        };
        let mut conditions = vec![condition(TERMINATED_BY_KUEUE, REASON, MESSAGE)];
        conditions.extend(moves.then(|| condition(slim::DISRUPTION_TARGET, SLICE_MOVED, DISRUPTED)));
        json!({
            "apiVersion": Kind::JobPod.api_version(),
            "kind": Kind::JobPod.as_str(),
            "metadata": {
                "name": &**name, "namespace": &**namespace, "uid": &*pod.uid, "resourceVersion": &*pod.version,
            },
            "status": {"phase": "Failed", "conditions": conditions},
        })
    }
}

/// The event about such a pod (docs/reference/03-conditions-events.md 3.4).
fn terminated((namespace, name): &PodKey, pod: &JobPod) -> Effect {
    Effect::Event(Event {
        object: ObjectRef::namespaced(Kind::JobPod, Arc::clone(namespace), Arc::clone(name)),
        uid: Arc::from(&*pod.uid),
        type_: EventType::Normal,
        reason: "PodTerminatedByKueue".to_owned(),
        action: "PodTerminated".to_owned(),
        note: MESSAGE.to_owned(),
        reporter: TOPOLOGY_MANAGER,
        attempt: None,
    })
}
