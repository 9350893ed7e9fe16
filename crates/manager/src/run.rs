//! `sluice manager`: puts the parts together, and takes them apart again in an order that loses nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use jiff::Timestamp;
use kube::Client;
use sluice_api::config::Configuration;
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_engine::input::Input;
use sluice_engine::{Engine, EngineConfig};
use sluice_sim::replay::Entry;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::certs::server::TlsOptions;
use crate::certs::{CertsState, Keeper, Serving, serve_files};
use crate::cli::ManagerArgs;
use crate::client::{client, connection};
use crate::controllers::{Controller, Controllers};
use crate::engine_thread::{Handle, start as start_engine};
use crate::events::{self, EventSink};
use crate::explain::Explainer;
use crate::lease::{self, Election, Loss, Standing};
use crate::listen::{address, bind};
use crate::metrics::access::Access;
use crate::metrics::registry::{Registry, Role};
use crate::metrics::scrape::Scraper;
use crate::outlet::Effects;
use crate::probe::Status;
use crate::record::Recorder;
use crate::settings;
use crate::shutdown::{Stop, Stopper, pair};
use crate::takeover::{self, Takeover};
use crate::watch::document;
use crate::watch::pods::Pods;
use crate::watch::pump::{Feed, Selector, Shared, Sink};
use crate::watch::sync::{SyncTracker, end_unless_synced};
use crate::watch::versions::Versions;
use crate::watches::{self, Crds, Wanted, watched_kinds};
use crate::webhook::facts::FactStore;
use crate::webhook::reviewer::Reviewers;
use crate::writer::{Answers, Writer};
use crate::{health, metrics, webhook};

/// Writes may take this long after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);
/// Everything else may take this long after that.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the manager until it is told to stop or must end. The process's exit code.
pub async fn run(args: ManagerArgs) -> anyhow::Result<u8> {
    let began = Instant::now();
    let (configuration, controllers) = configure(&args)?;
    let connection = connection(args.kubeconfig.as_deref()).await?;
    info!(server = %connection.cluster_url, version = crate::version::VERSION, "starting");
    // The lease has connections of its own: nothing may queue in front of a renewal.
    let (work, lease) = (client(&connection)?, client(&connection)?);
    let (stopper, stop) = pair();
    let (inject_panics, record) = (args.inject_panics, args.record);
    let parts = Parts { configuration, controllers, client: work, stop, inject_panics, record };
    let running = parts.start(lease)?;
    info!(ms = began.elapsed().as_millis(), "started");
    running.until_the_end(stopper).await
}

fn configure(args: &ManagerArgs) -> anyhow::Result<(Configuration, Controllers)> {
    let controllers = Controllers::parse(&args.controllers)?;
    let environment = settings::environment(args.feature_gates.clone());
    let (configuration, warnings) = settings::load(args.config.as_deref(), &environment)?;
    for warning in warnings {
        warn!("{warning}");
    }
    Ok((configuration, controllers))
}

/// What every part is made from.
struct Parts {
    configuration: Configuration,
    controllers: Controllers,
    client: Client,
    stop: Stop,
    inject_panics: bool,
    /// Where the decisions are recorded.
    record: Option<PathBuf>,
}

/// What runs.
struct Running {
    engine: Handle<Engine>,
    engine_thread: std::thread::JoinHandle<()>,
    writer: Writer,
    events: JoinHandle<()>,
    election: JoinHandle<()>,
    losses: mpsc::UnboundedReceiver<Loss>,
    release: Stopper,
    standing: watch::Receiver<Standing>,
    takeover: Takeover,
    registry: Arc<Registry>,
    elected: bool,
    fatal: mpsc::UnboundedReceiver<String>,
    tasks: Vec<JoinHandle<()>>,
}

impl Parts {
    fn jobs(&self) -> Vec<JobKind> {
        let wanted = |kind: &JobKind| {
            self.controllers.has(match kind {
                JobKind::Job => Controller::Job,
                JobKind::JobSet => Controller::JobSet,
            })
        };
        self.configuration.job_kinds().into_iter().filter(wanted).collect()
    }

