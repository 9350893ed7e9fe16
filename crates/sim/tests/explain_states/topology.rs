//! Nodes without capacity for the pods as close together as they require.

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

#[test]
pub fn a_topology_that_is_short_names_level_and_domains_and_offers_only_wishes_that_work() {
    let nodes: String =
        [("n0", "b", "r0"), ("n1", "b", "r0"), ("n2", "b", "r1")].map(|(n, b, r)| node(n, b, r)).concat();
    let job = |level: &str| {
        JOB.replace(
            "template:\n    spec:",
            &format!("template:\n    metadata: {{annotations: {{kueue.x-k8s.io/podset-required-topology: {level}}}}}\n    spec:"),
        )
    };
    let world = |level: &str| [RACKS, CLUSTER_QUEUE, LOCAL_QUEUE, &nodes, &job(level)].concat();
    let explained = ask(&read(&world("kubernetes.io/hostname")), options());
    let text = explained.text();
    let short = explained.findings.iter().find(|f| f.code == Code::TopologyShort);
    let short = short.unwrap_or_else(|| unreachable!("{text}"));
    assert_eq!(
        short.text,
        "the 4 pods of pod set main are to be in one domain of the level kubernetes.io/hostname (required) on nodes of \
         flavor default, where 2 fit now"
    );
    assert_eq!(
        short.details[..3],
        [
            "block (1 domain(s)): at most 6 pod(s) of this shape in one, 6 in all; 6 in b",
            "rack (2 domain(s)): at most 4 pod(s) of this shape in one, 6 in all; 4 in b/r0, 2 in b/r1",
            "kubernetes.io/hostname (3 domain(s)): at most 2 pod(s) of this shape in one, 6 in all",
        ]
    );
    // Nodes are named to one who may list them.
    let manifests = read(&world("kubernetes.io/hostname"));
    let named = Question { names_nodes: true, ..question(&manifests, "mine") }.answer().unwrap();
    let short = named.findings.iter().find(|f| f.code == Code::TopologyShort).unwrap();
    assert_eq!(
        short.details[2],
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
