//! Pure adapters between job kinds and Workloads: observe, start, stop.
//!
//! [`observe`] turns an API object into the [`JobView`] from which the engine decides; [`start`], [`stop`] and [`suspend`] turn its decisions into
//! patches; [`webhook`] handles a user's write of a job.
//!
//! This crate must never do input or output, look at a clock, or know a client. No object makes it panic: [`JobView::invalid`] reports what cannot be
//! read.
//!
//! Invariants: a start is one API write, or two if the kind's controller requires it; stopping a started job restores its templates exactly; every
//! patch of a seen object carries its resource version, so that it never acts on another version.
//!
//! Source of the contract: docs/reference/07-integrations.md.
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

mod adapter;
mod affinity;
mod bulk;
mod declared;
mod described;
mod external;
mod job_maker;
mod made_pod;
mod minicluster;
mod object;
mod patch;
mod pod_group;
mod ray;
mod registry;
mod replica_specs;
mod review;
mod scheduling;
mod serving;
#[cfg(test)]
mod testing;
mod topology;
pub mod webhook;

// The folders of the job kinds.
sluice_api::job_modules!();

// Tests name what is public as others do.
#[cfg(test)]
extern crate self as sluice_jobs;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::gates::Gates;
use sluice_api::job::{JobFinished, JobKind, JobView, PodSetInfo, Template, TemplateKind, TemplateRef};
use sluice_api::slim::is_too_deep;

pub use adapter::{Schema, State};
pub use declared::{declare, declare_kinds};
pub use job_maker::{JOB_MAKERS, JobMaker};
pub use made_pod::{MadePod, Maker, PodMarks};
pub use patch::{Patch, Step, applied_by};
pub use pod_group::{PodGroup, path_of};
pub use scheduling::StartError;

/// A job as the engine sees it. An object of a kind that another controller manages has its metadata, and no pods; so has one that is nested too deeply
/// to be read.
pub fn observe(kind: JobKind, object: &Value) -> JobView {
    let mut view = registry::of(kind).observe(object);
    if is_too_deep(object) {
        view.pod_sets.clear();
        view.may_clean_up = false;
        // No rule for what can be read holds for it.
        view.status_unread = false;
        view.on_hold = view.on_hold.map(|_| false);
        view.invalid = Some(object::TOO_DEEP.to_owned());
    }
    view
}

/// Whether a job may have made a pod that names it as its controller, by name and labels. True if these are not known: for kinds that other
/// controllers manage or that are only declared, and for a job that cannot be read. False for a job that another controller looks after, as nothing
/// checks its pods.
pub fn may_be_pod_of(job: &Maker<'_>, pod: &MadePod<'_>) -> bool {
    !job.marks.managed_by_others && registry::of(job.kind).may_be_pod_of(job, pod)
}

/// The second shape of a kind whose jobs have members; `None` for a kind whose job is one object.
pub fn composite(kind: JobKind) -> Option<&'static dyn pods::Composite> {
    registry::of(kind).composite()
}

/// The patch that starts a job: what admission adds to the templates, counts, `suspend: false`. See [`prepare`] for the kinds that need two.
///
/// # Errors
///
/// If the admission has other pod sets than the job or a number of pods that the job cannot run with, what it adds contradicts a template or has no
/// place in the kind, or the kind is managed by others.
pub fn start(view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
    registry::of(view.job.kind).start(view, infos)
}

/// The write that comes before [`start`], for a kind whose controller takes templates only while the job is suspended; pin the start to its
/// answer with [`Patch::pinned`]. After a crash in between, observe again: what was written is not written again.
///
/// # Errors
///
/// If the admission has other pod sets than the job or a number of pods that the job cannot run with, or what it adds contradicts a template.
pub fn prepare(view: &JobView, infos: &[PodSetInfo]) -> Result<Option<Step>, StartError> {
    registry::of(view.job.kind).prepare(view, infos)
}

/// The job with the content of its template object, for a kind whose jobs name one; without the object, with what is missing. A template that is too
/// large to be kept cannot be used.
pub fn filled(view: &JobView, template: Option<&Template>) -> JobView {
    if view.template.is_none() {
        return view.clone();
    }
    let adapter = registry::of(view.job.kind);
    let Some(template) = template else { return adapter.filled(view, None) };
    let content = template.content.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(content) = content {
        return adapter.filled(view, Some(&content));
    }
    let mut view = adapter.filled(view, None);
    view.invalid = Some(format!("{} is longer than {} bytes", template.object, Template::LONGEST));
    view
}

/// An object with what its template object says, as the functions of this crate that read objects take it.
pub fn with_template(kind: JobKind, object: &Value, template: &Value) -> Value {
    registry::of(kind).with_template(object, template)
}

/// The template object that an object names.
pub fn template_of(kind: JobKind, object: &Value) -> Option<TemplateRef> {
    registry::of(kind).template_of(object)
}

