//! `sluice manager`: starts the parts, and stops them in an order that loses nothing.

mod ending;
mod sections;
mod servers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use jiff::Timestamp;
use kube::Client;
use sluice_api::config::{Configuration, Warning};
use sluice_api::gates::{Gate, GateWarning};
use sluice_api::job::JobKind;
use sluice_client::kubeconfig::{connection, counted};
use sluice_client::requests::Requests;
use sluice_client::{settings, version};
use sluice_engine::input::{Input, Object, WriteError};
use sluice_engine::{Engine, EngineConfig};
use sluice_sim::replay::Entry;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::access::Access;
use crate::args::ManagerArgs;
use crate::certs::server::TlsOptions;
use crate::certs::{CertRotator, CertsState, Serving, serve_files};
use crate::controllers::{Controller, Controllers};
use crate::dashboard::store::Store;
use crate::engine_thread::{Handle, start as start_engine};
use crate::events::{self, EventSink};
use crate::explain::Explainer;
use crate::intake::{Intake, Slot};
use crate::journal::Journal;
use crate::lease::deadline::Until;
use crate::lease::{self, Election, Loss, Standing};
use crate::listen::{address, bind};
use crate::logging;
use crate::metrics::registry::{Registry, Role};
use crate::metrics::scrape::Scraper;
use crate::outlet::{self, Effects};
use crate::probe::Status;
use crate::record::Recorder;
use crate::serve::Bounds;
use crate::serve::connections::Patience;
use crate::serve::descriptors::{self, Shares};
use crate::shutdown::{Stop, Stopper, pair};
use crate::supervise::{Supervisor, reasons};
use crate::takeover::{self, Takeover};
use crate::traces::{Sampling, Traces};
use crate::watch::document;
use crate::watch::failures::Pauses;
use crate::watch::known::Known;
use crate::watch::makers;
use crate::watch::pods::{Pods, may_need};
use crate::watch::pump::{Feed, Selector, Shared, Sink};
use crate::watch::sync::{SyncTracker, end_unless_synced};
use crate::watch::versions::Versions;
use crate::watches::{self, Crds, Wanted, watched_kinds};
use crate::webhook::facts::FactStore;
use crate::webhook::reviewer::Reviewers;
use crate::writer::class::Class;
use crate::writer::traffic::Traffic;
use crate::writer::{Answering, Answers, Backlog, Meter, Poison, Server, Writer};
use crate::{health, metrics, rights, webhook};

/// Runs the manager until it receives SIGTERM or must end. Returns the process's exit code.
///
/// # Errors
///
/// If the configuration, the list of controllers or the kubeconfig is not usable, a port cannot be listened on, certificates cannot be made, or the
/// journal, the traces or the decision log cannot be started.
pub async fn run(args: ManagerArgs) -> anyhow::Result<u8> {
    let began = Instant::now();
    let (configuration, controllers) = configure(&args)?;
    let connection = connection(args.kubeconfig.as_deref()).await?;
    info!(server = %connection.cluster_url, version = version::VERSION, "starting");
    // The lease has connections of its own: nothing may queue in front of a renewal.
    let requests = Requests::of(&connection);
    let (work, lease) = (counted(&connection, &requests)?, counted(&connection, &requests)?);
    let (stopper, stop) = pair();
    let (inject_panics, record) = (args.inject_panics, args.record);
    let shares = descriptors::shares();
    let pauses = Pauses::default();
    let client = work;
    let parts =
        Parts { configuration, controllers, client, requests, stop, inject_panics, record, shares, pauses };
    let running = parts.start(lease)?;
    info!(ms = began.elapsed().as_millis(), "started");
    running.until_the_end(stopper).await
}

fn configure(args: &ManagerArgs) -> anyhow::Result<(Configuration, Controllers)> {
    let environment = settings::environment(args.feature_gates.clone());
    let (configuration, warnings) = settings::load(args.config.as_deref(), &environment)?;
    // After the kinds are known that the configuration declares: each has a controller, too.
    let controllers = Controllers::parse(&args.controllers)?;
    for warning in warnings {
        match &warning {
            // Most are on by default: their names are logged from verbosity 1 on.
            Warning::Gate(GateWarning::NotBuilt(gates)) if logging::verbosity(&args.log_level) == 0 => {
                let count = gates.len();
                warn!(count, "some enabled feature gates have no effect yet; --v=1 lists them");
            }
            warning => warn!("{warning}"),
        }
    }
    Ok((configuration, controllers))
}

