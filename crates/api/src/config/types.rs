//! The configuration after defaulting: the shape of v1beta2 (docs/reference/01-api.md 1.12).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use super::Duration;
use crate::gates::Gates;
use crate::job::JobKind;

/// The manager's configuration file, with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// The namespace that the manager runs in.
    pub namespace: String,
    /// The webhook server.
    pub webhook: Webhook,
    /// Prometheus metrics.
    pub metrics: Metrics,
    /// Liveness and readiness.
    pub health: Health,
    /// Address of Go's profiler: only `""` and `"0"` are accepted.
    pub pprof_bind_address: String,
    /// The lease.
    pub leader_election: LeaderElection,
    /// Settings of Kueue's controllers, accepted for compatibility.
    pub controller: Controller,
    /// TLS of all servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Whether jobs without a queue name are managed too.
    pub manage_jobs_without_queue_name: bool,
    /// The namespaces in which jobs are managed. Elsewhere a job with a queue name gets no Workload and stays suspended, and all else is left alone.
    pub managed_jobs_namespace_selector: LabelSelector,
    /// The webhook's own certificates.
    pub internal_cert_management: InternalCertManagement,
    /// Waiting for pods to be ready. Absent, it is on in v1beta2, with a `timeout` of 30 min and as many tries as it takes; only the gate
    /// DisableWaitForPodsReady switches it off there. In v1beta1 it is off unless `enable: true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// Limits of requests to the API server.
    pub client_connection: ClientConnection,
    /// Job kinds.
    pub integrations: Integrations,
    /// MultiKueue.
    pub multi_kueue: MultiKueue,
    /// Fair sharing; absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Admission fair sharing; absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// How requests are counted.
    pub resources: Resources,
    /// The gates that the file names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub feature_gates: BTreeMap<String, bool>,
    /// The gates in force: defaults, then the file or the flag.
    #[serde(skip)]
    pub gates: Gates,
    /// When finished or deactivated objects are deleted.
    pub object_retention_policies: ObjectRetentionPolicies,
    /// Requests for nodes (not in Kueue); left out of the effective configuration while it has its defaults.
    #[serde(skip_serializing_if = "ProvisioningRequests::is_default")]
    pub provisioning_requests: ProvisioningRequests,
    /// Failing nodes (not in Kueue); left out of the effective configuration while it has its defaults.
    #[serde(skip_serializing_if = "super::Hotswap::is_default")]
    pub hotswap: super::Hotswap,
    /// When decisions are made (not in Kueue); left out of the effective configuration while it has its defaults.
    #[serde(skip_serializing_if = "super::Scheduler::is_default")]
    pub scheduler: super::Scheduler,
    /// Where decisions are written down (not in Kueue); left out of the effective configuration while it has its defaults.
    #[serde(skip_serializing_if = "super::Journal::is_default")]
    pub journal: super::Journal,
    /// Traces of admissions (not in Kueue); left out of the effective configuration while they are off.
    #[serde(skip_serializing_if = "super::Tracing::is_default")]
    pub tracing: super::Tracing,
    /// The pages that show the queues (not in Kueue); left out of the effective configuration while they are off.
    #[serde(skip_serializing_if = "super::Dashboard::is_default")]
    pub dashboard: super::Dashboard,
    /// The aggregated visibility API.
    pub visibility_server: VisibilityServer,
}

/// `webhook`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Port of the webhook server.
    pub port: u16,
    /// Address it binds to; empty for all.
    pub host: String,
    /// Folder with `tls.crt` and `tls.key`, used when `internalCertManagement` is off.
    pub cert_dir: String,
}

/// `metrics`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Address and port; `"0"` switches the server off.
    pub bind_address: String,
    /// Whether quota and usage per flavor of ClusterQueues are reported.
    pub enable_cluster_queue_resources: bool,
    /// Labels and annotations that become metric labels (gate CustomMetricLabels).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub custom_labels: Vec<CustomLabel>,
    /// Metrics per LocalQueue (gate LocalQueueMetrics).
    pub local_queue_metrics: LocalQueueMetrics,
}

/// One entry of `metrics.customLabels`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomLabel {
    /// Suffix of the metric label `custom_<name>`.
    pub name: String,
    /// Label that the value comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_label_key: Option<String>,
    /// Annotation that the value comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_annotation_key: Option<String>,
    /// Kind that carries it.
    pub source_kind: SourceKind,
    /// The values that are distinguished.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracked_values: Vec<String>,
}

/// The kind that a custom metric label is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum SourceKind {
    /// Cohort.
    Cohort,
    /// LocalQueue.
    LocalQueue,
    /// ClusterQueue.
    #[default]
    ClusterQueue,
    /// Workload.
    Workload,
}

