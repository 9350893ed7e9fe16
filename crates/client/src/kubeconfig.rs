//! The connection to the API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::requests::Requests;
use crate::{proxy, transport};

/// How long the connection itself may take.
pub const CONNECT: Duration = Duration::from_secs(5);

/// Why no client could be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A kubeconfig is not usable.
    #[error("reading the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The error.
        source: Box<KubeconfigError>,
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
        /// The problem.
        why: String,
    },
    /// Neither the kubeconfig nor a flag says which cluster is meant.
    #[error(
        "the kubeconfig has no current context: name one with --context, or the API server with --server"
    )]
    NoContext,
    /// There is neither a kubeconfig nor an in-cluster account.
    #[error("no --kubeconfig, no KUBECONFIG, and not inside a cluster")]
    InCluster(#[source] Box<kube::config::InClusterError>),
    /// The kubeconfig or the environment wants a proxy.
    #[error(
        "{by} sets a proxy for {server}, and proxies are not supported. If the server is reachable without, add its host to NO_PROXY"
    )]
    Proxy {
        /// The API server's address.
        server: String,
        /// What requests the proxy.
        by: &'static str,
    },
    /// The HTTP stack could not be built.
    #[error("building the client for {server}")]
    Build {
        /// The API server's address.
        server: String,
        /// The error.
        source: Box<kube::Error>,
    },
}

/// Why a kubeconfig of this path is not usable.
fn unusable(path: &Path) -> impl Fn(KubeconfigError) -> ClientError + '_ {
    move |source| ClientError::Kubeconfig { path: path.display().to_string(), source: Box::new(source) }
}

/// Reads a kubeconfig. An empty context or namespace is none.
///
/// # Errors
/// When it does not exist, cannot be read, or is none.
pub fn read(path: &Path) -> Result<Kubeconfig, ClientError> {
    let mut file = Kubeconfig::read_from(path).map_err(unusable(path))?;
    let is_empty = |text: &mut String| text.is_empty();
    file.current_context.take_if(is_empty);
    for context in file.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
        context.namespace.take_if(is_empty);
    }
    Ok(file)
}

/// Reads kubeconfigs as kubectl does: missing files are skipped, and the first of several values wins. Nothing if no file exists.
///
/// # Errors
/// If a file cannot be read or is not a kubeconfig, or the files contradict each other.
pub fn merged(paths: &[PathBuf]) -> Result<Option<Kubeconfig>, ClientError> {
    let mut all: Option<Kubeconfig> = None;
    for path in paths {
        let file = match read(path) {
            Err(ClientError::Kubeconfig { source, .. }) if is_absent(&source) => continue,
            file => file?,
        };
        all = Some(match all {
            Some(all) => all.merge(file).map_err(unusable(path))?,
            None => file,
        });
    }
    Ok(all)
}

fn is_absent(error: &KubeconfigError) -> bool {
    matches!(error, KubeconfigError::ReadConfig(error, _) if error.kind() == std::io::ErrorKind::NotFound)
}

/// The files that `KUBECONFIG` names.
pub fn of_environment() -> Vec<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").unwrap_or_default();
    std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The files that kubectl reads: those of `KUBECONFIG`, else `~/.kube/config`.
pub fn of_kubectl() -> Vec<PathBuf> {
    let named = of_environment();
    if !named.is_empty() {
        return named;
    }
    std::env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect()
}

