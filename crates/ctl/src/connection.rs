//! kubectl's connection flags, and the connection that results from them and the kubeconfig.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use kube::{Client, Config};
use sluice_api::names::dns1123_label_error;
use sluice_client::kubeconfig::{self, CONNECT, ClientError, client};

use crate::complete;

/// The name of the context, cluster and user in the resulting kubeconfig.
const CHOSEN: &str = "chosen";

/// The namespace of contexts that name none.
const DEFAULT: &str = "default";

/// kubectl's connection flags. They override the kubeconfig, as in kubectl. The first three show in every help, the rest in
/// that of `kubectl kueue options`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ClusterArgs {
    /// The namespace; without it the context's
    #[arg(long, short, global = true, value_name = "NAME", help_heading = "Connection", add = complete::namespaces())]
    pub namespace: Option<String>,
    /// The context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", help_heading = "Connection", add = complete::contexts())]
    pub context: Option<String>,
    /// Kubeconfig; without it KUBECONFIG, else ~/.kube/config
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection", value_hint = clap::ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// The cluster of the kubeconfig; without it the context's
    #[arg(long, global = true, hide = true, value_name = "NAME", add = complete::clusters())]
    pub cluster: Option<String>,
    /// The user of the kubeconfig; without it the context's
    #[arg(long, global = true, hide = true, value_name = "NAME", add = complete::users())]
    pub user: Option<String>,
    /// The address of the API server, for example https://10.0.0.1:6443
    #[arg(long, short, global = true, hide = true, value_name = "URL")]
    pub server: Option<String>,
    /// The bearer token to authenticate with
    #[arg(long, global = true, hide = true, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The user to impersonate: a user name, or system:serviceaccount:NAMESPACE:NAME
    #[arg(long = "as", global = true, hide = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// A group to impersonate (may be repeated)
    #[arg(long, global = true, hide = true, value_name = "GROUP")]
    pub as_group: Vec<String>,
    /// The UID to impersonate
    #[arg(long, global = true, hide = true, value_name = "UID")]
    pub as_uid: Option<String>,
    /// How long to wait for each answer: 30s, 2m, a number of seconds; 0 for no limit
    #[arg(long, global = true, hide = true, value_name = "DURATION", value_parser = timeout)]
    pub request_timeout: Option<Duration>,
    /// The file with the certificate authority of the API server
    #[arg(long, global = true, hide = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub certificate_authority: Option<PathBuf>,
    /// The file with the client certificate to authenticate with
    #[arg(long, global = true, hide = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub client_certificate: Option<PathBuf>,
    /// The file with the key of the client certificate
    #[arg(long, global = true, hide = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub client_key: Option<PathBuf>,
    /// Accept any certificate of the API server: the connection is then not secure
    #[arg(long, global = true, hide = true)]
    pub insecure_skip_tls_verify: bool,
    /// The name that the certificate of the API server must have; without it that of the address
    #[arg(long, global = true, hide = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

/// A client, and the namespace that a command is about.
pub struct Person {
    /// The client.
    pub client: Client,
    /// The namespace of the flag, else of the context, else `default`.
    pub namespace: String,
}

/// Checks the name of a namespace.
///
/// # Errors
/// If no namespace can have this name.
pub fn checked(namespace: &str) -> Result<&str, ClientError> {
    match dns1123_label_error(namespace) {
        None => Ok(namespace),
        Some(why) => Err(ClientError::Namespace { name: namespace.to_owned(), why }),
    }
}

impl ClusterArgs {
    /// Connects as kubectl does: with `--kubeconfig`, else `KUBECONFIG`, else `~/.kube/config`, else the in-cluster account; the flags override their
    /// settings.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read, lacks the context, cluster or user, or names unusable files.
    pub async fn connect(&self) -> Result<Person, ClientError> {
        let config = self.config().await?;
        let namespace = checked(&config.default_namespace)?.to_owned();
        Ok(Person { namespace, client: client(&config)? })
    }

    /// The namespace that a command is about, without a connection: that of the flag, else of the context or the pod, else `default`.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read or lacks the context, or no namespace can have the name.
    pub fn namespace(&self) -> Result<String, ClientError> {
        let own = match &self.namespace {
            Some(given) => Some(given.clone()),
            None => match self.file()? {
                None if !self.chooses() => kubeconfig::in_cluster().ok().map(|pod| pod.default_namespace),
                file => self.context_of(&file.unwrap_or_default())?.namespace,
            },
        };
        let namespace = own.unwrap_or_else(|| DEFAULT.to_owned());
        checked(&namespace)?;
        Ok(namespace)
    }

