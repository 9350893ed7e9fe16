//! The CA into the objects by which the API server calls the webhooks: both WebhookConfigurations and the CRDs'
//! conversion. Entries by Service and by URL are treated alike.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::{Method, Uri};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;

use crate::api_call::{Call, CallError, Content};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The CRDs whose conversion is a webhook (docs/reference/01-api.md 1.0).
const CONVERTED: [&str; 5] = ["clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"];

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClientConfig {
    ca_bundle: Option<ByteString>,
    url: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WebhookEntry {
    name: String,
    #[serde(default)]
    client_config: ClientConfig,
}

#[derive(Clone, Debug, Deserialize)]
struct WebhookConfiguration {
    #[serde(default)]
    webhooks: Vec<WebhookEntry>,
}

#[derive(Clone, Debug, Deserialize)]
struct Crd {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: CrdSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct CrdSpec {
    conversion: Conversion,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Conversion {
    webhook: Option<ConversionWebhook>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConversionWebhook {
    client_config: ClientConfig,
}

#[derive(Clone, Debug, Deserialize)]
struct OnlyMetadata {
    metadata: ObjectMeta,
}

/// The prefix of the chart's names, as the webhook Service's name tells.
pub fn prefix_of(service: &str) -> &str {
    service.strip_suffix("-webhook-service").unwrap_or("kueue")
}

/// Which webhook configurations are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The MutatingWebhookConfiguration's name.
    pub mutating: String,
    /// The ValidatingWebhookConfiguration's name.
    pub validating: String,
}

impl Targets {
    /// The names that go with a Service name: the chart derives all three from one prefix.
    pub fn of_service(service: &str) -> Self {
        let prefix = prefix_of(service);
        Self {
            mutating: format!("{prefix}-mutating-webhook-configuration"),
            validating: format!("{prefix}-validating-webhook-configuration"),
        }
    }

    fn uris(&self) -> [String; 2] {
        let base = "/apis/admissionregistration.k8s.io/v1";
        [
            format!("{base}/mutatingwebhookconfigurations/{}", self.mutating),
            format!("{base}/validatingwebhookconfigurations/{}", self.validating),
        ]
    }
}

/// Puts the CA where it is missing. Remembers what it has seen, so that an unchanged CRD (hundreds of kilobytes) is not
/// fetched again.
pub struct Injector {
    client: Client,
    targets: Targets,
    /// The resourceVersion seen, and the conversion webhook if there is one.
    crds: BTreeMap<&'static str, (String, Option<ClientConfig>)>,
    webhooks: BTreeMap<String, Vec<WebhookEntry>>,
}

impl Injector {
    /// An injector that has seen nothing.
    pub fn new(client: Client, targets: Targets) -> Self {
        Self { client, targets, crds: BTreeMap::new(), webhooks: BTreeMap::new() }
    }

    /// Reads what changed. An object that does not exist (yet) is no error.
    pub async fn refresh(&mut self) -> Result<(), CallError> {
        for uri in self.targets.uris() {
            let found = Call::get(&uri).send_as::<WebhookConfiguration>(&self.client, TIMEOUT).await;
            match found {
                Ok(found) => self.webhooks.insert(uri, found.webhooks),
                Err(error) if error.code() == Some(404) => self.webhooks.remove(&uri),
                Err(error) => return Err(error),
            };
        }
        for plural in CONVERTED {
            let uri = crd_uri(plural);
            let seen = Call::get(&uri).metadata_only().send_as::<OnlyMetadata>(&self.client, TIMEOUT).await;
            let version = match seen {
                Ok(seen) => seen.metadata.resource_version.unwrap_or_default(),
                Err(error) if error.code() == Some(404) => {
                    self.crds.remove(plural);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.crds.get(plural).is_none_or(|(known, _)| *known != version) {
                let crd: Crd = Call::get(&uri).send_as(&self.client, TIMEOUT).await?;
                self.note_crd(plural, crd);
            }
        }
        Ok(())
    }

    fn note_crd(&mut self, plural: &'static str, crd: Crd) {
        let version = crd.metadata.resource_version.unwrap_or_default();
        let config = crd.spec.conversion.webhook.map(|w| w.client_config);
        self.crds.insert(plural, (version, config));
    }

    /// The hosts of all entries that are reached by URL: the serving certificate must name them.
    pub fn hosts(&self) -> BTreeSet<String> {
        let webhooks = self.webhooks.values().flatten().map(|entry| &entry.client_config);
        let crds = self.crds.values().filter_map(|(_, config)| config.as_ref());
        webhooks.chain(crds).filter_map(|config| host(config.url.as_deref()?)).collect()
    }

    /// Writes the CA where another one (or none) stands.
    pub async fn inject(&mut self, ca_bundle: &str) -> Result<(), CallError> {
        let bundle = ByteString(ca_bundle.as_bytes().to_vec());
        for (uri, entries) in &mut self.webhooks {
            let patch = webhook_patch(entries, &bundle);
            if patch.is_empty() {
                continue;
            }
            let call = Call::with_body(Method::PATCH, uri.as_str(), Content::JsonPatch, &patch);
            let found: WebhookConfiguration = call.send_as(&self.client, TIMEOUT).await?;
            info!(object = %uri, entries = patch.len() / 2, "the CA was put in");
            *entries = found.webhooks;
        }
        for plural in CONVERTED {
            // A CRD of another making may have no conversion webhook.
            let Some((_, Some(config))) = self.crds.get(plural) else { continue };
            if config.ca_bundle.as_ref() == Some(&bundle) {
                continue;
            }
            let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
            let call = Call::with_body(Method::PATCH, crd_uri(plural), Content::MergePatch, &patch);
            let crd: Crd = call.send_as(&self.client, TIMEOUT).await?;
            info!(crd = %plural, "the CA was put in");
            self.note_crd(plural, crd);
        }
        Ok(())
    }
}

fn crd_uri(plural: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.kueue.x-k8s.io")
}

fn host(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    Some(uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned())
}

/// One test and one change per entry with another CA: the test keeps a list that changed meanwhile from being patched at
/// the wrong place.
fn webhook_patch(entries: &[WebhookEntry], bundle: &ByteString) -> Vec<Value> {
    entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.client_config.ca_bundle.as_ref() != Some(bundle))
        .flat_map(|(i, entry)| {
            [
                json!({"op": "test", "path": format!("/webhooks/{i}/name"), "value": entry.name}),
                json!({"op": "add", "path": format!("/webhooks/{i}/clientConfig/caBundle"), "value": bundle}),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, ca: Option<&str>) -> WebhookEntry {
        let ca_bundle = ca.map(|ca| ByteString(ca.as_bytes().to_vec()));
        WebhookEntry { name: name.to_owned(), client_config: ClientConfig { ca_bundle, url: None } }
    }

    #[test]
    fn only_entries_with_another_ca_are_patched_and_each_is_tested_by_name() {
        let entries = [entry("a.kb.io", Some("new")), entry("b.kb.io", Some("old")), entry("c.kb.io", None)];
        let patch = webhook_patch(&entries, &ByteString(b"new".to_vec()));
        let paths: Vec<_> = patch.iter().map(|op| op["path"].as_str().unwrap()).collect();
        assert_eq!(
            paths,
            [
                "/webhooks/1/name",
                "/webhooks/1/clientConfig/caBundle",
                "/webhooks/2/name",
                "/webhooks/2/clientConfig/caBundle"
            ]
        );
        assert_eq!(patch[0]["value"], "b.kb.io");
        assert_eq!(patch[1]["value"], "bmV3");
    }

    #[test]
    fn names_follow_the_service() {
        let targets = Targets::of_service("team-kueue-webhook-service");
        assert_eq!(targets.mutating, "team-kueue-mutating-webhook-configuration");
        assert_eq!(Targets::of_service("hooks").validating, "kueue-validating-webhook-configuration");
    }

    #[test]
    fn hosts_of_urls_are_names_and_addresses() {
        assert_eq!(host("https://127.0.0.1:9443/convert").as_deref(), Some("127.0.0.1"));
        assert_eq!(host("https://[::1]:9443/convert").as_deref(), Some("::1"));
        assert_eq!(host("https://hooks.example/convert").as_deref(), Some("hooks.example"));
        assert_eq!(host("not a url"), None);
    }
}