fn called(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Reads a program's connection: `--kubeconfig`, else `KUBECONFIG`, else the in-cluster account.
///
/// # Errors
///
/// If the kubeconfig cannot be read or has no usable context, cluster or user; or if there is none, and the process does not run in a cluster.
pub async fn connection(kubeconfig: Option<&Path>) -> Result<Config, ClientError> {
    let paths = kubeconfig.map_or_else(of_environment, |path| vec![path.to_owned()]);
    let file = match (merged(&paths)?, paths.first()) {
        // If a file is named, no other place is searched.
        (None, Some(path)) => Some(read(path)?),
        (file, _) => file,
    };
    match file {
        Some(file) => of_file(file, &paths).await,
        None => in_cluster(),
    }
}

/// The connection of a kubeconfig's current context. `paths` are the kubeconfig's files, for messages.
///
/// # Errors
/// If it has no usable context, cluster or user, or the API server can be reached only through a proxy.
pub async fn of_file(file: Kubeconfig, paths: &[PathBuf]) -> Result<Config, ClientError> {
    let own_proxy = proxy_url(&file);
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let failed = |source| ClientError::Kubeconfig { path: called(paths), source: Box::new(source) };
    let mut config = config.map_err(failed)?;
    let variable = |name: &str| std::env::var(name).ok();
    if let Some(by) = proxy::wanted(&config.cluster_url, own_proxy.as_deref(), variable) {
        return Err(ClientError::Proxy { server: config.cluster_url.to_string(), by });
    }
    // The environment's, which the client takes for every host.
    config.proxy_url = None;
    Ok(patient(config))
}

/// The proxy that a kubeconfig names for the cluster of its current context.
fn proxy_url(file: &Kubeconfig) -> Option<String> {
    let context = file.contexts.iter().find(|named| Some(&named.name) == file.current_context.as_ref())?;
    let name = &context.context.as_ref()?.cluster;
    file.clusters.iter().find(|named| named.name == *name)?.cluster.as_ref()?.proxy_url.clone()
}

/// The connection of the pod that this runs in.
///
/// # Errors
/// When it runs in none.
pub fn in_cluster() -> Result<Config, ClientError> {
    let mut config = Config::incluster().map_err(|error| ClientError::InCluster(Box::new(error)))?;
    config.cluster_url = with_port(config.cluster_url);
    Ok(patient(config))
}

/// The address with its port, also if that is the usual one: metrics name the API server so, as those of client-go in a pod do.
fn with_port(url: http::Uri) -> http::Uri {
    let Some(authority) = url.authority().filter(|authority| authority.port().is_none()) else { return url };
    let authority = format!("{authority}:443");
    let mut parts = url.clone().into_parts();
    parts.authority = authority.parse().ok();
    http::Uri::from_parts(parts).unwrap_or(url)
}

/// Callers decide which requests to repeat and when: the client itself would retry up to 15 times over minutes, writes included.
fn patient(mut config: Config) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config
}

/// Builds a client. Each has its own connections, so that the lease never queues behind other requests.
///
/// # Errors
///
/// If the certificates, keys or credentials of the connection are not usable.
pub fn client(config: &Config) -> Result<Client, ClientError> {
    counted(config, &Requests::default())
}

/// The same, which counts its requests.
///
/// # Errors
///
/// As [`client`].
pub fn counted(config: &Config, requests: &Requests) -> Result<Client, ClientError> {
    transport::client(config, requests.clone()).map_err(|source| ClientError::Build {
        server: config.cluster_url.to_string(),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "
current-context: ''
contexts: [{name: both, context: {cluster: a, user: u, namespace: ''}}]
";
    const SECOND: &str = "
current-context: two
contexts:
- {name: both, context: {cluster: b, user: u, namespace: n}}
- {name: two, context: {cluster: b, user: u, namespace: n}}
";

    #[test]
    fn kubeconfigs_are_merged_as_kubectl_merges_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [("first", FIRST), ("second", SECOND), ("broken", "contexts: [")] {
            std::fs::write(path(name), text).unwrap();
        }
        let of = |names: &[&str]| merged(&names.iter().map(|name| path(name)).collect::<Vec<_>>());
        let both = of(&["none", "first", "second"]).unwrap().unwrap();
        // An empty context is none, and so is an empty namespace.
        assert_eq!(both.current_context.as_deref(), Some("two"));
        let context = |at: usize| both.contexts[at].context.clone().unwrap();
        assert_eq!((context(0).cluster.as_str(), context(0).namespace), ("a", None));
        assert_eq!((both.contexts.len(), context(1).namespace.as_deref()), (2, Some("n")));
        assert!(of(&["none", "nowhere"]).unwrap().is_none() && of(&[]).unwrap().is_none());
        // An existing file that cannot be read is never skipped.
        let ClientError::Kubeconfig { path: named, .. } = of(&["none", "broken", "second"]).unwrap_err()
        else {
            panic!("another error")
        };
        assert_eq!(named, path("broken").display().to_string());
        assert!(of(&["."]).is_err() && read(&path("none")).is_err());
    }

    #[tokio::test]
    async fn a_program_with_a_given_place_does_not_look_elsewhere() {
        let error = connection(Some(Path::new("/nowhere/config"))).await.unwrap_err();
        assert_eq!(error.to_string(), "reading the kubeconfig /nowhere/config");
    }

    #[test]
    fn the_address_of_a_pods_api_server_names_its_port() {
        for (url, with) in [
            ("https://10.96.0.1/", "10.96.0.1:443"),
            ("https://[fd00::1]", "[fd00::1]:443"),
            ("https://10.96.0.1:6443/", "10.96.0.1:6443"),
        ] {
            let config = Config::new(with_port(url.parse().unwrap()));
            assert_eq!(Requests::of(&config).host(), with);
        }
    }
}
