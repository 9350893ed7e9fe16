//! The keys and certificates of one control plane, made at its start and deleted with it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// The files, without their endings, of the certificate that webhooks on this machine serve with.
pub(crate) const WEBHOOK: &str = "webhook";

/// The files of the certificate of kube-controller-manager, and the name in it. Its rights are those that RBAC gives to this name.
pub(crate) const CONTROLLER_MANAGER: (&str, &str) = ("controller-manager", "system:kube-controller-manager");
/// The same of kube-scheduler.
pub(crate) const SCHEDULER: (&str, &str) = ("scheduler", "system:kube-scheduler");

/// Where the files of the plane's public key infrastructure are.
#[derive(Debug)]
pub(crate) struct Certs {
    folder: PathBuf,
}

impl Certs {
    /// Makes a certificate authority, the API server's certificate, one for webhooks, an administrator's, those of Kubernetes' own programs by their
    /// real names, the aggregator's, and the key that signs service account tokens.
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let certs = Self { folder: folder.to_path_buf() };
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "sluice-test-ca");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .context("making the certificate authority")?;
        certs.write("ca.crt", &ca.pem())?;

        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        certs.issue(&ca, "apiserver", "kube-apiserver", None, &names)?;
        certs.issue(&ca, WEBHOOK, "webhook", None, &["127.0.0.1", "localhost"])?;
        certs.issue(&ca, "admin", "admin", Some("system:masters"), &[])?;
        for (file, name) in [CONTROLLER_MANAGER, SCHEDULER] {
            certs.issue(&ca, file, name, None, &[])?;
        }
        certs.issue(&ca, "front-proxy", "front-proxy-client", None, &[])?;

        let tokens = KeyPair::generate()?;
        certs.write("service-account.key", &tokens.serialize_pem())?;
        certs.write("service-account.pub", &tokens.public_key_pem())?;
        Ok(certs)
    }

    fn issue(
        &self,
        ca: &CertifiedIssuer<'_, KeyPair>,
        file: &str,
        name: &str,
        group: Option<&str>,
        hosts: &[&str],
    ) -> Result<()> {
        let mut params =
            CertificateParams::new(hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = if hosts.is_empty() {
            vec![ExtendedKeyUsagePurpose::ClientAuth]
        } else {
            vec![ExtendedKeyUsagePurpose::ServerAuth]
        };
        let key = KeyPair::generate()?;
        let certificate =
            params.signed_by(&key, ca).with_context(|| format!("signing the certificate of {name}"))?;
        self.write(&format!("{file}.crt"), &certificate.pem())?;
        self.write(&format!("{file}.key"), &key.serialize_pem())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// The path of one file: `ca.crt`, `apiserver.crt`, `admin.key`, `front-proxy.crt`, `service-account.pub`, …
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
