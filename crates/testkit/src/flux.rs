//! A **stand-in** for the Flux operator: it makes the Job of each MiniCluster as the operator does, and resizes it with the MiniCluster. No Flux runs
//! in the pods. For tests only.
//!
//! The operator's other objects (its ConfigMaps, its services, its own container with Flux) do not matter for queueing, and are left out.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Config};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::crds;

const CRD: &str = include_str!("../../../tests/control-plane/minicluster-crd.yaml");
/// How often the operator lets a Job's pods fail.
const RETRIES: i64 = 100;
/// When to look again after a failure.
const RETRY: Duration = Duration::from_millis(200);

/// The running stand-in. It stops when this is dropped.
#[derive(Debug)]
pub struct Operator(JoinHandle<()>);

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An error that the runtime can print.
#[derive(Debug)]
struct Failure(anyhow::Error);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Failure {}

/// Installs the CustomResourceDefinition, and reconciles the MiniClusters of one namespace.
///
/// # Errors
/// Errors of the API server.
pub async fn start(client: &Client, namespace: &str) -> Result<Operator> {
    let crd: CustomResourceDefinition =
        serde_saphyr::from_str(CRD).context("reading the stand-in's CRD of MiniClusters")?;
    crds::apply(client, &[crd]).await?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let loops = Controller::new_with(
        mini_clusters(client, namespace),
        watcher::Config::default(),
        resource(),
    )
    .owns(jobs, watcher::Config::default())
    .with_config(Config::default().concurrency(1))
    .run(
        |cluster, client| async move { Box::pin(look_after(&cluster, &client)).await.map_err(Failure) },
        |_, _, _| Action::requeue(RETRY),
        Arc::new(client.clone()),
    )
    .for_each(|result| async move {
        if let Err(error) = result {
            tracing::debug!(%error, "Flux stand-in: will try again");
        }
    });
    Ok(Operator(tokio::spawn(loops)))
}

/// The API of the MiniClusters of a namespace.
pub fn mini_clusters(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("flux-framework.org", "v1alpha2", "MiniCluster");
    ApiResource::from_gvk_with_plural(&kind, "miniclusters")
}

/// Makes the Job of a MiniCluster, or resizes it to the current size. It may not grow beyond its first size.
async fn look_after(cluster: &DynamicObject, client: &Client) -> Result<Action> {
    let size = size(cluster);
    if size == 0 || cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    let Some(known) = jobs.get_opt(&name).await.with_context(|| format!("reading the Job {name}"))? else {
        let job = serde_json::from_value(job(cluster)).context("making a Job")?;
        jobs.create(&PostParams::default(), &job).await.with_context(|| format!("making the Job {name}"))?;
        let most = cluster.data["spec"]["maxSize"].as_i64().unwrap_or(size).max(size);
        report(cluster, client, json!({"size": size, "maximumSize": most})).await?;
        return Ok(Action::await_change());
    };
    let now = known.spec.and_then(|spec| spec.parallelism).map_or(0, i64::from);
    let most = cluster.data["status"]["maximumSize"].as_i64().unwrap_or(now).max(1);
    if !(1..=most).contains(&size) {
        let body = Patch::Merge(json!({"spec": {"size": size.clamp(now.clamp(1, most), most)}}));
        mini_clusters(client, &namespace)
            .patch(&name, &PatchParams::default(), &body)
            .await
            .with_context(|| format!("resetting the size of {name}"))?;
    } else if now != size {
        let body = Patch::Merge(json!({"spec": {"parallelism": size, "completions": size}}));
        jobs.patch(&name, &PatchParams::default(), &body)
            .await
            .with_context(|| format!("changing the size of the Job {name}"))?;
        report(cluster, client, json!({"size": size})).await?;
    }
    Ok(Action::await_change())
}

/// Writes into the status of a MiniCluster.
async fn report(cluster: &DynamicObject, client: &Client, status: Value) -> Result<()> {
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let body = Patch::Merge(json!({"status": status}));
    mini_clusters(client, &namespace)
        .patch_status(&name, &PatchParams::default(), &body)
        .await
        .with_context(|| format!("writing the status of {name}"))?;
    Ok(())
}

fn size(cluster: &DynamicObject) -> i64 {
    cluster.data["spec"]["size"].as_i64().unwrap_or(1)
}

/// The Job of a MiniCluster: as many indexed pods as its size says, each with all of its containers.
pub fn job(cluster: &DynamicObject) -> Value {
    let size = size(cluster);
    let spec = &cluster.data["spec"];
    let (name, pod) = (cluster.name_any(), &spec["pod"]);
    let mut labels = pod["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("app.kubernetes.io/name".to_owned(), json!(name));
    labels.insert("namespace".to_owned(), json!(cluster.namespace()));
    labels.insert("hpa-selector".to_owned(), json!(name));
    let container = |(index, given): (usize, &Value)| {
        let name = given["name"].as_str().map_or_else(|| format!("{name}-{index}"), str::to_owned);
        json!({"name": name, "image": given["image"], "resources": given["resources"], "workingDir": given["workingDir"]})
    };
    let containers = spec["containers"].as_array().into_iter().flatten().enumerate().map(container);
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": spec["jobLabels"],
            "ownerReferences": [{
                "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "name": name,
                "uid": cluster.uid(), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "backoffLimit": spec["backoffLimit"].as_i64().unwrap_or(RETRIES),
            "completions": size,
            "parallelism": size,
            "completionMode": "Indexed",
            "activeDeadlineSeconds": spec["deadlineSeconds"],
            "template": {
                "metadata": {"labels": labels, "annotations": pod["annotations"]},
                "spec": {
                    "restartPolicy": "OnFailure",
                    "subdomain": "flux-service",
                    "setHostnameAsFQDN": false,
                    "nodeSelector": pod["nodeSelector"],
                    "tolerations": pod["tolerations"],
                    "runtimeClassName": pod["runtimeClassName"],
                    "schedulerName": pod["schedulerName"],
                    "containers": containers.collect::<Vec<_>>(),
                },
            },
        },
    })
}
