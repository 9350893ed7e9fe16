//! A cluster as Kueue leaves it: its definitions, its manager's objects, and what users made in v1beta1.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// The Deployment, configuration, webhooks and aggregated API that belong to the manager.
pub const MANAGER: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: kueue-controller-manager, namespace: kueue-system}
spec:
  replicas: 1
  selector: {matchLabels: {control-plane: controller-manager}}
  template:
    metadata: {labels: {control-plane: controller-manager}}
    spec:
      containers:
      - name: manager
        image: registry.example/kueue:v0.14.4
        command: [/manager]
        args: [--config=/controller_manager_config.yaml, --zap-log-level=2]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kueue-manager-config, namespace: kueue-system}
data:
  controller_manager_config.yaml: |
    apiVersion: config.kueue.x-k8s.io/v1beta1
    kind: Configuration
    health: {healthProbeBindAddress: ':8081'}
    metrics: {bindAddress: ':8443'}
    webhook: {port: 9443}
    leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
    controller:
      groupKindConcurrency: {Job.batch: 5, Pod: 5}
    clientConnection: {qps: 50, burst: 100}
    integrations:
      frameworks: [batch/job, example.com/other, jobset.x-k8s.io/jobset]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: c1f6bfd2.kueue.x-k8s.io, namespace: kueue-system}
spec: {holderIdentity: kueue-controller-manager-0_1, leaseDurationSeconds: 15}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
- name: mother.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {name: kueue-webhook-service, namespace: kueue-system, path: /mutate-example-com-v1-other}}
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [others]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.visibility.kueue.x-k8s.io}
spec:
  group: visibility.kueue.x-k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: kueue-visibility-server, namespace: kueue-system}
";

/// What users and Kueue made.
pub const OBJECTS: &str = r"
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: racks}
spec: {topologyName: dc, nodeLabels: {pool: a}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: dc}
spec: {levels: [{nodeLabel: rack}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: remote}
spec: {controllerName: kueue.x-k8s.io/multikueue, retryDelayMinutes: 15}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: team}
spec: {parentName: all}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cq}
spec:
  cohort: team
  namespaceSelector: {}
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: TryNextFlavor}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: plain
      resources: [{name: cpu, nominalQuota: 10, borrowingLimit: 5}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
";

/// One of many Workloads.
pub fn workload(n: u32) -> String {
    format!(
        r"
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {{name: w{n}, namespace: default}}
spec:
  queueName: lq
  priority: 100
  priorityClassName: high
  priorityClassSource: kueue.x-k8s.io/workloadpriorityclass
  podSets:
  - name: main
    count: 2
    template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}
---"
    )
}

/// The definitions as another release of Kueue has them: with this version stored, and v1beta2 not even known if `alone`.
pub fn definitions(stored: &str, alone: bool) -> Vec<CustomResourceDefinition> {
    let mut crds = sluice_api::crds();
    for crd in &mut crds {
        for version in &mut crd.spec.versions {
            version.storage = version.name == stored;
        }
        if alone {
            crd.spec.versions.retain(|version| version.name == stored);
            crd.spec.conversion = None;
        }
    }
    crds
}
