//! JobSets with assigned nodes: their failed nodes are replaced first, and Hotswap preempts if that is not possible.

use serde_json::json;
use sluice_api::gates::{Gate, Gates};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::bed::{Bed, POOL};

/// Pools of four nodes in a flavor with a topology.
fn bed(gates: &[(Gate, bool)], pools: &[&str]) -> Bed {
    let gates = gates.iter().fold(Gates::default(), |gates, (gate, on)| gates.with(*gate, *on));
    let mut bed = Bed::with(EngineConfig { gates, status_interval_ms: 0, ..EngineConfig::default() });
    bed.topology();
    bed.pools(pools, 4);
    bed.page_queue(64);
    bed
}

/// The nodes that a JobSet's only pod set is assigned to.
fn assigned(bed: &Bed, job: &str) -> Vec<String> {
    bed.assigned(job).into_iter().map(|(node, _)| node).collect()
}

/// Nodes that stop answering.
fn fail(bed: &mut Bed, nodes: &[&str]) {
    for node in nodes {
        bed.ready(&ObjectRef::cluster(Kind::Node, *node), "Unknown");
    }
}

#[test]
fn what_lost_several_nodes_is_evicted_once_and_others_make_room_for_it() {
    let mut bed = bed(&[], &["a", "b", "c", "d"]);
    bed.jobset("high", "q", "high", 2);
    bed.settle();
    bed.jobset("low", "q", "low", 2);
    bed.pass(3);
    assert!(bed.runs("high") && bed.runs("low"));
    assert!(assigned(&bed, "high").iter().all(|node| node.starts_with('a') || node.starts_with('b')));
    bed.fail(&["a"]);
    bed.pass(120);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
    assert!(bed.runs("high"));
    assert!(assigned(&bed, "high").iter().all(|node| !node.starts_with('a')));
}

#[test]
fn without_a_replacement_hotswap_moves_the_whole() {
    for hotswap in [true, false] {
        let gates = [(Gate::TASFailedNodeReplacementFailFast, false), (Gate::Hotswap, hotswap)];
        let mut bed = bed(&gates, &["a", "b"]);
        bed.jobset("high", "q", "high", 1);
        bed.settle();
        bed.jobset("low", "q", "low", 1);
        bed.pass(3);
        assert!(assigned(&bed, "high").iter().all(|node| node.starts_with('a')));
        bed.ready(&ObjectRef::cluster(Kind::Node, "a-1"), "Unknown");
        bed.pass(120);
        let moved = bed.evictions("high") == [("NodeFailures".to_owned(), 1)];
        assert_eq!(moved, hotswap);
        assert!(bed.runs("high") && bed.runs("low") != hotswap);
        assert_ne!(assigned(&bed, "high").contains(&"a-1".to_owned()), hotswap);
        assert_eq!(bed.listed("high").len(), usize::from(!hotswap));
        assert_eq!(bed.c.written(Purpose::UnhealthyNodes), 1, "one of the two keeps the list");
    }
}

/// Nodes of a pool that say that they are about to go, and are ready until then.
fn depart(bed: &mut Bed, pool: &str) {
    let nodes = [0, 1, 2, 3].map(|at| format!("{pool}-{at}"));
    depart_nodes(bed, &nodes.each_ref().map(String::as_str));
}

/// The same with some nodes.
fn depart_nodes(bed: &mut Bed, nodes: &[&str]) {
    let label = json!({"metadata": {"labels": {"cloud.google.com/active-node-maintenance": "true"}}});
    for node in nodes {
        bed.c.api.edit(&ObjectRef::cluster(Kind::Node, *node), &label);
    }
}

#[test]
fn new_work_keeps_off_nodes_that_are_about_to_go() {
    let mut bed = bed(&[], &["a", "b"]);
    depart(&mut bed, "a");
    bed.pass(2);
    bed.placed_jobset("high", "high", 4, 4);
    bed.pass(5);
    assert!(bed.runs("high"));
    assert!(assigned(&bed, "high").iter().all(|node| node.starts_with('b')), "{:?}", assigned(&bed, "high"));
}

#[test]
fn work_leaves_nodes_that_are_about_to_go_once_and_does_not_come_back() {
    for replaces in [true, false] {
        let mut bed = bed(&[(Gate::TASFailedNodeReplacement, replaces)], &["a", "b"]);
        bed.placed_jobset("high", "high", 4, 4);
        bed.pass(3);
        assert!(assigned(&bed, "high").iter().all(|node| node.starts_with('a')));
        depart(&mut bed, "a");
        bed.pass(300);
        assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)], "{replaces}");
        assert!(bed.runs("high"));
        assert!(assigned(&bed, "high").iter().all(|node| node.starts_with('b')), "{replaces}");
    }
}

