//! Work whose nodes fail: why it was not moved, and that it runs well again after what the answer advises.

use super::waiting::{finding, played, scenario, wait};
use super::*;

const FLAVOR_OF_NODES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
spec: {nodeLabels: {pool: gpu}}
---
";

/// Two pods, each of which takes a whole node.
const SET: &str = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: mine
  namespace: a
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: {sluice.dev/run-seconds: \"36000\"}
spec:
  suspend: true
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            restartPolicy: Never
            containers: [{name: c, image: i, resources: {requests: {cpu: 4}}}]
---
";

fn node(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{pool: gpu, kubernetes.io/hostname: {name}}}}}\n\
         status: {{allocatable: {{cpu: 4, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}\n---\n"
    )
}

/// So many nodes, of which the first fails after 20 s; before that, the queue is changed so.
fn world(nodes: usize, change: Option<Value>, more: &[Value]) -> String {
    let queue = CLUSTER_QUEUE.replace(
        "namespaceSelector: {}",
        "namespaceSelector: {}\n  preemption: {reclaimOutOfCohort: {enable: true}}",
    );
    let nodes: String = (0..nodes).map(|number| node(&format!("n{number}"))).collect();
    let change = change
        .map(|merge| json!({"at": "15s", "patch": {"kind": "ClusterQueue", "name": "cq", "merge": merge}}));
    let fails = json!({"at": "20s", "failNodes": {"names": ["n0"]}});
    let events: Vec<&Value> = change.iter().chain([&fails]).chain(more).collect();
    [FLAVOR_OF_NODES, &queue, LOCAL_QUEUE, &nodes, SET, &scenario(&json!({"events": events}))].concat()
}

/// What is known of the Workload now.
fn now(simulation: &Simulation) -> (State, Vec<Code>) {
    let (reference, workload) = simulation.objects(Kind::Workload).next().unwrap();
    let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    let explained = told(workload.clone(), &account);
    (explained.state, codes(&explained))
}

/// The nodes that the pods are on which go on.
fn on(simulation: &Simulation) -> Vec<String> {
    let stays = |(_, pod): &(_, &Value)| pod["metadata"]["deletionTimestamp"].is_null();
    let pods = simulation.objects(Kind::Pod).filter(stays);
    let mut nodes: Vec<String> =
        pods.map(|(_, pod)| pod["spec"]["nodeName"].as_str().unwrap().to_owned()).collect();
    nodes.sort();
    nodes
}

/// Its node fails, nothing is done, and the answer says why.
fn lost(world: &str, why: &str) -> (Explained, Simulation) {
    let (explained, simulation) = played(world, &options(), 70);
    assert_eq!(explained.state, State::Admitted, "{}", explained.text());
    assert_eq!(
        finding(&explained, Code::NodesLost),
        format!("it lost 1 node(s): n0\nit was not moved: {why}")
    );
    assert_eq!(now(&simulation), (State::Admitted, vec![Code::NodesLost, Code::PodsNotReady]));
    (explained, simulation)
}

const NO_ROOM: &str = "no healthy nodes are free for it, nor would be without workloads of lower priority";
const REPAIR: &str = "repair the nodes, or add others on which its pods fit";

#[test]
fn work_that_lost_a_node_moves_to_the_one_that_is_added() {
    let (explained, mut simulation) = lost(&world(2, None, &[]), NO_ROOM);
    for manifest in &read(&node("n2")).objects {
        remedy(&explained, REPAIR);
        simulation.apply(manifest).unwrap();
    }
    wait(&mut simulation, 120);
    assert_eq!(now(&simulation), (State::Admitted, vec![]));
    assert_eq!((runs(&simulation), on(&simulation)), (true, vec!["n1".to_owned(), "n2".to_owned()]));
}

#[test]
fn work_that_lost_a_node_runs_on_it_again_when_it_is_repaired() {
    let repaired = json!({"at": "100s", "recoverNodes": {"names": ["n0"]}});
    let (explained, mut simulation) = lost(&world(2, None, &[repaired]), NO_ROOM);
    remedy(&explained, REPAIR);
    wait(&mut simulation, 120);
    assert_eq!(now(&simulation), (State::Admitted, vec![]));
    assert_eq!((runs(&simulation), on(&simulation)), (true, vec!["n0".to_owned(), "n1".to_owned()]));
}

#[test]
fn work_whose_queue_would_not_take_it_back_moves_when_the_queue_would() {
    let quota = |cpu: i64| {
        let resources = json!([{"name": "cpu", "nominalQuota": cpu}]);
        json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": resources}]}]}})
    };
    let stop = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    let out_of_quota = "its ClusterQueue has no longer quota for it";
    for (before, why, end) in [
        (quota(4), out_of_quota, Act::Change(out_of_quota, ("ClusterQueue", "", "cq"), quota(8))),
        (stop("Hold"), "ClusterQueue cq is inactive", Act::Follow("resume the ClusterQueue cq")),
    ] {
        let said = format!("it could not be admitted again: {why}");
        let (explained, mut simulation) = lost(&world(3, Some(before), &[]), &said);
        remedy(&explained, &format!("let its ClusterQueue take it again, so that it can move: {why}"));
        act(&mut simulation, &explained, &end);
        assert_eq!(now(&simulation), (State::Admitted, vec![]), "{why}");
        assert_eq!(on(&simulation), ["n1", "n2"], "{why}");
    }
}
