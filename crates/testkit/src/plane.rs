//! Starting, stopping and reaching one control plane.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::assets::{self, Tool};
use crate::certs::{CONTROLLER_MANAGER, Certs, SCHEDULER};
use crate::kubeconfig::{self, User};
use crate::plane_parts as parts;
use crate::ports::free_ports;
use crate::process::{Program, Watchdog};
use crate::wait::{Progress, eventually, progress};

/// How long a program of the plane may take until it serves: on a busy machine an API server takes more than a minute.
pub(crate) const START_DEADLINE: Duration = Duration::from_mins(5);

/// The stages of fake nodes and pods (kwok).
const STAGES: &str = include_str!("../../../tests/control-plane/kwok/stages.yaml");

/// Which parts a [`ControlPlane`] has. etcd and the API server are always there.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    controller_manager: bool,
    scheduler: bool,
    kwok: bool,
    api_server_flags: Vec<String>,
}

impl Builder {
    /// Runs kube-controller-manager: Jobs, service accounts, garbage collection, namespaces.
    #[must_use]
    pub fn controller_manager(mut self, wanted: bool) -> Self {
        self.controller_manager = wanted;
        self
    }

    /// Runs kube-scheduler.
    #[must_use]
    pub fn scheduler(mut self, wanted: bool) -> Self {
        self.scheduler = wanted;
        self
    }

    /// Runs kwok: every new Node becomes ready and runs its pods.
    #[must_use]
    pub fn kwok(mut self, wanted: bool) -> Self {
        self.kwok = wanted;
        self
    }

    /// Everything: jobs run.
    #[must_use]
    pub fn complete(self) -> Self {
        self.controller_manager(true).scheduler(true).kwok(true)
    }

    /// Adds a flag for kube-apiserver.
    #[must_use]
    pub fn api_server_flag(mut self, flag: &str) -> Self {
        self.api_server_flags.push(flag.to_owned());
        self
    }

    fn tools(&self) -> Vec<Tool> {
        let mut tools = vec![Tool::Etcd, Tool::KubeApiserver];
        tools.extend(self.controller_manager.then_some(Tool::KubeControllerManager));
        tools.extend(self.scheduler.then_some(Tool::KubeScheduler));
        tools.extend(self.kwok.then_some(Tool::Kwok));
        tools
    }

