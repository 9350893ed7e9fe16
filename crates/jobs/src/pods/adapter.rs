//! A pod as a job of its own, for the simulator and the commands, which look at single objects.

use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::gates::Gates;
use sluice_api::job::{JobFinished, JobKind, JobView, PodSetInfo};
use sluice_api::labels;

use super::changes::ungated;
use super::composite::{Composite, PlainPods};
use super::member::{Member, Phase};
use super::view::of_pod;
use crate::adapter::{Adapter, Schema, State};
use crate::patch::Patch;
use crate::scheduling::{StartError, paired};

/// The adapter of plain pods.
pub(crate) struct Pod;

impl Adapter for Pod {
    fn kind(&self) -> JobKind {
        JobKind::POD
    }

    fn observe(&self, object: &Value) -> JobView {
        of_pod(&Member::observe(object, &Gates::default()))
    }

    fn composite(&self) -> Option<&'static dyn Composite> {
        Some(&PlainPods)
    }

    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        let pairs = paired(view, infos)?;
        let mut patches = pairs.into_iter().map(|(set, info)| ungated(set, &view.resource_version, info));
        patches.next_back().unwrap_or_else(|| Ok(Patch::Json(Vec::new()).pinned(&view.resource_version)))
    }

    fn status(&self, _object: &Value, state: State) -> Value {
        match state {
            State::Running { since, ready } => json!({
                "phase": "Running",
                "startTime": whole_seconds(since),
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" },
                    "lastTransitionTime": whole_seconds(since)}],
            }),
            State::Idle => json!({"phase": "Pending"}),
            State::Ended { at, success } => json!({
                "phase": if success { "Succeeded" } else { "Failed" },
                "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted",
                    "lastTransitionTime": whole_seconds(at)}],
            }),
        }
    }

    /// A pod of an object that serves, or of a group that never finishes, runs until it is deleted.
    fn ends(&self, object: &Value) -> bool {
        let annotations = &object["metadata"]["annotations"];
        annotations[labels::POD_SUSPENDING_PARENT].is_null()
            && annotations[labels::POD_GROUP_SERVING] != "true"
    }

    fn schemas(&self, _object: &Value) -> Vec<(String, Schema)> {
        vec![(String::new(), Schema::Pod)]
    }

    fn is_suspended(&self, object: &Value) -> bool {
        Member::observe(object, &Gates::default()).gated
    }

    fn finished(&self, object: &Value) -> Option<JobFinished> {
        let member = Member::observe(object, &Gates::default());
        member
            .ended()
            .then(|| JobFinished { success: member.phase == Phase::Succeeded, message: member.message })
    }
}
