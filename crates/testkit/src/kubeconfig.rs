//! Kubeconfig files, written as JSON (which is YAML).

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// The credentials of a kubeconfig's user.
pub(crate) enum User<'a> {
    /// A client certificate: the paths of certificate and key.
    Certificate(&'a Path, &'a Path),
    /// A bearer token.
    Token(&'a str),
}

/// Writes a kubeconfig for `server`; `ca` is left out for a plain HTTP server (the fault proxy).
pub(crate) fn write(
    path: &Path,
    server: &str,
    ca: Option<&Path>,
    user: &User<'_>,
    namespace: &str,
) -> Result<()> {
    let mut cluster = json!({ "server": server });
    if let Some(ca) = ca {
        cluster["certificate-authority"] = json!(ca);
    }
    let user: Value = match user {
        User::Certificate(certificate, key) => {
            json!({ "client-certificate": certificate, "client-key": key })
        }
        User::Token(token) => json!({ "token": token }),
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "sluice-test", "cluster": cluster }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "sluice-test", "context": { "cluster": "sluice-test", "user": "user", "namespace": namespace } }],
        "current-context": "sluice-test",
    });
    // The file holds a credential, so only the owner may read it.
    fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{config:#}").as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}
