//! The answer, as data.

use std::sync::Arc;

use serde::Serialize;

use super::finding::{Check, Finding, PendingPod, State};
use super::forecast::Forecast;
use super::refused::Refused;
use super::remedy::Remedy;
use super::topology::TopologyFit;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
pub(super) fn is_none(count: &usize) -> bool {
    *count == 0
}

/// What is known about a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// `namespace/name` of the job.
    pub job: String,
    /// The Workload's name, empty if it has none.
    pub workload: String,
    /// How far it has come.
    pub state: State,
    /// The id of the trace of its admission attempt, if the manager makes traces: 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Its ClusterQueue.
    pub cluster_queue: Option<Arc<str>>,
    /// Its place in its ClusterQueue, from 0 as everywhere.
    pub position: Option<usize>,
    /// The Workloads ahead of it in the queue, the next one first.
    pub ahead: Vec<String>,
    /// The findings: what blocks it, what it waits for, what happened to it.
    pub findings: Vec<Finding>,
    /// Its admission checks.
    pub checks: Vec<Check>,
    /// The first few of its pods that are not scheduled, if it is admitted.
    pub pending_pods: Vec<PendingPod>,
    /// How many of its pods are not scheduled, as far as they were read.
    pub pending_pod_count: usize,
    /// Where its pods would fit, if nodes have no place for them as it asks.
    pub topology: Vec<TopologyFit>,
    /// Why it waits.
    pub reason: Option<String>,
    /// The message of its condition.
    pub message: Option<String>,
    /// For every flavor, why not.
    pub flavors: Vec<Refused>,
    /// What happened to it so far.
    pub history: Vec<String>,
    /// How its queues, Cohorts and flavors changed since it was submitted.
    pub changes: Vec<String>,
    /// What would let it start; each remedy says whether it was tried in the engine.
    pub remedies: Vec<Remedy>,
    /// When it will start if nothing is done.
    pub forecast: Option<Forecast>,
    /// Why it is not known when it will start.
    pub no_forecast: Option<String>,
    /// Objects around it that cannot be simulated, and are left out.
    #[serde(skip_serializing_if = "is_none")]
    pub not_played: usize,
    /// Whether time ran out before everything was tried: then remedies may be missing, and the forecast.
    pub incomplete: bool,
}
