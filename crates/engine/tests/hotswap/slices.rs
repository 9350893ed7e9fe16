//! Which groups of nodes are slices, and whether they are complete.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::job::ExclusiveTopology;

use crate::bed::{Bed, POOL, TPU};

const TOPOLOGY: &str = "cloud.google.com/gke-tpu-topology";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Pools of four nodes each, which say that they are slices of sixteen chips and what they are called.
fn slices(names: &[&str]) -> Bed {
    let mut bed = Bed::new();
    bed.page_queue(256);
    bed.pools(names, 4);
    for node in bed.nodes_of(names) {
        let labels = json!({TOPOLOGY: "4x4", HOSTNAME: &*node.name, "rack": format!("r-{}", &*node.name)});
        bed.c.api.edit(&node, &json!({"metadata": {"labels": labels}}));
    }
    bed.settle();
    bed
}

/// A JobSet of pods that take a group by this label each.
fn jobset(bed: &mut Bed, name: &str, label: &str, count: i32) {
    bed.sized_jobset(name, "q", "low", count, 1);
    let mut view = bed.c.api.job(name).view.clone();
    view.pod_sets[0].exclusive_topology = Some(ExclusiveTopology { key: label.to_owned(), replicas: count });
    bed.c.api.add_job(view);
    bed.c.settle();
}

/// A batch Job that wants `chips` chips in pods of four.
fn plain(bed: &mut Bed, name: &str, chips: i32) {
    let mut view = crate::model::build::job("team-a", name, "q", chips / 4, "1");
    let template = Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
    let spec = template.spec.as_mut().unwrap();
    spec.containers[0].resources = serde_json::from_value(json!({"limits": {TPU: "4"}})).unwrap();
    view.pod_sets[0].containers_hash = sluice_api::names::containers_hash(spec);
    bed.c.api.add_job(view);
    bed.c.settle();
}

/// How many chips are said to be missing.
fn missing(bed: &Bed, name: &str) -> String {
    let reported = bed.reported(name, "QuotaReserved");
    reported.rsplit_once("flavor tpu, ").map_or(reported.clone(), |(_, missing)| missing.to_owned())
}

#[test]
fn a_slice_that_misses_a_node_does_not_count() {
    for pools in [&["a", "b"][..], &["a"]] {
        let mut bed = slices(pools);
        let node = bed.nodes_of(&["a"]).remove(1);
        bed.c.api.delete(&node);
        bed.pass(2);
        let whole = i32::try_from(pools.len()).unwrap() - 1;
        bed.sized_jobset("one", "q", "low", whole + 1, 3);
        bed.pass(2);
        assert!(!bed.runs("one"), "three pods would fit on the three nodes that are left");
        assert!(bed.reported("one", "QuotaReserved").starts_with("False/WaitingForCapacity"), "{pools:?}");
        plain(&mut bed, "rest", 64);
        assert_eq!(missing(&bed, "rest"), format!("{} more needed", 64 - 16 * whole), "{pools:?}");
    }
}

#[test]
fn nodes_one_by_one_are_no_slices_whatever_slice_they_are_of() {
    for label in [HOSTNAME, "rack"] {
        let mut bed = slices(&["a", "b"]);
        jobset(&mut bed, "spread", label, 2);
        assert!(
            bed.reported("spread", "Admitted").starts_with("True"),
            "{label}: {}",
            bed.reported("spread", "QuotaReserved")
        );
        plain(&mut bed, "rest", 32);
        assert_eq!(missing(&bed, "rest"), "8 more needed", "{label}: all nodes count");
    }
}

#[test]
fn a_node_of_its_own_is_none_either_if_a_single_one_has_the_label() {
    let mut bed = slices(&["a"]);
    for node in bed.nodes_of(&["a"]).into_iter().skip(1) {
        bed.c.api.delete(&node);
    }
    jobset(&mut bed, "spread", HOSTNAME, 1);
    assert!(
        bed.reported("spread", "Admitted").starts_with("True"),
        "{}",
        bed.reported("spread", "QuotaReserved")
    );
}

#[test]
fn slices_and_single_nodes_side_by_side_are_distinguished() {
    let mut bed = slices(&["a", "b"]);
    jobset(&mut bed, "spread", HOSTNAME, 1);
    let node = bed.nodes_of(&["b"]).remove(0);
    bed.c.api.delete(&node);
    jobset(&mut bed, "slice", POOL, 1);
    plain(&mut bed, "rest", 64);
    assert_eq!(missing(&bed, "rest"), "56 more needed", "of pool A only, less what runs");
}

#[test]
fn a_device_that_no_node_has_registered_yet_is_none() {
    let mut bed = Bed::new();
    bed.page_queue(256);
    bed.pools(&["a"], 4);
    let without: Value = json!({"pods": "110"});
    for node in bed.nodes_of(&["a"]) {
        bed.c.api.edit_status(&node, |status| status["allocatable"] = without.clone());
    }
    plain(&mut bed, "one", 16);
    assert_eq!(missing(&bed, "one"), "16 more needed");
    for node in bed.nodes_of(&["a"]) {
        bed.c.api.edit_status(&node, |status| status["allocatable"] = json!({"pods": "110", TPU: "4"}));
    }
    bed.c.advance(1);
    assert!(bed.reported("one", "Admitted").starts_with("True"), "{}", bed.reported("one", "QuotaReserved"));
}
