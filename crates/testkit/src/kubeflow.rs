//! Kubeflow's jobs: the real controllers of the training operator and of the MPI operator as one process of the plane, with their
//! CustomResourceDefinitions and webhooks, built from pinned Go modules.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::assets::{self, Tool};
use crate::certs::WEBHOOK;
use crate::plane::ControlPlane;
use crate::plane_parts::program;
use crate::ports::free_ports;
use crate::process::Program;
use crate::wait::{Progress, eventually};

/// How long it may take until it answers as a webhook.
const START_DEADLINE: Duration = Duration::from_mins(1);
/// The training operator's webhooks.
const WEBHOOKS: &str = "validator.training-operator.kubeflow.org";

/// The CustomResourceDefinitions of all six kinds; builds the controllers first where they are missing.
pub async fn crds() -> Result<Vec<CustomResourceDefinition>> {
    let paths = tokio::task::spawn_blocking(assets::kubeflow_crds)
        .await
        .context("building the controllers of Kubeflow's jobs")??;
    let read = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))
    };
    paths.iter().map(read).collect()
}

/// Installs the CustomResourceDefinitions and waits until they are served.
pub async fn install_crds(client: &Client) -> Result<()> {
    crate::crds::apply(client, &crds().await?).await
}

/// The running controllers. They are killed when this is dropped, and the webhooks with them: only MPIJobs can be made then.
#[derive(Debug)]
pub struct Controllers {
    program: Program,
}

impl Controllers {
    /// Installs the CustomResourceDefinitions and the webhooks, starts the controllers with the administrator's rights, and waits until
    /// jobs can be made.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let client = plane.client().await?;
        install_crds(&client).await?;
        let folder = plane.folder().join("kubeflow");
        fs::create_dir_all(&folder).context("making the folder of Kubeflow's controllers")?;
        for (file, name) in [("crt", "tls.crt"), ("key", "tls.key")] {
            fs::copy(plane.cert(&format!("{WEBHOOK}.{file}")), folder.join(name))
                .context("copying the webhooks' certificate")?;
        }
        let port = free_ports(1)?[0];
        let mut command = program(Tool::KubeflowControllers)?;
        command.arg("--kubeconfig").arg(plane.kubeconfig_path());
        command.arg("--cert-dir").arg(&folder).args(["--webhook-port", &port.to_string()]);
        let mut controllers = Self { program: plane.spawn("kubeflow-controllers", command)? };
        install_webhooks(&client, port, &fs::read(plane.ca_path()).context("reading the plane's CA")?)
            .await?;
        controllers.wait_until_they_answer(&client).await?;
        Ok(controllers)
    }

    /// Tries a job without making it, which needs its webhook.
    async fn wait_until_they_answer(&mut self, client: &Client) -> Result<()> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob"));
        let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let probe: DynamicObject = serde_json::from_value(probe()).context("making a job to try")?;
        let program = std::sync::Mutex::new(&mut self.program);
        let answered = eventually("the webhooks of Kubeflow's controllers", START_DEADLINE, || async {
            if let Ok(mut program) = program.lock()
                && let Err(error) = program.check()
            {
                return Ok(Progress::Never(format!("{error:#}")));
            }
            jobs.create(&params, &probe).await?;
            Ok(Progress::Done(()))
        });
        if let Err(error) = answered.await {
            bail!("{error:#}\nthe log of Kubeflow's controllers ends:\n{}", self.program.log_tail(20));
        }
        Ok(())
    }
}

/// A job that is valid and does nothing.
fn probe() -> Value {
    let pod = json!({"spec": {"containers": [{"name": "pytorch", "image": "example.com/none"}]}});
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
