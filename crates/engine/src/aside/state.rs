//! What is kept of an object that made the engine panic.

use std::sync::Arc;

use sluice_api::job::JobView;

use crate::effect::EffectId;
use crate::retry::Retry;

/// An object that made the engine panic.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    /// The version that is left out, once it is known.
    pub version: Option<String>,
    /// The panic's message.
    pub why: String,
    /// The job as it was seen, if it is one that could run without being admitted.
    pub job: Option<AsideJob>,
}

/// A job that is left out.
#[derive(Clone, Debug)]
pub(crate) struct AsideJob {
    /// As it was seen last.
    pub view: Arc<JobView>,
    /// The write that stops it.
    pub open: Option<EffectId>,
    /// How such writes fare.
    pub retry: Retry,
}