    fn start(self, lease_client: Client) -> anyhow::Result<Running> {
        let elected = self.configuration.leader_election.leader_elect;
        let role = if elected { Role::Follower } else { Role::Standalone };
        let registry = Arc::new(Registry::new(metrics::definitions(), role).context("setting up metrics")?);
        let sync = Arc::new(SyncTracker::new(watched_kinds(&self.jobs(), self.provisions())));
        let (epoch, epochs) = watch::channel(0);
        let (fatal, fatals) = mpsc::unbounded_channel();
        let gives_up = fatal.clone();
        let (sink, events) = events::start(self.client.clone(), &lease::identity());
        let kept_sink = self.controllers.has(Controller::Events).then(|| sink.clone());

        let answers_to = Arc::new(OnceLock::<Handle<Engine>>::new());
        let answers = answers(Arc::clone(&answers_to));
        let connection = &self.configuration.client_connection;
        let burst = u32::try_from(connection.burst).unwrap_or(0);
        let versions = Versions::default();
        let writer =
            Writer::start(self.client.clone(), versions.clone(), connection.qps, burst, Arc::clone(&answers));
        let effects = Effects {
            writer: writer.clone(),
            answers,
            events: kept_sink.clone(),
            registry: Arc::clone(&registry),
            controllers: self.controllers.clone(),
            sync: Arc::clone(&sync),
            epoch,
            fatal,
        };
        let config = self.engine_config();
        let recorder = self.recorder(&config)?;
        let (engine, engine_thread) = start_engine(move || Engine::new(config.clone()), effects, recorder)
            .context("starting the engine")?;
        // Set once, here.
        let _ = answers_to.set(engine.clone());

        let facts = Arc::new(FactStore::default());
        let crds = Arc::new(Crds::default());
        let wanted = Wanted {
            jobs: self.jobs(),
            provisioning: self.provisions().then(|| versions.clone()),
            pods: self.pods(),
        };
        let (takeover, lists) = takeover::pair();
        let shared = Shared {
            sink: feed(engine.clone(), Arc::clone(&facts)),
            sync: Arc::clone(&sync),
            epoch: epochs,
            lists,
            selector: Selector::default(),
            stop: self.stop.clone(),
        };
        let mut tasks =
            vec![tokio::spawn(watches::run(self.client.clone(), wanted, Arc::clone(&crds), shared))];
        if let Some(limit) = self.configuration.controller.cache_sync_timeout() {
            let (sync, fatal, stop) = (Arc::clone(&sync), gives_up, self.stop.clone());
            tasks.push(tokio::spawn(end_unless_synced(sync, limit, fatal, stop)));
        }
        let certs = self.webhooks(&facts, &mut tasks)?;
        let (release, released) = pair();
        let (loss, losses) = mpsc::unbounded_channel();
        let (election, standing) = self.election(lease_client, released, loss);
        let explainer = Explainer::new(engine.clone(), self.client.clone(), self.configuration.clone());
        let status =
            Status { crds, sync, certs, standing: standing.clone(), engine: engine.clone(), explainer };
        self.health(status, &mut tasks)?;
        self.metrics(engine.clone(), Arc::clone(&registry), kept_sink, &mut tasks)?;
        Ok(Running {
            engine,
            engine_thread,
            writer,
            events,
            election,
            losses,
            release,
            standing,
            takeover,
            registry,
            elected,
            fatal: fatals,
            tasks,
        })
    }

    fn provisions(&self) -> bool {
        self.controllers.has(Controller::Provisioning)
    }

    /// Who may ask for pods.
    fn pods(&self) -> Pods {
        let on = |gate| self.configuration.gates.enabled(gate);
        if on(Gate::FailureRecoveryPolicy) {
            Pods::All
        } else if on(Gate::Hotswap) && self.controllers.has(Controller::Scheduler) {
            Pods::ForQueues
        } else {
            Pods::ForJobs
        }
    }

    /// Opens the decision log, and lets documents be kept for it.
    fn recorder(&self, config: &EngineConfig) -> anyhow::Result<Option<Recorder>> {
        let Some(file) = &self.record else { return Ok(None) };
        document::keep();
        let header = Entry::header(Timestamp::now(), &self.configuration, config.into());
        let recorder = Recorder::start(file, header);
        recorder.map(Some).with_context(|| format!("opening the decision log {}", file.display()))
    }

    fn engine_config(&self) -> EngineConfig {
        EngineConfig {
            frameworks: self.jobs().into_iter().collect(),
            scheduling: self.controllers.has(Controller::Scheduler),
            provisioning: self.provisions(),
            inject_panics: self.inject_panics,
            ..EngineConfig::from(&self.configuration)
        }
    }

