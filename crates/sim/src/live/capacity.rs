//! When free capacity on nodes matters, and what is read of nodes and pods then.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_api::conditions::reason;
use sluice_core::Reason;
use sluice_engine::{Account, Kind};

use super::{Live, is_admitted, text, wants_pods};

/// A node without the list of its images, which is most of it.
pub(super) fn without_images(mut node: Value) -> Value {
    if let Some(status) = node["status"].as_object_mut() {
        status.retain(|field, _| !["images", "volumesAttached", "volumesInUse"].contains(&field.as_str()));
    }
    node
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

/// Whether an answer about a Workload needs the nodes: it lost some, or the manager found too little capacity on healthy ones.
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use serde_json::json;

    use super::super::tests::ready;
    use super::super::{Extent, Keep, read};
    use super::*;

    fn named(name: &str, spec: &Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})
    }

    /// A queue that Hotswap acts for, its two nodes and another, and pods on each of them.
    fn cluster(place: &str) -> Vec<Value> {
        let node = |name: &str, pool: &str| json!({"metadata": {"name": name, "labels": {"pool": pool}}, "status": {"images": ["x"], "conditions": []}});
        let pod = |name: &str, node: &str| {
            let container =
                json!({"name": "c", "image": "i", "env": [], "resources": {"requests": {"cpu": "1"}}});
            let mut pod = named(name, &json!({"nodeName": node, "containers": [container], "volumes": []}));
            pod["status"] = json!({"phase": "Running", "containerStatuses": []});
            pod
        };
        let flavors = json!([{"name": "gpu"}]);
        let spec = json!({"preemption": {"reclaimOutOfCohort": {"enable": true}}, "resourceGroups": [{"flavors": flavors}]});
        match place.rsplit('/').next().unwrap_or_default() {
            "resourceflavors" => {
                vec![named("gpu", &json!({"nodeLabels": {"pool": "gpu"}})), named("plain", &json!({}))]
            }
            "clusterqueues" => vec![named("cq", &spec)],
            "localqueues" => vec![named("lq", &json!({"clusterQueue": "cq"}))],
            "nodes" => vec![node("n0", "gpu"), node("n1", "gpu"), node("m", "other")],
            "pods" => vec![pod("p0", "n0"), pod("p1", "n1"), pod("q", "m")],
            _ => Vec::new(),
        }
    }

    #[test]
    fn nodes_and_the_pods_on_those_of_hotswap_are_read_only_where_room_is_asked_for() {
        for room in [false, true] {
            let asked = RefCell::new(Vec::new());
            let list = |place: String, _query: &'static str, keep: Keep| {
                let found: Vec<Value> =
                    cluster(&place).into_iter().filter_map(|object| keep(object)).collect();
                asked.borrow_mut().push(place);
                std::future::ready(Ok::<_, Infallible>(found.into()))
            };
            let extent = Extent::Around { namespace: "ns", local_queue: "lq", room };
            let live = ready(read(extent, &[], list)).unwrap();
            let of = |kind: Kind| live.objects.iter().filter(move |m| m.kind == kind).map(|m| &m.object);
            let asks = |what: &str| asked.borrow().iter().any(|place| place.ends_with(what));
            assert_eq!((asks("/nodes"), asks("/pods")), (room, room));
            assert_eq!(of(Kind::Node).count(), if room { 3 } else { 0 });
            assert!(of(Kind::Node).all(|node| node["status"]["images"].is_null()));
            let pods: Vec<_> = of(Kind::Pod).map(|pod| text(&pod["metadata"]["name"])).collect();
            assert_eq!(pods, if room { vec!["p0", "p1"] } else { Vec::new() });
            for pod in of(Kind::Pod) {
                assert_eq!(
                    pod["spec"]["containers"],
                    json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}])
                );
                assert_eq!(
                    (&pod["status"], &pod["spec"]["volumes"]),
                    (&json!({"phase": "Running"}), &Value::Null)
                );
            }
        }
    }

    #[test]
    fn room_matters_to_what_lost_nodes_or_found_too_little_on_them() {
        let of = |conditions: Value, nodes: Value| {
            asks_for_room(Some(&json!({"status": {"conditions": conditions, "unhealthyNodes": nodes}})), None)
        };
        let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message});
        let left = condition("Evicted", "True", "NodeFailures", "");
        let admitted = condition("Admitted", "True", "Admitted", "");
        let waits =
            |reason: &str, message: &str| json!([condition("QuotaReserved", "False", reason, message)]);
        assert!(of(json!([left]), json!([])));
        assert!(of(waits("WaitingForCapacity", ""), json!([])));
        assert!(of(
            waits("Pending", "insufficient capacity of healthy nodes for cpu in flavor gpu"),
            json!([])
        ));
        assert!(of(json!([admitted]), json!([{"name": "n0"}])));
        // Most questions are about quota.
        assert!(!of(waits("WaitingForQuota", "insufficient unused quota"), json!([])));
        assert!(!of(json!([admitted, left]), json!([])));
        assert!(!of(json!([condition("Evicted", "True", "Preempted", "")]), json!([])));
        assert!(!asks_for_room(None, None));
    }
}
