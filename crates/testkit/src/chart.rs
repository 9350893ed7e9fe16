//! Installs the chart with helm for a manager that runs outside the cluster, as the demo does: no replica, webhooks by URL, and the chart's own
//! ServiceAccount, so that the manager has exactly the chart's rights.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use json_patch::merge;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
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

/// How long the API server waits for a webhook after [`wait_long_for_webhooks`]: as long as it can.
pub const LONG_WAIT: Duration = Duration::from_secs(30);

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

/// Makes the API server wait for the webhooks of the chart for [`LONG_WAIT`], also for those that let everything pass if there is no answer in two
/// seconds. The manager answers as soon as before, within five seconds: so nothing is refused, or let in without a review, because the machine is
/// busy. For planes whose tests are not about late answers; before the manager starts.
///
/// # Errors
///
/// If the API server cannot be reached, the chart has no webhooks there, or they keep other waits.
pub async fn wait_long_for_webhooks(plane: &ControlPlane) -> Result<()> {
    let client = plane.client().await?;
    let ours = ListParams::default().labels(&format!("app.kubernetes.io/instance={RELEASE}"));
    let wait = json!(LONG_WAIT.as_secs());
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let kind_of = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind_of));
        let found = all.list(&ours).await.with_context(|| format!("listing each {kind}"))?.items;
        ensure!(!found.is_empty(), "the chart has no {kind}");
        for configuration in found {
            let hooks = configuration.data["webhooks"].as_array().into_iter().flatten();
            let hooks: Vec<_> =
                hooks.map(|hook| json!({"name": hook["name"], "timeoutSeconds": wait})).collect();
            let patch = Patch::Strategic(json!({"webhooks": hooks}));
            let patched = all.patch(&configuration.name_any(), &PatchParams::default(), &patch).await;
            let patched = patched.with_context(|| format!("changing the {kind}"))?;
            let mut hooks = patched.data["webhooks"].as_array().into_iter().flatten();
            ensure!(hooks.all(|hook| hook["timeoutSeconds"] == wait), "{}", patched.data);
        }
    }
    Ok(())
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
