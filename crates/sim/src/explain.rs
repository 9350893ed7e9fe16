//! Why a job waits, what would let it start, and when it will start: from the engine's own decision. Every remedy is tried in the engine.

mod advice;
mod barred;
mod capacity;
mod checks;
mod decided;
mod deleted;
mod events;
mod explained;
mod facts;
mod finding;
mod forecast;
mod hidden;
mod known;
mod lifecycle;
mod patch;
mod patience;
pub mod plain;
mod pods;
mod preemption;
mod question;
mod queues;
mod raised;
mod refusals;
mod refused;
mod remedy;
mod searched;
mod started;
mod subject;
mod target;
mod text;
mod too_large;
mod topology;
mod unqueued;
mod unread;
mod view;
mod whatif;
mod wishes;

use sluice_core::Unadmitted;
use sluice_engine::{Account, Kind};

use crate::futures::why_not;
use crate::setup::prepare;
use crate::simulation::Simulation;
use facts::holds_quota;

pub use advice::Advice;
pub use barred::AsRead;
pub use events::{Event, MOST_EVENTS, are_reported, rank};
pub use explained::Explained;
pub use finding::{Check, Code, Finding, PendingPod, State};
pub use forecast::Forecast;
pub use hidden::{hide_nodes, hide_nodes_of, without_nodes};
pub use patch::Patch;
pub use patience::Patience;
pub(crate) use pods::is_own;
pub use question::{ExplainError, MOST_LISTED, Question};
use queues::Names;
pub use refused::Refused;
pub use remedy::{Effect, Remedy};
pub use subject::Subject;
use target::Target;
pub use topology::{Domains, TopologyFit};
use view::View;
pub use whatif::{Course, MOST_CHANGE, WhatIf, check_change};

