//! What is asked: which job, and in which world.

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
    /// What the name is one of: a Workload, or a kind of job. Without it, a Workload or job of that name.
    pub kind: Option<Kind>,
    /// The name of the job, or of its Workload.
    pub name: &'a str,
    /// Whether names of other namespaces may be shown.
    pub all_namespaces: bool,
    /// Whether nodes may be named; else only their number is.
    pub names_nodes: bool,
    /// Whether ClusterQueues may be named that no LocalQueue of the namespace is for.
    pub names_queues: bool,
    /// What the engine of a running manager says of it; without it, the engine of the virtual cluster is asked.
    pub live: Option<&'a Account>,
    /// Whether that manager leads: one that does not has decided nothing, so that the engine of the virtual cluster is asked what it decides.
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
    /// The world cannot go on.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// There is no such job.
    #[error("there is no job or Workload {0} at that time")]
    NotFound(String),
    /// Not everything that it takes could be read.
    #[error("{0}")]
    Unread(String),
}
