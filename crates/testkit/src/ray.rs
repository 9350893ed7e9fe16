//! Ray's kinds: KubeRay's own operator as a process of the plane, with its CustomResourceDefinitions, built from a pinned Go module. Its one
//! webhook is off: it checks names alone.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::assets::{self, Tool};
use crate::plane::ControlPlane;
use crate::plane_parts::program;
use crate::process::Program;
use crate::wait::{Progress, eventually};

/// How long it may take until it looks after clusters.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// The CustomResourceDefinitions of all three kinds; builds the operator first where it is missing.
pub async fn crds() -> Result<Vec<CustomResourceDefinition>> {
    let paths =
        tokio::task::spawn_blocking(assets::ray_crds).await.context("building KubeRay's operator")??;
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))
    };
    paths.iter().map(read).collect()
}

/// Installs the CustomResourceDefinitions and waits until they are served.
pub async fn install_crds(client: &Client) -> Result<()> {
    crate::crds::apply(client, &crds().await?).await
}

/// The running operator. It is killed when this is dropped.
#[derive(Debug)]
pub struct Operator {
    program: Program,
}

impl Operator {
    /// Installs the CustomResourceDefinitions, starts the operator with the administrator's rights, and waits until it looks after
    /// clusters.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let client = plane.client().await?;
        install_crds(&client).await?;
        let mut command = program(Tool::KubeRayOperator)?;
        command.arg("--kubeconfig").arg(plane.kubeconfig_path());
        command.args(["--enable-leader-election=false", "--reconcile-concurrency=4"]);
        command.args(["--metrics-addr=0", "--health-probe-bind-address=0"]);
        // Workers without a container that asks the head, which no pod of a test answers.
        command.env("ENABLE_INIT_CONTAINER_INJECTION", "false");
        let mut operator = Self { program: plane.spawn("kuberay-operator", command)? };
        operator.wait_until_it_looks_after(&client).await?;
        Ok(operator)
    }

    /// Makes a cluster that waits, and removes it again once the operator has said something of it.
    async fn wait_until_it_looks_after(&mut self, client: &Client) -> Result<()> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
        let clusters: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
        let probe = serde_json::from_value(probe()).context("making a cluster to try")?;
        clusters.create(&PostParams::default(), &probe).await.context("making a cluster to try")?;
        let program = std::sync::Mutex::new(&mut self.program);
        let seen = eventually("KubeRay's operator", START_DEADLINE, || async {
            if let Ok(mut program) = program.lock()
                && let Err(error) = program.check()
            {
                return Ok(Progress::Never(format!("{error:#}")));
            }
            let status = clusters.get("probe").await?.data["status"]["state"].take();
            Ok(if status == "suspended" { Progress::Done(()) } else { Progress::NotYet(status.to_string()) })
        });
        if let Err(error) = seen.await {
            bail!("{error:#}\nthe log of KubeRay's operator ends:\n{}", self.program.log_tail(20));
        }
        clusters.delete("probe", &DeleteParams::default()).await.context("removing the cluster to try")?;
        Ok(())
    }
}

/// A cluster that is valid and does nothing.
fn probe() -> Value {
    let pod = json!({"spec": {"containers": [{"name": "ray", "image": "example.com/none"}]}});
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "probe"},
        "spec": {"suspend": true, "headGroupSpec": {"rayStartParams": {}, "template": pod}},
    })
}
