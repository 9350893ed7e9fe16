//! What is kept of an object that made the engine panic.

use std::sync::Arc;

use sluice_api::job::JobView;
use sluice_api::slim;

use crate::effect::EffectId;
use crate::input::Object;
use crate::retry::Retry;

/// What tells two versions of an object apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Version {
    /// `metadata.resourceVersion`.
    Of(String),
    /// A Node without that: its heartbeats do not count as changes.
    Node(Box<slim::Node>),
}

impl Version {
    /// The version of an object; `None` if the object does not have one.
    pub fn of(object: &Object) -> Option<Self> {
        if let Object::Node(node) = object {
            let mut node = node.clone();
            node.metadata.resource_version = None;
            return Some(Self::Node(node));
        }
        object.version().map(|version| Self::Of(version.to_owned()))
    }
}

/// What became of an object since its pause began.
#[derive(Clone, Debug, Default)]
pub(crate) enum Next {
    /// Nothing.
    #[default]
    Same,
    /// It changed: its newest version.
    Changed(Box<Object>),
    /// It is gone.
    Gone,
}

/// An object that made the engine panic.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    /// The version that is left out, once it is known.
    pub version: Option<Version>,
    /// The panic's message.
    pub why: String,
    /// For how many seconds after everything is listed other versions are left out, too; 0 once that is over.
    pub pause: u32,
    /// What the end of the pause is for.
    pub next: Next,
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

impl Aside {
    /// Whether it is a job that runs, and is not being deleted.
    pub fn goes_on(&self) -> bool {
        let view = self.job.as_ref().map(|job| &job.view);
        view.is_some_and(|view| !view.suspended && view.finished.is_none() && !view.deleting)
    }
}

impl AsideJob {
    /// A job without its templates, which are most of it.
    pub fn new(view: &JobView) -> Self {
        Self { view: kept(view), open: None, retry: Retry::default() }
    }

    /// Takes in how it is now.
    pub fn seen(&mut self, view: &JobView) {
        self.view = kept(view);
    }

    /// Whether neither its spec nor its status says that it has pods, or will have some.
    pub fn seems_stopped(&self) -> bool {
        self.view.suspended && (self.view.activity_unknown || !self.view.active)
    }
}

fn kept(view: &JobView) -> Arc<JobView> {
    let mut view = view.clone();
    for set in &mut view.pod_sets {
        (set.template, set.unwritten) = (None, None);
    }
    Arc::new(view)
}
