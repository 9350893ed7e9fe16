//! One row for each state in which something can be tried.

use super::*;

pub(super) struct Row {
    pub what: &'static str,
    pub world: String,
    state: State,
    pub code: Code,
    says: &'static [&'static str],
    act: Act,
}

pub(super) fn row(
    what: &'static str,
    world: String,
    code: Code,
    says: &'static [&'static str],
    act: Act,
) -> Row {
    Row { what, world, state: State::Waiting, code, says, act }
}

/// A flavor whose nodes are given by topology, and one node of it.
pub(super) const HOSTS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: hosts}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
spec: {topologyName: hosts, nodeLabels: {pool: gpu}}
---
apiVersion: v1
kind: Node
metadata: {name: n0, labels: {pool: gpu, kubernetes.io/hostname: n0}}
status: {allocatable: {cpu: 8, pods: 10}, conditions: [{type: Ready, status: \"True\"}]}
---
";
/// A second ClusterQueue, and a LocalQueue for it.
const SECOND: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: second}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: second, namespace: a}
spec: {clusterQueue: second}
---
";
const PLAIN: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
";

/// Pods that ask for a host, and for no resource whose flavor could have it.
fn asking_for_nothing() -> String {
    let job = JOB
        .replace("template:\n    spec:", &with_topology("kubernetes.io/hostname"))
        .replace(", resources: {requests: {cpu: 1}}", "");
    [HOSTS, CLUSTER_QUEUE, LOCAL_QUEUE, &job].concat()
}

/// The beginning of a pod template that asks for one domain of a level.
fn with_topology(level: &str) -> String {
    format!(
        "template:\n    metadata: {{annotations: {{kueue.x-k8s.io/podset-required-topology: {level}}}}}\n    spec:"
    )
}

/// Pods that ask for that much each, as a patch of the Job.
pub(super) fn requests(each: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": each}});
    json!({"spec": {"template": {"spec": {"containers": [container]}}}})
}

fn rows() -> Vec<Row> {
    let plain = world();
    let mut rows = vec![
        row(
            "no LocalQueue",
            plain.replace(LOCAL_QUEUE, ""),
            Code::LocalQueueMissing,
            &[
                "the LocalQueue main does not exist in the namespace a",
                "kubectl kueue create localqueue main -n a -c cq",
                "estimated start: not known",
            ],
            Act::Apply("create the LocalQueue main", LOCAL_QUEUE),
        ),
        row(
            "no ClusterQueue",
            plain.replace(CLUSTER_QUEUE, ""),
            Code::ClusterQueueMissing,
            &["the LocalQueue a/main points to the ClusterQueue cq, which does not exist"],
            Act::Apply("create the ClusterQueue cq", CLUSTER_QUEUE),
        ),
        row(
            "no ClusterQueue, and a LocalQueue for another",
            [&plain.replace(CLUSTER_QUEUE, ""), SECOND].concat(),
            Code::ClusterQueueMissing,
            &["create the ClusterQueue cq, or name a LocalQueue that is for one that exists"],
            Act::Change(
                "or name a LocalQueue that is for one that exists",
                ("Job", "a", "mine"),
                json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "second"}}}),
            ),
        ),
        row(
            "LocalQueue held",
            plain.replace("spec: {clusterQueue: cq}", "spec: {clusterQueue: cq, stopPolicy: Hold}"),
            Code::LocalQueueStopped,
            &["stopPolicy Hold", "kubectl kueue resume localqueue main -n a"],
            Act::Follow("starts now: resume the LocalQueue main"),
        ),
        row(
            "ClusterQueue drained",
            plain.replace("namespaceSelector: {}", "namespaceSelector: {}\n  stopPolicy: HoldAndDrain"),
            Code::ClusterQueueStopped,
            &["stopPolicy HoldAndDrain", "kubectl kueue resume clusterqueue cq"],
            Act::Follow("starts now: resume the ClusterQueue cq"),
        ),
        row(
            "both queues stopped",
            plain
                .replace("namespaceSelector: {}", "namespaceSelector: {}\n  stopPolicy: Hold")
                .replace("spec: {clusterQueue: cq}", "spec: {clusterQueue: cq, stopPolicy: Hold}"),
            Code::ClusterQueueStopped,
            &["kubectl kueue resume localqueue main -n a && kubectl kueue resume clusterqueue cq"],
            Act::Follow("starts now: resume the LocalQueue main, and resume the ClusterQueue cq"),
        ),
        row(
            "flavor missing",
            plain.replace(FLAVOR, ""),
            Code::ClusterQueueIncomplete,
            &["the ResourceFlavor default does not exist"],
            Act::Apply("create the ResourceFlavor default", FLAVOR),
        ),
        row(
            "check missing",
            plain.replace(
                "namespaceSelector: {}",
                "namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: budget}]}",
            ),
            Code::ClusterQueueIncomplete,
            &["the AdmissionCheck budget does not exist"],
            Act::Apply(
                "create the AdmissionCheck budget",
                "apiVersion: kueue.x-k8s.io/v1beta2\nkind: AdmissionCheck\nmetadata: {name: budget}\nspec: {controllerName: example.com/budget}\n",
            ),
        ),
        row(
            "flavor missing that need not be named",
            plain.replace(
                "flavors: [{name: default,",
                "flavors: [{name: gone, resources: [{name: cpu, nominalQuota: 10}]}, {name: default,",
            ),
            Code::ClusterQueueIncomplete,
            &["create the ResourceFlavor gone, or remove its name from the object that refers to it"],
            Act::Change(
                "create the ResourceFlavor gone, or remove its name from the object that refers to it",
                ("ClusterQueue", "", "cq"),
                json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                    {"name": "default", "resources": [{"name": "cpu", "nominalQuota": 10}]}]}]}}),
            ),
        ),
        row(
            "check missing that need not be named",
            plain.replace(
                "namespaceSelector: {}",
                "namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: budget}]}",
            ),
            Code::ClusterQueueIncomplete,
            &["create the AdmissionCheck budget, or remove its name from the object that refers to it"],
            Act::Change(
                "create the AdmissionCheck budget, or remove its name from the object that refers to it",
                ("ClusterQueue", "", "cq"),
                json!({"spec": {"admissionChecksStrategy": null}}),
            ),
        ),
        row(
            "topology missing that need not be named",
            plain.replace(
                "metadata: {name: default}\n",
                "metadata: {name: default}\nspec: {topologyName: racks, nodeLabels: {pool: gpu}}\n",
            ),
            Code::ClusterQueueIncomplete,
            &["create the Topology racks, or remove its name from the object that refers to it"],
            Act::Change(
                "create the Topology racks, or remove its name from the object that refers to it",
                ("ResourceFlavor", "", "default"),
                json!({"spec": {"topologyName": null}}),
            ),
        ),
        row(
            "topology missing",
            plain.replace(
                "metadata: {name: default}\n",
                "metadata: {name: default}\nspec: {topologyName: racks, nodeLabels: {pool: gpu}}\n",
            ),
            Code::ClusterQueueIncomplete,
            &["the Topology racks of the flavor default does not exist"],
            Act::Apply(
                "create the Topology racks",
                "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: racks}\nspec: {levels: [{nodeLabel: kubernetes.io/hostname}]}\n---\n\
                 apiVersion: v1\nkind: Node\nmetadata: {name: n0, labels: {pool: gpu, kubernetes.io/hostname: n0}}\nstatus: {allocatable: {cpu: 8, pods: 10}}\n",
            ),
        ),
        row(
            "another LocalQueue",
            plain.replace("{name: main, namespace: a}", "{name: other, namespace: a}"),
            Code::LocalQueueMissing,
            &["LocalQueues of the namespace: other"],
            Act::Change(
                "name one of the existing LocalQueues (other)",
                ("Job", "a", "mine"),
                json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}),
            ),
        ),
        row(
            "namespace not selected by an expression",
            plain.replace(
                "namespaceSelector: {}",
                "namespaceSelector: {matchLabels: {env: prod}, matchExpressions: [{key: team, operator: In, values: [blue, red]}, \
                 {key: old, operator: DoesNotExist}]}",
            ) + "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {old: x}}\n",
            Code::NamespaceNotSelected,
            &[
                "it asks for env=prod and team In [blue, red] and old DoesNotExist []",
                "kubectl label namespace a env=prod old- team=blue",
            ],
            Act::Follow("starts now: label the namespace a"),
        ),
        row(
            "namespace that no labels can open",
            plain.replace(
                "namespaceSelector: {}",
                "namespaceSelector: {matchLabels: {team: blue}, matchExpressions: [{key: team, operator: DoesNotExist}]}",
            ),
            Code::NamespaceNotSelected,
            &["no labels can match"],
            Act::Change(
                "no labels can match the selector of the ClusterQueue cq",
                ("ClusterQueue", "", "cq"),
                json!({"spec": {"namespaceSelector": {"matchLabels": null, "matchExpressions": null}}}),
            ),
        ),
        row(
            "namespace that is not the one which is selected by its name",
            plain.replace(
                "namespaceSelector: {}",
                "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-a}}",
            ),
            Code::NamespaceNotSelected,
            &["it asks for kubernetes.io/metadata.name=team-a"],
            Act::Change(
                "no labels can match the selector of the ClusterQueue cq (a namespace keeps the label kubernetes.io/metadata.name): \
                 change the selector",
                ("ClusterQueue", "", "cq"),
                json!({"spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}}}}),
            ),
        ),
        row(
            "namespace not selected",
            plain.replace("namespaceSelector: {}", "namespaceSelector: {matchLabels: {team: blue}}"),
            Code::NamespaceNotSelected,
            &["it asks for team=blue", "labels of the namespace a: ", "kubectl label namespace a team=blue"],
            Act::Follow("starts now: label the namespace a"),
        ),
        row(
            "no selector at all",
            plain.replace("  namespaceSelector: {}\n", ""),
            Code::NamespaceNotSelected,
            &["has no namespaceSelector"],
            Act::Follow("starts now: change the ClusterQueue cq to select the namespace"),
        ),
        row(
            "resource that is not covered",
            plain.replace("requests: {cpu: 1}", "requests: {cpu: 1, example.com/gpu: 1}"),
            Code::ResourceNotCovered,
            &["pod set main requests 4 example.com/gpu, but its ClusterQueue has no quota for example.com/gpu"],
            Act::Change(
                "add it to coveredResources and the flavors of the ClusterQueue",
                ("ClusterQueue", "", "cq"),
                json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu", "example.com/gpu"], "flavors": [
                    {"name": "default", "resources": [
                        {"name": "cpu", "nominalQuota": 10}, {"name": "example.com/gpu", "nominalQuota": 4}]}]}]}}),
            ),
        ),
        row(
            "requests above the limits",
            plain.replace("requests: {cpu: 1}", "requests: {cpu: 2}, limits: {cpu: 1}"),
            Code::Misconfigured,
            &["it cannot be admitted as it is: ", "requests must not exceed its limits", "a person or program has to act first"],
            Act::Change("change the requests and limits of the pods", ("Job", "a", "mine"), requests(&json!({"cpu": 1}))),
        ),
        row(
            "topology of a flavor without one",
            plain.replace("template:\n    spec:", &with_topology("kubernetes.io/hostname")),
            Code::TopologyMismatch,
            &["pod set main asks for nodes by topology, and flavor default has no topology"],
            Act::Apply(
                "give the flavor default a topology (topologyName)",
                HOSTS,
            ),
        ),
        row(
            "level that a topology does not have",
            [HOSTS, &plain.replace(FLAVOR, "").replace("template:\n    spec:", &with_topology("rack"))].concat(),
            Code::TopologyMismatch,
            &[
                "pod set main asks for the level rack, which the topology hosts of flavor default does not have",
                "its levels are kubernetes.io/hostname",
            ],
            Act::Follow("starts now if it asks for one kubernetes.io/hostname instead of one rack (required)"),
        ),
        row(
            "topology of a flavor without one, which is not asked for any more",
            plain.replace("template:\n    spec:", &with_topology("kubernetes.io/hostname")),
            Code::TopologyMismatch,
            &[],
            Act::Follow("starts now if it asks for no topology"),
        ),
        row(
            "topology for pods that request nothing",
            asking_for_nothing(),
            Code::TopologyMismatch,
            &["no resource that it requests has a flavor with a topology in its ClusterQueue"],
            Act::Change(
                "let the pods request a resource of which the ClusterQueue has a flavor with a topology",
                ("Job", "a", "mine"),
                requests(&json!({"cpu": 1})),
            ),
        ),
        row(
            "topology for pods that request nothing, which is not asked for any more",
            asking_for_nothing(),
            Code::TopologyMismatch,
            &[],
            Act::Follow("starts now if it asks for no topology"),
        ),
        row(
            "flavor that gives nodes by topology only",
            [
                HOSTS,
                &plain.replace(FLAVOR, PLAIN).replace(
                    "flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}]",
                    "flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}, \
                     {name: plain, resources: [{name: cpu, nominalQuota: 0}]}]",
                ),
            ]
            .concat(),
            Code::TopologyMismatch,
            &["pod set main requests no topology, but flavor default assigns nodes only by the topology hosts"],
            Act::Follow("starts now with the annotation kueue.x-k8s.io/podset-unconstrained-topology of its pods"),
        ),
        row(
            "resources of two flavors that have a topology",
            [
                &HOSTS.replace("cpu: 8, pods: 10", "cpu: 8, pods: 10, example.com/gpu: 8"),
                "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: other}\n\
                 spec: {topologyName: hosts, nodeLabels: {pool: gpu}}\n---\n",
                &plain
                    .replace(FLAVOR, "")
                    .replace(
                        "nominalQuota: 10}]}]",
                        "nominalQuota: 10}]}]\n  - coveredResources: [example.com/gpu]\n    \
                         flavors: [{name: other, resources: [{name: example.com/gpu, nominalQuota: 8}]}]",
                    )
                    .replace("requests: {cpu: 1}", "requests: {cpu: 1, example.com/gpu: 1}"),
            ]
            .concat(),
            Code::TopologyMismatch,
            &["the resources of pod set main would come from several flavors that have a topology"],
            Act::Change(
                "let one resource group of the ClusterQueue cover all resources that the pods take of their nodes",
                ("ClusterQueue", "", "cq"),
                json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu", "example.com/gpu"], "flavors": [
                    {"name": "default", "resources": [
                        {"name": "cpu", "nominalQuota": 10}, {"name": "example.com/gpu", "nominalQuota": 8}]}]}]}}),
            ),
        ),
        row(
            "gated",
            plain.replace(
                "annotations: {",
                "annotations: {kueue.x-k8s.io/admission-gated-by: example.com/gate, ",
            ),
            Code::Gated,
            &["holds it back: example.com/gate"],
            Act::Change(
                "remove example.com/gate",
                ("Job", "a", "mine"),
                json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": null}}}),
            ),
        ),
    ];
    let unqueued = |what, world: String, code, says, act| Row {
        state: State::NotQueued,
        ..row(what, world, code, says, act)
    };
    rows.extend(amounts::rows());
    rows.extend(flavors::rows());
    rows.extend(topology::rows());
    rows.extend([
        unqueued(
            "no queue name",
            plain.replace("  labels: {kueue.x-k8s.io/queue-name: main}\n", ""),
            Code::QueueNameMissing,
            &["not queued", "its owner has suspended it", "kubectl label job mine -n a kueue.x-k8s.io/queue-name=main"],
            Act::Follow("name a LocalQueue"),
        ),
        unqueued(
            "no priority class",
            plain.replace("queue-name: main}", "queue-name: main, kueue.x-k8s.io/priority-class: top}"),
            Code::PriorityClassMissing,
            &["the WorkloadPriorityClass top, which it names, does not exist"],
            Act::Apply(
                "create the WorkloadPriorityClass top",
                "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: top}\nvalue: 9\n",
            ),
        ),
    ]);
    rows
}

