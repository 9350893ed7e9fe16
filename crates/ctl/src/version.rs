//! The versions of this program and of the manager in the cluster.

use anyhow::Context as _;
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use sluice_client::version::{COMMIT, VERSION, platform};
use sluice_sim::explain::plain;

use crate::complete;
use crate::connection::{ClusterArgs, checked};
use crate::deployed::{Deployed, MANAGER_LABEL, NAMESPACE};
use crate::print::{print, say};

/// `kubectl kueue version`.
#[derive(Clone, Debug, Default, Args)]
pub struct VersionArgs {
    /// The namespace of the manager; --namespace names it, too [default: kueue-system]
    #[arg(long, value_name = "NAMESPACE", add = complete::namespaces())]
    pub manager_namespace: Option<String>,
}

impl VersionArgs {
    /// The namespace of the manager. That of the kubeconfig's context is where jobs are.
    fn namespace<'a>(&'a self, cluster: &'a ClusterArgs) -> &'a str {
        let given = self.manager_namespace.as_deref().or(cluster.namespace.as_deref());
        given.unwrap_or(NAMESPACE)
    }

    /// Prints the version of this program and the images of the managers, if there are any.
    ///
    /// # Errors
    ///
    /// If the namespace is not a name, the kubeconfig is not usable, the API server cannot be reached or refuses, or standard output cannot be written.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        let namespace = self.namespace(cluster);
        print(&format!("client: {VERSION} ({COMMIT}, {})\n", platform()))?;
        checked(namespace)?;
        let person = cluster.connect().await?;
        let deployments: Api<Deployment> = Api::namespaced(person.client, namespace);
        let managers = ListParams::default().labels(MANAGER_LABEL);
        let found = deployments
            .list(&managers)
            .await
            .with_context(|| format!("looking for the manager in {namespace}"))?;
        let images: Vec<&str> =
            found.items.iter().filter_map(|one| Deployed::of(one)?.container.image.as_deref()).collect();
        if images.is_empty() {
            say(&format!("There is no manager in namespace {namespace}."));
        } else {
            print(&format!("manager: {}\n", plain::whole(&images.join(", "))))?;
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_looked_for_in_the_namespace_that_is_given() {
        let looked = |manager: Option<&str>, namespace: Option<&str>| {
            let cluster = ClusterArgs { namespace: namespace.map(str::to_owned), ..ClusterArgs::default() };
            let args = VersionArgs { manager_namespace: manager.map(str::to_owned) };
            args.namespace(&cluster).to_owned()
        };
        assert_eq!(looked(None, None), "kueue-system");
        assert_eq!(looked(None, Some("sluice")), "sluice");
        assert_eq!(looked(Some("queues"), Some("team-a")), "queues");
    }
}
