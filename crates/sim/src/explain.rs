//! Why a job waits, what would let it start, and when it will: from the engine's own decision, every remedy tried in it.

mod decided;
mod facts;
mod finding;
mod forecast;
mod known;
mod lifecycle;
mod patience;
mod plain;
mod pods;
mod preemption;
mod queues;
mod refused;
mod remedy;
mod text;
mod topology;
mod unqueued;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde::Serialize;
use sluice_core::Unadmitted;
use sluice_engine::{Account, Kind, ObjectRef};

use crate::manifest::{ManifestError, Manifests};
use crate::options::Options;
use crate::record::JobRecord;
use crate::setup::prepare;
use crate::simulation::{SimError, Simulation};

pub use finding::{Check, Code, Finding, PendingPod, State};
pub use forecast::Forecast;
pub use patience::Patience;
pub use refused::Refused;
pub use remedy::{Effect, Patch, Remedy};
pub use topology::{Domains, TopologyFit};
pub use view::Subject;
use view::View;

/// Holders and predecessors that are listed.
pub const MOST_LISTED: usize = 5;

/// The world in which a job is explained, and which job.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Objects and scenarios.
    pub manifests: &'a Manifests,
    /// The files that scenarios apply.
    pub files: &'a BTreeMap<String, String>,
    /// Configuration, beginning, seed.
    pub options: Options,
    /// When to look, counted from the beginning.
    pub at: SignedDuration,
    /// The namespace of the job.
    pub namespace: &'a str,
    /// What the name is one of: a Workload, or a kind of job. Without it, a Workload or job of that name.
    pub kind: Option<Kind>,
    /// The name of the job, or of its Workload.
    pub name: &'a str,
    /// Whether names of other namespaces may be shown.
    pub all_namespaces: bool,
    /// What the engine of a running manager says of it; without it, the engine of the virtual cluster is asked.
    pub live: Option<&'a Account>,
    /// How long trying may take.
    pub patience: Patience<'a>,
}

/// Why nothing can be explained.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExplainError {
    /// The world is wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifests(Vec<ManifestError>),
    /// The world cannot go on.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// There is no such job.
    #[error("there is no job or Workload {0} at that time")]
    NotFound(String),
}

/// What is known about a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// `namespace/name` of the job.
    pub job: String,
    /// The Workload's name, empty if it has none.
    pub workload: String,
    /// How far it has come.
    pub state: State,
    /// Its priority.
    pub priority: i32,
    /// Its ClusterQueue.
    pub cluster_queue: Option<Arc<str>>,
    /// Its place in its ClusterQueue, from 1.
    pub position: Option<usize>,
    /// The Workloads ahead of it there, the next one first.
    pub ahead: Vec<String>,
    /// What is so about it: what stands in its way, what it waits for, what became of it.
    pub findings: Vec<Finding>,
    /// Its admission checks.
    pub checks: Vec<Check>,
    /// The first few of its pods that are not scheduled, if it is admitted.
    pub pending_pods: Vec<PendingPod>,
    /// How many of its pods are not scheduled, as far as they were read.
    pub pending_pod_count: usize,
    /// Where its pods would fit, if nodes have no place for them as it asks.
    pub topology: Vec<TopologyFit>,
    /// Why it waits.
    pub reason: Option<String>,
    /// The message of its condition.
    pub message: Option<String>,
    /// For every flavor, why not.
    pub flavors: Vec<Refused>,
    /// What happened to it so far.
    pub history: Vec<String>,
    /// How its queues, Cohorts and flavors changed since it was submitted.
    pub changes: Vec<String>,
    /// What would let it start; each says whether it was tried in the engine.
    pub remedies: Vec<Remedy>,
    /// When it will start if nothing is done.
    pub forecast: Option<Forecast>,
    /// Why it is not known when it will start.
    pub no_forecast: Option<String>,
    /// Whether time ran out before everything was tried: then remedies may be missing, and the forecast.
    pub incomplete: bool,
}