/// `metrics.localQueueMetrics`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueMetrics {
    /// Whether they are reported.
    pub enable: bool,
    /// The LocalQueues that have them; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_queue_selector: Option<LabelSelector>,
}

impl Eq for LocalQueueMetrics {}

/// `health`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Address and port; `"0"` switches the server off.
    pub health_probe_bind_address: String,
    /// Path of the readiness probe.
    pub readiness_endpoint_name: String,
    /// Path of the liveness probe.
    pub liveness_endpoint_name: String,
}

/// `leaderElection`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElection {
    /// Whether replicas elect a leader; off, this one always leads.
    pub leader_elect: bool,
    /// How long a lease that is not renewed is respected.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry_period: Duration,
    /// Always `leases`.
    pub resource_lock: String,
    /// Name of the Lease.
    pub resource_name: String,
    /// Namespace of the Lease; empty for the manager's own.
    pub resource_namespace: String,
}

/// `controller`. Sluice decides on one thread: there is no concurrency of controllers to set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controller {
    /// Concurrent reconciliations per `Kind.group`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub group_kind_concurrency: BTreeMap<String, i32>,
    /// How long caches may take to fill before the manager gives up, in nanoseconds; absent or 0: as long as it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_sync_timeout: Option<i64>,
}

impl Controller {
    /// How long caches may take to fill, if that is limited.
    pub fn cache_sync_timeout(&self) -> Option<std::time::Duration> {
        let nanos = self.cache_sync_timeout.and_then(|nanos| u64::try_from(nanos).ok())?;
        Some(std::time::Duration::from_nanos(nanos)).filter(|limit| !limit.is_zero())
    }
}

/// `tls`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Least version, `VersionTLS12` or `VersionTLS13` in effect; empty for the library's default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub min_version: String,
    /// Cipher suites by IANA name, for TLS 1.2.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cipher_suites: Vec<String>,
    /// Curves by Go's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve_preferences: Vec<String>,
}

/// `internalCertManagement`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InternalCertManagement {
    /// Whether the manager makes and rotates its certificates.
    pub enable: bool,
    /// Service whose name is in the certificate.
    pub webhook_service_name: String,
    /// Secret that keeps the certificates.
    pub webhook_secret_name: String,
}

/// `waitForPodsReady`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitForPodsReady {
    /// Time from admission until all pods must be ready.
    pub timeout: Duration,
    /// Whether nothing else is admitted meanwhile.
    pub block_admission: bool,
    /// Time for a failed pod to be replaced; zero switches this check off.
    pub recovery_timeout: Duration,
    /// How evicted workloads come back.
    pub requeuing_strategy: RequeuingStrategy,
}

/// `waitForPodsReady.requeuingStrategy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequeuingStrategy {
    /// The time that orders a requeued workload.
    pub timestamp: RequeuingTimestamp,
    /// Requeues before a workload is deactivated; absent: without limit.
    pub backoff_limit_count: Option<i32>,
    /// First delay, in seconds.
    pub backoff_base_seconds: i32,
    /// Longest delay, in seconds.
    pub backoff_max_seconds: i32,
}

/// The time that orders a workload that was requeued because its pods were not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RequeuingTimestamp {
    /// Its creation.
    Creation,
    /// Its eviction.
    Eviction,
}

/// `clientConnection`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConnection {
    /// Requests per second that write; 0 or less for no limit, which is the default (Kueue: 300).
    pub qps: f64,
    /// Requests above that for a moment; 500 by default. Without effect if `qps` sets no limit.
    pub burst: i32,
}

/// `integrations`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Integrations {
    /// Names of the job kinds (docs/reference/07-integrations.md).
    pub frameworks: Vec<String>,
    /// Kinds that others manage, as `Kind.version.group`: jobs that their objects control have no quota of their own, and run on that which
    /// the others got.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub external_frameworks: Vec<String>,
    /// Labels that a Workload gets from its job at creation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub label_keys_to_copy: Vec<String>,
    /// Which plain pods are queued; a field of the older version, read in both.
    #[serde(skip_serializing_if = "PodOptions::is_empty")]
    pub pod_options: PodOptions,
    /// Kinds that are described here (not in Kueue); each is queued like those that `frameworks` lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub declared: Vec<super::DeclaredKind>,
}

impl Integrations {
    pub(super) fn lists(&self, kind: JobKind) -> bool {
        let framework = kind.framework();
        self.frameworks.iter().any(|name| name == framework)
            || self.declared.iter().any(|declared| declared.framework() == framework)
    }

