//! More quota that would let a job start: of which of several flavors.

use super::amounts::{TOP, holder, job, later};
use super::*;

/// A queue of two flavors in this order, of four processors each. One of them is limited by a node, the other is not.
fn pools(flavors: [&str; 2]) -> String {
    let quota = |name: &str| format!("{{name: {name}, resources: [{{name: cpu, nominalQuota: 4}}]}}");
    let quotas = flavors.map(quota).join(", ");
    format!(
        "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: pool}}
spec: {{nodeLabels: {{pool: gpu}}}}
---
apiVersion: v1
kind: Node
metadata: {{name: n0, labels: {{pool: gpu, kubernetes.io/hostname: n0}}}}
status: {{allocatable: {{cpu: 4, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: cq}}
spec:
  namespaceSelector: {{}}
  preemption: {{withinClusterQueue: LowerPriority, reclaimOutOfCohort: {{enable: true}}}}
  resourceGroups: [{{coveredResources: [cpu], flavors: [{quotas}]}}]
---
"
    )
}

/// What an answer says about more quota.
fn more(explained: &Explained) -> Vec<&str> {
    let texts = explained.remedies.iter().map(|remedy| &*remedy.text);
    texts.filter(|text| text.starts_with("needs ")).collect()
}

#[test]
fn more_quota_of_a_flavor_is_advised_only_where_the_job_starts_with_it() {
    for flavors in [["default", "pool"], ["pool", "default"]] {
        let world = [FLAVOR, &pools(flavors), LOCAL_QUEUE, &job(6, "cpu: 1")].concat();
        let explained = ask(&read(&world), options());
        let default = "needs 2 more cpu of flavor default as nominal quota of ClusterQueue cq";
        assert_eq!(more(&explained), [default], "{flavors:?}: {}", explained.text());
    }
}

#[test]
fn more_quota_is_advised_where_more_of_the_first_flavor_is_in_vain_and_there_is_other_advice() {
    let second = later(3, "cpu: 1").replace("name: mine", "name: second").replace("\"3600\"", "\"900\"");
    let mine = later(4, "cpu: 1").replace("after-seconds: \"1\"", "after-seconds: \"2\"");
    let queues = [FLAVOR, &pools(["pool", "default"]), TOP, LOCAL_QUEUE].concat();
    let world = [&queues, &holder(4, "cpu: 1", 600), &second, &mine].map(String::as_str).concat();
    let explained = ask(&read(&world), options());
    let text = explained.text();
    let default = "needs 3 more cpu of flavor default as nominal quota of ClusterQueue cq";
    assert_eq!(more(&explained), [default], "{text}");
    for other in ["starts now with parallelism 1", "starts now with the WorkloadPriorityClass top"] {
        assert!(text.contains(other), "{text}");
    }
}