/// What every part is made from.
struct Parts {
    configuration: Configuration,
    controllers: Controllers,
    client: Client,
    /// What all clients asked for.
    requests: Requests,
    stop: Stop,
    inject_panics: bool,
    /// Where the decisions are recorded.
    record: Option<PathBuf>,
    /// How many connections each server may have.
    shares: Shares,
    /// How long watches pause that fail.
    pauses: Pauses,
}

/// The running parts.
struct Running {
    engine: Handle<Engine>,
    engine_thread: std::thread::JoinHandle<()>,
    writer: Writer,
    events: JoinHandle<()>,
    /// The tasks that send traces and files of the journal, until the engine emits no more.
    last: Vec<JoinHandle<()>>,
    election: JoinHandle<()>,
    losses: mpsc::Receiver<Loss>,
    release: Stopper,
    standing: watch::Receiver<Standing>,
    takeover: Takeover,
    registry: Arc<Registry>,
    elected: bool,
    fatal: mpsc::Receiver<String>,
    tasks: Vec<JoinHandle<()>>,
    /// How long each part may take when the process ends.
    patience: Duration,
}

impl Parts {
    fn jobs(&self) -> Vec<JobKind> {
        let wanted = |kind: &JobKind| {
            !kind.integration().pods_are_jobs && self.controllers.has(Controller::Job(*kind))
        };
        self.configuration.job_kinds().into_iter().filter(wanted).collect()
    }

    fn start(self, lease_client: Client) -> anyhow::Result<Running> {
        let elected = self.configuration.leader_election.leader_elect;
        let role = if elected { Role::Follower } else { Role::Standalone };
        let registry = Arc::new(
            Registry::new(metrics::definitions(&self.engine_config().custom_labels), role)
                .context("setting up metrics")?,
        );
        let external = self.configuration.external_kinds();
        let sync = Arc::new(SyncTracker::new(watched_kinds(&self.jobs(), &external, self.provisions())));
        let (epoch, epochs) = watch::channel(0);
        let (fatal, fatals) = reasons();
        let supervisor = &Supervisor::new(fatal.clone(), self.stop.clone());
        let traffic = Traffic::default();
        let (traces, exporting) = self.traces(supervisor, Arc::clone(&registry))?;
        let (journal, sending) = self.journal(supervisor, &registry)?;
        let (sink, events) = events::start(
            supervisor,
            self.client.clone(),
            (&lease::identity(), self.sampling()),
            traffic.clone(),
        );
        let kept_sink = self.controllers.has(Controller::Events).then(|| sink.clone());

        let answers_to = Arc::new(OnceLock::<Handle<Engine>>::new());
        let kinds = self.configuration.job_kinds();
        let facts = Arc::new(FactStore::of(&kinds, external.clone()));
        let store = self.serves_dashboard().then(Arc::<Store>::default);
        let known = Arc::new(Known::with(followed(Arc::clone(&facts), store.is_some())));
        let answers = answers(Arc::clone(&answers_to), Arc::clone(&known));
        let connection = &self.configuration.client_connection;
        let burst = u32::try_from(connection.burst).unwrap_or(0);
        let versions = Versions::default();
        let intake = Intake::default();
        let poison = poison(Arc::clone(&answers_to));
        let backlog = backlog(Arc::clone(&answers_to));
        let meter = meter(Arc::clone(&registry));
        let answering = Answering { backlog, meter, answers, poison, intake: intake.clone() };
        let (until, deadline) = lease::deadline::pair();
        let writer = Writer::start(
            supervisor,
            Server::new(self.client.clone(), deadline, traffic.clone()).knowing(Arc::clone(&known)),
            versions.clone(),
            connection.qps,
            burst,
            answering,
        );
        let moved = Arc::<Notify>::default();
        let effects = Effects {
            writer: writer.clone(),
            events: kept_sink.clone(),
            registry: Arc::clone(&registry),
            sync: Arc::clone(&sync),
            known: Arc::clone(&known),
            epoch,
            fatal,
            moved: Arc::clone(&moved),
            journal,
            traces,
        };
        let config = self.engine_config();
        let recorder = self.recorder(supervisor, &config)?;
        let (engine, engine_thread) =
            start_engine(supervisor, build(config, self.follows_positions()), effects, recorder)
                .context("starting the engine")?;
        // Set once, here.
        let _ = answers_to.set(engine.clone());

        let crds = Arc::new(Crds::default());
        let wanted = Wanted {
            jobs: self.jobs(),
            external,
            provisioning: self.provisions().then(|| versions.clone()),
            pods: self.pods(),
            elastic: self.configuration.gates.enabled(Gate::ElasticJobsViaWorkloadSlices),
            topology: self.configuration.gates.enabled(Gate::TopologyAwareScheduling),
        };
        let (takeover, lists) = takeover::pair();
        let shared = Shared {
            sink: feed(engine.clone(), Arc::clone(&facts), store.clone()),
            intake,
            known,
            sync: Arc::clone(&sync),
            pauses: self.pauses.clone(),
            epoch: epochs,
            lists,
            selector: Selector::default(),
            stop: self.stop.clone(),
            supervisor: supervisor.clone(),
        };
        let watching = watches::run(self.client.clone(), wanted, Arc::clone(&crds), shared);
        let mut tasks = vec![supervisor.spawn("watches", watching)];
        if let Some(limit) = self.configuration.controller.cache_sync_timeout() {
            let waiting = end_unless_synced(Arc::clone(&sync), limit, supervisor.clone(), self.stop.clone());
            tasks.push(supervisor.spawn_finite("limit of the lists", waiting));
        }
        let guard = rights::guard(
            self.client.clone(),
            rights::needs(&self.jobs()),
            supervisor.clone(),
            self.stop.clone(),
        );
        tasks.push(supervisor.spawn_finite("guard of the rights", guard));
        let explainer =
            Arc::new(Explainer::new(engine.clone(), self.client.clone(), self.configuration.clone()));
        let webhooks = self.webhooks(supervisor, &facts, &registry, &mut tasks)?;
        let published = self.positions(supervisor, (engine.clone(), moved), &mut tasks);
        let visibility =
            self.visibility(supervisor, Arc::clone(&published), Arc::clone(&explainer), &mut tasks)?;
        let dashboard =
            self.dashboard(supervisor, (published, store, &sync), Arc::clone(&explainer), &mut tasks)?;
        let scraped = (engine.clone(), traffic);
        let metrics = self.metrics(supervisor, scraped, Arc::clone(&registry), kept_sink, &mut tasks)?;
        let servers = webhooks.into_iter().chain(visibility).chain(dashboard).collect();
        let certs = self.certificates(supervisor, (servers, metrics), &mut tasks);
        let (release, released) = pair();
        // The election waits for the answer to each.
        let (loss, losses) = mpsc::channel(1);
        let (election, standing) = self.election(supervisor, lease_client, released, loss, until);
        let status =
            Status { crds, sync, certs, standing: standing.clone(), engine: engine.clone(), explainer };
        self.health(supervisor, status, &mut tasks)?;
        Ok(Running {
            engine,
            engine_thread,
            writer,
            events,
            last: exporting.into_iter().chain(sending).collect(),
            election,
            losses,
            release,
            standing,
            takeover,
            registry,
            elected,
            fatal: fatals,
            tasks,
            patience: ending::PATIENCE,
        })
    }

