//! Installing CustomResourceDefinitions and waiting until they are served.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::core::discovery::v2::APIGroupDiscoveryList;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::wait::{Progress, eventually, progress};

/// How long the API server may take to serve a new kind.
const DEADLINE: Duration = Duration::from_mins(3);

/// Where the API server has the definitions.
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Sluice's own, which take a while to be generated.
static OWN: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(sluice_api::crds);

/// Sluice's own definitions, generated once.
pub fn own() -> &'static [CustomResourceDefinition] {
    &OWN
}

/// What of a definition is read back: without the schema, which is nearly all of it, and which a test would decode for longer than it looks at
/// anything else.
#[derive(Deserialize)]
struct Bare {
    spec: BareSpec,
}

#[derive(Deserialize)]
struct BareSpec {
    conversion: Option<CustomResourceConversion>,
}

/// Installs Sluice's own CRDs. With `webhook_url` objects of v1beta1 are converted by the manager that listens there, which
/// also puts its certificate authority in; without it the API server does not convert, and only v1beta2 is of use.
///
/// # Errors
///
/// As [`apply`].
pub async fn install(client: &Client, webhook_url: Option<&str>) -> Result<()> {
    let mut crds = own().to_vec();
    for crd in &mut crds {
        match (&mut crd.spec.conversion, webhook_url) {
            (Some(conversion), Some(url)) => {
                if let Some(config) =
                    conversion.webhook.as_mut().and_then(|webhook| webhook.client_config.as_mut())
                {
                    config.service = None;
                    config.url = Some(format!("{url}/convert"));
                }
            }
            (conversion, _) => *conversion = None,
        }
    }
    apply(client, &crds).await
}

/// Makes the definitions, applies those that are there already (server-side), and waits until each is served.
///
/// # Errors
///
/// If the API server cannot be reached, refuses a definition, or does not serve them all in time: see [`wait_until_served`].
pub async fn apply(client: &Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    for crd in crds {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        put(client, name, crd).await.with_context(|| format!("installing the CRD {name}"))?;
    }
    wait_until_served(client, crds).await
}

/// Makes a definition, which costs the API server less than to apply one: that it does where one is there.
async fn put(client: &Client, name: &str, crd: &CustomResourceDefinition) -> Result<()> {
    let body = serde_json::to_vec(crd)?;
    let query = "fieldManager=sluice-testkit";
    let post = (Method::POST, format!("{PATH}?{query}"), "application/json");
    match send::<IgnoredAny>(client, post, body.clone()).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let apply =
                (Method::PATCH, format!("{PATH}/{name}?{query}&force=true"), "application/apply-patch+yaml");
            send::<IgnoredAny>(client, apply, body).await?;
        }
        made => drop(made?),
    }
    Ok(())
}

