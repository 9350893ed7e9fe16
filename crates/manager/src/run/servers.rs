//! The servers that need the manager's certificates: webhooks, aggregated APIs and dashboard.

use tokio::sync::Notify;

use super::{
    Access, Arc, CertRotator, CertsState, Context as _, Controller, Engine, Explainer, FactStore, Gate,
    Handle, JoinHandle, Parts, Registry, Reviewers, Serving, Supervisor, address, bind, bounds, makers,
    serve_files, watch, webhook,
};
use crate::access::front_proxy::FrontProxy;
use crate::certs::in_cluster;
use crate::certs::inject::visibility_service;
use crate::dashboard::alive;
use crate::dashboard::callers::Tokens;
use crate::dashboard::fits::LatelyFit;
use crate::dashboard::in_manager::{self, InManager, Orders};
use crate::dashboard::past::Past;
use crate::dashboard::server::Dashboard;
use crate::dashboard::store::Store;
use crate::journal::Reader;
use crate::serve;
use crate::visibility::publish::{Published, publish};
use crate::visibility::server::{self, Server};
use crate::watch::sync::SyncTracker;
use crate::webhook::measured::Measured;
use crate::webhook::threads::Threads;

/// How long an answer about a caller of the aggregated APIs is used, as in Kubernetes' own.
const REMEMBER: std::time::Duration = std::time::Duration::from_secs(10);