    fn provisions(&self) -> bool {
        self.controllers.has(Controller::Provisioning)
    }

    /// The features that may need pods.
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
    fn recorder(&self, supervisor: &Supervisor, config: &EngineConfig) -> anyhow::Result<Option<Recorder>> {
        let Some(file) = &self.record else { return Ok(None) };
        document::keep();
        let header = Entry::header(Timestamp::now(), &self.configuration, config.into());
        let recorder = Recorder::start(supervisor, file, header);
        recorder.map(Some).with_context(|| format!("opening the decision log {}", file.display()))
    }

    fn engine_config(&self) -> EngineConfig {
        EngineConfig {
            frameworks: self.jobs().into_iter().collect(),
            scheduling: self.controllers.has(Controller::Scheduler),
            provisioning: self.provisions(),
            without: self.controllers.without(),
            inject_panics: self.inject_panics,
            log_level: outlet::wanted_level(),
            ..EngineConfig::from(&self.configuration)
        }
    }

    fn health(
        &self,
        supervisor: &Supervisor,
        status: Status,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> anyhow::Result<()> {
        let section = &self.configuration.health;
        let field = "health.healthProbeBindAddress";
        let Some(listen) = address(field, &section.health_probe_bind_address)? else { return Ok(()) };
        let listener = bind(field, listen)?;
        let (ready, live) = (section.readiness_endpoint_name.clone(), section.liveness_endpoint_name.clone());
        let (bounds, stop) = (bounds(self.shares.health), self.stop.clone());
        tasks.push(supervisor.spawn("health", async move {
            health::serve(listener, &ready, &live, Arc::new(status), bounds, stop).await;
        }));
        Ok(())
    }

    /// Serves the metrics, at once: until there is a certificate, with a provisional one.
    fn metrics(
        &self,
        supervisor: &Supervisor,
        (engine, traffic): (Handle<Engine>, Traffic),
        registry: Arc<Registry>,
        events: Option<EventSink>,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> anyhow::Result<Option<Serving>> {
        let field = "metrics.bindAddress";
        let listen: Option<SocketAddr> = address(field, &self.configuration.metrics.bind_address)?;
        let Some(listen) = listen else { return Ok(None) };
        let listener = bind(field, listen)?;
        let serving = Serving::provisional(self.tls())?;
        let scraper = Scraper {
            engine,
            registry,
            events,
            traffic,
            requests: self.requests.clone(),
            lease: self.configuration.leader_election.resource_name.clone(),
            started: SystemTime::now(),
            turn: Arc::default(),
        };
        let access = Access::new(self.client.clone(), metrics::access::REMEMBER);
        let scrape = scraper.into_scrape();
        let (bounds, stop) = (bounds(self.shares.metrics), self.stop.clone());
        let tls = serving.config.clone();
        let server = metrics::server::serve(listener, tls, access, scrape, bounds, stop);
        tasks.push(supervisor.spawn("metrics", server));
        Ok(Some(serving))
    }
}

/// Makes engines; a `followed` engine reports changes of places.
fn build(config: EngineConfig, followed: bool) -> impl Fn() -> Engine + Send + 'static {
    move || {
        let mut engine = Engine::new(config.clone());
        if followed {
            engine.follow_positions();
        }
        engine
    }
}

fn bounds(connections: usize) -> Bounds {
    Bounds { connections, patience: Patience::default() }
}

/// Whether anything but the engine follows what watches show of an object: the webhooks' facts, the dashboard's columns, the watches of pods, or the
/// decision log.
fn followed(facts: Arc<FactStore>, has_dashboard: bool) -> impl Fn(&Object) -> bool + Send + Sync + 'static {
    move |object| {
        let is_shown = has_dashboard && !matches!(object, Object::Job(_));
        is_shown || document::kept() || facts.follows(object) || may_need(object)
    }
}

