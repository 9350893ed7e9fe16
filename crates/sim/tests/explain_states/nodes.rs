//! Jobs whose nodes fail: why a job was not moved, and that it runs well again after the advised action.

use super::waiting::{finding, played, scenario, wait};
use super::*;
use sluice_sim::live::asks_for_room;
use sluice_sim::{Manifest, Source};

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

/// `nodes` nodes, of which the first fails after 20 s; before that, the queue is changed so.
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
    let mut own = simulation.objects(Kind::Workload).filter(|(of, _)| of.name.starts_with("jobset-mine-"));
    let (reference, workload) = own.next().unwrap();
    let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    let explained = reported(workload.clone(), &account);
    (explained.state, codes(&explained))
}

/// The nodes that the pods are on which continue.
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
    assert_eq!(finding(&explained, Code::NodesLost), format!("it lost 1 node(s)\nit was not moved: {why}"));
    // The nodes of a flavor without node labels are not known.
    assert_eq!(now(&simulation), (State::Admitted, vec![Code::NodesLost, Code::PodsNotReady]));
    if why == NO_ROOM {
        let said = finding(&explained, Code::CapacityShort);
        let first = "the other healthy nodes of flavor default have no room for 1 of its pods that are on nodes that failed\n";
        // Nodes are not named to one who may not list them.
        assert!(
            said.starts_with(first)
                && said.ends_with("\nflavor default has 2 node(s); 1 not ready")
                && !said.contains("n0"),
            "{said}"
        );
    }
    (explained, simulation)
}

const NO_ROOM: &str =
    "no healthy nodes are free for it, even if all workloads of lower priority were evicted";
const REPAIR: &str = "repair the nodes, or add others on which its pods fit";

/// Work that left a failed node, and whose other place is gone before its pods are: it waits, and continues when that place comes back.
fn displaced(more: &[Value]) -> String {
    displaced_by(&json!({"departNodes": {"names": ["n2"]}}), more)
}

/// The same, where this event takes the other place.
fn displaced_by(event: &Value, more: &[Value]) -> String {
    let mut event = event.clone();
    event["at"] = json!("90s");
    let events: Vec<Value> = [&[event], more].concat();
    let slow = scenario(&json!({"podTermination": "60s"}));
    [world(3, None, &events), slow].concat()
}

/// What a manager says of the Workload now to one who may list nodes: with the nodes and bound pods if `room`, and as the one that leads if `decides`.
fn manager(simulation: &Simulation, seconds: i64, (room, decides): (bool, bool)) -> (Explained, bool) {
    let mut manifests = Manifests::default();
    let kinds = [Kind::Namespace, Kind::ResourceFlavor, Kind::ClusterQueue, Kind::LocalQueue, Kind::Workload];
    let jobs = sluice_api::job::JobKind::jobs().map(Kind::Job);
    let kinds =
        kinds.into_iter().chain(jobs).chain(room.then_some([Kind::Node, Kind::Pod]).into_iter().flatten());
    for kind in kinds {
        let objects = simulation.objects(kind).map(|(_, object)| object.clone());
        let named = |object| Manifest { source: Source::default(), kind, object };
        manifests.objects.extend(objects.map(named));
    }
    let (reference, workload) = simulation.objects(Kind::Workload).next().unwrap();
    let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    let asks = asks_for_room(Some(workload), Some(&account));
    manifests.subject = Some(Subject { workload: Some(workload.clone()), ..Subject::default() });
    let mut options = options();
    options.start = options.start.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    let account = if decides { account } else { Account { decision: None, fits: Vec::new(), ..account } };
    let (at, live) = (SignedDuration::ZERO, Some(&account));
    let question = question(&manifests, "mine");
    let explained = Question { options, at, live, decides, names_nodes: true, ..question }.answer().unwrap();
    (explained, asks)
}

const REFUSED: &str = "the manager refuses it (WaitingForCapacity); this cannot be simulated";

