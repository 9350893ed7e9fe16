//! Jobs that ask for too much, or for what others hold: how much less fits, and how much more quota is needed.

use super::table::{HOSTS, Row, requests, row};
use super::*;

/// A queue of ten processors and 10Gi of memory, and one of two flavors.
const WITH_MEMORY: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}, {name: memory, nominalQuota: 10Gi}]}]
---
";
const SMALL_AND_BIG: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: small}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: big}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: small, resources: [{name: cpu, nominalQuota: 4}]}
    - {name: big, resources: [{name: cpu, nominalQuota: 8}]}
---
";
/// A class above all jobs.
pub(super) const TOP: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: top}
value: 9
---
";
/// A resource group for each resource.
const TWO_GROUPS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: gpus}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 10}]}]
  - coveredResources: [example.com/gpu]
    flavors: [{name: gpus, resources: [{name: example.com/gpu, nominalQuota: 9}]}]
---
";
/// The pods of a leader and its workers, each of which asks for that much and has these annotations.
fn replicated(counts: [u32; 2], cpu: &str, annotations: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let one = |(name, pods): (&str, u32)| {
        let spec = json!({"restartPolicy": "Never", "containers": [container]});
        let template = json!({"metadata": {"annotations": annotations}, "spec": spec});
        let job = json!({"parallelism": pods, "completions": pods, "template": template});
        json!({"name": name, "replicas": 1, "template": {"spec": job}})
    };
    json!({"spec": {"replicatedJobs": [one(("leader", counts[0])), one(("worker", counts[1]))]}})
}

/// The pods of a leader that requests nothing, and its workers of a processor each.
fn led(workers: u32) -> Value {
    let mut set = replicated([1, workers], "1", &json!({}));
    let leader = &mut set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
    leader["containers"][0]["resources"] = json!({});
    set
}

