//! What is read of nodes and pods where the room on nodes matters, and when it does.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_api::conditions::reason;
use sluice_core::Reason;
use sluice_engine::{Account, Kind};

use super::{Live, is_admitted, text, wants_pods};

/// A node without the list of its images, which is most of it.
pub(super) fn without_images(mut node: Value) -> Option<Value> {
    if let Some(status) = node["status"].as_object_mut() {
        status.retain(|field, _| !["images", "volumesAttached", "volumesInUse"].contains(&field.as_str()));
    }
    Some(node)
}

/// A pod without what says nothing of the room that it takes.
pub(super) fn without_details(mut pod: Value) -> Value {
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("volumes");
    }
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let Some(fields) = container.as_object_mut() else { continue };
            fields.retain(|field, _| ["name", "resources", "restartPolicy"].contains(&field.as_str()));
        }
    }
    if let Some(status) = pod["status"].as_object_mut() {
        status.retain(|field, _| ["phase", "conditions"].contains(&field.as_str()));
    }
    pod
}

/// Whether an answer about a Workload depends on the room on nodes: it lost some, or the manager found too little on those that are healthy.
pub fn asks_for_room(workload: Option<&Value>, account: Option<&Account>) -> bool {
    let Some(workload) = workload else { return false };
    let lost = workload["status"]["unhealthyNodes"].as_array().is_some_and(|nodes| !nodes.is_empty());
    let conditions = || workload["status"]["conditions"].as_array().into_iter().flatten();
    let left = conditions()
        .any(|c| c["type"] == "Evicted" && c["status"] == "True" && c["reason"] == reason::NODE_FAILURES);
    let waits = |reason: &str, message: &str| {
        reason == Reason::WaitingForCapacity.as_str()
            || message.contains("insufficient capacity of healthy nodes")
    };
    let written = conditions().any(|c| {
        c["type"] == "QuotaReserved"
            && c["status"] == "False"
            && waits(&text(&c["reason"]), &text(&c["message"]))
    });
    let decided = account.and_then(|account| account.decision.as_ref());
    let decided = decided.is_some_and(|decision| waits(decision.reason.as_str(), &decision.message()));
    lost || (!is_admitted(workload) && (left || written || decided))
}

impl Live {
    /// The nodes of the flavors whose room Hotswap looks after.
    pub(super) fn nodes_for_hotswap(&self) -> BTreeSet<String> {
        let of = |kind: Kind| self.objects.iter().filter(move |m| m.kind == kind).map(|m| &m.object);
        let queues = self.objects.iter().filter(|m| m.kind == Kind::ClusterQueue && wants_pods(m));
        let groups = queues.filter_map(|m| m.object["spec"]["resourceGroups"].as_array()).flatten();
        let named: BTreeSet<String> = groups
            .filter_map(|group| group["flavors"].as_array())
            .flatten()
            .map(|flavor| text(&flavor["name"]))
            .collect();
        let flavors =
            of(Kind::ResourceFlavor).filter(|flavor| named.contains(&text(&flavor["metadata"]["name"])));
        let wanted: Vec<_> = flavors
            .filter_map(|flavor| flavor["spec"]["nodeLabels"].as_object())
            .filter(|labels| !labels.is_empty())
            .collect();
        let has = |node: &&Value| {
            let labels = &node["metadata"]["labels"];
            wanted.iter().any(|wanted| wanted.iter().all(|(key, value)| labels[key.as_str()] == *value))
        };
        of(Kind::Node).filter(has).map(|node| text(&node["metadata"]["name"])).collect()
    }
}
