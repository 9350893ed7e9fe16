//! Installs the chart with helm for a manager that runs outside the cluster, as the demo does: no replica, webhooks by URL, and the chart's own
//! ServiceAccount, so that the manager has exactly the chart's rights.

use std::fs;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use json_patch::merge;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde_json::{Value, json};

use crate::assets::{self, Tool, workspace};
use crate::plane::ControlPlane;
use crate::plane_parts::COLLECTING;
use crate::setup::Setup;

/// The namespace that the chart is installed in.
pub const NAMESPACE: &str = "kueue-system";
/// The name of the release.
pub const RELEASE: &str = "sluice";
/// The ServiceAccount that the chart makes for the manager.
pub const SERVICE_ACCOUNT: &str = "kueue-controller-manager";

/// Runs helm against the plane; its standard output.
///
/// # Errors
///
/// If helm is missing and cannot be built, cannot be run, or does not end with 0: then the error has all that it printed.
pub async fn helm(plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let home = plane.folder().join("helm");
    let program =
        tokio::task::spawn_blocking(|| assets::path(Tool::Helm)).await.context("building helm")??;
    let mut command = tokio::process::Command::new(program);
    command
        .arg("--kubeconfig")
        .arg(plane.kubeconfig_path())
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // Helm ignores the user's own configuration, and leaves nothing behind.
    for (variable, folder) in [
        ("HELM_CACHE_HOME", "cache"),
        ("HELM_CONFIG_HOME", "config"),
        ("HELM_DATA_HOME", "data"),
        ("KUBECACHEDIR", "discovery"),
    ] {
        command.env(variable, home.join(folder));
    }
    command.env(COLLECTING.0, COLLECTING.1).env_remove("KUBECONFIG").env_remove("HELM_NAMESPACE");
    let output = command.output().await.context("running helm")?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("helm {} failed:\n{stdout}{stderr}", args.join(" "));
    }
    Ok(stdout.into_owned())
}

/// Installs (or upgrades) the chart and returns the setup of a manager that belongs to it. `setup` says ports and
/// configuration, `values` overrides the chart's values.
///
/// # Errors
///
/// If helm does not install the chart (see [`helm`]) or the definitions are not served in time, the chart's ConfigMap has no configuration that can
/// be read, or there is no token for its ServiceAccount; also if the values or the kubeconfig cannot be written.
pub async fn install(plane: &ControlPlane, setup: Setup, values: &Value) -> Result<Setup> {
    let mut all = json!({
        "controllerManager": { "replicas": 0 },
        "webhooks": { "urlBase": setup.webhook_url() },
        // An API without a server blocks the deletion of namespaces, so tests that stop their manager do without it.
        "visibility": { "externalName": "localhost", "apiServices": false },
        "managerConfig": { "controllerManagerConfigYaml": format!("{:#}", setup.configuration) },
    });
    merge(&mut all, values);
    let file = plane.folder().join("values.json");
    fs::write(&file, all.to_string()).context("writing the chart's values")?;
    let (chart, file) = (workspace().join("charts/sluice"), file.display().to_string());
    let chart = chart.display().to_string();
    let args = [
        "upgrade",
        "--install",
        RELEASE,
        &chart,
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--values",
        &file,
    ];
    helm(plane, &args).await.context("installing the chart")?;
    if all["crds"]["enabled"] != false {
        crate::crds::wait_until_served(&plane.client().await?, crate::crds::own()).await?;
    }
    // The manager reads the configuration that the chart renders, as it would in the cluster.
    let maps: Api<ConfigMap> = Api::namespaced(plane.client().await?, NAMESPACE);
    let map = maps.get("kueue-manager-config").await.context("reading the chart's ConfigMap")?;
    let text = map.data.and_then(|mut data| data.remove("controller_manager_config.yaml"));
    let text = text.context("the chart's ConfigMap has no controller_manager_config.yaml")?;
    let configuration =
        serde_saphyr::from_str(&text).context("reading the configuration that the chart made")?;
    let kubeconfig = plane.kubeconfig_for_service_account(NAMESPACE, SERVICE_ACCOUNT).await?;
    Ok(Setup { configuration, kubeconfig, ..setup })
}

/// Removes the release, as `helm uninstall` does.
///
/// # Errors
///
/// As [`helm`], for example if there is no such release.
pub async fn uninstall(plane: &ControlPlane) -> Result<()> {
    helm(plane, &["uninstall", RELEASE, "--namespace", NAMESPACE])
        .await
        .context("removing the chart")
        .map(drop)
}