/// Takes answers of writes back to the engine, once that exists.
fn answers(engine: Arc<OnceLock<Handle<Engine>>>, known: Arc<Known>) -> Answers {
    Arc::new(move |generation, id, result, document, place| {
        let Some(engine) = engine.get() else { return };
        let copy = result.as_ref().ok().and_then(Option::as_ref).and_then(|object| known.copy_of(object));
        engine.written(generation, id, result, document, place);
        if let Some(copy) = copy {
            known.answered(copy);
        }
    })
}

/// Reports to the engine how many writes wait, once the engine exists.
fn backlog(engine: Arc<OnceLock<Handle<Engine>>>) -> Backlog {
    Arc::new(move |waiting| {
        if let Some(engine) = engine.get() {
            engine.input(Input::Backlog(waiting));
        }
    })
}

/// Measures what became of writes.
fn meter(registry: Arc<Registry>) -> Meter {
    Arc::new(move |request, took, answer| {
        let result = match answer {
            Ok(_) | Err(WriteError::PodsLeft { .. } | WriteError::PodsRemain(_)) => "written",
            Err(WriteError::Conflict(_) | WriteError::AlreadyExists(_)) => "conflict",
            Err(WriteError::NotFound(_)) => "gone",
            Err(WriteError::Refused(_) | WriteError::Unstartable(_)) => "refused",
            Err(WriteError::Transient(_) | WriteError::Later { .. } | WriteError::Withdrawn) => "failed",
        };
        let labels = [Class::of(request.purpose).as_str(), request.object.kind.as_str(), result];
        registry.record(metrics::WRITE_SECONDS.sample(labels, took.as_secs_f64()));
    })
}

/// Reports objects to the engine, once it exists, if every write on them panics.
fn poison(engine: Arc<OnceLock<Handle<Engine>>>) -> Poison {
    Arc::new(move |object, why| {
        if let Some(engine) = engine.get() {
            engine.set_aside(object, why, Slot::default());
        }
    })
}

/// Takes what watches deliver to the webhooks' facts, to the dashboard's columns and to the engine.
fn feed(engine: Handle<Engine>, facts: Arc<FactStore>, store: Option<Arc<Store>>) -> Sink {
    Arc::new(move |feed, place| match feed {
        Feed::Input(input, document) => {
            facts.note(&input);
            if let Some(store) = &store {
                store.note(&input);
            }
            engine.seen(input, document, place);
        }
        Feed::Poison(object, why) => engine.set_aside(object, why, place),
        Feed::Synced(epoch) => {
            if let Some(store) = &store {
                store.synced();
            }
            engine.synced(epoch);
        }
    })
}

#[cfg(test)]
mod tests;
