//! Pure adapters between job kinds and Workloads: observe, start, stop.
//!
//! [`observe`] turns an API object into the [`JobView`] from which the engine decides; [`start`], [`stop`] and [`suspend`]
//! turn its decisions into patches; [`webhook`] says what happens to a job when a user writes it.
//!
//! This crate must never do input or output, look at a clock, or know a client. No object makes it panic: what cannot
//! be read is said in [`JobView::invalid`].
//!
//! Invariants: a start is one API write; stopping a started job restores its templates exactly; every patch of an
//! object that was seen carries its resource version, so that it never acts on one that was not.
//!
//! Source of the contract: reference 07.
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

mod affinity;
mod job;
mod jobset;
mod object;
mod patch;
mod scheduling;
pub mod webhook;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodSetInfo};

pub use patch::{Patch, Step};
pub use scheduling::StartError;

/// A job as the engine sees it.
pub fn observe(kind: JobKind, object: &Value) -> JobView {
    match kind {
        JobKind::Job => job::observe(object),
        JobKind::JobSet => jobset::observe(object),
    }
}

/// The one patch that starts a job: what admission adds to the templates, counts, `suspend: false`.
pub fn start(view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
    match view.job.kind {
        JobKind::Job => job::start(view, infos),
        JobKind::JobSet => jobset::start(view, infos),
    }
}

/// The writes that stop a job and restore its templates, in order.
///
/// The first carries the view's resource version; pin each of the others to the answer of the one before with
/// [`Step::pinned`]. After a crash in between, observe again and send all steps: those already made change nothing.
/// With no `infos` the job is stopped and its templates stay as they are.
pub fn stop(view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
    match view.job.kind {
        JobKind::Job => job::stop(view, infos),
        JobKind::JobSet => jobset::stop(view, infos),
    }
}

/// The write that has the controller of a stopped batch Job say when it has seen the stop and deleted the pods.
///
/// It sets the condition `Suspended` to `False`, since `at`. The controller sets it back to `True`, with the time at which it did.
pub fn ask_controller(view: &JobView, at: Timestamp) -> Step {
    job::ask_controller(view, at)
}

/// The write that suspends a job of which nothing has to be restored.
pub fn suspend(view: &JobView) -> Step {
    let patch = Patch::Merge(json!({"spec": {"suspend": true}}));
    Step { subresource: None, patch: patch.pinned(&view.resource_version) }
}
