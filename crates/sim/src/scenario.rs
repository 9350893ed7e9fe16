//! The scenario file: what happens and when, in addition to the manifests.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

pub use crate::autoscaler::Provisioning;
use crate::duration;
use crate::random::Distribution;

/// A document of kind Scenario (`sluice.dev/v1alpha1`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scenario {
    /// `sluice.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `Scenario`.
    #[serde(default)]
    pub kind: String,
    /// Name and whatever else; not looked at.
    #[serde(default)]
    pub metadata: Value,
    /// What happens.
    #[serde(default)]
    pub spec: Spec,
}

/// What happens.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// The time at which the simulation begins.
    #[serde(default)]
    pub start: Option<Timestamp>,
    /// How long it runs; without it, until nothing is left to happen.
    #[serde(default, deserialize_with = "duration::optional")]
    pub until: Option<SignedDuration>,
    /// The seed of all that is drawn.
    #[serde(default)]
    pub seed: Option<u64>,
    /// How long jobs run that do not say so themselves.
    #[serde(default)]
    pub run_time: Option<Distribution>,
    /// How long jobs run that match; the first that does wins. Before the annotation on the pods, after that on the job.
    #[serde(default)]
    pub run_times: Vec<RunTimeRule>,
    /// From the stop of a job until its pods are gone.
    #[serde(default, deserialize_with = "duration::optional")]
    pub pod_termination: Option<SignedDuration>,
    /// From the start of a job until its pods are ready.
    #[serde(default, deserialize_with = "duration::optional")]
    pub pod_startup: Option<SignedDuration>,
    /// From the reservation of quota until an admission check says Ready.
    #[serde(default, deserialize_with = "duration::optional")]
    pub check_delay: Option<SignedDuration>,
    /// What becomes of requests for nodes.
    #[serde(default)]
    pub provisioning: Provisioning,
    /// What happens once.
    #[serde(default)]
    pub events: Vec<ScenarioEvent>,
    /// What arrives again and again.
    #[serde(default)]
    pub arrivals: Vec<Arrivals>,
}

/// How long matching jobs run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunTimeRule {
    /// The namespace; every one if absent.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The LocalQueue; every one if absent.
    #[serde(default)]
    pub queue: Option<String>,
    /// The job's name, `*` stands for anything; every one if absent.
    #[serde(default)]
    pub name: Option<String>,
    /// How long.
    pub run_time: Distribution,
}

/// The state of a job that an event waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobState {
    /// It exists.
    Submitted,
    /// A message says why it waits.
    Waiting,
    /// Its Workload is admitted.
    Admitted,
    /// Its Workload was evicted.
    Evicted,
    /// Its Workload is finished.
    Finished,
}

/// What an event waits for.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct After {
    /// `namespace/name`.
    pub job: String,
    /// Its state.
    pub is: JobState,
}

/// Something that happens once.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScenarioEvent {
    /// When, counted from the beginning; with `after`, from the moment when that is so.
    #[serde(default, deserialize_with = "duration::optional")]
    pub at: Option<SignedDuration>,
    /// Not before all of these are so.
    #[serde(default)]
    pub after: Vec<After>,
    /// Files to apply, relative to the scenario's file.
    #[serde(default)]
    pub apply: Vec<String>,
    /// Objects to apply.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// A merge patch of an object.
    #[serde(default)]
    pub patch: Option<PatchEvent>,
    /// An object to delete.
    #[serde(default)]
    pub delete: Option<Named>,
    /// A ClusterQueue or LocalQueue to stop.
    #[serde(default)]
    pub stop: Option<StopEvent>,
    /// A ClusterQueue or LocalQueue to resume.
    #[serde(default)]
    pub resume: Option<QueueName>,
    /// Nodes that fail: they do not answer, and what runs on them is lost.
    #[serde(default)]
    pub fail_nodes: Option<NodeSet>,
    /// Nodes to drain for maintenance: their pods are evicted, nothing new is placed there.
    #[serde(default)]
    pub drain_nodes: Option<NodeSet>,
    /// Nodes that say that they are about to go.
    #[serde(default)]
    pub depart_nodes: Option<NodeSet>,
    /// Nodes whose maintenance is announced.
    #[serde(default)]
    pub announce_maintenance: Option<Maintenance>,
    /// Nodes that are deleted.
    #[serde(default)]
    pub delete_nodes: Option<NodeSet>,
    /// Nodes that come back, deleted ones, too.
    #[serde(default)]
    pub recover_nodes: Option<NodeSet>,
}

