//! Labels, annotations, finalizers, gates, taints and fixed names of Kueue's contract (docs/reference/04-labels-annotations.md).

/// Prefix of every key that Kueue owns.
pub const PREFIX: &str = "kueue.x-k8s.io/";

// ---- Labels (docs/reference/04-labels-annotations.md 4.1) ----

/// LocalQueue of a job or pod; the annotation of the same key is a fallback that is still read.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// WorkloadPriorityClass of a job or pod.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// Name of an already existing Workload (label, or annotation for names above 63 characters).
pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// Maximum execution time of a job in seconds, an integer above 0.
pub const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// UID of the job that owns a Workload.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// `"true"` on pods, PodTemplates and ProvisioningRequests that Kueue manages; also the finalizer of managed pods.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Pod set of a pod.
pub const POD_SET: &str = "kueue.x-k8s.io/podset";
/// LocalQueue of a started pod (gate AssignQueueLabelsForPods).
pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
/// ClusterQueue of a started pod (gate AssignQueueLabelsForPods), only when it is a legal label value.
pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
/// Pod group of a pod (label or annotation).
pub const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// Index of a pod in its group.
pub const POD_GROUP_POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
/// The manager cluster that a remote Workload or job comes from.
pub const MULTIKUEUE_ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// `"true"` on the pods of remote workloads on a worker cluster.
pub const MULTIKUEUE_WORKER_WORKLOAD_POD: &str = "kueue.x-k8s.io/multikueue-worker-workload-pod";
/// `"true"` on the parent Workload of a concurrent admission.
pub const CONCURRENT_ADMISSION_PARENT: &str = "kueue.x-k8s.io/concurrent-admission-parent";
/// `"true"` on LocalQueues that upstream's experimental populator wrote.
pub const AUTO_GENERATED: &str = "kueue.x-k8s.io/auto-generated";

// ---- Annotations (docs/reference/04-labels-annotations.md 4.2) ----

/// Comma-separated admission gates; while non-empty the workload is not admissible.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// `"true"` on jobs that use workload slices.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// Name of the Workload that owns a pod.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// Name of the first slice of a chain of workload slices.
pub const WORKLOAD_SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
/// `namespace/name` of the slice that a Workload replaces.
pub const WORKLOAD_SLICE_REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// Signed integer added to a Workload's priority (gate PriorityBoost).
pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
/// Flavors that a variant of a concurrent admission may use.
pub const WORKLOAD_ALLOWED_RESOURCE_FLAVORS: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";
/// True owner of a Workload with several owners, as `group/version, Kind=K`.
pub const JOB_OWNER_GVK: &str = "kueue.x-k8s.io/job-owner-gvk";
/// Name of the true owner of a Workload with several owners.
pub const JOB_OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";
/// Group index of a LeaderWorkerSet's Workload.
pub const COMPONENT_WORKLOAD_INDEX: &str = "kueue.x-k8s.io/component-workload-index";
/// `"true"` lets failure recovery delete a stuck pod by force.
pub const SAFE_TO_FORCEFULLY_DELETE: &str = "kueue.x-k8s.io/safe-to-forcefully-delete";
/// UID of the manager-side object of a remote LeaderWorkerSet or StatefulSet.
pub const MULTIKUEUE_ORIGIN_UID: &str = "kueue.x-k8s.io/multikueue-origin-uid";
/// Topology level in which a pod set must be placed.
pub const POD_SET_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
/// Topology level in which a pod set should be placed.
pub const POD_SET_PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// `"true"` asks for topology-aware placement without a constraint.
pub const POD_SET_UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// Topology level of one slice of a pod set.
pub const POD_SET_SLICE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// Pods per slice of a pod set.
pub const POD_SET_SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// JSON list of up to three `{topology, size}` layers.
pub const POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: &str =
    "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// Pod sets of one group are placed together (leader and workers).
pub const POD_SET_GROUP_NAME: &str = "kueue.x-k8s.io/podset-group-name";
/// Subtracted from a pod's index to get its rank.
pub const POD_INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
/// Name of the label that holds a pod's index in its group.
pub const POD_GROUP_POD_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// Number of pods of a group, an integer of at least 1, equal on all of them.
pub const POD_GROUP_TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// `"true"` admits a group as soon as its first pod exists.
pub const POD_GROUP_FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// `"true"` on groups that never finish.
pub const POD_GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// Role (pod set) of a pod in its group.
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// `"false"` makes the whole group finish when no pod of it is active.
pub const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
/// `"true"` on Workloads that the pod-group framework created.
pub const IS_GROUP_WORKLOAD: &str = "kueue.x-k8s.io/is-group-workload";
/// Framework that suspends a pod through its parent.
pub const POD_SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Least parallelism that a batch Job accepts (partial admission).
pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// `"true"` keeps a batch Job's completions equal to its parallelism.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
/// `"true"` while the several patches that stop a batch Job are under way.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// JSON of autoscaled pod set counts of a RayJob or RayService.
pub const RAYCLUSTER_POD_SET_REPLICA_SIZES: &str = "kueue.x-k8s.io/raycluster-podset-replica-sizes";
/// Generation of a RayJob's or RayService's RayCluster.
pub const RAYCLUSTER_GENERATION: &str = "kueue.x-k8s.io/raycluster-generation";
/// Prefix of annotations that become parameters of a ProvisioningRequest.
pub const PROVISIONING_REQUEST_PREFIX: &str = "provreq.kueue.x-k8s.io/";
/// ProvisioningRequest that a pod consumes.
pub const CONSUME_PROVISIONING_REQUEST: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Provisioning class of the ProvisioningRequest that a pod consumes.
pub const PROVISIONING_CLASS_NAME: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// JobSet that a Job or a pod is part of.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";

