//! Writes the CA into the objects through which the API server calls the manager: both WebhookConfigurations, the CRDs' conversion, and the
//! APIServices, with a Service or a URL.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use axum::http::{Method, Uri};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{debug, info};

use super::refusals::{Refusals, Refused, is_refusal, reference};
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
    metadata: ObjectMeta,
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

/// The APIServices of the aggregated APIs (docs/reference/08-tooling.md 8.5).
const API_SERVICES: [&str; 3] = [
    "v1beta1.visibility.kueue.x-k8s.io",
    "v1beta2.visibility.kueue.x-k8s.io",
    "v1alpha1.visibility.sluice.dev",
];

#[derive(Clone, Debug, Deserialize)]
struct ApiService {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ApiServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiServiceSpec {
    ca_bundle: Option<ByteString>,
    #[serde(rename = "insecureSkipTLSVerify")]
    insecure: bool,
    service: Option<ServiceReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceReference {
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct OnlyMetadata {
    metadata: ObjectMeta,
}

/// The prefix of the chart's names, as the webhook Service's name says.
pub fn prefix_of(service: &str) -> &str {
    service.strip_suffix("-webhook-service").unwrap_or("kueue")
}

/// The Service of the aggregated APIs: its name has the same prefix as that of the webhooks.
pub fn visibility_service(webhooks: &str) -> String {
    format!("{}-visibility-server", prefix_of(webhooks))
}

/// The Service of the dashboard.
pub fn dashboard_service(webhooks: &str) -> String {
    format!("{}-dashboard", prefix_of(webhooks))
}

/// The Service of the metrics.
pub fn metrics_service(webhooks: &str) -> String {
    format!("{}-controller-manager-metrics-service", prefix_of(webhooks))
}

/// Which objects are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The MutatingWebhookConfiguration's name.
    pub mutating: String,
    /// The ValidatingWebhookConfiguration's name.
    pub validating: String,
    /// Namespace and name of the Service that an APIService of ours points to.
    pub apis: (String, String),
}

impl Targets {
    /// The names that belong to a Service's name: the chart derives all three from one prefix.
    pub fn of_service(service: &str, namespace: &str) -> Self {
        let prefix = prefix_of(service);
        Self {
            mutating: format!("{prefix}-mutating-webhook-configuration"),
            validating: format!("{prefix}-validating-webhook-configuration"),
            apis: (namespace.to_owned(), visibility_service(service)),
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

/// Why the CA is not everywhere.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A change is refused; the other objects have the CA.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Puts the CA where it is missing. Remembers what it has seen, so that an unchanged CRD (hundreds of kilobytes) is not
/// fetched again.
pub struct Injector {
    client: Client,
    targets: Targets,
    /// What was seen, and the conversion webhook if there is one.
    crds: BTreeMap<&'static str, (ObjectMeta, Option<ClientConfig>)>,
    webhooks: BTreeMap<String, WebhookConfiguration>,
    /// What is refused.
    pub(super) refusals: Refusals,
}

impl Injector {
    /// An injector that has seen nothing.
    pub fn new(client: Client, targets: Targets) -> Self {
        let refusals = Refusals::default();
        Self { client, targets, crds: BTreeMap::new(), webhooks: BTreeMap::new(), refusals }
    }

    /// Reads what changed. An object that does not exist (yet) is no error.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, refuses a read for another reason than that the object does not exist, or does not answer within 10 s.
    pub async fn refresh(&mut self) -> Result<(), CallError> {
        for uri in self.targets.uris() {
            let found = Call::get(&uri).send_as::<WebhookConfiguration>(&self.client, TIMEOUT).await;
            match found {
                Ok(found) => self.webhooks.insert(uri, found),
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
            if self
                .crds
                .get(plural)
                .is_none_or(|(known, _)| known.resource_version.as_ref() != Some(&version))
            {
                let crd: Crd = Call::get(&uri).send_as(&self.client, TIMEOUT).await?;
                self.note_crd(plural, crd);
            }
        }
        Ok(())
    }

    fn note_crd(&mut self, plural: &'static str, crd: Crd) {
        let config = crd.spec.conversion.webhook.map(|w| w.client_config);
        // Of the rest only what names it: its managed fields are long.
        let ObjectMeta { name, uid, resource_version, .. } = crd.metadata;
        let metadata = ObjectMeta { name, uid, resource_version, ..ObjectMeta::default() };
        self.crds.insert(plural, (metadata, config));
    }

    /// The hosts of all entries that are reached by URL: the serving certificate must name them.
    pub fn hosts(&self) -> BTreeSet<String> {
        let webhooks = self.webhooks.values().flat_map(|one| &one.webhooks).map(|entry| &entry.client_config);
        let crds = self.crds.values().filter_map(|(_, config)| config.as_ref());
        webhooks.chain(crds).filter_map(|config| host(config.url.as_deref()?)).collect()
    }

    /// Writes the CA where a different one (or none) is. If some objects refuse it, the others get it all the same.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, refuses a change or does not answer within 10 s. An APIService that does not exist or that this program
    /// may not read is no error.
    pub async fn inject(&mut self, ca_bundle: &str, now: Instant) -> Result<(), InjectError> {
        let bundle = ByteString(ca_bundle.as_bytes().to_vec());
        let refused = [
            self.inject_webhooks(&bundle, now).await?,
            self.inject_crds(&bundle, now).await?,
            self.inject_apis(&bundle, now).await?,
        ];
        refused.into_iter().flatten().next().map_or(Ok(()), |refused| Err(refused.into()))
    }

    /// Gives a change that is refused.
    async fn inject_webhooks(
        &mut self,
        bundle: &ByteString,
        now: Instant,
    ) -> Result<Option<Refused>, CallError> {
        let mut refused = None;
        for (uri, known) in &mut self.webhooks {
            let patch = webhook_patch(&known.webhooks, bundle);
            if patch.is_empty() {
                self.refusals.forget(uri);
                continue;
            }
            let kind = if *uri == self.targets.uris()[0] {
                "MutatingWebhookConfiguration"
            } else {
                "ValidatingWebhookConfiguration"
            };
            let about = reference("admissionregistration.k8s.io/v1", kind, &known.metadata);
            let call = Call::with_body(Method::PATCH, uri.as_str(), Content::JsonPatch, &patch);
            let change = Change {
                uri,
                asked: json!([known.metadata.uid, known.metadata.resource_version, patch]),
                call,
                about,
            };
            match change.make::<WebhookConfiguration>(&self.client, &mut self.refusals, now).await? {
                Ok(found) => {
                    info!(object = %uri, entries = patch.len() / 2, "the CA was injected");
                    *known = found;
                }
                Err(why) => refused = Some(why),
            }
        }
        Ok(refused)
    }

    /// Gives a change that is refused.
    async fn inject_crds(&mut self, bundle: &ByteString, now: Instant) -> Result<Option<Refused>, CallError> {
        let mut refused = None;
        for plural in CONVERTED {
            let uri = crd_uri(plural);
            // A CRD of another making may have no conversion webhook.
            let Some((metadata, Some(config))) = self.crds.get(plural) else { continue };
            if config.ca_bundle.as_ref() == Some(bundle) {
                self.refusals.forget(&uri);
                continue;
            }
            let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
            let call = Call::with_body(Method::PATCH, uri.as_str(), Content::MergePatch, &patch);
            let about = reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", metadata);
            let asked = json!([metadata.resource_version, patch]);
            let change = Change { uri: &uri, asked, call, about };
            match change.make::<Crd>(&self.client, &mut self.refusals, now).await? {
                Ok(crd) => {
                    info!(crd = %plural, "the CA was injected");
                    self.note_crd(plural, crd);
                }
                Err(why) => refused = Some(why),
            }
        }
        Ok(refused)
    }

    /// An APIService that does not exist, that belongs to another program, or that this ServiceAccount has no right to, is left alone. Gives a change
    /// that is refused.
    async fn inject_apis(&mut self, bundle: &ByteString, now: Instant) -> Result<Option<Refused>, CallError> {
        let mut refused = None;
        for name in API_SERVICES {
            let uri = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
            let found: ApiService = match Call::get(&uri).send_as(&self.client, TIMEOUT).await {
                Ok(found) => found,
                Err(error) if matches!(error.code(), Some(403 | 404)) => {
                    debug!(object = %uri, %error, "no CA was injected");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(patch) = api_service_patch(&found, &self.targets.apis, bundle) else {
                self.refusals.forget(&uri);
                continue;
            };
            let call = Call::with_body(Method::PATCH, &uri, Content::MergePatch, &patch);
            let about = reference("apiregistration.k8s.io/v1", "APIService", &found.metadata);
            let change = Change {
                uri: &uri,
                asked: json!([found.metadata.uid, found.metadata.resource_version, patch]),
                call,
                about,
            };
            match change.make::<Value>(&self.client, &mut self.refusals, now).await? {
                Ok(_) => info!(object = %uri, "the CA was injected"),
                Err(why) => refused = Some(why),
            }
        }
        Ok(refused)
    }
}

/// A change of an object.
struct Change<'a> {
    uri: &'a str,
    /// What tells it from other changes, and from the same one of another version.
    asked: Value,
    call: Call,
    /// Says if it is refused.
    about: ObjectReference,
}

impl Change<'_> {
    /// Makes it, unless it was refused not long ago; gives the object.
    async fn make<T: DeserializeOwned>(
        self,
        client: &Client,
        refusals: &mut Refusals,
        now: Instant,
    ) -> Result<Result<T, Refused>, CallError> {
        let Self { uri, asked, call, about } = self;
        if let Some(refused) = refusals.pauses(uri, &asked, now) {
            return Ok(Err(refused));
        }
        match call.send_as::<T>(client, TIMEOUT).await {
            Ok(found) => {
                refusals.forget(uri);
                Ok(Ok(found))
            }
            Err(error) if is_refusal(&error) => Ok(Err(refusals.note(uri, asked, &error, Some(about), now))),
            Err(error) => Err(error),
        }
    }
}

/// The patch that adds the CA, unless it is there, or the APIService belongs to another program. A resourceVersion prevents overwriting a change made
/// meanwhile.
fn api_service_patch(found: &ApiService, ours: &(String, String), bundle: &ByteString) -> Option<Value> {
    let service = found.spec.service.as_ref()?;
    let same = (&service.namespace, &service.name) == (&ours.0, &ours.1);
    let wanted = same && (found.spec.ca_bundle.as_ref() != Some(bundle) || found.spec.insecure);
    let metadata = json!({"resourceVersion": found.metadata.resource_version});
    let spec = json!({"caBundle": bundle, "insecureSkipTLSVerify": null});
    wanted.then(|| json!({"metadata": metadata, "spec": spec}))
}

fn crd_uri(plural: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.kueue.x-k8s.io")
}

fn host(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    Some(uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned())
}

/// One test and one change per entry with a different CA: the test prevents patching the wrong place in a list that changed meanwhile.
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
        let targets = Targets::of_service("team-kueue-webhook-service", "ns");
        assert_eq!(targets.apis, ("ns".to_owned(), "team-kueue-visibility-server".to_owned()));
        assert_eq!(targets.mutating, "team-kueue-mutating-webhook-configuration");
        assert_eq!(Targets::of_service("hooks", "ns").validating, "kueue-validating-webhook-configuration");
    }

    #[test]
    fn an_api_service_gets_the_ca_if_it_is_ours_and_has_another() {
        let ours = ("ns".to_owned(), "kueue-visibility-server".to_owned());
        let found = |spec: Value| -> ApiService {
            serde_json::from_value(json!({"metadata": {"name": "x", "resourceVersion": "7"}, "spec": spec}))
                .unwrap()
        };
        let patch = |spec: Value| api_service_patch(&found(spec), &ours, &ByteString(b"new".to_vec()));
        let service = json!({"namespace": "ns", "name": "kueue-visibility-server"});
        let wanted = patch(json!({"service": service, "insecureSkipTLSVerify": true})).unwrap();
        assert_eq!(wanted["spec"], json!({"caBundle": "bmV3", "insecureSkipTLSVerify": null}));
        assert_eq!(wanted["metadata"]["resourceVersion"], "7");
        assert!(patch(json!({"service": service, "caBundle": "b2xk"})).is_some());
        assert_eq!(patch(json!({"service": service, "caBundle": "bmV3"})), None);
        let other = json!({"namespace": "elsewhere", "name": "kueue-visibility-server"});
        assert_eq!(patch(json!({"service": other})), None);
        assert_eq!(patch(json!({})), None);
    }

    #[test]
    fn hosts_of_urls_are_names_and_addresses() {
        assert_eq!(host("https://127.0.0.1:9443/convert").as_deref(), Some("127.0.0.1"));
        assert_eq!(host("https://[::1]:9443/convert").as_deref(), Some("::1"));
        assert_eq!(host("https://hooks.example/convert").as_deref(), Some("hooks.example"));
        assert_eq!(host("not a url"), None);
    }
}
