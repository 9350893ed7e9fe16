//! Queues with several flavors: a displaced workload reserves capacity only where it can run.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_engine::EngineConfig;

use crate::bed::{Bed, TPU};

/// A queue with the flavor of pools `o…` and then that of all others, with `old` and `new` chips.
fn bed(first: &str, old: i64, new: i64) -> Bed {
    with_flavors(Bed::new(), first, old, new)
}

fn with_flavors(mut bed: Bed, first: &str, old: i64, new: i64) -> Bed {
    bed.c.api.flavor("old", &[("accelerator", "v5e")]);
    let quota =
        |name: &str, chips: i64| json!({"name": name, "resources": [{"name": TPU, "nominalQuota": chips}]});
    let mut flavors = vec![quota("old", old), quota("tpu", new)];
    if first == "tpu" {
        flavors.reverse();
    }
    let groups = json!({"resourceGroups": [{"coveredResources": [TPU], "flavors": flavors}]});
    bed.queue("q", 0, &json!({"enable": true}), &groups);
    bed.pools(&["a", "b", "c", "d", "o", "p"], 4);
    for node in bed.nodes_of(&["o", "p"]) {
        bed.c.api.edit(&node, &json!({"metadata": {"labels": {"accelerator": "v5e"}}}));
    }
    bed.settle();
    bed
}

/// A JobSet of two slices, on one accelerator only if one is named.
fn jobset(bed: &mut Bed, name: &str, priority: &str, accelerator: Option<&str>) {
    bed.jobset(name, "q", priority, 2);
    let mut view = bed.c.api.job(name).view.clone();
    if let Some(accelerator) = accelerator {
        let template = Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
        let selector = [("accelerator".to_owned(), accelerator.to_owned())];
        template.spec.as_mut().unwrap().node_selector = Some(selector.clone().into());
        view.pod_sets[0].scheduling.node_selector = selector.into();
    }
    bed.c.api.add_job(view);
}

/// `high` on A and B, `low` on C and D.
fn both(bed: &mut Bed, accelerator: Option<&str>) {
    jobset(bed, "high", "high", accelerator);
    bed.settle();
    jobset(bed, "low", "low", Some("v6e"));
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["a", "b"]);
    assert_eq!(bed.pools_of("low"), ["c", "d"]);
}

/// Pool A goes; the engine acts, but pods have not ended yet.
fn pool_a_goes(bed: &mut Bed) {
    go(bed, &["a"]);
}

/// The same with some pools.
fn go(bed: &mut Bed, pools: &[&str]) {
    for node in bed.nodes_of(pools) {
        let label = json!({"metadata": {"labels": {"cloud.google.com/active-node-maintenance": "true"}}});
        bed.c.api.edit(&node, &label);
    }
    bed.c.advance(1);
}

fn cordon(bed: &mut Bed, pools: &[&str], value: &Value) {
    for node in bed.nodes_of(pools) {
        bed.c.api.edit(&node, &json!({"spec": {"unschedulable": value}}));
    }
}

#[test]
fn nodes_of_two_flavors_count_once() {
    let mut bed = Bed::new();
    bed.c.api.flavor("zone", &[("accelerator", "v6e"), ("zone", "a")]);
    bed.pools(&["a", "b"], 4);
    for node in bed.nodes_of(&["a"]) {
        bed.c.api.edit(&node, &json!({"metadata": {"labels": {"zone": "a"}}}));
    }
    let flavors = json!([{"name": "zone", "resources": [{"name": TPU, "nominalQuota": 16}]}]);
    let groups = json!({"resourceGroups": [{"coveredResources": [TPU], "flavors": flavors}]});
    bed.queue("zonal", 0, &json!({"enable": true}), &groups);
    bed.page_queue(64);
    bed.jobset("zonal", "zonal", "low", 1);
    bed.pass(3);
    assert_eq!(bed.pools_of("zonal"), ["a"]);
    bed.jobset("wide", "q", "low", 2);
    bed.pass(3);
    let waits = bed.reported("wide", "QuotaReserved");
    assert!(waits.starts_with("False/WaitingForCapacity") && waits.contains("16 more needed"), "{waits}");
    bed.c.api.finish_job("zonal", true);
    for (_, _, pod) in bed.pods() {
        bed.c.api.delete(&pod);
    }
    bed.pass(3);
    assert_eq!(bed.pools_of("wide"), ["a", "b"]);
}

#[test]
fn nodes_of_another_flavor_are_a_spare() {
    let mut bed = bed("tpu", 32, 64);
    both(&mut bed, None);
    pool_a_goes(&mut bed);
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["o", "p"]);
    assert!(bed.runs("low") && bed.evictions("low").is_empty());
}

#[test]
fn a_flavor_without_quota_for_it_is_no_spare() {
    let mut bed = bed("tpu", 16, 64);
    both(&mut bed, None);
    pool_a_goes(&mut bed);
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["b", "c"]);
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
}

#[test]
fn what_it_goes_to_is_kept_for_it_until_it_runs() {
    let mut bed = bed("tpu", 64, 64);
    both(&mut bed, None);
    pool_a_goes(&mut bed);
    assert!(!bed.runs("high"), "its pods are ending");
    jobset(&mut bed, "new", "low", Some("v5e"));
    bed.c.settle();
    assert!(bed.reported("new", "QuotaReserved").starts_with("False/WaitingForCapacity"));
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["o", "p"]);
    assert!(!bed.runs("new"));
}

#[test]
fn what_it_goes_to_is_kept_for_it_while_the_search_for_one_before_it_is_cut() {
    let config = EngineConfig { status_interval_ms: 0, hotswap_steps: 0, ..EngineConfig::default() };
    let mut bed = with_flavors(Bed::with(config), "tpu", 64, 128);
    bed.pools(&["e", "f", "g", "h"], 4);
    bed.c.api.priority_class("top", 3_000_000);
    jobset(&mut bed, "top", "top", Some("v6e"));
    bed.settle();
    jobset(&mut bed, "high", "high", None);
    bed.settle();
    for name in ["more", "most"] {
        jobset(&mut bed, name, "top", Some("v6e"));
        bed.settle();
    }
    assert_eq!([bed.pools_of("top"), bed.pools_of("high")], [["a", "b"], ["c", "d"]]);
    go(&mut bed, &["c"]);
    assert!(!bed.runs("high") && !bed.evictions("high").is_empty(), "its pods are ending");
    // What goes before it finds nothing, which takes more than one cycle to find out.
    jobset(&mut bed, "new", "low", Some("v5e"));
    go(&mut bed, &["a", "d"]);
    bed.pass(3);
    assert!(bed.runs("top") && !bed.listed("top").is_empty());
    assert!(bed.c.notes("Admitted").iter().all(|note| !note.contains("jobset-new")));
    assert_eq!(bed.pools_of("high"), ["o", "p"]);
}

#[test]
fn one_that_waits_keeps_nothing_of_a_flavor_that_it_cannot_use() {
    let mut bed = bed("old", 32, 64);
    both(&mut bed, Some("v6e"));
    pool_a_goes(&mut bed);
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
    // While the pods end, what was meant for it goes, too.
    cordon(&mut bed, &["c", "d"], &json!(true));
    bed.pass(3);
    assert!(!bed.runs("high"), "{}", bed.reported("high", "QuotaReserved"));
    jobset(&mut bed, "new", "low", None);
    bed.pass(3);
    assert_eq!(bed.pools_of("new"), ["o", "p"]);
    cordon(&mut bed, &["c", "d"], &json!(false));
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["b", "c"], "it has not lost its claim");
    assert!(!bed.runs("low"));
}
