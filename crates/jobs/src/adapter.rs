//! The differences between kinds: each kind implements [`Adapter`] in a folder of its own.

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::gates::Gates;
use sluice_api::job::{JobFinished, JobKind, JobView, PodSetInfo, TemplateRef};

use crate::described;
use crate::made_pod::{MadePod, Maker};
use crate::object::{self, at, finished};
use crate::patch::{Patch, Step};
use crate::pod_group::PodGroup;
use crate::pods::Composite;
use crate::review::{Context, Meta, Violations};
use crate::scheduling::StartError;

/// A state of a job that its controller writes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All pods run.
    Running {
        /// Since when.
        since: Timestamp,
        /// Whether they are ready.
        ready: bool,
    },
    /// It has no pods.
    Idle,
    /// It ended.
    Ended {
        /// When.
        at: Timestamp,
        /// Whether it succeeded; otherwise it exceeded its time.
        success: bool,
    },
}

/// The schema that the API server checks an object of a kind against before any webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// `batch/v1` Job, the whole object.
    Job,
    /// The template of a batch Job: `metadata` and `spec`.
    JobTemplate,
    /// A pod template.
    PodTemplate,
    /// `v1` Pod, the whole object.
    Pod,
}

/// One kind: how its objects are read, started and stopped.
pub(crate) trait Adapter: Sync {
    /// The kind.
    fn kind(&self) -> JobKind;

    /// The job as the engine sees it.
    fn observe(&self, object: &Value) -> JobView;

    /// The job with what its template object says, or lacks: see [`crate::filled`].
    fn filled(&self, view: &JobView, _template: Option<&Value>) -> JobView {
        view.clone()
    }

    /// The object with what its template object says, for the functions that read objects: see [`crate::with_template`].
    fn with_template(&self, object: &Value, _template: &Value) -> Value {
        object.clone()
    }

    /// The template object that it names.
    fn template_of(&self, _object: &Value) -> Option<TemplateRef> {
        None
    }

    /// The part of a template object that decides what pods its jobs have.
    fn content(&self, _template: &Value) -> Value {
        Value::Null
    }

    /// The write before the one that starts it, for kinds whose controller accepts templates only while the job is suspended.
    fn prepare(&self, _view: &JobView, _infos: &[PodSetInfo]) -> Result<Option<Step>, StartError> {
        Ok(None)
    }

