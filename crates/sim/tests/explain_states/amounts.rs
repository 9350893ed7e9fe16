//! Jobs that ask for too much, or for what others hold: how much less fits, and how much more quota is needed.

use super::table::{Row, requests, row};
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
/// Two pod sets of three pods each.
const JOB_SET: &str = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: mine
  namespace: a
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: {sluice.dev/run-seconds: \"3600\", sluice.dev/submit-after-seconds: \"1\"}
spec:
  suspend: true
  replicatedJobs:
  - name: leader
    replicas: 1
    template:
      spec:
        parallelism: 3
        completions: 3
        template:
          spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}
  - name: worker
    replicas: 1
    template:
      spec:
        parallelism: 3
        completions: 3
        template:
          spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}
---
";

/// The Job with so many pods, each with these requests.
fn job(pods: u32, each: &str) -> String {
    JOB.replace("parallelism: 4\n  completions: 4", &format!("parallelism: {pods}\n  completions: {pods}"))
        .replace("requests: {cpu: 1}", &format!("requests: {{{each}}}"))
}

/// A Job that runs for so many seconds before that of the question comes.
fn holder(pods: u32, each: &str, seconds: u32) -> String {
    job(pods, each)
        .replace("name: mine", "name: first")
        .replace("run-seconds: \"3600\"", &format!("run-seconds: \"{seconds}\""))
}

/// The Job of the question, a second later.
fn later(pods: u32, each: &str) -> String {
    job(pods, each).replace("annotations: {", "annotations: {sluice.dev/submit-after-seconds: \"1\", ")
}

/// A change of the number of pods at a time.
fn pods(count: u32) -> Value {
    json!({"spec": {"parallelism": count}})
}

pub(super) fn rows() -> Vec<Row> {
    let mine = ("Job", "a", "mine");
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
                "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: top}\nvalue: 9\n---\n",
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
            [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &holder(8, "cpu: 1", 3600), JOB_SET].concat(),
            Code::QuotaShort,
            &["cpu of flavor default: 3 needed, 2 free"],
            Act::Follow("needs 4 more cpu of flavor default as nominal quota of ClusterQueue cq"),
        ),
    ]
}

/// How often an answer says how many pods fit.
fn sizes(explained: &Explained) -> usize {
    let says =
        |remedy: &&Remedy| remedy.text.contains("ask for at most") && remedy.text.contains(" pods of ");
    explained.remedies.iter().filter(says).count()
}

#[test]
fn the_largest_number_of_pods_that_fits_is_said_once() {
    let more_than_one = rows().into_iter().filter(|row| row.code == Code::TooLarge);
    for Row { what, world, .. } in more_than_one {
        let explained = ask(&read(&world), options());
        assert!(sizes(&explained) <= 1, "{what}: {}", explained.text());
    }
    let world = [SMALL_AND_BIG, LOCAL_QUEUE, &job(12, "cpu: 1")].concat();
    let explained = ask(&read(&world), options());
    assert_eq!(sizes(&explained), 1, "{}", explained.text());
}

#[test]
pub fn a_flavor_that_is_too_small_makes_no_job_smaller_that_waits_for_a_larger_one() {
    let world = [SMALL_AND_BIG, LOCAL_QUEUE, &holder(6, "cpu: 1", 60), &later(6, "cpu: 1")].concat();
    let explained = ask(&read(&world), options());
    let text = explained.text();
    assert_eq!(codes(&explained), [Code::QuotaShort, Code::FlavorMismatch], "{text}");
    assert!(text.contains("cpu of flavor big: 6 needed, 2 free"), "{text}");
    assert!(text.contains("can have at most 4 of flavor small") && sizes(&explained) == 0, "{text}");
    carried_out(&explained, "starts when a/first finishes");
    let mut simulation = cluster(&world);
    assert!(!runs(&simulation), "{text}");
    simulation.advance(SignedDuration::from_secs(120)).unwrap();
    assert!(runs(&simulation), "{text}");
}