#[test]
pub fn each_state_is_reported_correctly_and_the_advice_lets_the_job_start() {
    for row in rows() {
        let explained = ask(&read(&row.world), options());
        let text = explained.text();
        assert_eq!(explained.state, row.state, "{}: {text}", row.what);
        assert!(codes(&explained).contains(&row.code), "{}: {text}", row.what);
        for part in row.says {
            assert!(text.contains(part), "{}: {part:?} is not in {text}", row.what);
        }
        let mut simulation = cluster(&row.world);
        assert!(!runs(&simulation), "{}: it runs before anything is done", row.what);
        act(&mut simulation, &explained, &row.act);
        assert!(runs(&simulation), "{}: it does not run after what is advised: {text}", row.what);
    }
}

#[test]
pub fn a_job_that_waits_for_others_knows_how_many_come_before_it() {
    let first = JOB
        .replace("name: mine", "name: first")
        .replace("parallelism: 4\n  completions: 4", "parallelism: 10\n  completions: 10");
    let class = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: top}\nvalue: 9\n---\n";
    let second = JOB
        .replace("name: mine", "name: second")
        .replace("queue-name: main}", "queue-name: main, kueue.x-k8s.io/priority-class: top}");
    let later =
        |job: &str| job.replace("annotations: {", "annotations: {sluice.dev/submit-after-seconds: \"1\", ");
    let (second, mine) = (later(&second), later(JOB));
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, class, &first, &second, &mine].concat();
    let explained = ask(&read(&world), options());
    assert_eq!(explained.position, Some(1), "{}", explained.text());
    let behind = explained.findings.iter().find(|f| f.code == Code::BehindOthers).unwrap();
    assert_eq!(behind.text, "1 workload(s) of its ClusterQueue come before it");
    assert!(explained.forecast.is_some() && explained.no_forecast.is_none(), "{}", explained.text());
}
