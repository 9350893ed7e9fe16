//! Ray's kinds: KubeRay's own operator. Its only webhook is off: it only checks names.

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::assets::Tool;
use crate::controllers::Controllers;
use crate::plane::ControlPlane;
use crate::wait::progress;

/// Starts the operator, and waits until it looks after clusters.
///
/// # Errors
///
/// As [`Controllers::start`]; and if the cluster to try is refused or cannot be removed, or the operator ends or has said nothing of it within
/// three minutes.
pub async fn start(plane: &ControlPlane) -> Result<Controllers> {
    let arguments = [
        "--enable-leader-election=false",
        "--reconcile-concurrency=4",
        "--metrics-addr=0",
        "--health-probe-bind-address=0",
    ];
    let mut operator = Controllers::start(plane, Tool::KubeRayOperator, &arguments).await?;
    wait_until_it_looks_after(&mut operator, &plane.client().await?).await?;
    Ok(operator)
}

/// Makes a cluster that waits, and removes it again once the operator has said something of it.
async fn wait_until_it_looks_after(operator: &mut Controllers, client: &Client) -> Result<()> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
    let clusters: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let probe = serde_json::from_value(probe()).context("making a cluster to try")?;
    clusters.create(&PostParams::default(), &probe).await.context("making a cluster to try")?;
    let seen = operator.wait_until("KubeRay's operator", || async {
        let state = clusters.get("probe").await?.data["status"]["state"].take();
        Ok(progress(state == "suspended", state))
    });
    seen.await?;
    clusters.delete("probe", &DeleteParams::default()).await.context("removing the cluster to try")?;
    Ok(())
}

/// A cluster that is valid and has no effect.
fn probe() -> Value {
    let pod = json!({"spec": {"containers": [{"name": "ray", "image": "example.com/none"}]}});
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "probe"},
        "spec": {"suspend": true, "headGroupSpec": {"rayStartParams": {}, "template": pod}},
    })
}
