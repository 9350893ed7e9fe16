//! `kubectl drain`: pods leave a cordoned node, which may be removed before the next pass.

use serde_json::json;
use sluice_engine::{Input, ObjectRef};

use crate::bed::Bed;
use crate::page::page;

fn node(bed: &Bed, name: &str) -> ObjectRef {
    let pool = name.split('-').next().unwrap();
    bed.nodes_of(&[pool]).into_iter().find(|node| *node.name == *name).unwrap()
}

fn cordon(bed: &mut Bed, name: &str, value: bool) {
    let node = node(bed, name);
    bed.c.api.edit(&node, &json!({"spec": {"unschedulable": value}}));
}

/// The pods on a node.
fn pods_on(bed: &Bed, name: &str) -> Vec<ObjectRef> {
    bed.pods().into_iter().filter(|(_, on, _)| on == name).map(|(_, _, pod)| pod).collect()
}

/// The pods on a node are asked to go.
fn ask_to_go(bed: &mut Bed, name: &str) {
    for pod in pods_on(bed, name) {
        let at = bed.now().to_string();
        bed.c.api.edit(&pod, &json!({"metadata": {"deletionTimestamp": at}}));
    }
}

/// The same, and they are gone before the engine has its next cycle.
fn vanish(bed: &mut Bed, name: &str) {
    ask_to_go(bed, name);
    for pod in pods_on(bed, name) {
        let object = bed.c.api.seen(&pod);
        bed.c.engine.apply(bed.c.now, Input::Applied(object));
        bed.c.api.delete(&pod);
    }
}

/// The pods on a node are gone, or have ended: the watch does not say which.
fn pods_go(bed: &mut Bed, name: &str) {
    for pod in pods_on(bed, name) {
        bed.c.api.delete(&pod);
    }
}

fn assert_no_eviction(bed: &Bed) {
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());
    assert!(bed.runs("high") && bed.runs("low") && bed.listed("high").is_empty());
    assert!(bed.c.notes("HotswapNotPossible").is_empty());
}

/// Two JobSets of equal priority with two pools each.
fn equals() -> Bed {
    let mut bed = Bed::new();
    bed.page_queue(80);
    bed.pools(&["a", "b", "c", "d"], 4);
    for name in ["high", "low"] {
        bed.jobset(name, "q", "high", 2);
        bed.pass(2);
    }
    bed
}

#[test]
fn pods_that_leave_a_drained_node_displace_their_jobset() {
    let mut bed = page(64);
    cordon(&mut bed, "a-0", true);
    bed.pass(40);
    assert_no_eviction(&bed);
    ask_to_go(&mut bed, "a-0");
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["b", "c"]);
    let why = "True/NodeFailures: Workload was evicted to leave unhealthy node(s): a-0";
    assert_eq!(bed.reported("high", "Requeued"), why);
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
    cordon(&mut bed, "a-0", false);
    bed.pass(3);
    assert!(bed.runs("high") && bed.runs("low"));
    assert_eq!(bed.evictions("high").len() + bed.evictions("low").len(), 2, "once each");
}

#[test]
fn pods_that_were_gone_before_the_look_displace_their_jobset_too() {
    for whole in [false, true] {
        let mut bed = page(64);
        cordon(&mut bed, "a-0", true);
        bed.pass(2);
        vanish(&mut bed, "a-0");
        if whole {
            let node = node(&bed, "a-0");
            bed.c.api.delete(&node);
        }
        bed.pass(3);
        assert_eq!(bed.pools_of("high"), ["b", "c"], "with the node: {whole}");
        assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    }
}