/// Node affinity that the pods of a JobSet get when they are made, as JSON (ours: the affinity in a JobSet's templates cannot change).
pub const NODE_AFFINITY: &str = "sluice.dev/node-affinity";
/// On a job that was stopped and whose pods kept running: when it was touched (ours: that is an event for its controller).
pub const STOP_REPEATED: &str = "sluice.dev/stop-repeated";
/// On a job of a declared kind: what its user lets it run with, as JSON, if that is not the declared value of the field that suspends it (ours: a
/// start writes it, which would otherwise write the declared value).
pub const RUNNING_VALUE: &str = "sluice.dev/running-value";
/// Annotation of an event of a Workload: the trace of the attempt to admit it, 32 hexadecimal digits (ours: if traces are sent).
pub const TRACE_ID: &str = "sluice.dev/trace-id";

// ---- Finalizers, gates, taints (docs/reference/04-labels-annotations.md 4.3 and 4.4) ----

/// Finalizer of ClusterQueue, ResourceFlavor, AdmissionCheck, Topology and Workload.
pub const RESOURCE_IN_USE_FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
/// Finalizer of pods of the plain pod integration.
pub const MANAGED_FINALIZER: &str = "kueue.x-k8s.io/managed";
/// Scheduling gate of pods that wait for admission.
pub const ADMISSION_SCHEDULING_GATE: &str = "kueue.x-k8s.io/admission";
/// Scheduling gate of pods that wait for their topology assignment.
pub const TOPOLOGY_SCHEDULING_GATE: &str = "kueue.x-k8s.io/topology";
/// Scheduling gate of pods of elastic jobs.
pub const ELASTIC_JOB_SCHEDULING_GATE: &str = "kueue.x-k8s.io/elastic-job";
/// Preemption gate that MultiKueue sets on a Workload.
pub const MULTIKUEUE_PREEMPTION_GATE: &str = "kueue.x-k8s.io/multikueue";
/// Preemption gate of concurrent admission.
pub const CONCURRENT_ADMISSION_PREEMPTION_GATE: &str = "kueue.x-k8s.io/concurrent-admission";
/// Taint of a node that the control plane cannot reach.
pub const NODE_UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";
/// Taint of a node that is not ready.
pub const NODE_NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";

// ---- Controllers and other identifiers (docs/reference/04-labels-annotations.md 4.5) ----

/// `controllerName` of AdmissionChecks that MultiKueue serves; also `managedBy` of jobs that run remotely.
pub const MULTIKUEUE_CONTROLLER_NAME: &str = "kueue.x-k8s.io/multikueue";
/// `controllerName` of AdmissionChecks that make ProvisioningRequests.
pub const PROVISIONING_REQUEST_CONTROLLER_NAME: &str = "kueue.x-k8s.io/provisioning-request";
/// MultiKueue dispatcher that nominates all worker clusters at once.
pub const DISPATCHER_ALL_AT_ONCE: &str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
/// MultiKueue dispatcher that nominates worker clusters step by step.
pub const DISPATCHER_INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
/// Runtime patch manager of TrainJobs.
pub const TRAIN_JOB_PATCH_MANAGER: &str = "kueue.x-k8s.io/manager";
/// v1beta1 `priorityClassSource` of a WorkloadPriorityClass.
pub const WORKLOAD_PRIORITY_CLASS_SOURCE: &str = "kueue.x-k8s.io/workloadpriorityclass";
/// v1beta1 `priorityClassSource` of a PriorityClass.
pub const POD_PRIORITY_CLASS_SOURCE: &str = "scheduling.k8s.io/priorityclass";
/// Value of a custom metric label whose source value is not tracked.
pub const UNTRACKED_VALUE: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";
/// Key of a MultiKueueCluster's Secret.
pub const KUBECONFIG_SECRET_KEY: &str = "kubeconfig";
/// Folder below which kubeconfigs of MultiKueueClusters must lie.
pub const KUBECONFIG_PATH_PREFIX: &str = "/etc/multikueue/kubeconfigs";
/// Lease of the leader.
pub const LEADER_LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
/// Default pod set name.
pub const DEFAULT_POD_SET_NAME: &str = "main";
/// Name of the LocalQueue that jobs without a queue name get where it exists.
pub const DEFAULT_LOCAL_QUEUE: &str = "default";
/// Name of the WorkloadPriorityClass that jobs without one get where it exists.
pub const DEFAULT_WORKLOAD_PRIORITY_CLASS: &str = "default";
/// Label that every namespace carries with its own name.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";