impl Parts {
    /// Serves webhooks, on every replica and before it leads.
    pub(super) fn webhooks(
        &self,
        supervisor: &Supervisor,
        facts: &Arc<FactStore>,
        registry: &Arc<Registry>,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> anyhow::Result<Option<Serving>> {
        if !self.controllers.has(Controller::Webhooks) {
            return Ok(None);
        }
        let section = &self.configuration.webhook;
        let listen = format!("{}:{}", section.host, section.port);
        let Some(listen) = address("webhook.host", &listen)? else { return Ok(None) };
        let listener = bind("webhook.port", listen)?;
        let serving = Serving::provisional(self.tls())?;
        for labels in makers::selectors(&self.configuration.job_kinds()) {
            let (facts, pauses) = (Arc::clone(facts), self.pauses.clone());
            let watch = makers::watch(self.client.clone(), labels, facts, pauses, self.stop.clone());
            tasks.push(supervisor.spawn("watch of pods that make others", watch));
        }
        let reviewers = Reviewers::new(&self.configuration, Arc::clone(facts));
        let reviewers = Arc::new(Measured::new(reviewers, Arc::clone(registry)));
        let tls = serving.config.clone();
        let (listener, bounds) = (listener.into_std()?, bounds(self.shares.webhooks));
        let reviews = webhook::server::serve(listener, Some(tls), reviewers, bounds, self.stop.clone());
        let threads = Threads::start().context("starting the threads of the webhooks")?;
        tasks.push(supervisor.spawn("webhooks", threads.run(reviews)));
        Ok(Some(serving))
    }

    /// Whether the aggregated APIs are served: with the certificates of the webhooks, so not where neither these nor certificates are wanted.
    pub(super) fn serves_visibility(&self) -> bool {
        let certified = [Controller::Webhooks, Controller::Certificates];
        certified.into_iter().any(|part| self.controllers.has(part))
            && self.configuration.gates.enabled(Gate::VisibilityOnDemand)
            && self.configuration.visibility_server.bind_port != 0
    }

    /// Whether the order of queues is asked for.
    pub(super) fn follows_positions(&self) -> bool {
        self.serves_visibility() || self.serves_dashboard()
    }

    /// Follows the order of queues for the parts that need it.
    pub(super) fn positions(
        &self,
        supervisor: &Supervisor,
        (engine, moved): (Handle<Engine>, Arc<Notify>),
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Arc<Published> {
        let published = Arc::<Published>::default();
        if self.follows_positions() {
            let publishing = publish(engine, moved, Arc::clone(&published), self.stop.clone());
            tasks.push(supervisor.spawn("places of waiting Workloads", publishing));
        }
        published
    }

    /// Whether the dashboard is served.
    pub(super) fn serves_dashboard(&self) -> bool {
        self.configuration.dashboard.port != 0
    }

    /// Serves the dashboard, on every replica, from what the watches put into the store.
    pub(super) fn dashboard(
        &self,
        supervisor: &Supervisor,
        (published, store, sync): (Arc<Published>, Option<Arc<Store>>, &Arc<SyncTracker>),
        explainer: Arc<Explainer>,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> anyhow::Result<Option<Serving>> {
        let Some(store) = store else { return Ok(None) };
        let section = &self.configuration.dashboard;
        let host = section.bind_address.trim_start_matches('[').trim_end_matches(']');
        let listen = format!("{host}:{}", section.port);
        let Some(listen) = address("dashboard.bindAddress", &listen)? else { return Ok(None) };
        let listener = bind("dashboard.port", listen)?;
        let serving = Serving::provisional(self.tls()).context("setting up TLS of the dashboard")?;
        let callers = Arc::new(Tokens::new(self.client.clone(), Arc::clone(&store)));
        let (client, configuration) = (self.client.clone(), self.configuration.clone());
        let (engine, fits) = (explainer.engine(), LatelyFit::default());
        let memory = explainer.memory();
        let explains = explainer;
        let orders = Orders::default();
        let past = self.reader().map(Past::new);
        let source =
            InManager { published, orders, client, explains, engine, fits, configuration, memory, past };
        let source = Arc::new(source);
        let (followed, sync) = (Arc::clone(&store), Arc::clone(sync));
        let (client, stop) = (self.client.clone(), self.stop.clone());
        let following = async move { alive::follow(&followed, &sync, &client, stop).await };
        tasks.push(supervisor.spawn("signs of life for the dashboard", following));
        let connections = self.shares.dashboard;
        // The other connections are for answers.
        let dashboard = Dashboard::new(store, callers, source, connections / 2);
        let (tls, bounds) = (serving.config.clone(), in_manager::bounds(connections));
        let pages = serve::serve(listener, Some(tls), dashboard.router(), bounds, self.stop.clone());
        tasks.push(supervisor.spawn("dashboard", pages));
        Ok(Some(serving))
    }

    /// The reader of this replica's journal, if it keeps one.
    fn reader(&self) -> Option<Reader> {
        let directory = &self.configuration.journal.directory;
        (!directory.is_empty()).then(|| Reader::new(directory))
    }

    /// Serves the aggregated APIs, on every replica.
    pub(super) fn visibility(
        &self,
        supervisor: &Supervisor,
        published: Arc<Published>,
        explainer: Arc<Explainer>,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> anyhow::Result<Option<Serving>> {
        if !self.serves_visibility() {
            return Ok(None);
        }
        let section = &self.configuration.visibility_server;
        let listen = format!("{}:{}", section.bind_address, section.bind_port);
        let Some(listen) = address("visibilityServer.bindAddress", &listen)? else { return Ok(None) };
        let listener = bind("visibilityServer.bindPort", listen)?;
        let proxy = FrontProxy::default();
        let following = proxy.clone().follow(self.client.clone(), self.stop.clone());
        tasks.push(supervisor.spawn("settings of the API server's proxy", following));
        let serving = Serving::provisional_for(self.tls(), Some(Arc::new(proxy.clone())))
            .context("setting up TLS of the aggregated APIs")?;
        let journal = self.reader();
        let access = Access::new(self.client.clone(), REMEMBER);
        let server = Server::new(published, access, proxy, explainer, journal);
        let (tls, bounds) = (serving.config.clone(), bounds(self.shares.visibility));
        tasks.push(
            supervisor.spawn("visibility", server::serve(listener, tls, server, bounds, self.stop.clone())),
        );
        Ok(Some(serving))
    }

    /// Keeps the certificates of servers in order; nothing if there are none. The metrics have the same certificate, but do not count as such a
    /// server: a scrape need not verify it.
    pub(super) fn certificates(
        &self,
        supervisor: &Supervisor,
        (mut servers, metrics): (Vec<Serving>, Option<Serving>),
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Option<watch::Receiver<CertsState>> {
        if servers.is_empty() {
            return None;
        }
        servers.extend(metrics);
        let section = &self.configuration.webhook;
        let (state, states) = watch::channel(CertsState::Pending("not looked at yet".to_owned()));
        let certs = &self.configuration.internal_cert_management;
        if certs.enable && self.controllers.has(Controller::Certificates) {
            let rotator = CertRotator::new(
                self.client.clone(),
                &self.configuration.namespace,
                &certs.webhook_service_name,
                &certs.webhook_secret_name,
                &section.host,
                servers,
            );
            let rotator = if self.serves_dashboard() {
                rotator.with_dashboard(&certs.webhook_service_name)
            } else {
                rotator
            };
            let rotator = if self.controllers.has(Controller::Events) {
                rotator.reporting_as(&crate::lease::identity())
            } else {
                rotator
            };
            tasks.push(supervisor.spawn("certificates", rotator.run(state, self.stop.clone())));
        } else {
            let folder = section.cert_dir.clone().into();
            let apis = visibility_service(&certs.webhook_service_name);
            let [apis, _] = in_cluster(&apis, &self.configuration.namespace);
            let apis = self.serves_visibility().then_some(apis);
            let files = serve_files(folder, apis, servers, state, self.stop.clone());
            tasks.push(supervisor.spawn("certificate files", files));
        }
        Some(states)
    }
}
