//! What a change of a job would do: tried in the engine, beside what happens without it.

use serde::Serialize;
use serde_json::Value;
use sluice_engine::ObjectRef;

use super::facts::holds_quota;
use super::patch::{Patch, patch_of};
use super::remedy::Tried;
use super::{ExplainError, Forecast, Question};
use crate::simulation::Simulation;

/// A change of a job in a question, in bytes at most.
pub const MOST_CHANGE: usize = 64 << 10;

/// A change, and what it would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// `namespace/name` of the job.
    pub job: String,
    /// The merge patch that was tried.
    pub change: Patch,
    /// Without it.
    pub before: Course,
    /// With it.
    pub after: Course,
    /// Whether time ran out before everything was tried.
    pub incomplete: bool,
}

/// How a job fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    /// Whether it starts at once.
    pub starts_now: bool,
    /// Jobs that are preempted for that.
    pub preempts: Vec<String>,
    /// When it starts, if not at once; absent if that is not known.
    pub forecast: Option<Forecast>,
    /// Why the change is refused, if it is.
    pub refused: Option<String>,
}

/// Why a merge patch is none that may be tried: it changes something else than what a user may change of a job.
///
/// # Errors
/// With what is wrong, in words.
pub fn check_change(change: &Value) -> Result<(), String> {
    let form = "expected a merge patch of spec, metadata.labels or metadata.annotations, for example {\"spec\":{\"parallelism\":2}}";
    let fields = change.as_object().filter(|fields| !fields.is_empty()).ok_or(form)?;
    let in_metadata = |field: &String| ["labels", "annotations"].contains(&field.as_str());
    let good = fields.iter().all(|(field, value)| match (field.as_str(), value.as_object()) {
        ("spec", Some(_)) => true,
        ("metadata", Some(metadata)) => metadata.keys().all(in_metadata),
        _ => false,
    });
    if good { Ok(()) } else { Err(form.to_owned()) }
}

impl Question<'_> {
    /// What a merge patch of the job would do.
    ///
    /// # Errors
    /// When there is no such job, or its world cannot be played.
    pub fn what_if(&self, change: &Value) -> Result<WhatIf, ExplainError> {
        if let Some(why) = self.why_not_tried() {
            return Err(ExplainError::Unread(why));
        }
        let simulation = self.world()?;
        let (job, _) = self.find(&simulation)?;
        let patch = patch_of(&job, change.clone());
        let before = self.course(&simulation, &job, None)?;
        let after = self.course(&simulation, &job, Some(&patch))?;
        let incomplete = self.patience.is_over();
        Ok(WhatIf { job: self.shown(&job.namespace, &job.name), change: patch, before, after, incomplete })
    }

    fn course(
        &self,
        present: &Simulation,
        job: &ObjectRef,
        change: Option<&Patch>,
    ) -> Result<Course, ExplainError> {
        let mut course = Course::default();
        let mut simulation = present.fork();
        simulation.options.until = None;
        if let Some(patch) = change {
            let namespace = Some(patch.namespace.as_str()).filter(|n| !n.is_empty());
            if let Err(why) = simulation.patch(&patch.kind, namespace, &patch.name, &patch.merge) {
                course.refused = Some(why.to_string());
                return Ok(course);
            }
        }
        let patches: Vec<Patch> = change.into_iter().cloned().collect();
        if let Tried::Starts(preempts) = self.starts_with(present, job, &patches)? {
            (course.starts_now, course.preempts) = (true, preempts);
        } else if simulation.record().job(job).is_some_and(|job| job.finished.is_none() && !holds_quota(job))
        {
            course.forecast = self.forecast(&simulation, job)?;
        }
        Ok(course)
    }
}
