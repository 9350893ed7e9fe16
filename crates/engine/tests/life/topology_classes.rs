//! The overhead that a RuntimeClass adds to pods counts for their nodes, as in the API server.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::job::JobView;
use sluice_engine::{Kind, ObjectRef};

use crate::contract::submit;
use crate::model::Cluster;
use crate::topology::{THREE, bed, in_rack, names_of, node_ref, runs, taint, unhealthy};

const TAINT: &str = "sandbox.gke.io/runtime";

/// A rack of which one node is for sandboxed pods alone, and a RuntimeClass.
fn sandboxed(scheduling: &Value) -> Cluster {
    let mut c = bed(&THREE);
    let class = json!({"metadata": {"name": "gvisor"}, "handler": "gvisor", "scheduling": scheduling});
    c.api.put(Kind::RuntimeClass, class);
    c.api.edit(&node_ref("n3"), &json!({"metadata": {"labels": {"sandbox": "gvisor"}}}));
    taint(&mut c, "n3", &json!([{"key": TAINT, "value": "gvisor", "effect": "NoSchedule"}]));
    c
}

/// The RuntimeClass gets these tolerations, or none.
fn tolerate(c: &mut Cluster, tolerations: &Value) {
    let class = ObjectRef::cluster(Kind::RuntimeClass, "gvisor");
    c.api.edit(&class, &json!({"scheduling": {"tolerations": tolerations}}));
    c.settle();
}

fn scheduling() -> Value {
    json!({"nodeSelector": {"sandbox": "gvisor"}, "tolerations": [{"key": TAINT, "operator": "Exists"}]})
}

fn in_sandbox(view: &mut JobView) {
    in_rack(view);
    let template = view.pod_sets[0].template.as_mut().unwrap();
    Arc::make_mut(template).spec.as_mut().unwrap().runtime_class_name = Some("gvisor".to_owned());
}

#[test]
fn pods_of_a_runtime_class_go_where_its_selector_and_tolerations_let_them() {
    let mut c = sandboxed(&scheduling());
    submit(&mut c, "a", "lq", 1, in_sandbox);
    assert_eq!(names_of(&c, "a"), ["n3"]);
    c.advance(120);
    assert!(runs(&c, "a") && unhealthy(&c, "a").is_empty(), "the taint is tolerated");
    submit(&mut c, "b", "lq", 1, in_sandbox);
    assert!(!runs(&c, "b"), "the other nodes are none of its");
    submit(&mut c, "c", "lq", 2, in_rack);
    assert_eq!(names_of(&c, "c"), ["n1", "n2"]);
}

#[test]
fn a_runtime_class_that_changes_concerns_those_that_wait_and_those_that_run() {
    let mut c = sandboxed(&json!({"nodeSelector": {"sandbox": "gvisor"}}));
    submit(&mut c, "a", "lq", 1, in_sandbox);
    assert!(!runs(&c, "a"), "its pods do not tolerate the taint");
    let tolerations = scheduling()["tolerations"].clone();
    tolerate(&mut c, &tolerations);
    assert_eq!(names_of(&c, "a"), ["n3"]);
    tolerate(&mut c, &Value::Null);
    assert_eq!(unhealthy(&c, "a"), ["n3"], "nothing of it runs there");
    tolerate(&mut c, &tolerations);
    assert_eq!(unhealthy(&c, "a"), [""; 0]);
    c.api.delete(&ObjectRef::cluster(Kind::RuntimeClass, "gvisor"));
    c.settle();
    assert_eq!(unhealthy(&c, "a"), ["n3"]);
}
