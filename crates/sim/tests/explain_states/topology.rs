//! Nodes without capacity for the pods as close together as they require.

use sluice_api::config::{Transformation, TransformationStrategy};

use super::table::{Row, row};
use super::*;

const RACKS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: block}, {nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
spec: {topologyName: racks, nodeLabels: {pool: gpu}}
---
";

fn node(name: &str, block: &str, rack: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{pool: gpu, block: {block}, rack: {rack}, kubernetes.io/hostname: {name}}}}}\n\
         status: {{allocatable: {{cpu: 2, pods: 10}}, conditions: [{{type: Ready, status: \"True\"}}]}}\n---\n"
    )
}

/// Three nodes in two racks.
fn three() -> String {
    [("n0", "b", "r0"), ("n1", "b", "r0"), ("n2", "b", "r1")].map(|(n, b, r)| node(n, b, r)).concat()
}

/// A job with annotations of its pods, as `key: value`.
fn annotated(annotations: &str) -> String {
    JOB.replace(
        "template:\n    spec:",
        &format!("template:\n    metadata: {{annotations: {{{annotations}}}}}\n    spec:"),
    )
}

fn short(explained: &Explained) -> &sluice_sim::explain::Finding {
    let short = explained.findings.iter().find(|f| f.code == Code::TopologyShort);
    short.unwrap_or_else(|| unreachable!("{}", explained.text()))
}

/// Levels that a topology lacks, in requests with slices.
pub(super) fn rows() -> Vec<Row> {
    let asking = |wish: &str| [RACKS, CLUSTER_QUEUE, LOCAL_QUEUE, &three(), &annotated(wish)].concat();
    let slices = |more: &str| {
        asking(&format!(
            "kueue.x-k8s.io/podset-slice-required-topology: rck, kueue.x-k8s.io/podset-slice-size: \"2\"{more}"
        ))
    };
    let layers = "kueue.x-k8s.io/podset-slice-required-topology-constraints: \
                  '[{\"topology\": \"rack\", \"size\": 4}, {\"topology\": \"host\", \"size\": 2}]'";
    let row = |what, world, says, act| row(what, world, Code::TopologyMismatch, says, act);
    vec![
        row(
            "level of slices that a topology does not have, in a level that it has",
            slices(", kueue.x-k8s.io/podset-required-topology: block"),
            &[
                "pod set main asks for the level rck (of its slices), which the topology racks of flavor default does not have: its \
               levels are block, rack, kubernetes.io/hostname",
            ],
            Act::Follow("starts now if each slice asks for one kubernetes.io/hostname instead of one rck"),
        ),
        row(
            "level of slices alone that a topology does not have",
            slices(""),
            &[
                "pod set main asks for the level rck (of its slices), which the topology racks of flavor default does not have: its \
               levels are block, rack, kubernetes.io/hostname",
            ],
            Act::Follow("starts now if each slice asks for one rack instead of one rck"),
        ),
        row(
            "layers of slices, of which a topology does not have the second",
            asking(layers),
            &[
                "pod set main asks for the level host (of its slices), which the topology racks of flavor default does not have: its \
               levels are block, rack, kubernetes.io/hostname",
            ],
            Act::Follow("starts now if each slice asks for one kubernetes.io/hostname instead of one host"),
        ),
        row(
            "level of pods that a topology does not have, with one of slices that it has",
            slices(", kueue.x-k8s.io/podset-preferred-topology: row").replace("rck", "rack"),
            &[
                "pod set main asks for the level row, which the topology racks of flavor default does not have: its \
               levels are block, rack, kubernetes.io/hostname",
            ],
            Act::Follow("starts now if it asks for one rack instead of one row (preferred)"),
        ),
        row(
            "level of pods and level of slices that a topology does not have",
            slices(", kueue.x-k8s.io/podset-preferred-topology: row"),
            &[
                "pod set main asks for the levels row and rck (of its slices), which the topology racks of flavor default does not have: its \
               levels are block, rack, kubernetes.io/hostname",
            ],
            Act::Change(
                "name levels that the topology racks has (block, rack, kubernetes.io/hostname) in the topology request of the pods",
                ("Job", "a", "mine"),
                json!({"spec": {"template": {"metadata": {"annotations": {
                    "kueue.x-k8s.io/podset-preferred-topology": "block",
                    "kueue.x-k8s.io/podset-slice-required-topology": "rack"}}}}}),
            ),
        ),
    ]
}

#[test]
fn what_pods_take_of_nodes_counts_for_what_fits_and_not_what_they_take_of_quota() {
    let mut options = options();
    options.configuration.resources.transformations = vec![Transformation {
        input: "cpu".to_owned(),
        strategy: TransformationStrategy::Replace,
        multiply_by: None,
        outputs: [("example.com/credits".to_owned(), "1".parse().unwrap())].into(),
    }];
    let queue = CLUSTER_QUEUE
        .replace("[cpu]", "[example.com/credits]")
        .replace("name: cpu", "name: example.com/credits");
    let job = annotated("kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname");
    let explained = ask(&read(&[RACKS, &queue, LOCAL_QUEUE, &three(), &job].concat()), options);
    let found = short(&explained);
    assert!(found.text.ends_with("; 2 fit now"), "{}", explained.text());
    assert!(found.details[1].starts_with("rack (2 domain(s)): at most 4 pod(s)"), "{}", explained.text());
    remedy(&explained, "ask for one rack (a higher level) instead of one kubernetes.io/hostname");
    remedy(&explained, "as preferred instead of required");
}

#[test]
fn a_rack_that_the_pods_do_not_tolerate_has_no_room_and_the_level_above_the_next_is_offered() {
    // Four pods fit into one rack, and that is tainted; and so is a part of the block.
    let away = "\nspec: {taints: [{key: maintenance, effect: NoSchedule}]}\nstatus:";
    let mut nodes = [("n0", "b0", "r0"), ("n1", "b0", "r0")].map(|(n, b, r)| node(n, b, r)).concat();
    nodes = nodes.replace("\nstatus:", away);
    nodes += &[("n2", "b0", "r1"), ("n3", "b0", "r2")].map(|(n, b, r)| node(n, b, r)).concat();
    let job = annotated("kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname");
    let world = [RACKS, CLUSTER_QUEUE, LOCAL_QUEUE, &nodes, &job].concat();
    let explained = ask(&read(&world), options());
    let found = short(&explained);
    assert_eq!(
        found.details[..2],
        [
            "block (1 domain(s)): at most 4 pod(s) of this shape in one, 4 in all; 4 in b0",
            "rack (3 domain(s)): at most 2 pod(s) of this shape in one, 4 in all; 2 in b0/r1, 2 in b0/r2, 0 in b0/r0",
        ]
    );
    assert!(!explained.remedies.iter().any(|r| r.text.contains("ask for one rack")), "{}", explained.text());
    let mut simulation = cluster(&world);
    act(&mut simulation, &explained, &Act::Follow("ask for one block (a higher level)"));
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
fn slices_fit_whole_and_may_be_spread_over_a_higher_level() {
    let level = |slice: &str| format!("kueue.x-k8s.io/podset-slice-required-topology: {slice}");
    let of = |slice: &str| annotated(&format!("{slice}, kueue.x-k8s.io/podset-slice-size: \"4\""));
    // Each rack has room for two pods, and the block for all.
    let nodes = [("n0", "r0"), ("n1", "r1"), ("n2", "r2")].map(|(name, rack)| node(name, "b", rack)).concat();
    let world = [RACKS, CLUSTER_QUEUE, LOCAL_QUEUE, &nodes, &of(&level("rack"))].concat();
    let explained = ask(&read(&world), options());
    assert_eq!(
        short(&explained).text,
        "pod set main needs 4 pods anywhere, each 4 of them in one of the level rack on nodes of flavor default; \
         0 fit now"
    );
    assert_eq!(
        short(&explained).details[3],
        "these counts are of what is free on nodes that the pods select and whose taints they tolerate; down to the level rack in whole slices, \
         below it in single pods"
    );
    let mut simulation = cluster(&world);
    act(
        &mut simulation,
        &explained,
        &Act::Follow("ask for one block (a higher level) for each slice instead of one rack"),
    );
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
fn slices_of_several_layers_are_named() {
    let layers = "kueue.x-k8s.io/podset-slice-required-topology-constraints: \
                  '[{\"topology\": \"rack\", \"size\": 4}, {\"topology\": \"kubernetes.io/hostname\", \"size\": 4}]'";
    let explained =
        ask(&read(&[RACKS, CLUSTER_QUEUE, LOCAL_QUEUE, &three(), &annotated(layers)].concat()), options());
    let found = short(&explained);
    assert!(
        found.text.contains("each 4 of them in one of the level rack, each 4 of them in one of the level kubernetes.io/hostname"),
        "{}",
        explained.text()
    );
    assert!(found.text.ends_with("; 0 fit now"), "{}", explained.text());
}

#[test]
pub fn a_topology_that_is_short_names_level_and_domains_and_offers_only_wishes_that_work() {
    let job = |level: &str| annotated(&format!("kueue.x-k8s.io/podset-required-topology: {level}"));
    let world = |level: &str| [RACKS, CLUSTER_QUEUE, LOCAL_QUEUE, &three(), &job(level)].concat();
    let explained = ask(&read(&world("kubernetes.io/hostname")), options());
    let text = explained.text();
    let found = short(&explained);
    assert_eq!(
        found.text,
        "pod set main needs 4 pods in one domain of the level kubernetes.io/hostname (required) on nodes of flavor \
         default; 2 fit now"
    );
    assert_eq!(
        found.details[..3],
        [
            "block (1 domain(s)): at most 6 pod(s) of this shape in one, 6 in all; 6 in b",
            "rack (2 domain(s)): at most 4 pod(s) of this shape in one, 6 in all; 4 in b/r0, 2 in b/r1",
            "kubernetes.io/hostname (3 domain(s)): at most 2 pod(s) of this shape in one, 6 in all",
        ]
    );
    // Nodes are named to one who may list them.
    let manifests = read(&world("kubernetes.io/hostname"));
    let named = Question { names_nodes: true, ..question(&manifests, "mine") }.answer().unwrap();
    assert_eq!(
        short(&named).details[2],
        "kubernetes.io/hostname (3 domain(s)): at most 2 pod(s) of this shape in one, 6 in all; 2 in b/r0/n0, \
         2 in b/r0/n1, 2 in b/r1/n2"
    );
    let document: Value = serde_json::from_str(&explained.json()).unwrap();
    assert_eq!(document["topology"][0]["levels"][1]["largest"], 4, "{document}");
    assert_eq!(document["topology"][0]["wish"], "required", "{document}");
    for wish in [
        "ask for one rack (a higher level) instead of one kubernetes.io/hostname",
        "as preferred instead of required",
    ] {
        let mut simulation = cluster(&world("kubernetes.io/hostname"));
        assert!(!runs(&simulation), "{text}");
        let wish = if wish.starts_with("ask") {
            Act::Follow("ask for one rack (a higher level) instead of one kubernetes.io/hostname")
        } else {
            Act::Follow("as preferred instead of required")
        };
        act(&mut simulation, &explained, &wish);
        assert!(runs(&simulation), "{text}");
    }
    // Of seven pods none of these wishes would be met.
    let wide = world("rack").replace("parallelism: 4\n  completions: 4", "parallelism: 7\n  completions: 7");
    let explained = ask(&read(&wide), options());
    assert!(!explained.remedies.iter().any(|r| r.text.contains("ask for")), "{}", explained.text());
    assert!(
        explained.remedies.iter().any(|r| r.text == "starts now with parallelism 4"),
        "{}",
        explained.text()
    );
}

/// A JobSet of these replicated jobs with so many pods each, all of which require a rack.
fn job_set(jobs: &[(&str, u32)], annotations: &str) -> String {
    let job = |(name, pods): &(&str, u32)| {
        format!(
            "
  - name: {name}
    replicas: 1
    template:
      spec:
        parallelism: {pods}
        completions: {pods}
        template:
          metadata: {{annotations: {{kueue.x-k8s.io/podset-required-topology: rack{annotations}}}}}
          spec: {{restartPolicy: Never, containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]}}"
        )
    };
    let jobs: String = jobs.iter().map(job).collect();
    format!(
        "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: mine, namespace: a, labels: {{kueue.x-k8s.io/queue-name: main}}}}
spec:
  suspend: true
  replicatedJobs:{jobs}
---
"
    )
}

#[test]
fn what_an_earlier_pod_set_takes_does_not_fit_a_second_time() {
    // One rack of 6 cpus: the first pod set gets 4 of them.
    let nodes = ["n0", "n1", "n2"].map(|name| node(name, "b", "r0")).concat();
    let set = job_set(&[("first", 4), ("second", 4)], "");
    let explained = ask(&read(&[RACKS, CLUSTER_QUEUE, LOCAL_QUEUE, &nodes, &set].concat()), options());
    let found = short(&explained);
    let text = explained.text();
    assert_eq!(
        found.text,
        "pod set second needs 4 pods in one domain of the level rack (required) on nodes of flavor default; 2 fit now",
        "{text}"
    );
    assert_eq!(
        found.details[1..],
        [
            "rack (1 domain(s)): at most 2 pod(s) of this shape in one, 2 in all; 2 in b/r0",
            "kubernetes.io/hostname (3 domain(s)): at most 2 pod(s) of this shape in one, 2 in all",
            "these counts are of what is free on nodes that the pods select and whose taints they tolerate, without what the pods of pod set first \
             take of them",
            "topology \"racks\" allows to fit only 2 out of 4 pod(s). Total nodes: 3; excluded: resource \"cpu\": 2",
        ],
        "{text}"
    );
    assert_eq!(explained.topology[0].placed, ["first"]);
}

#[test]
fn workers_are_counted_beside_their_leader_and_reported_once() {
    // Each rack has room for 4 pods, one of which is the leader.
    let nodes =
        [("n0", "r0"), ("n1", "r0"), ("n2", "r1"), ("n3", "r1")].map(|(name, rack)| node(name, "b", rack));
    let group = ", kueue.x-k8s.io/podset-group-name: g";
    for jobs in [[("leader", 1), ("worker", 4)], [("worker", 4), ("leader", 1)]] {
        let world = [RACKS, CLUSTER_QUEUE, LOCAL_QUEUE, &nodes.concat(), &job_set(&jobs, group)].concat();
        let explained = ask(&read(&world), options());
        let text = explained.text();
        let found: Vec<_> = explained.findings.iter().filter(|f| f.code == Code::TopologyShort).collect();
        assert_eq!(found.len(), 1, "{text}");
        assert_eq!(
            found[0].text,
            "pod set worker needs 4 pods and their leader (pod set leader) in one domain of the level rack (required) on \
             nodes of flavor default; 3 fit now beside the leader",
            "{text}"
        );
        assert_eq!(
            found[0].details[..2],
            [
                "block (1 domain(s)): at most 7 pod(s) of this shape in one, 7 in all; 7 in b",
                "rack (2 domain(s)): at most 3 pod(s) of this shape in one, 7 in all; 3 in b/r0, 3 in b/r1",
            ],
            "{text}"
        );
        assert_eq!(explained.topology[0].leader.as_deref(), Some("leader"));
        remedy(&explained, "ask for one block (a higher level) instead of one rack");
    }
}
