//! `expected.yaml`, as `examples/README.md` describes it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The scenarios, each on a cluster without the example's objects.
    pub scenarios: Vec<Scenario>,
}

/// One scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// What it shows.
    pub about: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Events that happen in this order.
    pub order: Option<Vec<String>>,
    /// Several such orders.
    #[serde(default)]
    pub orders: Vec<Vec<String>>,
    /// How often an event happens in all.
    #[serde(default)]
    pub counts: BTreeMap<String, usize>,
}

/// One step: apply, patch, wait.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Files of the folder.
    #[serde(default)]
    pub apply: Vec<String>,
    /// A merge patch.
    pub patch: Option<Patch>,
    /// `namespace/name` of a JobSet: the first node pool that its pods are on is about to go.
    pub departs: Option<String>,
    /// No node is about to go any more.
    #[serde(default)]
    pub returns: bool,
    /// States that all hold at the same time before the step is over.
    #[serde(default)]
    pub until: Vec<State>,
}

/// A merge patch of one object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The kind, as kubectl takes it.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// The patch.
    pub merge: serde_json::Value,
}

/// The state of a job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct State {
    /// `namespace/name` of a Job or JobSet.
    pub job: String,
    /// Which state.
    pub is: Is,
    /// The ClusterQueue of its admission.
    pub cluster_queue: Option<String>,
    /// The Workload's priority.
    pub priority: Option<i64>,
    /// Resource → flavor of every pod set of its admission.
    #[serde(default)]
    pub flavors: BTreeMap<String, String>,
    /// The reason of its QuotaReserved condition.
    pub reason: Option<String>,
    /// A part of that condition's message.
    pub message: Option<String>,
    /// Whether its condition PodsReady is true.
    pub ready: Option<bool>,
    /// A part of the message of one of its admission checks.
    pub check: Option<String>,
}

/// The states that a job can be in.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Is {
    /// Has a Workload without quota.
    Waiting,
    /// Its Workload has quota and waits for its admission checks.
    Reserved,
    /// Its Workload is admitted and not finished.
    Admitted,
    /// Its Workload is finished.
    Finished,
    /// Exists and has no Workload.
    Unmanaged,
    /// The job itself reports that it completed.
    Completed,
}
