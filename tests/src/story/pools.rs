//! Node pools that announce their removal, and stay nevertheless.

use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice_testkit::ControlPlane;
use sluice_testkit::kubectl::kubectl;

/// The label that makes pools.
const POOL: &str = "cloud.google.com/gke-nodepool";
/// The label of nodes that are about to go.
const LABEL: &str = "cloud.google.com/active-node-maintenance";
/// The key of the taint that they have.
const TAINT: &str = "cloud.google.com/impending-node-termination";

async fn get(plane: &ControlPlane, args: &[&str]) -> Result<Vec<Value>> {
    let args: Vec<_> = ["get", "-o", "json"].iter().chain(args).copied().collect();
    let mut found: Value = serde_json::from_str(&kubectl(plane, &args).await?)?;
    Ok(found["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// The first pool, by name, that the pods of a JobSet are on says that it is about to go.
///
/// # Errors
/// The API server's, or that there is none.
pub async fn depart(plane: &ControlPlane, jobset: &str) -> Result<()> {
    let (namespace, name) = jobset.split_once('/').unwrap_or(("default", jobset));
    let selector = format!("jobset.sigs.k8s.io/jobset-name={name}");
    let pods = get(plane, &["pods", "-n", namespace, "-l", &selector]).await?;
    let on = |node: &Value| pods.iter().any(|pod| pod["spec"]["nodeName"] == node["metadata"]["name"]);
    let nodes = get(plane, &["nodes"]).await?;
    let pools =
        nodes.iter().filter(|node| on(node)).filter_map(|node| node["metadata"]["labels"][POOL].as_str());
    let pool = pools.min().with_context(|| format!("{jobset} has no pods on a node pool"))?;
    let selector = format!("{POOL}={pool}");
    kubectl(plane, &["taint", "nodes", "-l", &selector, &format!("{TAINT}=:NoSchedule")]).await?;
    kubectl(plane, &["label", "nodes", "-l", &selector, &format!("{LABEL}=true")]).await?;
    Ok(())
}

/// No node is about to go any more.
///
/// # Errors
/// The API server's.
pub async fn come_back(plane: &ControlPlane) -> Result<()> {
    let selector = format!("{LABEL}=true");
    kubectl(plane, &["taint", "nodes", "-l", &selector, &format!("{TAINT}:NoSchedule-")]).await?;
    kubectl(plane, &["label", "nodes", "-l", &selector, &format!("{LABEL}-")]).await?;
    Ok(())
}
