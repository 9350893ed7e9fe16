//! The parts of JobSet's API (jobset.x-k8s.io/v1alpha2) that the stand-in reads and writes.

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The spec of a JobSet, as far as the stand-in acts on it.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(group = "jobset.x-k8s.io", version = "v1alpha2", kind = "JobSet", plural = "jobsets", namespaced)]
#[kube(status = "JobSetStatus", schema = "disabled", derive = "PartialEq")]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetSpec {
    /// The groups of equal Jobs.
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// No child runs while this is set.
    pub suspend: bool,
    /// Who reconciles it; JobSet itself when unset.
    pub managed_by: Option<String>,
    /// When it counts as completed.
    pub success_policy: Option<SuccessPolicy>,
    /// What a failed child means; without one, the end.
    pub failure_policy: Option<FailurePolicy>,
    /// In which order children start.
    pub startup_policy: Option<StartupPolicy>,
    /// Seconds after which a finished JobSet is deleted.
    pub ttl_seconds_after_finished: Option<i64>,
}

/// A group of equal Jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicatedJob {
    /// The group's name.
    pub name: String,
    /// What each child Job is made from.
    pub template: JobTemplateSpec,
    /// How many children.
    pub replicas: i32,
    /// Groups that must be ready or complete before this one starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependsOn>,
}

/// A dependency between groups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DependsOn {
    /// The group waited for.
    pub name: String,
    /// `Ready` or `Complete`.
    pub status: String,
}

/// When a JobSet counts as completed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessPolicy {
    /// `All` or `Any`.
    pub operator: String,
    /// The groups that count; all when empty.
    pub target_replicated_jobs: Vec<String>,
}

/// What a failed child means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailurePolicy {
    /// How often everything is made anew before the JobSet fails.
    pub max_restarts: i32,
    /// `Recreate`, or `BlockingRecreate`: no new child before all old ones are gone.
    pub restart_strategy: String,
    /// The first rule that fits decides.
    pub rules: Vec<FailureRule>,
}

/// One rule of a failure policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureRule {
    /// `FailJobSet`, `RestartJobSet` or `RestartJobSetAndIgnoreMaxRestarts`.
    pub action: String,
    /// Reasons of the child's `Failed` condition; any when empty.
    pub on_job_failure_reasons: Vec<String>,
    /// The groups that it is for; all when empty.
    pub target_replicated_jobs: Vec<String>,
}

/// In which order children start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartupPolicy {
    /// `AnyOrder` or `InOrder`: each group waits until the one before is ready.
    pub startup_policy_order: String,
}

/// What has become of a JobSet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSetStatus {
    /// `Suspended`, `StartupPolicyCompleted`, `Completed`, `Failed`.
    pub conditions: Vec<Condition>,
    /// How often everything was made anew.
    pub restarts: i32,
    /// Those of the restarts that count towards `maxRestarts`.
    pub restarts_count_towards_max: i32,
    /// `Completed` or `Failed`, once it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_state: Option<String>,
    /// Per group, how many children are how far.
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
