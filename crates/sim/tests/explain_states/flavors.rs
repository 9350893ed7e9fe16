//! Flavors that the pods keep out: by their node selector or affinity, or because they do not tolerate a taint.

use super::table::{Row, row};
use super::*;

pub(super) const TAINTED: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
spec:
  nodeLabels: {kind: spot}
  nodeTaints: [{key: costly, value: \"yes\", effect: NoSchedule}]
---
";

/// A flavor of spot nodes, and pods that say this of their nodes.
fn spot(wish: &str) -> String {
    let taint = "  nodeTaints: [{key: costly, value: \"yes\", effect: NoSchedule}]\n";
    let wish = format!("restartPolicy: Never\n      {wish}");
    world().replace(FLAVOR, TAINTED).replace(taint, "").replace("restartPolicy: Never", &wish)
}

/// A required node affinity of these terms.
fn affinity(terms: &str) -> String {
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}}}}}"
    )
}

/// A flavor of another zone, which the queue does not have: its labels are no matter of the queue's flavor.
const EU: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: eu}
spec: {nodeLabels: {zone: eu}}
---
";

/// The same nodes with their taint. What the flavor says of tolerations, and the pods of their nodes.
fn tainted(tolerations: &str, wish: &str) -> String {
    let flavor = format!("{}{tolerations}---\n", TAINTED.trim_end_matches("---\n"));
    world()
        .replace(FLAVOR, &flavor)
        .replace("restartPolicy: Never", &format!("restartPolicy: Never\n      {wish}"))
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "node selector",
            spot("nodeSelector: {kind: reserved}"),
            Code::FlavorMismatch,
            &["the pods ask for kind=reserved (node selector); labels of the flavor default: kind=spot"],
            Act::Follow("without the node selector kind=reserved"),
        ),
        row(
            "node affinity",
            spot(&affinity("{matchExpressions: [{key: kind, operator: In, values: [reserved]}]}")),
            Code::FlavorMismatch,
            &["the pods ask for kind In [reserved] (node affinity); labels of the flavor default: kind=spot"],
            Act::Follow("without the node affinity kind In [reserved]"),
        ),
        row(
            "node affinity of two terms, of which one is enough",
            spot(&affinity(
                "{matchExpressions: [{key: kind, operator: In, values: [reserved]}]}, \
                 {matchExpressions: [{key: kind, operator: In, values: [x]}, {key: kind, operator: NotIn, values: [spot]}]}",
            )),
            Code::FlavorMismatch,
            &["the pods ask for kind In [reserved] (node affinity) or (kind In [x] (node affinity) and \
               kind NotIn [spot] (node affinity)); labels of the flavor default: kind=spot"],
            Act::Follow("without the node affinity kind In [reserved]"),
        ),
        row(
            "node selector, with a key that is a label of another flavor alone",
            [&spot("nodeSelector: {kind: reserved, zone: eu}"), EU].concat(),
            Code::FlavorMismatch,
            &["the pods ask for kind=reserved (node selector); labels of the flavor default: kind=spot"],
            Act::Follow("starts now if flavor default is allowed: without the node selector kind=reserved"),
        ),
        row(
            "node affinity, with a key that is a label of another flavor alone",
            [
                &spot(&affinity(
                    "{matchExpressions: [{key: kind, operator: In, values: [reserved]}, {key: zone, operator: In, values: [us]}]}",
                )),
                EU,
            ]
            .concat(),
            Code::FlavorMismatch,
            &["the pods ask for kind In [reserved] (node affinity); labels of the flavor default: kind=spot"],
            Act::Follow("starts now if flavor default is allowed: without the node affinity kind In [reserved]"),
        ),
        row(
            "node selector, and a node affinity that does not count for the flavor",
            [
                &spot(&format!(
                    "nodeSelector: {{kind: reserved}}\n      {}",
                    affinity("{matchExpressions: [{key: zone, operator: In, values: [us]}]}")
                )),
                EU,
            ]
            .concat(),
            Code::FlavorMismatch,
            &["the pods ask for kind=reserved (node selector); labels of the flavor default: kind=spot"],
            Act::Follow("starts now if flavor default is allowed: without the node selector kind=reserved"),
        ),
        row(
            "taint",
            world().replace(FLAVOR, TAINTED),
            Code::FlavorMismatch,
            &["the pods do not tolerate the taint costly=yes:NoSchedule of the flavor default"],
            Act::Follow("tolerate the taint costly"),
        ),
        row(
            "node selector, and a taint that the flavor tolerates itself",
            tainted("  tolerations: [{key: costly, operator: Exists}]\n", "nodeSelector: {kind: reserved}"),
            Code::FlavorMismatch,
            &[],
            Act::Follow("starts now if flavor default is allowed: without the node selector kind=reserved"),
        ),
        row(
            "node selector, and a taint whose value the pods tolerate",
            tainted(
                "",
                "tolerations: [{key: costly, operator: Equal, value: \"yes\"}]\n      nodeSelector: {kind: reserved}",
            ),
            Code::FlavorMismatch,
            &[],
            Act::Follow("starts now if flavor default is allowed: without the node selector kind=reserved"),
        ),
        row(
            "node selector of pods that tolerate every taint",
            tainted("", "tolerations: [{operator: Exists}]\n      nodeSelector: {kind: reserved}"),
            Code::FlavorMismatch,
            &[],
            Act::Follow("starts now if flavor default is allowed: without the node selector kind=reserved"),
        ),
        row(
            "taint of which the pods tolerate another effect",
            tainted("", "tolerations: [{key: costly, operator: Exists, effect: NoExecute}]"),
            Code::FlavorMismatch,
            &[],
            Act::Follow("starts now if flavor default is allowed: tolerate the taint costly"),
        ),
    ]
}
