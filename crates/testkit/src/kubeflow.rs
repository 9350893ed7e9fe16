//! Kubeflow's jobs: the real controllers of the training operator and of the MPI operator as one process of the plane, with their
//! CustomResourceDefinitions and webhooks, built from pinned Go modules.

use std::fs;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::assets::Tool;
use crate::controllers::{Controllers, refused_by};
use crate::plane::ControlPlane;

/// The training operator's webhooks.
const WEBHOOKS: &str = "validator.training-operator.kubeflow.org";

/// Starts the controllers and installs their webhooks, and waits until jobs can be made. When they end, only MPIJobs can be made.
///
/// # Errors
///
/// As [`Controllers::start`]; and if no port is free, the webhooks are refused, or the controllers end or their webhooks do not answer within
/// three minutes.
pub async fn start(plane: &ControlPlane) -> Result<Controllers> {
    let (mut controllers, port) =
        Controllers::start_with_webhooks(plane, Tool::KubeflowControllers, "kubeflow").await?;
    let client = plane.client().await?;
    install_webhooks(&client, port, &fs::read(plane.ca_path()).context("reading the plane's CA")?).await?;
    wait_until_they_answer(&mut controllers, &client).await?;
    Ok(controllers)
}

/// Tries a job that the webhook refuses.
async fn wait_until_they_answer(controllers: &mut Controllers, client: &Client) -> Result<()> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob"));
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let probe: DynamicObject = serde_json::from_value(probe()).context("making a job to try")?;
    let answered = controllers.wait_until("the webhooks of Kubeflow's controllers", || async {
        refused_by("validator.pytorchjob.training-operator.kubeflow.org", jobs.create(&params, &probe).await)
    });
    answered.await
}

/// A job without the container that is required.
fn probe() -> Value {
    let pod = json!({"spec": {"containers": [{"name": "main", "image": "example.com/none"}]}});
    json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "probe"},
        "spec": {
            "runPolicy": {"suspend": true},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": pod}},
        },
    })
}

/// The webhooks as the training operator's own manifests have them, at an address on this machine. The MPI operator has none.
async fn install_webhooks(client: &Client, port: u16, authority: &[u8]) -> Result<()> {
    let webhook = |kind: &str| {
        json!({
            "name": format!("validator.{kind}.training-operator.kubeflow.org"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/validate-kubeflow-org-v1-{kind}"),
                "caBundle": ByteString(authority.to_vec()),
            },
            "rules": [{"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"],
                "resources": [format!("{kind}s")], "operations": ["CREATE", "UPDATE"]}],
        })
    };
    let webhooks = ["jaxjob", "paddlejob", "pytorchjob", "tfjob", "xgboostjob"].map(webhook);
    let validating = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": WEBHOOKS},
        "webhooks": webhooks,
    });
    let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let params = PatchParams::apply("sluice-testkit").force();
    all.patch(WEBHOOKS, &params, &Patch::Apply(&validating))
        .await
        .context("installing the training operator's webhooks")?;
    Ok(())
}