    /// The same flags for kubectl.
    pub fn flags(&self) -> Vec<String> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let seconds = |time: Duration| format!("{}ms", time.as_millis());
        let all = [
            ("namespace", self.namespace.clone()),
            ("context", self.context.clone()),
            ("kubeconfig", path(&self.kubeconfig)),
            ("cluster", self.cluster.clone()),
            ("user", self.user.clone()),
            ("server", self.server.clone()),
            ("token", self.token.clone()),
            ("as", self.as_user.clone()),
            ("as-uid", self.as_uid.clone()),
            ("request-timeout", self.request_timeout.map(seconds)),
            ("certificate-authority", path(&self.certificate_authority)),
            ("client-certificate", path(&self.client_certificate)),
            ("client-key", path(&self.client_key)),
            ("insecure-skip-tls-verify", self.insecure_skip_tls_verify.then(|| "true".to_owned())),
            ("tls-server-name", self.tls_server_name.clone()),
        ];
        let one = |(name, value): (&str, Option<String>)| value.map(|value| format!("--{name}={value}"));
        let groups = self.as_group.iter().map(|group| format!("--as-group={group}"));
        all.into_iter().filter_map(one).chain(groups).collect()
    }

    /// The kubeconfigs that are read, if they exist.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.kubeconfig.as_ref().map_or_else(kubeconfig::of_kubectl, |path| vec![path.clone()])
    }

    /// The kubeconfig; nothing if there is none. A file that the flag names must exist.
    pub(crate) fn file(&self) -> Result<Option<Kubeconfig>, ClientError> {
        match &self.kubeconfig {
            Some(path) => kubeconfig::read(path).map(Some),
            None => kubeconfig::merged(&self.files()),
        }
    }

    /// Whether flags say where the API server is.
    fn chooses(&self) -> bool {
        [&self.context, &self.cluster, &self.user, &self.server].iter().any(|flag| flag.is_some())
    }

    async fn config(&self) -> Result<Config, ClientError> {
        let mut config = match self.file()? {
            Some(file) => self.load(file).await?,
            // Without a kubeconfig the flags alone may say where the API server is.
            None if self.chooses() => self.load(Kubeconfig::default()).await?,
            None => {
                let mut config = kubeconfig::in_cluster()?;
                self.authenticate(&mut config.auth_info);
                config
            }
        };
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
        }
        if let Some(time) = self.request_timeout {
            config.read_timeout = Some(time).filter(|time| !time.is_zero());
            config.connect_timeout =
                config.read_timeout.map_or(Some(CONNECT), |time| Some(time.min(CONNECT)));
        }
        Ok(config)
    }

    async fn load(&self, file: Kubeconfig) -> Result<Config, ClientError> {
        kubeconfig::of_file(self.chosen(file)?, &self.files()).await
    }

    /// The context that the flags choose, else the current one; an empty one if there is none.
    fn context_of(&self, file: &Kubeconfig) -> Result<Context, ClientError> {
        let chosen = self.context.as_ref().or(file.current_context.as_ref());
        let Some(name) = chosen.filter(|name| !name.is_empty()) else { return Ok(Context::default()) };
        let found = file.contexts.iter().find(|context| context.name == *name);
        let absent = || ClientError::Absent { what: "context", name: name.clone() };
        found.and_then(|found| found.context.clone()).ok_or_else(absent)
    }

    /// A kubeconfig with one context: the one that the flags choose, with their overrides.
    fn chosen(&self, file: Kubeconfig) -> Result<Kubeconfig, ClientError> {
        let absent = |what, name: &str| ClientError::Absent { what, name: name.to_owned() };
        let context = self.context_of(&file)?;
        let name = self.cluster.clone().unwrap_or(context.cluster);
        let found = file.clusters.into_iter().find(|cluster| cluster.name == name);
        let mut cluster = match found.and_then(|found| found.cluster) {
            Some(cluster) => cluster,
            None if self.cluster.is_none() && self.server.is_some() => Cluster::default(),
            None if name.is_empty() => return Err(ClientError::NoContext),
            None => return Err(absent("cluster", &name)),
        };
        let name = self.user.clone().or(context.user).unwrap_or_default();
        let found = file.auth_infos.into_iter().find(|user| user.name == name);
        let mut user = match found.and_then(|found| found.auth_info) {
            Some(user) => user,
            None if self.user.is_some() => return Err(absent("user", &name)),
            None => AuthInfo::default(),
        };
        self.reach(&mut cluster);
        self.authenticate(&mut user);
        let context = Context {
            cluster: CHOSEN.to_owned(),
            user: Some(CHOSEN.to_owned()),
            namespace: context.namespace,
            ..Context::default()
        };
        let other = BTreeMap::default;
        Ok(Kubeconfig {
            clusters: vec![NamedCluster { name: CHOSEN.to_owned(), cluster: Some(cluster), other: other() }],
            auth_infos: vec![NamedAuthInfo {
                name: CHOSEN.to_owned(),
                auth_info: Some(user),
                other: other(),
            }],
            contexts: vec![NamedContext { name: CHOSEN.to_owned(), context: Some(context), other: other() }],
            current_context: Some(CHOSEN.to_owned()),
            ..Kubeconfig::default()
        })
    }

    /// Applies the flags about the API server.
    fn reach(&self, cluster: &mut Cluster) {
        if let Some(server) = &self.server {
            cluster.server = Some(server.clone());
            // The name belonged to the other address.
            cluster.tls_server_name = None;
        }
        if self.tls_server_name.is_some() {
            cluster.tls_server_name.clone_from(&self.tls_server_name);
        }
        if self.insecure_skip_tls_verify || self.certificate_authority.is_some() {
            cluster.insecure_skip_tls_verify = Some(self.insecure_skip_tls_verify);
            cluster.certificate_authority =
                self.certificate_authority.as_ref().map(|file| file.display().to_string());
            cluster.certificate_authority_data = None;
        }
    }

    /// Applies the flags about the user.
    fn authenticate(&self, user: &mut AuthInfo) {
        if let Some(token) = &self.token {
            user.token = Some(token.clone().into());
            (user.token_file, user.exec, user.auth_provider) = (None, None, None);
            (user.username, user.password) = (None, None);
        }
        if let Some(file) = &self.client_certificate {
            user.client_certificate = Some(file.display().to_string());
            user.client_certificate_data = None;
        }
        if let Some(file) = &self.client_key {
            user.client_key = Some(file.display().to_string());
            user.client_key_data = None;
        }
        if self.as_user.is_some() {
            user.impersonate.clone_from(&self.as_user);
        }
        if self.as_uid.is_some() {
            user.impersonate_uid.clone_from(&self.as_uid);
        }
        if !self.as_group.is_empty() {
            user.impersonate_groups = Some(self.as_group.clone());
        }
    }
}