#[test]
fn one_node_is_replaced_and_hotswap_has_nothing_to_do() {
    let mut bed = bed(&[], &["a", "b", "c"]);
    bed.jobset("high", "q", "high", 1);
    bed.settle();
    bed.jobset("low", "q", "low", 1);
    bed.pass(3);
    bed.ready(&ObjectRef::cluster(Kind::Node, "a-1"), "Unknown");
    bed.pass(120);
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty());
    assert!(bed.runs("high") && !assigned(&bed, "high").contains(&"a-1".to_owned()));
    assert!(bed.listed("high").is_empty());
}

#[test]
fn work_that_needs_one_pool_gets_one_although_as_many_nodes_are_free_in_several() {
    let mut bed = bed(&[], &["a", "b", "c"]);
    for (name, priority, pods) in [("high", "high", 4), ("old", "low", 3), ("young", "low", 3)] {
        bed.placed_jobset(name, priority, pods, 4);
        bed.pass(2);
    }
    let pools =
        |bed: &Bed, job: &str| assigned(bed, job).iter().map(|node| node[..1].to_owned()).collect::<String>();
    assert_eq!(["high", "old", "young"].map(|job| pools(&bed, job)), ["aaaa", "bbb", "ccc"]);
    // Two nodes of the first pool are left, and one of each other.
    fail(&mut bed, &["a-0", "a-1"]);
    bed.pass(120);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(bed.evictions("young"), [("Preempted".to_owned(), 1)]);
    assert!(bed.evictions("old").is_empty(), "one pool is enough");
    assert_eq!((bed.runs("high"), pools(&bed, "high").as_str()), (true, "cccc"));
}

#[test]
fn nodes_that_the_cohort_has_lent_come_back_first_and_no_more_than_those() {
    let mut bed = Bed::new();
    bed.c.api.priority_class("middle", 1_500_000);
    bed.topology();
    let cohort = json!({"cohortName": "team"});
    // Of the four pools' quota of `x` one is lent to `z`, which has two.
    bed.queue("x", 64, &json!({"enable": true}), &cohort);
    bed.queue("z", 16, &json!({"enable": true}), &cohort);
    bed.pools(&["a", "b", "c", "d"], 4);
    for submitted in
        [("high", "x", "high"), ("own", "x", "low"), ("older", "z", "middle"), ("younger", "z", "middle")]
    {
        bed.placed_jobset_in(submitted, 4, 4);
        bed.pass(2);
        assert!(bed.runs(submitted.0), "{}", bed.reported(submitted.0, "QuotaReserved"));
    }
    for preempted in [&["younger"][..], &["own", "younger"]] {
        let lost = assigned(&bed, "high");
        fail(&mut bed, &[&lost[0], &lost[1]]);
        bed.pass(120);
        let others = ["own", "older", "younger"].into_iter();
        let gone: Vec<_> = others.filter(|name| !bed.evictions(name).is_empty()).collect();
        assert_eq!(gone, preempted, "`z` keeps what it has itself");
        assert!(bed.runs("high") && bed.runs("older"));
    }
}

#[test]
fn no_work_makes_room_in_vain_where_no_pool_is_large_enough() {
    let mut bed = bed(&[], &["a", "b"]);
    for (name, priority, pods) in [("high", "high", 4), ("low", "low", 3)] {
        bed.placed_jobset(name, priority, pods, 4);
        bed.pass(2);
    }
    // Two nodes of the other pool are gone from under its work: with the rest, four nodes are healthy, in two pools.
    fail(&mut bed, &["a-0", "a-1", "b-3"]);
    bed.pass(120);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert!(!bed.runs("high"));
    assert!(bed.runs("low") && bed.evictions("low").is_empty());
    bed.come_back(&["a", "b"]);
    bed.pass(10);
    assert!(bed.runs("high"));
}

#[test]
fn what_stays_says_how_much_of_it_the_other_nodes_could_take() {
    let mut bed = bed(&[(Gate::TASFailedNodeReplacementFailFast, false)], &["a", "b"]);
    for name in ["one", "two"] {
        bed.placed_jobset(name, "high", 4, 4);
        bed.pass(2);
    }
    assert_eq!((bed.runs("one"), bed.runs("two")), (true, true));
    fail(&mut bed, &["a-1"]);
    bed.pass(120);
    assert!(bed.evictions("one").is_empty() && bed.evictions("two").is_empty());
    let note = "Workload/jobset-one: Pods are on unhealthy node(s) a-1: no healthy nodes are free for it, even if all workloads of lower \
                priority were evicted: topology \"dc\" allows to fit only 3 out of 4 pod(s)";
    assert_eq!(bed.c.notes("HotswapNotPossible"), [note]);
}

