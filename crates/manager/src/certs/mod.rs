//! The certificates of the servers (webhooks, aggregated APIs, metrics, dashboard): created, shared through a Secret, rotated, injected; or read
//! from files.
//!
//! All replicas maintain the same Secret; its resourceVersion decides which replica makes the next certificate. A replaced certificate is served at
//! once: listeners read the TLS configuration again for each connection.

pub mod inject;
pub mod material;
mod refusals;
pub mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::Client;
use rustls::server::danger::ClientCertVerifier;
use serde_json::{Value, json};
use sluice_client::error_chain::Chain;
use sluice_engine::Backoff;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::api_call::{Call, CallError, Content};
use crate::serve::Tls;
use crate::shutdown::Stop;
use inject::{InjectError, Injector};
use material::{Material, Renewal, decide, is_in_time, renew};
use refusals::{Refused, is_refusal, reference};
use server::{TlsError, TlsOptions, names};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at the Secret, the webhook configurations and the clock.
const PERIOD: Duration = Duration::from_secs(10);
/// The pause while something is missing: short at first, then longer. A refused request is not repeated quickly.
const IMPATIENT: Backoff = Backoff::millis(500, 10_000);

/// Why the certificates are not in order.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// A request to the API server failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A change is refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// rcgen refused.
    #[error(transparent)]
    Make(#[from] material::MakeError),
    /// The certificates cannot be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The certificate files cannot be read.
    #[error("reading {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl From<InjectError> for CertsError {
    fn from(error: InjectError) -> Self {
        match error {
            InjectError::Call(error) => Self::Call(error),
            InjectError::Refused(refused) => Self::Refused(refused),
        }
    }
}

/// How far the certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertsState {
    /// Something is missing, and what.
    Pending(String),
    /// A certificate is served, and the CA is where it belongs.
    Ready,
}

/// The certificate that a TLS listener serves, exchangeable while it runs.
#[derive(Clone, Debug)]
pub struct Serving {
    options: TlsOptions,
    /// Verifies certificates of clients, if they are asked for.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// For the listener.
    pub config: Tls,
}

impl Serving {
    /// Starts with a certificate of its own that no client trusts, so that the port is open at once.
    ///
    /// # Errors
    ///
    /// If a key or a certificate cannot be generated.
    pub fn provisional(options: TlsOptions) -> Result<Self, CertsError> {
        Self::provisional_for(options, None)
    }

