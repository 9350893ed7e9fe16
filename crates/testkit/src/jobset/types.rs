//! The parts of JobSet's API (jobset.x-k8s.io/v1alpha2) that tests use. All other fields are preserved.

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The spec of a JobSet.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(group = "jobset.x-k8s.io", version = "v1alpha2", kind = "JobSet", plural = "jobsets", namespaced)]
#[kube(status = "JobSetStatus", schema = "disabled", derive = "PartialEq")]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetSpec {
    /// The groups of equal Jobs.
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// No child runs while this is set.
    pub suspend: bool,
    /// Policies and other fields.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// A group of equal Jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJob {
    /// The group's name.
    pub name: String,
    /// The template of each child Job.
    pub template: JobTemplateSpec,
    /// Other fields: the number of children, and the groups that this one depends on.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// The status of a JobSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetStatus {
    /// `Suspended`, `StartupPolicyCompleted`, `Completed`, `Failed`.
    pub conditions: Vec<Condition>,
    /// How often the JobSet was restarted.
    pub restarts: i32,
    /// The restarts that count towards `maxRestarts`.
    pub restarts_count_towards_max: i32,
    /// `Completed` or `Failed`, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_state: Option<String>,
    /// Per group, how many children are how far; in no order.
    pub replicated_jobs_status: Vec<ReplicatedJobStatus>,
}

/// How many children of a group are how far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicatedJobStatus {
    /// The group's name.
    pub name: String,
    /// Children all of whose pods are ready or have succeeded.
    pub ready: i32,
    /// Children that completed.
    pub succeeded: i32,
    /// Children that failed.
    pub failed: i32,
    /// Children with pods.
    pub active: i32,
    /// Children that are suspended.
    pub suspended: i32,
}
