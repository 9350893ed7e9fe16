//! The TLS side of a server, from PEM.

use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::server::danger::ClientCertVerifier;
use rustls::{NamedGroup, ServerConfig};

/// Why PEM texts make no TLS server.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate or key is not PEM.
    #[error("reading the {what}")]
    Pem {
        /// Which of the two.
        what: &'static str,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// The two do not work together, or the options exclude every cipher.
    #[error("setting up TLS")]
    Tls(#[from] rustls::Error),
}

/// The versions, cipher suites and curves that a server offers (`tls` of the configuration).
#[derive(Clone, Debug)]
pub struct TlsOptions {
    versions: Vec<&'static rustls::SupportedProtocolVersion>,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            versions: rustls::ALL_VERSIONS.to_vec(),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        }
    }
}

impl TlsOptions {
    /// Restricts the defaults to a minimal version (`VersionTLS12` or `VersionTLS13`; older ones are not supported) and, for TLS 1.2, to suites by
    /// their IANA names; returns unknown names.
    pub fn narrowed(min_version: Option<&str>, suites: &[String]) -> (Self, Vec<String>) {
        let mut options = Self::default();
        if min_version == Some("VersionTLS13") {
            options.versions = vec![&rustls::version::TLS13];
        }
        if suites.is_empty() {
            return (options, Vec::new());
        }
        let mut provider = rustls::crypto::ring::default_provider();
        let name = |suite: &rustls::SupportedCipherSuite| {
            suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
        };
        let unknown = suites
            .iter()
            .filter(|want| !provider.cipher_suites.iter().any(|s| name(s) == **want))
            .cloned()
            .collect();
        // As in Go, the list rules TLS 1.2 only: the suites of 1.3 are always offered.
        provider
            .cipher_suites
            .retain(|suite| suite.tls13().is_some() || suites.iter().any(|want| name(suite) == *want));
        options.provider = Arc::new(provider);
        (options, unknown)
    }

    /// Narrows the curves to these, by Go's names, in this order of preference; unknown names are given back.
    #[must_use]
    pub fn with_curves(mut self, names: &[String]) -> (Self, Vec<String>) {
        let group = |name: &str| match name {
            "X25519" => Some(NamedGroup::X25519),
            "CurveP256" => Some(NamedGroup::secp256r1),
            "CurveP384" => Some(NamedGroup::secp384r1),
            _ => None,
        };
        let mut provider = (*self.provider).clone();
        let (mut curves, mut unknown) = (Vec::new(), Vec::new());
        for name in names {
            match provider.kx_groups.iter().find(|offered| Some(offered.name()) == group(name)) {
                Some(curve) => curves.push(*curve),
                None => unknown.push(name.clone()),
            }
        }
        if !curves.is_empty() {
            provider.kx_groups = curves;
            self.provider = Arc::new(provider);
        }
        (self, unknown)
    }

    /// Makes the server's configuration.
    ///
    /// # Errors
    ///
    /// If the certificate or the key is not PEM or is of a kind that TLS does not know, or if the two do not belong together.
    pub fn server(&self, cert_pem: &[u8], key_pem: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
        self.server_for(cert_pem, key_pem, None)
    }

    /// The same for a server that requests client certificates, and verifies them with `verifier`.
    ///
    /// # Errors
    ///
    /// As [`Self::server`].
    pub fn server_for(
        &self,
        cert_pem: &[u8],
        key_pem: &[u8],
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let pem = |what| move |source| TlsError::Pem { what, source };
        let certs = CertificateDer::pem_slice_iter(cert_pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(pem("certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(pem("key"))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&self.versions)?;
        let builder = match clients {
            Some(clients) => builder.with_client_cert_verifier(clients),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(certs, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Whether a client takes the certificate that comes first in a PEM text for that of the server `name`.
pub fn names(cert_pem: &[u8], name: &str) -> bool {
    let Ok(cert) = CertificateDer::from_pem_slice(cert_pem) else { return false };
    let Ok(cert) = ParsedCertificate::try_from(&cert) else { return false };
    ServerName::try_from(name).is_ok_and(|name| verify_server_name(&cert, &name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::material::{Material, Renewal, renew};
    use jiff::Timestamp;

    #[test]
    fn our_own_material_makes_a_server_and_a_foreign_key_does_not() {
        let names = ["localhost".to_owned()].into_iter().collect();
        let make = || renew(&Material::default(), Renewal::RenewAll, &names, Timestamp::now()).unwrap();
        let (one, other) = (make(), make());
        assert!(TlsOptions::default().server(one.cert.as_bytes(), one.key.as_bytes()).is_ok());
        assert!(TlsOptions::default().server(one.cert.as_bytes(), other.key.as_bytes()).is_err());
        assert!(TlsOptions::default().server(b"", b"").is_err());
    }

    #[test]
    fn a_certificate_names_what_it_lists_and_what_its_wildcards_cover() {
        let listed = ["kueue-webhook-service.ns.svc".to_owned(), "*.other.svc".to_owned()];
        let names_of = listed.into_iter().collect();
        let made = renew(&Material::default(), Renewal::RenewAll, &names_of, Timestamp::now()).unwrap();
        let named = |name| names(made.cert.as_bytes(), name);
        assert!(named("kueue-webhook-service.ns.svc") && named("kueue-visibility-server.other.svc"));
        assert!(!named("kueue-visibility-server.ns.svc"));
        assert!(!names(b"not PEM", "kueue-visibility-server.ns.svc"));
    }

    #[test]
    fn suites_are_chosen_by_name_and_unknown_names_are_reported() {
        let wanted = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(), "TLS_OLD".to_owned()];
        let (options, unknown) = TlsOptions::narrowed(Some("VersionTLS12"), &wanted);
        assert_eq!(unknown, ["TLS_OLD"]);
        let two: Vec<_> = options.provider.cipher_suites.iter().filter(|s| s.tls13().is_none()).collect();
        assert_eq!(two.len(), 1);
        assert!(options.provider.cipher_suites.len() > 1);
    }

    #[test]
    fn curves_are_offered_in_the_order_asked_for() {
        let names = ["CurveP384", "CurveP521", "X25519"].map(str::to_owned);
        let (options, unknown) = TlsOptions::default().with_curves(&names);
        assert_eq!(unknown, ["CurveP521"]);
        let offered: Vec<_> = options.provider.kx_groups.iter().map(|curve| curve.name()).collect();
        assert_eq!(offered, [NamedGroup::secp384r1, NamedGroup::X25519]);
        let (untouched, _) = TlsOptions::default().with_curves(&[]);
        assert!(untouched.provider.kx_groups.len() > 2);
    }
}
