//! The versions of this program and of the manager in the cluster.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use sluice_client::version::{COMMIT, VERSION, platform};
use sluice_sim::explain::plain;

use crate::connection::{ClusterArgs, checked};
use crate::print::{print, say};

/// Prints the version of this program and the images of the managers, if there are any.
///
/// # Errors
///
/// If the namespace is not a name, the kubeconfig is not usable, the API server cannot be reached or refuses, or standard output cannot be written.
pub async fn print_both(cluster: &ClusterArgs, namespace: &str) -> anyhow::Result<u8> {
    print(&format!("client: {VERSION} ({COMMIT}, {})\n", platform()))?;
    checked(namespace)?;
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
        say(&format!("There is no manager in namespace {namespace}."));
    } else {
        print(&format!("manager: {}\n", plain::whole(&images.join(", "))))?;
    }
    Ok(0)
}
