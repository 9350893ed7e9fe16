//! A world of one queue, for the tests of explanations and of starts.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use sluice_sim::explain::{Patience, Question};
use sluice_sim::{File, Manifests, Options};

/// A queue of ten processors in which lower priorities are preempted.
pub const WORLD: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: a}
spec: {clusterQueue: cq}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
";

/// A Job of the queue; `more` are its annotations.
pub fn job(name: &str, pods: u32, more: &str) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  namespace: a\n  labels: {{kueue.x-k8s.io/queue-name: main}}\n  \
         annotations: {{{more}}}\nspec:\n  parallelism: {pods}\n  completions: {pods}\n  template:\n    spec:\n      restartPolicy: Never\n      \
         containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]\n"
    )
}

/// Asks about a job of namespace `a`, that many seconds from the beginning.
pub fn question<'a>(manifests: &'a Manifests, options: Options, seconds: i64, name: &'a str) -> Question<'a> {
    static NO_FILES: BTreeMap<String, String> = BTreeMap::new();
    Question {
        manifests,
        files: &NO_FILES,
        options,
        at: SignedDuration::from_secs(seconds),
        namespace: "a",
        kind: None,
        name,
        all_namespaces: false,
        names_nodes: false,
        names_queues: true,
        live: None,
        decides: false,
        patience: Patience::ENDLESS,
    }
}

/// Reads a world.
pub fn read(text: &str) -> Manifests {
    let file = File { name: "world".to_owned(), text: text.to_owned(), named: true };
    Manifests::read(&[file]).unwrap()
}
