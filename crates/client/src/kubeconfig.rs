//! Where the API server is, and the clients that talk to it.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Why no client could be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig of `--kubeconfig` or `KUBECONFIG` is not usable.
    #[error("reading the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },
    /// The kubeconfig has no such context, cluster or user.
    #[error("{what} {name:?} does not exist")]
    Absent {
        /// `context`, `cluster` or `user`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A namespace has a name that none can have: it would be another path of the API.
    #[error("namespace {name:?}: {why}")]
    Namespace {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Neither the kubeconfig nor a flag says which cluster is meant.
    #[error(
        "the kubeconfig has no current context: name one with --context, or the API server with --server"
    )]
    NoContext,
    /// Neither a kubeconfig nor an in-cluster account is there.
    #[error("no --kubeconfig, no KUBECONFIG, and not inside a cluster")]
    InCluster(#[source] Box<kube::config::InClusterError>),
    /// The HTTP stack could not be built.
    #[error("building the client for {server}")]
    Build {
        /// The API server's address.
        server: String,
        /// What went wrong.
        source: Box<kube::Error>,
    },
}

/// Reads the connection: `--kubeconfig`, else `KUBECONFIG`, else the in-cluster account.
///
/// # Errors
///
/// If the kubeconfig cannot be read or has no usable context, cluster or user; or if there is none, and the process does not run in a cluster.
pub async fn connection(kubeconfig: Option<&Path>) -> Result<Config, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let failed = |source| ClientError::Kubeconfig {
                path: path.display().to_string(),
                source: Box::new(source),
            };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?
        }
        None => match Kubeconfig::from_env() {
            Ok(Some(file)) => Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(from_environment)?,
            Ok(None) => Config::incluster().map_err(|e| ClientError::InCluster(Box::new(e)))?,
            Err(error) => return Err(from_environment(error)),
        },
    };
    // Retries are ours: the client's own last up to 15 attempts with a cap of 1,000 s.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    Ok(config)
}

fn from_environment(source: kube::config::KubeconfigError) -> ClientError {
    ClientError::Kubeconfig {
        path: std::env::var("KUBECONFIG").unwrap_or_else(|_| "KUBECONFIG".to_owned()),
        source: Box::new(source),
    }
}

/// Builds a client. Each has its own connections, so that the lease never queues behind other requests.
///
/// # Errors
///
/// If the certificates, keys, credentials or the proxy of the connection are not usable.
pub fn client(config: &Config) -> Result<Client, ClientError> {
    Client::try_from(config.clone()).map_err(|source| ClientError::Build {
        server: config.cluster_url.to_string(),
        source: Box::new(source),
    })
}