impl Question<'_> {
    /// The world at the time of the question.
    fn world(&self) -> Result<Simulation, ExplainError> {
        let mut simulation =
            prepare(self.manifests, self.files, self.options.clone()).map_err(ExplainError::Manifests)?;
        simulation.advance(self.at)?;
        Ok(simulation)
    }

    /// Explains the job.
    ///
    /// # Errors
    ///
    /// If there is no such job or Workload. Without a cluster that was read: also if an object or scenario is refused, or the simulation breaks off.
    pub fn answer(&self) -> Result<Explained, ExplainError> {
        let Some(subject) = &self.manifests.subject else { return self.played(None) };
        let view = View::read(self.manifests);
        let now = self.options.start;
        let Some(workload) = &subject.workload else {
            let job = subject.job.as_ref().and_then(|job| Some((known::job_read(job)?, job)));
            let (reference, job) = job.ok_or_else(|| self.not_found())?;
            return Ok(self.not_queued(&view, &reference, job));
        };
        let explained = self.of_workload(&view, workload, self.live, now);
        if !matches!(explained.state, State::Waiting | State::Deactivated) {
            return Ok(explained);
        }
        if explained.findings.iter().any(|finding| finding.code == Code::BeingDeleted) {
            return Ok(Explained { no_forecast: Some("it is being deleted".to_owned()), ..explained });
        }
        if let Some(why) = self.why_not_tried() {
            return Ok(Explained { no_forecast: Some(why), incomplete: true, ..explained });
        }
        match self.played(Some(explained.clone())) {
            // In a world in which nothing can be tried, the answer has what is known without it.
            Err(_) => Ok(Explained { incomplete: true, ..explained }),
            answer => answer,
        }
    }

    /// Explains the job in a virtual cluster: from what is known of the real cluster, or else from its own objects.
    fn played(&self, known: Option<Explained>) -> Result<Explained, ExplainError> {
        let simulation = self.world()?;
        if let (Some(known), Some((_, why))) = (&known, self.own_left_out(&simulation)) {
            let not_played = simulation.left_out().count;
            return Ok(Explained { no_forecast: Some(why), not_played, incomplete: true, ..known.clone() });
        }
        let target = match self.find(&simulation) {
            Ok(found) => found,
            Err(error) => {
                let job = self.unqueued(&simulation).filter(|_| known.is_none()).ok_or(error)?;
                let value = simulation.object(&job).ok_or_else(|| self.not_found())?;
                return Ok(self.not_queued(&View::Played(&simulation), &job, value));
            }
        };
        let Target { job, workload, .. } = &target;
        let record = simulation.record().job(job).ok_or_else(|| self.not_found())?;
        let (namespace, name) = (&workload.namespace, &workload.name);
        let leads = self.live.is_some() && self.decides;
        let engine = Some(simulation.engine()).filter(|_| !leads);
        let account = engine.and_then(|e| e.account(Some(Kind::Workload), namespace, name, MOST_LISTED));
        let facts = self.facts(account.as_ref(), record);
        let decision = facts.decision.as_ref();
        let is_live = known.is_some();
        let mut explained = if let Some(known) = known {
            known
        } else {
            let value = simulation.object(workload).ok_or_else(|| self.not_found())?;
            self.of_workload(&View::Played(&simulation), value, account.as_ref(), simulation.now())
        };
        if let Some(account) = account.as_ref().filter(|_| is_live && explained.state == State::Waiting) {
            self.decided_in(account, &mut explained);
        }
        explained.job = format!("{}/{}", job.namespace, job.name);
        explained.not_played = simulation.left_out().count;
        explained.priority = record.priority;
        explained.cluster_queue = record.cluster_queue.clone().or(explained.cluster_queue);
        explained.ahead = self.ahead(&simulation, &facts.ahead, workload);
        explained.reason = facts.reason().or(explained.reason);
        explained.message = facts.message().or(explained.message);
        explained.flavors = decision.map(|d| self.refusals(&simulation, record, d)).unwrap_or_default();
        explained.changes = self.changes(&simulation, &facts.changes);
        if !is_live {
            explained.history = self.history(&simulation, job, workload);
        }
        if matches!(explained.state, State::Waiting | State::Deactivated) {
            self.tried_out(&mut explained, &simulation, &target, decision)?;
        }
        Ok(explained)
    }

    /// What the engine of the virtual cluster decides about a waiting Workload, if the manager that was asked does not decide.
    fn decided_in(&self, account: &Account, explained: &mut Explained) {
        let read = self.manifests.subject.as_ref().and_then(|subject| subject.workload.as_ref());
        let blocked = explained.findings.iter().any(|finding| finding.code.waits_for_action());
        if let Some(read) = read.filter(|_| !blocked) {
            explained.decided(self, &View::read(self.manifests), read, account);
        }
    }

    /// What the engine finds when it tries the remedies, and when the job starts.
    fn tried_out(
        &self,
        explained: &mut Explained,
        simulation: &Simulation,
        target: &Target,
        decision: Option<&Unadmitted>,
    ) -> Result<(), ExplainError> {
        let job = &target.job;
        let starts_at_once = simulation.record().job(job).is_some_and(holds_quota);
        explained.no_forecast = self.why_no_forecast(explained, simulation);
        if explained.no_forecast.is_none() && starts_at_once && self.live.is_some() {
            explained.no_forecast = Some(self.why_not_at_once(explained));
        }
        if explained.no_forecast.is_none() {
            explained.forecast = self.forecast(simulation, job)?;
        }
        // A job that starts at once needs no remedy.
        if !starts_at_once {
            let forecast = explained.forecast.as_ref();
            let found = (&explained.findings[..], &explained.topology[..]);
            explained.remedies = self.remedies(simulation, target, decision, forecast, found)?;
        }
        explained.incomplete = self.patience.is_over();
        Ok(())
    }

    /// The text for a Workload that starts at once in the virtual cluster and waits in the real one, where the manager decides.
    fn why_not_at_once(&self, explained: &mut Explained) -> String {
        let read = self.manifests.subject.as_ref().and_then(|subject| subject.workload.as_ref());
        let Some((reason, message)) = read.and_then(|workload| self.refused_live(workload)) else {
            return "nothing that is known keeps it from starting".to_owned();
        };
        if !explained.findings.iter().any(|finding| finding.code.says_why_it_waits()) {
            let refused = decided::refused(&reason, &message);
            explained.remedies.extend(refused.helps.iter().map(finding::Help::untried));
            explained.findings.push(refused);
        }
        format!("the manager refuses it ({reason}); this cannot be simulated")
    }

    /// Why an estimate would be none, if so.
    fn why_no_forecast(&self, explained: &Explained, simulation: &Simulation) -> Option<String> {
        if explained.findings.iter().any(|f| f.code.waits_for_action()) {
            return Some("a person or program has to act first".to_owned());
        }
        self.unknown_checks(simulation, explained.cluster_queue.as_deref()?)
    }

    /// Why it is not known when the admission checks of a ClusterQueue are ready, if it has some: how long the controllers of a cluster take is not
    /// known; a scenario says it.
    fn unknown_checks(&self, simulation: &Simulation, queue: &str) -> Option<String> {
        if self.is_read() { why_not(simulation, queue) } else { None }
    }

    /// Whether a cluster was read for the question.
    fn is_read(&self) -> bool {
        self.live.is_some() || self.manifests.subject.is_some()
    }

    fn not_found(&self) -> ExplainError {
        ExplainError::NotFound(format!("{}/{}", self.namespace, self.name))
    }

    /// Only when the job will start, if it waits.
    ///
    /// # Errors
    ///
    /// If an object or scenario is refused, the simulation breaks off, or the job has no Workload at that time.
    pub fn forecast_only(&self) -> Result<Option<Forecast>, ExplainError> {
        let simulation = self.world()?;
        let Target { job, .. } = self.find(&simulation)?;
        let waits = simulation.record().job(&job).is_some_and(|j| j.finished.is_none() && !holds_quota(j));
        if waits { self.forecast(&simulation, &job) } else { Ok(None) }
    }

    /// Which ClusterQueues may be named.
    fn names(&self) -> Names {
        if self.names_queues { Names::All } else { Names::Own }
    }

    /// The name of a ClusterQueue, if it may be shown.
    fn shown_queue<'b>(&self, simulation: &Simulation, queue: &'b str) -> Option<&'b str> {
        self.names().known(&View::Played(simulation), self.namespace)(queue).then_some(queue)
    }

    /// A name that may be shown.
    fn shown(&self, namespace: &str, name: &str) -> String {
        if self.all_namespaces || namespace == self.namespace {
            format!("{namespace}/{name}")
        } else {
            "a job of another namespace".to_owned()
        }
    }
}