#[test]
pub fn displaced_work_that_waits_for_nodes_says_which_how_many_and_since_when() {
    let back = json!({"at": "300s", "recoverNodes": {"names": ["n2"]}});
    let (played, mut simulation) = played(&displaced(&[back]), &options(), 150);
    assert_eq!(played.state, State::Waiting, "{}", played.text());
    // The leader, with the nodes: the virtual cluster refuses it, too.
    let (explained, asks) = manager(&simulation, 150, (true, true));
    let text = explained.text();
    assert!(asks, "{text}");
    assert!(
        !text.contains("nothing that is known keeps it from starting") && !text.contains(REFUSED),
        "{text}"
    );
    let said = finding(&explained, Code::CapacityShort);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[0],
        "the healthy nodes of flavor default have no room for 1 of the 2 pod(s) of pod set workers"
    );
    assert_eq!(lines[1], "cpu: 8 needed, 4 free, 4 more needed");
    assert!(lines[2].starts_with("it lost its nodes at 2026-01-05T00:00:5"), "{said}");
    assert!(
        lines[3].starts_with("flavor default has 3 node(s); ") && lines[3].contains("not ready: n0"),
        "{said}"
    );
    let repair = "repair the nodes of flavor default or make those schedulable again that are cordoned, or add nodes with its \
                  labels (pool=gpu)";
    assert_eq!(carried_out(&explained, "repair the nodes of flavor default").text, repair);
    // A replica that does not lead finds the same.
    let (other, _) = manager(&simulation, 150, (true, false));
    assert_eq!(finding(&other, Code::CapacityShort), said);
    wait(&mut simulation, 300);
    assert_eq!(
        (now(&simulation), on(&simulation)),
        ((State::Admitted, vec![]), vec!["n1".to_owned(), "n2".to_owned()])
    );
}

#[test]
pub fn displaced_work_runs_on_a_node_that_is_made_schedulable_again_or_added() {
    let repair = "or make those schedulable again that are cordoned, or add nodes with its labels (pool=gpu)";
    let cordoned = |is: &Value| json!({"spec": {"unschedulable": is}});
    let cordon = json!({"patch": {"kind": "Node", "name": "n2", "merge": cordoned(&json!(true))}});
    let depart = json!({"departNodes": {"names": ["n2"]}});
    for (event, says, other) in [(cordon, "; 1 cordoned: n2", "n2"), (depart, "; 1 not ready: n0", "n3")] {
        let (_, mut simulation) = played(&displaced_by(&event, &[]), &options(), 150);
        let (explained, _) = manager(&simulation, 150, (true, true));
        let said = finding(&explained, Code::CapacityShort);
        assert!(said.contains(says), "{said}");
        carried_out(&explained, repair);
        if other == "n2" {
            simulation.patch("Node", None, "n2", &cordoned(&Value::Null)).unwrap();
        } else {
            simulation.apply(&read(&node(other)).objects[0]).unwrap();
        }
        wait(&mut simulation, 150);
        assert_eq!(now(&simulation), (State::Admitted, vec![]), "{said}");
        assert_eq!(on(&simulation), ["n1", other], "{said}");
    }
}

/// Where the virtual cluster knows less than the manager, what the manager decided is the answer.
#[test]
pub fn what_the_manager_refuses_is_never_said_to_have_nothing_in_its_way() {
    let (_, simulation) = played(&displaced(&[]), &options(), 150);
    let (leader, _) = manager(&simulation, 150, (false, true));
    let text = leader.text();
    assert_eq!(leader.no_forecast.as_deref(), Some(REFUSED), "{text}");
    assert!(
        codes(&leader).contains(&Code::CapacityShort) && !codes(&leader).contains(&Code::Refused),
        "{text}"
    );
    remedy(&leader, "repair the nodes of flavor default");
    // Of one that does not lead only the written condition is known.
    let (other, _) = manager(&simulation, 150, (false, false));
    assert_eq!(other.no_forecast.as_deref(), Some(REFUSED), "{}", other.text());
    let said = finding(&other, Code::Refused);
    assert!(
        said.starts_with(
            "the manager refuses it (WaitingForCapacity): couldn't assign flavors to pod set workers"
        ),
        "{said}"
    );
    remedy(&other, "wait until the manager has tried it again");
}

