//! Pods that hold no quota, and what they take of the capacity of a flavor without a look at everything. An audit after each step compares what is kept of
//! the last look with a new sum.

use serde_json::json;
use sluice_engine::{Kind, ObjectRef};

use crate::bed::Bed;

fn pod(name: &str) -> ObjectRef {
    ObjectRef::namespaced(Kind::Pod, "team-a", name)
}

/// How many looks something causes. Then time passes.
fn looks(bed: &mut Bed, happens: impl FnOnce(&mut Bed)) -> u64 {
    let before = bed.c.engine.work().hotswap_looks;
    happens(bed);
    bed.c.settle();
    bed.c.advance(5);
    bed.c.engine.work().hotswap_looks - before
}

/// How many looks it causes that a pod without quota comes and goes, on a node.
fn of_a_pod(bed: &mut Bed, node: &str) -> [u64; 2] {
    let came = looks(bed, |bed| drop(bed.bind("other", None, node, 1)));
    [came, looks(bed, |bed| bed.c.api.delete(&pod("other")))]
}

fn cordon(bed: &mut Bed, node: &str, unschedulable: bool) {
    let node = ObjectRef::cluster(Kind::Node, node);
    bed.c.api.edit(&node, &json!({"spec": {"unschedulable": unschedulable}}));
}

/// Two pools of four nodes, and a queue with quota for more.
fn two_pools() -> Bed {
    let mut bed = Bed::new();
    bed.pools(&["a", "b"], 4);
    bed.page_queue(1_000);
    bed.settle();
    bed.c.advance(5);
    bed
}

#[test]
fn pods_that_hold_no_quota_take_and_give_back_capacity_without_a_look() {
    let mut bed = two_pools();
    let came = looks(&mut bed, |bed| {
        bed.bind("one", None, "a-0", 4);
        bed.bind("two", None, "a-1", 2);
    });
    assert_eq!(came, 0);
    bed.plain_jobset("j", "high", 8, 4);
    bed.pass(3);
    let why = bed.reported("j", "QuotaReserved");
    assert!(why.contains("6 more needed"), "{why}");
    assert_eq!(looks(&mut bed, |bed| bed.c.api.delete(&pod("one"))), 0);
    assert!(!bed.runs("j"), "two chips are still taken");
    assert_eq!(looks(&mut bed, |bed| bed.c.api.delete(&pod("two"))), 0);
    assert!(bed.runs("j"), "{}", bed.reported("j", "QuotaReserved"));
}

#[test]
fn limits_follow_pods_that_hold_no_quota_once_in_a_second() {
    let mut bed = two_pools();
    bed.bind("one", None, "a-0", 4);
    bed.bind("two", None, "a-1", 4);
    bed.plain_jobset("j", "high", 8, 4);
    bed.pass(3);
    assert!(!bed.runs("j"));
    bed.c.advance(5);
    let gone = |bed: &mut Bed, name: &str| {
        bed.c.api.delete(&pod(name));
        bed.c.settle();
        bed.runs("j")
    };
    assert!(!gone(&mut bed, "one"), "at once, but it is not enough");
    assert!(!gone(&mut bed, "two"), "not yet");
    bed.c.advance(2);
    assert!(bed.runs("j"));
}

#[test]
fn a_pod_on_a_node_that_is_not_healthy_or_in_a_group_that_is_not_whole_is_looked_at() {
    let mut bed = two_pools();
    bed.jobset("j", "q", "high", 1);
    bed.pass(5);
    assert_eq!(bed.pools_of("j"), ["a"]);
    assert_eq!(of_a_pod(&mut bed, "b-1"), [0, 0]);
    assert_eq!(looks(&mut bed, |bed| cordon(bed, "b-0", true)), 1);
    assert_eq!(of_a_pod(&mut bed, "b-0"), [1, 1], "it is cordoned");
    assert_eq!(of_a_pod(&mut bed, "b-1"), [1, 1], "jobs take the whole pool or nothing of it");
    assert_eq!(of_a_pod(&mut bed, "a-1"), [0, 0], "nothing but the limit changes");
    cordon(&mut bed, "b-0", false);
    bed.c.settle();
    bed.c.advance(5);
    assert_eq!(of_a_pod(&mut bed, "b-1"), [0, 0]);
}

#[test]
fn each_pod_is_looked_at_while_a_job_lacks_nodes() {
    let mut bed = two_pools();
    bed.jobset("j", "q", "high", 2);
    bed.pass(5);
    assert!(bed.runs("j"));
    bed.fail(&["a"]);
    bed.pass(60);
    let [came, gone] = of_a_pod(&mut bed, "b-1");
    assert!(came > 0 && gone > 0, "{came} and {gone}");
}

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    /// The next one, below this.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[test]
fn what_is_kept_is_what_a_look_sums_up_whatever_comes_and_goes() {
    for seed in 0..4 {
        let mut numbers = Numbers(seed);
        let mut bed = two_pools();
        bed.jobset("j", "q", "high", 1);
        bed.pass(3);
        let nodes = bed.nodes_of(&["a", "b"]);
        for step in 0..150 {
            match step {
                50 => bed.plain_jobset("k", "high", 1, 1),
                100 if bed.runs("k") => bed.c.api.finish_job("k", true),
                _ => {}
            }
            let node = nodes[numbers.below(nodes.len())].name.to_string();
            // Some name a job, and are counted as its quota while it holds some.
            let (name, jobset) = match numbers.below(10) {
                of @ 0..=5 => (format!("other-{of}"), None),
                of @ 6..=7 => (format!("early-{of}"), Some("k")),
                of => (format!("more-{of}"), Some("j")),
            };
            let is_there = bed.c.api.json(&pod(&name)).is_some();
            match numbers.below(8) {
                0 => cordon(&mut bed, &node, numbers.below(3) == 0),
                1 if is_there && jobset.is_none() => {
                    let at = bed.c.now.to_string();
                    bed.c.api.edit(&pod(&name), &json!({"metadata": {"deletionTimestamp": at}}));
                }
                _ if is_there => bed.c.api.delete(&pod(&name)),
                chips => drop(bed.bind(&name, jobset, &node, i64::try_from(chips).unwrap())),
            }
            bed.c.settle();
            if numbers.below(3) == 0 {
                bed.c.advance(1);
            }
        }
    }
}
