//! The manifests that must apply as they are, with kubectl's strict field validation: v1beta1, through the conversion and admission webhooks
//! of a running manager.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, jobset, kubectl};

fn seed(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/seeds");
    folder.join(format!("{name}.yaml")).to_str().unwrap().to_owned()
}

async fn get(plane: &ControlPlane, resource: &str, name: &str) -> Value {
    let printed = kubectl::kubectl(plane, &["get", resource, name, "-o", "json"]).await.unwrap();
    serde_json::from_str(&printed).unwrap()
}

#[tokio::test]
async fn the_seeds_apply_verbatim() {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let _jobset = jobset::StandIn::start(&plane.kubeconfig_path()).await.unwrap();
    let setup = chart::install(&plane, Setup::new(&plane).unwrap(), &json!({})).await.unwrap();
    // The jobs themselves are not the subject: nothing is to be admitted.
    let mut manager = Manager::start(&plane, setup.arg("--controllers=*,-scheduler")).await.unwrap();
    // Pages that use the same names come one after the other.
    let pages: [&[&str]; 4] = [
        &["dws-queues", "dws-job"],
        &["hotswap-priority-classes", "hotswap-queues", "hotswap-jobsets", "hotswap-jobset-unqueued"],
        &["multislice-queues", "multislice-jobsets"],
        &[
            "multislice-priority-class",
            "multislice-preemption-queues",
            "multislice-jobsets-standard",
            "multislice-low-priority-jobset",
        ],
    ];
    for page in pages {
        for name in page {
            let path = seed(name);
            // `create` where the manifests only have generated names.
            let verb = if *name == "dws-job" { "create" } else { "apply" };
            kubectl::kubectl(&plane, &[verb, "--validate=strict", "-f", &path]).await.unwrap();
        }
        kubectl::kubectl(&plane, &["delete", "jobs,jobsets", "--all", "--wait=false"]).await.unwrap();
    }
    // What users wrote in v1beta1 is there in both versions.
    let stored = get(&plane, "clusterqueues.v1beta2.kueue.x-k8s.io", "tpu-training-cq").await;
    let group = &stored["spec"]["resourceGroups"][0];
    assert_eq!(group["coveredResources"], json!(["google.com/tpu"]), "filled in from the flavors' resources");
    let addition = json!({"enable": true, "reclaimMoreThanNominalQuota": false});
    assert_eq!(stored["spec"]["preemption"]["reclaimOutOfCohort"], addition);
    assert_eq!(stored["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
    let stored = get(&plane, "clusterqueues.v1beta2.kueue.x-k8s.io", "dws-cluster-queue").await;
    let strategy = json!({"admissionChecks": [{"name": "dws-prov"}]});
    assert_eq!(stored["spec"]["admissionChecksStrategy"], strategy);
    let old = get(&plane, "clusterqueues.v1beta1.kueue.x-k8s.io", "dws-cluster-queue").await;
    assert_eq!(old["apiVersion"], "kueue.x-k8s.io/v1beta1");
    assert_eq!(old["spec"]["admissionChecksStrategy"], strategy);
    assert_eq!(manager.ended(), None);
    manager.stop().await.unwrap();
    plane.stop();
}