    /// Starts the plane and waits until it serves; builds missing programs first.
    ///
    /// # Errors
    ///
    /// If a program is missing and cannot be built, there are too few free ports, a file of the plane cannot be written, or a program cannot be
    /// started, ends, or does not serve within five minutes.
    pub async fn start(self) -> Result<ControlPlane> {
        // Two crates with different providers may be linked in; the first choice stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tools = self.tools();
        tokio::task::spawn_blocking(move || assets::ensure(&tools))
            .await
            .context("building the control plane")??;
        let folder = tempfile::Builder::new()
            .prefix("sluice-plane-")
            .tempdir()
            .context("making a temporary folder")?;
        // From here on the watchdog removes it.
        let folder = folder.keep();
        let watchdog = Watchdog::start(&folder)?;
        let plane = ControlPlane::lay_out(self, folder, watchdog)?;
        plane.start_programs().await?;
        Ok(plane)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Programs {
    // The other programs, in the order in which they are stopped.
    pub(crate) others: Vec<Program>,
    pub(crate) api_server: Option<Program>,
    pub(crate) etcd: Option<Program>,
}

/// A running control plane on 127.0.0.1. Everything is stopped and removed when it is dropped.
#[derive(Debug)]
pub struct ControlPlane {
    programs: Mutex<Programs>,
    parts: Builder,
    certs: Certs,
    pub(crate) ports: Vec<u16>,
    folder: PathBuf,
    watchdog: Arc<Watchdog>,
}

impl ControlPlane {
    /// Builds a plane with etcd and the API server; other programs are options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn lay_out(builder: Builder, folder: PathBuf, watchdog: Arc<Watchdog>) -> Result<Self> {
        let certs = Certs::make(&folder.join("certs"))?;
        fs::create_dir_all(folder.join("logs")).context("making the log folder")?;
        let ports = free_ports(5)?;
        let plane = Self { programs: Mutex::default(), parts: builder, certs, ports, folder, watchdog };
        for file in ["admin", CONTROLLER_MANAGER.0, SCHEDULER.0] {
            let (certificate, key) =
                (plane.certs.path(&format!("{file}.crt")), plane.certs.path(&format!("{file}.key")));
            let (path, user) = (plane.kubeconfig_of(file), User::Certificate(&certificate, &key));
            kubeconfig::write(&path, &plane.url(), Some(&plane.ca_path()), &user, "default")?;
        }
        Ok(plane)
    }

    pub(crate) fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start_programs(&self) -> Result<()> {
        let etcd = self.spawn("etcd", parts::etcd(&self.folder, self.ports[0], self.ports[1])?)?;
        self.programs().etcd = Some(etcd);
        self.start_api_server().await?;
        let kubeconfig = self.kubeconfig_path();
        let mut wanted = Vec::new();
        if self.parts.controller_manager {
            let own = self.kubeconfig_of(CONTROLLER_MANAGER.0);
            let command = parts::controller_manager(&self.certs, &own, self.ports[3])?;
            wanted.push(("kube-controller-manager", command));
        }
        if self.parts.scheduler {
            let own = self.kubeconfig_of(SCHEDULER.0);
            wanted.push(("kube-scheduler", parts::scheduler(&own, self.ports[4])?));
        }
        if self.parts.kwok {
            let stages = self.folder.join("stages.yaml");
            fs::write(&stages, STAGES).context("writing the stages of fake nodes")?;
            wanted.push(("kwok", parts::kwok(&kubeconfig, &stages)?));
        }
        for (name, command) in wanted {
            let program = self.spawn(name, command)?;
            self.programs().others.push(program);
        }
        if self.parts.controller_manager {
            self.wait_for_service_accounts().await?;
        }
        self.check()
    }

    async fn wait_for_service_accounts(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        eventually("the service account default/default", START_DEADLINE, || async {
            if let Err(error) = self.check() {
                return Ok(Progress::Never(format!("{error:#}")));
            }
            Ok(progress(accounts.get_opt("default").await?.is_some(), "not there"))
        })
        .await
    }

    /// Starts a program in the plane's folder; it is stopped with the plane at the latest.
    pub(crate) fn spawn(&self, name: &str, command: Command) -> Result<Program> {
        Program::start(name, command, &self.log_path(name), &self.watchdog)
    }

    /// Looks whether the programs of the plane run.
    ///
    /// # Errors
    ///
    /// If a program has ended that should run. The error has the end of its log.
    pub fn check(&self) -> Result<()> {
        let mut programs = self.programs();
        let Programs { others, api_server, etcd } = &mut *programs;
        others.iter_mut().chain(api_server.as_mut()).chain(etcd.as_mut()).try_for_each(Program::check)
    }

    /// Starts the API server again after [`ControlPlane::stop_api_server`], on the same port and data, and waits for it.
    ///
    /// # Errors
    ///
    /// If it cannot be started, a program of the plane ends, or it is not ready within five minutes, or has no namespace `default` within five
    /// more.
    pub async fn start_api_server(&self) -> Result<()> {
        let accounts = self.parts.controller_manager;
        let flags = &self.parts.api_server_flags;
        let command =
            parts::api_server(&self.folder, &self.certs, self.ports[2], self.ports[0], accounts, flags)?;
        let program = self.spawn("kube-apiserver", command)?;
        self.programs().api_server = Some(program);
        let client = self.client().await?;
        eventually("the API server's /readyz", START_DEADLINE, || async {
            if let Err(error) = self.check() {
                return Ok(Progress::Never(format!("{error:#}")));
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = client.request_text(request).await?;
            Ok(progress(answer == "ok", answer))
        })
        .await?;
        // Readiness does not include the built-in namespaces, and nearly every test uses this one.
        let namespaces: Api<Namespace> = Api::all(client);
        eventually("the namespace default", START_DEADLINE, || async {
            Ok(progress(namespaces.get_opt("default").await?.is_some(), "not there"))
        })
        .await
    }

    /// Kills the API server. Its data stay.
    pub fn stop_api_server(&self) {
        // Killed on drop.
        drop(self.programs().api_server.take());
    }

    /// Kills the API server and starts it again.
    ///
    /// # Errors
    ///
    /// As [`ControlPlane::start_api_server`].
    pub async fn restart_api_server(&self) -> Result<()> {
        self.stop_api_server();
        self.start_api_server().await
    }

    /// Where the API server is.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[2])
    }

    /// The certificate authority of the API server, PEM.
    pub fn ca_path(&self) -> PathBuf {
        self.certs.path("ca.crt")
    }

    /// A file of the plane's keys and certificates.
    pub(crate) fn cert(&self, name: &str) -> PathBuf {
        self.certs.path(name)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.kubeconfig_of("admin")
    }

    /// The kubeconfig with the certificate in these files.
    fn kubeconfig_of(&self, file: &str) -> PathBuf {
        self.folder.join(format!("{file}.kubeconfig"))
    }

    /// The folder of the plane: data, logs, kubeconfigs. Removed with it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The log file of a program that runs here.
    pub fn log_path(&self, program: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{program}.log"))
    }

    /// A new client with the administrator's rights. It belongs to the runtime in which it is made: make one per test.
    ///
    /// # Errors
    ///
    /// If the plane's kubeconfig, or one of its certificates, cannot be read.
    pub async fn client(&self) -> Result<Client> {
        client_of(&self.kubeconfig_path()).await
    }

    /// A kubeconfig that acts as a service account, whose token is good for a day.
    ///
    /// # Errors
    ///
    /// If there is no token (see [`ControlPlane::token_of_service_account`]), or the file cannot be written.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.token_of_service_account(namespace, name).await?;
        let path = self.folder.join(format!("{namespace}.{name}.kubeconfig"));
        kubeconfig::write(&path, &self.url(), Some(&self.ca_path()), &User::Token(&token), namespace)?;
        Ok(path)
    }