#[test]
pub fn work_that_lost_a_node_moves_when_other_work_on_the_others_has_ended() {
    let other = JOB
        .replace("name: mine", "name: other")
        .replace("\"3600\"}", "\"100\", sluice.dev/submit-after-seconds: \"5\"}")
        .replace("parallelism: 4\n  completions: 4", "parallelism: 1\n  completions: 1")
        .replace("cpu: 1", "cpu: 4");
    let world = [world(3, None, &[]).replace("nominalQuota: 10", "nominalQuota: 12"), other].concat();
    let (explained, mut simulation) = played(&world, &options(), 70);
    assert_eq!(
        finding(&explained, Code::NodesLost),
        format!("it lost 1 node(s)\nit was not moved: {NO_ROOM}")
    );
    finding(&explained, Code::CapacityShort);
    carried_out(&explained, "wait until other workloads on these nodes have ended");
    assert_eq!(now(&simulation).1, [Code::NodesLost, Code::PodsNotReady]);
    wait(&mut simulation, 240);
    assert_eq!(now(&simulation), (State::Admitted, vec![]));
    assert!(on(&simulation).contains(&"n2".to_owned()), "{:?}", on(&simulation));
}

#[test]
pub fn work_that_lost_a_node_moves_to_the_one_that_is_added() {
    let (explained, mut simulation) = lost(&world(2, None, &[]), NO_ROOM);
    for manifest in &read(&node("n2")).objects {
        carried_out(&explained, REPAIR);
        simulation.apply(manifest).unwrap();
    }
    wait(&mut simulation, 120);
    assert_eq!(now(&simulation), (State::Admitted, vec![]));
    assert_eq!((runs(&simulation), on(&simulation)), (true, vec!["n1".to_owned(), "n2".to_owned()]));
}

#[test]
pub fn work_that_lost_a_node_runs_on_it_again_when_it_is_repaired() {
    let repaired = json!({"at": "100s", "recoverNodes": {"names": ["n0"]}});
    let (explained, mut simulation) = lost(&world(2, None, &[repaired]), NO_ROOM);
    carried_out(&explained, REPAIR);
    wait(&mut simulation, 120);
    assert_eq!(now(&simulation), (State::Admitted, vec![]));
    assert_eq!((runs(&simulation), on(&simulation)), (true, vec!["n0".to_owned(), "n1".to_owned()]));
}

#[test]
pub fn work_whose_queue_would_not_take_it_back_moves_when_the_queue_would() {
    let quota = |cpu: i64| {
        let resources = json!([{"name": "cpu", "nominalQuota": cpu}]);
        json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": resources}]}]}})
    };
    let stop = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    let out_of_quota = "its ClusterQueue no longer has quota for it";
    for (before, why, end) in [
        (quota(4), out_of_quota, Act::Change(out_of_quota, ("ClusterQueue", "", "cq"), quota(8))),
        (stop("Hold"), "ClusterQueue cq is inactive", Act::Follow("resume the ClusterQueue cq")),
    ] {
        let said = format!("it could not be admitted again: {why}");
        let (explained, mut simulation) = lost(&world(3, Some(before), &[]), &said);
        carried_out(
            &explained,
            &format!("make its ClusterQueue able to admit it, so that it can move: {why}"),
        );
        act(&mut simulation, &explained, &end);
        assert_eq!(now(&simulation), (State::Admitted, vec![]), "{why}");
        assert_eq!(on(&simulation), ["n1", "n2"], "{why}");
    }
}
