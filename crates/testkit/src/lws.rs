//! LeaderWorkerSets: their real controllers as one process of the plane, with their webhooks, built from a pinned Go module. kube-controller-manager
//! handles the StatefulSets that they make.

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
use crate::certs::WEBHOOK;
use crate::controllers::Controllers;
use crate::plane::ControlPlane;
use crate::ports::free_ports;
use crate::wait::progress;

/// Their webhooks, as their own manifests name them.
const DEFAULTER: &str = "lws-mutating-webhook-configuration";
const VALIDATOR: &str = "lws-validating-webhook-configuration";

/// Starts the controllers and installs their webhooks, and waits until LeaderWorkerSets can be made.
///
/// # Errors
///
/// As [`Controllers::start`]; and if no port is free, the webhooks are refused, or the controllers end or their webhooks do not answer within
/// three minutes.
pub async fn start(plane: &ControlPlane) -> Result<Controllers> {
    let folder = plane.folder().join("lws");
    fs::create_dir_all(&folder).context("making the folder of the LeaderWorkerSets' webhooks")?;
    for (file, name) in [("crt", "tls.crt"), ("key", "tls.key")] {
        fs::copy(plane.cert(&format!("{WEBHOOK}.{file}")), folder.join(name))
            .context("copying the webhooks' certificate")?;
    }
    let port = free_ports(1)?[0];
    let (folder, given) = (folder.display().to_string(), port.to_string());
    let arguments = ["--cert-dir", &folder, "--webhook-port", &given];
    let mut controllers = Controllers::start(plane, Tool::LwsControllers, &arguments).await?;
    let client = plane.client().await?;
    install_webhooks(&client, port, &fs::read(plane.ca_path()).context("reading the plane's CA")?).await?;
    wait_until_they_answer(&mut controllers, &client).await?;
    Ok(controllers)
}

/// Tries a LeaderWorkerSet without making it until the webhook fills fields in.
async fn wait_until_they_answer(controllers: &mut Controllers, client: &Client) -> Result<()> {
    let kind =
        ApiResource::from_gvk(&GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"));
    let sets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let pod = json!({"spec": {"containers": [{"name": "main", "image": "example.com/none"}]}});
    let probe = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "probe"},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": pod}},
    });
    let probe: DynamicObject = serde_json::from_value(probe).context("making a LeaderWorkerSet to try")?;
    let answered = controllers.wait_until("the LeaderWorkerSets' webhooks", || async {
        let made = sets.create(&params, &probe).await?;
        let filled_in = made.data["spec"]["networkConfig"]["subdomainPolicy"].clone();
        Ok(progress(filled_in == "Shared", filled_in))
    });
    answered.await
}

/// The webhooks as in their own manifests, at an address of this machine. Only the pods of LeaderWorkerSets are sent.
async fn install_webhooks(client: &Client, port: u16, authority: &[u8]) -> Result<()> {
    let webhook = |name: &str, path: &str, rule: Value, objects: Value| {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/{path}"),
                "caBundle": ByteString(authority.to_vec()),
            },
            "objectSelector": objects,
            "rules": [rule],
        })
    };
    let sets = || {
        json!({"apiGroups": ["leaderworkerset.x-k8s.io"], "apiVersions": ["v1"],
            "resources": ["leaderworkersets"], "operations": ["CREATE", "UPDATE"]})
    };
    let pods =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]});
    let labelled =
        json!({"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]});
    let path = |verb: &str| format!("{verb}-leaderworkerset-x-k8s-io-v1-leaderworkerset");
    let configuration = |kind: &str, name: &str, webhooks: Vec<Value>| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks,
        })
    };
    let mutating = configuration(
        "MutatingWebhookConfiguration",
        DEFAULTER,
        vec![
            webhook("mleaderworkerset.lws.test", &path("mutate"), sets(), json!({})),
            webhook("mpod.lws.test", "mutate--v1-pod", pods, labelled),
        ],
    );
    let validating = configuration(
        "ValidatingWebhookConfiguration",
        VALIDATOR,
        vec![webhook("vleaderworkerset.lws.test", &path("validate"), sets(), json!({}))],
    );
    let params = PatchParams::apply("sluice-testkit").force();
    let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    all.patch(DEFAULTER, &params, &Patch::Apply(&mutating))
        .await
        .context("installing the LeaderWorkerSets' defaulter")?;
    let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    all.patch(VALIDATOR, &params, &Patch::Apply(&validating))
        .await
        .context("installing the LeaderWorkerSets' validator")?;
    Ok(())
}