/// The same, with a GPU for each worker.
fn with_gpus(mut set: Value) -> Value {
    let worker = &mut set["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"];
    worker["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!("1");
    set
}

/// The JobSet of the question, with so many leaders and workers of a processor each.
fn job_set(counts: [u32; 2], annotations: &Value) -> String {
    job_set_of(replicated(counts, "1", annotations))
}

/// The JobSet of the question, with these pods.
fn job_set_of(mut set: Value) -> String {
    set["spec"]["suspend"] = json!(true);
    format!(
        "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: mine
  namespace: a
  labels: {{kueue.x-k8s.io/queue-name: main}}
  annotations: {{sluice.dev/run-seconds: \"3600\", sluice.dev/submit-after-seconds: \"1\"}}
spec: {}
---
",
        set["spec"]
    )
}

/// A leader and its workers that get their nodes together.
fn grouped() -> Value {
    json!({"kueue.x-k8s.io/podset-group-name": "g", "kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"})
}

/// Pods that may be on any nodes of a topology.
fn anywhere() -> Value {
    json!({"kueue.x-k8s.io/podset-unconstrained-topology": "true"})
}

/// The Job with so many pods, each with these requests.
pub(super) fn job(pods: u32, each: &str) -> String {
    JOB.replace("parallelism: 4\n  completions: 4", &format!("parallelism: {pods}\n  completions: {pods}"))
        .replace("requests: {cpu: 1}", &format!("requests: {{{each}}}"))
}

/// A Job that runs for so many seconds before that of the question comes.
pub(super) fn holder(pods: u32, each: &str, seconds: u32) -> String {
    job(pods, each)
        .replace("name: mine", "name: first")
        .replace("run-seconds: \"3600\"", &format!("run-seconds: \"{seconds}\""))
}

/// The Job of the question, a second later.
pub(super) fn later(pods: u32, each: &str) -> String {
    job(pods, each).replace("annotations: {", "annotations: {sluice.dev/submit-after-seconds: \"1\", ")
}

/// What two pod sets may have of ten processors.
const IN_ALL: &str = "ask for at most 10 cpu of flavor default in all pod sets together";

/// A change of the number of pods at a time.
fn pods(count: u32) -> Value {
    json!({"spec": {"parallelism": count}})
}

pub(super) fn rows() -> Vec<Row> {
    let (mine, set) = (("Job", "a", "mine"), ("JobSet", "a", "mine"));
    let sets = |counts: [u32; 2]| job_set(counts, &json!({}));
    let with_memory = || [FLAVOR, WITH_MEMORY, LOCAL_QUEUE, &job(8, "cpu: 2, memory: 4Gi")].concat();
    let flavors = || [SMALL_AND_BIG, LOCAL_QUEUE, &job(12, "cpu: 1")].concat();
    vec![
        row(
            "too many pods",
            [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &job(12, "cpu: 1")].concat(),
            Code::TooLarge,
            &[
                "can have at most 10 of flavor default",
                "ask for at most 10 pods of 1 cpu each (flavor default)",
            ],
            Act::Follow("starts now with parallelism 10"),
        ),
        row(
            "pods that are too large, each made smaller",
            [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &job(4, "cpu: 5")].concat(),
            Code::TooLarge,
            &["can have at most 10 of flavor default"],
            Act::Change(
                "ask for at most 2500m cpu for each of the 4 pod(s) (flavor default)",
                mine,
                requests(&json!({"cpu": "2500m"})),
            ),
        ),
        row(
            "too many pods by one resource, and more so by another",
            with_memory(),
            Code::TooLarge,
            &[
                "pod set main asks for more than its ClusterQueue can have of flavor default, with all that it may borrow",
                "cpu of flavor default: 16 asked for, at most 10",
                "memory of flavor default: 32Gi asked for, at most 10Gi",
            ],
            Act::Change(
                "ask for at most 2 pods of 2 cpu and 4Gi memory each (flavor default)",
                mine,
                pods(2),
            ),
        ),
        row(
            "too large by two resources, each pod made smaller",
            with_memory(),
            Code::TooLarge,
            &[],
            Act::Change(
                "ask for at most 1250m cpu and 1280Mi memory for each of the 8 pod(s) (flavor default)",
                mine,
                requests(&json!({"cpu": "1250m", "memory": "1280Mi"})),
            ),
        ),
        row(
            "too many pods for each of two flavors",
            flavors(),
            Code::TooLarge,
            &["can have of flavor small or big", "cpu of flavor small: 12 asked for, at most 4"],
            Act::Change("ask for at most 8 pods of 1 cpu each (flavor big)", mine, pods(8)),
        ),
        row(
            "too large for each of two flavors, each pod made smaller",
            flavors(),
            Code::TooLarge,
            &[],
            Act::Change(
                "ask for at most 666m cpu for each of the 12 pod(s) (flavor big)",
                mine,
                requests(&json!({"cpu": "666m"})),
            ),
        ),
        row(
            "two resources that another holds",
            [
                FLAVOR,
                WITH_MEMORY,
                LOCAL_QUEUE,
                &holder(8, "cpu: 1, memory: 1Gi", 3600),
                &later(4, "cpu: 1, memory: 1Gi"),
            ]
            .concat(),
            Code::QuotaShort,
            &["cpu of flavor default: 4 needed, 2 free", "memory of flavor default: 4Gi needed, 2Gi free"],
            Act::Follow(
                "needs 2 more cpu and 2Gi more memory of flavor default as nominal quota of ClusterQueue cq",
            ),
        ),
        row(
            "quota that one of lower priority holds",
            [
                FLAVOR,
                &CLUSTER_QUEUE.replace(
                    "namespaceSelector: {}",
                    "namespaceSelector: {}\n  preemption: {withinClusterQueue: LowerPriority}",
                ),
                LOCAL_QUEUE,
                TOP,
                &holder(8, "cpu: 1", 3600),
                &later(4, "cpu: 1"),
            ]
            .concat(),
            Code::QuotaShort,
            &[],
            Act::Follow("starts now with the WorkloadPriorityClass top"),
        ),
        row(
            "resources of two groups that another holds",
            [
                FLAVOR,
                TWO_GROUPS,
                LOCAL_QUEUE,
                &holder(8, "cpu: 1, example.com/gpu: 1", 3600),
                &later(4, "cpu: 1, example.com/gpu: 1"),
            ]
            .concat(),
            Code::QuotaShort,
            &[],
            Act::Follow(
                "needs 2 more cpu of flavor default and 3 more example.com/gpu of flavor gpus as nominal quota of ClusterQueue cq",
            ),
        ),
        row(
            "quota for two pod sets, of which the first comes to nothing already",
            [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &holder(8, "cpu: 1", 3600), &sets([3, 3])].concat(),
            Code::QuotaShort,
            &["cpu of flavor default: 3 needed, 2 free"],
            Act::Follow("needs 4 more cpu of flavor default as nominal quota of ClusterQueue cq"),
        ),
        row(
            "quota for two pod sets, of which the second comes to nothing",
            [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &holder(5, "cpu: 1", 3600), &sets([3, 4])].concat(),
            Code::QuotaShort,
            &[
                "quota that pod set worker needs is in use",
                "cpu of flavor default: 7 needed, 3 of it by its other pod sets, 5 free",
            ],
            Act::Follow("needs 2 more cpu of flavor default as nominal quota of ClusterQueue cq"),
        ),
        row(
            "too many pods by the resource of one group, and more so by that of another",
            [FLAVOR, TWO_GROUPS, LOCAL_QUEUE, &job(12, "cpu: 1, example.com/gpu: 1")].concat(),
            Code::TooLarge,
            &["pod set main asks for 12 cpu, and its ClusterQueue can have at most 10 of flavor default"],
            Act::Change(
                "ask for at most 9 pods of 1 cpu and 1 example.com/gpu each (flavors default and gpus)",
                mine,
                pods(9),
            ),
        ),
        row(
            "two pod sets that are too large together, the first already alone",
            [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &sets([12, 3])].concat(),
            Code::TooLarge,
            &["pod set leader asks for 12 cpu, and its ClusterQueue can have at most 10 of flavor default"],
            Act::Change(IN_ALL, set, replicated([12, 3], "666m", &json!({}))),
        ),
        row(
            "two pod sets that are too large together, the second beside the first",
            [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &sets([3, 12])].concat(),
            Code::TooLarge,
            &["pod set worker asks for 12 cpu beside the 3 of its other pod sets, and its ClusterQueue can have at most 10 of"],
            Act::Change(IN_ALL, set, replicated([3, 12], "666m", &json!({}))),
        ),
        row(
            "two pod sets that are too large together, and so for the nodes",
            [HOSTS, &CLUSTER_QUEUE.replace("nominalQuota: 10", "nominalQuota: 8"), LOCAL_QUEUE, &job_set([3, 12], &anywhere())]
                .concat(),
            Code::TooLarge,
            &["pod set worker asks for 12 cpu beside the 3 of its other pod sets, and its ClusterQueue can have at most 8 of"],
            Act::Change(
                "ask for at most 8 cpu of flavor default in all pod sets together",
                set,
                replicated([2, 6], "1", &anywhere()),
            ),
        ),
        row(
            "resources of two groups, of which the second has no flavor for the pods",
            [
                FLAVOR,
                &TWO_GROUPS.replace(
                    "metadata: {name: gpus}",
                    "metadata: {name: gpus}\nspec: {nodeTaints: [{key: costly, value: \"yes\", effect: NoSchedule}]}",
                ),
                LOCAL_QUEUE,
                &job(12, "cpu: 1, example.com/gpu: 1"),
            ]
            .concat(),
            Code::TooLarge,
            &["pod set main asks for 12 cpu, and its ClusterQueue can have at most 10 of flavor default"],
            Act::Change(
                "ask for at most 10 cpu of flavor default for all pods together",
                mine,
                json!({"spec": {"parallelism": 8, "template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}),
            ),
        ),
        row(
            "two pod sets, of which the first requests nothing",
            [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &job_set_of(led(12))].concat(),
            Code::TooLarge,
            &["pod set worker asks for 12 cpu, and its ClusterQueue can have at most 10 of flavor default"],
            Act::Change("ask for at most 10 pods of 1 cpu each (flavor default)", set, led(10)),
        ),
        row(
            "two pod sets, of which the first requests nothing, and two resource groups",
            [FLAVOR, TWO_GROUPS, LOCAL_QUEUE, &job_set_of(with_gpus(led(12)))].concat(),
            Code::TooLarge,
            &["pod set worker asks for 12 cpu, and its ClusterQueue can have at most 10 of flavor default"],
            Act::Change(
                "ask for at most 9 pods of 1 cpu and 1 example.com/gpu each (flavors default and gpus)",
                set,
                with_gpus(led(9)),
            ),
        ),
        row(
            "pod sets that are searched together, and are too large together",
            [
                HOSTS,
                &CLUSTER_QUEUE.replace("nominalQuota: 10", "nominalQuota: 3"),
                LOCAL_QUEUE,
                &job_set([1, 3], &grouped()),
            ]
            .concat(),
            Code::TooLarge,
            &["pod sets leader and worker ask for 4 cpu, and its ClusterQueue can have at most 3 of flavor default"],
            Act::Change(
                "ask for at most 3 cpu of flavor default in all pod sets together",
                set,
                replicated([1, 3], "750m", &grouped()),
            ),
        ),
    ]
}

/// How many pods fit in all, according to an answer, and how many start now; each as often as it is said.
fn sizes(explained: &Explained) -> [Vec<u32>; 2] {
    let said = |begins: &str, of: &str| {
        let number = |remedy: &Remedy| {
            let rest = remedy.text.strip_prefix(begins).filter(|rest| rest.contains(of))?;
            rest.split(' ').next()?.parse().ok()
        };
        explained.remedies.iter().filter_map(number).collect()
    };
    [said("ask for at most ", " pods of "), said("starts now with parallelism ", "")]
}

#[test]
fn the_largest_number_of_pods_that_fits_is_said_once() {
    let (mut sized, mut tried) = (0, 0);
    for Row { what, world, .. } in rows().into_iter().filter(|row| row.code == Code::TooLarge) {
        let explained = ask(&read(&world), options());
        let [fit, now] = sizes(&explained);
        assert!(fit.len() <= 1 && now.len() <= 1, "{what}: {}", explained.text());
        sized += fit.len();
        // No other job is there: as many start as fit.
        if let ([fit], [now]) = (&fit[..], &now[..]) {
            assert_eq!(fit, now, "{what}: {}", explained.text());
            tried += 1;
        }
    }
    assert!(sized >= 4 && tried >= 4, "{sized} sizes, {tried} of them tried");
}

#[test]
fn the_largest_number_of_pods_that_fits_does_not_depend_on_what_others_hold() {
    let each = "cpu: 1, example.com/gpu: 1";
    let world = [FLAVOR, TWO_GROUPS, LOCAL_QUEUE, &holder(7, each, 3600), &later(12, each)].concat();
    let explained = ask(&read(&world), options());
    let text = explained.text();
    assert_eq!(sizes(&explained), [vec![9], vec![2]], "{text}");
    assert!(
        text.contains("needs 9 more cpu of flavor default and 10 more example.com/gpu of flavor gpus"),
        "{text}"
    );
}

#[test]
fn what_is_asked_of_pod_sets_together_is_said_of_no_single_one() {
    let queue = CLUSTER_QUEUE.replace("nominalQuota: 10", "nominalQuota: 4");
    let held = holder(2, "cpu: 1", 3600).replace(
        "template:\n    spec:",
        "template:\n    metadata: {annotations: {kueue.x-k8s.io/podset-unconstrained-topology: \"true\"}}\n    spec:",
    );
    let world = [HOSTS, &queue, LOCAL_QUEUE, &held, &job_set([1, 3], &grouped())].concat();
    let explained = ask(&read(&world), options());
    let text = explained.text();
    assert_eq!(codes(&explained), [Code::QuotaShort], "{text}");
    let found = &explained.findings[0];
    assert_eq!(found.text, "quota that pod sets leader and worker need is in use", "{text}");
    assert_eq!(found.details, ["cpu of flavor default: 4 needed, 2 free"], "{text}");
}

#[test]
pub fn a_flavor_that_is_too_small_makes_no_job_smaller_that_waits_for_a_larger_one() {
    let world = [SMALL_AND_BIG, LOCAL_QUEUE, &holder(6, "cpu: 1", 60), &later(6, "cpu: 1")].concat();
    let explained = ask(&read(&world), options());
    let text = explained.text();
    assert_eq!(codes(&explained), [Code::QuotaShort, Code::FlavorMismatch], "{text}");
    assert!(text.contains("cpu of flavor big: 6 needed, 2 free"), "{text}");
    assert!(
        text.contains("can have at most 4 of flavor small") && !text.contains("ask for at most"),
        "{text}"
    );
    carried_out(&explained, "starts when a/first finishes");
    let mut simulation = cluster(&world);
    assert!(!runs(&simulation), "{text}");
    simulation.advance(SignedDuration::from_secs(120)).unwrap();
    assert!(runs(&simulation), "{text}");
}
