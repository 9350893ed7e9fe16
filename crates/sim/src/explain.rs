//! Why a job waits, what would let it start, and when it will: from the engine's own decision, every remedy tried in it.

mod facts;
mod forecast;
mod patience;
mod preemption;
mod remedy;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde::Serialize;
use sluice_core::{Detail, Refusal, Unadmitted};
use sluice_engine::{Account, Kind, ObjectRef, Stage};

use crate::manifest::{ManifestError, Manifests};
use crate::options::Options;
use crate::record::{JobRecord, show_amount};
use crate::setup::prepare;
use crate::simulation::{SimError, Simulation};

pub use forecast::Forecast;
pub use patience::Patience;
pub use remedy::{Patch, Remedy};

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
    /// The Workload's name.
    pub workload: String,
    /// `admitted`, `finished` or `waiting`.
    pub state: &'static str,
    /// Its priority.
    pub priority: i32,
    /// Its ClusterQueue.
    pub cluster_queue: Option<Arc<str>>,
    /// Its place in its ClusterQueue, from 1.
    pub position: Option<usize>,
    /// The Workloads ahead of it there, the next one first.
    pub ahead: Vec<String>,
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
    /// What would let it start, each tried in the engine.
    pub remedies: Vec<Remedy>,
    /// When it will start if nothing is done.
    pub forecast: Option<Forecast>,
    /// Whether time ran out before everything was tried: then remedies may be missing, and the forecast.
    pub incomplete: bool,
}

/// Why a pod set cannot have a flavor, and which jobs hold it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The pod set.
    pub pod_set: Arc<str>,
    /// The flavor, where the refusal is about one.
    pub flavor: Option<Arc<str>>,
    /// The resource, where the refusal is about one.
    pub resource: Option<Arc<str>>,
    /// The refusal in words.
    pub why: String,
    /// What is needed.
    pub needed: Option<String>,
    /// What is free for it.
    pub free: Option<String>,
    /// What preemption was considered, and why it does not help.
    pub preemption: Option<String>,
    /// Holders that a policy spares, and which one does.
    pub spared: Vec<String>,
    /// The jobs that hold it, the largest first.
    pub held_by: Vec<String>,
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
        let simulation = self.world()?;
        let (job, workload) = self.find(&simulation)?;
        let key = format!("{}/{}", job.namespace, job.name);
        let not_found = || ExplainError::NotFound(key.clone());
        let record = simulation.record().job(&job).ok_or_else(not_found)?;
        let facts = self.facts(&simulation, &workload, record);
        let decision = facts.decision.as_ref();
        let mut explained = Explained {
            job: key.clone(),
            workload: workload.name.to_string(),
            state: facts.state(),
            priority: record.priority,
            cluster_queue: record.cluster_queue.clone(),
            position: facts.position.as_ref().map(|p| p.in_cluster_queue + 1),
            ahead: self.ahead(&simulation, &facts.ahead, &workload),
            reason: facts.reason(),
            message: facts.message(),
            flavors: decision.map(|d| self.refusals(&simulation, record, d)).unwrap_or_default(),
            history: self.history(&simulation, &job, &workload),
            changes: self.changes(&simulation, &facts.changes),
            remedies: Vec::new(),
            forecast: None,
            incomplete: false,
        };
        if facts.stage == Stage::Waiting {
            explained.forecast = self.forecast(&simulation, &job)?;
            // What starts at once by itself needs no remedy.
            if !holds_quota(record) {
                let forecast = explained.forecast.as_ref();
                explained.remedies = self.remedies(&simulation, &job, decision, forecast)?;
            }
            explained.incomplete = self.patience.is_over();
        }
        Ok(explained)
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
        Err(ExplainError::NotFound(format!("{}/{}", self.namespace, self.name)))
    }

    /// A name that may be shown.
    fn shown(&self, namespace: &str, name: &str) -> String {
        if self.all_namespaces || namespace == self.namespace {
            format!("{namespace}/{name}")
        } else {
            "a job of another namespace".to_owned()
        }
    }

    fn refusals(&self, simulation: &Simulation, record: &JobRecord, decision: &Unadmitted) -> Vec<Refused> {
        let (Detail::Flavors { pod_sets, .. } | Detail::PreemptionLoop { pod_sets, .. }) = &decision.detail
        else {
            return Vec::new();
        };
        let each = pod_sets.iter().flat_map(|set| set.refusals.iter().map(move |refusal| (set, refusal)));
        each.map(|(set, refusal)| self.refused(simulation, record, &set.name, refusal)).collect()
    }

    fn refused(
        &self,
        simulation: &Simulation,
        record: &JobRecord,
        pod_set: &Arc<str>,
        refusal: &Refusal,
    ) -> Refused {
        let mut refused = Refused {
            pod_set: Arc::clone(pod_set),
            flavor: None,
            resource: None,
            why: refusal.to_string(),
            needed: None,
            free: None,
            preemption: None,
            spared: Vec::new(),
            held_by: Vec::new(),
        };
        match refusal {
            Refusal::ResourceUnavailable { resource, .. } => refused.resource = Some(Arc::clone(resource)),
            Refusal::FlavorNotFound { flavor }
            | Refusal::UntoleratedTaint { flavor, .. }
            | Refusal::NodeAffinity { flavor }
            | Refusal::WithoutTopology { flavor }
            | Refusal::TopologyUnknown { flavor }
            | Refusal::LevelMissing { flavor }
            | Refusal::OnlyTopology { flavor }
            | Refusal::NoPlacement { flavor, .. }
            | Refusal::OtherFlavor { flavor, .. } => refused.flavor = Some(Arc::clone(flavor)),
            Refusal::SeveralTopologies { .. } => {}
            Refusal::ExceedsMaxQuota { flavor, resource, needed, max, .. } => {
                refused.flavor = Some(Arc::clone(flavor));
                refused.resource = Some(Arc::clone(resource));
                refused.needed = Some(show_amount(resource, needed.get()));
                refused.free = Some(show_amount(resource, max.get()));
            }
            Refusal::InsufficientQuota { flavor, resource, needed, free, preemption, nominal, .. } => {
                refused.flavor = Some(Arc::clone(flavor));
                refused.resource = Some(Arc::clone(resource));
                refused.needed = Some(show_amount(resource, needed.get()));
                refused.free = Some(show_amount(resource, free.get().max(0)));
                self.refused_by_policy(simulation, record, &mut refused, (*needed, *nominal, *preemption));
                self.held_by(simulation, &mut refused);
            }
            Refusal::InsufficientCapacity { flavor, resource, needed, free, .. } => {
                refused.flavor = Some(Arc::clone(flavor));
                refused.resource = Some(Arc::clone(resource));
                refused.needed = Some(show_amount(resource, needed.get()));
                refused.free = Some(show_amount(resource, free.get().max(0)));
                self.held_by(simulation, &mut refused);
            }
        }
        refused
    }
}

/// Whether a job has quota now.
fn holds_quota(record: &JobRecord) -> bool {
    record.holds.last().is_some_and(|hold| hold.to.is_none())
}