    /// The same for a server that requests client certificates, and verifies them with `verifier`.
    ///
    /// # Errors
    ///
    /// As [`Self::provisional`].
    pub fn provisional_for(
        options: TlsOptions,
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Self, CertsError> {
        let names = BTreeSet::from(["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let material = renew(&Material::default(), Renewal::RenewAll, &names, Timestamp::now())?;
        let config =
            options.server_for(material.cert.as_bytes(), material.key.as_bytes(), clients.clone())?;
        Ok(Self { options, clients, config: Tls::new(config) })
    }

    fn exchange(&self, cert: &[u8], key: &[u8]) -> Result<(), TlsError> {
        self.config.exchange(self.options.server_for(cert, key, self.clients.clone())?);
        Ok(())
    }
}

/// Keeps the Secret, the served certificate and the injected CA in order.
pub struct CertRotator {
    client: Client,
    namespace: String,
    secret: String,
    /// Names that the certificate must always have.
    names: BTreeSet<String>,
    injector: Injector,
    /// Every listener that serves the certificate.
    serving: Vec<Serving>,
    served: Material,
    /// Whether API servers trust what is served, as far as is known.
    trusted: bool,
    /// Who reports on objects that cannot be changed; none if events are left out.
    reporter: Option<String>,
}

impl CertRotator {
    /// A rotator of the Secret `namespace/secret` for the Service `service` of the webhooks, and those of the aggregated APIs and the metrics.
    pub fn new(
        client: Client,
        namespace: &str,
        service: &str,
        secret: &str,
        host: &str,
        serving: Vec<Serving>,
    ) -> Self {
        let injector = Injector::new(client.clone(), inject::Targets::of_service(service, namespace));
        Self {
            client,
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            names: service_names(namespace, service, host),
            injector,
            serving,
            served: Material::default(),
            trusted: false,
            reporter: None,
        }
    }

    /// Objects that cannot be changed say why, in events of this instance.
    #[must_use]
    pub fn reporting_as(mut self, instance: &str) -> Self {
        self.reporter = Some(instance.to_owned());
        self
    }

    /// Also for the Service of the dashboard, whose name has the same prefix as that of the webhooks.
    #[must_use]
    pub fn with_dashboard(mut self, webhooks: &str) -> Self {
        self.names.extend(in_cluster(&inject::dashboard_service(webhooks), &self.namespace));
        self
    }

    /// Runs until stopped.
    pub async fn run(mut self, state: watch::Sender<CertsState>, mut stop: Stop) {
        let (mut failures, mut trouble) = (0, Trouble::default());
        loop {
            let round = self.round(Instant::now()).await;
            self.report_refusals().await;
            let pause = pause_after(round.is_ok(), &mut failures);
            let why = round.err().map(|error| Chain(&error).to_string());
            let goes_on = self.goes_on(Timestamp::now());
            if let Some(error) = trouble.news(why.clone().filter(|_| goes_on)) {
                warn!(error, "webhook certificates cannot be maintained; the served ones are valid");
            }
            let next = why.filter(|_| !goes_on).map_or(CertsState::Ready, CertsState::Pending);
            publish(&state, next);
            if !stop.sleep(pause).await {
                return;
            }
        }
    }

    /// Tells objects that cannot be changed why. An event that cannot be written is not repeated.
    async fn report_refusals(&mut self) {
        let events = self.injector.refusals.take_events(self.reporter.as_deref().unwrap_or_default());
        for event in events.iter().filter(|_| self.reporter.is_some()) {
            if let Err(error) = event.send(&self.client, TIMEOUT).await {
                debug!(%error, "an event was not written");
            }
        }
    }

    async fn round(&mut self, now: Instant) -> Result<(), CertsError> {
        self.injector.refresh().await?;
        let mut names = self.names.clone();
        names.extend(self.injector.hosts());
        let material = self.read_or_renew(&names, now).await?;
        if material != self.served {
            if self.trusted {
                // The currently served certificate's CA is in the bundle, too: it is trusted until the next one is.
                self.injector.inject(&material.ca_bundle, now).await?;
            }
            for serving in &self.serving {
                serving.exchange(material.cert.as_bytes(), material.key.as_bytes())?;
            }
            self.served = material;
        }
        self.injector.inject(&self.served.ca_bundle, now).await?;
        self.trusted = true;
        Ok(())
    }

    /// Whether what is served is good, also while nothing can be read or written: a replica that serves it is of use.
    fn goes_on(&self, now: Timestamp) -> bool {
        self.trusted && is_in_time(&self.served, now)
    }

    /// The material to renew if the Secret has none: API servers continue trusting what is served.
    fn without_secret(&self) -> Material {
        Material { ca_bundle: self.served.ca_bundle.clone(), ..Material::default() }
    }

    /// Reads the Secret and, if necessary, renews its material. The write is refused with a conflict if another replica was faster; then the next
    /// round reads what that replica wrote.
    async fn read_or_renew(&mut self, names: &BTreeSet<String>, at: Instant) -> Result<Material, CertsError> {
        let uri = format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.secret);
        let now = Timestamp::now();
        let secret: Secret = match Call::get(&uri).send_as(&self.client, TIMEOUT).await {
            Err(error) if error.code() == Some(404) => return self.create(&uri, names, (now, at)).await,
            other => other?,
        };
        let mut material = unpack(secret.data.as_ref());
        if material.ca_bundle.is_empty() {
            material = self.without_secret();
        }
        let decision = decide(&material, names, now);
        if decision == Renewal::Keep {
            return Ok(material);
        }
        let asked = json!([secret.metadata.resource_version, names]);
        if let Some(refused) = self.injector.refusals.pauses(&uri, &asked, at) {
            return Err(refused.into());
        }
        let next = renew(&material, decision, names, now)?;
        let body = json!({
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": pack(&next),
        });
        let call = Call::with_body(Method::PATCH, &uri, Content::MergePatch, &body);
        let about = reference("v1", "Secret", &secret.metadata);
        self.write(&uri, call, asked, Some(about), at).await?;
        info!(secret = %self.secret, ?decision, "certificates renewed");
        Ok(next)
    }

    async fn create(
        &mut self,
        uri: &str,
        names: &BTreeSet<String>,
        (now, at): (Timestamp, Instant),
    ) -> Result<Material, CertsError> {
        let asked = json!(names);
        if let Some(refused) = self.injector.refusals.pauses(uri, &asked, at) {
            return Err(refused.into());
        }
        let next = renew(&self.without_secret(), Renewal::RenewAll, names, now)?;
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.secret, "namespace": self.namespace},
            "data": pack(&next),
        });
        let all = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let call = Call::with_body(Method::POST, all, Content::Json, &body);
        // There is no object that could say so.
        self.write(uri, call, asked, None, at).await?;
        info!(secret = %self.secret, "certificates made");
        Ok(next)
    }

    /// Writes the Secret.
    async fn write(
        &mut self,
        uri: &str,
        call: Call,
        asked: Value,
        about: Option<ObjectReference>,
        at: Instant,
    ) -> Result<(), CertsError> {
        match call.send(&self.client, TIMEOUT).await {
            Ok(_) => self.injector.refusals.forget(uri),
            Err(error) if is_refusal(&error) => {
                return Err(self.injector.refusals.note(uri, asked, &error, about, at).into());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// The problem that was last logged.
#[derive(Debug, Default)]
struct Trouble(Option<String>);

impl Trouble {
    /// The current problem, if it has to be logged: the round before did not have it.
    fn news(&mut self, now: Option<String>) -> Option<&str> {
        let before = std::mem::replace(&mut self.0, now);
        self.0.as_deref().filter(|now| before.as_deref() != Some(now))
    }
}

/// The pause after a round, and how many rounds in a row failed.
fn pause_after(succeeded: bool, failures: &mut u32) -> Duration {
    if succeeded {
        *failures = 0;
        return PERIOD;
    }
    let pause = IMPATIENT.doubled(*failures);
    *failures = failures.saturating_add(1);
    Duration::from_millis(pause.unsigned_abs())
}

/// Serves `tls.crt` and `tls.key` of a folder (`webhook.certDir`), again when they change. A certificate without the name by which the API server calls
/// the aggregated APIs (`apis`, if they are served) is served, too, and the log says what does not work with it.
pub async fn serve_files(
    folder: PathBuf,
    apis: Option<String>,
    serving: Vec<Serving>,
    state: watch::Sender<CertsState>,
    mut stop: Stop,
) {
    let mut served = (Vec::new(), Vec::new());
    loop {
        let next = match files(&folder, &serving, &mut served).await {
            Ok(news) => {
                if let Some(missing) = apis.as_deref().filter(|name| news && !names(&served.0, name)) {
                    warn!(
                        missing,
                        "the certificate in webhook.certDir lacks a name: the API server refuses the aggregated APIs"
                    );
                }
                CertsState::Ready
            }
            Err(error) => CertsState::Pending(Chain(&error).to_string()),
        };
        publish(&state, next);
        if !stop.sleep(Duration::from_secs(2)).await {
            return;
        }
    }
}

/// Serves what the folder has. Whether that is another certificate than before.
async fn files(
    folder: &std::path::Path,
    serving: &[Serving],
    served: &mut (Vec<u8>, Vec<u8>),
) -> Result<bool, CertsError> {
    let read = async |name: &str| {
        let path = folder.join(name);
        tokio::fs::read(&path).await.map_err(|source| CertsError::File { path, source })
    };
    let found = (read("tls.crt").await?, read("tls.key").await?);
    if found == *served {
        return Ok(false);
    }
    for serving in serving {
        serving.exchange(&found.0, &found.1)?;
    }
    info!(folder = %folder.display(), "certificate loaded");
    *served = found;
    Ok(true)
}

/// Publishes a state, and logs a problem when it changes.
fn publish(state: &watch::Sender<CertsState>, next: CertsState) {
    state.send_if_modified(|state| {
        if *state == next {
            return false;
        }
        if let CertsState::Pending(why) = &next {
            warn!(%why, "webhook certificates are not in order");
        }
        *state = next;
        true
    });
}

/// The names of the Services in front of the webhooks, the aggregated APIs and the metrics; and this host, for URLs.
fn service_names(namespace: &str, service: &str, host: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::from(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    let (apis, metrics) = (inject::visibility_service(service), inject::metrics_service(service));
    for service in [service, &apis, &metrics] {
        names.extend(in_cluster(service, namespace));
    }
    if !host.is_empty() && host != "0.0.0.0" && host != "::" {
        names.insert(host.to_owned());
    }
    names
}

/// The names that a Service has in the cluster; the API server calls it by the first.
pub fn in_cluster(service: &str, namespace: &str) -> [String; 2] {
    ["svc", "svc.cluster.local"].map(|end| format!("{service}.{namespace}.{end}"))
}

const KEYS: [&str; 4] = ["ca.crt", "ca.key", "tls.crt", "tls.key"];

fn pack(material: &Material) -> BTreeMap<&'static str, ByteString> {
    let texts = [&material.ca_bundle, &material.ca_key, &material.cert, &material.key];
    KEYS.into_iter().zip(texts.map(|text| ByteString(text.as_bytes().to_vec()))).collect()
}

fn unpack(data: Option<&BTreeMap<String, ByteString>>) -> Material {
    let [ca_bundle, ca_key, cert, key] = KEYS.map(|key| {
        let bytes = data.and_then(|data| data.get(key)).map(|bytes| bytes.0.clone()).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    });
    Material { ca_bundle, ca_key, cert, key }
}

#[cfg(test)]
mod tests;