impl Question<'_> {
    /// The world at the time that is asked about.
    fn world(&self) -> Result<Simulation, ExplainError> {
        let mut simulation =
            prepare(self.manifests, self.files, self.options.clone()).map_err(ExplainError::Manifests)?;
        simulation.advance(self.at)?;
        Ok(simulation)
    }

    /// Explains it.
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
        match self.played(Some(explained.clone())) {
            // What is known is said, though nothing can be tried in such a world.
            Err(_) => Ok(Explained { incomplete: true, ..explained }),
            answer => answer,
        }
    }

    /// Explains it with what a virtual cluster brings: of what is known of a real one, or of its own.
    fn played(&self, known: Option<Explained>) -> Result<Explained, ExplainError> {
        let simulation = self.world()?;
        let (job, workload) = match self.find(&simulation) {
            Ok(found) => found,
            Err(error) => {
                let job = self.unqueued(&simulation).filter(|_| known.is_none()).ok_or(error)?;
                let value = simulation.object(&job).ok_or_else(|| self.not_found())?;
                return Ok(self.not_queued(&View::Played(&simulation), &job, value));
            }
        };
        let record = simulation.record().job(&job).ok_or_else(|| self.not_found())?;
        let facts = self.facts(&simulation, &workload, record);
        let decision = facts.decision.as_ref();
        let is_live = known.is_some();
        let mut explained = if let Some(known) = known {
            known
        } else {
            let value = simulation.object(&workload).ok_or_else(|| self.not_found())?;
            let (namespace, name) = (&workload.namespace, &workload.name);
            let account = simulation.engine().account(Some(Kind::Workload), namespace, name, MOST_LISTED);
            self.of_workload(&View::Played(&simulation), value, account.as_ref(), simulation.now())
        };
        explained.job = format!("{}/{}", job.namespace, job.name);
        explained.priority = record.priority;
        explained.cluster_queue = record.cluster_queue.clone().or(explained.cluster_queue);
        explained.ahead = self.ahead(&simulation, &facts.ahead, &workload);
        explained.reason = facts.reason().or(explained.reason);
        explained.message = facts.message().or(explained.message);
        explained.flavors = decision.map(|d| self.refusals(&simulation, record, d)).unwrap_or_default();
        explained.changes = self.changes(&simulation, &facts.changes);
        if !is_live {
            explained.history = self.history(&simulation, &job, &workload);
        }
        if matches!(explained.state, State::Waiting | State::Deactivated) {
            self.tried_out(&mut explained, &simulation, &job, decision)?;
        }
        Ok(explained)
    }

    /// What the engine finds when it tries, and when the job starts.
    fn tried_out(
        &self,
        explained: &mut Explained,
        simulation: &Simulation,
        job: &ObjectRef,
        decision: Option<&Unadmitted>,
    ) -> Result<(), ExplainError> {
        let starts_at_once = simulation.record().job(job).is_some_and(holds_quota);
        explained.no_forecast = self.why_no_forecast(explained, simulation);
        if explained.no_forecast.is_none() && starts_at_once && self.live.is_some() {
            explained.no_forecast = Some("nothing that is known keeps it from starting".to_owned());
        }
        if explained.no_forecast.is_none() {
            explained.forecast = self.forecast(simulation, job)?;
        }
        // What starts at once by itself needs no remedy.
        if !starts_at_once {
            let forecast = explained.forecast.as_ref();
            let helps: Vec<_> = explained.findings.iter().flat_map(|f| f.helps.clone()).collect();
            explained.remedies =
                self.remedies(simulation, job, decision, forecast, (&helps, &explained.topology))?;
        }
        explained.incomplete = self.patience.is_over();
        Ok(())
    }

    /// Why an estimate would be none, if so.
    fn why_no_forecast(&self, explained: &Explained, simulation: &Simulation) -> Option<String> {
        if explained.findings.iter().any(|f| f.code.waits_for_action()) {
            return Some("a person or program has to act first".to_owned());
        }
        // How long the controllers of a cluster take for a check is not known; a scenario says it.
        let queue = explained.cluster_queue.as_deref().filter(|_| self.live.is_some())?;
        let queue = simulation.object(&ObjectRef::cluster(Kind::ClusterQueue, queue))?;
        let checks = queue["spec"]["admissionChecksStrategy"]["admissionChecks"].as_array();
        let old = queue["spec"]["admissionChecks"].as_array();
        let any = checks.into_iter().chain(old).any(|checks| !checks.is_empty());
        any.then(|| "its ClusterQueue has admission checks, and how long they take is not known".to_owned())
    }

    fn not_found(&self) -> ExplainError {
        ExplainError::NotFound(format!("{}/{}", self.namespace, self.name))
    }

    /// Only when the job will start, if it waits.
    pub fn forecast_only(&self) -> Result<Option<Forecast>, ExplainError> {
        let simulation = self.world()?;
        let (job, _) = self.find(&simulation)?;
        let waits = simulation.record().job(&job).is_some_and(|j| j.finished.is_none() && !holds_quota(j));
        if waits { self.forecast(&simulation, &job) } else { Ok(None) }
    }

    /// The job and its Workload.
    fn find(&self, simulation: &Simulation) -> Result<(ObjectRef, ObjectRef), ExplainError> {
        for (reference, workload) in simulation.engine().workloads() {
            if *reference.namespace != *self.namespace {
                continue;
            }
            let owner =
                workload.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
            let job = owner.and_then(|o| {
                let kind = sluice_api::job::JobKind::from_owner(&o.api_version, &o.kind)?;
                Some(ObjectRef::namespaced(
                    Kind::Job(kind),
                    Arc::clone(&reference.namespace),
                    o.name.as_str(),
                ))
            });
            let is = |r: &ObjectRef| *r.name == *self.name && self.kind.is_none_or(|kind| kind == r.kind);
            let named = match self.live {
                Some(account) => account.workload == reference,
                None => is(&reference) || job.as_ref().is_some_and(is),
            };
            if named {
                return Ok((job.unwrap_or_else(|| reference.clone()), reference));
            }
        }
        Err(self.not_found())
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

/// Whether a job has quota now.
fn holds_quota(record: &JobRecord) -> bool {
    record.holds.last().is_some_and(|hold| hold.to.is_none())
}
