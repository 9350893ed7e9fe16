//! Slices of which a node is lost while others move, or while it is not possible to move them (not in Kueue).

use serde_json::json;
use sluice_api::gates::Gate;

use crate::model::Cluster;
use crate::moved_slices::{AFTER, assigned_elsewhere, end, hotswap, lose, pod_ref, pods, put, started};
use crate::topology::{add_pod, names_of, node_ref, workload};

const WAITS: [(Gate, bool); 1] = [(Gate::TASFailedNodeReplacementFailFast, false)];

#[test]
fn pods_leave_the_old_nodes_of_a_moved_slice_though_another_node_is_lost() {
    let mut c = started(&WAITS, &hotswap(), |_| {});
    put(&mut c, "late", 1, Some("a1"));
    c.api.edit(&pod_ref("late"), &json!({"spec": {"nodeName": null}}));
    c.api.edit_status(&pod_ref("late"), |status| status["phase"] = json!("Pending"));
    c.api.delete(&node_ref("b0"));
    end(&mut c, "p2");
    assigned_elsewhere(&mut c);
    let key = workload(&c, "a");
    c.api.edit_status(&key, |status| status["unhealthyNodes"] = json!([{"name": "b0"}]));
    c.settle();
    let late = c.api.json(&pod_ref("late")).unwrap();
    assert_eq!(late["status"]["phase"], "Failed");
    let mut conditions = late["status"]["conditions"].as_array().unwrap().iter();
    assert!(conditions.any(|condition| condition["type"] == "DisruptionTarget"), "{late}");
    c.advance(1);
    assert!(!pods(&c).contains(&"p0 a0".to_owned()), "{:?}", pods(&c));
}

/// A slice that lost a node, and waits for a rack that another pod takes.
fn waiting(spare: u32) -> Cluster {
    let mut c = started(&WAITS, &hotswap(), |view| view.spare_failures = Some(spare));
    let other = add_pod(&mut c, "other", "c0", "1");
    lose(&mut c, "a1", "p1");
    assert!(!c.notes("SecondPassFailed").is_empty());
    c.api.delete(&other);
    c
}

#[test]
fn whether_a_slice_moves_depends_on_how_many_pods_may_fail_by_then() {
    // It must not any more.
    let mut c = waiting(6);
    c.api.edit_job("a", |job| job.view.spare_failures = Some(0));
    c.settle();
    c.advance(60);
    assert_ne!(names_of(&c, "a"), AFTER);
    assert!(pods(&c).contains(&"p0 a0".to_owned()), "{:?}", pods(&c));
    // It may by now.
    let mut c = waiting(0);
    c.settle();
    c.advance(60);
    assert_ne!(names_of(&c, "a"), AFTER);
    c.api.edit_job("a", |job| job.view.spare_failures = Some(6));
    c.settle();
    c.advance(60);
    assert_eq!(names_of(&c, "a"), AFTER);
}
