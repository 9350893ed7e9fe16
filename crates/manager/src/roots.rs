//! The certificates that clients trust of servers other than the API server: trace collectors, object stores.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The largest file that is read, in bytes.
const MOST_FILE: u64 = 1 << 20;

/// A small regular file.
///
/// # Errors
/// When it cannot be read, or is something else.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > MOST_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a file of at most 1 MiB"));
    }
    std::fs::read(path)
}

/// The certificates of the system. With none, no server is trusted, and the first request says so.
pub fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Adds certificates (PEM), and returns whether at least one can be used and all can be read.
pub fn add(roots: &mut RootCertStore, text: &[u8]) -> bool {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    found.is_ok_and(|found| roots.add_parsable_certificates(found).0 > 0)
}

/// The TLS of a client that trusts these.
///
/// # Errors
/// Never in practice: the provider has the versions of TLS that are asked for.
pub fn client(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
