//! The overhead that the API server adds to pods by their RuntimeClass counts when healthy nodes are searched.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_engine::{Kind, ObjectRef};

use crate::bed::Bed;

/// Four pools of sandboxed nodes; one of the two on which a JobSet of that RuntimeClass runs fails.
fn sandboxed(scheduling: &Value) -> Bed {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.c.api.put(Kind::RuntimeClass, json!({"metadata": {"name": "gvisor"}, "handler": "gvisor"}));
    bed.pools(&["a", "b", "c", "d"], 4);
    bed.jobset("one", "q", "high", 2);
    bed.c.api.edit_job("one", |job| {
        let template = job.view.pod_sets[0].template.as_mut().unwrap();
        Arc::make_mut(template).spec.as_mut().unwrap().runtime_class_name = Some("gvisor".to_owned());
    });
    bed.pass(3);
    assert!(bed.runs("one"));
    // Only now: the scheduler of these tests knows no tolerations.
    for node in bed.nodes_of(&["a", "b", "c", "d"]) {
        let taint = json!({"key": "sandbox.gke.io/runtime", "value": "gvisor", "effect": "NoSchedule"});
        bed.c.api.edit(&node, &json!({"spec": {"taints": [taint]}}));
    }
    // As well: it counts when a flavor is chosen, too.
    let class = ObjectRef::cluster(Kind::RuntimeClass, "gvisor");
    bed.c.api.edit(&class, &json!({"scheduling": scheduling}));
    bed.fail(&["a"]);
    bed.pass(40);
    bed
}

#[test]
fn tolerations_and_selectors_of_a_runtime_class_are_those_of_its_pods() {
    let tolerations =
        json!([{"key": "sandbox.gke.io/runtime", "operator": "Exists", "effect": "NoSchedule"}]);
    let moved = |scheduling: Value| !sandboxed(&scheduling).evictions("one").is_empty();
    assert!(moved(json!({"tolerations": tolerations})));
    assert!(moved(json!({"tolerations": tolerations, "nodeSelector": {"accelerator": "v6e"}})));
    assert!(
        !moved(json!({"tolerations": tolerations, "nodeSelector": {"accelerator": "v5p"}})),
        "no such node"
    );
    assert!(!moved(Value::Null), "the pods do not tolerate the nodes' taint");
}

#[test]
fn a_runtime_class_that_is_mended_lets_them_move() {
    let mut bed = sandboxed(&Value::Null);
    assert!(bed.evictions("one").is_empty());
    let tolerations = json!([{"key": "sandbox.gke.io/runtime", "operator": "Exists"}]);
    let class = ObjectRef::cluster(Kind::RuntimeClass, "gvisor");
    bed.c.api.edit(&class, &json!({"scheduling": {"tolerations": tolerations}}));
    bed.pass(10);
    assert!(!bed.evictions("one").is_empty());
}