/// A template object, as far as jobs are made of it.
pub fn template(kind: TemplateKind, object: &Value) -> Template {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    let namespace = if kind.namespaced() { text("namespace") } else { "" };
    let user = JobKind::ALL.into_iter().find(|job| job.templates().contains(&kind));
    let content = user.map(|user| registry::of(user).content(object).to_string());
    Template {
        object: TemplateRef { kind, namespace: namespace.into(), name: text("name").into() },
        resource_version: text("resourceVersion").to_owned(),
        content: content.filter(|content| content.len() <= Template::LONGEST).map(Into::into),
    }
}

/// The writes that stop a job and restore its templates, in order.
///
/// The first carries the view's resource version; pin each of the others to the answer to the one before with [`Step::pinned`]. After a crash in
/// between, observe again and send all steps: those already made change nothing. With no `infos` the job is stopped and its templates stay unchanged.
pub fn stop(view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
    registry::of(view.job.kind).stop(view, infos)
}

/// The write that has the controller of a stopped job say when it has seen the stop and deleted the pods
/// ([`Integration::confirms_stops`](sluice_api::job::Integration)).
///
/// It sets the condition `Suspended` to `False`, since `at`. The controller sets it back to `True`, with the time at which it did.
pub fn ask_controller(view: &JobView, at: Timestamp) -> Step {
    registry::of(view.job.kind).ask_controller(view, at)
}

/// The write that suspends a job without restoring anything. It ends a stop that was begun ([`JobView::stopping`]).
pub fn suspend(view: &JobView) -> Step {
    registry::suspend(view)
}

/// Whether the object is suspended, as its own controller sees it.
pub fn is_suspended(kind: JobKind, object: &Value) -> bool {
    registry::of(kind).is_suspended(object)
}

/// The value that suspends an object of the kind, in the field at [`suspend_path`].
pub fn suspended_value(kind: JobKind) -> Value {
    registry::of(kind).suspended_value()
}

/// The field that suspends an object of the kind.
pub fn suspend_path(kind: JobKind) -> &'static [&'static str] {
    registry::of(kind).suspend_path()
}

/// How the job of an object ended, if it did.
pub fn finished(kind: JobKind, object: &Value) -> Option<JobFinished> {
    registry::of(kind).finished(object)
}

/// The pods of an object, in the order of its pod sets.
pub fn pod_groups(kind: JobKind, object: &Value) -> Vec<PodGroup<'_>> {
    registry::of(kind).pod_groups(object)
}

/// The status that the kind's controller writes for an object in this state.
pub fn status(kind: JobKind, object: &Value, state: State) -> Value {
    registry::of(kind).status(object, state)
}

/// Whether [`status`] returns what the kind's controller writes. The declaration of a kind may lack that.
pub fn is_simulated(kind: JobKind) -> bool {
    registry::of(kind).is_simulated()
}

/// Whether the job of an object ends by itself, some time after it began to run.
pub fn ends(kind: JobKind, object: &Value) -> bool {
    registry::of(kind).ends(object)
}

/// The pod of this number, from 0, as the controller of an object makes it whose pods wait for admission in its place. None beyond the last.
pub fn made_pod(kind: JobKind, object: &Value, number: usize) -> Option<Value> {
    registry::of(kind).made_pod(object, number)
}

/// From when to when the job of an object ran, if it succeeded and says so.
pub fn ran(kind: JobKind, object: &Value) -> Option<(Timestamp, Timestamp)> {
    registry::of(kind).ran(object)
}

/// The longest running time of a job in seconds, by its own spec.
pub fn deadline_seconds(kind: JobKind, object: &Value) -> Option<i64> {
    registry::of(kind).deadline_seconds(object)
}

/// How many pods a job still has to complete, where each that succeeds is followed by another: it has more completions than pods at a time. `succeeded`
/// is how many are known to have succeeded, which its status may not say yet.
pub fn left_to_complete(kind: JobKind, object: &Value, succeeded: i64) -> Option<i64> {
    registry::of(kind).left_to_complete(object, succeeded)
}

/// The merge patch that lowers a job's number of pods, where its user can do that. It changes what must go with the number, too: completions that
/// equal it, and a smallest number that is not below it.
pub fn with_pods(kind: JobKind, object: &Value, pods: i32, gates: Gates) -> Option<Value> {
    registry::of(kind).with_pods(object, pods, gates)
}

/// How many pods of a job failed and are followed by no others, as those of an index of a `batch/v1` Job that failed for good
/// (`backoffLimitPerIndex`).
pub fn failed_for_good(kind: JobKind, object: &Value) -> i64 {
    registry::of(kind).failed_for_good(object)
}

/// Whether a Workload has unchanged copies of the pod templates of its job, so that both can be cut in the same way.
pub fn copies_templates(kind: JobKind) -> bool {
    registry::of(kind).copies_templates()
}

/// Whether workload slices can be made of jobs of the kind (annotation `elastic-job`).
pub fn supports_slices(kind: JobKind) -> bool {
    registry::of(kind).is_elastic()
}

/// The schemas of an object, part by part, each with its JSON pointer.
pub fn schemas(kind: JobKind, object: &Value) -> Vec<(String, Schema)> {
    registry::of(kind).schemas(object)
}