    fn election(
        &self,
        client: Client,
        stop: Stop,
        losses: mpsc::UnboundedSender<Loss>,
    ) -> (JoinHandle<()>, watch::Receiver<Standing>) {
        let section = &self.configuration.leader_election;
        let namespace = if section.resource_namespace.is_empty() {
            self.configuration.namespace.clone()
        } else {
            section.resource_namespace.clone()
        };
        let settings = lease::Settings {
            namespace,
            name: section.resource_name.clone(),
            identity: lease::identity(),
            lease_duration: section.lease_duration.as_std(),
            renew_deadline: section.renew_deadline.as_std(),
            retry_period: section.retry_period.as_std(),
        };
        let (election, standing) = Election::new(client, settings);
        let elect = section.leader_elect;
        let task = tokio::spawn(async move {
            if elect { election.run(stop, losses).await } else { election.stand_alone(stop).await }
        });
        (task, standing)
    }

    fn tls(&self) -> TlsOptions {
        let Some(tls) = &self.configuration.tls else { return TlsOptions::default() };
        let least = Some(tls.min_version.as_str()).filter(|version| !version.is_empty());
        let (options, unknown) = TlsOptions::narrowed(least, &tls.cipher_suites);
        if !unknown.is_empty() {
            warn!(suites = %unknown.join(", "), "cipher suites that are not available are left out");
        }
        let (options, unknown) = options.with_curves(&tls.curve_preferences);
        if !unknown.is_empty() {
            warn!(curves = %unknown.join(", "), "curves that are not available are left out");
        }
        options
    }