#[test]
fn a_drained_node_stays_listed_while_it_is_closed_and_when_it_is_gone() {
    let mut bed = equals();
    cordon(&mut bed, "a-0", true);
    ask_to_go(&mut bed, "a-0");
    bed.pass(2);
    assert_eq!(bed.listed("high"), ["a-0"]);
    assert_eq!(bed.c.notes("HotswapNotPossible").len(), 1);
    pods_go(&mut bed, "a-0");
    bed.pass(20);
    assert_eq!(bed.listed("high"), ["a-0"], "its pods are gone, and where could they be?");
    bed.c.restart();
    bed.pass(2);
    assert_eq!(bed.listed("high"), ["a-0"], "a leader that comes now knows, too");
    let gone = node(&bed, "a-0");
    bed.c.api.delete(&gone);
    bed.pass(20);
    assert_eq!(bed.listed("high"), ["a-0"]);
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());

    bed.pools(&["e"], 4);
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["b", "e"]);
    assert!(bed.listed("high").is_empty());
}

#[test]
fn an_uncordoned_node_is_not_lost() {
    let mut bed = equals();
    cordon(&mut bed, "a-0", true);
    vanish(&mut bed, "a-0");
    bed.pass(2);
    assert_eq!(bed.listed("high"), ["a-0"]);
    cordon(&mut bed, "a-0", false);
    bed.pass(2);
    assert!(bed.listed("high").is_empty() && bed.evictions("high").is_empty());
    bed.pools(&["e"], 4);
    bed.pass(3);
    assert!(bed.evictions("high").is_empty(), "its pods can come back where they were");
}

#[test]
fn a_cordon_alone_takes_no_node_from_a_jobset_on_it() {
    let mut bed = equals();
    bed.pools(&["e"], 4);
    // Not ready for a while, then well again, but cordoned; and a pod is missing elsewhere.
    let brief = node(&bed, "a-0");
    bed.ready(&brief, "False");
    cordon(&mut bed, "e-0", true);
    bed.pass(35);
    assert_eq!(bed.listed("high"), ["a-0"]);
    cordon(&mut bed, "a-0", true);
    bed.ready(&brief, "True");
    pods_go(&mut bed, "b-3");
    bed.pass(5);
    cordon(&mut bed, "e-0", false);
    bed.pass(5);
    assert!(bed.evictions("high").is_empty() && bed.listed("high").is_empty());
}

#[test]
fn pods_that_leave_a_healthy_node_displace_no_jobset() {
    let mut bed = page(64);
    ask_to_go(&mut bed, "a-0");
    bed.pass(2);
    pods_go(&mut bed, "a-0");
    bed.pass(40);
    assert_no_eviction(&bed);
    // Long after: it was empty, and the autoscaler takes it away.
    let empty = node(&bed, "a-0");
    bed.c.api.delete(&empty);
    bed.pass(5);
    assert_no_eviction(&bed);
}

#[test]
fn pods_that_end_on_a_cordoned_node_displace_no_jobset() {
    for shown in [true, false] {
        let mut bed = page(64);
        cordon(&mut bed, "a-0", true);
        for pod in pods_on(&bed, "a-0").into_iter().filter(|_| shown) {
            bed.c.api.edit_status(&pod, |status| status["phase"] = json!("Succeeded"));
        }
        bed.pass(2);
        pods_go(&mut bed, "a-0");
        bed.pass(40);
        assert_no_eviction(&bed);
    }
}

#[test]
fn pods_of_a_jobset_that_is_deleted_displace_no_other() {
    let mut bed = page(64);
    cordon(&mut bed, "a-0", true);
    bed.c.api.edit_job("high", |job| job.view.deleting = true);
    ask_to_go(&mut bed, "a-0");
    bed.pass(5);
    assert_no_eviction(&bed);
}

#[test]
fn once_its_pods_run_elsewhere_a_drained_node_is_of_no_interest() {
    let mut bed = page(64);
    bed.pools(&["e"], 4);
    cordon(&mut bed, "a-0", true);
    // The whole slice goes to the spare pool by itself, and one of the old pods takes its time.
    for index in 0..4 {
        let name = format!("a-{index}");
        if index == 0 {
            ask_to_go(&mut bed, &name);
        } else {
            pods_go(&mut bed, &name);
        }
        bed.bind(&format!("high-again-{index}"), Some("high"), &format!("e-{index}"), 4);
    }
    bed.pass(40);
    assert_no_eviction(&bed);
}
