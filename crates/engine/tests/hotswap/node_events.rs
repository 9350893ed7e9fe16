//! The cost of one node or pod event where the core assigns nodes and Hotswap acts: it does not grow with the number of nodes.

use serde_json::json;
use sluice_engine::{Input, Kind, ObjectRef, Work};

use crate::bed::{Bed, TPU};

/// JobSets of one pool each that run, and one that no pool is large enough for, in a world of `pools` pools of four nodes.
fn world(pools: usize) -> Bed {
    let mut bed = Bed::new();
    bed.c.checked = false;
    bed.topology();
    let names: Vec<String> = (0..pools).map(|pool| format!("p{pool:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.pools(&names, 4);
    bed.page_queue(1_000_000);
    for job in 0..8 {
        bed.placed_jobset(&format!("j{job}"), "high", 4, 4);
    }
    bed.placed_jobset("large", "low", 8, 4);
    bed.settle();
    bed.c.advance(5);
    assert!(bed.runs("j0") && bed.runs("j7") && !bed.runs("large"));
    bed
}

/// What an event costs: leaves that are counted, queues that are notified, pods that are looked at, and passes over everything.
fn cost(bed: &mut Bed, happens: impl FnOnce(&mut Bed)) -> [u64; 4] {
    let before = bed.c.engine.work();
    happens(bed);
    bed.c.settle();
    let after = bed.c.engine.work();
    let cost = [
        after.counted_domains - before.counted_domains,
        after.freed_queues - before.freed_queues,
        after.counted_pods - before.counted_pods,
        after.hotswap_looks - before.hotswap_looks,
    ];
    bed.c.advance(5);
    cost
}

fn costs(pools: usize) -> Vec<(&'static str, [u64; 4])> {
    let mut bed = world(pools);
    let node_of = |job: &Bed, name: &str| ObjectRef::cluster(Kind::Node, job.assigned(name)[0].0.as_str());
    let (busy, free) = (node_of(&bed, "j1"), bed.nodes_of(&["p0020"]).remove(0));
    let label = |bed: &mut Bed, node: &ObjectRef| {
        bed.c.api.edit(node, &json!({"metadata": {"labels": {"seen": "1"}}}));
    };
    let taint = |bed: &mut Bed, node: &ObjectRef| {
        let gpu = json!({"key": TPU, "value": "present", "effect": "NoSchedule"});
        let other = json!({"key": "other", "value": "x", "effect": "NoSchedule"});
        bed.c.api.edit(node, &json!({"spec": {"taints": [gpu, other]}}));
    };
    // Whatever its first look at the nodes costs, and the first cycle after that.
    for status in ["Unknown", "True"] {
        cost(&mut bed, |bed| bed.ready(&free, status));
    }
    vec![
        ("a label of a node with pods", cost(&mut bed, |bed| label(bed, &busy))),
        ("a label of a free node", cost(&mut bed, |bed| label(bed, &free))),
        ("a taint of a free node", cost(&mut bed, |bed| taint(bed, &free))),
        (
            "other allocatable of a free node",
            cost(&mut bed, |bed| {
                bed.c.api.edit_status(&free, |status| status["allocatable"]["pods"] = json!("64"));
            }),
        ),
        (
            "a pod of another kind",
            cost(&mut bed, |bed| {
                bed.bind("other", None, &free.name, 1);
            }),
        ),
        (
            "its end",
            cost(&mut bed, |bed| {
                let pod = ObjectRef::namespaced(Kind::Pod, "team-a", "other");
                bed.c.api.delete(&pod);
            }),
        ),
        ("a free node that is not ready", cost(&mut bed, |bed| bed.ready(&free, "Unknown"))),
        ("the same that is ready again", cost(&mut bed, |bed| bed.ready(&free, "True"))),
        (
            "a free node that is cordoned",
            cost(&mut bed, |bed| bed.c.api.edit(&free, &json!({"spec": {"unschedulable": true}}))),
        ),
        (
            "a free node that is uncordoned",
            cost(&mut bed, |bed| bed.c.api.edit(&free, &json!({"spec": {"unschedulable": false}}))),
        ),
        (
            "a pod of a Workload",
            cost(&mut bed, |bed| {
                bed.bind("another", Some("j1"), &busy.name, 4);
            }),
        ),
        (
            "the end of a pod of a Workload",
            cost(&mut bed, |bed| {
                let pod = ObjectRef::namespaced(Kind::Pod, "team-a", "another");
                bed.c.api.delete(&pod);
            }),
        ),
    ]
}

/// What may be something that all nodes, pods and Workloads are looked at for.
const IS_LOOKED_AT: [&str; 4] = [
    "a free node that is not ready",
    "the same that is ready again",
    "a free node that is cordoned",
    "a free node that is uncordoned",
];

#[test]
fn one_event_of_a_node_or_a_pod_looks_at_what_is_on_that_node_alone() {
    let few = costs(40);
    for (what, [leaves, queues, pods, looks]) in &few {
        let (counted, notified) = match *what {
            // Nothing selects nodes by it.
            what if what.contains("label") => (0, 0),
            // What a pod gives back is free for others, and the limits of Hotswap are others.
            "its end" | "a free node that is cordoned" | "a free node that is uncordoned" => (2, 2),
            _ => (2, 1),
        };
        let read = u64::from(what.contains("pod of") || *what == "its end");
        assert!(*leaves <= counted && *queues <= notified && *pods <= 2 * read, "{what}: {few:?}");
        assert!(*looks <= u64::from(IS_LOOKED_AT.contains(what)), "{what}: {few:?}");
    }
    assert_eq!(few, costs(160), "among many nodes");
}

/// What passes over everything cost since `before`: how many there were, how many counted what is free, and their steps.
fn passes(bed: &Bed, before: &Work) -> [u64; 3] {
    let after = bed.c.engine.work();
    [
        after.hotswap_looks - before.hotswap_looks,
        after.hotswap_rooms - before.hotswap_rooms,
        after.hotswap_steps - before.hotswap_steps,
    ]
}

#[test]
fn what_is_free_is_counted_only_if_something_that_runs_has_lost_nodes() {
    let mut bed = world(40);
    let free = bed.nodes_of(&["p0020"]).remove(0);
    let before = bed.c.engine.work();
    bed.ready(&free, "Unknown");
    bed.c.settle();
    // 160 nodes and 32 pods.
    assert_eq!(passes(&bed, &before), [1, 0, 12], "the pass over the nodes and pods counts");
    bed.bind("other", None, &free.name, 1);
    bed.c.advance(60);
    let [looks, rooms, _] = passes(&bed, &before);
    assert!(looks >= 3 && rooms == 0, "{looks} looks, {rooms} of them counted");
    let mut bed = Bed::new();
    bed.pools(&["a", "b"], 4);
    bed.page_queue(1_000);
    bed.jobset("j", "q", "high", 1);
    bed.settle();
    bed.pass(5);
    let before = bed.c.engine.work();
    bed.fail(&["a"]);
    bed.pass(60);
    assert!(passes(&bed, &before)[1] > 0 && bed.runs("j") && bed.pools_of("j") == ["b"]);
}

#[test]
fn pods_that_come_and_go_as_their_quota_says_cause_no_look_while_another_node_is_cordoned() {
    let mut bed = world(40);
    let busy = ObjectRef::cluster(Kind::Node, bed.assigned("j1")[0].0.as_str());
    let cordoned = bed.nodes_of(&["p0020"]).remove(0);
    bed.c.api.edit(&cordoned, &json!({"spec": {"unschedulable": true}}));
    bed.c.settle();
    bed.c.advance(5);
    let mut looks = |node: &ObjectRef, jobset: Option<&str>| {
        let came = cost(&mut bed, |bed| drop(bed.bind("another", jobset, &node.name, 4)))[3];
        let pod = ObjectRef::namespaced(Kind::Pod, "team-a", "another");
        [came, cost(&mut bed, |bed| bed.c.api.delete(&pod))[3]]
    };
    assert_eq!(looks(&busy, Some("j1")), [0, 0]);
    assert_eq!(looks(&cordoned, Some("j1")), [1, 1], "it is where it may not stay");
    assert_eq!(looks(&busy, None), [0, 0], "the limit of the flavor is another, and nothing else");
    assert_eq!(looks(&cordoned, None), [1, 1]);
}

#[test]
fn a_pod_that_is_missing_while_another_leaves_a_cordoned_node_is_looked_at() {
    let mut bed = world(40);
    let pods: Vec<_> = bed.pods().into_iter().filter(|(job, ..)| job == "j1").collect();
    let (left, other) = (&pods[0], &pods[1]);
    let node = ObjectRef::cluster(Kind::Node, left.1.as_str());
    bed.c.api.edit(&node, &json!({"spec": {"unschedulable": true}}));
    // One more than it needs is there, so that the one that leaves is not missed.
    bed.bind("more", Some("j1"), &other.1, 4);
    let at = bed.c.now.to_string();
    bed.c.api.edit(&left.2, &json!({"metadata": {"deletionTimestamp": at}}));
    bed.c.settle();
    bed.c.advance(5);
    assert!(cost(&mut bed, |bed| bed.c.api.delete(&other.2))[3] > 0);
}

/// How many allocations it takes to take in the events of a node, each some times.
fn allocations(pools: usize) -> Vec<(&'static str, u64)> {
    let mut bed = world(pools);
    let busy = ObjectRef::cluster(Kind::Node, bed.assigned("j1")[0].0.as_str());
    let free = bed.nodes_of(&["p0020"]).remove(0);
    let label = |bed: &mut Bed, node: &ObjectRef, value: usize| {
        bed.c.api.edit(node, &json!({"metadata": {"labels": {"seen": value.to_string()}}}));
    };
    let unschedulable = |bed: &mut Bed, is: bool| {
        bed.c.api.edit(&free, &json!({"spec": {"unschedulable": is}}));
    };
    let mut all: Vec<(&'static str, u64)> = Vec::new();
    for round in 0..4 {
        let mut took = |what, node: &ObjectRef, happens: &dyn Fn(&mut Bed)| {
            happens(&mut bed);
            let seen = Input::Applied(bed.c.api.seen(node));
            let (engine, now) = (&mut bed.c.engine, bed.c.now);
            let took = allocation_counter::measure(|| engine.apply(now, seen)).count_total;
            bed.c.settle();
            bed.c.advance(5);
            // Whatever the first of each costs is not counted.
            if round > 0 {
                all.push((what, took));
            }
        };
        took("a label of a node with pods", &busy, &|bed| label(bed, &busy, round));
        took("a label of a free node", &free, &|bed| label(bed, &free, round));
        took("a node that is not ready", &free, &|bed| bed.ready(&free, "Unknown"));
        took("a node that is ready again", &free, &|bed| bed.ready(&free, "True"));
        took("a node that is cordoned", &free, &|bed| unschedulable(bed, true));
        took("a node that is uncordoned", &free, &|bed| unschedulable(bed, false));
    }
    all
}

#[test]
fn what_has_not_changed_of_a_node_is_not_read_again() {
    for pools in [40, 160] {
        for (what, took) in allocations(pools) {
            assert!(took <= 30, "{what} takes {took} allocations among {pools} pools");
        }
    }
}

/// How many looks a label of other software, a taint and an amount of a resource without quota cause, each on a node that is well.
fn looks(bed: &mut Bed) -> [u64; 3] {
    let well = bed.nodes_of(&["b"]).remove(0);
    let looks = |bed: &mut Bed, happens: &dyn Fn(&mut Bed)| cost(bed, happens)[3];
    [
        looks(bed, &|bed| bed.c.api.edit(&well, &json!({"metadata": {"labels": {"seen": "1"}}}))),
        looks(bed, &|bed| {
            let taint = json!({"key": "other", "value": "x", "effect": "PreferNoSchedule"});
            bed.c.api.edit(&well, &json!({"spec": {"taints": [taint]}}));
        }),
        looks(bed, &|bed| bed.c.api.edit_status(&well, |status| status["allocatable"]["pods"] = json!("64"))),
    ]
}

#[test]
fn while_a_node_is_lost_only_what_displaced_pods_read_of_other_nodes_causes_a_look() {
    let mut bed = Bed::new();
    bed.pools(&["a", "b"], 4);
    bed.page_queue(1_000);
    bed.settle();
    bed.fail(&["a"]);
    bed.c.advance(60);
    assert_eq!(looks(&mut bed), [0, 0, 0], "nothing runs there");
    let mut bed = Bed::new();
    bed.pools(&["a", "b"], 4);
    bed.page_queue(1_000);
    bed.jobset("j", "q", "high", 2);
    bed.settle();
    bed.pass(5);
    assert!(bed.runs("j"));
    bed.fail(&["a"]);
    bed.pass(60);
    assert_eq!(looks(&mut bed), [0, 1, 1], "what is displaced may go there: {:?}", bed.evictions("j"));
}

/// Workloads that no nodes are enough for, without jobs.
fn wait(bed: &mut Bed, workloads: usize) {
    let container = json!({"name": "c", "resources": {"requests": {TPU: "4"}}});
    let set = json!({"name": "main", "count": 1_000, "template": {"spec": {"containers": [container]}}});
    for number in 0..workloads {
        let metadata = json!({"name": format!("w{number}"), "namespace": "team-a"});
        bed.c
            .api
            .put(Kind::Workload, json!({"metadata": metadata, "spec": {"queueName": "q", "podSets": [set]}}));
    }
}

#[test]
fn work_that_waits_is_not_visited_by_a_look() {
    let seen = |workloads: usize, jobs: usize| {
        let mut bed = world(40);
        wait(&mut bed, workloads);
        for job in 0..jobs {
            bed.placed_jobset(&format!("placed-{job}"), "low", 8, 4);
            bed.sized_jobset(&format!("groups-{job}"), "q", "low", 90, 4);
            bed.plain_jobset(&format!("plain-{job}"), "low", 1_000, 4);
        }
        bed.c.settle();
        bed.c.advance(1);
        let free = bed.nodes_of(&["p0020"]).remove(0);
        let before = bed.c.engine.work();
        bed.ready(&free, "Unknown");
        bed.c.settle();
        let after = bed.c.engine.work();
        let state = bed.c.engine.audit();
        assert!(state.is_ok(), "{state:?}");
        (after.hotswap_looks - before.hotswap_looks, after.hotswap_workloads - before.hotswap_workloads)
    };
    let few = seen(1, 1);
    assert_eq!(few, (1, 8), "those that run");
    assert_eq!(seen(10_000, 20), few);
}

#[test]
fn work_that_starts_on_healthy_nodes_is_not_looked_at() {
    let mut bed = world(40);
    let before = bed.c.engine.work().hotswap_looks;
    for job in ["m0", "m1", "m2"] {
        bed.placed_jobset(job, "high", 4, 4);
        bed.settle();
        bed.c.advance(5);
        assert!(bed.runs(job) && bed.pools_of(job).len() == 1);
    }
    assert_eq!(bed.c.engine.work().hotswap_looks, before);
}

#[test]
fn pods_that_come_before_their_workload_holds_quota_count_as_its_own_from_then_on() {
    let mut bed = Bed::new();
    bed.pools(&["a", "b"], 4);
    bed.page_queue(1_000);
    bed.c.advance(5);
    let node = bed.nodes_of(&["a"]).remove(0);
    // A part of it was started already.
    bed.bind("early", Some("j"), &node.name, 4);
    bed.c.advance(5);
    bed.plain_jobset("j", "high", 1, 4);
    bed.c.advance(5);
    assert!(bed.runs("j"));
    bed.plain_jobset("rest", "high", 7, 4);
    bed.c.advance(5);
    assert!(bed.runs("rest"), "{}", bed.reported("rest", "QuotaReserved"));
}