    /// The second shape, for kinds whose jobs have members.
    fn composite(&self) -> Option<&'static dyn Composite> {
        None
    }

    /// The patch that starts it: see [`crate::start`]. For a job with members, the rest that is written to the object itself.
    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError>;

    /// The writes that stop it: see [`crate::stop`]. None where the engine deletes its pods.
    fn stop(&self, _view: &JobView, _infos: &[PodSetInfo]) -> Vec<Step> {
        Vec::new()
    }

    /// The write that ends a stop which was begun, where that is more than to suspend the job.
    fn end_stop(&self, _view: &JobView) -> Option<Step> {
        None
    }

    /// The write that has its controller confirm a stop: see [`crate::ask_controller`].
    fn ask_controller(&self, view: &JobView, at: Timestamp) -> Step {
        object::ask_controller(view, at)
    }

    /// Its pods, in the order of its pod sets: where its descriptor says all of them, these.
    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        described::groups(self.kind(), object).into_iter().map(|(group, _)| group).collect()
    }

    /// Its status in this state, as its controller writes it.
    fn status(&self, object: &Value, state: State) -> Value;

    /// Whether it is known what its controller writes down: [`status`](Self::status).
    fn is_simulated(&self) -> bool {
        true
    }

    /// Whether it ends by itself, some time after it began to run.
    fn ends(&self, _object: &Value) -> bool {
        self.kind().integration().ends
    }

    /// The pod of this number, from 0, as its controller makes it where its pods wait for admission in its place: for the simulator. None beyond
    /// the last.
    fn made_pod(&self, _object: &Value, _number: usize) -> Option<Value> {
        None
    }

    /// The field that suspends it.
    fn suspend_path(&self) -> &'static [&'static str] {
        self.kind().integration().suspend
    }

    /// The value of that field that suspends it.
    fn suspended_value(&self) -> Value {
        Value::Bool(true)
    }

    /// The value of that field that its user lets it run with, as JSON, if a start does not write it anyway.
    fn running_value(&self, _object: &Value) -> Option<String> {
        None
    }

    /// Whether it is suspended, as its user or its controller sees it.
    fn is_suspended(&self, object: &Value) -> bool {
        at(object, self.suspend_path()) == &Value::Bool(true)
    }

    /// How it ended, if it did.
    fn finished(&self, object: &Value) -> Option<JobFinished> {
        let integration = self.kind().integration();
        finished(&object["status"], integration.succeeded, integration.failed)
    }

    /// Its longest running time in seconds, by its own spec.
    fn deadline_seconds(&self, _object: &Value) -> Option<i64> {
        None
    }

    /// From when to when it ran, if it succeeded and says so.
    fn ran(&self, object: &Value) -> Option<(Timestamp, Timestamp)> {
        object::ran(&object["status"], self.kind().integration().succeeded)
    }

    /// How many pods it still has to complete, where each that succeeds is followed by another: see [`crate::left_to_complete`].
    fn left_to_complete(&self, _object: &Value, _succeeded: i64) -> Option<i64> {
        None
    }

    /// How many of its pods failed and are followed by no others.
    fn failed_for_good(&self, _object: &Value) -> i64 {
        0
    }

    /// The merge patch that lowers its number of pods, where its user can do that.
    fn with_pods(&self, _object: &Value, _pods: i32, _gates: Gates) -> Option<Value> {
        None
    }

    /// Whether its Workload has unchanged copies of its pod templates: nothing is added to their containers.
    fn copies_templates(&self) -> bool {
        false
    }

    /// Where labels and annotations of the pods of a group are, for the marks of pods that wait in its place: JSON pointers.
    fn marked(&self, group: &PodGroup<'_>) -> [String; 2] {
        ["labels", "annotations"].map(|map| format!("{}/metadata/{map}", group.pointer))
    }

    /// From which number on its controller counts the pods of a group, where these are ranked on their own
    /// (docs/reference/04-labels-annotations.md, `pod-index-offset`).
    fn first_index(&self, _object: &Value, _groups: &[PodGroup<'_>], _at: usize) -> u32 {
        0
    }

    /// Whether an object is never managed, whatever it names: it has no pods of its own.
    fn skips(&self, _object: &Value) -> bool {
        false
    }

    /// Whether workload slices can be made of it (annotation `elastic-job`).
    fn is_elastic(&self) -> bool {
        false
    }

    /// Whether a job may have made a pod that names it as its controller: the pod has a name or labels such as the job's controller gives, and
    /// searches by. If that is not known, true.
    fn may_be_pod_of(&self, _job: &Maker<'_>, _pod: &MadePod<'_>) -> bool {
        true
    }

    /// The schemas of its objects, part by part, each with its JSON pointer.
    fn schemas(&self, object: &Value) -> Vec<(String, Schema)> {
        self.pod_groups(object).into_iter().map(|group| (group.pointer, Schema::PodTemplate)).collect()
    }

    /// Whether a change of an object is held against any rule.
    fn judges(&self, _old: &Meta, _new: &Meta, _context: &Context<'_>) -> bool {
        true
    }

    /// The rules for its objects besides those for every kind.
    fn validate(&self, _change: &Change<'_>, _violations: &mut Violations, _context: &Context<'_>) {}
}

/// A new or changed object.
pub(crate) struct Change<'a> {
    /// The new object.
    pub object: &'a Value,
    /// The metadata that all kinds have.
    pub meta: &'a Meta,
    /// As it was.
    pub old: Option<(&'a Value, &'a Meta)>,
}
