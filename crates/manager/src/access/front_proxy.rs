//! The API server's proxy in front of aggregated APIs: which certificates authenticate it, and what it says about users
//! (docs/reference/08-tooling.md 8.5).
//!
//! The cluster publishes that in the ConfigMap `kube-system/extension-apiserver-authentication`. The user in the headers counts only on a connection
//! whose client certificate is signed by that CA and has one of the allowed names.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use sluice_client::error_chain::Chain;
use tracing::{info, warn};

use super::User;
use super::headers::HeaderNames;
use crate::api_call::Call;
use crate::shutdown::Stop;
use axum::http::HeaderMap;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks at the ConfigMap.
const PERIOD: Duration = Duration::from_secs(10);
/// The interval until the ConfigMap exists.
const IMPATIENT: Duration = Duration::from_millis(500);
const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// The client certificate of a connection, which TLS has verified. Requests have it as an extension.
#[derive(Clone, Debug)]
pub struct ClientCertificate(pub CertificateDer<'static>);

/// Why the cluster's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FrontProxyError {
    /// Something is missing.
    #[error("the ConfigMap kube-system/extension-apiserver-authentication has no {0}")]
    Missing(&'static str),
    /// A list is no JSON list.
    #[error("reading {0}")]
    List(&'static str, #[source] serde_json::Error),
    /// The CA is not PEM.
    #[error("reading requestheader-client-ca-file")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// No verifier can be made from the CA.
    #[error("using requestheader-client-ca-file")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// A certificate in it is none.
    #[error("using requestheader-client-ca-file")]
    Root(#[from] rustls::Error),
}

/// The cluster's settings of its proxy.
#[derive(Debug)]
struct Settings {
    ca: String,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Common names of certificates; any if empty.
    allowed: Vec<String>,
    names: HeaderNames,
}

impl Settings {
    fn read(map: &ConfigMap) -> Result<Self, FrontProxyError> {
        let text = |key: &'static str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        let list = |key: &'static str| -> Result<Vec<String>, FrontProxyError> {
            let Some(text) = text(key) else { return Ok(Vec::new()) };
            serde_json::from_str(text).map_err(|source| FrontProxyError::List(key, source))
        };
        let ca = "requestheader-client-ca-file";
        let ca = text(ca).filter(|pem| !pem.trim().is_empty()).ok_or(FrontProxyError::Missing(ca))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.allow_unauthenticated().build()?;
        let names = HeaderNames {
            user: list("requestheader-username-headers")?,
            uid: list("requestheader-uid-headers")?,
            group: list("requestheader-group-headers")?,
            extra_prefix: list("requestheader-extra-headers-prefix")?,
        };
        if names.user.is_empty() {
            return Err(FrontProxyError::Missing("requestheader-username-headers"));
        }
        Ok(Self { ca: ca.to_owned(), verifier, allowed: list("requestheader-allowed-names")?, names })
    }

    fn same(&self, other: &Self) -> bool {
        (&self.ca, &self.allowed, &self.names) == (&other.ca, &other.allowed, &other.names)
    }

    /// Whether a certificate that TLS has verified is the proxy's.
    fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(certificate) else { return false };
        let mut names = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        self.allowed.is_empty() || names.any(|name| self.allowed.iter().any(|allowed| allowed == name))
    }
}

/// The proxy, once its settings are known.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy(Arc<ArcSwapOption<Settings>>);

impl FrontProxy {
    /// Whether the cluster's settings are known.
    pub fn is_known(&self) -> bool {
        self.0.load().is_some()
    }

    /// The user that the proxy names; `None` if the connection is not the proxy's, whatever the headers say.
    pub fn user(&self, certificate: Option<&ClientCertificate>, headers: &HeaderMap) -> Option<User> {
        let settings = self.0.load();
        let settings = settings.as_ref()?;
        settings.allows(&certificate?.0).then(|| settings.names.user(headers))?
    }

    /// Follows the cluster's settings until stopped.
    pub async fn follow(self, client: Client, mut stop: Stop) {
        let mut complained = false;
        loop {
            match self.look(&client).await {
                Ok(()) => complained = false,
                Err(why) if !complained => {
                    warn!(%why, "the API server's proxy is not known: aggregated APIs cannot be served");
                    complained = true;
                }
                Err(_) => {}
            }
            if !stop.sleep(if self.is_known() { PERIOD } else { IMPATIENT }).await {
                return;
            }
        }
    }

    /// Reads the settings. Those known before stay in force if they cannot be read.
    async fn look(&self, client: &Client) -> Result<(), String> {
        let map: Result<ConfigMap, _> = Call::get(CONFIG_MAP).send_as(client, TIMEOUT).await;
        let map = map.map_err(|error| Chain(&error).to_string())?;
        let settings = Settings::read(&map).map_err(|error| Chain(&error).to_string())?;
        if !self.0.load().as_ref().is_some_and(|known| known.same(&settings)) {
            info!("the API server's proxy is known");
            self.0.store(Some(Arc::new(settings)));
        }
        Ok(())
    }
}

/// Client certificates are requested, and verified with the current settings; a client without one is accepted, and is not authenticated by it.
impl ClientCertVerifier for FrontProxy {
    fn offer_client_auth(&self) -> bool {
        self.is_known()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // No hints: clients send the certificate that they have.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match &*self.0.load() {
            Some(settings) => settings.verifier.verify_client_cert(end_entity, intermediates, now),
            None => Err(rustls::Error::General("the CA of clients is not known".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let supported = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, &supported)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let supported = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, &supported)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
pub(crate) mod tests;
