//! What the webhooks of jobs or the API server refuse is not advised, and a scenario does not do it.

use super::flavors::TAINTED;
use super::waiting::{finding, later, played, scenario};
use super::*;

/// A Job of ten pods that says this of their number, beside one that leaves room for three.
fn short(annotation: &str) -> String {
    let pods = "parallelism: 4\n  completions: 4";
    let first = JOB.replace("name: mine", "name: first").replace(pods, "parallelism: 7\n  completions: 7");
    let mine = later(JOB, "")
        .replace("annotations: {", &format!("annotations: {{{annotation}, "))
        .replace(pods, "completionMode: Indexed\n  parallelism: 10\n  completions: 10");
    [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &first, &mine].concat()
}

const AT_LEAST_FOUR: &str = "kueue.x-k8s.io/job-min-parallelism: \"4\"";

fn spec_of_mine(simulation: &Simulation) -> Value {
    asked_about(simulation, "mine").0.job.unwrap()["spec"].clone()
}

#[test]
fn fewer_pods_are_offered_with_all_that_must_change_with_their_number() {
    let follows = "kueue.x-k8s.io/job-completions-equal-parallelism: \"true\"";
    for (annotation, completions, says) in [
        (AT_LEAST_FOUR, 10, ", without the annotation kueue.x-k8s.io/job-min-parallelism"),
        (follows, 3, ", completions 3"),
        ("example.com/note: x", 10, ""),
    ] {
        let (explained, mut simulation) = played(&short(annotation), &options(), 20);
        assert!(!runs(&simulation), "{}", explained.text());
        let fewer = remedy(&explained, "starts now with parallelism");
        assert_eq!(fewer.text, format!("starts now with parallelism 3{says}"));
        act(&mut simulation, &explained, &Act::Follow("starts now with parallelism 3"));
        assert!(runs(&simulation), "{}", explained.text());
        let spec = spec_of_mine(&simulation);
        assert_eq!((&spec["parallelism"], &spec["completions"]), (&json!(3), &json!(completions)));
    }
}

#[test]
fn a_patch_of_a_scenario_that_the_webhooks_refuse_changes_nothing() {
    let fewer =
        json!({"kind": "Job", "namespace": "a", "name": "mine", "merge": {"spec": {"parallelism": 3}}});
    let fewer = scenario(&json!({"events": [{"at": "15s", "patch": fewer}]}));
    let (_, simulation) = played(&[short(AT_LEAST_FOUR), fewer].concat(), &options(), 20);
    let said: Vec<String> =
        simulation.record().entries.iter().map(|entry| format!("{:?}", entry.what)).collect();
    assert!(said.iter().any(|what| what.contains("should be between 1 and 2")), "{said:?}");
    assert_eq!(spec_of_mine(&simulation)["parallelism"], 10);
}

/// That nothing is offered about the nodes of what waits, and that the patch which would let it start is refused for this reason.
fn keeps_its_nodes(world: &str, kind: &str, patch: &Value, why: &str) {
    let (explained, mut simulation) = played(world, &options(), 20);
    finding(&explained, Code::FlavorMismatch);
    let offered = explained.remedies.iter().find(|remedy| remedy.text.contains("if flavor"));
    assert_eq!(offered, None, "{}", explained.text());
    let refused = simulation.patch(kind, Some("a"), "mine", patch).unwrap_err().to_string();
    assert!(refused.contains(why), "{refused}");
}

#[test]
fn nodes_of_pods_that_cannot_change_any_more_are_not_offered() {
    let tolerations = json!([{"key": "costly", "operator": "Exists"}]);
    keeps_its_nodes(
        &[TAINTED, CLUSTER_QUEUE, LOCAL_QUEUE, &stateful_set(2)].concat(),
        "StatefulSet",
        &json!({"spec": {"template": {"spec": {"tolerations": tolerations}}}}),
        "immutable, unless replicas is 0",
    );
    let pod = "
apiVersion: v1
kind: Pod
metadata: {name: mine, namespace: a, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  restartPolicy: Never
  tolerations: [{operator: Exists}]
  nodeSelector: {kind: reserved}
  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
";
    keeps_its_nodes(
        &[TAINTED, CLUSTER_QUEUE, LOCAL_QUEUE, pod].concat(),
        "Pod",
        &json!({"spec": {"nodeSelector": {"kind": null}}}),
        "spec.nodeSelector",
    );
}
