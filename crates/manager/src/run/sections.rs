//! Settings of leader election and of TLS, from their sections of the configuration.

use crate::journal::store;

use super::{
    Arc, Client, Context as _, Election, JoinHandle, Journal, Loss, Parts, Registry, Sampling, Standing,
    Stop, Supervisor, TlsOptions, Traces, Until, lease, mpsc, warn, watch,
};

impl Parts {
    pub(super) fn election(
        &self,
        supervisor: &Supervisor,
        client: Client,
        stop: Stop,
        losses: mpsc::Sender<Loss>,
        until: watch::Sender<Until>,
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
        let (election, standing) = Election::new(client, settings, until);
        let elect = section.leader_elect;
        let task = supervisor.until(stop.clone()).spawn("lease", async move {
            if elect { election.run(stop, losses).await } else { election.stand_alone(stop).await }
        });
        (task, standing)
    }

    /// Begins the journal, and sends its files, if the configuration says so.
    pub(super) fn journal(
        &self,
        supervisor: &Supervisor,
        registry: &Arc<Registry>,
    ) -> anyhow::Result<(Option<Journal>, Option<JoinHandle<()>>)> {
        let section = &self.configuration.journal;
        if section.directory.is_empty() {
            return Ok((None, None));
        }
        // Of its own in a folder that others write to, too.
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
        let process: String = lease::identity().chars().map(plain).collect();
        let (closed, sending) = store::start(supervisor, section, Arc::clone(registry))?.unzip();
        let journal = Journal::start(supervisor, section, &process, Arc::clone(registry), closed);
        let journal = journal.with_context(|| format!("journal.directory: {}", section.directory))?;
        Ok((Some(journal), sending))
    }

    /// Which attempts have a trace, if there are traces.
    pub(super) fn sampling(&self) -> Option<Sampling> {
        let section = &self.configuration.tracing;
        (!section.endpoint.is_empty()).then(|| Sampling::new(section.sample_ratio))
    }

    /// Starts what makes traces and what sends them, if the configuration says where to.
    pub(super) fn traces(
        &self,
        supervisor: &Supervisor,
        registry: Arc<Registry>,
    ) -> anyhow::Result<(Option<Traces>, Option<JoinHandle<()>>)> {
        let section = &self.configuration.tracing;
        if section.endpoint.is_empty() {
            return Ok((None, None));
        }
        let (traces, exporting) =
            Traces::start(supervisor, section, &lease::identity(), registry, self.stop.clone())?;
        Ok((Some(traces), Some(exporting)))
    }

    pub(super) fn tls(&self) -> TlsOptions {
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
}
