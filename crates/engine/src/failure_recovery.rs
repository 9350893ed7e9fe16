//! Pods that are stuck on nodes that cannot be reached (docs/reference/06-algorithm.md 6.27; gate `FailureRecoveryPolicy`).
//!
//! If a pod's node is lost, no kubelet confirms the pod's end, so that a Job continues counting it and starts no other in its place. A pod with the
//! opt-in annotation is failed and removed once it should have ended a minute ago and its node has the taint of an unreachable node: first its status
//! is written, then it is deleted without grace. Each step follows from the pod and the node alone.

pub(crate) mod state;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::gates::Gate;
use sluice_api::{labels, slim};
use sluice_core::Name;

use crate::config::Part;
use crate::effect::{Effect, Event, EventType, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::hotswap::pod::PodKey;
use crate::input::{Kind, ObjectRef};
use state::TerminatingPod;

/// How long after its deletion timestamp, which has the pod's own grace in it, a pod is forced.
const FORCEFUL_TERMINATION_GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(60);

/// The reason of the condition and of the event (docs/reference/03-conditions-events.md).
const REASON: &str = "KueueForcefullyDeleted";

/// The reporter of its events, as which it writes, too (docs/reference/03-conditions-events.md 3.6).
const REPORTER: &str = sluice_api::status_apply::FAILURE_RECOVERY_MANAGER;

impl TerminatingPod {
    /// The terminating pod, if it is one that may be forced.
    fn of(pod: &slim::Pod) -> Option<Self> {
        let deleted = pod.metadata.deletion_timestamp.as_ref().filter(|_| pod.safe_to_delete)?;
        (!pod.node.is_empty()).then(|| Self {
            uid: Arc::from(pod.metadata.uid.as_deref().unwrap_or_default()),
            node: Name::from(pod.node.as_str()),
            due: deleted.0.checked_add(FORCEFUL_TERMINATION_GRACE_PERIOD).unwrap_or(Timestamp::MAX),
            grace: pod.metadata.deletion_grace_period_seconds.unwrap_or(0),
            ended: pod.ended,
            reported: pod.force_deleted,
        })
    }

    fn message(&self) -> String {
        let (grace, node, annotation) =
            (grace_period(self.grace), &self.node, labels::SAFE_TO_FORCEFULLY_DELETE);
        format!(
            "Pod forcefully terminated after {grace} grace period due to unreachable node `{node}` (triggered by `{annotation}` \
             annotation)"
        )
    }
}

/// The minute and the pod's own grace as the message has it. Quirk kept: the grace's seconds are counted as nanoseconds.
fn grace_period(seconds: i64) -> String {
    match seconds {
        ..=0 => "1m0s".to_owned(),
        seconds => {
            let (whole, fraction) = (seconds / 1_000_000_000, format!("{:09}", seconds % 1_000_000_000));
            format!("1m{whole}.{}s", fraction.trim_end_matches('0')).replace(".s", "s")
        }
    }
}

fn pod_ref((namespace, name): &PodKey) -> ObjectRef {
    ObjectRef::namespaced(Kind::Pod, Arc::clone(namespace), Arc::clone(name))
}

impl Engine {
    /// Takes a pod that is or was bound.
    pub(crate) fn observe_terminating(&mut self, reference: &ObjectRef, pod: &slim::Pod) {
        if !self.config.on(Gate::FailureRecoveryPolicy) || !self.config.runs(Part::PodTermination) {
            return;
        }
        self.forget_terminating(reference);
        if let Some(pod) = TerminatingPod::of(pod) {
            let key = (Arc::clone(&reference.namespace), Arc::clone(&reference.name));
            self.terminating.by_node.entry(Arc::clone(&pod.node)).or_default().insert(key.clone());
            self.terminating.pods.insert(key, pod);
            self.dirty.others.insert(reference.clone());
        }
    }

    /// A pod is gone.
    pub(crate) fn forget_terminating(&mut self, reference: &ObjectRef) {
        let key = (Arc::clone(&reference.namespace), Arc::clone(&reference.name));
        let Some(pod) = self.terminating.pods.remove(&key) else { return };
        if let Some(keys) = self.terminating.by_node.get_mut(&pod.node) {
            keys.remove(&key);
            if keys.is_empty() {
                self.terminating.by_node.remove(&pod.node);
            }
        }
    }

    /// A node changed: its pods may be forced now.
    pub(crate) fn terminating_node_changed(&mut self, node: &str) {
        let pods = self.terminating.by_node.get(node).into_iter().flatten();
        self.dirty.others.extend(pods.map(pod_ref));
    }

    /// The pods that are kept here.
    pub(crate) fn terminating_pods(&self) -> impl Iterator<Item = ObjectRef> {
        self.terminating.pods.keys().map(pod_ref)
    }

    /// The UID of such a pod.
    pub(crate) fn terminating_uid(&self, object: &ObjectRef) -> Option<Arc<str>> {
        let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
        self.terminating.pods.get(&key).map(|pod| Arc::clone(&pod.uid))
    }

    /// Marks them all.
    pub(crate) fn mark_terminating(&mut self) {
        self.dirty.others.extend(self.terminating.pods.keys().map(pod_ref));
    }

    /// Makes the next step with a pod: its status, then its deletion.
    pub(crate) fn end_terminating(&mut self, object: &ObjectRef) {
        let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
        let Some(pod) = self.terminating.pods.get(&key) else { return };
        let entry = self.statuses.get(object);
        if entry.is_some_and(|entry| entry.open.is_some()) {
            return;
        }
        let until = entry.and_then(|entry| entry.retry.until()).max(Some(pod.due));
        if let Some(until) = until.filter(|until| *until > self.now) {
            return self.wake_at(until, Alarm::Object(object.clone()));
        }
        let is_unreachable =
            |node: &slim::Node| node.taints.iter().any(|t| t.key == labels::NODE_UNREACHABLE_TAINT);
        if !self.world.nodes.get(&pod.node).is_some_and(is_unreachable) {
            return;
        }
        let (purpose, write, then) = if !pod.ended || !pod.reported {
            let body = self.forced_status(object, pod).into();
            let write = Write::Apply { subresource: Some("status"), field_manager: REPORTER, body };
            let reported = Effect::Event(Event {
                object: object.clone(),
                uid: Arc::clone(&pod.uid),
                type_: EventType::Warning,
                reason: REASON.to_owned(),
                action: "ForcefulTermination".to_owned(),
                note: pod.message(),
                reporter: REPORTER,
                attempt: None,
            });
            (Purpose::FailPod, write, if pod.reported { Vec::new() } else { vec![reported] })
        } else if pod.grace > 0 {
            let write = Write::Delete {
                uid: Some(Arc::clone(&pod.uid)),
                grace_period_seconds: Some(0),
                foreground: false,
            };
            (Purpose::DeletePod, write, Vec::new())
        } else {
            // Only a finalizer holds it.
            return;
        };
        let id = self.outbox.write(object.clone(), purpose, write, then);
        self.statuses.entry(object.clone()).or_default().open = Some(id);
    }

    /// The applied status. The UID keeps it from a namesake.
    fn forced_status(&self, object: &ObjectRef, pod: &TerminatingPod) -> Value {
        let mut status = json!({"conditions": [{
            "type": slim::FAILURE_RECOVERY,
            "status": "True",
            "reason": REASON,
            "message": pod.message(),
            "lastTransitionTime": whole_seconds(self.now),
        }]});
        if !pod.ended {
            status["phase"] = json!("Failed");
        }
        json!({
            "apiVersion": object.kind.api_version(),
            "kind": object.kind.as_str(),
            "metadata": {"name": &*object.name, "namespace": &*object.namespace, "uid": &*pod.uid},
            "status": status,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_of_a_pod_is_in_nanoseconds_as_elsewhere() {
        assert_eq!(grace_period(0), "1m0s");
        assert_eq!(grace_period(1), "1m0.000000001s");
        assert_eq!(grace_period(30), "1m0.00000003s");
        assert_eq!(grace_period(3600), "1m0.0000036s");
        assert_eq!(grace_period(2_000_000_000), "1m2s");
    }
}