    /// A kubeconfig that acts as a service account, against another server: the plain HTTP address of a fault proxy.
    ///
    /// # Errors
    ///
    /// If there is no token (see [`ControlPlane::token_of_service_account`]), or the file cannot be written.
    pub async fn kubeconfig_through(&self, server: &str, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.token_of_service_account(namespace, name).await?;
        let port = server.rsplit(':').next().unwrap_or_default();
        let path = self.folder.join(format!("{namespace}.{name}.{port}.kubeconfig"));
        kubeconfig::write(&path, server, None, &User::Token(&token), namespace)?;
        Ok(path)
    }

    /// A token of a service account (TokenRequest), valid for a day.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or has no such account.
    pub async fn token_of_service_account(&self, namespace: &str, name: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let spec =
            TokenRequestSpec { audiences: None, bound_object_ref: None, expiration_seconds: Some(86_400) };
        let request = TokenRequest { metadata: ObjectMeta::default(), spec: Some(spec), status: None };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("asking for a token of {namespace}/{name}"))?;
        answer.status.and_then(|status| status.token).context("the token request came back without a token")
    }

    /// Makes a namespace, and waits for its service account so that pods can be made at once.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached or refuses the namespace, for example because it exists; or if, on a plane with kube-controller-manager,
    /// it has no service account within five minutes.
    pub async fn make_namespace(&self, name: &str) -> Result<()> {
        let client = self.client().await?;
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("making the namespace {name}"))?;
        if !self.parts.controller_manager {
            return Ok(());
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(client, name);
        eventually("the namespace's service account", START_DEADLINE, || async {
            Ok(match accounts.get_opt("default").await? {
                Some(_) => Progress::Done(()),
                None => Progress::NotYet("not there".to_owned()),
            })
        })
        .await
    }

    /// The ids of the programs that run, for the process that takes over (see [`ControlPlane::hand_over`]).
    pub fn program_ids(&self) -> Vec<u32> {
        let programs = self.programs();
        let Programs { others, api_server, etcd } = &*programs;
        others.iter().chain(api_server).chain(etcd).map(Program::id).collect()
    }

    /// Leaves everything running without this process; returns the ids of the programs. The process that takes over adopts them
    /// with a [`Watchdog`] of its own on [`ControlPlane::folder`].
    pub fn hand_over(self) -> Vec<u32> {
        let ids = self.program_ids();
        let mut programs = self.programs();
        let Programs { others, api_server, etcd } = &mut *programs;
        others.iter_mut().chain(api_server).chain(etcd).for_each(Program::detach);
        self.watchdog.disarm();
        drop(programs);
        ids
    }

    /// Stops everything and removes the folder; the same happens on drop.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let mut programs = self.programs();
        // Clients of the API server first, so that their logs do not end in complaints.
        programs.others.clear();
        programs.api_server = None;
        programs.etcd = None;
    }
}

/// A client for a kubeconfig file. It does not retry: a test wants to see a refusal, not wait it out.
///
/// # Errors
///
/// If the file cannot be read or is no kubeconfig, or what its current context names is missing or cannot be read.
pub async fn client_of(kubeconfig: &Path) -> Result<Client> {
    client_with(kubeconfig, false).await
}

/// A client for a kubeconfig file that waits out a short overload (429, 503), as kubectl does.
///
/// # Errors
///
/// As [`client_of`].
pub async fn patient_client_of(kubeconfig: &Path) -> Result<Client> {
    client_with(kubeconfig, true).await
}

async fn client_with(kubeconfig: &Path, retry: bool) -> Result<Client> {
    // Two crates with different providers may be linked in; the first choice stands.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read =
        Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = retry;
    Ok(Client::try_from(config)?)
}
