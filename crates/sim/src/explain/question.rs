//! The question: which job, and in which world.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use sluice_engine::{Account, Kind};

use super::patience::Patience;
use crate::manifest::{ManifestError, Manifests};
use crate::options::Options;
use crate::simulation::SimError;

/// Holders and predecessors that are listed.
pub const MOST_LISTED: usize = 5;

/// The world in which a job is explained, and which job.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about who asks and who is asked")]
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
    /// What `name` names: a Workload, or a job of this kind. Without it: a Workload or job of that name.
    pub kind: Option<Kind>,
    /// The name of the job, or of its Workload.
    pub name: &'a str,
    /// Whether names of other namespaces may be shown.
    pub all_namespaces: bool,
    /// Whether nodes may be named; if not, the answer has only their number.
    pub names_nodes: bool,
    /// Whether ClusterQueues may be named that no LocalQueue of the namespace is for.
    pub names_queues: bool,
    /// The account of a running manager; without it, the engine of the virtual cluster answers.
    pub live: Option<&'a Account>,
    /// Whether that manager leads. A manager that does not lead has decided nothing, so the engine of the virtual cluster decides.
    pub decides: bool,
    /// How long trying may take.
    pub patience: Patience<'a>,
}

/// Why nothing can be explained.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExplainError {
    /// The world is wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifests(Vec<ManifestError>),
    /// The world cannot continue.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// The job does not exist.
    #[error("there is no job or Workload {0} at that time")]
    NotFound(String),
    /// Some of the objects that the answer needs could not be read.
    #[error("{0}")]
    Unread(String),
}
