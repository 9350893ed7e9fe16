//! The pod of the leading manager, from its lease.

use anyhow::{Context as _, bail};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use sluice_client::lease;

use crate::cluster::object;
use crate::connection::checked;

/// The pod of the leading manager.
///
/// # Errors
///
/// If the namespace or the name is invalid, the lease cannot be read or does not exist, or it has no holder or one that is not Sluice.
pub async fn pod(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    object(checked(namespace)?, name)?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let found =
        leases.get_opt(name).await.with_context(|| format!("reading the lease {namespace}/{name}"))?;
    let holder = found.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity).unwrap_or_default();
    pod_of(&holder).map(str::to_owned).with_context(|| format!("the lease {namespace}/{name}"))
}

/// The pod that an identity names.
fn pod_of(holder: &str) -> anyhow::Result<&str> {
    if holder.is_empty() {
        bail!("it has no holder: check that the manager runs in that namespace");
    }
    lease::pod_of(holder).with_context(|| format!("its holder {holder} is not Sluice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_is_what_stands_between_prefix_and_uuid() {
        assert_eq!(pod_of("sluice_kueue-controller-manager-1_2f3a").unwrap(), "kueue-controller-manager-1");
        assert!(pod_of("").unwrap_err().to_string().contains("has no holder"));
        assert!(pod_of("kueue-controller-manager-1_2f3a").unwrap_err().to_string().contains("not Sluice"));
    }
}
