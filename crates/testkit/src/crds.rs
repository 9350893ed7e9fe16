//! Installing CustomResourceDefinitions and waiting until they are served.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};

use crate::wait::{eventually, look};

/// How long the API server may take to serve a new kind.
const DEADLINE: Duration = Duration::from_secs(30);

/// Applies the definitions (server-side) and waits until each is established.
pub async fn apply(client: &Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("sluice-testkit").force();
    for crd in crds {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        api.patch(name, &params, &Patch::Apply(crd))
            .await
            .with_context(|| format!("installing the CRD {name}"))?;
    }
    for crd in crds {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        eventually(&format!("the CRD {name} to be established"), DEADLINE, || async {
            let status = api.get(name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let established = conditions.iter().any(|one| one.type_ == "Established" && one.status == "True");
            Ok(look(established, format!("{conditions:?}")))
        })
        .await?;
    }
    Ok(())
}
