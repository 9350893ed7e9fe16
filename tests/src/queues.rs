//! The smallest world with admissions: one flavor, one ClusterQueue, one LocalQueue.

/// Manifests of the flavor `default`, the ClusterQueue `cq` with that many CPUs for every namespace, and the LocalQueue `lq` in `default`.
pub fn one(cpus: u32) -> String {
    format!(
        "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: default}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: cq}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default
      resources: [{{name: cpu, nominalQuota: {cpus}}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: lq, namespace: default}}
spec: {{clusterQueue: cq}}
"
    )
}
