//! Reads the objects of a cluster, and only reads: what a simulation begins with.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;
use sluice_engine::input::Kind;
use sluice_sim::{Manifest, Source};

use crate::client;

/// What is read, queues before jobs. A kind that the cluster does not have is left out.
const KINDS: [(Kind, &str); 15] = [
    (Kind::Namespace, "/api/v1/namespaces"),
    (Kind::Topology, "/apis/kueue.x-k8s.io/v1beta2/topologies"),
    (Kind::ResourceFlavor, "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"),
    (Kind::AdmissionCheck, "/apis/kueue.x-k8s.io/v1beta2/admissionchecks"),
    (Kind::Cohort, "/apis/kueue.x-k8s.io/v1beta2/cohorts"),
    (Kind::ClusterQueue, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"),
    (Kind::LocalQueue, "/apis/kueue.x-k8s.io/v1beta2/localqueues"),
    (Kind::WorkloadPriorityClass, "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"),
    (Kind::PriorityClass, "/apis/scheduling.k8s.io/v1/priorityclasses"),
    (Kind::LimitRange, "/api/v1/limitranges"),
    (Kind::RuntimeClass, "/apis/node.k8s.io/v1/runtimeclasses"),
    (Kind::Node, "/api/v1/nodes"),
    (Kind::Workload, "/apis/kueue.x-k8s.io/v1beta2/workloads"),
    (Kind::Job(sluice_api::job::JobKind::Job), "/apis/batch/v1/jobs"),
    (Kind::Job(sluice_api::job::JobKind::JobSet), "/apis/jobset.x-k8s.io/v1alpha2/jobsets"),
];

/// Every object of the simulated kinds, with its status.
pub async fn read(kubeconfig: Option<&Path>) -> anyhow::Result<Vec<Manifest>> {
    let config = client::connection(kubeconfig).await?;
    let client = client::client(&config)?;
    let mut all = Vec::new();
    for (kind, path) in KINDS {
        let request = axum::http::Request::get(path).body(Vec::new()).context("making a request")?;
        let list: Value = match client.request(request).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error).with_context(|| format!("reading {path}")),
        };
        for (index, mut object) in items(list).into_iter().enumerate() {
            object["kind"] = Value::from(kind.as_str());
            let group = kind.group();
            let version = kind.version();
            object["apiVersion"] =
                Value::from(if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") });
            if is_over(&object) || (matches!(kind, Kind::Job(_)) && is_child(&object)) {
                continue;
            }
            let source = Source { file: path.to_owned(), document: index + 1 };
            all.push(Manifest { source, kind, object });
        }
    }
    Ok(all)
}

fn items(mut list: Value) -> Vec<Value> {
    match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// What has ended, or is about to go, has no future.
fn is_over(object: &Value) -> bool {
    let over = ["Finished", "Complete", "Completed", "Failed"];
    let conditions = object["status"]["conditions"].as_array();
    let ended = conditions
        .into_iter()
        .flatten()
        .any(|c| c["status"] == "True" && c["type"].as_str().is_some_and(|t| over.contains(&t)));
    ended || object["metadata"]["deletionTimestamp"].is_string()
}

/// The jobs of a JobSet are played with it.
fn is_child(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|o| o["controller"] == true && o["kind"] == "JobSet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_over_and_what_is_played_with_its_owner_is_left_out() {
        assert!(is_over(&json!({"status": {"conditions": [{"type": "Finished", "status": "True"}]}})));
        assert!(!is_over(&json!({"status": {"conditions": [{"type": "Admitted", "status": "True"}]}})));
        assert!(is_child(
            &json!({"metadata": {"ownerReferences": [{"controller": true, "kind": "JobSet"}]}})
        ));
        assert!(!is_child(&json!({"metadata": {}})));
    }
}
