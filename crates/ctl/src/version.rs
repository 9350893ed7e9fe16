//! What this build is, and what runs in the cluster.

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;

use crate::connection::ClusterArgs;
use crate::print::print;

/// The version of the crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, if the build has it (`SLUICE_GIT_COMMIT`).
pub const COMMIT: &str = match option_env!("SLUICE_GIT_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// When it was built, if the build has that (`SLUICE_BUILD_DATE`): clocks have no place in reproducible builds.
pub const BUILD_DATE: &str = match option_env!("SLUICE_BUILD_DATE") {
    Some(date) => date,
    None => "unknown",
};

/// The platform, in Go's spelling as Kueue's metric has it.
pub fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}

/// Prints the version of this program and the images of the managers.
pub async fn print_both(cluster: &ClusterArgs, namespace: &str) -> anyhow::Result<u8> {
    print(&format!("client: {VERSION} ({COMMIT}, {})\n", platform()))?;
    let person = cluster.connect().await?;
    let deployments: Api<Deployment> = Api::namespaced(person.client, namespace);
    let managers = ListParams::default().labels("control-plane=controller-manager");
    let found = deployments
        .list(&managers)
        .await
        .with_context(|| format!("looking for the manager in {namespace}"))?;
    let containers = found
        .items
        .into_iter()
        .filter_map(|deployment| deployment.spec?.template.spec)
        .flat_map(|spec| spec.containers)
        .filter_map(|container| container.image);
    let images: Vec<_> = containers.collect();
    if images.is_empty() {
        bail!("there is no manager in namespace {namespace}");
    }
    print(&format!("manager: {}\n", images.join(", ")))?;
    Ok(0)
}
