//! SparkApplications: the Spark operator's own controllers and webhooks, each a process of the plane. A **stand-in** for spark-submit makes the pods
//! that Spark would make of an application. Another one deletes executors when their driver ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::assets::{self, Tool};
use crate::controllers::Controllers;
use crate::plane::ControlPlane;
use crate::plane_parts::program;
use crate::ports::free_ports;
use crate::wait::progress;

/// The name of its webhooks, and of the Secret with their certificate.
const WEBHOOKS: &str = "spark-operator-webhook";

/// Its webhooks and its controllers, and what stands in for the ends of drivers.
#[derive(Debug)]
pub struct Operator {
    _webhooks: Controllers,
    _controllers: Controllers,
    _drivers: Controllers,
}

/// Starts the operator, and waits until applications can be made.
///
/// # Errors
///
/// If the operator cannot be built or was started on this plane before, its certificate cannot be made, no port is free, or the webhooks are
/// refused, end, or do not answer within three minutes; and as [`Controllers::start`].
pub async fn start(plane: &ControlPlane) -> Result<Operator> {
    let folder = plane.folder().join("spark");
    let submit = tokio::task::spawn_blocking(|| assets::path(Tool::SparkOperator))
        .await
        .context("building the Spark operator")??;
    fs::create_dir_all(folder.join("bin")).context("making the Spark operator's folder")?;
    symlink(submit, folder.join("bin/spark-submit")).context("installing what stands in for spark-submit")?;
    let client = plane.client().await?;
    let authority = certificates(&client, &folder).await?;
    let port = free_ports(1)?[0];
    let (certificates, given) = (folder.join("certificates").display().to_string(), port.to_string());
    let arguments = [
        "webhook",
        "start",
        "--health-probe-bind-address=0",
        "--enable-cert-manager=true",
        "--webhook-secret-namespace=default",
        "--webhook-secret-name",
        WEBHOOKS,
        "--webhook-cert-dir",
        &certificates,
        "--webhook-port",
        &given,
    ];
    let mut webhooks = Controllers::start(plane, Tool::SparkOperator, &arguments).await?;
    let (home, access) = (folder.display().to_string(), plane.kubeconfig_path().display().to_string());
    // The operator requires an address of the API server for Spark.
    let variables = [
        ("SPARK_HOME", home.as_str()),
        ("KUBECONFIG", &access),
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
    ];
    let arguments = ["controller", "start", "--health-probe-bind-address=0", "--enable-ui-service=false"];
    let controllers = Controllers::start_with(plane, Tool::SparkOperator, &arguments, &variables).await?;
    install_webhooks(&client, port, &authority).await?;
    wait_until_they_answer(&mut webhooks, &client).await?;
    let drivers = Controllers::start(plane, Tool::SparkOperator, &["drivers"]).await?;
    Ok(Operator { _webhooks: webhooks, _controllers: controllers, _drivers: drivers })
}

/// Makes the certificate of the webhooks, where they look for it; its authority.
async fn certificates(client: &Client, folder: &Path) -> Result<Vec<u8>> {
    let mut command = program(Tool::SparkOperator)?;
    let made = command.arg("certificates").arg(folder).output().context("running the Spark operator")?;
    ensure!(made.status.success(), "certificates: {}", String::from_utf8_lossy(&made.stderr));
    let read = |name: &str| fs::read(folder.join(name)).with_context(|| format!("reading {name}"));
    let mut data = serde_json::Map::new();
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        data.insert(name.to_owned(), json!(ByteString(read(name)?)));
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": WEBHOOKS}, "data": data});
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let params = PatchParams::apply("sluice-testkit").force();
    secrets
        .patch(WEBHOOKS, &params, &Patch::Apply(&secret))
        .await
        .context("installing the certificate of the Spark operator's webhooks")?;
    read("ca.crt")
}

/// Tries an application without making it: the webhooks fill fields in.
async fn wait_until_they_answer(webhooks: &mut Controllers, client: &Client) -> Result<()> {
    let kind =
        ApiResource::from_gvk(&GroupVersionKind::gvk("sparkoperator.k8s.io", "v1beta2", "SparkApplication"));
    let applications: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let probe: DynamicObject = serde_json::from_value(probe()).context("making an application to try")?;
    let answered = webhooks.wait_until("the webhooks of the Spark operator", || async {
        let made = applications.create(&params, &probe).await?;
        let filled_in = made.data["spec"]["executor"]["instances"].clone();
        Ok(progress(filled_in == 1, filled_in))
    });
    answered.await
}

fn probe() -> Value {
    json!({
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "probe"},
        "spec": {"suspend": true, "type": "Python", "mode": "cluster", "sparkVersion": "4.0.0",
            "mainApplicationFile": "local:///none.py", "driver": {}, "executor": {}},
    })
}

/// The webhooks as the operator's own chart has them, at an address on this machine.
async fn install_webhooks(client: &Client, port: u16, authority: &[u8]) -> Result<()> {
    let webhook = |name: &str,
                   path: &str,
                   group: &str,
                   version: &str,
                   resource: &str,
                   operations: &[&str]| {
        json!({
            "name": format!("{name}.sparkoperator.k8s.io"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/{path}"),
                "caBundle": ByteString(authority.to_vec()),
            },
            "rules": [{"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations}],
        })
    };
    let applications = |verb: &str| {
        let path = format!("{verb}-sparkoperator-k8s-io-v1beta2-sparkapplication");
        webhook(&path, &path, "sparkoperator.k8s.io", "v1beta2", "sparkapplications", &["CREATE", "UPDATE"])
    };
    let mut pods = webhook("mutate--v1-pod", "mutate--v1-pod", "", "v1", "pods", &["CREATE"]);
    pods["objectSelector"] =
        json!({"matchLabels": {"sparkoperator.k8s.io/launched-by-spark-operator": "true"}});
    let of = |kind: &str, webhooks: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": WEBHOOKS}, "webhooks": webhooks});
    let params = PatchParams::apply("sluice-testkit").force();
    let mutating = of("MutatingWebhookConfiguration", json!([pods, applications("mutate")]));
    let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    all.patch(WEBHOOKS, &params, &Patch::Apply(&mutating))
        .await
        .context("installing the Spark operator's mutating webhooks")?;
    let validating = of("ValidatingWebhookConfiguration", json!([applications("validate")]));
    let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    all.patch(WEBHOOKS, &params, &Patch::Apply(&validating))
        .await
        .context("installing the Spark operator's validating webhooks")?;
    Ok(())
}
