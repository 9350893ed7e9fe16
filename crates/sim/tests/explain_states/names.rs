//! Which names are shown: ClusterQueues of other teams are named only to users who may list them.

use super::*;

/// A queue that lends to ours, whose job holds what it lent by its own right.
const SECRET: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: secret-team}
spec:
  cohortName: all
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: theirs, namespace: secret-namespace}
spec: {clusterQueue: secret-team}
---
";

fn said(world: &str, names_queues: bool) -> String {
    let manifests = read(world);
    let explained = Question { names_queues, ..question(&manifests, "mine") }.answer().unwrap();
    explained.text() + &explained.json()
}

#[test]
fn explanations_name_no_queue_of_another_team_to_a_user_who_may_not_list_them() {
    let shared = CLUSTER_QUEUE.replace(
        "namespaceSelector: {}",
        "cohortName: all\n  namespaceSelector: {}\n  preemption: {reclaimWithinCohort: Any}",
    );
    let theirs = JOB
        .replace("name: mine\n  namespace: a", "name: secret-job\n  namespace: secret-namespace")
        .replace("queue-name: main", "queue-name: theirs")
        .replace("parallelism: 4\n  completions: 4", "parallelism: 9\n  completions: 9");
    let large = JOB.replace("parallelism: 4\n  completions: 4", "parallelism: 12\n  completions: 12");
    let queues = [FLAVOR, &shared, SECRET, LOCAL_QUEUE].concat();
    let short = [&*queues, &theirs, &large].concat();
    let no_local = [&*queues, &JOB.replace("queue-name: main", "queue-name: none")].concat();
    let no_cluster = [
        &*queues,
        &LOCAL_QUEUE.replace("main", "lost").replace("clusterQueue: cq", "clusterQueue: gone"),
        &JOB.replace("queue-name: main", "queue-name: lost"),
    ]
    .concat();
    for (world, own) in
        [(&short, "ClusterQueue cq"), (&no_local, "-c cq"), (&no_cluster, "existing ClusterQueues: cq")]
    {
        let (team, admin) = (said(world, false), said(world, true));
        assert!(!team.contains("secret"), "{team}");
        assert!(team.contains(own), "{team}");
        assert!(admin.contains("secret-team"), "{admin}");
    }
    assert!(said(&short, false).contains("by another ClusterQueue)"), "{}", said(&short, false));
}