    /// Whether pods are queued only for the objects that suspend them, because their own kind is not listed
    /// (docs/reference/07-integrations.md 7.1 "Implied").
    pub fn implies_pods(&self) -> bool {
        let listed = || JobKind::ALL.into_iter().filter(|kind| self.lists(*kind));
        let suspends = |kind: JobKind| kind.integration().suspends_pods;
        let declared = self.declared.iter().any(|kind| kind.suspend.gates_pods);
        (declared || listed().any(suspends)) && !listed().any(|kind| kind.integration().of_pods)
    }

    /// The job kinds that are served, in the order of the frameworks' names: those that are listed or declared, and those that these imply.
    /// Declared ones are served once they have been made known (`sluice_jobs::declare`).
    pub fn job_kinds(&self) -> Vec<JobKind> {
        let implied = self.implies_pods();
        let served = |kind: &JobKind| self.lists(*kind) || implied && kind.integration().of_pods;
        JobKind::all().iter().copied().filter(served).collect()
    }
}

/// `integrations.podOptions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodOptions {
    /// Labels of their namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Their own labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
}

impl PodOptions {
    /// Whether they say nothing.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `multiKueue`. Not built: only its defaults are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueue {
    /// Time between garbage collections; zero switches them off.
    pub gc_interval: Duration,
    /// Label value that names this manager on its workers.
    pub origin: String,
    /// Time until the workloads of a lost worker are requeued.
    pub worker_lost_timeout: Duration,
    /// The controller that selects worker clusters.
    pub dispatcher_name: String,
    /// Clusters per step of the incremental dispatcher; `None` with other dispatchers.
    #[serde(skip)]
    pub incremental_step_size: Option<i32>,
    /// Kinds that the generic adapter serves, as `Kind.version.group`.
    #[serde(skip)]
    pub external_frameworks: Vec<String>,
    /// Whether access providers of ClusterProfiles are given.
    #[serde(skip)]
    pub access_providers: bool,
}

/// `fairSharing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// The rules that a preemption must satisfy, in order.
    pub preemption_strategies: Vec<PreemptionStrategy>,
}

/// A rule of preemption under fair sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum PreemptionStrategy {
    /// The preemptor's share with the workload is at most the victim's without its workload.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share with the workload is less than the victim's now.
    LessThanInitialShare,
}

/// `admissionFairSharing`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharing {
    /// Time after which usage counts half; with zero, past usage does not count.
    pub usage_half_life_time: Duration,
    /// Time between samples of usage.
    pub usage_sampling_interval: Duration,
    /// Weight of each resource; 1 for those that are not named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_weights: BTreeMap<String, f64>,
}

/// `resources`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Resources whose names begin with one of these are not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_resource_prefixes: Vec<String>,
    /// What happens to resources that a ClusterQueue does not declare.
    pub quota_check_strategy: QuotaCheckStrategy,
    /// Resources that are replaced by or counted as others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transformations: Vec<Transformation>,
}

/// What happens to requests for resources that a ClusterQueue does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum QuotaCheckStrategy {
    /// The workload does not fit.
    #[default]
    BlockUndeclared,
    /// They are not counted.
    IgnoreUndeclared,
}

/// One entry of `resources.transformations`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transformation {
    /// The resource that a pod asks for.
    pub input: String,
    /// Whether it is counted as well.
    pub strategy: TransformationStrategy,
    /// Resource whose requested amount multiplies the input's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiply_by: Option<String>,
    /// Quantities per unit of the input, canonical.
    #[serde(serialize_with = "super::written::quantities")]
    pub outputs: BTreeMap<String, sluice_quantity::Quantity>,
}

/// Whether the input of a transformation is counted as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum TransformationStrategy {
    /// Input and outputs are counted.
    #[default]
    Retain,
    /// Only outputs are counted.
    Replace,
}

/// `objectRetentionPolicies`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRetentionPolicies {
    /// Workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadRetentionPolicy>,
}

/// `objectRetentionPolicies.workloads`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRetentionPolicy {
    /// Age at which a finished Workload is deleted; absent: never, zero: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_finished: Option<Duration>,
    /// Age at which the job of a deactivated Workload is deleted; absent: never, zero: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_deactivated_by_kueue: Option<Duration>,
}

/// `provisioningRequests`: a section of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequests {
    /// Pods also get the older pair of annotations (`cluster-autoscaler.kubernetes.io/…`), for autoscalers that read only
    /// those.
    pub old_pod_annotations: bool,
}

impl ProvisioningRequests {
    /// Whether nothing is set.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `visibilityServer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VisibilityServer {
    /// Address.
    pub bind_address: String,
    /// Port.
    pub bind_port: u16,
}