async fn send<T: DeserializeOwned>(
    client: &Client,
    (method, uri, content): (Method, String, &str),
    body: Vec<u8>,
) -> kube::Result<T> {
    let request = Request::builder().method(method).uri(uri).header("content-type", content).body(body);
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// Waits until the API server serves every one of the definitions and names it in its discovery, from which kubectl knows the
/// kinds: "established" comes a moment before the first, and that a moment before the second.
///
/// # Errors
///
/// If a definition is not served within three minutes, or the discovery does not list all of them within three more.
pub async fn wait_until_served(client: &Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    for crd in crds {
        let Some(version) = crd.spec.versions.iter().find(|version| version.storage) else { continue };
        let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        eventually(&format!("{} to be served", crd.spec.names.plural), DEADLINE, || async {
            objects.list(&ListParams::default().limit(1)).await?;
            Ok(Progress::Done(()))
        })
        .await?;
    }
    eventually("the definitions in the discovery", DEADLINE, || async {
        let missing = undiscovered(&client.list_api_groups_aggregated().await?, crds);
        Ok(progress(missing.is_empty(), format!("without {}", missing.join(", "))))
    })
    .await
}

/// Those of the definitions of which a served version is not in the discovery.
///
/// # Errors
///
/// If the API server cannot be reached.
pub async fn missing(
    client: &Client,
    crds: &[CustomResourceDefinition],
) -> Result<Vec<CustomResourceDefinition>> {
    let discovery = client.list_api_groups_aggregated().await.context("asking for the served kinds")?;
    let is_missing =
        |crd: &&CustomResourceDefinition| !undiscovered(&discovery, std::slice::from_ref(crd)).is_empty();
    Ok(crds.iter().filter(is_missing).cloned().collect())
}

/// Every served version of the definitions that the discovery does not name yet, as `group/version/plural`.
fn undiscovered(discovery: &APIGroupDiscoveryList, crds: &[CustomResourceDefinition]) -> Vec<String> {
    let named: HashSet<_> = discovery
        .items
        .iter()
        .flat_map(|group| {
            let name = group.metadata.as_ref().and_then(|metadata| metadata.name.as_deref());
            group.versions.iter().map(move |version| (name, version))
        })
        .flat_map(|(group, version)| {
            version
                .resources
                .iter()
                .map(move |it| (group, version.version.as_deref(), it.resource.as_deref()))
        })
        .collect();
    let mut missing = Vec::new();
    for crd in crds {
        let (group, plural) = (crd.spec.group.as_str(), crd.spec.names.plural.as_str());
        for version in crd.spec.versions.iter().filter(|version| version.served) {
            if !named.contains(&(Some(group), Some(version.name.as_str()), Some(plural))) {
                missing.push(format!("{group}/{}/{plural}", version.name));
            }
        }
    }
    missing
}

/// Waits until a manager has put its certificate authority into all of Sluice's CRDs with a conversion webhook, and the API server serves them again:
/// it stops serving a changed definition for a moment.
///
/// # Errors
///
/// If one of these waits takes more than three minutes: for the certificate authority in a definition, for the definitions to be served, for the
/// webhooks to accept a ClusterQueue.
pub async fn wait_until_converting(client: &Client) -> Result<()> {
    for crd in own() {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        eventually(&format!("the certificate authority in {name}"), DEADLINE, || async {
            let get = (Method::GET, format!("{PATH}/{name}"), "application/json");
            let found: Bare = send(client, get, Vec::new()).await?;
            let conversion = found.spec.conversion.unwrap_or_default();
            let config = conversion.webhook.and_then(|webhook| webhook.client_config).unwrap_or_default();
            let has_authority = config.ca_bundle.is_some_and(|bundle| !bundle.0.is_empty());
            Ok(progress(conversion.strategy != "Webhook" || has_authority, "not there"))
        })
        .await?;
    }
    wait_until_served(client, own()).await?;
    wait_until_admitting(client).await
}

/// Waits until the API server calls the manager's webhooks with the certificate authority in both of their configurations: it notices a change a
/// moment later. A dry run of a ClusterQueue passes both.
async fn wait_until_admitting(client: &Client) -> Result<()> {
    let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "ClusterQueue");
    let queues: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let probe = serde_json::from_value(serde_json::json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "probe"}, "spec": {},
    }))
    .context("making a ClusterQueue to try")?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the API server to reach the webhooks", DEADLINE, || async {
        queues.create(&params, &probe).await?;
        Ok(Progress::Done(()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_is_known_when_the_discovery_names_each_of_its_served_versions() {
        let crds: Vec<_> = sluice_api::crds()
            .into_iter()
            .filter(|crd| ["Workload", "ClusterQueue"].contains(&crd.spec.names.kind.as_str()))
            .collect();
        let discovery = |versions: serde_json::Value| {
            let group = json!({"metadata": {"name": "kueue.x-k8s.io"}, "versions": versions});
            serde_json::from_value(json!({"items": [group]})).unwrap()
        };
        let both = json!([{"resource": "clusterqueues"}, {"resource": "workloads"}]);
        let lagging = discovery(json!([
            {"version": "v1beta2", "resources": both},
            {"version": "v1beta1", "resources": [{"resource": "clusterqueues"}]},
        ]));
        assert_eq!(undiscovered(&lagging, &crds), ["kueue.x-k8s.io/v1beta1/workloads"]);
        let complete = discovery(json!([
            {"version": "v1beta2", "resources": both},
            {"version": "v1beta1", "resources": both},
        ]));
        assert!(undiscovered(&complete, &crds).is_empty());
        assert_eq!(undiscovered(&APIGroupDiscoveryList::default(), &crds).len(), 4);
    }
}