#[test]
fn pods_that_are_assigned_to_a_lost_node_are_lost_whatever_room_the_other_nodes_of_their_job_have() {
    let mut bed = bed(&[(Gate::TASFailedNodeReplacement, false)], &["a", "b"]);
    // Others take half of two nodes for a while.
    let others = ["a-0", "a-1"].map(|node| bed.bind(&format!("other-{node}"), None, node, 2));
    fail(&mut bed, &["a-2", "a-3"]);
    bed.pass(1);
    bed.placed_jobset("high", "high", 4, 1);
    bed.pass(2);
    assert_eq!(bed.assigned("high"), [("a-0".to_owned(), 2), ("a-1".to_owned(), 2)]);
    for pod in others {
        bed.c.api.delete(&pod);
    }
    bed.pass(2);
    fail(&mut bed, &["a-0"]);
    bed.pass(60);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert!(bed.runs("high") && !assigned(&bed, "high").contains(&"a-0".to_owned()));
}

#[test]
fn a_search_of_the_core_that_is_longer_than_a_cycle_may_take_continues_in_the_next() {
    let config = EngineConfig { hotswap_steps: 0, status_interval_ms: 0, ..EngineConfig::default() };
    let mut bed = Bed::with(config);
    bed.topology();
    bed.pools(&["a", "b", "c"], 4);
    bed.page_queue(64);
    for (name, priority, pods) in [("high", "high", 4), ("old", "low", 3), ("young", "low", 3)] {
        bed.placed_jobset(name, priority, pods, 4);
        bed.pass(2);
    }
    bed.c.most_steps = 0;
    fail(&mut bed, &["a-0", "a-1"]);
    bed.pass(60);
    assert!(bed.c.most_steps < 50, "{} steps at a stretch", bed.c.most_steps);
    assert!(!bed.c.engine.has_work(), "the search does not begin again and again");
    assert!(bed.evictions("old").is_empty());
    assert_eq!((bed.evictions("young"), bed.runs("high")), (vec![("Preempted".to_owned(), 1)], true));
}

#[test]
fn room_in_one_pool_is_not_kept_once_its_nodes_are_in_two() {
    let mut bed = bed(&[], &["a", "b", "c"]);
    for (name, priority, pods) in [("high", "high", 4), ("low", "low", 3)] {
        bed.placed_jobset(name, priority, pods, 4);
        bed.pass(2);
    }
    depart_nodes(&mut bed, &["a-0", "a-1"]);
    bed.c.advance(1);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert!(bed.evictions("low").is_empty(), "pool C is free");
    // Its pods are still ending.
    bed.c.api.edit(&ObjectRef::cluster(Kind::Node, "c-3"), &json!({"metadata": {"labels": {POOL: "d"}}}));
    bed.pass(60);
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
    assert!(
        bed.runs("high") && assigned(&bed, "high").iter().all(|node| node.starts_with('b')),
        "{:?}",
        assigned(&bed, "high")
    );
}

#[test]
fn a_node_that_departs_is_no_room_for_what_runs_on_it() {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b", "c"], 1);
    bed.sized_jobset("old", "q", "high", 1, 1);
    let mut view = bed.c.api.job("old").view.clone();
    view.pod_sets[0].exclusive_topology = None;
    bed.c.api.add_job(view);
    bed.c.settle();
    bed.bind("old-pod", Some("old"), "a-0", 4);
    for name in ["other", "third"] {
        bed.sized_jobset(name, "q", "high", 1, 1);
        bed.pass(2);
    }
    assert_eq!((bed.pools_of("other"), bed.pools_of("third")), (vec!["b".to_owned()], vec!["c".to_owned()]));
    // From now on the flavor has a topology; what runs was assigned no nodes.
    bed.topology();
    bed.pass(2);
    bed.c.api.edit(
        &ObjectRef::cluster(Kind::Node, "a-0"),
        &json!({"metadata": {"labels": {"cloud.google.com/active-node-maintenance": "true"}}}),
    );
    bed.pass(60);
    assert_eq!((bed.runs("old"), bed.evictions("old")), (true, vec![]));
    assert_eq!(bed.listed("old"), ["a-0"]);
    assert_eq!(bed.c.notes("HotswapNotPossible").len(), 1);
}

#[test]
fn the_room_of_what_lost_several_nodes_is_kept_until_it_runs_again() {
    let mut bed = bed(&[], &["a", "b"]);
    let cohort = json!({"cohortName": "co"});
    bed.queue("q", 0, &json!({"enable": true}), &cohort);
    bed.queue("lender", 16, &json!({"enable": true}), &cohort);
    bed.placed_jobset("high", "high", 4, 4);
    bed.pass(2);
    assert!(assigned(&bed, "high").iter().all(|node| node.starts_with('a')));
    // It would go first, as it borrows nothing.
    bed.jobset("low", "lender", "low", 1);
    bed.pass(2);
    assert!(!bed.runs("low"));
    fail(&mut bed, &["a-0", "a-1"]);
    bed.pass(60);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    let waits = ["high", "low"].map(|job| bed.reported(job, "QuotaReserved"));
    assert!(bed.runs("high") && assigned(&bed, "high").iter().all(|node| node.starts_with('b')), "{waits:?}");
    let admitted = bed.c.notes("Admitted");
    assert!(admitted.iter().all(|note| !note.contains("jobset-low")), "{admitted:?}");
}
