//! TrainJobs: the trainer's real controllers as one process of the plane, with their webhooks, built from a pinned Go module. The JobSet controller
//! handles the JobSets that they make.

use std::fs;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::assets::Tool;
use crate::controllers::{Controllers, refused_by};
use crate::plane::ControlPlane;

/// The trainer's webhooks.
const DEFAULTER: &str = "defaulter.trainer.kubeflow.org";
const VALIDATOR: &str = "validator.trainer.kubeflow.org";

/// Every runtime that the trainer ships, copied from the module that its controllers are built of.
const RUNTIMES: &str = include_str!("../../../tests/control-plane/trainer/runtimes.yaml");

/// The ClusterTrainingRuntimes that the trainer ships.
///
/// # Errors
///
/// If the file with the runtimes, which is compiled in, is not YAML.
pub fn runtimes() -> Result<Vec<Value>> {
    serde_saphyr::from_multiple(RUNTIMES).context("reading the trainer's runtimes")
}

/// Starts the controllers and installs their webhooks, and waits until runtimes can be made.
///
/// # Errors
///
/// As [`Controllers::start`]; and if no port is free, the webhooks are refused, or the controllers end or their webhooks do not answer within
/// three minutes.
pub async fn start(plane: &ControlPlane) -> Result<Controllers> {
    let (mut controllers, port) =
        Controllers::start_with_webhooks(plane, Tool::TrainerControllers, "trainer").await?;
    let client = plane.client().await?;
    install_webhooks(&client, port, &fs::read(plane.ca_path()).context("reading the plane's CA")?).await?;
    wait_until_they_answer(&mut controllers, &client).await?;
    Ok(controllers)
}

/// Tries a runtime that the webhook refuses.
async fn wait_until_they_answer(controllers: &mut Controllers, client: &Client) -> Result<()> {
    let kind =
        ApiResource::from_gvk(&GroupVersionKind::gvk("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime"));
    let runtimes: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let pod = json!({"spec": {"containers": [{"name": "node", "image": "example.com/none"}]}});
    // The Job that trains must be there once.
    let trains = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let job =
        json!({"name": "node", "replicas": 2, "template": {"metadata": trains, "spec": {"template": pod}}});
    let probe = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": "probe"},
        "spec": {"template": {"spec": {"replicatedJobs": [job]}}},
    });
    let probe: DynamicObject = serde_json::from_value(probe).context("making a runtime to try")?;
    let answered = controllers.wait_until("the trainer's webhooks", || async {
        let made = runtimes.create(&params, &probe).await;
        refused_by("validator.trainingruntime.trainer.kubeflow.org", made)
    });
    answered.await
}

/// The webhooks as the trainer's own manifests have them, at an address on this machine.
async fn install_webhooks(client: &Client, port: u16, authority: &[u8]) -> Result<()> {
    let webhook = |action: &str, name: String, kind: &str| {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/{action}-trainer-kubeflow-org-v1alpha1-{kind}"),
                "caBundle": ByteString(authority.to_vec()),
            },
            "rules": [{"apiGroups": ["trainer.kubeflow.org"], "apiVersions": ["v1alpha1"],
                "resources": [format!("{kind}s")], "operations": ["CREATE", "UPDATE"]}],
        })
    };
    let validate = |kind: &str| webhook("validate", format!("validator.{kind}.trainer.kubeflow.org"), kind);
    let configuration = |kind: &str, name: &str, webhooks: Vec<Value>| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks,
        })
    };
    let default = vec![webhook("mutate", "defaulter.trainjob.trainer.kubeflow.org".to_owned(), "trainjob")];
    let mutating = configuration("MutatingWebhookConfiguration", DEFAULTER, default);
    let validators = ["clustertrainingruntime", "trainingruntime", "trainjob"].map(validate).to_vec();
    let validating = configuration("ValidatingWebhookConfiguration", VALIDATOR, validators);
    let params = PatchParams::apply("sluice-testkit").force();
    let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    all.patch(DEFAULTER, &params, &Patch::Apply(&mutating))
        .await
        .context("installing the trainer's defaulter")?;
    let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    all.patch(VALIDATOR, &params, &Patch::Apply(&validating))
        .await
        .context("installing the trainer's validator")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::workspace;

    #[test]
    fn the_runtimes_are_those_of_the_version_that_is_built() {
        let pins = fs::read_to_string(workspace().join("tests/control-plane/trainer/go.mod")).unwrap();
        let module = "github.com/kubeflow/trainer/v2 v";
        let pinned = pins.lines().map(str::trim).find(|line| line.starts_with(module)).unwrap();
        let first = RUNTIMES.lines().next().unwrap();
        assert!(first.contains(&format!("{pinned},")), "{first}");
        let names: Vec<_> = runtimes().unwrap().iter().map(|one| one["metadata"]["name"].clone()).collect();
        assert_eq!(names.len(), 9);
        for name in ["torch-distributed", "deepspeed-distributed", "torchtune-qwen2.5-1.5b"] {
            assert!(names.contains(&json!(name)), "{names:?}");
        }
    }
}