/// A duration as kubectl takes it: with units, or a number of seconds.
fn timeout(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let parsed: Option<jiff::SignedDuration> = text.parse().ok();
    let parsed = parsed.and_then(|duration| Duration::try_from(duration).ok());
    parsed
        .ok_or_else(|| format!("expected a duration like 30s or 2m, or a number of seconds, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches as _;

    const FILE: &str = r"
current-context: one
clusters:
- {name: a, cluster: {server: 'https://a:6443', certificate-authority-data: Zm9v, tls-server-name: a}}
- {name: b, cluster: {server: 'https://b:6443'}}
users:
- {name: anna, user: {token: t1, tokenFile: /nowhere}}
- {name: bert, user: {client-certificate-data: Zm9v, client-key-data: Zm9v}}
contexts:
- {name: one, context: {cluster: a, user: anna, namespace: team-a}}
- {name: two, context: {cluster: b, user: bert}}
";

    fn args(line: &str) -> ClusterArgs {
        let command = ClusterArgs::augment_args(clap::Command::new("x"));
        let matches = command.try_get_matches_from(std::iter::once("x").chain(line.split_whitespace()));
        ClusterArgs::from_arg_matches(&matches.unwrap()).unwrap()
    }

    /// The result of the flags for the file.
    fn chosen(line: &str) -> Result<(Context, Cluster, AuthInfo), ClientError> {
        let mut file = args(line).chosen(Kubeconfig::from_yaml(FILE).unwrap())?;
        Ok((
            file.contexts.remove(0).context.unwrap(),
            file.clusters.remove(0).cluster.unwrap(),
            file.auth_infos.remove(0).auth_info.unwrap(),
        ))
    }

    #[test]
    fn flags_choose_context_cluster_and_user() {
        let of = |line: &str| {
            let (context, cluster, user) = chosen(line).unwrap();
            (context.namespace, cluster.server.unwrap(), user.token.is_some())
        };
        let team = || Some("team-a".to_owned());
        assert_eq!(of(""), (team(), "https://a:6443".to_owned(), true));
        assert_eq!(of("--context two"), (None, "https://b:6443".to_owned(), false));
        assert_eq!(of("--cluster b"), (team(), "https://b:6443".to_owned(), true));
        assert_eq!(of("--user bert"), (team(), "https://a:6443".to_owned(), false));
        for (line, expected) in [
            ("--context three", "context \"three\" does not exist"),
            ("--cluster c", "cluster \"c\" does not exist"),
            ("--user carl", "user \"carl\" does not exist"),
        ] {
            assert_eq!(chosen(line).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn flags_override_what_the_file_says_of_the_server() {
        let of = |line: &str| chosen(line).unwrap().1;
        let cluster = of("-s https://c:1");
        assert_eq!((cluster.server.as_deref(), cluster.tls_server_name), (Some("https://c:1"), None));
        assert_eq!(of("--server x --tls-server-name n").tls_server_name.as_deref(), Some("n"));
        let cluster = of("--insecure-skip-tls-verify");
        assert_eq!(
            (cluster.insecure_skip_tls_verify, cluster.certificate_authority_data),
            (Some(true), None)
        );
        let cluster = of("--certificate-authority ca.crt");
        assert_eq!(cluster.certificate_authority.as_deref(), Some("ca.crt"));
        assert_eq!(
            (cluster.insecure_skip_tls_verify, cluster.certificate_authority_data),
            (Some(false), None)
        );
    }

    #[test]
    fn flags_override_what_the_file_says_of_the_user() {
        let of = |line: &str| chosen(line).unwrap().2;
        let user = of("--token t2");
        assert!(user.token.is_some() && user.token_file.is_none());
        let user = of("--user bert --client-certificate c.crt --client-key c.key");
        assert_eq!((user.client_certificate.as_deref(), user.client_certificate_data), (Some("c.crt"), None));
        assert_eq!((user.client_key.as_deref(), user.client_key_data.is_none()), (Some("c.key"), true));
        let user = of("--as eve --as-uid 7 --as-group a --as-group b");
        assert_eq!((user.impersonate.as_deref(), user.impersonate_uid.as_deref()), (Some("eve"), Some("7")));
        assert_eq!(user.impersonate_groups, Some(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn a_server_needs_no_kubeconfig() {
        let file = args("--server http://a:1").chosen(Kubeconfig::default()).unwrap();
        assert_eq!(file.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("http://a:1"));
        assert!(matches!(args("").chosen(Kubeconfig::default()), Err(ClientError::NoContext)));
    }

    #[tokio::test]
    async fn namespace_and_time_limit_come_from_the_flags() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, FILE).unwrap();
        let with = |line: &str| args(&format!("--kubeconfig {} {line}", path.display()));
        let config = with("--context two").config().await.unwrap();
        assert_eq!((config.default_namespace.as_str(), config.connect_timeout), ("default", Some(CONNECT)));
        let config = with("--context two -n x --request-timeout 2s").config().await.unwrap();
        let two = Some(Duration::from_secs(2));
        assert_eq!(
            (config.default_namespace.as_str(), config.read_timeout, config.connect_timeout),
            ("x", two, two)
        );
        let config = with("--context two --request-timeout 0").config().await.unwrap();
        assert_eq!((config.read_timeout, config.connect_timeout), (None, Some(CONNECT)));
        let absent = args("--kubeconfig /nowhere/config").config().await.unwrap_err().to_string();
        assert!(absent.contains("/nowhere/config"), "{absent}");
        // A write that was lost on its way back is not repeated, and nothing for minutes.
        assert!(!with("--context two").config().await.unwrap().default_retry);
    }

    #[test]
    fn the_namespace_is_known_without_a_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, FILE).unwrap();
        let of = |line: &str| args(&format!("--kubeconfig {} {line}", path.display())).namespace();
        for (line, expected) in
            [("", "team-a"), ("--context two", "default"), ("-n x", "x"), ("--context three -n x", "x")]
        {
            assert_eq!(of(line).unwrap(), expected, "{line}");
        }
        for (line, expected) in [("--context three", "context \"three\" does not exist"), ("-n A", "A")] {
            let error = of(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
        std::fs::write(&path, "contexts: []").unwrap();
        assert_eq!(of("").unwrap(), "default");
    }

    #[test]
    fn kubectl_gets_the_same_flags() {
        let line = "--namespace=n --context=c --kubeconfig=k --cluster=l --user=u --server=s --token=t --as=a --as-uid=7 \
                    --request-timeout=1500ms --certificate-authority=ca --client-certificate=cc --client-key=ck \
                    --insecure-skip-tls-verify --tls-server-name=n --as-group=g1 --as-group=g2";
        let expected = line.replace("verify", "verify=true");
        assert_eq!(args(line).flags(), expected.split_whitespace().collect::<Vec<_>>());
        assert!(args("").flags().is_empty());
    }

    #[test]
    fn time_limits_are_read_as_kubectl_does() {
        let limits = [("30", 30), ("0", 0), ("2m", 120), ("1h30m", 5400)];
        for (text, seconds) in limits {
            assert_eq!(timeout(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["soon", "-1s", ""] {
            assert!(timeout(wrong).is_err(), "{wrong}");
        }
    }
}