/// Names an object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Named {
    /// Its kind, as kubectl takes it.
    pub kind: String,
    /// Its namespace, if it has one.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// A merge patch.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchEvent {
    /// The object's kind, as kubectl takes it.
    pub kind: String,
    /// Its namespace, if it has one.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The patch (RFC 7386).
    pub merge: Value,
}

/// A queue: one of the two.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueName {
    /// A ClusterQueue.
    #[serde(default)]
    pub cluster_queue: Option<String>,
    /// A LocalQueue, `namespace/name`.
    #[serde(default)]
    pub local_queue: Option<String>,
}

/// How to stop a queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StopEvent {
    /// A ClusterQueue.
    #[serde(default)]
    pub cluster_queue: Option<String>,
    /// A LocalQueue, `namespace/name`.
    #[serde(default)]
    pub local_queue: Option<String>,
    /// `Hold` or `HoldAndDrain`.
    #[serde(default = "drain")]
    pub policy: String,
}

fn drain() -> String {
    "HoldAndDrain".to_owned()
}

/// Some nodes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSet {
    /// By name.
    #[serde(default)]
    pub names: Vec<String>,
    /// By labels: all must match.
    #[serde(default)]
    pub selector: BTreeMap<String, String>,
}

/// Some nodes, and when their maintenance begins.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Maintenance {
    /// The nodes.
    pub nodes: NodeSet,
    /// How long after the announcement it begins.
    #[serde(rename = "in", deserialize_with = "duration::required")]
    pub in_: SignedDuration,
}

/// Jobs that arrive again and again.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Arrivals {
    /// Their names begin with it; also names the stream of random numbers.
    pub name: String,
    /// The job: a Job, JobSet or Workload. `metadata.name` is set to the name and a number.
    pub template: Value,
    /// How many.
    #[serde(default)]
    pub count: Option<u64>,
    /// The time between two.
    pub every: Distribution,
    /// When the first arrives.
    #[serde(default, deserialize_with = "duration::optional")]
    pub from: Option<SignedDuration>,
    /// None arrives later.
    #[serde(default, deserialize_with = "duration::optional")]
    pub to: Option<SignedDuration>,
    /// How long they run; without it, as any other job.
    #[serde(default)]
    pub run_time: Option<Distribution>,
    /// The queues they go to in turn; without it, the template's.
    #[serde(default)]
    pub queues: Vec<ArrivalQueue>,
}

/// A queue that jobs arrive in.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ArrivalQueue {
    /// The namespace.
    pub namespace: String,
    /// The LocalQueue.
    pub queue: String,
}

impl Scenario {
    /// The files that events apply, relative to the scenario's file.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.spec.events.iter().flat_map(|e| e.apply.iter().map(String::as_str))
    }
}

impl NodeSet {
    /// Whether a node is one of them.
    pub(crate) fn has(&self, name: &str, value: &Value) -> bool {
        let labels = &value["metadata"]["labels"];
        self.names.iter().any(|n| n == name)
            || (!self.selector.is_empty() && self.selector.iter().all(|(k, v)| labels[k] == v.as_str()))
    }
}

impl RunTimeRule {
    /// Whether the rule is about this job.
    pub(crate) fn matches(&self, namespace: &str, queue: &str, name: &str) -> bool {
        self.namespace.as_deref().is_none_or(|n| n == namespace)
            && self.queue.as_deref().is_none_or(|q| q == queue)
            && self.name.as_deref().is_none_or(|pattern| glob(pattern, name))
    }
}

/// Whether a text matches a pattern in which `*` stands for anything.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    (0..=rest.len()).any(|at| rest.is_char_boundary(at) && glob(tail, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*b*c", "axxbc", true),
            ("a*", "ba", false),
            ("a", "ab", false),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
