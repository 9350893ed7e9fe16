use std::collections::BTreeMap;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

use super::*;

/// A CA for tests.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The certificate of a client, and its key.
    pub(crate) fn client(&self, name: &str) -> (CertificateDer<'static>, KeyPair) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().der().clone(), key)
    }

    fn map(&self) -> ConfigMap {
        let data = [
            ("requestheader-client-ca-file", self.0.pem()),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#.to_owned()),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#.to_owned()),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#.to_owned()),
            ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#.to_owned()),
        ];
        let data: BTreeMap<_, _> = data.map(|(key, value)| (key.to_owned(), value)).into();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    /// A proxy that this CA proves.
    pub(crate) fn proxy(&self) -> FrontProxy {
        let proxy = FrontProxy::default();
        proxy.0.store(Some(Arc::new(Settings::read(&self.map()).unwrap())));
        proxy
    }
}

fn claims(user: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("x-remote-user", user.parse().unwrap());
    headers.insert("x-remote-group", "system:masters".parse().unwrap());
    headers
}

#[test]
fn headers_count_only_with_a_certificate_of_an_allowed_name() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = Ca::new("front-proxy-ca");
    let proxy = ca.proxy();
    let certificate = |name| ClientCertificate(ca.client(name).0);
    let user = proxy.user(Some(&certificate("front-proxy-client")), &claims("alice")).unwrap();
    assert_eq!(user.username, "alice");
    assert_eq!(proxy.user(None, &claims("alice")), None, "forged");
    assert_eq!(proxy.user(Some(&certificate("another")), &claims("alice")), None, "another name");
    let nonsense = ClientCertificate(CertificateDer::from(b"nonsense".to_vec()));
    assert_eq!(proxy.user(Some(&nonsense), &claims("alice")), None);
    assert_eq!(FrontProxy::default().user(Some(&certificate("front-proxy-client")), &claims("alice")), None);
}

#[test]
fn certificates_of_another_ca_are_refused_by_tls() {
    let (ca, other) = (Ca::new("front-proxy-ca"), Ca::new("front-proxy-ca"));
    let verify =
        |certificate: &CertificateDer<'_>| ca.proxy().verify_client_cert(certificate, &[], UnixTime::now());
    assert!(verify(&ca.client("front-proxy-client").0).is_ok());
    assert!(verify(&other.client("front-proxy-client").0).is_err());
    let unknown = FrontProxy::default();
    assert!(unknown.verify_client_cert(&ca.client("front-proxy-client").0, &[], UnixTime::now()).is_err());
    assert!(!unknown.offer_client_auth() && ca.proxy().offer_client_auth());
}

#[test]
fn settings_that_are_incomplete_or_broken_are_reported() {
    let ca = Ca::new("ca");
    for (key, value) in [
        ("requestheader-client-ca-file", ""),
        ("requestheader-client-ca-file", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("requestheader-username-headers", "[]"),
        ("requestheader-allowed-names", "front-proxy-client"),
    ] {
        let mut map = ca.map();
        map.data.as_mut().unwrap().insert(key.to_owned(), value.to_owned());
        assert!(Settings::read(&map).is_err(), "{key}: {value}");
    }
    assert!(Settings::read(&ConfigMap::default()).is_err());
}