    /// Serves webhooks, on every replica and before it leads.
    fn webhooks(
        &self,
        facts: &Arc<FactStore>,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> anyhow::Result<Option<watch::Receiver<CertsState>>> {
        if !self.controllers.has(Controller::Webhooks) {
            return Ok(None);
        }
        let section = &self.configuration.webhook;
        let listen = format!("{}:{}", section.host, section.port);
        let Some(listen) = address("webhook.host", &listen)? else { return Ok(None) };
        let listener = bind("webhook.port", listen)?;
        let serving = Serving::provisional(self.tls())?;
        let reviewers = Arc::new(Reviewers::new(&self.configuration, Arc::clone(facts)));
        let tls = serving.config.clone();
        tasks.push(tokio::spawn(webhook::server::serve(listener, tls, reviewers, self.stop.clone())));
        let (state, states) = watch::channel(CertsState::Pending("not looked at yet".to_owned()));
        let certs = &self.configuration.internal_cert_management;
        if certs.enable && self.controllers.has(Controller::Certificates) {
            let keeper = Keeper::new(
                self.client.clone(),
                &self.configuration.namespace,
                &certs.webhook_service_name,
                &certs.webhook_secret_name,
                &section.host,
                serving,
            );
            tasks.push(tokio::spawn(keeper.run(state, self.stop.clone())));
        } else {
            let folder = section.cert_dir.clone().into();
            tasks.push(tokio::spawn(serve_files(folder, serving, state, self.stop.clone())));
        }
        Ok(Some(states))
    }

    fn health(&self, status: Status, tasks: &mut Vec<JoinHandle<()>>) -> anyhow::Result<()> {
        let section = &self.configuration.health;
        let field = "health.healthProbeBindAddress";
        let Some(listen) = address(field, &section.health_probe_bind_address)? else { return Ok(()) };
        let listener = tokio::net::TcpListener::from_std(bind(field, listen)?).context(field)?;
        let (ready, live) = (section.readiness_endpoint_name.clone(), section.liveness_endpoint_name.clone());
        let stop = self.stop.clone();
        tasks.push(tokio::spawn(async move {
            health::serve(listener, &ready, &live, Arc::new(status), stop).await;
        }));
        Ok(())
    }

    fn metrics(
        &self,
        engine: Handle<Engine>,
        registry: Arc<Registry>,
        events: Option<EventSink>,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> anyhow::Result<()> {
        let field = "metrics.bindAddress";
        let listen: Option<SocketAddr> = address(field, &self.configuration.metrics.bind_address)?;
        let Some(listen) = listen else { return Ok(()) };
        let listener = bind(field, listen)?;
        let serving = Serving::provisional(self.tls())?;
        let scraper = Scraper {
            engine,
            registry,
            events,
            lease: self.configuration.leader_election.resource_name.clone(),
            started: SystemTime::now(),
        };
        let access = Access::new(self.client.clone());
        let scrape = scraper.into_scrape();
        let stop = self.stop.clone();
        tasks.push(tokio::spawn(metrics::server::serve(listener, serving.config, access, scrape, stop)));
        Ok(())
    }
}

/// Takes answers of writes back to the engine, once that exists.
fn answers(engine: Arc<OnceLock<Handle<Engine>>>) -> Answers {
    Arc::new(move |generation, id, result, document| {
        if let Some(engine) = engine.get() {
            engine.written(generation, id, result, document);
        }
    })
}

/// Takes what watches tell to the webhooks' facts and to the engine.
fn feed(engine: Handle<Engine>, facts: Arc<FactStore>) -> Sink {
    Arc::new(move |feed| match feed {
        Feed::Input(input, document) => {
            facts.note(&input);
            engine.seen(input, document);
        }
        Feed::Synced(epoch) => engine.synced(epoch),
    })
}

impl Running {
    async fn until_the_end(mut self, stopper: Stopper) -> anyhow::Result<u8> {
        let mut signals = Signals::new()?;
        let ending = loop {
            tokio::select! {
                name = signals.next() => {
                    info!(signal = name, "stopping");
                    break Ending::Asked;
                }
                Ok(()) = self.standing.changed() => self.standing_changed(),
                () = self.takeover.caught_up() => self.lead(),
                Some((why, answer)) = self.losses.recv() => {
                    self.step_down(&why).await;
                    // The election waits for this.
                    let _ = answer.send(());
                }
                // It goes on until it is told to stop, which was not yet.
                ended = &mut self.election => break Ending::Fatal(match ended {
                    Ok(()) => "the election ended".to_owned(),
                    Err(error) => format!("the election failed: {error}"),
                }),
                Some(why) = self.fatal.recv() => break Ending::Fatal(why),
            }
        };
        match ending {
            Ending::Asked => {
                self.stop_gracefully(stopper).await;
                Ok(0)
            }
            Ending::Fatal(why) => {
                error!(%why, "ending");
                Ok(1)
            }
        }
    }

    fn standing_changed(&mut self) {
        if *self.standing.borrow_and_update() == Standing::Leading {
            if self.elected {
                self.registry.set_role(Role::Leader);
            }
            self.takeover.ask();
        }
    }

    /// What was written by whoever led before is known.
    fn lead(&self) {
        if *self.standing.borrow() == Standing::Leading {
            self.engine.input(Input::Leader(true));
        }
    }

    /// Another replica may lead from now on: what is not written yet must not be. Everything is listed again, and the process
    /// stays: it answers webhooks, and leads again when it holds the lease again.
    async fn step_down(&mut self, why: &str) {
        error!(%why, "leadership is lost: following from now on");
        // A list that is under way is of a term that is over.
        self.takeover.ask();
        self.writer.abandon();
        self.engine.step_down();
        // What the engine emitted before has reached the writer once this is answered.
        let _ = tokio::time::timeout(PATIENCE, self.engine.ask(|_| ())).await;
        self.writer.abandon();
        self.registry.set_role(Role::Follower);
    }

    /// Stops deciding, lets what was decided be written, gives the lease back, and only then closes the doors.
    async fn stop_gracefully(self, stopper: Stopper) {
        self.engine.input(Input::Leader(false));
        // What the engine emitted before is with the writer once this is answered.
        let _ = tokio::time::timeout(PATIENCE, self.engine.ask(|_| ())).await;
        if !self.writer.drain(DRAIN).await {
            warn!("not all writes were answered in time");
        }
        self.release.stop();
        let _ = tokio::time::timeout(PATIENCE, self.election).await;
        stopper.stop();
        self.engine.stop();
        let engine_thread = self.engine_thread;
        let joined = tokio::task::spawn_blocking(move || engine_thread.join());
        let _ = tokio::time::timeout(PATIENCE, joined).await;
        let _ = tokio::time::timeout(Duration::from_millis(500), self.events).await;
        for task in self.tasks {
            let _ = tokio::time::timeout(Duration::from_millis(500), task).await;
        }
        info!("stopped");
    }
}

enum Ending {
    Asked,
    Fatal(String),
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("waiting for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("waiting for SIGINT")?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
